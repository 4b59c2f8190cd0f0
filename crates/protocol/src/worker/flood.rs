//! State of the bound on unexpected messages.

use super::Worker;
use crate::matching::Matcher;

/// First interval, in nanoseconds, after which unawaited messages beyond the bound are taken. Later intervals double.
const RELIEF_NS: u64 = 50_000;

/// Warning printed once, when unexpected messages first reach the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FloodWarning {
    /// World rank of the peer whose message is the first that must wait.
    pub peer: u32,
    /// Number of unexpected messages.
    pub messages: u64,
    /// Bytes of the unexpected messages.
    pub bytes: u64,
    /// The bound in bytes.
    pub bound: u64,
}

/// Bound on unexpected messages, and the state of its handling.
#[derive(Debug)]
pub struct Flood {
    /// Largest number of bytes of unexpected messages, including their records.
    pub bound: u64,
    /// Callback for the one warning when the bound is reached.
    pub on_reached: Option<fn(&Worker, &FloodWarning)>,
    pub(crate) held_back: bool,
    /// Whether all messages are taken despite the bound.
    pub(crate) lifted: bool,
    pub(crate) next: usize,
    /// Time, in nanoseconds, when messages of all peers were last taken beyond the bound.
    pub(crate) relieved_ns: u64,
    /// Interval, in nanoseconds, until messages of all peers are taken again.
    pub(crate) interval_ns: u64,
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
    #[inline]
    pub(crate) fn rest(&mut self) {
        self.interval_ns = RELIEF_NS;
    }

    #[inline]
    pub(crate) fn is_reached(&self, matcher: &Matcher) -> bool {
        matcher.store.usage().1 >= self.bound
    }
}
