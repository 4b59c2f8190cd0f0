//! Counters of window operations: of each window for its report, of the process for performance variables.
//!
//! Puts and gets on the immediate path are not counted, because the addition would cost too many instructions. Such
//! puts and gets have up to [`fastpath_base::copy::COPY_SMALL_MAX`] contiguous bytes and go by load and store, without
//! threads or traces.

use super::hot::{self, CountedKind};
use super::window::{WINDOWS, Window};
use crate::process::{Process, ProcessPart};
use std::cell::Cell;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RmaCounter {
    /// Puts, except those on the immediate path.
    Puts,
    PutBytes,
    /// Gets, except those on the immediate path.
    Gets,
    GotBytes,
    Accumulates,
    Atomics,
    Locks,
    /// Locks for which this process had to wait.
    LockWaits,
    Flushes,
    /// Fences, and epochs by `MPI_Win_start`, `MPI_Win_post` and `MPI_Win_lock_all`.
    Epochs,
}

/// All counters with the singular and plural names that reports use.
pub(super) const ALL: [(RmaCounter, &str, &str); 10] = [
    (RmaCounter::Puts, "put", "puts"),
    (RmaCounter::PutBytes, "byte put", "bytes put"),
    (RmaCounter::Gets, "get", "gets"),
    (RmaCounter::GotBytes, "byte got", "bytes got"),
    (RmaCounter::Accumulates, "accumulate", "accumulates"),
    (RmaCounter::Atomics, "atomic", "atomics"),
    (RmaCounter::Locks, "lock", "locks"),
    (RmaCounter::LockWaits, "wait for a lock", "waits for locks"),
    (RmaCounter::Flushes, "flush", "flushes"),
    (RmaCounter::Epochs, "epoch", "epochs"),
];

pub(super) struct RmaCounts([Cell<u64>; ALL.len()]);

/// Counts of freed windows.
static FREED: ProcessPart<RmaCounts> = ProcessPart::new(RmaCounts::new());

impl RmaCounts {
    pub const fn new() -> RmaCounts {
        RmaCounts([const { Cell::new(0) }; ALL.len()])
    }

    #[inline]
    pub fn add(&self, what: RmaCounter) {
        self.add_many(what, 1);
    }

    #[inline]
    pub fn add_many(&self, what: RmaCounter, number: u64) {
        let count = &self.0[what as usize];
        count.set(count.get().wrapping_add(number));
    }

    /// Counts a put or a get of `bytes` bytes.
    #[inline]
    pub fn add_move<const PUTS: bool>(&self, bytes: u64) {
        let (what, bytes_of) = match PUTS {
            true => (RmaCounter::Puts, RmaCounter::PutBytes),
            false => (RmaCounter::Gets, RmaCounter::GotBytes),
        };
        self.add(what);
        self.add_many(bytes_of, bytes);
    }
}

impl Window {
    pub(super) fn count(&self, what: RmaCounter) -> u64 {
        let quick = match what {
            RmaCounter::Flushes => hot::flushes_since_look(self.handle.get()),
            RmaCounter::Accumulates => hot::count(CountedKind::Accumulate, self.handle.get()),
            RmaCounter::Atomics => hot::count(CountedKind::Atomic, self.handle.get()),
            _ => 0,
        };
        self.counts.0[what as usize].get().wrapping_add(quick)
    }
}

/// Adds the counts of a window that is freed to those of the process.
pub(super) fn keep(p: &Process, window: &Window) {
    for (what, ..) in ALL {
        FREED.of(p).add_many(what, window.count(what));
    }
}

/// Returns the count of `what` in all windows of the process, including freed ones.
pub(crate) fn total(p: &Process, what: RmaCounter) -> u64 {
    let windows = WINDOWS.of(p);
    let living = windows.handles().into_iter().filter_map(|handle| windows.get(handle));
    let living: u64 = living.map(|window| window.count(what)).sum();
    FREED.of(p).0[what as usize].get().wrapping_add(living)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn names__stand_at_their_numbers() {
        for (index, (what, one, several)) in ALL.into_iter().enumerate() {
            assert_eq!(what as usize, index);
            assert_ne!(one, several);
        }
    }

    #[test]
    fn moves__count_themselves_and_their_bytes() {
        let counts = RmaCounts::new();
        counts.add_move::<true>(100);
        counts.add_move::<false>(7);
        counts.add_move::<false>(1);
        let all = counts.0.each_ref().map(Cell::get);
        assert_eq!(all, [1, 100, 2, 8, 0, 0, 0, 0, 0, 0]);
    }
}
