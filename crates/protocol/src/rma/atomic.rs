//! Atomics on 8 bytes: by a processor that reaches the memory, this one or the owner's.
#![allow(unsafe_code)]

use super::error::RmaError;
use super::message::{ADD, SWAP};
use super::queue::{Kind, Operation};
use super::resolve::{RemoteKey, Way};
use super::{Moved, RmaError::Misaligned};
use crate::worker::Worker;
use fastpath_base::sync::{AtomicU64, Ordering};

/// Changes 8 bytes; what was there before.
///
/// # Safety
/// `at` is aligned to 8 and valid for reads and writes of 8 bytes, of which others make atomic ones alone.
pub(super) unsafe fn change(
    at: *mut u8,
    operation: u32,
    operand: u64,
    compare: u64,
) -> Option<u64> {
    // SAFETY: the caller's; the type has the layout of its number.
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
        _ => None,
    }
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
        &mut self,
        key: &mut RemoteKey,
        offset: u64,
        add: u64,
        found: *mut u64,
    ) -> Result<Moved, RmaError> {
        // SAFETY: the caller's.
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
        &mut self,
        key: &mut RemoteKey,
        offset: u64,
        compare: u64,
        swap: u64,
        found: *mut u64,
    ) -> Result<Moved, RmaError> {
        // SAFETY: the caller's.
        unsafe { self.post_atomic(key, offset, (SWAP, swap, compare), found) }
    }

    /// # Safety
    /// As [`Worker::fetch_add_nbi`].
    unsafe fn post_atomic(
        &mut self,
        key: &mut RemoteKey,
        offset: u64,
        (operation, operand, compare): (u32, u64, u64),
        found: *mut u64,
    ) -> Result<Moved, RmaError> {
        self.admit(key, offset, 8)?;
        if !(key.described.address.wrapping_add(offset)).is_multiple_of(8) {
            return Err(Misaligned);
        }
        if key.way == Way::LoadStore {
            let at = key.base.wrapping_add(offset as usize);
            if !at.addr().is_multiple_of(8) {
                // The owner has said another address than it has.
                return Err(Misaligned);
            }
            // SAFETY: inside the region, which is mapped; the two are aligned, as just seen and by the caller.
            unsafe {
                if let Some(value) = change(at, operation, operand, compare) {
                    found.write_unaligned(value);
                }
            }
            return Ok(Moved::Done);
        }
        let kind = Kind::Atomic {
            operation,
            operand,
            compare,
        };
        let generation = self.rma.generation;
        let mut atomic = Operation::new(key, kind, offset, found.cast(), 8, generation);
        atomic.way = Way::Messages;
        self.start_operation(key.peer, atomic)
    }
}
