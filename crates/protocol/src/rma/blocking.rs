//! Blocking operations: done locally when they return; and flush and fence.
//!
//! **NO REFERENCE.** `worker` is valid, and no reference to it lives in a caller across one of these calls: while they
//! wait, other calls and other threads use the worker. So each of them makes a reference for as long as it needs one,
//! and holds none when it gives the worker on.
#![allow(unsafe_code)]

use super::Moved;
use super::error::RmaError;
use super::resolve::RemoteKey;
use crate::waiting::Note;
use crate::worker::Worker;
use fastpath_base::sync::{Ordering, fence};
use fastpath_bootstrap::segment::Awaited;

/// Makes progress until `step` says that what it flushes is complete, or why it never will be.
///
/// # Safety
/// `worker` as in [`Worker::put`].
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
        awaited: Awaited::UNKNOWN,
        naps: false,
    };
    let mut last = Ok(false);
    let mut is_over = |this: &mut Worker| {
        last = step(this);
        last != Ok(false)
    };
    // SAFETY: NO REFERENCE: each made here ends before the worker is given on.
    unsafe {
        if !is_over(&mut *worker) {
            Worker::wait_until(worker, peer, &note, is_over);
        }
    }
    last.map(drop)
}

/// Returns when the buffer of an operation may be used again.
///
/// # Safety
/// `worker` as in [`Worker::put`].
#[inline]
unsafe fn end_locally(worker: *mut Worker, peer: u32, moved: Moved) -> Result<(), RmaError> {
    match moved {
        Moved::Done => Ok(()),
        // SAFETY: NO REFERENCE: none is held here.
        Moved::Pending => unsafe {
            await_step(worker, Some(peer), "put or get", |this| {
                let post = this.endpoints[peer].lane.progress_flush();
                this.settle(peer, post, false)
            })
        },
    }
}

/// Every function here waits as `Worker::wait_until` does.
impl Worker {
    /// Writes `len` bytes to `offset` of a region; the buffer may be used again when this returns. They are there after
    /// [`Worker::flush`].
    ///
    /// # Errors
    /// As [`Worker::put_nbi`], and what was found out about earlier operations of this peer's.
    ///
    /// # Safety
    /// `worker` is valid, and no reference to it lives in the caller across this call; `from` is readable for `len`
    /// bytes.
    #[inline]
    pub unsafe fn put(
        worker: *mut Worker, key: &mut RemoteKey, offset: u64, from: *const u8, len: usize,
    ) -> Result<(), RmaError> {
        // SAFETY: NO REFERENCE: the one for `put_nbi` ends with it. `from` is readable until the operation has ended
        // locally, which is waited for.
        unsafe {
            let moved = (*worker).put_nbi(key, offset, from, len)?;
            end_locally(worker, key.peer(), moved)
        }
    }

    /// Reads `len` bytes at `offset` of a region: they are there when this returns.
    ///
    /// # Errors
    /// As [`Worker::put`].
    ///
    /// # Safety
    /// As there; `to` is writable for `len` bytes.
    #[inline]
    pub unsafe fn get(
        worker: *mut Worker, key: &mut RemoteKey, offset: u64, to: *mut u8, len: usize,
    ) -> Result<(), RmaError> {
        // SAFETY: NO REFERENCE: the one for `get_nbi` ends with it. `to` is writable until the operation has ended
        // locally, which is waited for.
        unsafe {
            let moved = (*worker).get_nbi(key, offset, to, len)?;
            end_locally(worker, key.peer(), moved)
        }
    }

    /// Adds to the 8 bytes at `offset` of a region; what was there before.
    ///
    /// # Errors
    /// As [`Worker::fetch_add_nbi`] and [`Worker::put`].
    ///
    /// # Safety
    /// `worker` as in [`Worker::put`].
    pub unsafe fn fetch_add(
        worker: *mut Worker, key: &mut RemoteKey, offset: u64, add: u64,
    ) -> Result<u64, RmaError> {
        let mut found = 0;
        // SAFETY: NO REFERENCE: the one for the post ends with it. `found` is there until the answer is, which is
        // waited for.
        unsafe {
            let moved = (*worker).fetch_add_nbi(key, offset, add, &raw mut found)?;
            end_locally(worker, key.peer(), moved)?;
            Ok((&raw const found).read())
        }
    }

    /// Replaces the 8 bytes at `offset` of a region by `swap` if they are `compare`; what was there before.
    ///
    /// # Errors
    /// As [`Worker::fetch_add`].
    ///
    /// # Safety
    /// As there.
    pub unsafe fn compare_swap(
        worker: *mut Worker, key: &mut RemoteKey, offset: u64, compare: u64, swap: u64,
    ) -> Result<u64, RmaError> {
        let mut found = 0;
        // SAFETY: NO REFERENCE: the one for the post ends with it. `found` is there until the answer is, which is
        // waited for.
        unsafe {
            let moved = (*worker).compare_swap_nbi(key, offset, compare, swap, &raw mut found)?;
            end_locally(worker, key.peer(), moved)?;
            Ok((&raw const found).read())
        }
    }

    /// Returns when all that was posted to `peer` is complete there: puts are in its memory, results here.
    ///
    /// # Errors
    /// As [`Worker::progress_flush`].
    ///
    /// # Safety
    /// `worker` as in [`Worker::put`].
    #[inline]
    pub unsafe fn flush(worker: *mut Worker, peer: u32) -> Result<(), RmaError> {
        // SAFETY: NO REFERENCE: the one for `progress_flush` ends with it.
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

    /// As [`Worker::flush`], for every peer.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn flush_all(worker: *mut Worker) -> Result<(), RmaError> {
        // ORDERING: as in `Lane::flush`, for peers that are reached by load and store.
        fence(Ordering::SeqCst);
        // SAFETY: NO REFERENCE: none is held here.
        unsafe { await_step(worker, None, "flush", Worker::progress_flush_all) }
    }

    /// Orders operations: those posted before are carried out at each peer before those posted after. Loads, stores and
    /// an adapter's writes need nothing but a processor's fence; where gets or messages are under way, this waits for
    /// them.
    ///
    /// # Errors
    /// As [`Worker::flush`].
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn fence(worker: *mut Worker) -> Result<(), RmaError> {
        // SAFETY: NO REFERENCE: this one ends before the worker is given on.
        let rma = unsafe { &(*worker).rma };
        if rma.busy != 0 || rma.reads {
            // SAFETY: NO REFERENCE: `rma` is not used any more.
            return unsafe { Worker::flush_all(worker) };
        }
        // ORDERING: as in `Lane::flush`.
        fence(Ordering::SeqCst);
        Ok(())
    }
}
