//! Posts puts and gets: at once if the memory is reached by load and store, or an adapter has space.
//!
//! **LOCAL BYTES.** The caller's `len` bytes are readable for a put, and writable without other users for a get. If the
//! result is `Pending`, this holds until a flush. All functions here pass on this contract.
#![allow(unsafe_code)]

use crate::rma::error::RmaError;
use crate::rma::queue::{OperationKind, RmaOperation};
use crate::rma::resolve::{AccessPath, RemoteKey};
use crate::rma::{BufferState, RmaError::*};
use crate::worker::Worker;
use fastpath_transport::PostOutcome;
use fastpath_transport::remote::copy_mapped;
use fastpath_transport::{Remote, RemoteError};

/// Copies to or from a mapped region.
///
/// # Safety
/// The key is resolved to load and store, and its region holds all of the bytes; see [`Worker::put_nbi`] or
/// [`Worker::get_nbi`] for `local`.
#[inline]
unsafe fn copy_loaded<const PUTS: bool>(key: &RemoteKey, offset: u64, local: *mut u8, len: usize) {
    let remote = key.base.wrapping_add(offset as usize);
    let (to, from) = match PUTS {
        true => (remote, local),
        false => (local, remote),
    };
    // SAFETY: `remote` is inside the mapping with all of the bytes, and LOCAL BYTES holds for `local`.
    unsafe { copy_mapped(to, from, len) };
}

impl Worker {
    #[inline]
    fn is_admitted(&self, key: &RemoteKey, offset: u64, len: usize) -> bool {
        key.generation == self.rma.generation && key.holds(offset, len)
    }

    /// Resolves a key again if lanes have changed, and checks that the region holds all of the bytes.
    #[inline]
    pub(super) fn admit(
        &mut self, key: &mut RemoteKey, offset: u64, len: usize,
    ) -> Result<(), RmaError> {
        match self.is_admitted(key, offset, len) {
            true => Ok(()),
            false => self.admit_slow(key, offset, len),
        }
    }

    #[cold]
    #[inline(never)]
    fn admit_slow(&mut self, key: &mut RemoteKey, offset: u64, len: usize) -> Result<(), RmaError> {
        if key.generation != self.rma.generation {
            self.resolve_key(key)?;
        }
        match key.holds(offset, len) {
            true => Ok(()),
            false => Err(key.outside(offset, len)),
        }
    }

    /// Writes `len` bytes to `offset` of a region. `Done`: the buffer is free. [`Worker::flush`] completes the write.
    ///
    /// # Errors
    /// `OutOfBounds`: nothing was written. Errors of making the connection. A later flush returns errors of queued
    /// operations and refusals by the owner.
    ///
    /// # Safety
    /// `from` is readable for `len` bytes. If the result is `Pending`, this holds until a flush.
    #[inline]
    pub unsafe fn put_nbi(
        &mut self, key: &mut RemoteKey, offset: u64, from: *const u8, len: usize,
    ) -> Result<BufferState, RmaError> {
        // SAFETY: LOCAL BYTES: a put only reads them.
        unsafe { self.move_nbi::<true>(key, offset, from.cast_mut(), len) }
    }

    /// Reads `len` bytes at `offset` of a region. The bytes have arrived at `Done`, or else after [`Worker::flush`].
    ///
    /// # Safety
    /// `to` is writable for `len` bytes and has no other user. If the result is `Pending`, this holds until a flush.
    #[inline]
    pub unsafe fn get_nbi(
        &mut self, key: &mut RemoteKey, offset: u64, to: *mut u8, len: usize,
    ) -> Result<BufferState, RmaError> {
        // SAFETY: LOCAL BYTES holds for `to`, by this function's contract.
        unsafe { self.move_nbi::<false>(key, offset, to, len) }
    }

    /// Posts a put or a get.
    ///
    /// # Safety
    /// See [`Worker::put_nbi`] or [`Worker::get_nbi`].
    #[inline]
    unsafe fn move_nbi<const PUTS: bool>(
        &mut self, key: &mut RemoteKey, offset: u64, local: *mut u8, len: usize,
    ) -> Result<BufferState, RmaError> {
        if key.way == AccessPath::LoadStore && self.is_admitted(key, offset, len) {
            // SAFETY: the key is resolved to load and store and holds the bytes, by the checks above. LOCAL BYTES.
            unsafe { copy_loaded::<PUTS>(key, offset, local, len) };
            return Ok(BufferState::Done);
        }
        // SAFETY: LOCAL BYTES holds for `local`, by this function's contract.
        unsafe { self.move_elsewhere::<PUTS>(key, offset, local, len) }
    }

    /// Posts a put or a get that is not the common copy to or from mapped memory. [`Worker::move_nbi`] calls this
    /// function last, as a tail call, and so saves no registers for the common copy.
    ///
    /// # Safety
    /// See [`Worker::move_nbi`].
    #[inline(never)]
    unsafe fn move_elsewhere<const PUTS: bool>(
        &mut self, key: &mut RemoteKey, offset: u64, local: *mut u8, len: usize,
    ) -> Result<BufferState, RmaError> {
        self.admit(key, offset, len)?;
        let (kind, whole, moved) = match PUTS {
            true => (OperationKind::Put, PostOutcome::Done(len), BufferState::Done),
            false => (OperationKind::Get, PostOutcome::InProgress(len), BufferState::Pending),
        };
        if key.way != AccessPath::Adapter || self.rma.queues != 0 || len == 0 {
            // SAFETY: the region holds all of the bytes, by `admit`. LOCAL BYTES.
            unsafe {
                if key.way == AccessPath::LoadStore {
                    copy_loaded::<PUTS>(key, offset, local, len);
                    return Ok(BufferState::Done);
                }
                return self.move_slow(key, kind, offset, local, len);
            }
        }
        // SAFETY: LOCAL BYTES holds for `local`, by this function's contract.
        let posted = unsafe { self.post_moving::<PUTS>(key.peer, local, len, key.remote(offset)) };
        match posted == whole {
            true => Ok(moved),
            false => self.continue_slow(key, kind, offset, local, len, posted),
        }
    }

    /// Posts the part of a put or a get that an adapter takes at once.
    ///
    /// # Safety
    /// See [`Worker::put_nbi`] or [`Worker::get_nbi`].
    #[inline]
    pub(super) unsafe fn post_moving<const PUTS: bool>(
        &mut self, peer: u32, local: *mut u8, len: usize, remote: Remote,
    ) -> PostOutcome {
        if !PUTS {
            self.rma.reads = true;
        }
        let lane = &mut self.endpoints[peer].lane;
        // SAFETY: LOCAL BYTES holds for `local`, by this function's contract.
        unsafe {
            match PUTS {
                true => lane.post_put(local, len, remote),
                false => lane.post_get(local, len, remote),
            }
        }
    }

    /// Continues an operation of which an adapter has taken only a part, or nothing.
    #[cold]
    #[inline(never)]
    fn continue_slow(
        &mut self, key: &RemoteKey, kind: OperationKind, offset: u64, local: *mut u8, len: usize,
        posted: PostOutcome,
    ) -> Result<BufferState, RmaError> {
        let mut operation = RmaOperation::new(key, kind, offset, local, len, self.rma.generation);
        match posted {
            PostOutcome::Done(bytes) => operation.done = bytes,
            PostOutcome::InProgress(bytes) => (operation.done, operation.pending) = (bytes, true),
            PostOutcome::NoResource => {
                self.interfaces.progress();
            }
            PostOutcome::PeerGone => return Err(PeerGone),
        }
        self.start_operation(key.peer, operation)
    }

    /// Posts a put or get by the kernel or the queue.
    ///
    /// # Safety
    /// See [`Worker::put_nbi`] and [`Worker::get_nbi`].
    #[inline(never)]
    unsafe fn move_slow(
        &mut self, key: &mut RemoteKey, kind: OperationKind, offset: u64, local: *mut u8,
        len: usize,
    ) -> Result<BufferState, RmaError> {
        if len == 0 {
            return Ok(BufferState::Done);
        }
        if key.peer == self.rank {
            // SAFETY: LOCAL BYTES holds for `local`, by this function's contract.
            return unsafe { self.move_own(key, &kind, offset, local, len) };
        }
        if key.way == AccessPath::Kernel {
            // SAFETY: LOCAL BYTES holds for `local`, by this function's contract.
            match unsafe { self.copy_by_kernel(key, &kind, offset, local, len) } {
                Ok(()) => {
                    key.asked.is_writable |= matches!(kind, OperationKind::Put);
                    return Ok(BufferState::Done);
                }
                Err(RemoteError::Unsupported) => {
                    (key.refused, key.way) = (true, AccessPath::Messages);
                }
                Err(RemoteError::Fault) if self.peer_has_left(key.peer) => return Err(PeerGone),
                Err(RemoteError::Fault) => return Err(Withdrawn),
            }
        }
        let operation = RmaOperation::new(key, kind, offset, local, len, self.rma.generation);
        self.start_operation(key.peer, operation)
    }

    /// Performs a put or get of this process's own memory that the processor cannot touch.
    ///
    /// # Safety
    /// See [`Worker::put_nbi`] and [`Worker::get_nbi`].
    #[cold]
    unsafe fn move_own(
        &self, key: &RemoteKey, kind: &OperationKind, offset: u64, local: *mut u8, len: usize,
    ) -> Result<BufferState, RmaError> {
        let found = self.rma.regions.locate(key.described.region, offset, len as u64);
        // SAFETY: LOCAL BYTES: a put only reads them.
        let is_done = found.is_some_and(|bytes| unsafe {
            match kind {
                OperationKind::Put => bytes.write(local, len),
                _ => bytes.read(local, len),
            }
        });
        if is_done { Ok(BufferState::Done) } else { Err(Withdrawn) }
    }

    /// # Safety
    /// See [`Worker::put_nbi`] and [`Worker::get_nbi`].
    unsafe fn copy_by_kernel(
        &mut self, key: &RemoteKey, kind: &OperationKind, offset: u64, local: *mut u8, len: usize,
    ) -> Result<(), RemoteError> {
        let (lane, remote) = (&mut self.endpoints[key.peer].lane, key.remote(offset));
        // SAFETY: LOCAL BYTES: a put only reads them.
        unsafe {
            match kind {
                OperationKind::Put => lane.put(local, len, remote),
                _ => lane.get(local, len, remote),
            }
        }
    }
}
