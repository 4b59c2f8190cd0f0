//! The interface: both transports on one port, who may have a connection, and when datagrams are looked for.

use super::Rule;
use super::endpoint::UpgradeEndpoint;
use crate::adapter::rc::RcIface;
use crate::adapter::ud::{RankAddresses, UdEndpoint, UdIface};
use crate::contract::Connection;
use crate::verbs::VerbsError;
use fastpath_base::sync::{AtomicU32, Ordering};
use fastpath_bootstrap::job::Job;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Progress without a look for datagrams, where the adapter cannot tell of them.
const BLIND: u32 = 64;

/// What has happened, for reports and tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Pairs that began with datagrams.
    pub pairs: u64,
    /// Of those, pairs that have a connection in both directions.
    pub upgraded: u64,
    /// Pairs that would have got one but for the limit.
    pub limited: u64,
    /// Pairs of which no connection could be made.
    pub stayed: u64,
    /// WireupDatagrams of ranks that do not own the queue pair they came from; dropped.
    pub strangers: u64,
    /// Times that the datagram queue pair went to rest.
    pub rests: u64,
}

/// Why a pair stays with datagrams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// There are as many connections as may be.
    Limit,
    /// What is missing, for people.
    Failed(String),
}

/// What the pairs of an interface share.
pub(super) struct Shared {
    pub rule: Rule,
    /// Peers that have become worth a connection.
    pub upgrade_requests: Vec<u32>,
    /// Ends whose pairs need no datagrams any more. They answer those that their peers may send again.
    pub parked: Vec<UdEndpoint>,
    /// Pairs that do.
    pub on_datagrams: u32,
    pub counters: Counters,
}

/// An adapter's port as this process uses it for datagrams and connections.
pub struct UpgradeIface {
    ud: UdIface,
    rc: RcIface,
    addresses: RankAddresses,
    shared: Rc<RefCell<Shared>>,
    /// Not 0 once something has arrived at the datagram queue pair that rests.
    bell: Arc<AtomicU32>,
    resting: bool,
    blind: u32,
    /// Pairs that had upgraded when it was last asked.
    told: u64,
}

impl UpgradeIface {
    /// Both transports of a rank, whose card is published.
    pub fn new(mut ud: UdIface, rc: RcIface, job: &'static Job) -> Self {
        let addresses = RankAddresses::open(&mut ud, job);
        let shared = Shared {
            rule: Rule::default(),
            upgrade_requests: Vec::new(),
            parked: Vec::new(),
            on_datagrams: 0,
            counters: Counters::default(),
        };
        UpgradeIface {
            ud,
            rc,
            addresses,
            shared: Rc::new(RefCell::new(shared)),
            bell: Arc::new(AtomicU32::new(0)),
            resting: false,
            blind: 0,
            told: 0,
        }
    }

    /// Sets when pairs get connections.
    pub fn set_rule(&mut self, rule: Rule) {
        self.shared.borrow_mut().rule = rule;
    }

    /// When pairs get connections.
    pub fn rule(&self) -> Rule {
        self.shared.borrow().rule
    }

    /// An endpoint that is not connected in any way. `state` is the word that says whether the peer has left the job.
    ///
    /// # Errors
    /// No memory for receive buffers.
    pub fn endpoint(
        &self, peer: u32, state: Option<&'static AtomicU32>,
    ) -> Result<UpgradeEndpoint, VerbsError> {
        let ud = self.ud.endpoint(state)?;
        Ok(UpgradeEndpoint::new(ud, peer, state, self.shared.clone()))
    }

    /// A peer that has become worth a connection; each is told of once.
    pub fn take_upgrade_request(&mut self) -> Option<u32> {
        self.shared.borrow_mut().upgrade_requests.pop()
    }

    /// Whether pairs have left datagrams behind since this was last asked.
    pub fn take_news(&mut self) -> bool {
        let upgraded = self.shared.borrow().counters.upgraded;
        std::mem::replace(&mut self.told, upgraded) != upgraded
    }

    /// Makes an end of a connection for a pair, not connected.
    ///
    /// # Errors
    /// There is to be none, or there cannot be one: the pair stays with datagrams.
    pub fn prepare(&self, endpoint: &mut UpgradeEndpoint) -> Result<(), Refusal> {
        let limited = self.rc.connections() >= self.rule().most;
        let made = match limited {
            true => Err(Refusal::Limit),
            false => self
                .rc
                .endpoint(endpoint.state())
                .map_err(|error| Refusal::Failed(error.to_string())),
        };
        let counters = &mut self.shared.borrow_mut().counters;
        match &made {
            Err(Refusal::Limit) => counters.limited += 1,
            Err(Refusal::Failed(_)) => counters.stayed += 1,
            Ok(_) => {}
        }
        match made {
            Ok(rc) => endpoint.prepare(rc),
            Err(refusal) => {
                endpoint.give_up_upgrade();
                return Err(refusal);
            }
        }
        Ok(())
    }

    /// Handles what has arrived and what is done; says whether anything was. `connecting`: wireup datagrams are
    /// waited for.
    /// `wake` is called from another thread when datagrams arrive that nobody looks for.
    pub fn progress(&mut self, connecting: bool, wake: impl Fn() + Send + 'static) -> bool {
        let moved = self.rc.connections() > 0 && self.rc.progress();
        moved | self.progress_datagrams(connecting, wake)
    }

    fn progress_datagrams(&mut self, connecting: bool, wake: impl Fn() + Send + 'static) -> bool {
        let needed = connecting || self.shared.borrow().on_datagrams > 0;
        if !needed && self.resting {
            if self.bell.load(Ordering::Relaxed) == 0 {
                return false;
            }
            self.bell.store(0, Ordering::Relaxed);
            self.resting = false;
        }
        if needed || self.ud.is_busy() {
            self.resting = false;
            return self.ud.progress();
        }
        self.bell.store(0, Ordering::Relaxed);
        // It rings at the next arrival; what came before that is seen by this look.
        self.resting = self.watch(wake);
        if !self.resting {
            self.blind += 1;
            return self.blind.is_multiple_of(BLIND) && self.ud.progress();
        }
        let moved = self.ud.progress();
        self.resting = !moved && !self.ud.is_busy();
        self.shared.borrow_mut().counters.rests += self.resting as u64;
        moved
    }

    fn watch(&mut self, wake: impl Fn() + Send + 'static) -> bool {
        self.ud.watch(ring(&self.bell, wake))
    }

    /// To be called before a sleep, and before a last look: what comes after it calls `wake` from another thread. Says
    /// how long to sleep at most.
    pub fn arm(&mut self, wake: impl Fn() + Copy + Send + 'static) -> Duration {
        let by_datagrams = self.ud.arm(ring(&self.bell, wake));
        match self.rc.connections() {
            0 => by_datagrams,
            _ => by_datagrams.min(self.rc.arm(wake)),
        }
    }

    /// The datagrams, and where they go.
    pub(crate) fn datagrams(&mut self) -> (&mut UdIface, &mut RankAddresses) {
        (&mut self.ud, &mut self.addresses)
    }

    /// Whether a wireup datagram has come.
    pub fn has_wireup_datagrams(&self) -> bool {
        self.ud.has_wireup_datagrams()
    }

    /// The two transports.
    pub fn parts(&self) -> (&UdIface, &RcIface) {
        (&self.ud, &self.rc)
    }

    /// Counters so far.
    pub fn counters(&self) -> Counters {
        Counters { strangers: self.addresses.strangers, ..self.shared.borrow().counters }
    }
}

fn ring(bell: &Arc<AtomicU32>, wake: impl Fn() + Send + 'static) -> impl Fn() + Send + 'static {
    let bell = bell.clone();
    move || {
        // Relaxed: nothing is handed over by it. Whoever sees it asks the adapter.
        bell.store(1, Ordering::Relaxed);
        wake();
    }
}
