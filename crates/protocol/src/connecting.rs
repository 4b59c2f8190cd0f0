//! The worker's part in connecting: lanes are chosen and opened here, never on the path of a message.
//!
//! While a lane is being wired up it refuses what is posted, as a full one does; so what is sent
//! meanwhile waits in the endpoint's queue and goes out in order once the lane is ready.

use crate::request::Fault;
use crate::wireup::{Action, Step};
use crate::worker::Worker;
use fastpath_transport::Lane;

impl Worker {
    /// Makes sure that messages can be sent to `peer`, now or as soon as its lane is wired up.
    pub(crate) fn connect(&mut self, peer: u32) -> Result<(), Fault> {
        self.prepare_lane(peer);
        let lane = &mut self.endpoint(peer).lane;
        if let Err(error) = self.interfaces.connect(lane) {
            self.job
                .own_page()
                .message
                .store(&format!("connecting to rank {peer}: {error}"));
            return Err(Fault::NoMemory);
        }
        match self.endpoint(peer).lane.wants_wireup() {
            true => self.start_wireup(peer),
            false => Ok(()),
        }
    }

    /// Chooses a lane for `peer` if it has none.
    pub(crate) fn prepare_lane(&mut self, peer: u32) {
        let endpoint = self.endpoint(peer);
        if matches!(endpoint.lane, Lane::Unconnected) {
            endpoint.lane = self.interfaces.make_lane(peer);
            let own = matches!(endpoint.lane, Lane::Loopback(_));
            self.counters.connections += 1;
            self.note_lane_change();
            if own {
                self.active.push(peer);
            }
        }
    }

    /// Goes on with everything that is not the ring of one peer; says whether anything happened.
    #[cold]
    #[inline(never)]
    pub(crate) fn progress_interfaces(&mut self) -> bool {
        let accepted = self.accept_peers();
        let moved = self.interfaces.progress();
        // A poll of the wire-up interface is not free: only while something is connecting, or when
        // the interface itself signals that a message has come (UCX progresses it for ever unless
        // it is taken out once everything is connected).
        let wired =
            (self.wireup.is_active() || self.interfaces.wireup_signals() || !self.rma.gates_wireup)
                && self.progress_wireup();
        accepted | moved | wired
    }

    /// Attaches the lanes of peers that have connected to this process.
    fn accept_peers(&mut self) -> bool {
        let mut fresh = Vec::new();
        self.interfaces.accept(|peer| fresh.push(peer));
        for &peer in &fresh {
            self.prepare_lane(peer);
            self.endpoint(peer).lane.open_receive();
            self.active.push(peer);
        }
        !fresh.is_empty()
    }

    #[cold]
    fn start_wireup(&mut self, peer: u32) -> Result<(), Fault> {
        let mut actions = Vec::new();
        self.wireup
            .connect(peer, self.interfaces.now_ns(), &mut actions);
        self.apply_wireup(actions);
        match self.wireup.stage(peer) {
            Some(crate::wireup::Stage::Failed) => Err(Fault::PeerGone),
            _ => Ok(()),
        }
    }

    pub(crate) fn progress_wireup(&mut self) -> bool {
        let now_ns = self.interfaces.now_ns();
        let mut actions = Vec::new();
        while let Some((peer, step, address)) = self.interfaces.receive_wireup() {
            match Step::from_wire(step) {
                Some(step) if peer < self.size() => {
                    self.wireup
                        .receive(peer, step, address, now_ns, &mut actions);
                }
                _ => self.counters.violations += 1,
            }
        }
        let left: Vec<u32> = self
            .wireup
            .connecting()
            .filter(|&peer| self.endpoint(peer).lane.peer_has_left())
            .collect();
        left.into_iter()
            .for_each(|peer| self.wireup.give_up(peer, &mut actions));
        self.wireup.tick(now_ns, &mut actions);
        let moved = !actions.is_empty();
        self.apply_wireup(actions);
        moved
    }

    fn apply_wireup(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(peer, step) => {
                    self.prepare_lane(peer);
                    let address = self.endpoint(peer).lane.local_address();
                    self.interfaces.send_wireup(peer, step as u8, address);
                }
                Action::Open(peer, address) => {
                    self.prepare_lane(peer);
                    match self.endpoint(peer).lane.open(&address) {
                        true => self.active.push(peer),
                        false => self.counters.violations += 1,
                    }
                }
                Action::Ready(peer) => self.endpoint(peer).lane.set_ready(),
                Action::Fail(peer) => self.fail_pending(peer),
            }
        }
    }
}
