//! Interface: datagrams and connections on one port, limit of connections, polling of the datagram queue pair.

use super::Rule;
use super::endpoint::UpgradeEndpoint;
use super::shared::{UpgradeCounters, UpgradeState};
use crate::adapter::rc::RcIface;
use crate::adapter::ud::{RankAddresses, UdIface};
use crate::contract::Connection;
use crate::verbs::VerbsError;
use fastpath_base::sync::{AtomicU32, Ordering};
use fastpath_job::Job;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Number of progress calls between two polls of the datagrams, if the adapter cannot report arrivals.
const BLIND: u32 = 64;

/// Reason why a pair stays with datagrams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The limit of connections is reached.
    Limit,
    /// Creating the connection failed, with the cause.
    Failed(String),
}

/// Interface for datagrams and connections over one adapter port.
pub struct UpgradeIface {
    ud: UdIface,
    rc: RcIface,
    addresses: RankAddresses,
    shared: Rc<RefCell<UpgradeState>>,
    bell: Arc<AtomicU32>,
    resting: bool,
    blind: u32,
    told: u64,
}

impl UpgradeIface {
    /// Creates the interface, and publishes the rank's datagram address.
    pub fn new(mut ud: UdIface, rc: RcIface, job: &'static Job) -> Self {
        let addresses = RankAddresses::open(&mut ud, job);
        let shared = UpgradeState {
            rule: Rule::default(),
            upgrade_requests: Vec::new(),
            parked: Vec::new(),
            on_datagrams: 0,
            counters: UpgradeCounters::default(),
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

    /// Sets the rule for upgrading pairs to connections.
    pub fn set_rule(&mut self, rule: Rule) {
        self.shared.borrow_mut().rule = rule;
    }

    /// Rule for upgrading pairs to connections.
    pub fn rule(&self) -> Rule {
        self.shared.borrow().rule
    }

    /// Creates an unconnected endpoint. `state` is the peer's state word, if known.
    ///
    /// # Errors
    /// No memory for receive buffers.
    pub fn endpoint(
        &self, peer: u32, state: Option<&'static AtomicU32>,
    ) -> Result<UpgradeEndpoint, VerbsError> {
        let ud = self.ud.endpoint(state)?;
        Ok(UpgradeEndpoint::new(ud, peer, state, self.shared.clone()))
    }

    /// Takes a peer whose connection is now worth its cost; `None` if there is none. Each peer is returned once.
    pub fn take_upgrade_request(&mut self) -> Option<u32> {
        self.shared.borrow_mut().upgrade_requests.pop()
    }

    /// Whether pairs have upgraded since the last call.
    pub fn take_news(&mut self) -> bool {
        let upgraded = self.shared.borrow().counters.upgraded;
        std::mem::replace(&mut self.told, upgraded) != upgraded
    }

    /// Creates an unconnected end of a connection for a pair.
    ///
    /// # Errors
    /// The limit is reached or the creation failed: the pair stays with datagrams.
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

    /// Processes arrivals and completions; returns whether there were any.
    ///
    /// `connecting`: wireup datagrams are expected. Arrivals at a resting queue pair call `wake` from a thread.
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
        // Arm before the poll: the poll finds earlier arrivals, and `wake` reports later ones.
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

    /// Prepares a sleep, before the last poll: later events call `wake` from a thread. Returns the longest sleep.
    pub fn arm(&mut self, wake: impl Fn() + Copy + Send + 'static) -> Duration {
        let by_datagrams = self.ud.arm(ring(&self.bell, wake));
        match self.rc.connections() {
            0 => by_datagrams,
            _ => by_datagrams.min(self.rc.arm(wake)),
        }
    }

    pub(crate) fn datagrams(&mut self) -> (&mut UdIface, &mut RankAddresses) {
        (&mut self.ud, &mut self.addresses)
    }

    /// Whether a wireup datagram has arrived.
    pub fn has_wireup_datagrams(&self) -> bool {
        self.ud.has_wireup_datagrams()
    }

    /// Datagram interface and connection interface.
    pub fn parts(&self) -> (&UdIface, &RcIface) {
        (&self.ud, &self.rc)
    }

    /// Event counts.
    pub fn counters(&self) -> UpgradeCounters {
        UpgradeCounters { strangers: self.addresses.strangers, ..self.shared.borrow().counters }
    }
}

fn ring(bell: &Arc<AtomicU32>, wake: impl Fn() + Send + 'static) -> impl Fn() + Send + 'static {
    let bell = bell.clone();
    move || {
        // Relaxed suffices, because the word publishes no data: a reader polls the adapter.
        bell.store(1, Ordering::Relaxed);
        wake();
    }
}
