//! Which way the messages of a size go to a peer, by what they took.
//!
//! One [`Learner`] for each octave of sizes, on the receiver's side, which alone sees when a message is complete. It
//! plays the arm with the least known time and tries the others now and then: the time that trials lose is bounded by a
//! share of the time of all messages. (Bandits: Auer, Cesa-Bianchi and Fischer, Finite-time Analysis of the Multiarmed
//! Bandit Problem, 2002; a trial takes several messages in a row, since the first one after a change meets cold
//! caches.) What it finds goes to the sender as [`Advice`]; an RTS says which arm its message went, so that
//! nothing depends on the advice being followed. Pure: all times are arguments.

mod peer;
mod shared_processors;

pub use peer::Learnt;
pub(crate) use peer::stamp_ns;
pub(crate) use shared_processors::Half;
pub use shared_processors::{CopyCosts, EagerCopy};

use fastpath_base::copy::CopyLoop;

/// Smallest size that is learnt about, in bytes: below, reading the clock would cost too much.
pub const LEARN_MIN: u64 = 4096;
/// Octaves of sizes, the first from [`LEARN_MIN`]; the last one has no upper end.
pub const OCTAVES: usize = 11;
/// The sender has one of this many messages timed: rarely short ones, for which an RTS costs most. Long ones have an
/// RTS anyway, and a program may send few of them.
pub fn timed_of(octave: usize) -> u8 {
    (128 >> octave.min(6)) as u8
}

/// Messages of a trial; the first one does not count.
const TRIAL: u8 = 4;
/// One part in so many of the time of messages may be lost to trials, and as much again of those that mirror them.
const SHARE: i64 = 128;
/// What may be lost to trials at first, in messages, and the timed messages before that.
const START_MESSAGES: i64 = 32;
const START_AFTER: u32 = 6;
/// Messages of its own that a rank sends the way of a trial at most: what is tried may come no more.
const MIRRORED: u8 = 4 * TRIAL;
/// An arm that nothing is known of is taken to be so many times as slow as the best.
const UNKNOWN: u64 = 3;
/// A message of a trial that takes so many times as long as the best ends it.
const HOPELESS: u64 = 4;
/// Doublings of the allowance that a trial of an arm waits for: one more after each that fails.
const DOUBLINGS: u8 = 6;
/// Timed messages of a trial that went another way: the sender does not follow.
const IGNORED: u8 = 12;
/// Longest time of a message that counts, in nanoseconds: 18 minutes. A clock that jumps says more.
const LONGEST_NS: u64 = 1 << 40;

/// How a long message travels between two ranks of a host.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub enum Arm {
    /// Through the ring, by vectors.
    Vector,
    /// Through the ring, by the string instruction.
    String,
    /// Through the ring, by stores past the caches.
    Streaming,
    /// Copied by the receiver alone, without the ring.
    Get,
    /// Copied by both sides, without the ring.
    Cooperative,
}

impl Arm {
    /// All of them.
    pub const ALL: [Arm; 5] =
        [Arm::Vector, Arm::String, Arm::Streaming, Arm::Get, Arm::Cooperative];

    /// The arm with this number, if there is one.
    pub fn of(number: u8) -> Option<Arm> {
        Arm::ALL.get(number as usize).copied()
    }

    /// For reports.
    pub fn name(self) -> &'static str {
        ["pipelined", "pipelined, string copy", "pipelined, streaming copy", "get", "cooperative"]
            [self as usize]
    }

    /// The sender's loop where the message goes through the ring.
    #[inline]
    pub fn copy_loop(self) -> CopyLoop {
        match self {
            Arm::String => CopyLoop::String,
            Arm::Streaming => CopyLoop::Streaming,
            _ => CopyLoop::Vector,
        }
    }

    /// Whether the message goes through the ring.
    #[inline]
    pub fn is_ring(self) -> bool {
        self < Arm::Get
    }
}

/// The octave of a size of at least [`LEARN_MIN`] bytes.
#[inline]
pub fn octave(bytes: u64) -> usize {
    ((bytes.max(LEARN_MIN) / LEARN_MIN).ilog2() as usize).min(OCTAVES - 1)
}

/// What `bytes` bytes take at `rate` picoseconds for each, at most [`LONGEST_NS`].
fn nanoseconds(rate: u64, bytes: u64) -> i64 {
    (rate.saturating_mul(bytes) / 1000).min(LONGEST_NS) as i64
}

/// What the sender is to do for an octave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advice {
    /// The way to go.
    pub arm: Arm,
    /// Of so many messages one is to be timed.
    pub timed: u8,
}

impl Advice {
    /// Whether a way is to be tried: all messages of a trial are timed, of others never all.
    #[inline]
    pub fn is_trial(&self) -> bool {
        self.timed == 1
    }
}

/// What is known of the arms for one octave of a peer's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Learner {
    /// Least time of late, in picoseconds for each byte; 0: not known.
    known: [u32; Arm::ALL.len()],
    /// Failed trials in a row.
    failed: [u8; Arm::ALL.len()],
    /// Bits of the arms that there are, and of those that the sender has not ignored.
    all: u8,
    open: u8,
    /// Of so many messages one is timed.
    timed: u8,
    best: Arm,
    trial: Option<Arm>,
    /// Timed messages of the trial, and those that went another way.
    seen: u8,
    ignored: u8,
    /// Least time of the trial.
    least: u32,
    /// The arm tried last.
    last: u8,
    /// What the best one took when its rivals were last given up.
    settled: u32,
    /// Nanoseconds that trials may lose.
    allowance: i64,
    /// Timed messages in all.
    messages: u32,
}

impl Learner {
    /// One that starts with `first`, of whose messages one in `timed` is timed; `open` says which arms there are.
    pub fn new(first: Arm, timed: u8, open: impl Fn(Arm) -> bool) -> Learner {
        let arms = Arm::ALL.into_iter().filter(|&arm| open(arm));
        let all = arms.fold(0, |bits, arm| bits | 1 << arm as u8);
        Learner {
            known: [0; Arm::ALL.len()],
            failed: [0; Arm::ALL.len()],
            all,
            open: all,
            timed,
            best: first,
            trial: None,
            seen: 0,
            ignored: 0,
            least: 0,
            last: first as u8,
            settled: 0,
            allowance: 0,
            messages: 0,
        }
    }

    /// The arm that took least, its picoseconds for each byte (0: not known), and the timed messages behind that.
    pub fn learnt(&self) -> (Arm, u32, u32) {
        (self.best, self.known[self.best as usize], self.messages)
    }

    /// A timed message of `bytes` bytes that went by `arm` took `ns` nanoseconds. What the sender is to do from now on,
    /// where that changes.
    pub fn note(&mut self, arm: Arm, bytes: u64, ns: u64) -> Option<Advice> {
        let ns = ns.clamp(1, LONGEST_NS);
        let rate = (ns.saturating_mul(1000) / bytes.max(1)).clamp(1, u32::MAX as u64 >> 4) as u32;
        self.messages = self.messages.saturating_add(1);
        match self.trial {
            Some(trial) if trial == arm => self.note_trial(trial, bytes, ns, rate),
            Some(trial) => {
                self.ignored += 1;
                let is_closed = self.ignored == IGNORED;
                self.open &= !((is_closed as u8) << trial as u8);
                is_closed.then(|| self.settle())
            }
            None if arm != self.best => match self.known[self.best as usize] {
                // The sender knows other constants.
                0 => {
                    self.best = arm;
                    self.note_best(bytes, ns, rate)
                }
                _ => Some(self.settle()),
            },
            None => self.note_best(bytes, ns, rate),
        }
    }

    fn note_best(&mut self, bytes: u64, ns: u64, rate: u32) -> Option<Advice> {
        let known = &mut self.known[self.best as usize];
        *known = match *known {
            0 => rate,
            before if rate < before => (before + rate) / 2,
            // A message may have waited for its receiver: longer times count little.
            before => before + (rate.min(2 * before) - before) / 4,
        };
        let known = *known;
        if known > self.settled + self.settled / 2 || known < self.settled - self.settled / 3 {
            // The machine or the program has changed.
            self.failed = [0; Arm::ALL.len()];
            (self.settled, self.open) = (known, self.all);
        }
        self.allowance += ns as i64 * self.timed as i64 / SHARE;
        if self.messages == START_AFTER {
            self.allowance += START_MESSAGES * ns as i64;
        }
        let next = self.next_trial(bytes)?;
        (self.trial, self.last) = (Some(next), next as u8);
        (self.seen, self.ignored, self.least) = (0, 0, u32::MAX);
        Some(Advice { arm: next, timed: 1 })
    }

    /// The arm that is known to have taken least, if that is half of what the best one takes now; its time is measured
    /// anew by that. Else the next one in turn whose trial the allowance covers.
    fn next_trial(&self, bytes: u64) -> Option<Arm> {
        if self.messages < START_AFTER {
            return None;
        }
        let best = self.known[self.best as usize] as u64;
        let is_open = |&arm: &Arm| arm != self.best && self.open >> arm as u8 & 1 != 0;
        let half = |&arm: &Arm| (1..=best / 2).contains(&(self.known[arm as usize] as u64));
        let quick = Arm::ALL.into_iter().filter(is_open).filter(half);
        if let Some(arm) = quick.min_by_key(|&arm| self.known[arm as usize]) {
            return Some(arm);
        }
        let count = Arm::ALL.len() as u8;
        let in_turn = (1..=count).filter_map(|step| Arm::of((self.last + step) % count));
        let is_due = |&arm: &Arm| {
            let known = match self.known[arm as usize] as u64 {
                0 => best * UNKNOWN,
                known => known,
            };
            let loss = nanoseconds(known.saturating_sub(best), bytes) * TRIAL as i64;
            let least = nanoseconds(best, bytes); // a change costs something, however good it looks
            self.allowance >= (loss + least) << self.failed[arm as usize]
        };
        in_turn.filter(is_open).find(is_due)
    }

    fn note_trial(&mut self, trial: Arm, bytes: u64, ns: u64, rate: u32) -> Option<Advice> {
        let best = self.known[self.best as usize] as u64;
        self.allowance -= (ns as i64 - nanoseconds(best, bytes)).max(0);
        self.seen += 1;
        let is_hopeless = rate as u64 > HOPELESS * best;
        if self.seen > 1 || is_hopeless {
            self.least = self.least.min(rate);
        }
        if self.seen < TRIAL && !(is_hopeless && self.seen > 1) {
            return None;
        }
        self.known[trial as usize] = self.least;
        // A copy without the ring takes the lines away from the sender's cache. No message's time tells what its next
        // writing pays for that: so such a copy must be clearly faster than the ring.
        let eighths = match self.best.is_ring() && !trial.is_ring() {
            true => 6,
            false => 7,
        };
        if self.least as u64 * 8 > best * eighths {
            return Some(self.give_up(trial));
        }
        match self.least as u64 * 2 > best {
            true => self.failed[trial as usize] = 0,
            false => self.failed = [0; Arm::ALL.len()],
        }
        (self.best, self.settled) = (trial, self.least);
        Some(self.settle())
    }

    fn give_up(&mut self, trial: Arm) -> Advice {
        let failed = &mut self.failed[trial as usize];
        *failed = (*failed + 1).min(DOUBLINGS);
        self.settled = self.known[self.best as usize];
        self.settle()
    }

    fn settle(&mut self) -> Advice {
        self.trial = None;
        Advice { arm: self.best, timed: self.timed }
    }
}

/// A rank that tries a copy loop for what it receives sends its own messages of that octave by the same one meanwhile.
/// Where both directions are in use its clock shows the slower one of both copies into rings: a trial of one alone
/// would show nothing. One for each octave.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mirror {
    arm: Option<Arm>,
    left: u8,
}

impl Mirror {
    /// The learner of an octave gives this advice.
    pub fn follow(&mut self, advice: Advice) {
        *self = match advice.is_trial() && advice.arm.is_ring() {
            true => Mirror { arm: Some(advice.arm), left: MIRRORED },
            false => Mirror::default(),
        };
    }

    /// The way of this rank's own messages, if a trial says so.
    #[inline]
    pub fn arm(&self) -> Option<Arm> {
        self.arm
    }

    /// A message leaves.
    #[inline]
    pub fn count(&mut self) {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.arm = None;
        }
    }
}

/// What the sender does for an octave, and how many of its messages were not timed since the last one that was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    advice: Advice,
    passed: u8,
}

impl Entry {
    /// Where nothing was heard of the receiver.
    pub fn new(arm: Arm, timed: u8) -> Entry {
        let advice = Advice { arm, timed };
        Entry { advice, passed: 0 }
    }

    /// Takes over what the receiver says.
    pub fn follow(&mut self, advice: Advice) {
        (self.advice, self.passed) = (advice, 0);
    }

    /// The way to go.
    #[inline]
    pub fn arm(&self) -> Arm {
        self.advice.arm
    }

    /// Whether the receiver tries this way.
    #[inline]
    pub fn is_trial(&self) -> bool {
        self.advice.is_trial()
    }

    /// Whether the next message is to be timed.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.passed >= self.advice.timed - 1
    }

    /// A message leaves, timed if it was due and `timed` says that it can be.
    #[inline]
    pub fn count(&mut self, timed: bool) {
        self.passed = match timed {
            true => 0,
            false => self.passed.saturating_add(1),
        };
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
