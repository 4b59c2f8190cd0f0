//! Reported changes, passed from the watching thread to the sending thread by a lock-free ring. A lock could deadlock:
//! its holder might unmap memory, and would then wait for the watching thread, which waits for the lock.

use fastpath_base::sync::{AtomicBool, AtomicUsize, Ordering, fence};
use std::ops::Range;

const ROOM: usize = 256;

pub(super) struct Changes {
    slots: Box<[(AtomicUsize, AtomicUsize)]>,
    added: AtomicUsize,
    taken: AtomicUsize,
    /// Whether a report found the ring full. If so, any memory may have changed.
    lost: AtomicBool,
    /// Whether the watching thread may have read reports that it has not yet added.
    busy: AtomicBool,
}

impl Default for Changes {
    fn default() -> Self {
        Changes {
            slots: (0..ROOM).map(|_| Default::default()).collect(),
            added: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
            lost: AtomicBool::new(false),
            busy: AtomicBool::new(false),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(in crate::adapter::rc) enum ChangedRange {
    Range(Range<usize>),
    All,
}

impl Changes {
    pub(super) fn set_busy(&self, busy: bool) {
        match busy {
            true => {
                self.busy.store(true, Ordering::Relaxed);
                // ORDERING: `busy` is set before the reports are read, which unblocks the threads that caused them;
                // partner: the fence in `are_none`.
                fence(Ordering::SeqCst);
            }
            // ORDERING: publishes the added ranges; partner: the load in `are_none`.
            false => self.busy.store(false, Ordering::Release),
        }
    }

    pub(super) fn add(&self, range: &Range<usize>) {
        let added = self.added.load(Ordering::Relaxed);
        // ORDERING: the consumer has read each slot that counts as taken; partner: the store in `take`.
        if added.wrapping_sub(self.taken.load(Ordering::Acquire)) == ROOM {
            return self.lose();
        }
        let (start, end) = &self.slots[added % ROOM];
        start.store(range.start, Ordering::Relaxed);
        end.store(range.end, Ordering::Relaxed);
        // ORDERING: publishes the slot; partner: the load in `take`.
        self.added.store(added.wrapping_add(1), Ordering::Release);
    }

    pub(super) fn lose(&self) {
        // ORDERING: `lost` is set before `busy` is cleared; partner: the exchange in `take`.
        self.lost.store(true, Ordering::Release);
    }

    pub(super) fn take(&self) -> Option<ChangedRange> {
        if self.lost.load(Ordering::Relaxed) {
            // Clear the flag: the answer `All` covers all changes until now. ORDERING: acquires `lost`; partner: the
            // store in `lose`.
            self.lost.swap(false, Ordering::AcqRel);
            return Some(ChangedRange::All);
        }
        let taken = self.taken.load(Ordering::Relaxed);
        // ORDERING: acquires the slot, which is read next; partner: the store in `add`.
        if taken == self.added.load(Ordering::Acquire) {
            return None;
        }
        let (start, end) = &self.slots[taken % ROOM];
        let range = start.load(Ordering::Relaxed)..end.load(Ordering::Relaxed);
        // ORDERING: the slot was read before this store lets it be reused; partner: the load in `add`.
        self.taken.store(taken.wrapping_add(1), Ordering::Release);
        Some(ChangedRange::Range(range))
    }

    /// Whether all reports read before this call were taken. Call it after the kernel answered that no report waits.
    pub(super) fn are_none(&self) -> bool {
        // ORDERING: the kernel's answer came before the loads below; partner: the fence in `set_busy`.
        fence(Ordering::SeqCst);
        // ORDERING: acquires the ranges that were added before `busy` was cleared; partner: the store in `set_busy`.
        let busy = self.busy.load(Ordering::Acquire);
        let (added, taken) =
            (self.added.load(Ordering::Relaxed), self.taken.load(Ordering::Relaxed));
        !busy && added == taken && !self.lost.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn changes__come_in_order_until_there_is_no_room() {
        let changes = Changes::default();
        assert!(changes.are_none());
        for round in 0..3 * ROOM {
            changes.add(&(round..round + 1));
            assert!(!changes.are_none());
            assert_eq!(changes.take(), Some(ChangedRange::Range(round..round + 1)));
            assert!(changes.are_none() && changes.take().is_none());
        }
        (0..=ROOM).for_each(|at| changes.add(&(at..at + 1)));
        assert_eq!(changes.take(), Some(ChangedRange::All));
        // Ranges that were added before the overflow are still in the ring.
        assert_eq!(changes.take(), Some(ChangedRange::Range(0..1)));
        while changes.take().is_some() {}
        assert!(changes.are_none());
    }

    #[test]
    fn changes__are_not_none_while_events_are_read() {
        let changes = Changes::default();
        changes.set_busy(true);
        assert!(!changes.are_none() && changes.take().is_none());
        changes.set_busy(false);
        assert!(changes.are_none());
    }
}
