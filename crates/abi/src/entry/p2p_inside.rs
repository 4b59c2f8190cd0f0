//! The immediate path of sends and receives inside the lock of `MPI_THREAD_MULTIPLE`.
//!
//! What the exported functions jump to at that level (`p2p_immediate` `Bodies`). Counts are those of an `int`.
//!
//! **ARGUMENTS.** What pointers among the arguments point to: see the module above.
#![allow(unsafe_code)]

use super::p2p::{Envelope, args, finish, finish_request};
use super::p2p_further::{irecv_elsewhere, isend_elsewhere, recv_elsewhere, send_elsewhere};
use super::p2p_immediate::{irecv_slow, isend_slow, recv_slow, send_slow};
use core::ffi::{c_int, c_void};
use fastpath_base::hint::hide;
use fastpath_mpi::consts::*;
use fastpath_mpi::hot::{self, SEEN};
use fastpath_mpi::p2p::{self, Args, Copied, Immediate, Irecv, Posting};
use fastpath_mpi::status::Status;
use fastpath_mpi::{Result, lock, p2p_slow as slow, request};

// Why a call takes the lock after all.
/// The bias is not the calling thread's.
const UNBIASED: u8 = 0;
/// The bias went while the thread stepped in: it steps back first.
const BIAS_LOST: u8 = 1;
/// The thread is inside by its bias, and the immediate path has declined; it leaves once the lock has served.
const DECLINED: u8 = 2;

/// As `send_plain` in `p2p_immediate`, inside the lock by the bias of the calling thread.
///
/// # Safety
/// The standard's; the same of the other functions here.
pub(super) unsafe fn send_inside(
    buf: *const c_void,
    count: c_int,
    datatype: usize,
    dest: c_int,
    tag: c_int,
    comm: usize,
) -> c_int {
    let count = i64::from(count);
    // Whatever is rare is a jump, so that nothing is kept in registers for it.
    // SAFETY: ARGUMENTS.
    unsafe {
        if !hot::sends_inside(comm) {
            return send_elsewhere(buf, count, datatype, dest, tag, comm);
        }
        if !lock::favours() {
            return send_locked::<UNBIASED>(buf, count, datatype, dest, tag, comm);
        }
        if !lock::step_in() {
            return send_locked::<BIAS_LOST>(buf, count, datatype, dest, tag, comm);
        }
        match p2p::try_send::<false, SEEN>(args(buf, count, datatype, dest, tag, comm)) {
            Immediate::Done if lock::leave() => wake(),
            Immediate::Done => MPI_SUCCESS,
            Immediate::Declined => send_locked::<DECLINED>(buf, count, datatype, dest, tag, comm),
            Immediate::Wake(bytes) => wake_inside(comm, dest, tag, bytes),
        }
    }
}

/// The message has left; its receiver must be woken, and the lock left.
#[cold]
#[inline(never)]
fn wake_inside(comm: usize, dest: c_int, tag: c_int, bytes: u64) -> c_int {
    let result = slow::wake(comm, dest, tag, bytes);
    lock::leave_surely();
    finish(result, "MPI_Send", comm)
}

/// Another thread has come since the calling one was inside.
#[cold]
#[inline(never)]
fn wake() -> c_int {
    lock::wake();
    hide(MPI_SUCCESS) // so that it is a jump, as in `irecv_post`
}

/// As `tell_taken` in `p2p_immediate`, and leaves.
///
/// # Safety
/// As there.
#[cold]
#[inline(never)]
unsafe fn tell_taken(copied: Copied) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe { copied.tell() };
    lock::leave_surely();
    hide(MPI_SUCCESS)
}

/// An immediate send inside the lock; none where it is declined.
unsafe fn send_with_lock<const MORE: bool>(args: Args) -> Option<Result<()>> {
    let mut result = Ok(());
    let sent = lock::with_lock(|| {
        // SAFETY: ARGUMENTS.
        match unsafe { p2p::try_send::<MORE, { hot::INSIDE }>(args) } {
            Immediate::Done => true,
            // SAFETY: ARGUMENTS.
            Immediate::Declined => unsafe { slow::try_send_eager::<{ hot::INSIDE }>(args) },
            Immediate::Wake(bytes) => {
                result = slow::wake(args.comm, args.peer, args.tag, bytes);
                true
            }
        }
    });
    sent.then_some(result)
}

/// As [`send_inside`], by the lock.
#[cold]
#[inline(never)]
unsafe fn send_locked<const FROM: u8>(
    buf: *const c_void,
    count: i64,
    datatype: usize,
    dest: c_int,
    tag: c_int,
    comm: usize,
) -> c_int {
    if FROM == BIAS_LOST {
        lock::back_out();
    }
    // SAFETY: ARGUMENTS.
    unsafe {
        let sent = send_with_lock::<false>(args(buf, count, datatype, dest, tag, comm));
        if FROM == DECLINED {
            lock::leave_surely();
        }
        match sent {
            Some(result) => finish(result, "MPI_Send", comm),
            None => send_slow(buf, count, datatype, dest, tag, comm),
        }
    }
}

/// As [`send_inside`].
pub(super) unsafe fn recv_inside(
    buf: *mut c_void,
    count: c_int,
    datatype: usize,
    source: c_int,
    tag: c_int,
    comm: usize,
    status: *mut Status,
) -> c_int {
    let count = i64::from(count);
    let envelope = || Envelope::new(source, tag);
    // SAFETY: ARGUMENTS.
    unsafe {
        if !hot::receives_inside(comm) {
            return recv_elsewhere(buf, count, datatype, source, tag, comm, status);
        }
        if !lock::favours() {
            return recv_locked::<UNBIASED>(buf, count, datatype, envelope(), status, comm);
        }
        if !lock::step_in() {
            return recv_locked::<BIAS_LOST>(buf, count, datatype, envelope(), status, comm);
        }
        let args = args(buf, count, datatype, source, tag, comm);
        let Some(copied) = p2p::try_copy::<SEEN>(args, status) else {
            return recv_locked::<DECLINED>(buf, count, datatype, envelope(), status, comm);
        };
        match copied.advance() {
            false if lock::leave() => wake(),
            false => MPI_SUCCESS,
            true => tell_taken(copied),
        }
    }
}

/// As [`recv_inside`], by the lock.
#[cold]
#[inline(never)]
unsafe fn recv_locked<const FROM: u8>(
    buf: *mut c_void,
    count: i64,
    datatype: usize,
    envelope: Envelope,
    status: *mut Status,
    comm: usize,
) -> c_int {
    if FROM == BIAS_LOST {
        lock::back_out();
    }
    let (source, tag) = (envelope.source(), envelope.tag());
    let args = args(buf, count, datatype, source, tag, comm);
    // SAFETY: ARGUMENTS.
    unsafe {
        let received = lock::with_lock(|| {
            p2p::try_recv::<{ hot::INSIDE }>(args, status)
                || p2p::try_recv_queued::<{ hot::INSIDE }>(args, status)
        });
        if FROM == DECLINED {
            lock::leave_surely();
        }
        match received {
            true => MPI_SUCCESS,
            false => recv_slow(buf, count, datatype, source, tag, comm, status),
        }
    }
}

/// As [`send_inside`].
pub(super) unsafe fn isend_inside(
    buf: *const c_void,
    count: c_int,
    datatype: usize,
    dest: c_int,
    tag: c_int,
    comm: usize,
    request: *mut usize,
) -> c_int {
    let count = i64::from(count);
    // SAFETY: ARGUMENTS.
    unsafe {
        if request.is_null() {
            return isend_slow(buf, count, datatype, dest, tag, comm, request);
        }
        if !hot::sends_inside(comm) {
            return isend_elsewhere(buf, count, datatype, dest, tag, comm, request);
        }
        if !lock::favours() {
            return isend_locked::<UNBIASED>(buf, count, datatype, dest, tag, comm, request);
        }
        if !lock::step_in() {
            return isend_locked::<BIAS_LOST>(buf, count, datatype, dest, tag, comm, request);
        }
        match p2p::try_send::<true, SEEN>(args(buf, count, datatype, dest, tag, comm)) {
            Immediate::Done => {
                *request = request::DONE_HANDLE;
                match lock::leave() {
                    true => wake(),
                    false => MPI_SUCCESS,
                }
            }
            Immediate::Declined => {
                isend_locked::<DECLINED>(buf, count, datatype, dest, tag, comm, request)
            }
            Immediate::Wake(bytes) => isend_wake_inside(comm, dest, tag, bytes, request),
        }
    }
}

/// As [`wake_inside`], with a request.
#[cold]
#[inline(never)]
unsafe fn isend_wake_inside(
    comm: usize,
    dest: c_int,
    tag: c_int,
    bytes: u64,
    request: *mut usize,
) -> c_int {
    // SAFETY: ARGUMENTS, which has seen that `request` is not null.
    unsafe {
        *request = request::DONE_HANDLE;
        let result = slow::wake(comm, dest, tag, bytes);
        lock::leave_surely();
        finish_request(result, "MPI_Isend", comm, request)
    }
}

/// As [`send_locked`].
#[cold]
#[inline(never)]
unsafe fn isend_locked<const FROM: u8>(
    buf: *const c_void,
    count: i64,
    datatype: usize,
    dest: c_int,
    tag: c_int,
    comm: usize,
    request: *mut usize,
) -> c_int {
    if FROM == BIAS_LOST {
        lock::back_out();
    }
    // SAFETY: ARGUMENTS.
    unsafe {
        let sent = send_with_lock::<true>(args(buf, count, datatype, dest, tag, comm));
        if FROM == DECLINED {
            lock::leave_surely();
        }
        match sent {
            Some(result) => {
                *request = request::DONE_HANDLE;
                finish_request(result, "MPI_Isend", comm, request)
            }
            None => isend_slow(buf, count, datatype, dest, tag, comm, request),
        }
    }
}

/// As [`send_inside`].
pub(super) unsafe fn irecv_inside(
    buf: *mut c_void,
    count: c_int,
    datatype: usize,
    source: c_int,
    tag: c_int,
    comm: usize,
    request: *mut usize,
) -> c_int {
    let count = i64::from(count);
    let envelope = || Envelope::new(source, tag);
    // SAFETY: ARGUMENTS.
    unsafe {
        if !hot::receives_inside(comm) {
            return irecv_elsewhere(buf, count, datatype, source, tag, comm, request);
        }
        if !lock::favours() {
            return irecv_locked::<UNBIASED>(buf, count, datatype, envelope(), request, comm);
        }
        if !lock::step_in() {
            return irecv_locked::<BIAS_LOST>(buf, count, datatype, envelope(), request, comm);
        }
        match p2p::try_irecv::<SEEN>(args(buf, count, datatype, source, tag, comm), request) {
            Irecv::Done(copied) => match copied.advance() {
                false if lock::leave() => wake(),
                false => MPI_SUCCESS,
                true => tell_taken(copied),
            },
            Irecv::Post(Posting { key, room }) => {
                irecv_post_inside(buf, room, key, request, tag, comm)
            }
            Irecv::Declined => {
                irecv_locked::<DECLINED>(buf, count, datatype, envelope(), request, comm)
            }
        }
    }
}

/// As `irecv_post`, and leaves.
#[inline(never)]
unsafe fn irecv_post_inside(
    buf: *mut c_void,
    room: u64,
    key: u64,
    request: *mut usize,
    tag: c_int,
    comm: usize,
) -> c_int {
    // SAFETY: `try_irecv` has just found the room; buffer and request are the user's, as for `MPI_Irecv`.
    unsafe {
        *request = p2p::post_irecv::<{ hot::INSIDE }>(Posting { key, room }, buf.cast(), tag, comm);
    }
    match lock::leave() {
        true => wake(),
        false => MPI_SUCCESS,
    }
}

/// As [`recv_locked`].
#[cold]
#[inline(never)]
unsafe fn irecv_locked<const FROM: u8>(
    buf: *mut c_void,
    count: i64,
    datatype: usize,
    envelope: Envelope,
    request: *mut usize,
    comm: usize,
) -> c_int {
    if FROM == BIAS_LOST {
        lock::back_out();
    }
    let (source, tag) = (envelope.source(), envelope.tag());
    let args = args(buf, count, datatype, source, tag, comm);
    // SAFETY: ARGUMENTS.
    unsafe {
        let started = lock::with_lock(|| match p2p::try_irecv::<{ hot::INSIDE }>(args, request) {
            Irecv::Done(copied) => {
                copied.take();
                true
            }
            Irecv::Post(posting) => {
                *request = p2p::post_irecv::<{ hot::INSIDE }>(posting, args.buf, tag, comm);
                true
            }
            Irecv::Declined => p2p::try_irecv_queued::<{ hot::INSIDE }>(args, request),
        });
        if FROM == DECLINED {
            lock::leave_surely();
        }
        match started {
            true => MPI_SUCCESS,
            false => irecv_slow(buf, count, datatype, source, tag, comm, request),
        }
    }
}
