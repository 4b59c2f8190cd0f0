//! The immediate path of `MPI_Send`, `MPI_Recv`, `MPI_Isend` and `MPI_Irecv`.
//!
//! An exported function jumps, by one instruction, to the body for the thread level ([`Bodies`]). Below
//! `MPI_THREAD_MULTIPLE` that is `send_plain` or `recv_plain`. At `MPI_THREAD_MULTIPLE` it is `send_inside` or
//! `recv_inside`, which takes the lock by the thread's bias.
//!
//! In a rare case, a body jumps to another function and passes its own arguments on. The body therefore saves no
//! registers for such cases.
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::arguments::args;
use super::p2p_calls::{NoRequest, RecvCall, SendCall};
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use fastpath_base::hint::hide;
use fastpath_mpi::common::consts::*;
use fastpath_mpi::common::lock::{self, BY_WORD, FIRST_SEAT, SECOND_SEAT};
use fastpath_mpi::common::status::Status;
use fastpath_mpi::objects::hot::{self, INSIDE, OPEN, SEEN};
use fastpath_mpi::p2p::slow;
use fastpath_mpi::p2p::{CopiedSlot, Immediate, ImmediateRecv};
use fastpath_mpi::tool::traced;
use std::sync::{Mutex, PoisonError};

/// Source and tag in one argument. All arguments of a receive then fit registers, so that a function can end in a jump.
#[derive(Clone, Copy)]
struct Envelope(u64);

impl Envelope {
    #[inline(always)] // `fastpath bench instructions` counts MPI_Recv
    fn new(source: c_int, tag: c_int) -> Self {
        Envelope(u64::from(source as u32) | (tag as u64) << 32)
    }

    fn source(self) -> c_int {
        self.0 as c_int
    }

    fn tag(self) -> c_int {
        (self.0 >> 32) as c_int
    }
}

type SendBody<C> = unsafe fn(*const c_void, c_int, usize, c_int, c_int, usize, C) -> c_int;
type RecvBody<C> = unsafe fn(*mut c_void, c_int, usize, c_int, c_int, usize, C) -> c_int;

/// Bodies of the four calls for one thread level. They take counts of type `int`.
#[derive(Clone, Copy)]
struct Bodies {
    send: SendBody<NoRequest>,
    recv: RecvBody<*mut Status>,
    isend: SendBody<*mut usize>,
    irecv: RecvBody<*mut usize>,
    /// Whether the bodies take the lock.
    inside: bool,
}

const PLAIN_BODIES: Bodies = Bodies {
    send: send_plain,
    recv: recv_plain,
    isend: send_plain,
    irecv: recv_plain,
    inside: false,
};

const INSIDE_BODIES: Bodies = Bodies {
    send: send_inside,
    recv: recv_inside,
    isend: send_inside,
    irecv: recv_inside,
    inside: true,
};

/// Bodies for the present thread level, read without a lock.
struct Current(UnsafeCell<Bodies>);

// SAFETY: only `choose_bodies` writes, when MPI is being initialised with another level. Until the initialising call
// has returned, another thread may only make its own initialising call, which takes the same lock.
unsafe impl Sync for Current {}

static CURRENT: Current = Current(UnsafeCell::new(PLAIN_BODIES));

/// Selects the bodies for the thread level. Every initialisation of MPI calls it.
pub(super) fn choose_bodies() {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let inside = lock::is_enabled();
    // SAFETY: no other thread reads or writes while MPI is initialised, as `Current` argues.
    unsafe {
        if (*CURRENT.0.get()).inside != inside {
            *CURRENT.0.get() = if inside { INSIDE_BODIES } else { PLAIN_BODIES };
        }
    }
}

#[inline(always)] // `fastpath bench instructions` counts MPI_Send
fn bodies() -> &'static Bodies {
    // SAFETY: no thread writes while calls are allowed, as `Current` argues.
    unsafe { &*CURRENT.0.get() }
}

#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn send(
    buf: *const c_void, count: i64, datatype: usize, dest: c_int, tag: c_int, comm: usize,
) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe { send_by(bodies().send, buf, count, datatype, dest, tag, comm, NoRequest) }
}

#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn isend(
    buf: *const c_void, count: i64, datatype: usize, dest: c_int, tag: c_int, comm: usize,
    request: *mut usize,
) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe { send_by(bodies().isend, buf, count, datatype, dest, tag, comm, request) }
}

#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn recv(
    buf: *mut c_void, count: i64, datatype: usize, source: c_int, tag: c_int, comm: usize,
    status: *mut Status,
) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe { recv_by(bodies().recv, buf, count, datatype, source, tag, comm, status) }
}

#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn irecv(
    buf: *mut c_void, count: i64, datatype: usize, source: c_int, tag: c_int, comm: usize,
    request: *mut usize,
) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe { recv_by(bodies().irecv, buf, count, datatype, source, tag, comm, request) }
}

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

/// Sends without a lock.
///
/// # Safety
/// ARGUMENTS, as for the MPI call. All functions below have this contract.
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

/// Continues a send that the immediate path declined.
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

/// Wakes the receiver of a message that has been sent.
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
    // SAFETY: ARGUMENTS; the message is taken only after its bytes were copied.
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

/// Returns credits to the sender.
///
/// # Safety
/// The contract is that of [`CopiedSlot::tell`].
#[cold]
#[inline(never)]
unsafe fn tell_taken(copied: CopiedSlot) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe { copied.tell() };
    hide(MPI_SUCCESS) // a jump, as in `recv_post`
}

/// Posts a receive whose message has not arrived. All arguments are in registers, so the caller reaches this function
/// by a jump, and neither function saves registers for the other.
#[inline(never)]
unsafe fn recv_post<C: RecvCall>(
    buf: *mut c_void, posting: C::Posting, call: C, tag: c_int, comm: usize,
) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe { call.post::<OPEN>(posting, buf.cast(), tag, comm) };
    // If the result were a known constant, the compiler would set it in the caller, and would make the jump a call.
    hide(MPI_SUCCESS)
}

/// Continues a receive that the immediate path declined because messages or receives of the source are queued.
#[cold]
#[inline(never)]
unsafe fn recv_queued<C: RecvCall>(
    buf: *mut c_void, count: i64, datatype: usize, envelope: Envelope, call: C, comm: usize,
) -> c_int {
    let (source, tag) = (envelope.source(), envelope.tag());
    // SAFETY: ARGUMENTS.
    unsafe {
        match call.try_recv_queued::<OPEN>(args(buf, count, datatype, source, tag, comm)) {
            true => MPI_SUCCESS,
            false => recv_polled(buf, count, datatype, envelope, call, comm),
        }
    }
}

/// Receives a message that has not arrived, or needs the ordinary path. Reached by a jump, as [`recv_post`], so that
/// between the poll that finds the message and the program there is one frame.
#[cold]
#[inline(never)]
unsafe fn recv_polled<C: RecvCall>(
    buf: *mut c_void, count: i64, datatype: usize, envelope: Envelope, call: C, comm: usize,
) -> c_int {
    let (source, tag) = (envelope.source(), envelope.tag());
    // SAFETY: ARGUMENTS.
    unsafe { call.poll(args(buf, count, datatype, source, tag, comm)) }
}

#[cold]
#[inline(never)]
pub(super) unsafe fn recv_slow<C: RecvCall>(
    buf: *mut c_void, count: i64, datatype: usize, source: c_int, tag: c_int, comm: usize, call: C,
) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe { call.run(args(buf, count, datatype, source, tag, comm)) }
}

// Reasons for which a call takes the lock.
/// The calling thread lacks the bias.
const UNBIASED: u8 = 0;
/// The bias was revoked while the thread entered, or the lock word was taken. The entry must be undone first.
const BIAS_LOST: u8 = 1;
/// The thread is inside, by bias or lock word, and the immediate path declined. The thread must leave afterwards.
const DECLINED: u8 = 2;

/// Sends inside the lock, by the body for the seat with which the last bias was given. Two threads that take turns on a
/// processor have one seat each. A single body for all seats would need registers for the choice of the seat. Without
/// membarrier no thread gets a bias, and the third body takes the ordinary lock.
unsafe fn send_inside<C: SendCall>(
    buf: *const c_void, count: c_int, datatype: usize, dest: c_int, tag: c_int, comm: usize,
    call: C,
) -> c_int {
    let bodies: &[SendBody<C>; 3] = const {
        &[send_seated::<C, FIRST_SEAT>, send_seated::<C, SECOND_SEAT>, send_seated::<C, BY_WORD>]
    };
    // SAFETY: ARGUMENTS; `last_seat` is below 3, the number of bodies.
    unsafe {
        let body = bodies.get_unchecked(lock::last_seat());
        body(buf, count, datatype, dest, tag, comm, call)
    }
}

/// Receives inside the lock. The body is chosen as in [`send_inside`].
unsafe fn recv_inside<C: RecvCall>(
    buf: *mut c_void, count: c_int, datatype: usize, source: c_int, tag: c_int, comm: usize,
    call: C,
) -> c_int {
    let bodies: &[RecvBody<C>; 3] = const {
        &[recv_seated::<C, FIRST_SEAT>, recv_seated::<C, SECOND_SEAT>, recv_seated::<C, BY_WORD>]
    };
    // SAFETY: ARGUMENTS; `last_seat` is below 3, the number of bodies.
    unsafe {
        let body = bodies.get_unchecked(lock::last_seat());
        body(buf, count, datatype, source, tag, comm, call)
    }
}

/// Sends inside the lock, which the thread enters by its bias with seat `SEAT`.
unsafe fn send_seated<C: SendCall, const SEAT: u8>(
    buf: *const c_void, count: c_int, datatype: usize, dest: c_int, tag: c_int, comm: usize,
    call: C,
) -> c_int {
    let count = i64::from(count);
    // Rare continuations are jumps, so that no registers are saved for them.
    // SAFETY: ARGUMENTS.
    unsafe {
        if !hot::sends_inside(comm) {
            return send_slow(buf, count, datatype, dest, tag, comm, call);
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

/// Wakes the receiver of a message that has been sent, and leaves the lock.
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

/// Wakes a thread that requested the lock while the calling thread was inside.
#[cold]
#[inline(never)]
fn wake<const SEAT: u8>() -> c_int {
    lock::wake::<SEAT>();
    hide(MPI_SUCCESS) // a jump, as in `recv_post`
}

/// Returns credits like [`tell_taken`], and leaves the lock.
///
/// # Safety
/// The contract is that of [`CopiedSlot::tell`].
#[cold]
#[inline(never)]
unsafe fn tell_taken_inside<const SEAT: u8>(copied: CopiedSlot) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe { copied.tell() };
    lock::leave_surely::<SEAT>();
    hide(MPI_SUCCESS)
}

/// Sends with the ordinary lock instead of the bias.
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

/// Receives inside the lock, which the thread enters by its bias with seat `SEAT`.
unsafe fn recv_seated<C: RecvCall, const SEAT: u8>(
    buf: *mut c_void, count: c_int, datatype: usize, source: c_int, tag: c_int, comm: usize,
    call: C,
) -> c_int {
    let count = i64::from(count);
    let envelope = || Envelope::new(source, tag);
    // SAFETY: ARGUMENTS.
    unsafe {
        if !hot::receives_inside(comm) {
            return recv_slow(buf, count, datatype, source, tag, comm, call);
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
                true => tell_taken_inside::<SEAT>(copied),
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

/// Posts like [`recv_post`], and leaves the lock.
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

/// Receives with the ordinary lock instead of the bias.
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
        if FROM == DECLINED {
            // `try_recv` has already declined inside the lock, so only queued messages are tried.
            if !call.try_recv_queued::<INSIDE>(args) {
                return call.poll_inside(args, lock::leave_surely::<SEAT>);
            }
            lock::leave_surely::<SEAT>();
            return MPI_SUCCESS;
        }
        match lock::with_lock(|| call.recv_shortly::<INSIDE>(args)) {
            true => MPI_SUCCESS,
            false => recv_slow(buf, count, datatype, source, tag, comm, call),
        }
    }
}
