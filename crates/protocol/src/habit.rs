//! Which of two ways messages of middle size go to a peer, by what the last ones took: in parts through
//! the ring, or fetched from their place by the receiver alone. See `docs/decisions/0012`.
//!
//! Which is faster is the program's affair. A message that its sender writes anew each time lies in the sender's cache, and
//! parts move it best; one that nobody has written since it was last received is still in the receiver's. Pure: the
//! sender asks [`Habit`] for each message and tells it what the receiver says; the receiver measures, in [`Pace`].

use crate::worker::EARLY_LIMIT;

/// Smallest message that can be fetched so, in bytes: below, the system call costs what it saves.
pub const MIDDLE_MIN: u64 = 12 * 1024;
/// Sizes that are decided about apart: each from twice the one before.
const CLASSES: usize = (EARLY_LIMIT / MIDDLE_MIN).ilog2() as usize + 1;

/// Messages in parts before the first trial; doubled after each that fails.
const GAP_FIRST: u16 = 16;
/// How often at most.
const DOUBLINGS: u8 = 7;
/// Fetches of a trial. The first one brings the message into the receiver's cache, and what the kernel needs for the copy,
/// and proves nothing, however long it takes.
const TRIAL: u16 = 3;
/// Of so many fetches one is timed while all goes well.
const TIMED: u16 = 8;
/// Fetches that in a row were slower, or that nobody waited for, before it is parts again.
const DOUBTS: u8 = 2;
/// Fetches that make a success: what ends after them was right while it lasted.
const SUCCESS: u16 = 64;
/// Fetches after which the parts are measured anew, since the machine may have changed.
const RENEWAL: u16 = 1024;

/// How the next message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// In parts through the ring.
    Parts,
    /// Fetched by the receiver.
    Fetched {
        /// The receiver says how long that took.
        timed: bool,
    },
}

/// What the receiver says of a message that it has fetched.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was not waiting for it: the sender has waited instead.
    Late,
    /// It did not look at the clock.
    Untimed,
    /// Parts take clearly longer.
    Faster,
    /// About as long as parts take.
    Even,
    /// Parts are faster.
    Slower,
}

impl Verdict {
    /// The verdict with this number; what nobody says counts as `Late`.
    pub fn of(number: u32) -> Verdict {
        const ALL: [Verdict; 5] = [
            Verdict::Late,
            Verdict::Untimed,
            Verdict::Faster,
            Verdict::Even,
            Verdict::Slower,
        ];
        *ALL.get(number as usize).unwrap_or(&Verdict::Late)
    }
}

/// Where a [`Habit`] is. Parts is zero, as untouched memory is.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    #[default]
    Parts,
    Trial,
    Fetching,
}

/// What a sender is used to, for one peer and one class of sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Habit {
    phase: Phase,
    /// Trials that failed in a row, up to [`DOUBLINGS`].
    failed: u8,
    /// Fetches in a row that spoke for parts.
    doubts: u8,
    /// Messages of this phase.
    passed: u16,
}

impl Habit {
    /// How the next message goes.
    pub fn choose(&mut self) -> Way {
        match self.phase {
            Phase::Parts if self.passed < GAP_FIRST << self.failed => {
                self.passed += 1;
                return Way::Parts;
            }
            Phase::Parts => self.enter(Phase::Trial),
            Phase::Trial => {}
            Phase::Fetching if self.passed == RENEWAL => {
                self.failed = 0;
                self.enter(Phase::Parts);
                self.passed = 1;
                return Way::Parts;
            }
            Phase::Fetching => self.passed += 1,
        }
        Way::Fetched {
            timed: self.phase == Phase::Trial
                || self.doubts > 0
                || self.passed.is_multiple_of(TIMED),
        }
    }

    /// What became of the last message that was fetched.
    pub fn note(&mut self, verdict: Verdict) {
        match (self.phase, verdict) {
            (Phase::Parts, _) | (Phase::Fetching, Verdict::Untimed) => {}
            (Phase::Trial, Verdict::Late) if self.passed > 0 => self.give_up(),
            (Phase::Trial, Verdict::Faster) if self.passed > 0 => self.enter(Phase::Fetching),
            (Phase::Trial, _) => {
                self.passed += 1;
                if self.passed == TRIAL {
                    self.give_up();
                }
            }
            (Phase::Fetching, Verdict::Faster | Verdict::Even) => self.doubts = 0,
            (Phase::Fetching, Verdict::Slower | Verdict::Late) => {
                self.doubts += 1;
                if self.doubts < DOUBTS {
                    return;
                }
                match self.passed < SUCCESS {
                    true => self.give_up(),
                    false => {
                        self.failed = 0;
                        self.enter(Phase::Parts);
                    }
                }
            }
        }
    }

    fn give_up(&mut self) {
        self.failed = (self.failed + 1).min(DOUBLINGS);
        self.enter(Phase::Parts);
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        (self.passed, self.doubts) = (0, 0);
    }
}

/// Of so many messages in parts one is timed.
const PACED: u8 = 8;

/// How long parts take from one peer, in one class of sizes, as their receiver has measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pace {
    /// Picoseconds for each byte; 0: not known.
    byte_ps: u16,
    seen: u8,
}

impl Pace {
    /// Whether the message in parts that has begun is to be timed. The first ones are not: they meet cold memory.
    pub fn is_due(&mut self) -> bool {
        self.seen = (self.seen + 1) % PACED;
        self.seen == PACED / 4
    }

    /// A message of `bytes` bytes took `ns` nanoseconds from its first part of `part` bytes to its last byte. Half a part is
    /// added for what lies before: the copy of the first part, less what an announcement and its answer take. A time far
    /// from the others counts little, since either side may have been interrupted.
    pub fn note(&mut self, bytes: u64, part: u64, ns: u64) {
        let whole = ns.saturating_mul(bytes + part / 2) / bytes.max(1);
        let found = (whole.saturating_mul(1000) / bytes.max(1)).clamp(1, u16::MAX as u64) as u16;
        self.byte_ps = match self.byte_ps {
            0 => found,
            known => found.clamp(known - known / 4, known.saturating_add(known / 4)),
        };
    }

    /// What a fetch of `bytes` bytes in `ns` nanoseconds is against that.
    pub fn judge(&self, bytes: u64, ns: u64) -> Verdict {
        let parts = bytes * self.byte_ps as u64 / 1000;
        match () {
            _ if self.byte_ps == 0 => Verdict::Even,
            _ if ns < parts - parts / 8 => Verdict::Faster,
            _ if ns <= parts => Verdict::Even,
            _ => Verdict::Slower,
        }
    }
}

/// Both for each class of sizes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Habits {
    habits: [Habit; CLASSES],
    paces: [Pace; CLASSES],
}

impl Habits {
    /// For messages of `bytes` bytes to the peer.
    pub fn habit(&mut self, bytes: u64) -> &mut Habit {
        &mut self.habits[class(bytes)]
    }

    /// For messages of `bytes` bytes from the peer.
    pub fn pace(&mut self, bytes: u64) -> &mut Pace {
        &mut self.paces[class(bytes)]
    }
}

fn class(bytes: u64) -> usize {
    let octave = (bytes.max(MIDDLE_MIN) / MIDDLE_MIN).ilog2() as usize;
    octave.min(CLASSES - 1)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
