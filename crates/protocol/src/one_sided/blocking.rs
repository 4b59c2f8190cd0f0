//! Blocking operations, which are complete locally when they return; flush and fence.
//!
//! **NO REFERENCE.** `worker` is valid. No reference to it lives in a caller across these calls, because other calls
//! and threads use the worker during a wait. Each function holds no reference when it passes the worker on.
#![allow(unsafe_code)]

use crate::rma::BufferState;
use crate::rma::error::RmaError;
use crate::rma::resolve::RemoteKey;
use crate::waiting::Note;
use crate::worker::Worker;
use fastpath_base::sync::{Ordering, fence};
use fastpath_segment::AwaitedRanks;

/// Waits until `step` returns true (complete) or an error, which this function returns.
///
/// # Safety
/// See [`Worker::put`] for `worker`.
#[cold]
#[inline(never)]
unsafe fn await_step(
    worker: *mut Worker, peer: Option<u32>, call: &'static str,
    mut step: impl FnMut(&mut Worker) -> Result<bool, RmaError>,
) -> Result<(), RmaError> {
    let note = Note {
        call,
        peer: peer.map_or(-1, |peer| peer as i32),
        tag: -1,
        comm: 0,
        bytes: 0,
        awaited: AwaitedRanks::UNKNOWN,
        naps: false,
    };
    let mut last = Ok(false);
    let mut is_over = |this: &mut Worker| {
        last = step(this);
        last != Ok(false)
    };
    // SAFETY: NO REFERENCE: each reference made here ends before the worker is passed on.
    unsafe {
        if !is_over(&mut *worker) {
            Worker::wait_until(worker, peer, &note, is_over);
        }
    }
    last.map(drop)
}

/// Waits until the buffer of an operation may be reused.
///
/// # Safety
/// See [`Worker::put`] for `worker`.
#[inline]
unsafe fn end_locally(worker: *mut Worker, peer: u32, moved: BufferState) -> Result<(), RmaError> {
    match moved {
        BufferState::Done => Ok(()),
        // SAFETY: NO REFERENCE: no reference is held here.
        BufferState::Pending => unsafe {
            await_step(worker, Some(peer), "put or get", |this| {
                let post = this.endpoints[peer].lane.progress_flush();
                this.settle(peer, post, false)
            })
        },
    }
}

impl Worker {
    /// Writes `len` bytes to `offset` of a region. On return the buffer is free; [`Worker::flush`] completes the write.
    ///
    /// # Errors
    /// See [`Worker::put_nbi`]; also errors of earlier operations on this peer.
    ///
    /// # Safety
    /// `worker` is valid, and no reference to it lives in the caller across this call. `from` is readable for `len`
    /// bytes.
    #[inline]
    pub unsafe fn put(
        worker: *mut Worker, key: &mut RemoteKey, offset: u64, from: *const u8, len: usize,
    ) -> Result<(), RmaError> {
        // SAFETY: NO REFERENCE: the borrow for `put_nbi` ends with it. `from` is readable until `end_locally` returns.
        unsafe {
            let moved = (*worker).put_nbi(key, offset, from, len)?;
            end_locally(worker, key.peer(), moved)
        }
    }

    /// Reads `len` bytes at `offset` of a region.
    ///
    /// # Safety
    /// See [`Worker::put`]; `to` is writable for `len` bytes.
    #[inline]
    pub unsafe fn get(
        worker: *mut Worker, key: &mut RemoteKey, offset: u64, to: *mut u8, len: usize,
    ) -> Result<(), RmaError> {
        // SAFETY: NO REFERENCE: the borrow for `get_nbi` ends with it. `to` is writable until `end_locally` returns.
        unsafe {
            let moved = (*worker).get_nbi(key, offset, to, len)?;
            end_locally(worker, key.peer(), moved)
        }
    }

    /// Adds to the 8 bytes at `offset` of a region. Returns the previous value.
    ///
    /// # Errors
    /// See [`Worker::fetch_add_nbi`] and [`Worker::put`].
    ///
    /// # Safety
    /// See [`Worker::put`] for `worker`.
    pub unsafe fn fetch_add(
        worker: *mut Worker, key: &mut RemoteKey, offset: u64, add: u64,
    ) -> Result<u64, RmaError> {
        let mut found = 0;
        // SAFETY: NO REFERENCE: the borrow for the post ends with it. `found` lives until `end_locally` has the answer.
        unsafe {
            let moved = (*worker).fetch_add_nbi(key, offset, add, &raw mut found)?;
            end_locally(worker, key.peer(), moved)?;
            Ok((&raw const found).read())
        }
    }

    /// Replaces the 8 bytes at `offset` of a region by `swap` if they equal `compare`. Returns the previous value.
    ///
    /// # Safety
    /// See [`Worker::fetch_add`].
    pub unsafe fn compare_swap(
        worker: *mut Worker, key: &mut RemoteKey, offset: u64, compare: u64, swap: u64,
    ) -> Result<u64, RmaError> {
        let mut found = 0;
        // SAFETY: NO REFERENCE: the borrow for the post ends with it. `found` lives until `end_locally` has the answer.
        unsafe {
            let moved = (*worker).compare_swap_nbi(key, offset, compare, swap, &raw mut found)?;
            end_locally(worker, key.peer(), moved)?;
            Ok((&raw const found).read())
        }
    }

    /// Waits until all operations posted to `peer` are complete: puts are in the peer's memory, results are here.
    ///
    /// # Safety
    /// See [`Worker::put`] for `worker`.
    #[inline]
    pub unsafe fn flush(worker: *mut Worker, peer: u32) -> Result<(), RmaError> {
        // SAFETY: NO REFERENCE: the reference for `progress_flush` ends with it.
        unsafe {
            match (*worker).progress_flush(peer) {
                Ok(true) => Ok(()),
                Ok(false) => {
                    await_step(worker, Some(peer), "flush", |this| this.progress_flush(peer))
                }
                Err(error) => Err(error),
            }
        }
    }

    /// Flushes every peer. See [`Worker::flush`].
    ///
    /// # Safety
    /// See [`Worker::flush`].
    pub unsafe fn flush_all(worker: *mut Worker) -> Result<(), RmaError> {
        // ORDERING: sequentially consistent, with the partners of `Lane::flush`, for peers reached by load and store.
        fence(Ordering::SeqCst);
        // SAFETY: NO REFERENCE: no reference is held here.
        unsafe { await_step(worker, None, "flush", Worker::progress_flush_all) }
    }

    /// Orders operations: each peer performs the operations posted before this call before any that are posted after
    /// it. Loads, stores and an adapter's writes need only a processor's fence. If gets or messages are under way, this
    /// call waits for them.
    ///
    /// # Safety
    /// See [`Worker::flush`].
    #[inline]
    pub unsafe fn fence(worker: *mut Worker) -> Result<(), RmaError> {
        // SAFETY: NO REFERENCE: this reference ends before the worker is passed on.
        let rma = unsafe { &(*worker).rma };
        if rma.busy != 0 || rma.reads {
            // SAFETY: NO REFERENCE: `rma` is not used afterwards.
            return unsafe { Worker::flush_all(worker) };
        }
        // ORDERING: sequentially consistent, with the partners of `Lane::flush`.
        fence(Ordering::SeqCst);
        Ok(())
    }
}
