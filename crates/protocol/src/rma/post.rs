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
        if key.way == Way::Adapter && self.rma.queues == 0 && len != 0 {
            let to = key.remote(offset);
            // SAFETY: the caller's.
            let posted = unsafe { self.endpoint(key.peer).lane.post_put(from, len, to) };
            if posted == Posted::Done(len) {
                return Ok(Moved::Done);
            }
            let local = from.cast_mut();
            return self.continue_slow(key, Kind::Put, offset, local, len, posted);
        }
        // SAFETY: the caller's.
        unsafe { self.move_slow(key, Kind::Put, offset, from.cast_mut(), len) }
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
        if key.way == Way::Adapter && self.rma.queues == 0 && len != 0 {
            self.rma.reads = true;
            let from = key.remote(offset);
            // SAFETY: the caller's.
            let posted = unsafe { self.endpoint(key.peer).lane.post_get(to, len, from) };
            if posted == Posted::InProgress(len) {
                return Ok(Moved::Pending);
            }
            return self.continue_slow(key, Kind::Get, offset, to, len, posted);
        }
        // SAFETY: the caller's.
        unsafe { self.move_slow(key, Kind::Get, offset, to, len) }
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
