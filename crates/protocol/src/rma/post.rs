//! Posting puts and gets: straight down where the memory is reached by load and store or an adapter has room.
//!
//! **LOCAL BYTES.** The caller's `len` bytes are readable for a put, and writable and nobody else's for a get, until a
//! flush where the answer is `Pending`: the contracts of `put_nbi` and `get_nbi`, which all functions here pass on
//! unchanged.
#![allow(unsafe_code)]

use super::error::RmaError;
use super::queue::{Operation, OperationKind};
use super::resolve::{AccessPath, RemoteKey};
use super::{Moved, RmaError::*};
use crate::worker::Worker;
use fastpath_transport::remote::{Posted, copy_mapped};
use fastpath_transport::{Remote, RemoteError};

/// Copies to or from a region that is mapped.
///
/// # Safety
/// The key is resolved to load and store, and its region holds all of the bytes; `local` as in [`Worker::put_nbi`] or
/// [`Worker::get_nbi`].
#[inline]
unsafe fn copy_loaded<const PUTS: bool>(key: &RemoteKey, offset: u64, local: *mut u8, len: usize) {
    let remote = key.base.wrapping_add(offset as usize);
    let (to, from) = match PUTS {
        true => (remote, local),
        false => (local, remote),
    };
    // SAFETY: `remote` is inside of the mapping with all of the bytes. LOCAL BYTES.
    unsafe { copy_mapped(to, from, len) };
}

impl Worker {
    /// Whether the region holds all of the bytes, and its key is resolved.
    #[inline]
    fn is_admitted(&self, key: &RemoteKey, offset: u64, len: usize) -> bool {
        key.generation == self.rma.generation && key.holds(offset, len)
    }

    /// Resolves a key where lanes have changed since it was, and says whether the region holds all of the bytes.
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

    /// Writes `len` bytes to `offset` of a region, any number of them. `Done`: the buffer may be used again. The bytes
    /// are there after [`Worker::flush`].
    ///
    /// # Errors
    /// `OutOfBounds`: nothing was written. Others are those of the connection; what a queue or the owner finds out
    /// later is the flush's.
    ///
    /// # Safety
    /// `from` is readable for `len` bytes: until a flush where the answer is `Pending`.
    #[inline]
    pub unsafe fn put_nbi(
        &mut self, key: &mut RemoteKey, offset: u64, from: *const u8, len: usize,
    ) -> Result<Moved, RmaError> {
        // SAFETY: LOCAL BYTES: a put only reads them.
        unsafe { self.move_nbi::<true>(key, offset, from.cast_mut(), len) }
    }

    /// Reads `len` bytes at `offset` of a region, any number of them. `Done`: they are there; else after
    /// [`Worker::flush`].
    ///
    /// # Errors
    /// As [`Worker::put_nbi`].
    ///
    /// # Safety
    /// `to` is writable for `len` bytes and nobody else's: until a flush where the answer is `Pending`.
    #[inline]
    pub unsafe fn get_nbi(
        &mut self, key: &mut RemoteKey, offset: u64, to: *mut u8, len: usize,
    ) -> Result<Moved, RmaError> {
        // SAFETY: LOCAL BYTES.
        unsafe { self.move_nbi::<false>(key, offset, to, len) }
    }

    /// A put or a get: which of them is known when this is compiled, and costs nothing.
    ///
    /// # Safety
    /// As [`Worker::put_nbi`] or [`Worker::get_nbi`].
    #[inline]
    unsafe fn move_nbi<const PUTS: bool>(
        &mut self, key: &mut RemoteKey, offset: u64, local: *mut u8, len: usize,
    ) -> Result<Moved, RmaError> {
        if key.way == AccessPath::LoadStore && self.is_admitted(key, offset, len) {
            // SAFETY: just seen: the key is resolved to load and store, and its region holds all of the bytes. LOCAL
            // BYTES.
            unsafe { copy_loaded::<PUTS>(key, offset, local, len) };
            return Ok(Moved::Done);
        }
        // SAFETY: LOCAL BYTES.
        unsafe { self.move_elsewhere::<PUTS>(key, offset, local, len) }
    }

    /// All of [`Worker::move_nbi`] but a copy to or from mapped memory: a call at its end, so that the copy saves no
    /// registers for it.
    ///
    /// # Safety
    /// As there.
    #[inline(never)]
    unsafe fn move_elsewhere<const PUTS: bool>(
        &mut self, key: &mut RemoteKey, offset: u64, local: *mut u8, len: usize,
    ) -> Result<Moved, RmaError> {
        self.admit(key, offset, len)?;
        let (kind, whole, moved) = match PUTS {
            true => (OperationKind::Put, Posted::Done(len), Moved::Done),
            false => (OperationKind::Get, Posted::InProgress(len), Moved::Pending),
        };
        if key.way != AccessPath::Adapter || self.rma.queues != 0 || len == 0 {
            // SAFETY: just seen, where the key was resolved anew: its region holds all of the bytes. LOCAL BYTES.
            unsafe {
                if key.way == AccessPath::LoadStore {
                    copy_loaded::<PUTS>(key, offset, local, len);
                    return Ok(Moved::Done);
                }
                return self.move_slow(key, kind, offset, local, len);
            }
        }
        // SAFETY: LOCAL BYTES.
        let posted = unsafe { self.post_moving::<PUTS>(key.peer, local, len, key.remote(offset)) };
        match posted == whole {
            true => Ok(moved),
            false => self.continue_slow(key, kind, offset, local, len, posted),
        }
    }

    /// Posts as much of a put or a get as an adapter takes at once.
    ///
    /// # Safety
    /// As [`Worker::put_nbi`] or [`Worker::get_nbi`].
    #[inline]
    pub(super) unsafe fn post_moving<const PUTS: bool>(
        &mut self, peer: u32, local: *mut u8, len: usize, remote: Remote,
    ) -> Posted {
        if !PUTS {
            self.rma.reads = true;
        }
        let lane = &mut self.endpoints[peer].lane;
        // SAFETY: LOCAL BYTES.
        unsafe {
            match PUTS {
                true => lane.post_put(local, len, remote),
                false => lane.post_get(local, len, remote),
            }
        }
    }

    /// An adapter has taken a part of an operation, or nothing.
    #[cold]
    #[inline(never)]
    fn continue_slow(
        &mut self, key: &RemoteKey, kind: OperationKind, offset: u64, local: *mut u8, len: usize,
        posted: Posted,
    ) -> Result<Moved, RmaError> {
        let mut operation = Operation::new(key, kind, offset, local, len, self.rma.generation);
        match posted {
            Posted::Done(bytes) => operation.done = bytes,
            Posted::InProgress(bytes) => (operation.done, operation.pending) = (bytes, true),
            Posted::NoResource => {
                self.interfaces.progress();
            }
            Posted::PeerGone => return Err(PeerGone),
        }
        self.start_operation(key.peer, operation)
    }

    /// A put or get that does not go straight down.
    ///
    /// # Safety
    /// As [`Worker::put_nbi`] and [`Worker::get_nbi`].
    #[inline(never)]
    unsafe fn move_slow(
        &mut self, key: &mut RemoteKey, kind: OperationKind, offset: u64, local: *mut u8,
        len: usize,
    ) -> Result<Moved, RmaError> {
        if len == 0 {
            return Ok(Moved::Done);
        }
        if key.way == AccessPath::Kernel {
            // SAFETY: LOCAL BYTES.
            match unsafe { self.copy_by_kernel(key, &kind, offset, local, len) } {
                Ok(()) => {
                    key.asked.is_writable |= matches!(kind, OperationKind::Put);
                    return Ok(Moved::Done);
                }
                Err(RemoteError::Unsupported) => {
                    (key.refused, key.way) = (true, AccessPath::Messages);
                }
                Err(RemoteError::Fault) if self.peer_has_left(key.peer) => return Err(PeerGone),
                Err(RemoteError::Fault) => return Err(Withdrawn),
            }
        }
        let operation = Operation::new(key, kind, offset, local, len, self.rma.generation);
        self.start_operation(key.peer, operation)
    }

    /// # Safety
    /// As [`Worker::put_nbi`] and [`Worker::get_nbi`].
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
