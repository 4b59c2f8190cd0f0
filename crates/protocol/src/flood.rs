//! Bound on unexpected messages: beyond it their senders wait.
//!
//! While unexpected messages exceed the allowed memory, a message that matches no posted receive stays in its ring. The
//! ring fills up, and the transport's credits stop the sender.
//!
//! Messages behind such a message wait too, and this process may need one of them. A process that can do nothing else
//! therefore still takes a few messages. It takes one for each failed poll of the awaited peer, or of peers with posted
//! receives. A long wait also takes a few messages of all peers, at growing intervals. Processes that wait in a circle
//! thus make progress: every program that terminates without the bound terminates with it. The bound is soft.
#![allow(unsafe_code)]

use crate::wire;
use crate::worker::Worker;
pub use crate::worker::flood::{Flood, FloodWarning};
use fastpath_base::clock;
use fastpath_transport::Header;

/// Longest intervals, in ns, between two calls of `relieve` that take messages: with and without an awaited peer.
const RELIEF_NS_MAX: [u64; 2] = [50_000_000, 1_000_000];
const RELIEF: u32 = 8;

impl Worker {
    /// Returns the number of unexpected messages and the bytes that they take.
    pub fn unexpected_usage(&self) -> (u64, u64) {
        self.matcher.store.usage()
    }

    /// Returns the largest number of unexpected messages that were stored at once.
    pub fn unexpected_most(&self) -> u64 {
        self.matcher.store.most()
    }

    /// Returns whether the next arrival of a peer stays in its ring. Called only while the bound is exceeded.
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
            let reached = FloodWarning { peer, messages, bytes, bound: self.flood.bound };
            tell(self, &reached);
        }
        true
    }

    /// Takes one message beyond the bound after a failed poll: of the awaited peer, or of a peer with posted receives.
    /// Returns whether a message was taken.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_held_back(&mut self, focus: Option<u32>) -> bool {
        match focus {
            Some(peer) => self.take_one(peer),
            None => self.take_of(1, |worker, peer| worker.matcher.wants_of(peer)),
        }
    }

    /// Takes a few messages of all peers beyond the bound, if the interval since the last such call has passed.
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

    fn take_one(&mut self, peer: u32) -> bool {
        let Some(arrival) = self.endpoints[peer].lane.look() else {
            return false;
        };
        let (header, data, len) = (arrival.header, arrival.data(), arrival.len());
        self.handle(peer, header, data, len);
        self.endpoints[peer].lane.take();
        self.wake_sleepers();
        true
    }

    pub(crate) fn progress_unbounded(&mut self) -> bool {
        let lifted = std::mem::replace(&mut self.flood.lifted, true);
        let moved = self.progress();
        self.flood.lifted = lifted;
        moved
    }
}
