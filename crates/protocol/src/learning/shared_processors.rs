//! Which way long messages go where ranks share processors: by the time that their copies take, of both sides together.
//!
//! Others run between the beginning of a message and its end, so its time tells of the scheduler. A copy is short, and
//! seldom does somebody else run in between. What a rank copies itself says what its own messages cost: it receives by
//! both ways, and is both sides of the one through the ring. The ranks of a node share their caches alike.

use super::Arm;
use crate::request::Request;
use crate::worker::Worker;
use fastpath_base::clock;

/// Of so many messages one goes the other way, so that a change is seen.
const TRIES: u32 = 64;
/// Shortest copy that is timed, in bytes.
const TIMED_MIN: u64 = 8 * 1024;
/// The ring takes so much more than its copies: one part in so many.
const RING_MORE: u64 = 4;
/// How fast a cost follows what is measured: by one part in so many.
const FOLLOWS: u64 = 8;

/// Picoseconds for each byte; 0: not known.
#[derive(Debug, Clone, Copy, Default)]
struct Cost(u64);

impl Cost {
    /// A copy took so long. One in which this rank lost its processor counts as twice the usual.
    fn note(&mut self, bytes: u64, ns: u64) {
        let took = (ns.saturating_mul(1000) / bytes.max(1)).max(1);
        self.0 = match self.0 {
            0 => took,
            usual => (usual * (FOLLOWS - 1) + took.min(2 * usual)).div_ceil(FOLLOWS),
        };
    }
}

/// What copies of long messages take.
#[derive(Debug, Clone, Copy, Default)]
pub struct CopyCosts {
    /// By the receiver alone.
    get: Cost,
    /// Into the ring, past the caches, and out of it.
    pack: Cost,
    unpack: Cost,
    messages: u32,
}

impl CopyCosts {
    /// A copy has ended that is timed if there is a time at which it began.
    #[inline]
    pub(crate) fn note(&mut self, half: Half, began_ns: Option<u64>, bytes: u64) {
        let Some(began_ns) = began_ns.filter(|_| bytes >= TIMED_MIN) else {
            return;
        };
        let took_ns = clock::now_ns().saturating_sub(began_ns);
        self.note_took(half, bytes, took_ns);
    }

    fn note_took(&mut self, half: Half, bytes: u64, took_ns: u64) {
        let cost = match half {
            Half::Get => &mut self.get,
            Half::Pack => &mut self.pack,
            Half::Unpack => &mut self.unpack,
        };
        cost.note(bytes, took_ns);
    }

    /// The way of the next message.
    fn choose(&mut self) -> Arm {
        self.messages = self.messages.wrapping_add(1);
        let ring = self.pack.0 + self.unpack.0;
        let is_known = self.get.0.min(self.pack.0).min(self.unpack.0) != 0;
        let by_get = match is_known {
            // Besides its copies the ring takes a message for each part.
            true => (self.get.0 <= ring + ring / RING_MORE) != self.messages.is_multiple_of(TRIES),
            false => self.messages.is_multiple_of(2),
        };
        match by_get {
            true => Arm::Get,
            false => Arm::Streaming,
        }
    }
}

/// A copy of a message, or one half of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Half {
    Get,
    Pack,
    Unpack,
}

impl Worker {
    /// The way of a long message to a rank of this host that may share its processor.
    #[cold]
    pub(super) fn choose_by_copies(&mut self) -> Arm {
        match Arm::Streaming.copy_loop().is_available() {
            true => self.copy_costs.choose(),
            false => Arm::Get,
        }
    }

    /// Whether copies of so many bytes of a message are timed.
    #[inline]
    pub(crate) fn times_copies(&self, half: Half, request: &Request, bytes: u64) -> bool {
        let is_ours = half == Half::Get || Arm::of(request.arm) == Some(Arm::Streaming);
        bytes >= TIMED_MIN && is_ours && self.is_crowded()
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// What a rank sends when copies take so many picoseconds for each byte: of 1,000 messages, those by get.
    fn gets(costs: &mut CopyCosts, get: u64, pack: u64, unpack: u64) -> usize {
        const BYTES: u64 = 1 << 20;
        let ns = |ps: u64| ps * BYTES / 1000;
        let mut count = 0;
        for i in 0..1000 {
            // Now and then somebody else runs in between.
            let lost = if i % 50 == 7 { 3_000_000 } else { 0 };
            if costs.choose() == Arm::Get {
                costs.note_took(Half::Get, BYTES, ns(get) + lost);
                count += 1;
            } else {
                costs.note_took(Half::Pack, BYTES, ns(pack) + lost);
                costs.note_took(Half::Unpack, BYTES, ns(unpack));
            }
        }
        count
    }

    #[test]
    fn copies__go_the_way_that_takes_less_and_follow_a_change() {
        let tries = 1000 / TRIES as usize + 2;
        let mut costs = CopyCosts::default();
        assert!(gets(&mut costs, 130, 60, 80) >= 1000 - tries);
        gets(&mut costs, 250, 60, 80);
        assert!(gets(&mut costs, 250, 60, 80) <= tries);
        gets(&mut costs, 130, 60, 80);
        assert!(gets(&mut costs, 130, 60, 80) >= 1000 - tries);
    }

    #[test]
    fn cost__stays_in_range() {
        let mut cost = Cost::default();
        for (bytes, ns) in [(0, 0), (1, u64::MAX), (u64::MAX, 1), (1 << 14, 1000)] {
            (0..100).for_each(|_| cost.note(bytes, ns));
            assert!(cost.0 > 0);
        }
    }
}
