//! State that the endpoints of an interface share: peers, callers, and events of their sockets.

use super::callers::Callers;
use super::connect::{Connect, ConnectAction};
use super::dials::Dials;
use super::domain::Domain;
use super::link::{Lists, TcpLink};
use super::socket::{Socket, SocketEvent};
use fastpath_base::clock;
use fastpath_base::fd::LostFd;
use fastpath_segment::RankPhase;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

/// Longest sleep while the launcher of this host has not added a peer, or a peer has not published its addresses.
const CARD_NAP: Duration = Duration::from_millis(5);
const STRANGER_NAP: Duration = Duration::from_secs(1);
const SILENCE_NAP: Duration = Duration::from_secs(2);
const ROUNDS_PER_CHECK: u32 = 1 << 16;

/// Kinds of epoll tokens, in their highest byte.
pub(super) const LISTENER: u64 = 0;
pub(super) const CALLER: u64 = 1 << 56;
pub(super) const DIAL: u64 = 2 << 56;
const LINK: u64 = 3 << 56;
const KIND: u64 = 0xff << 56;

pub(super) fn dial_token(peer: u32, dial: usize) -> u64 {
    DIAL | (peer as u64) << 8 | dial as u64
}

/// Event counts, for reports and tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpCounters {
    /// Connections used so far.
    pub connections: u64,
    /// Connections that peers have made.
    pub accepted: u64,
    /// Dials that did not reach the peer.
    pub failed: u64,
    /// Connections that did not prove a rank of the job.
    pub strangers: u64,
}

pub(super) struct TcpPeer {
    pub link: Rc<RefCell<TcpLink>>,
    pub connect: Connect,
    pub dialing: Dials,
}

pub(super) struct Core {
    pub domain: Domain,
    pub peers: BTreeMap<u32, TcpPeer>,
    pub callers: Callers,
    pub unsettled: Vec<u32>,
    pub lists: Rc<RefCell<Lists>>,
    pub phase: Option<RankPhase>,
    pub counters: TcpCounters,
    events: Vec<SocketEvent>,
    rounds: u32,
}

impl Core {
    pub fn new(domain: Domain, callers: Callers) -> Self {
        Core {
            domain,
            peers: BTreeMap::new(),
            callers,
            unsettled: Vec::new(),
            lists: Rc::default(),
            phase: None,
            counters: TcpCounters::default(),
            events: Vec::new(),
            rounds: 0,
        }
    }

    pub fn peer(&mut self, peer: u32) -> &mut TcpPeer {
        let (domain, lists) = (&self.domain, &self.lists);
        self.peers.entry(peer).or_insert_with(|| {
            let link = TcpLink::new(
                (peer, LINK | peer as u64),
                domain.job,
                (domain.epoll.clone(), lists.clone()),
                (domain.settings.outbox, domain.settings.gather),
            );
            TcpPeer {
                link: Rc::new(RefCell::new(link)),
                connect: Connect::new(domain.is_lower(peer)),
                dialing: Dials::default(),
            }
        })
    }

    #[cold]
    pub fn want(&mut self, peer: u32) {
        if peer == self.domain.me || self.peer(peer).connect.is_settled() {
            return;
        }
        self.peer(peer).dialing.asks = false;
        self.begin_calling(peer);
    }

    pub fn begin_calling(&mut self, peer: u32) {
        if !std::mem::replace(&mut self.peer(peer).dialing.wanted, true) {
            if !self.unsettled.contains(&peer) {
                self.unsettled.push(peer);
            }
            self.dial_wanted(peer, clock::now_ns());
        }
    }

    pub fn apply(&mut self, peer: u32, actions: Vec<ConnectAction>) {
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            let mut more = Vec::new();
            match action {
                ConnectAction::Dial(dial) => self.dial(peer, dial, &mut more),
                ConnectAction::HangUp(dial) => self.peer(peer).dialing.hang_up(dial),
                ConnectAction::Confirm(dial) => self.confirm(peer, dial),
                ConnectAction::Welcome(id) => self.welcome_caller(id, &mut more),
                ConnectAction::Dismiss(id) => self.callers.dismiss(id),
                ConnectAction::Adopt(id) => self.adopt(peer, id),
                ConnectAction::Fail => self.give_up(peer),
            }
            actions.extend(more);
        }
    }

    pub fn use_socket(&mut self, peer: u32, socket: Socket, before: &[u8]) {
        self.counters.connections += 1;
        let phase = self.phase;
        let mut link = self.peer(peer).link.borrow_mut();
        link.use_socket(socket, before);
        if let Some(phase) = phase {
            link.tell_phase(phase);
        }
        link.send_unsent();
    }

    pub fn progress(&mut self) -> bool {
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

    fn handle(&mut self, event: SocketEvent) -> bool {
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
                // Process all frames except messages now, because endpoints take only messages.
                link.advance();
                moved
            }
            DIAL => self.handle_dial((number >> 8) as u32, (number & 0xff) as usize),
            CALLER => self.handle_caller(number),
            _ => self.accept_callers(),
        }
    }

    fn is_busy(&self) -> bool {
        let waits = self.callers.has_strangers() || self.callers.paused_ns.is_some();
        waits || !self.unsettled.is_empty()
    }

    fn tick(&mut self, now_ns: u64) -> bool {
        self.counters.strangers += self.callers.expire(now_ns, self.domain.settings.stranger_ns);
        self.resume_accepting(now_ns);
        let mut moved = self.greet_added_ranks();
        for peer in self.unsettled.clone() {
            self.dial_wanted(peer, now_ns);
            let known = self.peer(peer);
            if known.dialing.awaits_card() && known.link.borrow_mut().has_left() {
                // The peer will never publish an address.
                known.dialing.wanted = false;
            }
            let mut actions = Vec::new();
            self.peer(peer).connect.tick(now_ns, &mut actions);
            moved |= !actions.is_empty();
            self.apply(peer, actions);
        }
        let peers = &self.peers;
        let is_under_way = |p: &TcpPeer| p.dialing.wanted && !p.connect.is_settled();
        self.unsettled.retain(|peer| peers.get(peer).is_some_and(is_under_way));
        moved
    }

    /// Fails peers that have owed an acknowledgement for too long. Returns whether other peers still owe one.
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

    pub fn nap(&mut self) -> Option<Duration> {
        let mut nap = self.check_silence().then_some(SILENCE_NAP);
        let mut at_most = |limit: Duration| nap = Some(nap.map_or(limit, |nap| nap.min(limit)));
        if self.callers.has_strangers() {
            at_most(STRANGER_NAP);
        }
        if self.callers.has_future_rank() {
            at_most(CARD_NAP);
        }
        if let Some(until_ns) = self.callers.paused_ns {
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
