//! Posting puts and gets: straight down where the memory is reached by load and store or an adapter has room.
#![allow(unsafe_code)]

use super::error::RmaError;
use super::queue::{Kind, Operation};
use super::resolve::{RemoteKey, Way};
use super::{Moved, RmaError::*};
use crate::worker::Worker;
use fastpath_transport::RemoteError;
use fastpath_transport::remote::Posted;
use fastpath_transport::shm::mapped::copy_mapped;

impl Worker {
    /// Resolves a key where lanes have changed since it was.
    #[inline]
    pub(super) fn refresh_key(&mut self, key: &mut RemoteKey) -> Result<(), RmaError> {
        match key.generation == self.rma.generation {
            true => Ok(()),
            false => self.resolve_key(key),
        }
    }

    /// Writes `len` bytes to `offset` of a region, any number of them. `Done`: the buffer may be used again. The bytes are
    /// there after [`Worker::flush`].
    ///
    /// # Errors
    /// `OutOfBounds`: nothing was written. Others are those of the connection; what a queue or the owner finds out
    /// later is the flush's.
    ///
    /// # Safety
    /// `from` is readable for `len` bytes: until a flush where the answer is `Pending`.
    #[inline]
    pub unsafe fn put_nbi(
        &mut self,
        key: &mut RemoteKey,
        offset: u64,
        from: *const u8,
        len: usize,
    ) -> Result<Moved, RmaError> {
        self.refresh_key(key)?;
        if !key.holds(offset, len) {
            return Err(key.outside(offset, len));
        }
        if key.way == Way::LoadStore {
            // SAFETY: inside the region, which is mapped; `from` by the caller.
            unsafe { copy_mapped(key.base.wrapping_add(offset as usize), from, len) };
            return Ok(Moved::Done);
        }
        // SAFETY: the caller's.
        unsafe { self.put_elsewhere(key, offset, from, len) }
    }

    /// A put to memory that is not mapped: a call of its own, so that one to mapped memory saves no registers for it.
    ///
    /// # Safety
    /// As [`Worker::put_nbi`].
    #[inline(never)]
    unsafe fn put_elsewhere(
        &mut self,
        key: &mut RemoteKey,
        offset: u64,
        from: *const u8,
        len: usize,
    ) -> Result<Moved, RmaError> {
        let local = from.cast_mut();
        if key.way != Way::Adapter || self.rma.queues != 0 || len == 0 {
            // SAFETY: the caller's.
            return unsafe { self.move_slow(key, Kind::Put, offset, local, len) };
        }
        let to = key.remote(offset);
        // SAFETY: the caller's.
        let posted = unsafe { self.endpoint(key.peer).lane.post_put(from, len, to) };
        match posted == Posted::Done(len) {
            true => Ok(Moved::Done),
            false => self.continue_slow(key, Kind::Put, offset, local, len, posted),
        }
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
        &mut self,
        key: &mut RemoteKey,
        offset: u64,
        to: *mut u8,
        len: usize,
    ) -> Result<Moved, RmaError> {
        self.refresh_key(key)?;
        if !key.holds(offset, len) {
            return Err(key.outside(offset, len));
        }
        if key.way == Way::LoadStore {
            // SAFETY: inside the region, which is mapped; `to` by the caller.
            unsafe { copy_mapped(to, key.base.wrapping_add(offset as usize), len) };
            return Ok(Moved::Done);
        }
        // SAFETY: the caller's.
        unsafe { self.get_elsewhere(key, offset, to, len) }
    }

    /// As [`Worker::put_elsewhere`], of a get.
    ///
    /// # Safety
    /// As [`Worker::get_nbi`].
    #[inline(never)]
    unsafe fn get_elsewhere(
        &mut self,
        key: &mut RemoteKey,
        offset: u64,
        to: *mut u8,
        len: usize,
    ) -> Result<Moved, RmaError> {
        if key.way != Way::Adapter || self.rma.queues != 0 || len == 0 {
            // SAFETY: the caller's.
            return unsafe { self.move_slow(key, Kind::Get, offset, to, len) };
        }
        self.rma.reads = true;
        let from = key.remote(offset);
        // SAFETY: the caller's.
        let posted = unsafe { self.endpoint(key.peer).lane.post_get(to, len, from) };
        match posted == Posted::InProgress(len) {
            true => Ok(Moved::Pending),
            false => self.continue_slow(key, Kind::Get, offset, to, len, posted),
        }
    }

    /// An adapter has taken a part of an operation, or nothing.
    #[cold]
    #[inline(never)]
    fn continue_slow(
        &mut self,
        key: &RemoteKey,
        kind: Kind,
        offset: u64,
        local: *mut u8,
        len: usize,
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
        &mut self,
        key: &mut RemoteKey,
        kind: Kind,
        offset: u64,
        local: *mut u8,
        len: usize,
    ) -> Result<Moved, RmaError> {
        if len == 0 {
            return Ok(Moved::Done);
        }
        if key.way == Way::Kernel {
            // SAFETY: the caller's.
            match unsafe { self.copy_by_kernel(key, &kind, offset, local, len) } {
                Ok(()) => return Ok(Moved::Done),
                Err(RemoteError::Unsupported) => {
                    (key.refused, key.way) = (true, Way::Messages);
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
        &mut self,
        key: &RemoteKey,
        kind: &Kind,
        offset: u64,
        local: *mut u8,
        len: usize,
    ) -> Result<(), RemoteError> {
        let (lane, remote) = (&mut self.endpoint(key.peer).lane, key.remote(offset));
        // SAFETY: the caller's.
        unsafe {
            match kind {
                Kind::Put => lane.put(local, len, remote),
                _ => lane.get(local, len, remote),
            }
        }
    }
}
