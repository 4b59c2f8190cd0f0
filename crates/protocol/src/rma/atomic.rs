//! Atomics on 8 bytes: by a processor that reaches the memory, this one or the owner's.
#![allow(unsafe_code)]

use super::error::RmaError;
use super::message::{ADD, MASKED_ADD, SWAP};
use super::queue::{Operation, OperationKind};
use super::resolve::{AccessPath, RemoteKey};
use super::{Moved, RmaError::Misaligned};
use crate::worker::Worker;
use fastpath_base::sync::{AtomicU64, Ordering};

/// Changes 8 bytes; what was there before.
///
/// # Safety
/// `at` is aligned to 8 and valid for reads and writes of 8 bytes, of which others make atomic ones alone.
pub(super) unsafe fn change(
    at: *mut u8, operation: u32, operand: u64, compare: u64,
) -> Option<u64> {
    // SAFETY: `at` is aligned and valid, and others use it by atomics alone, by this function's contract; the type has
    // the layout of its number.
    let word = unsafe { &*at.cast::<AtomicU64>() };
    match operation {
        // ORDERING: a lock or a counter in the region orders what is written beside it; the partners are the same
        // operations of other ranks.
        ADD => Some(word.fetch_add(operand, Ordering::AcqRel)),
        SWAP => {
            // ORDERING: as above.
            let (done, seen) = (Ordering::AcqRel, Ordering::Acquire);
            match word.compare_exchange(compare, operand, done, seen) {
                Ok(found) | Err(found) => Some(found),
            }
        }
        MASKED_ADD => {
            let add = |word| Some(add_masked(word, operand, compare));
            // ORDERING: as above.
            let (done, seen) = (Ordering::AcqRel, Ordering::Acquire);
            match word.fetch_update(done, seen, add) {
                Ok(found) | Err(found) => Some(found),
            }
        }
        _ => None,
    }
}

/// Adds to each field of a word; a field ends with its highest bit, which is set in `boundaries`, and nothing is
/// carried into the next one.
pub fn add_masked(word: u64, add: u64, boundaries: u64) -> u64 {
    ((word & !boundaries).wrapping_add(add & !boundaries)) ^ ((word ^ add) & boundaries)
}

impl Worker {
    /// Adds to the 8 bytes at `offset`, and puts what was there to `found`: at once where the answer is `Done`, else
    /// before a flush ends. Atomic with respect to all atomics on the region, whoever makes them.
    ///
    /// # Errors
    /// `Misaligned`, where the address at the owner is no multiple of 8; and as [`Worker::put_nbi`].
    ///
    /// # Safety
    /// `found` is writable for 8 bytes and nobody else's: until a flush where the answer is `Pending`.
    pub unsafe fn fetch_add_nbi(
        &mut self, key: &mut RemoteKey, offset: u64, add: u64, found: *mut u64,
    ) -> Result<Moved, RmaError> {
        // SAFETY: `found` is writable for 8 bytes as long as the operation is under way, by this function's contract.
        unsafe { self.post_atomic(key, offset, (ADD, add, 0), found) }
    }

    /// Replaces the 8 bytes at `offset` by `swap` if they are `compare`; the rest as [`Worker::fetch_add_nbi`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn compare_swap_nbi(
        &mut self, key: &mut RemoteKey, offset: u64, compare: u64, swap: u64, found: *mut u64,
    ) -> Result<Moved, RmaError> {
        // SAFETY: `found` is writable for 8 bytes as long as the operation is under way, by this function's contract.
        unsafe { self.post_atomic(key, offset, (SWAP, swap, compare), found) }
    }

    /// Adds to fields of the 8 bytes at `offset`, each of which ends with a bit of `boundaries`, without a carry from
    /// one into the next (a masked fetch-and-add); the rest as [`Worker::fetch_add_nbi`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn fetch_add_masked_nbi(
        &mut self, key: &mut RemoteKey, offset: u64, add: u64, boundaries: u64, found: *mut u64,
    ) -> Result<Moved, RmaError> {
        // SAFETY: `found` is writable for 8 bytes as long as the operation is under way, by this function's contract.
        unsafe { self.post_atomic(key, offset, (MASKED_ADD, add, boundaries), found) }
    }

    /// # Safety
    /// As [`Worker::fetch_add_nbi`].
    unsafe fn post_atomic(
        &mut self, key: &mut RemoteKey, offset: u64,
        (operation, operand, compare): (u32, u64, u64), found: *mut u64,
    ) -> Result<Moved, RmaError> {
        self.admit(key, offset, 8)?;
        if !(key.described.address.wrapping_add(offset)).is_multiple_of(8) {
            return Err(Misaligned);
        }
        if key.way == AccessPath::LoadStore {
            let at = key.base.wrapping_add(offset as usize);
            if !at.addr().is_multiple_of(8) {
                // The owner has said another address than it has.
                return Err(Misaligned);
            }
            // SAFETY: `at` was just found inside the region, which is mapped, and aligned; `found` is writable, by this
            // function's contract.
            unsafe {
                if let Some(value) = change(at, operation, operand, compare) {
                    found.write_unaligned(value);
                }
            }
            return Ok(Moved::Done);
        }
        let kind = OperationKind::Atomic { operation, operand, compare };
        let generation = self.rma.generation;
        let mut atomic = Operation::new(key, kind, offset, found.cast(), 8, generation);
        atomic.way = AccessPath::Messages;
        self.start_operation(key.peer, atomic)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn masked_add__carries_nothing_from_a_field_into_the_next() {
        let boundaries = 1 << 3 | 1 << 7;
        assert_eq!(add_masked(0x0f, 0x01, boundaries), 0x00);
        assert_eq!(add_masked(0x1f, 0x11, boundaries), 0x20);
        assert_eq!(add_masked(0xf8, 0x18, boundaries), 0x00);
        assert_eq!(add_masked(0x47, 0x23, boundaries), 0x6a);
        let mut word = Box::new(0x1f_u64);
        let at = (&raw mut *word).cast();
        // SAFETY: aligned, and nobody else has it.
        let found = unsafe { change(at, MASKED_ADD, 0x11, boundaries) };
        assert_eq!((found, *word), (Some(0x1f), 0x20));
    }
}
