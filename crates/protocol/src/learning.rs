//! Learns from measured times which protocol is fastest for messages of a size to a peer.
//!
//! The receiver learns, because only the receiver sees when a message is complete. The receiver has one [`Learner`] for
//! each octave of sizes, from a power of two to the next. A protocol is an *arm*. The learner uses the arm with the
//! least known time and tries the others now and then. Trials may lose only a bounded share of the time of all
//! messages. (Bandits: Auer, Cesa-Bianchi and Fischer, Finite-time Analysis of the Multiarmed Bandit Problem, 2002.) A
//! trial takes several messages in a row, because the first one after a change meets cold caches.
//!
//! The receiver sends the result as [`Advice`]. An RTS states the arm of its message, so a sender may ignore the
//! advice. Pure: all times are arguments.

mod peer;
mod shared_processors;

pub use peer::PeerLearning;
pub use shared_processors::{CopyCosts, EagerCopy};
pub(crate) use shared_processors::{Half, TIMED_MIN};

use fastpath_base::copy::CopyLoop;

/// Smallest message, in bytes, whose protocol is learnt. For shorter messages, reading the clock would cost too much.
pub const LEARN_MIN: u64 = 4096;
/// Number of octaves of sizes, from [`LEARN_MIN`]; the last one is unbounded.
pub const OCTAVES: usize = 11;
/// Returns the number of messages of an octave per timed message. Short messages are timed rarely, because a timed
/// short message needs an RTS. Long messages have an RTS anyway, and a program may send few of them.
pub fn timed_of(octave: usize) -> u8 {
    (128 >> octave.min(6)) as u8
}

/// Number of timed messages of a trial. The time of the first message does not count.
const TRIAL: u8 = 4;
/// Trials may lose 1/`SHARE` of the time of messages. While a rank tries a copy loop for received messages, it also
/// sends with that loop ([`Mirror`]). These sends may lose as much again.
const SHARE: i64 = 128;
/// Initial allowance for trials: the time of this many messages.
const START_MESSAGES: i64 = 32;
/// Number of timed messages before the first trial.
const START_AFTER: u32 = 6;
/// Maximum number of messages that mirror a trial ([`Mirror`]), because its further messages may never arrive.
const MIRRORED: u8 = 4 * TRIAL;
/// Assumed time of an arm without measurements, as a multiple of the best arm's time.
const UNKNOWN: u64 = 3;
/// From its second message on, a trial ends if a message takes more than this multiple of the best arm's time.
const HOPELESS: u64 = 4;
/// Each failed trial of an arm doubles the allowance needed for its next trial, at most this number of times.
const DOUBLINGS: u8 = 6;
/// If this many timed messages during a trial used another arm, the sender counts as ignoring the advice.
const IGNORED: u8 = 12;
/// Longest time of a message, in nanoseconds, that is used: 18 minutes. Longer times come from a clock that jumps.
const LONGEST_NS: u64 = 1 << 40;

/// How a long message is transferred between two ranks of a host.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub enum Arm {
    /// Through the ring, by vector copies.
    Vector,
    /// Through the ring, by the string instruction.
    String,
    /// Through the ring, by non-temporal stores.
    Streaming,
    /// Copied by the receiver alone, without the ring.
    Get,
    /// Copied by both sides, without the ring.
    Cooperative,
}

impl Arm {
    /// All arms.
    pub const ALL: [Arm; 5] =
        [Arm::Vector, Arm::String, Arm::Streaming, Arm::Get, Arm::Cooperative];

    /// Returns the arm with this number, if there is one.
    pub fn of(number: u8) -> Option<Arm> {
        Arm::ALL.get(number as usize).copied()
    }

    /// Returns the name for reports.
    pub fn name(self) -> &'static str {
        ["pipelined", "pipelined, string copy", "pipelined, streaming copy", "get", "cooperative"]
            [self as usize]
    }

    /// Returns the sender's copy loop if the message goes through the ring.
    #[inline]
    pub fn copy_loop(self) -> CopyLoop {
        match self {
            Arm::String => CopyLoop::String,
            Arm::Streaming => CopyLoop::Streaming,
            _ => CopyLoop::Vector,
        }
    }

    /// Returns the ring arm whose sender uses this copy loop.
    #[inline]
    pub fn of_loop(copy_loop: CopyLoop) -> Arm {
        match copy_loop {
            CopyLoop::Vector => Arm::Vector,
            CopyLoop::String => Arm::String,
            CopyLoop::Streaming => Arm::Streaming,
        }
    }

    /// Returns whether the message goes through the ring.
    #[inline]
    pub fn is_ring(self) -> bool {
        self < Arm::Get
    }
}

/// Returns the octave of a size of at least [`LEARN_MIN`] bytes.
#[inline]
pub fn octave(bytes: u64) -> usize {
    ((bytes.max(LEARN_MIN) / LEARN_MIN).ilog2() as usize).min(OCTAVES - 1)
}

fn nanoseconds(rate: u64, bytes: u64) -> i64 {
    (rate.saturating_mul(bytes) / 1000).min(LONGEST_NS) as i64
}

/// What the receiver tells the sender to do for the messages of an octave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advice {
    /// Arm to use.
    pub arm: Arm,
    /// Number of messages per timed message.
    pub timed: u8,
}

impl Advice {
    /// Returns whether the advice starts a trial: in a trial all messages are timed, otherwise never all.
    #[inline]
    pub fn is_trial(&self) -> bool {
        self.timed == 1
    }
}

/// Measured times of the arms for one octave of a peer's messages, and the state of trials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Learner {
    /// Recent least time, in picoseconds per byte; 0 if unknown.
    known: [u32; Arm::ALL.len()],
    failed: [u8; Arm::ALL.len()],
    /// Bits of the available arms.
    all: u8,
    /// Bits of the available arms that the sender uses when advised.
    open: u8,
    /// Number of messages per timed message.
    timed: u8,
    best: Arm,
    trial: Option<Arm>,
    /// Number of timed messages of the trial.
    seen: u8,
    /// Number of messages timed during the trial that used another arm.
    ignored: u8,
    least: u32,
    last: u8,
    /// Time of the best arm, in picoseconds per byte, when a trial last ended or failed trials were last forgotten.
    settled: u32,
    /// Nanoseconds that trials may lose.
    allowance: i64,
    messages: u32,
}

impl Learner {
    /// Creates a learner that starts with `first` and times one in `timed` messages. `open`: available arms.
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

    /// Returns the best arm, its time in picoseconds per byte (0 if unknown), and the number of timed messages.
    pub fn learnt(&self) -> (Arm, u32, u32) {
        (self.best, self.known[self.best as usize], self.messages)
    }

    /// Notes a timed message of `bytes` bytes that took `ns` nanoseconds. Returns the sender's new advice, if any.
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
                // The sender's constants select another arm, so no message of the best arm is timed.
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
            // A message may have waited for its receiver, so longer times count little.
            before => before + (rate.min(2 * before) - before) / 4,
        };
        let known = *known;
        if known > self.settled + self.settled / 2 || known < self.settled - self.settled / 3 {
            // The machine or the program has changed: forget failed trials.
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

    /// Returns the arm to try next. An arm whose known time is at most half of the best arm's current time comes first.
    /// Otherwise it is the next arm in turn whose trial the allowance covers.
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
            let least = nanoseconds(best, bytes); // every change has a cost
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
        // A copy without the ring takes lines from the sender's cache. The sender's next writes are then slower, which
        // no message's time shows. Such a copy must therefore be clearly faster than the ring.
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

/// Mirror of a trial, for each octave: a rank that tries a copy loop for received messages also sends with it. A rank's
/// clock shows the slower of the two ranks' copies into rings, so a trial in one direction would show nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mirror {
    arm: Option<Arm>,
    left: u8,
}

impl Mirror {
    /// Follows the advice of the octave's learner.
    pub fn follow(&mut self, advice: Advice) {
        *self = match advice.is_trial() && advice.arm.is_ring() {
            true => Mirror { arm: Some(advice.arm), left: MIRRORED },
            false => Mirror::default(),
        };
    }

    /// Returns the arm for sent messages; `None` if no trial determines it.
    #[inline]
    pub fn arm(&self) -> Option<Arm> {
        self.arm
    }

    /// Counts a sent message.
    #[inline]
    pub fn count(&mut self) {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.arm = None;
        }
    }
}

/// State of a sender for an octave: the advice, and the untimed messages since the last timed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OctaveState {
    advice: Advice,
    passed: u8,
}

impl OctaveState {
    /// Returns the state before any advice.
    pub fn new(arm: Arm, timed: u8) -> OctaveState {
        let advice = Advice { arm, timed };
        OctaveState { advice, passed: 0 }
    }

    /// Stores the receiver's advice.
    pub fn follow(&mut self, advice: Advice) {
        (self.advice, self.passed) = (advice, 0);
    }

    /// Returns the arm to use.
    #[inline]
    pub fn arm(&self) -> Arm {
        self.advice.arm
    }

    /// Returns whether the receiver tries this arm.
    #[inline]
    pub fn is_trial(&self) -> bool {
        self.advice.is_trial()
    }

    /// Returns whether the next message is to be timed.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.passed >= self.advice.timed - 1
    }

    /// Counts a message; `timed` is whether it was timed.
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
