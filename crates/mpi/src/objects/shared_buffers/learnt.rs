//! Choice of the loop by which members copy into their shared buffers. A plain store is fastest if the members'
//! processors share a cache. Otherwise a plain store first fetches the cache line from its last reader, and a store
//! past the caches is faster.
//!
//! The time between calls depends on the scheduler. Each member therefore measures only its own copies and arithmetic.
//! Rank 0 adds up these times, learns, and sends the loop for the next call.

use fastpath_base::copy::CopyLoop;
use fastpath_protocol::learning::{Arm, LEARN_MIN, Learner, OCTAVES, octave};
use std::array::from_fn;
use std::cell::{Cell, RefCell};

const CALLS: usize = 3;
const NAMES: [&str; CALLS] = ["allreduce", "allgather", "alltoall"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallSize {
    call: u8,
    octave: u8,
    bytes: u64,
}

impl CallSize {
    pub(crate) fn allreduce(bytes: u64) -> CallSize {
        CallSize::new(0, bytes)
    }

    pub(crate) fn allgather(bytes: u64) -> CallSize {
        CallSize::new(1, bytes)
    }

    pub(crate) fn alltoall(bytes: u64) -> CallSize {
        CallSize::new(2, bytes)
    }

    fn new(call: u8, bytes: u64) -> CallSize {
        CallSize { call, octave: octave(bytes) as u8, bytes }
    }
}

/// Chosen loops; at rank 0 also the measurements.
pub(crate) struct LearnedLoops {
    loops: [[Cell<Arm>; OCTAVES]; CALLS],
    /// Time of this member's work since its last report to the others, in nanoseconds.
    rest_ns: Cell<u64>,
    /// Word of [`LearnedLoops::note`] that the other members have not received; 0 at other ranks than 0.
    pending: Cell<u64>,
    log: RefCell<Log>,
}

#[derive(Default)]
struct Log {
    learners: Option<Box<[[Learner; OCTAVES]; CALLS]>>,
    /// Last call, its loop, and the time of all members' work so far, in nanoseconds; `None` before the first call.
    last: Option<(CallSize, Arm, u64)>,
}

/// Returns whether the loop is a candidate. The string instruction is none: it was never faster than both other loops.
fn is_available(arm: Arm) -> bool {
    matches!(arm, Arm::Vector | Arm::Streaming) && arm.copy_loop().is_available()
}

/// Returns the loop used before measurements: stores past the caches, if available, which are acceptable everywhere.
fn first() -> Arm {
    match is_available(Arm::Streaming) {
        true => Arm::Streaming,
        false => Arm::Vector,
    }
}

impl Default for LearnedLoops {
    fn default() -> Self {
        LearnedLoops {
            loops: from_fn(|_| from_fn(|_| Cell::new(first()))),
            rest_ns: Cell::new(0),
            pending: Cell::new(0),
            log: RefCell::default(),
        }
    }
}

impl LearnedLoops {
    fn arm(&self, which: CallSize) -> &Cell<Arm> {
        &self.loops[which.call as usize][which.octave as usize]
    }

    pub(crate) fn copy_loop(&self, which: CallSize) -> CopyLoop {
        self.arm(which).get().copy_loop()
    }

    pub(crate) fn keep_rest(&self, ns: u64) {
        self.rest_ns.set(ns);
    }

    /// Stores a word of [`LearnedLoops::note`] for the next synchronization.
    pub(crate) fn set_pending(&self, word: u64) {
        self.pending.set(word);
    }

    /// Takes the word to send in a synchronization; 0 if there is none.
    pub(crate) fn take_pending(&self) -> u64 {
        self.pending.take()
    }

    pub(crate) fn take_rest(&self) -> u64 {
        self.rest_ns.take()
    }

    /// Records a synchronization of all members. `ns` is the time that all members together worked in call `which`
    /// since the last synchronization. `before_ns` is the time that they worked in the previous call after its last
    /// synchronization. Rank 0 sends the returned word to the members, for [`LearnedLoops::follow`].
    pub(crate) fn note(&self, which: CallSize, ns: u64, before_ns: u64) -> u64 {
        let log = &mut *self.log.borrow_mut();
        match &mut log.last {
            Some((_, _, sum_ns)) if before_ns == 0 => {
                *sum_ns = sum_ns.saturating_add(ns);
                0
            }
            last => {
                let ended = last.replace((which, self.arm(which).get(), ns));
                ended.map_or(0, |(which, arm, sum_ns)| {
                    log.learn(which, arm, sum_ns.saturating_add(before_ns))
                })
            }
        }
    }

    /// Applies the word that [`LearnedLoops::note`] returned at rank 0. The word is 0, which changes nothing, or it
    /// names a call, an octave of sizes, and the copy loop to use for them. Invalid words are ignored.
    pub(crate) fn follow(&self, said: u64) {
        let [call, octave, arm, known, ..] = said.to_le_bytes();
        let octaves = self.loops.get(usize::from(call));
        let place = octaves.and_then(|octaves| octaves.get(usize::from(octave)));
        let arm = Arm::of(arm).filter(|&arm| is_available(arm));
        if let (1, Some(place), Some(arm)) = (known, place, arm) {
            place.set(arm);
        }
    }

    pub(crate) fn report(&self) -> Vec<String> {
        let log = self.log.borrow();
        let calls = log.learners.iter().flat_map(|learners| learners.iter());
        let mut lines = Vec::new();
        for (name, octaves) in NAMES.iter().zip(calls) {
            for (index, learner) in octaves.iter().enumerate() {
                let (arm, _, calls) = learner.learnt();
                let how = match arm {
                    Arm::Streaming => "with streaming stores",
                    _ => "with vector stores",
                };
                if calls > 0 {
                    let from = LEARN_MIN << index;
                    lines.push(format!(
                        "{name} with algorithm shared copies {from} B or more {how} ({calls} calls \
                         timed)"
                    ));
                }
            }
        }
        lines
    }
}

impl Log {
    fn learn(&mut self, which: CallSize, arm: Arm, ns: u64) -> u64 {
        let learners = self.learners.get_or_insert_with(|| {
            let learner = || Learner::new(first(), 1, is_available);
            Box::new(from_fn(|_| from_fn(|_| learner())))
        });
        let learner = &mut learners[which.call as usize][which.octave as usize];
        match learner.note(arm, which.bytes, ns) {
            Some(advice) => {
                let words = [which.call, which.octave, advice.arm as u8, 1, 0, 0, 0, 0];
                u64::from_le_bytes(words)
            }
            None => 0,
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// Simulates calls of 64 KiB with the given times of the two loops. Returns how many calls used the vector loop.
    fn calls(learnt: &LearnedLoops, count: u32, vector_ns: u64, streaming_ns: u64) -> u32 {
        let which = CallSize::allreduce(64 << 10);
        let mut vectors = 0;
        for _ in 0..count {
            let ns = match learnt.copy_loop(which) {
                CopyLoop::Vector => {
                    vectors += 1;
                    vector_ns
                }
                _ => streaming_ns,
            };
            learnt.follow(learnt.note(which, ns / 2, learnt.take_rest()));
            learnt.follow(learnt.note(which, ns / 4, 0));
            learnt.keep_rest(ns / 4);
        }
        vectors
    }

    #[test]
    fn learnt__is_the_faster_loop_and_follows_a_change() {
        let learnt = LearnedLoops::default();
        assert!(calls(&learnt, 1000, 40_000, 80_000) > 900);
        calls(&learnt, 500, 160_000, 80_000);
        assert!(calls(&learnt, 1000, 160_000, 80_000) < 50);
        let report = learnt.report();
        assert_eq!(report.len(), 1, "{report:?}");
        assert!(report[0].contains("with streaming stores"), "{report:?}");
    }

    #[test]
    fn follow__takes_no_nonsense() {
        let learnt = LearnedLoops::default();
        let which = CallSize::allgather(1 << 20);
        let before = learnt.copy_loop(which);
        for said in [0, u64::MAX, 0x0100_0501, 0x0103_0801, 0x01ff_0801] {
            learnt.follow(said);
        }
        assert_eq!(learnt.copy_loop(which), before);
        learnt.follow(u64::from_le_bytes([1, 8, Arm::Vector as u8, 1, 0, 0, 0, 0]));
        assert_eq!(learnt.copy_loop(which), CopyLoop::Vector);
    }
}
