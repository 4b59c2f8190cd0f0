//! Slots in which origins request small operations from the memory's owner; see `one_sided::ask`.
#![allow(unsafe_code)]

use fastpath_base::sync::{AtomicU32, AtomicU64, Ordering};
use std::cell::UnsafeCell;

pub(crate) const FREE: u32 = 0;
pub(crate) const HELD: u32 = 1;
pub(crate) const POSTED: u32 = 2;
pub(crate) const SERVING: u32 = 3;
pub(crate) const DONE: u32 = 4;
pub(crate) const REFUSED: u32 = 5;
/// Bits of the state in a slot's word. The other bits are a count.
pub(crate) const STATE: u32 = 7;
pub(crate) const USE: u32 = 8;
/// Mask of the use count in a message's `imm`. The bits above hold the slot's offset, in units of `LINE` bytes.
pub(crate) const NAMED: u32 = (1 << 12) - 1;

/// Returns the use count in a slot's word, reduced to the bits that fit a message.
pub(crate) fn use_of(word: u32) -> u32 {
    (word / USE) & NAMED
}

pub(crate) fn in_state(word: u32, state: u32) -> u32 {
    word & !STATE | state
}

/// Most bytes in a slot. Longer operations use several pieces.
pub const ASK_MOST: usize = 4096;
/// Number of slots of one owner. Each origin uses a slot by its rank, so origins share slots.
pub(crate) const SLOTS: usize = 4;
/// Bytes that an owner provides for its slots. The first [`SLOT_HEAD`] bytes of each slot must initially be 0.
pub const SLOTS_BYTES: usize = SLOTS * SLOT_BYTES;
/// Size of a slot in bytes.
pub const SLOT_BYTES: usize = size_of::<AskSlot>();
/// Bytes of a slot before its data.
pub const SLOT_HEAD: usize = 32;

/// Number of operations that must find the owner asleep before it is woken for later ones. Doubles with each wake-up.
pub(crate) const ASLEEP_FIRST: u32 = 8;
pub(crate) const ASLEEP_MOST: u32 = 1024;
/// Most failed waits in a row that are counted. After a count of n, 2^n - 1 operations do not wait.
pub(crate) const VAIN_MOST: u32 = 10;

#[repr(C, align(64))]
pub(crate) struct AskSlot {
    /// State, and the number of times that the slot was held.
    pub(crate) word: AtomicU32,
    /// Number of bytes of the owner's memory, with the flags [`PUT`] or [`CHANGE`].
    pub(crate) asked: AtomicU32,
    pub(crate) change: AtomicU64,
    pub(crate) region: AtomicU64,
    pub(crate) offset: AtomicU64,
    data: UnsafeCell<[u8; ASK_MOST]>,
}

const _: () = assert!(std::mem::offset_of!(AskSlot, data) == SLOT_HEAD);

impl AskSlot {
    pub(crate) fn data(&self) -> *mut u8 {
        self.data.get().cast()
    }

    pub(crate) fn hold(&self) -> Option<u32> {
        let free = self.word.load(Ordering::Relaxed);
        if free & STATE != FREE {
            return None;
        }
        let held = in_state(free.wrapping_add(USE), HELD);
        // ORDERING: acquire: the previous origin has read its bytes; partner: `leave`.
        let (seen, failed) = (Ordering::Acquire, Ordering::Relaxed);
        let taken = self.word.compare_exchange(free, held, seen, failed);
        taken.is_ok().then_some(held)
    }

    pub(crate) fn begin(&self, named: u32) -> Option<u32> {
        let posted = self.word.load(Ordering::Relaxed);
        if posted & STATE != POSTED || use_of(posted) != named {
            return None;
        }
        let serving = in_state(posted, SERVING);
        // ORDERING: acquire: the owner sees all of the slot; partner: the release in `post`.
        let (seen, failed) = (Ordering::Acquire, Ordering::Relaxed);
        let begun = self.word.compare_exchange(posted, serving, seen, failed);
        begun.is_ok().then_some(serving)
    }

    pub(crate) fn post(&self, held: u32) {
        // ORDERING: release: partner: the acquire in `begin`.
        self.word.store(in_state(held, POSTED), Ordering::Release);
    }

    pub(crate) fn end(&self, serving: u32, state: u32) {
        // ORDERING: release: partner: the acquire in `await_end`.
        self.word.store(in_state(serving, state), Ordering::Release);
    }

    /// Takes back an operation that the owner has not begun, and frees the slot. Returns false if the owner has begun.
    pub(crate) fn take_back(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        let (posted, held) = (in_state(word, POSTED), in_state(word, HELD));
        let relaxed = Ordering::Relaxed;
        let taken = self.word.compare_exchange(posted, held, relaxed, relaxed);
        if taken.is_ok() {
            self.leave();
        }
        taken.is_ok()
    }

    pub(crate) fn leave(&self) {
        let word = self.word.load(Ordering::Relaxed);
        // ORDERING: release: partner: the acquire in `hold`.
        self.word.store(in_state(word, FREE), Ordering::Release);
    }
}

/// Applies a peer's change that only the upper layer understands to `len` bytes at `memory`. The operand is in
/// [`ASK_MOST`] bytes at `data`, which also take the answer. Returns false if `change` is unknown. Other processes may
/// write to both memories at the same time.
pub type ChangeFunction =
    unsafe fn(change: u64, data: *mut u8, memory: *mut u8, len: usize) -> bool;

/// Operation on the owner's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Write the given bytes.
    Put,
    /// Return bytes.
    Get,
    /// Make this change ([`ChangeFunction`]).
    Change(u64),
}

/// Operation requested of an owner.
#[derive(Debug, Clone, Copy)]
pub struct TargetRequest {
    /// Kind of operation.
    pub ask: Ask,
    /// Offset in the region.
    pub offset: u64,
    /// Length in bytes.
    pub len: usize,
    /// Bytes that are sent with the operation.
    pub given: (*const u8, usize),
    /// Destination and length of the answer.
    pub taken: (*mut u8, usize),
}

/// Slots of an owner, mapped by an origin.
#[derive(Debug, Clone, Copy)]
pub struct Slots {
    pub(crate) first: *const AskSlot,
    /// Region of the slots at the owner.
    pub(crate) region: u64,
    /// Offset of the slots in that region.
    pub(crate) offset: u32,
}

impl Slots {
    pub(crate) fn index(&self, rank: u32, piece: usize) -> usize {
        (rank as usize + piece) % SLOTS
    }

    pub(crate) fn slot(&self, rank: u32, piece: usize) -> &'static AskSlot {
        // SAFETY: the index is below `SLOTS`, and callers keep the key that keeps the slots mapped.
        unsafe { &*self.first.add(self.index(rank, piece)) }
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AskBackoff {
    /// Failed waits since the last successful one.
    vain: u32,
    skip: u32,
    /// Operations that found the owner asleep since its last wake-up.
    asleep: u32,
    /// Number of wake-ups.
    woken: u32,
    /// Whether the kernel has written to the region. Otherwise the region may be read-only, and performing a put would
    /// kill the owner.
    pub is_writable: bool,
}

impl AskBackoff {
    pub(crate) fn note(&mut self, served: bool) {
        self.vain = match served {
            true => 0,
            false => (self.vain + 1).min(VAIN_MOST),
        };
        self.skip = (1 << self.vain) - 1;
        if served {
            self.woken = 0;
        }
    }

    /// Notes that the owner sleeps, and so is inside MPI. Returns whether to wake it for later operations.
    pub(crate) fn note_asleep(&mut self) -> bool {
        (self.vain, self.skip) = (0, 0);
        self.asleep += 1;
        let wakes = self.asleep >= (ASLEEP_FIRST << self.woken).min(ASLEEP_MOST);
        if wakes {
            (self.asleep, self.woken) = (0, (self.woken + 1).min(VAIN_MOST));
        }
        wakes
    }

    pub(crate) fn is_due(&mut self) -> bool {
        let due = self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
        due
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn waits__in_vain_make_the_next_operations_not_wait_twice_as_many_each_time() {
        let mut asked = AskBackoff::default();
        let mut skipped = Vec::new();
        for _ in 0..12 {
            let mut count = 0;
            while !asked.is_due() {
                count += 1;
            }
            skipped.push(count);
            asked.note(false);
        }
        assert_eq!(skipped, [0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 1023, 1023]);
        asked.note(true);
        assert!(asked.is_due() && asked.is_due());
    }

    #[test]
    fn slot__is_begun_by_the_message_of_its_own_use_alone() {
        let slot = AskSlot {
            word: AtomicU32::new(0),
            asked: AtomicU32::new(0),
            change: AtomicU64::new(0),
            region: AtomicU64::new(0),
            offset: AtomicU64::new(0),
            data: UnsafeCell::new([0; ASK_MOST]),
        };
        let first = slot.hold().unwrap();
        assert!(slot.hold().is_none() && slot.begin(use_of(first)).is_none());
        slot.post(first);
        assert!(slot.take_back() && !slot.take_back());
        let second = slot.hold().unwrap();
        slot.post(second);
        assert!(slot.begin(use_of(first)).is_none());
        let serving = slot.begin(use_of(second)).unwrap();
        assert!(!slot.take_back() && slot.begin(use_of(second)).is_none());
        slot.end(serving, DONE);
        assert!(!slot.take_back() && slot.hold().is_none());
        slot.leave();
        assert!(slot.hold().is_some());
    }

    #[test]
    fn owner__that_sleeps_is_woken_for_many_operations_and_less_often_where_it_does_not_help() {
        let mut asked = AskBackoff::default();
        let wakes = |asked: &mut AskBackoff| 1 + (0..).take_while(|_| !asked.note_asleep()).count();
        let counts: Vec<usize> = (0..9).map(|_| wakes(&mut asked)).collect();
        assert_eq!(counts, [8, 16, 32, 64, 128, 256, 512, 1024, 1024]);
        asked.note(true);
        assert_eq!(wakes(&mut asked), 8);
    }
}
