//! `MPI_Send`, `MPI_Recv`, `MPI_Isend`, `MPI_Irecv`: the immediate path below `MPI_THREAD_MULTIPLE`.
//!
//! The exported functions jump to the bodies of the thread level ([`Bodies`]): one instruction at every level. At
//! `MPI_THREAD_MULTIPLE` these are the functions of `p2p_inside`.
//!
//! A body ends in jumps to whatever is rare, with the same arguments, so that it keeps nothing in registers for them.
//!
//! **ARGUMENTS.** What pointers among the arguments point to: see the module above.
#![allow(unsafe_code)]

use super::p2p::{Envelope, args};
use super::p2p_calls::{NoRequest, RecvCall, SendCall};
use super::p2p_inside::{recv_inside, send_inside};
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use fastpath_base::hint::hide;
use fastpath_mpi::common::consts::*;
use fastpath_mpi::common::lock;
use fastpath_mpi::common::status::Status;
use fastpath_mpi::objects::hot::OPEN;
use fastpath_mpi::p2p::slow;
use fastpath_mpi::p2p::{Copied, Immediate, ImmediateRecv};
use fastpath_mpi::tool::traced;
use std::sync::{Mutex, PoisonError};

pub(super) type SendBody<C> =
    unsafe fn(*const c_void, c_int, usize, c_int, c_int, usize, C) -> c_int;
pub(super) type RecvBody<C> = unsafe fn(*mut c_void, c_int, usize, c_int, c_int, usize, C) -> c_int;

/// What carries out the calls at one thread level. Counts are those of an `int`.
#[derive(Clone, Copy)]
struct Bodies {
    send: SendBody<NoRequest>,
    recv: RecvBody<*mut Status>,
    isend: SendBody<*mut usize>,
    irecv: RecvBody<*mut usize>,
    /// Whether they take the lock.
    inside: bool,
}

const PLAIN: Bodies = Bodies {
    send: send_plain,
    recv: recv_plain,
    isend: send_plain,
    irecv: recv_plain,
    inside: false,
};

const INSIDE: Bodies = Bodies {
    send: send_inside,
    recv: recv_inside,
    isend: send_inside,
    irecv: recv_inside,
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
    unsafe { send_by(bodies().send, buf, count, datatype, dest, tag, comm, NoRequest) }
}

/// # Safety
/// The standard's.
#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn isend(
    buf: *const c_void, count: i64, datatype: usize, dest: c_int, tag: c_int, comm: usize,
    request: *mut usize,
) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe { send_by(bodies().isend, buf, count, datatype, dest, tag, comm, request) }
}

/// # Safety
/// The standard's.
#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn recv(
    buf: *mut c_void, count: i64, datatype: usize, source: c_int, tag: c_int, comm: usize,
    status: *mut Status,
) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe { recv_by(bodies().recv, buf, count, datatype, source, tag, comm, status) }
}

/// # Safety
/// The standard's.
#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn irecv(
    buf: *mut c_void, count: i64, datatype: usize, source: c_int, tag: c_int, comm: usize,
    request: *mut usize,
) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe { recv_by(bodies().irecv, buf, count, datatype, source, tag, comm, request) }
}

/// A send by the body of the thread level.
#[inline(always)] // `fastpath bench instructions` counts it
unsafe fn send_by<C: SendCall>(
    body: SendBody<C>, buf: *const c_void, count: i64, datatype: usize, dest: c_int, tag: c_int,
    comm: usize, call: C,
) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe {
        match c_int::try_from(count) {
            Ok(count) => body(buf, count, datatype, dest, tag, comm, call),
            Err(_) => send_slow(buf, count, datatype, dest, tag, comm, call),
        }
    }
}

/// A receive by the body of the thread level.
#[inline(always)] // `fastpath bench instructions` counts it
unsafe fn recv_by<C: RecvCall>(
    body: RecvBody<C>, buf: *mut c_void, count: i64, datatype: usize, source: c_int, tag: c_int,
    comm: usize, call: C,
) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe {
        match c_int::try_from(count) {
            Ok(count) => body(buf, count, datatype, source, tag, comm, call),
            Err(_) => recv_slow(buf, count, datatype, source, tag, comm, call),
        }
    }
}

/// # Safety
/// The standard's; the same of the other functions here.
unsafe fn send_plain<C: SendCall>(
    buf: *const c_void, count: c_int, datatype: usize, dest: c_int, tag: c_int, comm: usize,
    call: C,
) -> c_int {
    let count = i64::from(count);
    // SAFETY: ARGUMENTS.
    unsafe {
        match call.try_send::<OPEN>(args(buf, count, datatype, dest, tag, comm)) {
            Immediate::Done => {
                call.complete();
                MPI_SUCCESS
            }
            Immediate::Declined => send_slow(buf, count, datatype, dest, tag, comm, call),
            Immediate::Wake(bytes) => send_wake(comm, dest, tag, bytes, call),
        }
    }
}

/// What the immediate path declined.
#[cold]
#[inline(never)]
pub(super) unsafe fn send_slow<C: SendCall>(
    buf: *const c_void, count: i64, datatype: usize, dest: c_int, tag: c_int, comm: usize, call: C,
) -> c_int {
    let args = args(buf, count, datatype, dest, tag, comm);
    // SAFETY: ARGUMENTS.
    unsafe {
        if call.is_given() {
            if slow::try_send_eager::<OPEN>(args) {
                call.complete();
                return MPI_SUCCESS;
            }
            if let Some(result) = traced::send(C::NAME, args) {
                call.complete();
                return call.finish(result, comm);
            }
        }
        call.finish(call.start(args), comm)
    }
}

/// The message has left; its receiver must be woken.
#[cold]
#[inline(never)]
unsafe fn send_wake<C: SendCall>(
    comm: usize, dest: c_int, tag: c_int, bytes: u64, call: C,
) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe {
        call.complete();
        call.finish(slow::wake(comm, dest, tag, bytes), comm)
    }
}

unsafe fn recv_plain<C: RecvCall>(
    buf: *mut c_void, count: c_int, datatype: usize, source: c_int, tag: c_int, comm: usize,
    call: C,
) -> c_int {
    let count = i64::from(count);
    // SAFETY: ARGUMENTS; taken is what was copied.
    unsafe {
        match call.try_recv::<OPEN>(args(buf, count, datatype, source, tag, comm)) {
            ImmediateRecv::Done(copied) => match copied.advance() {
                false => MPI_SUCCESS,
                true => tell_taken(copied),
            },
            ImmediateRecv::Post(posting) => recv_post(buf, posting, call, tag, comm),
            ImmediateRecv::Declined => {
                let envelope = Envelope::new(source, tag);
                recv_queued(buf, count, datatype, envelope, call, comm)
            }
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
    hide(MPI_SUCCESS) // so that it is a jump, as in `recv_post`
}

/// Posts a receive whose message is not there. With all arguments in registers, so that it is a jump and neither half
/// saves registers for the other.
#[inline(never)]
unsafe fn recv_post<C: RecvCall>(
    buf: *mut c_void, posting: C::Posting, call: C, tag: c_int, comm: usize,
) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe { call.post::<OPEN>(posting, buf.cast(), tag, comm) };
    // The compiler must not know the value: it would put it in the caller, and the jump would be a call.
    hide(MPI_SUCCESS)
}

/// What the immediate path declined, where messages or receives of the source wait already.
#[cold]
#[inline(never)]
unsafe fn recv_queued<C: RecvCall>(
    buf: *mut c_void, count: i64, datatype: usize, envelope: Envelope, call: C, comm: usize,
) -> c_int {
    let (source, tag) = (envelope.source(), envelope.tag());
    // SAFETY: ARGUMENTS.
    unsafe {
        if call.try_recv_queued::<OPEN>(args(buf, count, datatype, source, tag, comm)) {
            return MPI_SUCCESS;
        }
        recv_slow(buf, count, datatype, source, tag, comm, call)
    }
}

/// What the short ways declined.
#[cold]
#[inline(never)]
pub(super) unsafe fn recv_slow<C: RecvCall>(
    buf: *mut c_void, count: i64, datatype: usize, source: c_int, tag: c_int, comm: usize, call: C,
) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe { call.run(args(buf, count, datatype, source, tag, comm)) }
}
