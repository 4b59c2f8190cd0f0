//! Connecting: lanes are chosen and opened here, never on the path of a message.
//!
//! During its wire-up a lane refuses messages, as a full lane does. Messages wait in the endpoint's queue, in order.

use crate::request::Fault;
use crate::wireup::{Stage, WireupAction, WireupMessage};
use crate::worker::Worker;
use fastpath_transport::{Address, Connection};

/// Bit of a step that marks wire-up messages of a connection that will replace datagrams.
const RISE: u8 = 0x10;

impl Worker {
    /// Makes `peer` reachable, now or when its lane is wired up. Messages can be queued after this call.
    pub(crate) fn connect(&mut self, peer: u32) -> Result<(), Fault> {
        self.prepare_lane(peer);
        let lane = &mut self.endpoints[peer].lane;
        if lane.is_unconnected() && self.interfaces.failure(peer).is_some() {
            return Err(Fault::PeerGone);
        }
        if let Err(error) = self.interfaces.connect(lane) {
            // If another rank has taken the peer's place, a lane to that place would reach the other rank's memory.
            if self.job.segment().has_lost_place(peer as usize) {
                self.interfaces.release(peer, &mut self.endpoints[peer].lane);
                self.note_lane_change();
            }
            if self.interfaces.has_left(peer) {
                return Err(Fault::PeerGone);
            }
            self.job.own_page().message.store(&format!("cannot connect to rank {peer}: {error}"));
            return Err(Fault::NoMemory);
        }
        match self.endpoints[peer].lane.wants_wireup() {
            true => self.start_wireup(peer),
            false => Ok(()),
        }
    }

    /// Makes a lane, and connects it if it is a shared-memory lane to a spawned rank. Such a lane refers to the peer's
    /// memory, and only the ring of a connected lane keeps the peer's place from being reused (docs/decisions/0087).
    pub(crate) fn hold_lane(&mut self, peer: u32) -> Result<(), Fault> {
        self.prepare_lane(peer);
        let is_spawned = peer as usize >= self.job.began_with();
        match is_spawned && self.endpoints[peer].lane.is_ring() {
            true => self.connect(peer),
            false => Ok(()),
        }
    }

    pub(crate) fn prepare_lane(&mut self, peer: u32) {
        let endpoint = &mut self.endpoints[peer];
        if endpoint.lane.is_unconnected() {
            endpoint.lane = self.interfaces.make_lane(peer);
            let own = endpoint.lane.is_self();
            self.counters.connections += 1;
            self.note_lane_change();
            if own {
                self.active.push(peer);
            }
        }
    }

    /// Polls interfaces, connections and signals, but not the rings of peers. Returns whether anything happened.
    #[cold]
    #[inline(never)]
    pub(crate) fn progress_interfaces(&mut self) -> bool {
        let moved = self.interfaces.progress_while(self.is_connecting());
        let is_signalled = self.interfaces.has_signal();
        let accepted = self.accept_peers();
        // Without shared memory no signal comes, but a job that tolerates failures must learn of each death.
        let may_end = is_signalled || self.hooks.seeks_ends;
        let released = (may_end && self.note_ends()) | self.deliver_notices();
        while let Some(peer) = self.interfaces.take_without_adapter() {
            match self.is_wired(peer) {
                true => self.refuse_peer(peer),
                false => _ = self.leave_adapter(peer),
            }
        }
        while let Some(peer) = self.interfaces.take_upgrade_request() {
            self.start_upgrade(peer);
        }
        if self.interfaces.take_upgraded() {
            self.note_lane_change();
        }
        // Poll the wire-up interface only while a peer is connecting, or if the interface signals arrivals, because the
        // poll has a cost. (UCX polls it until all connections exist, and then removes it.)
        let wired =
            (self.is_connecting() || self.interfaces.wireup_signals() || !self.rma.gates_wireup)
                && self.progress_wireup();
        accepted | moved | wired | released
    }

    /// Returns whether a peer is connecting.
    #[inline]
    pub fn is_connecting(&self) -> bool {
        self.wireup.is_active() || self.upgrade.is_active()
    }

    fn accept_peers(&mut self) -> bool {
        let (before, mut moved) = (self.active.len(), false);
        let active = &mut self.active;
        self.interfaces.accept(|peer| active.push(peer));
        for index in before..self.active.len() {
            let peer = self.active[index];
            self.prepare_lane(peer);
            let lane = &mut self.endpoints[peer].lane;
            lane.open_receive();
            moved |= !lane.is_resting();
        }
        moved
    }

    #[cold]
    fn start_wireup(&mut self, peer: u32) -> Result<(), Fault> {
        let mut actions = Vec::new();
        self.wireup.connect(peer, self.interfaces.now_ns(), &mut actions);
        self.apply_wireup(actions);
        match self.wireup.stage(peer) {
            Some(Stage::Failed) => Err(Fault::PeerGone),
            _ => Ok(()),
        }
    }

    pub(crate) fn progress_wireup(&mut self) -> bool {
        let now_ns = self.interfaces.now_ns();
        let (mut actions, mut upgrades) = (Vec::new(), Vec::new());
        while let Some((peer, number, address)) = self.interfaces.receive_wireup() {
            match WireupMessage::from_wire(number & !RISE) {
                Some(step) if peer < self.present() && number & RISE == 0 => {
                    match step != WireupMessage::Refuse && self.interfaces.refuses_adapter(peer) {
                        true if self.is_wired(peer) => self.refuse_peer(peer),
                        true => self.wireup.refuse(peer, &mut actions),
                        false => {
                            let wireup = &mut self.wireup;
                            wireup.receive(peer, step, address, now_ns, &mut actions);
                        }
                    }
                }
                Some(step) if peer < self.present() => {
                    self.receive_upgrade(peer, step, address, &mut upgrades);
                }
                _ => self.counters.violations += 1,
            }
        }
        let has_left = |peer: &u32| self.endpoints[*peer].lane.peer_has_left();
        let left: Vec<u32> = self.wireup.connecting().filter(has_left).collect();
        let left_upgrades: Vec<u32> = self.upgrade.connecting().filter(has_left).collect();
        left.into_iter().for_each(|peer| self.wireup.give_up(peer, &mut actions));
        left_upgrades.into_iter().for_each(|peer| self.upgrade.give_up(peer, &mut upgrades));
        // Computed before `tick`, because a retransmission is not progress. If `tick` gives up a peer, that is detected
        // when the peer's requests are checked.
        let moved = !actions.is_empty() || !upgrades.is_empty();
        self.wireup.tick(now_ns, &mut actions);
        self.upgrade.tick(now_ns, &mut upgrades);
        self.apply_wireup(actions);
        self.apply_upgrade(upgrades);
        moved
    }

    fn apply_wireup(&mut self, actions: Vec<WireupAction>) {
        for action in actions {
            let failed = |peer| self.wireup.stage(peer) == Some(Stage::Failed);
            match action {
                WireupAction::Send(peer, step) if failed(peer) && step != WireupMessage::Refuse => {
                }
                WireupAction::Ready(peer) if failed(peer) => {}
                WireupAction::Send(peer, step) => self.send_step(peer, step),
                WireupAction::Open(peer, address) => {
                    self.prepare_lane(peer);
                    match self.endpoints[peer].lane.open(&address) {
                        true => self.active.push(peer),
                        false if self.leave_adapter(peer) => {
                            self.send_step(peer, WireupMessage::Refuse)
                        }
                        false => self.counters.violations += 1,
                    }
                }
                WireupAction::Ready(peer) => self.endpoints[peer].lane.set_ready(),
                WireupAction::Fail(peer) => _ = self.leave_adapter(peer),
            }
        }
    }

    fn is_wired(&self, peer: u32) -> bool {
        self.wireup.stage(peer) == Some(Stage::Connected)
    }

    #[cold]
    fn refuse_peer(&mut self, peer: u32) {
        self.counters.violations += 1;
        self.interfaces.hang_up(peer);
    }

    fn send_step(&mut self, peer: u32, step: WireupMessage) {
        self.prepare_lane(peer);
        let address = self.endpoints[peer].lane.local_address();
        if !self.interfaces.send_wireup(peer, step as u8, address) {
            self.wireup.postpone(peer, self.interfaces.now_ns());
        }
    }

    /// Replaces an adapter's lane that will not be wired up. No message is lost, because messages wait for the wire-up.
    /// If no other lane is possible, fails all pending messages and returns false.
    #[cold]
    fn leave_adapter(&mut self, peer: u32) -> bool {
        // The peer gets this refusal when it requests a connection.
        self.wireup.refuse(peer, &mut Vec::new());
        if !self.interfaces.leave_adapter(peer) {
            self.fail_pending(peer, Fault::PeerGone);
            return false;
        }
        self.endpoints[peer].lane = self.interfaces.make_lane(peer);
        self.note_lane_change();
        if !self.active.contains(&peer) {
            self.active.push(peer);
        }
        // Connecting a network lane cannot fail.
        _ = self.interfaces.connect(&mut self.endpoints[peer].lane);
        true
    }
}

/// Upgrades: a connection replaces a lane's datagrams once the lane finds it worth its cost.
impl Worker {
    #[cold]
    fn start_upgrade(&mut self, peer: u32) {
        if self.upgrade.stage(peer).is_some() {
            return;
        }
        let mut actions = Vec::new();
        match self.prepare_upgrade(peer) {
            true => {
                let now_ns = self.interfaces.now_ns();
                self.upgrade.connect(peer, now_ns, &mut actions);
            }
            false => self.upgrade.refuse(peer, &mut Vec::new()),
        }
        self.apply_upgrade(actions);
    }

    fn prepare_upgrade(&mut self, peer: u32) -> bool {
        self.prepare_lane(peer);
        let lane = &mut self.endpoints[peer].lane;
        self.interfaces.prepare_upgrade(lane).is_ok()
    }

    fn receive_upgrade(
        &mut self, peer: u32, step: WireupMessage, address: Address, out: &mut Vec<WireupAction>,
    ) {
        let is_new = step == WireupMessage::Request && self.upgrade.stage(peer).is_none();
        if is_new && !self.prepare_upgrade(peer) {
            return self.upgrade.refuse(peer, out);
        }
        let now_ns = self.interfaces.now_ns();
        self.upgrade.receive(peer, step, address, now_ns, out);
    }

    fn apply_upgrade(&mut self, actions: Vec<WireupAction>) {
        for action in actions {
            let (WireupAction::Send(peer, _)
            | WireupAction::Open(peer, _)
            | WireupAction::Ready(peer)
            | WireupAction::Fail(peer)) = action;
            let failed = self.upgrade.stage(peer) == Some(Stage::Failed);
            match action {
                WireupAction::Send(_, step) if failed && step != WireupMessage::Refuse => {}
                WireupAction::Ready(_) if failed => {}
                WireupAction::Send(_, step) => self.send_upgrade(peer, step),
                WireupAction::Open(_, address) => {
                    let lane = &mut self.endpoints[peer].lane;
                    if !lane.open_upgrade(&address) {
                        lane.give_up_upgrade();
                        self.upgrade.refuse(peer, &mut Vec::new());
                        self.send_upgrade(peer, WireupMessage::Refuse);
                    }
                }
                WireupAction::Ready(_) => self.endpoints[peer].lane.finish_upgrade(),
                WireupAction::Fail(_) => self.endpoints[peer].lane.give_up_upgrade(),
            }
        }
    }

    fn send_upgrade(&mut self, peer: u32, step: WireupMessage) {
        let address = self.endpoints[peer].lane.upgrade_address();
        let number = step as u8 | RISE;
        if !self.interfaces.send_wireup(peer, number, address) {
            self.upgrade.postpone(peer, self.interfaces.now_ns());
        }
    }
}
