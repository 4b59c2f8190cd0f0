//! Atomics on 8 bytes, performed by a processor that reaches the memory: this one or the owner's.
#![allow(unsafe_code)]

use crate::rma::atomic::change;
use crate::rma::error::RmaError;
use crate::rma::message::{ADD, MASKED_ADD, SWAP};
use crate::rma::queue::{OperationKind, RmaOperation};
use crate::rma::resolve::{AccessPath, RemoteKey};
use crate::rma::{BufferState, RmaError::Misaligned};
use crate::worker::Worker;

impl Worker {
    /// Adds to the 8 bytes at `offset`, and stores the previous value in `found`. The value is there at once if the
    /// result is `Done`, otherwise after a flush. Atomic with respect to all atomics on the region, by any rank.
    ///
    /// # Errors
    /// `Misaligned` if the address at the owner is not a multiple of 8. Others: see [`Worker::put_nbi`].
    ///
    /// # Safety
    /// `found` is writable for 8 bytes and has no other user. If the result is `Pending`, this holds until a flush.
    pub unsafe fn fetch_add_nbi(
        &mut self, key: &mut RemoteKey, offset: u64, add: u64, found: *mut u64,
    ) -> Result<BufferState, RmaError> {
        // SAFETY: `found` is writable for 8 bytes while the operation is under way, by this function's contract.
        unsafe { self.post_atomic(key, offset, (ADD, add, 0), found) }
    }

    /// Replaces the 8 bytes at `offset` by `swap` if they equal `compare`. See [`Worker::fetch_add_nbi`].
    ///
    /// # Safety
    /// See [`Worker::fetch_add_nbi`].
    pub unsafe fn compare_swap_nbi(
        &mut self, key: &mut RemoteKey, offset: u64, compare: u64, swap: u64, found: *mut u64,
    ) -> Result<BufferState, RmaError> {
        // SAFETY: `found` is writable for 8 bytes while the operation is under way, by this function's contract.
        unsafe { self.post_atomic(key, offset, (SWAP, swap, compare), found) }
    }

    /// Adds to fields of the 8 bytes at `offset` without a carry from one into the next (a masked fetch-and-add). Each
    /// field ends with a bit of `boundaries`. See [`Worker::fetch_add_nbi`].
    ///
    /// # Safety
    /// See [`Worker::fetch_add_nbi`].
    pub unsafe fn fetch_add_masked_nbi(
        &mut self, key: &mut RemoteKey, offset: u64, add: u64, boundaries: u64, found: *mut u64,
    ) -> Result<BufferState, RmaError> {
        // SAFETY: `found` is writable for 8 bytes while the operation is under way, by this function's contract.
        unsafe { self.post_atomic(key, offset, (MASKED_ADD, add, boundaries), found) }
    }

    /// # Safety
    /// See [`Worker::fetch_add_nbi`].
    unsafe fn post_atomic(
        &mut self, key: &mut RemoteKey, offset: u64,
        (operation, operand, compare): (u32, u64, u64), found: *mut u64,
    ) -> Result<BufferState, RmaError> {
        self.admit(key, offset, 8)?;
        if !(key.described.address.wrapping_add(offset)).is_multiple_of(8) {
            return Err(Misaligned);
        }
        if key.way == AccessPath::LoadStore {
            let at = key.base.wrapping_add(offset as usize);
            if !at.addr().is_multiple_of(8) {
                // Only a wrong address in the owner's key leads here.
                return Err(Misaligned);
            }
            // SAFETY: `at` is inside the region and aligned, by the checks above; `found` is writable by the contract.
            unsafe {
                if let Some(value) = change(at, operation, operand, compare) {
                    found.write_unaligned(value);
                }
            }
            return Ok(BufferState::Done);
        }
        let kind = OperationKind::Atomic { operation, operand, compare };
        let generation = self.rma.generation;
        let mut atomic = RmaOperation::new(key, kind, offset, found.cast(), 8, generation);
        atomic.way = AccessPath::Messages;
        self.start_operation(key.peer, atomic)
    }
}
