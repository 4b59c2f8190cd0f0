//! The interface of a process: its listening socket, its peers, and what the kernel tells of them.

use super::callers::Callers;
use super::connect::{Action, Connect};
use super::dialing::Dialing;
use super::domain::Domain;
use super::endpoint::TcpEndpoint;
use super::link::{Link, Lists};
use super::socket::Event;
use super::watcher::Watcher;
use fastpath_base::clock;
use fastpath_base::fd::LostFd;
use fastpath_base::sync::Ordering;
use fastpath_bootstrap::segment::{Phase, has_left};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

/// How long a rank sleeps at a time while a peer that it wants to talk to has not said where it is.
const CARD_NAP: Duration = Duration::from_millis(5);
/// The same while strangers are there.
const STRANGER_NAP: Duration = Duration::from_secs(1);
/// The same while a peer's kernel owes an answer.
const SILENCE_NAP: Duration = Duration::from_secs(2);
/// The same where no thread can be had that wakes.
const UNWATCHED_NAP: Duration = Duration::from_millis(1);
/// Rounds of progress between two looks for peers that are silent.
const ROUNDS_PER_CHECK: u32 = 1 << 16;

/// What a watched number names: its first byte says what.
pub(super) const LISTENER: u64 = 0;
pub(super) const CALLER: u64 = 1 << 56;
pub(super) const DIAL: u64 = 2 << 56;
const LINK: u64 = 3 << 56;
const KIND: u64 = 0xff << 56;

/// The number of a peer's call to the address of that index.
pub(super) fn dial_token(peer: u32, dial: usize) -> u64 {
    DIAL | (peer as u64) << 8 | dial as u64
}

/// What has been counted so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections in use, now or before.
    pub connections: u64,
    /// Of those, the ones that the peer has made.
    pub accepted: u64,
    /// Calls that did not reach the peer.
    pub failed: u64,
    /// Connections of others that could not prove that they are of the job.
    pub strangers: u64,
}

/// A peer that something is known of.
pub(super) struct Peer {
    pub link: Rc<RefCell<Link>>,
    pub connect: Connect,
    pub dialing: Dialing,
}

/// The connections of a process.
pub(super) struct Core {
    pub domain: Domain,
    pub peers: BTreeMap<u32, Peer>,
    pub callers: Callers,
    /// Peers whose connection is not settled: looked at as time passes.
    pub unsettled: Vec<u32>,
    pub lists: Rc<RefCell<Lists>>,
    /// How far this process has said that it has come.
    pub phase: Option<Phase>,
    pub counters: Counters,
    events: Vec<Event>,
    rounds: u32,
}

impl Core {
    /// The peer, made known if it is not.
    pub fn peer(&mut self, peer: u32) -> &mut Peer {
        let (domain, lists) = (&self.domain, &self.lists);
        self.peers.entry(peer).or_insert_with(|| {
            let link = Link::new(
                (peer, LINK | peer as u64),
                domain.job,
                (domain.epoll.clone(), lists.clone()),
                (domain.settings.outbox, domain.settings.gather),
            );
            Peer {
                link: Rc::new(RefCell::new(link)),
                connect: Connect::new(domain.is_lower(peer)),
                dialing: Dialing::default(),
            }
        })
    }

    /// Something is to be said to the peer, or to be learnt of it.
    #[cold]
    pub fn want(&mut self, peer: u32) {
        if peer == self.domain.me || self.peer(peer).connect.is_settled() {
            return;
        }
        self.peer(peer).dialing.asks = false;
        self.begin_calling(peer);
    }

    /// Calls the peer, unless that has begun.
    pub fn begin_calling(&mut self, peer: u32) {
        if !std::mem::replace(&mut self.peer(peer).dialing.wanted, true) {
            if !self.unsettled.contains(&peer) {
                self.unsettled.push(peer);
            }
            self.dial_wanted(peer, clock::now_ns());
        }
    }

    /// Does what a peer's state machine asks for.
    pub fn apply(&mut self, peer: u32, actions: Vec<Action>) {
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            let mut more = Vec::new();
            match action {
                Action::Dial(dial) => self.dial(peer, dial, &mut more),
                Action::HangUp(dial) => self.peer(peer).dialing.hang_up(dial),
                Action::Confirm(dial) => self.confirm(peer, dial),
                Action::Welcome(id) => self.welcome_caller(id, &mut more),
                Action::Dismiss(id) => self.callers.dismiss(id),
                Action::Adopt(id) => self.adopt(peer, id),
                Action::Fail => self.give_up(peer),
            }
            actions.extend(more);
        }
    }

    /// A peer's connection is there.
    pub fn use_socket(&mut self, peer: u32, socket: super::socket::Socket, before: &[u8]) {
        self.counters.connections += 1;
        let phase = self.phase;
        let mut link = self.peer(peer).link.borrow_mut();
        link.use_socket(socket, before);
        if let Some(phase) = phase {
            link.tell_phase(phase);
        }
        link.send_unsent();
    }

    fn progress(&mut self) -> bool {
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        if let Err(lost) = self.domain.epoll.poll(&mut events) {
            self.lose_all(lost);
        }
        let mut moved = false;
        for event in &events {
            moved |= self.handle(*event);
        }
        self.events = events;
        self.rounds = self.rounds.wrapping_add(1);
        if self.is_busy() {
            moved |= self.tick(clock::now_ns());
        }
        if self.rounds.is_multiple_of(ROUNDS_PER_CHECK) {
            self.check_silence();
        }
        if self.domain.settings.gather {
            self.peers.values().for_each(|p| p.link.borrow_mut().flush());
        }
        moved
    }

    /// Nothing that happens to a connection is seen any more.
    #[cold]
    #[inline(never)]
    fn lose_all(&mut self, lost: LostFd) {
        for peer in self.peers.values() {
            let mut link = peer.link.borrow_mut();
            if link.is_up() {
                let why = format!("{}: {lost}", link.name);
                link.fail(why);
                link.announce();
            }
        }
    }

    fn handle(&mut self, event: Event) -> bool {
        let number = event.token & !KIND;
        match event.token & KIND {
            LINK => {
                let Some(peer) = self.peers.get(&(number as u32)) else {
                    return false;
                };
                let mut link = peer.link.borrow_mut();
                if event.writable {
                    link.flush();
                }
                let moved = event.readable && link.read();
                // What is no message is for nobody else.
                link.advance();
                moved
            }
            DIAL => self.handle_dial((number >> 8) as u32, (number & 0xff) as usize),
            CALLER => self.handle_caller(number),
            _ => self.accept_callers(),
        }
    }

    /// Whether something happens as time passes.
    fn is_busy(&self) -> bool {
        let waits = self.callers.has_strangers() || self.callers.paused_ns().is_some();
        waits || !self.unsettled.is_empty()
    }

    fn tick(&mut self, now_ns: u64) -> bool {
        self.callers.expire(now_ns, self.domain.settings.stranger_ns, &mut self.counters);
        self.resume_accepting(now_ns);
        let mut moved = false;
        for peer in self.unsettled.clone() {
            self.dial_wanted(peer, now_ns);
            let known = self.peer(peer);
            if known.dialing.awaits_card() && known.link.borrow_mut().has_left() {
                // It will never say where it is.
                known.dialing.wanted = false;
            }
            let mut actions = Vec::new();
            self.peer(peer).connect.tick(now_ns, &mut actions);
            moved |= !actions.is_empty();
            self.apply(peer, actions);
        }
        let peers = &self.peers;
        let is_under_way = |p: &Peer| p.dialing.wanted && !p.connect.is_settled();
        self.unsettled.retain(|peer| peers.get(peer).is_some_and(is_under_way));
        moved
    }

    /// Gives up peers that owe an answer; says whether some still do.
    pub(super) fn check_silence(&mut self) -> bool {
        let most_ns = self.domain.settings.silence_ns;
        let mut owing = std::mem::take(&mut self.lists.borrow_mut().owing);
        owing.retain(|peer| {
            let known = self.peers.get(peer);
            known.is_some_and(|known| known.link.borrow_mut().check_silence(most_ns))
        });
        let owes = !owing.is_empty();
        self.lists.borrow_mut().owing = owing;
        owes
    }

    /// How long this process may sleep though nothing wakes it.
    fn nap(&mut self) -> Option<Duration> {
        let mut nap = self.check_silence().then_some(SILENCE_NAP);
        let mut at_most = |limit: Duration| nap = Some(nap.map_or(limit, |nap| nap.min(limit)));
        if self.callers.has_strangers() {
            at_most(STRANGER_NAP);
        }
        if let Some(until_ns) = self.callers.paused_ns() {
            at_most(Duration::from_nanos(until_ns.saturating_sub(clock::now_ns())));
        }
        if !self.unsettled.is_empty() {
            let now_ns = clock::now_ns();
            for peer in self.unsettled.iter().filter_map(|peer| self.peers.get(peer)) {
                if peer.dialing.awaits_card() {
                    at_most(CARD_NAP);
                }
                if let Some(due_ns) = peer.connect.deadline_ns() {
                    at_most(Duration::from_nanos(due_ns.saturating_sub(now_ns)));
                }
            }
        }
        nap
    }
}

/// The interface of a process.
pub struct TcpIface {
    pub(super) core: Rc<RefCell<Core>>,
    watcher: Option<Watcher>,
}

impl TcpIface {
    /// The interface of a job's rank, which listens already ([`fastpath_bootstrap::Job::open_network`]).
    ///
    /// # Errors
    /// For people: it does not listen, or too many files are open.
    pub fn new(domain: Domain) -> Result<Self, String> {
        let Some(listener) = domain.job.listener() else {
            return Err("this rank does not listen".to_owned());
        };
        for one in listener.sockets() {
            let watched = domain.epoll.add(one.number_unchecked(), LISTENER, false);
            watched.map_err(|e| format!("a listening socket cannot be watched: {e}"))?;
        }
        let core = Core {
            domain,
            peers: BTreeMap::new(),
            callers: Callers::new(listener),
            unsettled: Vec::new(),
            lists: Rc::default(),
            phase: None,
            counters: Counters::default(),
            events: Vec::new(),
            rounds: 0,
        };
        Ok(TcpIface { core: Rc::new(RefCell::new(core)), watcher: None })
    }

    /// An endpoint to a peer, not connected unless the peer has done so.
    pub fn endpoint(&self, peer: u32) -> TcpEndpoint {
        let link = self.core.borrow_mut().peer(peer).link.clone();
        TcpEndpoint::new(peer, self.core.clone(), link)
    }

    /// Handles what has come; says whether anything had.
    pub fn progress(&mut self) -> bool {
        self.core.borrow_mut().progress()
    }

    /// Calls `found` with each peer whose connection has come about, or of which something has been read since it was
    /// retired.
    pub fn accept(&mut self, found: impl FnMut(u32)) {
        let core = self.core.borrow();
        core.lists.borrow_mut().fresh.drain(..).for_each(found);
    }

    /// To be called before a sleep that `wake` ends, and before the last look: from now on what comes wakes. Says how
    /// long the sleep may last at most; `None` where there is no limit.
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

    /// Whether a peer has left the job, as far as is known.
    pub fn has_left(&self, peer: u32) -> bool {
        let core = self.core.borrow();
        match core.peers.get(&peer) {
            Some(known) => known.link.borrow_mut().has_left(),
            // Nobody has talked to it: nothing of it can be under way.
            None => {
                let page = core.domain.job.rank_page(peer as usize);
                // ORDERING: acquire pairs with the release of a rank that leaves the job (`Job::set_phase`).
                page.is_none_or(|page| has_left(page.state.load(Ordering::Acquire)))
            }
        }
    }

    /// Whether a peer has come so far with leaving the job; where it has not said, it is connected to, so that it does.
    pub fn has_come(&self, peer: u32, phase: Phase) -> bool {
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

    /// Called when a wait for `peer` has lasted a while: without a connection, asks whether the peer is still there.
    /// Returns when to call again; `None` if the answer will wake this rank.
    pub fn ask_after(&mut self, peer: u32) -> Option<Duration> {
        self.core.borrow_mut().ask_after(peer, clock::now_ns())
    }

    /// Says how far this process has come to those that cannot see it. Once it has finalized nobody connects any more.
    pub fn tell_phase(&mut self, phase: Phase) {
        let core = &mut *self.core.borrow_mut();
        core.phase = Some(phase);
        for peer in core.peers.values() {
            peer.link.borrow_mut().tell_phase(phase);
        }
        if phase == Phase::Finalized {
            core.callers.stop();
        }
    }

    /// Whether the peers' kernels have all that was sent to them.
    pub fn is_settled(&mut self) -> bool {
        let core = self.core.borrow();
        core.peers.values().all(|p| p.link.borrow_mut().is_settled())
    }

    /// Whether the process may end as far as its peers are concerned: see [`Link::has_arrived`].
    pub fn may_leave(&mut self) -> bool {
        let core = self.core.borrow();
        core.peers.values().all(|p| p.link.borrow_mut().has_arrived())
    }

    /// See [`crate::Lane::has_bulk`].
    pub fn has_bulk(&self) -> bool {
        self.core.borrow().domain.settings.bulk
    }

    /// What has been counted so far.
    pub fn counters(&self) -> Counters {
        self.core.borrow().counters
    }

    #[cfg(test)]
    pub(super) fn core(&self) -> &RefCell<Core> {
        &self.core
    }
}
