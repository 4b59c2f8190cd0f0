//! The immediate path of sends and receives inside the lock of `MPI_THREAD_MULTIPLE`.
//!
//! What the exported functions jump to at that level (`p2p_immediate` `Bodies`). Counts are those of an `int`.
//!
//! **ARGUMENTS.** What pointers among the arguments point to: see the module above.
#![allow(unsafe_code)]

use super::p2p::{Envelope, args, finish, finish_request};
use super::p2p_further::{irecv_elsewhere, isend_elsewhere, recv_elsewhere, send_elsewhere};
use super::p2p_immediate::{
    IrecvBody, IsendBody, RecvBody, SendBody, irecv_slow, isend_slow, recv_slow, send_slow,
};
use core::ffi::{c_int, c_void};
use fastpath_base::hint::hide;
use fastpath_mpi::consts::*;
use fastpath_mpi::hot::{self, SEEN};
use fastpath_mpi::lock::{FIRST_SEAT, SECOND_SEAT};
use fastpath_mpi::p2p::{self, Copied, Immediate, Irecv, Posting};
use fastpath_mpi::status::Status;
use fastpath_mpi::{lock, p2p_slow as slow, request};

// Why a call takes the lock after all.
/// The bias is not the calling thread's.
const UNBIASED: u8 = 0;
/// The bias went while the thread stepped in: it steps back first.
const BIAS_LOST: u8 = 1;
/// The thread is inside by its bias, and the immediate path has declined; it leaves once the lock has served.
const DECLINED: u8 = 2;

/// A body for each seat of the bias, and the one that goes by the seat that it was given with last: threads that take
/// turns on a processor have one each. A body that knew both would keep registers for the choice.
macro_rules! choose_by_seat {
    ($name:ident, $bodies:ident, $body:ident, $seated:ident, ($($argument:ident: $kind:ty),*)) => {
        static $bodies: [$body; 2] = [$seated::<FIRST_SEAT>, $seated::<SECOND_SEAT>];

        /// As the plain body in `p2p_immediate`, inside the lock.
        ///
        /// # Safety
        /// The standard's.
        pub(super) unsafe fn $name($($argument: $kind),*) -> c_int {
            // SAFETY: ARGUMENTS; the number of a seat is 0 or 1.
            unsafe { $bodies.get_unchecked(lock::last_seat())($($argument),*) }
        }
    };
}

choose_by_seat!(send_inside, SEND, SendBody, send_seated,
    (buf: *const c_void, count: c_int, datatype: usize, dest: c_int, tag: c_int, comm: usize));
choose_by_seat!(recv_inside, RECV, RecvBody, recv_seated,
    (buf: *mut c_void, count: c_int, datatype: usize, source: c_int, tag: c_int, comm: usize,
     status: *mut Status));
choose_by_seat!(isend_inside, ISEND, IsendBody, isend_seated,
    (buf: *const c_void, count: c_int, datatype: usize, dest: c_int, tag: c_int, comm: usize,
     request: *mut usize));
choose_by_seat!(irecv_inside, IRECV, IrecvBody, irecv_seated,
    (buf: *mut c_void, count: c_int, datatype: usize, source: c_int, tag: c_int, comm: usize,
     request: *mut usize));

/// As `send_plain` in `p2p_immediate`, inside the lock by the bias of the calling thread with that seat.
///
/// # Safety
/// The standard's; the same of the other functions here.
unsafe fn send_seated<const SEAT: u8>(
    buf: *const c_void, count: c_int, datatype: usize, dest: c_int, tag: c_int, comm: usize,
) -> c_int {
    let count = i64::from(count);
    // Whatever is rare is a jump, so that nothing is kept in registers for it.
    // SAFETY: ARGUMENTS.
    unsafe {
        if !hot::sends_inside(comm) {
            return send_elsewhere(buf, count, datatype, dest, tag, comm);
        }
        if !lock::favours::<SEAT>() {
            return send_locked::<UNBIASED, SEAT>(buf, count, datatype, dest, tag, comm);
        }
        if !lock::step_in::<SEAT>() {
            return send_locked::<BIAS_LOST, SEAT>(buf, count, datatype, dest, tag, comm);
        }
        match p2p::try_send::<false, SEEN>(args(buf, count, datatype, dest, tag, comm)) {
            Immediate::Done if lock::leave::<SEAT>() => wake::<SEAT>(),
            Immediate::Done => MPI_SUCCESS,
            Immediate::Declined => {
                send_locked::<DECLINED, SEAT>(buf, count, datatype, dest, tag, comm)
            }
            Immediate::Wake(bytes) => wake_inside::<SEAT>(comm, dest, tag, bytes),
        }
    }
}

/// The message has left; its receiver must be woken, and the lock left.
#[cold]
#[inline(never)]
fn wake_inside<const SEAT: u8>(comm: usize, dest: c_int, tag: c_int, bytes: u64) -> c_int {
    let result = slow::wake(comm, dest, tag, bytes);
    lock::leave_surely::<SEAT>();
    finish(result, "MPI_Send", comm)
}

/// Another thread has come since the calling one was inside.
#[cold]
#[inline(never)]
fn wake<const SEAT: u8>() -> c_int {
    lock::wake::<SEAT>();
    hide(MPI_SUCCESS) // so that it is a jump, as in `irecv_post`
}

/// As `tell_taken` in `p2p_immediate`, and leaves.
///
/// # Safety
/// As there.
#[cold]
#[inline(never)]
unsafe fn tell_taken<const SEAT: u8>(copied: Copied) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe { copied.tell() };
    lock::leave_surely::<SEAT>();
    hide(MPI_SUCCESS)
}

/// As [`send_inside`], by the lock.
#[cold]
#[inline(never)]
unsafe fn send_locked<const FROM: u8, const SEAT: u8>(
    buf: *const c_void, count: i64, datatype: usize, dest: c_int, tag: c_int, comm: usize,
) -> c_int {
    if FROM == BIAS_LOST {
        lock::back_out::<SEAT>();
    }
    // SAFETY: ARGUMENTS.
    unsafe {
        let sent = slow::send_with_lock::<false>(args(buf, count, datatype, dest, tag, comm), true);
        if FROM == DECLINED {
            lock::leave_surely::<SEAT>();
        }
        match sent {
            Some(result) => finish(result, "MPI_Send", comm),
            None => send_slow(buf, count, datatype, dest, tag, comm),
        }
    }
}

/// As [`send_inside`].
unsafe fn recv_seated<const SEAT: u8>(
    buf: *mut c_void, count: c_int, datatype: usize, source: c_int, tag: c_int, comm: usize,
    status: *mut Status,
) -> c_int {
    let count = i64::from(count);
    let envelope = || Envelope::new(source, tag);
    // SAFETY: ARGUMENTS.
    unsafe {
        if !hot::receives_inside(comm) {
            return recv_elsewhere(buf, count, datatype, source, tag, comm, status);
        }
        if !lock::favours::<SEAT>() {
            return recv_locked::<UNBIASED, SEAT>(buf, count, datatype, envelope(), status, comm);
        }
        if !lock::step_in::<SEAT>() {
            return recv_locked::<BIAS_LOST, SEAT>(buf, count, datatype, envelope(), status, comm);
        }
        let args = args(buf, count, datatype, source, tag, comm);
        let Some(copied) = p2p::try_copy::<SEEN>(args, status) else {
            return recv_locked::<DECLINED, SEAT>(buf, count, datatype, envelope(), status, comm);
        };
        match copied.advance() {
            false if lock::leave::<SEAT>() => wake::<SEAT>(),
            false => MPI_SUCCESS,
            true => tell_taken::<SEAT>(copied),
        }
    }
}

/// As [`recv_inside`], by the lock.
#[cold]
#[inline(never)]
unsafe fn recv_locked<const FROM: u8, const SEAT: u8>(
    buf: *mut c_void, count: i64, datatype: usize, envelope: Envelope, status: *mut Status,
    comm: usize,
) -> c_int {
    if FROM == BIAS_LOST {
        lock::back_out::<SEAT>();
    }
    let (source, tag) = (envelope.source(), envelope.tag());
    let args = args(buf, count, datatype, source, tag, comm);
    // SAFETY: ARGUMENTS.
    unsafe {
        // What has been declined inside is not tried the same way again.
        let received = match FROM {
            DECLINED => {
                let received = p2p::try_recv_queued::<{ hot::INSIDE }>(args, status);
                lock::leave_surely::<SEAT>();
                received
            }
            _ => lock::with_lock(|| {
                p2p::try_recv::<{ hot::INSIDE }>(args, status)
                    || p2p::try_recv_queued::<{ hot::INSIDE }>(args, status)
            }),
        };
        match received {
            true => MPI_SUCCESS,
            false => recv_slow(buf, count, datatype, source, tag, comm, status),
        }
    }
}

/// As [`send_inside`].
unsafe fn isend_seated<const SEAT: u8>(
    buf: *const c_void, count: c_int, datatype: usize, dest: c_int, tag: c_int, comm: usize,
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
        if !lock::favours::<SEAT>() {
            return isend_locked::<UNBIASED, SEAT>(buf, count, datatype, dest, tag, comm, request);
        }
        if !lock::step_in::<SEAT>() {
            return isend_locked::<BIAS_LOST, SEAT>(buf, count, datatype, dest, tag, comm, request);
        }
        match p2p::try_send::<true, SEEN>(args(buf, count, datatype, dest, tag, comm)) {
            Immediate::Done => {
                *request = request::DONE_HANDLE;
                match lock::leave::<SEAT>() {
                    true => wake::<SEAT>(),
                    false => MPI_SUCCESS,
                }
            }
            Immediate::Declined => {
                isend_locked::<DECLINED, SEAT>(buf, count, datatype, dest, tag, comm, request)
            }
            Immediate::Wake(bytes) => isend_wake_inside::<SEAT>(comm, dest, tag, bytes, request),
        }
    }
}

/// As [`wake_inside`], with a request.
#[cold]
#[inline(never)]
unsafe fn isend_wake_inside<const SEAT: u8>(
    comm: usize, dest: c_int, tag: c_int, bytes: u64, request: *mut usize,
) -> c_int {
    // SAFETY: ARGUMENTS, which has seen that `request` is not null.
    unsafe {
        *request = request::DONE_HANDLE;
        let result = slow::wake(comm, dest, tag, bytes);
        lock::leave_surely::<SEAT>();
        finish_request(result, "MPI_Isend", comm, request)
    }
}

/// As [`send_locked`].
#[cold]
#[inline(never)]
unsafe fn isend_locked<const FROM: u8, const SEAT: u8>(
    buf: *const c_void, count: i64, datatype: usize, dest: c_int, tag: c_int, comm: usize,
    request: *mut usize,
) -> c_int {
    if FROM == BIAS_LOST {
        lock::back_out::<SEAT>();
    }
    // SAFETY: ARGUMENTS.
    unsafe {
        let sent = slow::send_with_lock::<true>(args(buf, count, datatype, dest, tag, comm), true);
        if FROM == DECLINED {
            lock::leave_surely::<SEAT>();
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
unsafe fn irecv_seated<const SEAT: u8>(
    buf: *mut c_void, count: c_int, datatype: usize, source: c_int, tag: c_int, comm: usize,
    request: *mut usize,
) -> c_int {
    let count = i64::from(count);
    let envelope = || Envelope::new(source, tag);
    // SAFETY: ARGUMENTS.
    unsafe {
        if !hot::receives_inside(comm) {
            return irecv_elsewhere(buf, count, datatype, source, tag, comm, request);
        }
        if !lock::favours::<SEAT>() {
            return irecv_locked::<UNBIASED, SEAT>(buf, count, datatype, envelope(), request, comm);
        }
        if !lock::step_in::<SEAT>() {
            return irecv_locked::<BIAS_LOST, SEAT>(
                buf,
                count,
                datatype,
                envelope(),
                request,
                comm,
            );
        }
        match p2p::try_irecv::<SEEN>(args(buf, count, datatype, source, tag, comm), request) {
            Irecv::Done(copied) => match copied.advance() {
                false if lock::leave::<SEAT>() => wake::<SEAT>(),
                false => MPI_SUCCESS,
                true => tell_taken::<SEAT>(copied),
            },
            Irecv::Post(Posting { key, room }) => {
                irecv_post_inside::<SEAT>(buf, room, key, request, tag, comm)
            }
            Irecv::Declined => {
                irecv_locked::<DECLINED, SEAT>(buf, count, datatype, envelope(), request, comm)
            }
        }
    }
}

/// As `irecv_post`, and leaves.
#[inline(never)]
unsafe fn irecv_post_inside<const SEAT: u8>(
    buf: *mut c_void, room: u64, key: u64, request: *mut usize, tag: c_int, comm: usize,
) -> c_int {
    // SAFETY: `try_irecv` has just found the room; buffer and request are the user's, as for `MPI_Irecv`.
    unsafe {
        *request = p2p::post_irecv::<{ hot::INSIDE }>(Posting { key, room }, buf.cast(), tag, comm);
    }
    match lock::leave::<SEAT>() {
        true => wake::<SEAT>(),
        false => MPI_SUCCESS,
    }
}

/// As [`recv_locked`].
#[cold]
#[inline(never)]
unsafe fn irecv_locked<const FROM: u8, const SEAT: u8>(
    buf: *mut c_void, count: i64, datatype: usize, envelope: Envelope, request: *mut usize,
    comm: usize,
) -> c_int {
    if FROM == BIAS_LOST {
        lock::back_out::<SEAT>();
    }
    let (source, tag) = (envelope.source(), envelope.tag());
    let args = args(buf, count, datatype, source, tag, comm);
    // SAFETY: ARGUMENTS.
    unsafe {
        let started = match FROM {
            DECLINED => {
                let started = p2p::try_irecv_queued::<{ hot::INSIDE }>(args, request);
                lock::leave_surely::<SEAT>();
                started
            }
            _ => lock::with_lock(|| match p2p::try_irecv::<{ hot::INSIDE }>(args, request) {
                Irecv::Done(copied) => {
                    copied.take();
                    true
                }
                Irecv::Post(posting) => {
                    *request = p2p::post_irecv::<{ hot::INSIDE }>(posting, args.buf, tag, comm);
                    true
                }
                Irecv::Declined => p2p::try_irecv_queued::<{ hot::INSIDE }>(args, request),
            }),
        };
        match started {
            true => MPI_SUCCESS,
            false => irecv_slow(buf, count, datatype, source, tag, comm, request),
        }
    }
}
