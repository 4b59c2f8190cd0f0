//! The immediate path of sends and receives inside the lock of `MPI_THREAD_MULTIPLE`.
//!
//! What the exported functions jump to at that level (`p2p_immediate` `Bodies`). Counts are those of an `int`.
//!
//! **ARGUMENTS.** What pointers among the arguments point to: see the module above.
#![allow(unsafe_code)]

use super::p2p::{Envelope, args};
use super::p2p_calls::{RecvCall, SendCall};
use super::p2p_further::{recv_elsewhere, send_elsewhere};
use super::p2p_immediate::{RecvBody, SendBody, recv_slow, send_slow};
use core::ffi::{c_int, c_void};
use fastpath_base::hint::hide;
use fastpath_mpi::common::consts::*;
use fastpath_mpi::common::lock::{self, BY_WORD, FIRST_SEAT, SECOND_SEAT};
use fastpath_mpi::objects::hot::{self, INSIDE, SEEN};
use fastpath_mpi::p2p::slow;
use fastpath_mpi::p2p::{Copied, Immediate, ImmediateRecv};

// Why a call takes the lock after all.
/// The bias is not the calling thread's.
const UNBIASED: u8 = 0;
/// The bias went while the thread stepped in, or the word was taken: it steps back first.
const BIAS_LOST: u8 = 1;
/// The thread is inside, by its bias or the word, and the immediate path has declined; it leaves once the lock has
/// served.
const DECLINED: u8 = 2;

/// As `send_plain` in `p2p_immediate`, inside the lock, by the body of the seat of the bias that it was given with
/// last: threads that take turns on a processor have one each. A body that knew both would keep registers for the
/// choice. Where nobody gets a bias (membarrier is refused), a third body goes by the ordinary lock.
///
/// # Safety
/// The standard's; the same of the other functions here.
pub(super) unsafe fn send_inside<C: SendCall>(
    buf: *const c_void, count: c_int, datatype: usize, dest: c_int, tag: c_int, comm: usize,
    call: C,
) -> c_int {
    let bodies: &[SendBody<C>; 3] = const {
        &[send_seated::<C, FIRST_SEAT>, send_seated::<C, SECOND_SEAT>, send_seated::<C, BY_WORD>]
    };
    // SAFETY: ARGUMENTS; `last_seat` is below 3.
    unsafe {
        let body = bodies.get_unchecked(lock::last_seat());
        body(buf, count, datatype, dest, tag, comm, call)
    }
}

/// As [`send_inside`].
pub(super) unsafe fn recv_inside<C: RecvCall>(
    buf: *mut c_void, count: c_int, datatype: usize, source: c_int, tag: c_int, comm: usize,
    call: C,
) -> c_int {
    let bodies: &[RecvBody<C>; 3] = const {
        &[recv_seated::<C, FIRST_SEAT>, recv_seated::<C, SECOND_SEAT>, recv_seated::<C, BY_WORD>]
    };
    // SAFETY: ARGUMENTS; `last_seat` is below 3.
    unsafe {
        let body = bodies.get_unchecked(lock::last_seat());
        body(buf, count, datatype, source, tag, comm, call)
    }
}

/// A send inside the lock by the bias of the calling thread with that seat.
unsafe fn send_seated<C: SendCall, const SEAT: u8>(
    buf: *const c_void, count: c_int, datatype: usize, dest: c_int, tag: c_int, comm: usize,
    call: C,
) -> c_int {
    let count = i64::from(count);
    // Whatever is rare is a jump, so that nothing is kept in registers for it.
    // SAFETY: ARGUMENTS.
    unsafe {
        if !hot::sends_inside(comm) {
            return send_elsewhere(buf, count, datatype, dest, tag, comm, call);
        }
        if !lock::favours::<SEAT>() {
            return send_locked::<C, UNBIASED, SEAT>(buf, count, datatype, dest, tag, comm, call);
        }
        if !lock::step_in::<SEAT>() {
            return send_locked::<C, BIAS_LOST, SEAT>(buf, count, datatype, dest, tag, comm, call);
        }
        match call.try_send::<SEEN>(args(buf, count, datatype, dest, tag, comm)) {
            Immediate::Done => {
                call.complete();
                match lock::leave::<SEAT>() {
                    true => wake::<SEAT>(),
                    false => MPI_SUCCESS,
                }
            }
            Immediate::Declined => {
                send_locked::<C, DECLINED, SEAT>(buf, count, datatype, dest, tag, comm, call)
            }
            Immediate::Wake(bytes) => wake_inside::<C, SEAT>(comm, dest, tag, bytes, call),
        }
    }
}

/// The message has left; its receiver must be woken, and the lock left.
#[cold]
#[inline(never)]
unsafe fn wake_inside<C: SendCall, const SEAT: u8>(
    comm: usize, dest: c_int, tag: c_int, bytes: u64, call: C,
) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe {
        call.complete();
        let result = slow::wake(comm, dest, tag, bytes);
        lock::leave_surely::<SEAT>();
        call.finish(result, comm)
    }
}

/// Another thread has come since the calling one was inside.
#[cold]
#[inline(never)]
fn wake<const SEAT: u8>() -> c_int {
    lock::wake::<SEAT>();
    hide(MPI_SUCCESS) // so that it is a jump, as in `recv_post`
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
unsafe fn send_locked<C: SendCall, const FROM: u8, const SEAT: u8>(
    buf: *const c_void, count: i64, datatype: usize, dest: c_int, tag: c_int, comm: usize, call: C,
) -> c_int {
    if FROM == BIAS_LOST {
        lock::back_out::<SEAT>();
    }
    // SAFETY: ARGUMENTS.
    unsafe {
        let sent = call.send_with_lock(args(buf, count, datatype, dest, tag, comm));
        if FROM == DECLINED {
            lock::leave_surely::<SEAT>();
        }
        match sent {
            Some(result) => {
                call.complete();
                call.finish(result, comm)
            }
            None => send_slow(buf, count, datatype, dest, tag, comm, call),
        }
    }
}

/// A receive as [`send_seated`].
unsafe fn recv_seated<C: RecvCall, const SEAT: u8>(
    buf: *mut c_void, count: c_int, datatype: usize, source: c_int, tag: c_int, comm: usize,
    call: C,
) -> c_int {
    let count = i64::from(count);
    let envelope = || Envelope::new(source, tag);
    // SAFETY: ARGUMENTS.
    unsafe {
        if !hot::receives_inside(comm) {
            return recv_elsewhere(buf, count, datatype, source, tag, comm, call);
        }
        if !lock::favours::<SEAT>() {
            return recv_locked::<C, UNBIASED, SEAT>(buf, count, datatype, envelope(), call, comm);
        }
        if !lock::step_in::<SEAT>() {
            return recv_locked::<C, BIAS_LOST, SEAT>(buf, count, datatype, envelope(), call, comm);
        }
        match call.try_recv::<SEEN>(args(buf, count, datatype, source, tag, comm)) {
            ImmediateRecv::Done(copied) => match copied.advance() {
                false if lock::leave::<SEAT>() => wake::<SEAT>(),
                false => MPI_SUCCESS,
                true => tell_taken::<SEAT>(copied),
            },
            ImmediateRecv::Post(posting) => {
                recv_post_inside::<C, SEAT>(buf, posting, call, tag, comm)
            }
            ImmediateRecv::Declined => {
                recv_locked::<C, DECLINED, SEAT>(buf, count, datatype, envelope(), call, comm)
            }
        }
    }
}

/// As `recv_post`, and leaves.
#[inline(never)]
unsafe fn recv_post_inside<C: RecvCall, const SEAT: u8>(
    buf: *mut c_void, posting: C::Posting, call: C, tag: c_int, comm: usize,
) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe { call.post::<INSIDE>(posting, buf.cast(), tag, comm) };
    match lock::leave::<SEAT>() {
        true => wake::<SEAT>(),
        false => MPI_SUCCESS,
    }
}

/// As [`recv_inside`], by the lock.
#[cold]
#[inline(never)]
unsafe fn recv_locked<C: RecvCall, const FROM: u8, const SEAT: u8>(
    buf: *mut c_void, count: i64, datatype: usize, envelope: Envelope, call: C, comm: usize,
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
                let received = call.try_recv_queued::<INSIDE>(args);
                lock::leave_surely::<SEAT>();
                received
            }
            _ => lock::with_lock(|| call.recv_shortly::<INSIDE>(args)),
        };
        match received {
            true => MPI_SUCCESS,
            false => recv_slow(buf, count, datatype, source, tag, comm, call),
        }
    }
}
