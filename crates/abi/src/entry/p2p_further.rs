//! The immediate path of sends and receives inside the lock of a further worker (`fastpath_mpi::common::places`).
//!
//! The functions of `p2p_inside` jump here where the hot tables do not show the communicator as one of the first
//! worker.
//!
//! **ARGUMENTS.** What pointers among the arguments point to: see the module above.
#![allow(unsafe_code)]

use super::p2p::args;
use super::p2p_calls::{RecvCall, SendCall};
use super::p2p_immediate::{recv_slow, send_slow};
use core::ffi::{c_int, c_void};
use fastpath_mpi::common::consts::*;
use fastpath_mpi::common::places;
use fastpath_mpi::objects::arguments::Args;
use fastpath_mpi::objects::hot::{self, FURTHER, SPREAD};
use fastpath_mpi::p2p::Immediate;
use fastpath_mpi::p2p::slow;
use fastpath_mpi::{Result, process};

/// What became of an immediate send.
enum Sent {
    Done,
    Declined,
    /// The receiver has gone; so many bytes nobody takes.
    Gone(u64),
}

/// An immediate send inside the communicator's worker.
///
/// # Safety
/// As [`SendCall::try_send`].
unsafe fn send_within<C: SendCall>(args: Args, call: C) -> Sent {
    if !call.is_given() {
        return Sent::Declined;
    }
    // SAFETY: as for this function.
    unsafe {
        if let Some(place) = hot::further_sends(args.comm) {
            return send_at::<C, FURTHER>(place, args, call);
        }
        match hot::spread_sends(args.comm, args.peer, args.tag) {
            Some(place) => send_at::<C, SPREAD>(place, args, call),
            None => Sent::Declined,
        }
    }
}

/// The same, of the worker at a place.
#[inline]
unsafe fn send_at<C: SendCall, const WAY: u8>(place: u32, args: Args, call: C) -> Sent {
    // SAFETY: the buffer is readable, as for `MPI_Send`; the thread is inside the worker, and what has sent has found
    // the peer's endpoint.
    places::with(place, || unsafe {
        let entry = || hot::entry::<WAY>(args.comm, args.peer, args.tag);
        match call.try_send::<WAY>(args) {
            Immediate::Done => Sent::Done,
            Immediate::Declined if slow::try_send_eager::<WAY>(args) => Sent::Done,
            Immediate::Declined => Sent::Declined,
            Immediate::Wake(_) if slow::wake_peer(entry(), args.peer) => Sent::Done,
            Immediate::Wake(bytes) => Sent::Gone(bytes),
        }
    })
}

/// An immediate receive inside the communicator's worker; false where it is declined.
///
/// # Safety
/// As [`RecvCall::try_recv`].
unsafe fn recv_within<C: RecvCall>(args: Args, call: C) -> bool {
    // SAFETY: as for this function; the thread is inside the worker.
    unsafe {
        if let Some(place) = hot::further_receives(args.comm) {
            return recv_at::<C, FURTHER>(place, args, call);
        }
        hot::spread_receives(args.comm, args.peer, args.tag)
            .is_some_and(|place| recv_at::<C, SPREAD>(place, args, call))
    }
}

#[inline]
unsafe fn recv_at<C: RecvCall, const WAY: u8>(place: u32, args: Args, call: C) -> bool {
    // SAFETY: the buffer is writable, as for `MPI_Recv`; the thread is inside the worker.
    places::with(place, || unsafe { call.recv_shortly::<WAY>(args) })
}

/// The error of a send whose receiver has gone; made inside MPI.
#[cold]
fn refuse(name: &'static str, args: Args, bytes: u64) -> Result<()> {
    let _p = process::enter(name, false)?;
    Err(slow::explain_gone(args.comm, args.peer, args.tag, bytes))
}

/// # Safety
/// The standard's.
#[cold]
#[inline(never)]
pub(super) unsafe fn send_elsewhere<C: SendCall>(
    buf: *const c_void, count: i64, datatype: usize, dest: c_int, tag: c_int, comm: usize, call: C,
) -> c_int {
    let args = args(buf, count, datatype, dest, tag, comm);
    // SAFETY: ARGUMENTS.
    unsafe {
        match send_within(args, call) {
            Sent::Done => {
                call.complete();
                MPI_SUCCESS
            }
            Sent::Declined => send_slow(buf, count, datatype, dest, tag, comm, call),
            Sent::Gone(bytes) => call.finish(refuse(C::NAME, args, bytes), comm),
        }
    }
}

/// # Safety
/// The standard's.
#[cold]
#[inline(never)]
pub(super) unsafe fn recv_elsewhere<C: RecvCall>(
    buf: *mut c_void, count: i64, datatype: usize, source: c_int, tag: c_int, comm: usize, call: C,
) -> c_int {
    let args = args(buf, count, datatype, source, tag, comm);
    // SAFETY: ARGUMENTS.
    unsafe {
        match recv_within(args, call) {
            true => MPI_SUCCESS,
            false => recv_slow(buf, count, datatype, source, tag, comm, call),
        }
    }
}
