//! What the watching thread has read of the kernel, on its way to the thread that sends: a ring without locks, since
//! whoever holds a lock may be unmapping memory, and then waits for the watching thread.

use fastpath_base::sync::{AtomicBool, AtomicUsize, Ordering, fence};
use std::ops::Range;

/// Ranges that have changed and were not looked at.
const ROOM: usize = 256;

/// Of one thread that adds and one that takes.
pub(super) struct Changes {
    slots: Box<[(AtomicUsize, AtomicUsize)]>,
    added: AtomicUsize,
    taken: AtomicUsize,
    /// There was no room: anything may have changed.
    lost: AtomicBool,
    /// Events may have been read and not been added.
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

/// What has changed.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::adapter::rc) enum Changed {
    /// The memory of these addresses.
    Range(Range<usize>),
    /// Any memory.
    All,
}

impl Changes {
    /// To be called before events are read, and with false when all of them were added.
    pub(super) fn set_busy(&self, busy: bool) {
        match busy {
            true => {
                self.busy.store(true, Ordering::Relaxed);
                // ORDERING: before the events are read, by which those who made them go on; partner: `are_none`.
                fence(Ordering::SeqCst);
            }
            // ORDERING: after what was added; partner: the load in `are_none`.
            false => self.busy.store(false, Ordering::Release),
        }
    }

    /// The watching thread's.
    pub(super) fn add(&self, range: &Range<usize>) {
        let added = self.added.load(Ordering::Relaxed);
        // ORDERING: the slot has been read; partner: the store in `take`.
        if added.wrapping_sub(self.taken.load(Ordering::Acquire)) == ROOM {
            return self.lose();
        }
        let (start, end) = &self.slots[added % ROOM];
        start.store(range.start, Ordering::Relaxed);
        end.store(range.end, Ordering::Relaxed);
        // ORDERING: the slot has been written; partner: the load in `take`.
        self.added.store(added.wrapping_add(1), Ordering::Release);
    }

    /// Nobody knows what has changed.
    pub(super) fn lose(&self) {
        // ORDERING: before `busy` ends; partner: the exchange in `take`.
        self.lost.store(true, Ordering::Release);
    }

    /// The next change; that of the thread that sends.
    pub(super) fn take(&self) -> Option<Changed> {
        if self.lost.load(Ordering::Relaxed) {
            // What was added before is a part of it, what comes after is not.
            // ORDERING: partner: the store in `lose`.
            self.lost.swap(false, Ordering::AcqRel);
            return Some(Changed::All);
        }
        let taken = self.taken.load(Ordering::Relaxed);
        // ORDERING: partner: the store in `add`.
        if taken == self.added.load(Ordering::Acquire) {
            return None;
        }
        let (start, end) = &self.slots[taken % ROOM];
        let range = start.load(Ordering::Relaxed)..end.load(Ordering::Relaxed);
        // ORDERING: the slot has been read; partner: the load in `add`.
        self.taken.store(taken.wrapping_add(1), Ordering::Release);
        Some(Changed::Range(range))
    }

    /// Whether every event that was read before this call has been taken. To be asked after the kernel has said that
    /// none is waiting.
    pub(super) fn are_none(&self) -> bool {
        // ORDERING: after the kernel's answer; partner: the fence in `set_busy`.
        fence(Ordering::SeqCst);
        // ORDERING: what was added before it ended is seen; partner: the store in `set_busy`.
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
            assert_eq!(changes.take(), Some(Changed::Range(round..round + 1)));
            assert!(changes.are_none() && changes.take().is_none());
        }
        (0..=ROOM).for_each(|at| changes.add(&(at..at + 1)));
        assert_eq!(changes.take(), Some(Changed::All));
        // Those before it are there all the same.
        assert_eq!(changes.take(), Some(Changed::Range(0..1)));
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
