//! Interface of a process: listening sockets, peers, and their events.

use super::callers::Callers;
use super::core::{Core, LISTENER, TcpCounters};
use super::domain::Domain;
use super::endpoint::TcpEndpoint;
use super::watcher::Watcher;
use fastpath_base::clock;
use fastpath_base::sync::Ordering;
use fastpath_segment::{RankPhase, has_left};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

const UNWATCHED_NAP: Duration = Duration::from_millis(1);
/// Interface of a process.
pub struct TcpIface {
    pub(super) core: Rc<RefCell<Core>>,
    watcher: Option<Watcher>,
}

impl TcpIface {
    /// Creates the interface of a job's rank, which must listen already ([`fastpath_job::Job::open_network`]).
    ///
    /// # Errors
    /// Message that the rank does not listen, or that too many files are open.
    pub fn new(domain: Domain) -> Result<Self, String> {
        let Some(listener) = domain.job.listener() else {
            return Err("this rank has no listening socket".to_owned());
        };
        for one in listener.sockets() {
            let watched = domain.epoll.add(one.number_unchecked(), LISTENER, false);
            watched.map_err(|e| format!("the listening socket cannot be added to epoll: {e}"))?;
        }
        let core = Core::new(domain, Callers::new(listener));
        Ok(TcpIface { core: Rc::new(RefCell::new(core)), watcher: None })
    }

    /// Creates an endpoint to a peer, connected only if the peer has connected already.
    pub fn endpoint(&self, peer: u32) -> TcpEndpoint {
        let link = self.core.borrow_mut().peer(peer).link.clone();
        TcpEndpoint::new(peer, self.core.clone(), link)
    }

    /// Processes events; returns whether there were any.
    pub fn progress(&mut self) -> bool {
        self.core.borrow_mut().progress()
    }

    /// Calls `found` with each peer that has connected, or was retired and has sent something since.
    pub fn accept(&mut self, found: impl FnMut(u32)) {
        let core = self.core.borrow();
        core.lists.borrow_mut().fresh.drain(..).for_each(found);
    }

    /// Prepares a sleep: later events call `wake`. Call it before the last poll. Returns the longest sleep, if limited.
    pub fn arm(&mut self, wake: impl Fn() + Send + 'static) -> Option<Duration> {
        let mut core = self.core.borrow_mut();
        let nap = core.nap();
        if self.watcher.is_none()
            && let Ok(set) = core.domain.epoll.get()
        {
            self.watcher = Watcher::start(set, wake).ok();
        }
        match self.watcher.as_ref().map(Watcher::arm) {
            Some(Ok(())) => nap,
            _ => Some(UNWATCHED_NAP),
        }
    }

    /// Whether a peer is known to have left the job.
    pub fn has_left(&self, peer: u32) -> bool {
        let core = self.core.borrow();
        match core.peers.get(&peer) {
            Some(known) => known.link.borrow_mut().has_left(),
            // There has been no communication with the peer, so nothing from it is outstanding.
            None => {
                let page = core.domain.job.rank_page(peer as usize);
                // ORDERING: acquire pairs with the release of a rank that leaves the job (`Job::set_phase`).
                page.is_none_or(|page| has_left(page.state.load(Ordering::Acquire)))
            }
        }
    }

    /// Whether a peer has reached `phase` of leaving the job. If the phase is unknown, connects to the peer, which then
    /// sends it.
    pub fn has_come(&self, peer: u32, phase: RankPhase) -> bool {
        let mut core = self.core.borrow_mut();
        let link = core.peer(peer).link.clone();
        let heard = link.borrow_mut().heard_phase();
        if heard.is_some_and(|heard| heard >= phase) || link.borrow_mut().has_left() {
            return true;
        }
        if !link.borrow().is_up() {
            core.want(peer);
        }
        false
    }

    /// Checks whether `peer` is still there, after a wait for it without a connection has lasted a while. Returns when
    /// to call again; `None` if the answer will wake this rank.
    pub fn ask_after(&mut self, peer: u32) -> Option<Duration> {
        self.core.borrow_mut().ask_after(peer, clock::now_ns())
    }

    /// Sends this process's phase to peers that do not see its page. Once finalized, it accepts no connections.
    pub fn tell_phase(&mut self, phase: RankPhase) {
        let core = &mut *self.core.borrow_mut();
        core.phase = Some(phase);
        for peer in core.peers.values() {
            peer.link.borrow_mut().tell_phase(phase);
        }
        if phase == RankPhase::Finalized {
            core.callers.stop();
        }
    }

    /// Whether the peers' kernels have received everything sent.
    pub fn is_settled(&mut self) -> bool {
        let core = self.core.borrow();
        core.peers.values().all(|p| p.link.borrow_mut().is_settled())
    }

    /// Whether the process may end; see [`TcpLink::has_arrived`].
    pub fn may_leave(&mut self) -> bool {
        let core = self.core.borrow();
        core.peers.values().all(|p| p.link.borrow_mut().has_arrived())
    }

    /// See [`crate::Lane::has_bulk`].
    pub fn has_bulk(&self) -> bool {
        self.core.borrow().domain.settings.bulk
    }

    /// Event counts.
    pub fn counters(&self) -> TcpCounters {
        self.core.borrow().counters
    }

    #[cfg(test)]
    pub(super) fn core(&self) -> &RefCell<Core> {
        &self.core
    }
}
