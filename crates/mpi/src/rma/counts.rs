//! What is counted of windows: by each of them, for its report, and by the process, for performance variables.
//!
//! Puts and gets that return without going inside are not counted: one addition would be more instructions than they
//! may take. That is up to [`fastpath_base::copy::COPY_SMALL_MAX`] contiguous bytes, by load and store, where neither
//! threads nor traces keep calls from it.

use super::hot::{self, CountedKind};
use super::window::{WINDOWS, Window};
use crate::process::{Process, ProcessPart};
use std::cell::Cell;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// Puts, but for those that are too quick to be counted.
    Puts,
    /// Bytes of them.
    PutBytes,
    /// Gets, but for those that are too quick to be counted.
    Gets,
    /// Bytes of them.
    GotBytes,
    /// `MPI_Accumulate`, `MPI_Get_accumulate` and their forms with a request.
    Accumulates,
    /// `MPI_Fetch_and_op` and `MPI_Compare_and_swap`.
    Atomics,
    /// Locks by `MPI_Win_lock`.
    Locks,
    /// Locks for whose turn this process had to wait.
    LockWaits,
    /// Flushes, of one rank or of all.
    Flushes,
    /// Fences, and epochs by `MPI_Win_start`, `MPI_Win_post` and `MPI_Win_lock_all`.
    Epochs,
}

/// All of them, with the names that reports give them: of one, and of several.
pub(super) const ALL: [(Counted, &str, &str); 10] = [
    (Counted::Puts, "put", "puts"),
    (Counted::PutBytes, "byte put", "bytes put"),
    (Counted::Gets, "get", "gets"),
    (Counted::GotBytes, "byte got", "bytes got"),
    (Counted::Accumulates, "accumulate", "accumulates"),
    (Counted::Atomics, "atomic", "atomics"),
    (Counted::Locks, "lock", "locks"),
    (Counted::LockWaits, "wait for a lock", "waits for locks"),
    (Counted::Flushes, "flush", "flushes"),
    (Counted::Epochs, "epoch", "epochs"),
];

/// Numbers of them, from 0.
pub(super) struct Counts([Cell<u64>; ALL.len()]);

/// Those of windows that were freed.
static FREED: ProcessPart<Counts> = ProcessPart::new(Counts::new());

impl Counts {
    pub const fn new() -> Counts {
        Counts([const { Cell::new(0) }; ALL.len()])
    }

    /// One more of something.
    #[inline]
    pub fn add(&self, what: Counted) {
        self.add_many(what, 1);
    }

    #[inline]
    pub fn add_many(&self, what: Counted, number: u64) {
        let count = &self.0[what as usize];
        count.set(count.get().wrapping_add(number));
    }

    /// A put or a get of `bytes` bytes.
    #[inline]
    pub fn add_move<const PUTS: bool>(&self, bytes: u64) {
        let (what, bytes_of) = match PUTS {
            true => (Counted::Puts, Counted::PutBytes),
            false => (Counted::Gets, Counted::GotBytes),
        };
        self.add(what);
        self.add_many(bytes_of, bytes);
    }
}

impl Window {
    /// How many of something there were in this window.
    pub(super) fn count(&self, what: Counted) -> u64 {
        let quick = match what {
            Counted::Flushes => hot::flushes_since_look(self.handle.get()),
            Counted::Accumulates => hot::count(CountedKind::Accumulate, self.handle.get()),
            Counted::Atomics => hot::count(CountedKind::Atomic, self.handle.get()),
            _ => 0,
        };
        self.counts.0[what as usize].get().wrapping_add(quick)
    }
}

/// A window is freed: what it has counted stays with the process.
pub(super) fn keep(p: &Process, window: &Window) {
    for (what, ..) in ALL {
        FREED.of(p).add_many(what, window.count(what));
    }
}

/// How many of something there were in all windows of the process.
pub(crate) fn total(p: &Process, what: Counted) -> u64 {
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
        let counts = Counts::new();
        counts.add_move::<true>(100);
        counts.add_move::<false>(7);
        counts.add_move::<false>(1);
        let all = counts.0.each_ref().map(Cell::get);
        assert_eq!(all, [1, 100, 2, 8, 0, 0, 0, 0, 0, 0]);
    }
}
