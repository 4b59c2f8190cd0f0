//! The bound on unexpected messages: beyond it their senders wait.
//!
//! While unexpected messages take more memory than allowed, a message that no posted receive wants is left in its ring.
//! The ring fills up, and the sender finds no room: that is all it takes, the credits of the transport do the rest.
//! What lies behind such a message waits with it, and may be what this process needs. So a process that can do nothing
//! else goes on all the same, with as few messages as will do: one for each look in vain of the peer it waits for, or
//! of those that receives are posted for, and a few of all peers ever less often while a wait lasts, since a chain of
//! waiting processes may come back to it. Every program that ends without the bound ends with it. The bound is soft:
//! what must be taken is taken.
#![allow(unsafe_code)]

use crate::matching::Matcher;
use crate::wire;
use crate::worker::Worker;
use fastpath_base::clock;
use fastpath_transport::Header;

/// Nanoseconds between the first two times that messages of other peers than the awaited one are taken; doubled each
/// time.
const RELIEF_NS: u64 = 50_000;
/// Most nanoseconds between them, where one peer is waited for, and where not.
const RELIEF_NS_MAX: [u64; 2] = [50_000_000, 1_000_000];
/// How many are taken then.
const RELIEF: u32 = 8;

/// What is told when the bound is reached for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached {
    /// World rank of the peer whose message is the first to wait.
    pub peer: u32,
    /// Unexpected messages.
    pub messages: u64,
    /// Bytes that they take.
    pub bytes: u64,
    /// The bound in bytes.
    pub bound: u64,
}

/// The bound, and how far things have come with it.
#[derive(Debug)]
pub struct Flood {
    /// Bytes that unexpected messages may take, those of their records included.
    pub bound: u64,
    /// Told once, when the bound is reached.
    pub on_reached: Option<fn(&Worker, &Reached)>,
    /// Whether the last round of progress has left a message in its ring.
    pub(crate) held_back: bool,
    /// Set while everything must be taken.
    lifted: bool,
    /// Which of the active peers is looked at next.
    next: usize,
    /// When messages of any peer were last taken beyond the bound, and when that is done again.
    relieved_ns: u64,
    interval_ns: u64,
}

impl Default for Flood {
    fn default() -> Self {
        Flood {
            bound: u64::MAX,
            on_reached: None,
            held_back: false,
            lifted: false,
            next: 0,
            relieved_ns: 0,
            interval_ns: RELIEF_NS,
        }
    }
}

impl Flood {
    /// A wait has ended: the next one begins anew.
    #[inline]
    pub(crate) fn rest(&mut self) {
        self.interval_ns = RELIEF_NS;
    }

    /// Whether no more memory may be used for unexpected messages.
    #[inline]
    pub(crate) fn is_reached(&self, matcher: &Matcher) -> bool {
        matcher.store.usage().1 >= self.bound
    }
}

impl Worker {
    /// Unexpected messages that are stored, and the bytes that they take.
    pub fn unexpected_usage(&self) -> (u64, u64) {
        self.matcher.store.usage()
    }

    /// The most unexpected messages that were stored at once.
    pub fn unexpected_most(&self) -> u64 {
        self.matcher.store.most()
    }

    /// Whether the next arrival of a peer stays in its ring, now that the bound is reached.
    #[cold]
    #[inline(never)]
    pub(crate) fn leaves_waiting(&mut self, peer: u32, header: Header) -> bool {
        let begins_message =
            matches!(header.id, wire::EAGER | wire::EAGER_SYNC | wire::RTS | wire::EAGER_FIRST);
        if self.flood.lifted || !begins_message {
            return false;
        }
        let tag = header.imm as i32;
        if self.matcher.find_posted(peer, header.key, tag).is_some() {
            return false;
        }
        self.flood.held_back = true;
        let (messages, bytes) = self.matcher.store.usage();
        if let Some(tell) = self.flood.on_reached.take() {
            let reached = Reached { peer, messages, bytes, bound: self.flood.bound };
            tell(self, &reached);
        }
        true
    }

    /// Takes one message beyond the bound, for a wait that has looked in vain: of the peer that it waits for, or of one
    /// that a receive is posted for. Says whether there was one.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_held_back(&mut self, focus: Option<u32>) -> bool {
        match focus {
            Some(peer) => self.take_one(peer),
            None => self.take_of(1, |worker, peer| worker.matcher.wants_of(peer)),
        }
    }

    /// Takes a few messages of any peer beyond the bound, if that has not been done for a while.
    #[cold]
    #[inline(never)]
    pub(crate) fn relieve(&mut self, focus: Option<u32>) -> bool {
        let now = clock::now_ns();
        if now.saturating_sub(self.flood.relieved_ns) < self.flood.interval_ns {
            return false;
        }
        let most = RELIEF_NS_MAX[focus.is_none() as usize];
        self.flood.relieved_ns = now;
        self.flood.interval_ns = (2 * self.flood.interval_ns).min(most);
        self.take_of(RELIEF, |_, _| true)
    }

    fn take_of(&mut self, most: u32, takes: impl Fn(&Worker, u32) -> bool) -> bool {
        let (mut left, mut misses) = (most, 0);
        while left > 0 && misses < self.active.len() {
            self.flood.next = (self.flood.next + 1) % self.active.len();
            let peer = self.active[self.flood.next];
            match takes(self, peer) && self.take_one(peer) {
                true => (left, misses) = (left - 1, 0),
                false => misses += 1,
            }
        }
        left < most
    }

    /// Handles the next arrival of a peer, whatever it is.
    fn take_one(&mut self, peer: u32) -> bool {
        let Some(arrival) = self.endpoints[peer].lane.look() else {
            return false;
        };
        let (header, data, len) = (arrival.header, arrival.data(), arrival.len());
        self.handle(peer, header, data, len);
        self.endpoints[peer].lane.take();
        // It may be for another thread.
        self.wake_sleepers();
        true
    }

    /// Makes progress without the bound.
    pub(crate) fn progress_unbounded(&mut self) -> bool {
        let lifted = std::mem::replace(&mut self.flood.lifted, true);
        let moved = self.progress();
        self.flood.lifted = lifted;
        moved
    }
}
