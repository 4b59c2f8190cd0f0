//! The immediate path of sends and receives inside the lock of a further worker (`fastpath_mpi::places`).
//!
//! The functions of `p2p_inside` jump here where the hot tables do not show the communicator as one of the first
//! worker.
//!
//! **ARGUMENTS.** What pointers among the arguments point to: see the module above.
#![allow(unsafe_code)]

use super::p2p::{args, finish, finish_request};
use super::p2p_immediate::{irecv_slow, isend_slow, recv_slow, send_slow};
use core::ffi::{c_int, c_void};
use fastpath_mpi::consts::*;
use fastpath_mpi::hot::{self, FURTHER, SPREAD};
use fastpath_mpi::p2p::{self, Args, Immediate, Irecv};
use fastpath_mpi::status::Status;
use fastpath_mpi::{Result, p2p_slow as slow, places, process, request};

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
/// As [`p2p::try_send`].
unsafe fn send_within<const MORE: bool>(args: Args) -> Sent {
    // SAFETY: as for this function.
    unsafe {
        if let Some(place) = hot::further_sends(args.comm) {
            return send_at::<MORE, FURTHER>(place, args);
        }
        match hot::spread_sends(args.comm, args.peer, args.tag) {
            Some(place) => send_at::<MORE, SPREAD>(place, args),
            None => Sent::Declined,
        }
    }
}

/// The same, of the worker at a place.
#[inline]
unsafe fn send_at<const MORE: bool, const WAY: u8>(place: u32, args: Args) -> Sent {
    // SAFETY: the buffer is readable, as for `MPI_Send`; the thread is inside the worker, and what has sent has found
    // the peer's endpoint.
    places::with(place, || unsafe {
        let entry = || hot::entry::<WAY>(args.comm, args.peer, args.tag);
        match p2p::try_send::<MORE, WAY>(args) {
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
/// As [`p2p::try_recv`].
unsafe fn recv_within(args: Args, status: *mut Status) -> bool {
    // SAFETY: as for this function; the thread is inside the worker.
    unsafe {
        if let Some(place) = hot::further_receives(args.comm) {
            return recv_at::<FURTHER>(place, args, status);
        }
        hot::spread_receives(args.comm, args.peer, args.tag)
            .is_some_and(|place| recv_at::<SPREAD>(place, args, status))
    }
}

#[inline]
unsafe fn recv_at<const WAY: u8>(place: u32, args: Args, status: *mut Status) -> bool {
    // SAFETY: the buffer is writable, as for `MPI_Recv`; the thread is inside the worker.
    places::with(place, || unsafe {
        p2p::try_recv::<WAY>(args, status) || p2p::try_recv_queued::<WAY>(args, status)
    })
}

/// As [`recv_within`], with a request, which is not null.
unsafe fn irecv_within(args: Args, request: *mut usize) -> bool {
    // SAFETY: as for this function.
    unsafe {
        if let Some(place) = hot::further_receives(args.comm) {
            return irecv_at::<FURTHER>(place, args, request);
        }
        hot::spread_receives(args.comm, args.peer, args.tag)
            .is_some_and(|place| irecv_at::<SPREAD>(place, args, request))
    }
}

#[inline]
unsafe fn irecv_at<const WAY: u8>(place: u32, args: Args, request: *mut usize) -> bool {
    // SAFETY: the buffer is writable, as for `MPI_Irecv`; the thread is inside the worker.
    places::with(place, || unsafe {
        match p2p::try_irecv::<WAY>(args, request) {
            Irecv::Done(copied) => {
                copied.take();
                true
            }
            Irecv::Post(posting) => {
                *request = p2p::post_irecv::<WAY>(posting, args.buf, args.tag, args.comm);
                true
            }
            Irecv::Declined => p2p::try_irecv_queued::<WAY>(args, request),
        }
    })
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
pub(super) unsafe fn send_elsewhere(
    buf: *const c_void, count: i64, datatype: usize, dest: c_int, tag: c_int, comm: usize,
) -> c_int {
    let args = args(buf, count, datatype, dest, tag, comm);
    // SAFETY: ARGUMENTS.
    unsafe {
        match send_within::<false>(args) {
            Sent::Done => MPI_SUCCESS,
            Sent::Declined => send_slow(buf, count, datatype, dest, tag, comm),
            Sent::Gone(bytes) => finish(refuse("MPI_Send", args, bytes), "MPI_Send", comm),
        }
    }
}

/// # Safety
/// The standard's; `request` is not null.
#[cold]
#[inline(never)]
pub(super) unsafe fn isend_elsewhere(
    buf: *const c_void, count: i64, datatype: usize, dest: c_int, tag: c_int, comm: usize,
    request: *mut usize,
) -> c_int {
    let args = args(buf, count, datatype, dest, tag, comm);
    // SAFETY: ARGUMENTS.
    unsafe {
        match send_within::<true>(args) {
            Sent::Done => {
                *request = request::DONE_HANDLE;
                MPI_SUCCESS
            }
            Sent::Declined => isend_slow(buf, count, datatype, dest, tag, comm, request),
            Sent::Gone(bytes) => {
                let result = refuse("MPI_Isend", args, bytes);
                finish_request(result, "MPI_Isend", comm, request)
            }
        }
    }
}

/// # Safety
/// The standard's.
#[cold]
#[inline(never)]
pub(super) unsafe fn recv_elsewhere(
    buf: *mut c_void, count: i64, datatype: usize, source: c_int, tag: c_int, comm: usize,
    status: *mut Status,
) -> c_int {
    let args = args(buf, count, datatype, source, tag, comm);
    // SAFETY: ARGUMENTS.
    unsafe {
        match recv_within(args, status) {
            true => MPI_SUCCESS,
            false => recv_slow(buf, count, datatype, source, tag, comm, status),
        }
    }
}

/// # Safety
/// The standard's.
#[cold]
#[inline(never)]
pub(super) unsafe fn irecv_elsewhere(
    buf: *mut c_void, count: i64, datatype: usize, source: c_int, tag: c_int, comm: usize,
    request: *mut usize,
) -> c_int {
    let args = args(buf, count, datatype, source, tag, comm);
    // SAFETY: ARGUMENTS.
    unsafe {
        match irecv_within(args, request) {
            true => MPI_SUCCESS,
            false => irecv_slow(buf, count, datatype, source, tag, comm, request),
        }
    }
}
