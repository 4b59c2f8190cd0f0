//! `MPI_Send`, `MPI_Recv`, `MPI_Isend`, `MPI_Irecv`: the immediate path below `MPI_THREAD_MULTIPLE`.
//!
//! The exported functions jump to the bodies of the thread level ([`Bodies`]): one instruction at every level. At
//! `MPI_THREAD_MULTIPLE` these are the functions of `p2p_inside`.
//!
//! A body ends in jumps to whatever is rare, with the same arguments, so that it keeps nothing in registers for them.
//!
//! **ARGUMENTS.** What pointers among the arguments point to: see the module above.
#![allow(unsafe_code)]

use super::p2p::{Envelope, args, finish, finish_request};
use super::p2p_inside::{irecv_inside, isend_inside, recv_inside, send_inside};
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use fastpath_base::hint::hide;
use fastpath_mpi::consts::*;
use fastpath_mpi::hot::OPEN;
use fastpath_mpi::p2p::{self, Copied, Immediate, Irecv, Mode, Posting};
use fastpath_mpi::status::Status;
use fastpath_mpi::{lock, p2p_slow as slow, request, traced};
use std::sync::{Mutex, PoisonError};

pub(super) type SendBody = unsafe fn(*const c_void, c_int, usize, c_int, c_int, usize) -> c_int;
pub(super) type RecvBody =
    unsafe fn(*mut c_void, c_int, usize, c_int, c_int, usize, *mut Status) -> c_int;
pub(super) type IsendBody =
    unsafe fn(*const c_void, c_int, usize, c_int, c_int, usize, *mut usize) -> c_int;
pub(super) type IrecvBody =
    unsafe fn(*mut c_void, c_int, usize, c_int, c_int, usize, *mut usize) -> c_int;

/// What carries out the calls at one thread level. Counts are those of an `int`.
#[derive(Clone, Copy)]
struct Bodies {
    send: SendBody,
    recv: RecvBody,
    isend: IsendBody,
    irecv: IrecvBody,
    /// Whether they take the lock.
    inside: bool,
}

const PLAIN: Bodies = Bodies {
    send: send_plain,
    recv: recv_plain,
    isend: isend_plain,
    irecv: irecv_plain,
    inside: false,
};

const INSIDE: Bodies = Bodies {
    send: send_inside,
    recv: recv_inside,
    isend: isend_inside,
    irecv: irecv_inside,
    inside: true,
};

/// The bodies of the thread level, read without a lock.
struct Current(UnsafeCell<Bodies>);

// SAFETY: written by `choose_bodies` alone, where the level has changed: then MPI begins, and no other thread may call
// it before the call that initialises it has returned there, or a call of its own has (which takes the same lock).
unsafe impl Sync for Current {}

static CURRENT: Current = Current(UnsafeCell::new(PLAIN));

/// Lets the calls of this process go inside the lock where threads need it. Called by whatever initialises MPI.
pub(super) fn choose_bodies() {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let inside = lock::is_enabled();
    // SAFETY: see `Current`.
    unsafe {
        if (*CURRENT.0.get()).inside != inside {
            *CURRENT.0.get() = if inside { INSIDE } else { PLAIN };
        }
    }
}

#[inline(always)] // `fastpath bench instructions` counts MPI_Send
fn bodies() -> &'static Bodies {
    // SAFETY: see `Current`.
    unsafe { &*CURRENT.0.get() }
}

/// # Safety
/// The standard's.
#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn send(
    buf: *const c_void, count: i64, datatype: usize, dest: c_int, tag: c_int, comm: usize,
) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe {
        match c_int::try_from(count) {
            Ok(count) => (bodies().send)(buf, count, datatype, dest, tag, comm),
            Err(_) => send_slow(buf, count, datatype, dest, tag, comm),
        }
    }
}

/// # Safety
/// The standard's.
unsafe fn send_plain(
    buf: *const c_void, count: c_int, datatype: usize, dest: c_int, tag: c_int, comm: usize,
) -> c_int {
    let count = i64::from(count);
    // SAFETY: ARGUMENTS.
    unsafe {
        match p2p::try_send::<false, OPEN>(args(buf, count, datatype, dest, tag, comm)) {
            Immediate::Done => MPI_SUCCESS,
            Immediate::Declined => send_slow(buf, count, datatype, dest, tag, comm),
            Immediate::Wake(bytes) => send_wake(comm, dest, tag, bytes),
        }
    }
}

/// What the immediate path declined.
#[cold]
#[inline(never)]
pub(super) unsafe fn send_slow(
    buf: *const c_void, count: i64, datatype: usize, dest: c_int, tag: c_int, comm: usize,
) -> c_int {
    let args = args(buf, count, datatype, dest, tag, comm);
    // SAFETY: ARGUMENTS.
    let result = unsafe {
        if slow::try_send_eager::<OPEN>(args) {
            return MPI_SUCCESS;
        }
        traced::send("MPI_Send", args)
            .unwrap_or_else(|| slow::send("MPI_Send", args, Mode::Standard))
    };
    finish(result, "MPI_Send", comm)
}

/// The message has left; its receiver must be woken.
#[cold]
#[inline(never)]
fn send_wake(comm: usize, dest: c_int, tag: c_int, bytes: u64) -> c_int {
    finish(slow::wake(comm, dest, tag, bytes), "MPI_Send", comm)
}

/// # Safety
/// The standard's.
#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn recv(
    buf: *mut c_void, count: i64, datatype: usize, source: c_int, tag: c_int, comm: usize,
    status: *mut Status,
) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe {
        match c_int::try_from(count) {
            Ok(count) => (bodies().recv)(buf, count, datatype, source, tag, comm, status),
            Err(_) => recv_slow(buf, count, datatype, source, tag, comm, status),
        }
    }
}

/// # Safety
/// The standard's.
unsafe fn recv_plain(
    buf: *mut c_void, count: c_int, datatype: usize, source: c_int, tag: c_int, comm: usize,
    status: *mut Status,
) -> c_int {
    let count = i64::from(count);
    // SAFETY: ARGUMENTS; taken is what was copied.
    unsafe {
        let args = args(buf, count, datatype, source, tag, comm);
        let Some(copied) = p2p::try_copy::<OPEN>(args, status) else {
            return recv_queued(
                buf,
                count,
                datatype,
                Envelope::new(source, tag),
                status,
                comm,
            );
        };
        match copied.advance() {
            false => MPI_SUCCESS,
            true => tell_taken(copied),
        }
    }
}

/// The sender must be told how far its messages have been taken.
///
/// # Safety
/// As [`Copied::tell`].
#[cold]
#[inline(never)]
unsafe fn tell_taken(copied: Copied) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe { copied.tell() };
    hide(MPI_SUCCESS) // so that it is a jump, as in `irecv_post`
}

/// What the immediate path declined, where the message waits in the unexpected queue.
#[cold]
#[inline(never)]
unsafe fn recv_queued(
    buf: *mut c_void, count: i64, datatype: usize, envelope: Envelope, status: *mut Status,
    comm: usize,
) -> c_int {
    let (source, tag) = (envelope.source(), envelope.tag());
    // SAFETY: ARGUMENTS.
    unsafe {
        if p2p::try_recv_queued::<OPEN>(args(buf, count, datatype, source, tag, comm), status) {
            return MPI_SUCCESS;
        }
        recv_slow(buf, count, datatype, source, tag, comm, status)
    }
}

/// What the short ways declined.
#[cold]
#[inline(never)]
pub(super) unsafe fn recv_slow(
    buf: *mut c_void, count: i64, datatype: usize, source: c_int, tag: c_int, comm: usize,
    status: *mut Status,
) -> c_int {
    let args = args(buf, count, datatype, source, tag, comm);
    // SAFETY: ARGUMENTS.
    let result = unsafe {
        match traced::recv("MPI_Recv", args, status) {
            true => Ok(()),
            false => slow::recv("MPI_Recv", args, status),
        }
    };
    finish(result, "MPI_Recv", comm)
}

/// # Safety
/// The standard's.
#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn isend(
    buf: *const c_void, count: i64, datatype: usize, dest: c_int, tag: c_int, comm: usize,
    request: *mut usize,
) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe {
        match c_int::try_from(count) {
            Ok(count) => (bodies().isend)(buf, count, datatype, dest, tag, comm, request),
            Err(_) => isend_slow(buf, count, datatype, dest, tag, comm, request),
        }
    }
}

/// # Safety
/// The standard's.
unsafe fn isend_plain(
    buf: *const c_void, count: c_int, datatype: usize, dest: c_int, tag: c_int, comm: usize,
    request: *mut usize,
) -> c_int {
    let count = i64::from(count);
    // SAFETY: ARGUMENTS.
    unsafe {
        if request.is_null() {
            return isend_slow(buf, count, datatype, dest, tag, comm, request);
        }
        match p2p::try_send::<true, OPEN>(args(buf, count, datatype, dest, tag, comm)) {
            Immediate::Done => {
                *request = request::DONE_HANDLE;
                MPI_SUCCESS
            }
            Immediate::Declined => isend_slow(buf, count, datatype, dest, tag, comm, request),
            Immediate::Wake(bytes) => isend_wake(comm, dest, tag, bytes, request),
        }
    }
}

/// What the immediate path declined.
#[cold]
#[inline(never)]
pub(super) unsafe fn isend_slow(
    buf: *const c_void, count: i64, datatype: usize, dest: c_int, tag: c_int, comm: usize,
    request: *mut usize,
) -> c_int {
    let args = args(buf, count, datatype, dest, tag, comm);
    // SAFETY: ARGUMENTS.
    let result = unsafe {
        if !request.is_null() && slow::try_send_eager::<OPEN>(args) {
            *request = request::DONE_HANDLE;
            return MPI_SUCCESS;
        }
        let sent = match request.is_null() {
            false => traced::send("MPI_Isend", args),
            true => None,
        };
        match sent {
            Some(result) => {
                *request = request::DONE_HANDLE;
                result
            }
            None => slow::isend("MPI_Isend", args, Mode::Standard, request),
        }
    };
    // SAFETY: ARGUMENTS.
    unsafe { finish_request(result, "MPI_Isend", comm, request) }
}

/// As [`send_wake`], with a request.
#[cold]
#[inline(never)]
unsafe fn isend_wake(
    comm: usize, dest: c_int, tag: c_int, bytes: u64, request: *mut usize,
) -> c_int {
    // SAFETY: ARGUMENTS, which has seen that `request` is not null.
    unsafe {
        *request = request::DONE_HANDLE;
        let result = slow::wake(comm, dest, tag, bytes);
        finish_request(result, "MPI_Isend", comm, request)
    }
}

/// # Safety
/// The standard's.
#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn irecv(
    buf: *mut c_void, count: i64, datatype: usize, source: c_int, tag: c_int, comm: usize,
    request: *mut usize,
) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe {
        match c_int::try_from(count) {
            Ok(count) => (bodies().irecv)(buf, count, datatype, source, tag, comm, request),
            Err(_) => irecv_slow(buf, count, datatype, source, tag, comm, request),
        }
    }
}

/// # Safety
/// The standard's.
unsafe fn irecv_plain(
    buf: *mut c_void, count: c_int, datatype: usize, source: c_int, tag: c_int, comm: usize,
    request: *mut usize,
) -> c_int {
    let count = i64::from(count);
    // SAFETY: ARGUMENTS.
    unsafe {
        match p2p::try_irecv::<OPEN>(args(buf, count, datatype, source, tag, comm), request) {
            Irecv::Done(copied) => match copied.advance() {
                false => MPI_SUCCESS,
                true => tell_taken(copied),
            },
            Irecv::Post(Posting { key, room }) => irecv_post(buf, room, key, request, tag, comm),
            Irecv::Declined => irecv_queued(
                buf,
                count,
                datatype,
                Envelope::new(source, tag),
                request,
                comm,
            ),
        }
    }
}

/// Posts a receive whose message is not there. With all arguments in registers, so that it is a jump and neither half
/// saves registers for the other.
#[inline(never)]
unsafe fn irecv_post(
    buf: *mut c_void, room: u64, key: u64, request: *mut usize, tag: c_int, comm: usize,
) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe { *request = p2p::post_irecv::<OPEN>(Posting { key, room }, buf.cast(), tag, comm) };
    // The compiler must not know the value: it would put it in the caller, and the jump would be a call.
    hide(MPI_SUCCESS)
}

/// What the immediate path declined, where messages wait in the unexpected queue.
#[cold]
#[inline(never)]
unsafe fn irecv_queued(
    buf: *mut c_void, count: i64, datatype: usize, envelope: Envelope, request: *mut usize,
    comm: usize,
) -> c_int {
    let (source, tag) = (envelope.source(), envelope.tag());
    // SAFETY: ARGUMENTS.
    unsafe {
        if p2p::try_irecv_queued::<OPEN>(args(buf, count, datatype, source, tag, comm), request) {
            return MPI_SUCCESS;
        }
        irecv_slow(buf, count, datatype, source, tag, comm, request)
    }
}

/// What the short ways declined.
#[cold]
#[inline(never)]
pub(super) unsafe fn irecv_slow(
    buf: *mut c_void, count: i64, datatype: usize, source: c_int, tag: c_int, comm: usize,
    request: *mut usize,
) -> c_int {
    let args = args(buf, count, datatype, source, tag, comm);
    // SAFETY: ARGUMENTS.
    let result = unsafe { slow::irecv("MPI_Irecv", args, request) };
    // SAFETY: ARGUMENTS.
    unsafe { finish_request(result, "MPI_Irecv", comm, request) }
}
