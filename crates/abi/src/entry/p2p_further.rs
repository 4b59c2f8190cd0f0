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
use fastpath_mpi::hot::{self, FURTHER};
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
    let Some(place) = hot::further_sends(args.comm) else {
        return Sent::Declined;
    };
    // SAFETY: the buffer is readable, as for `MPI_Send`; the thread is inside the worker.
    places::with(place, || unsafe {
        match p2p::try_send::<MORE, FURTHER>(args) {
            Immediate::Done => Sent::Done,
            Immediate::Declined if slow::try_send_eager::<FURTHER>(args) => Sent::Done,
            Immediate::Declined => Sent::Declined,
            Immediate::Wake(_) if slow::wake_sleeping_peer(args.comm, args.peer) => Sent::Done,
            Immediate::Wake(bytes) => Sent::Gone(bytes),
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
    buf: *const c_void,
    count: i64,
    datatype: usize,
    dest: c_int,
    tag: c_int,
    comm: usize,
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
    buf: *const c_void,
    count: i64,
    datatype: usize,
    dest: c_int,
    tag: c_int,
    comm: usize,
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
    buf: *mut c_void,
    count: i64,
    datatype: usize,
    source: c_int,
    tag: c_int,
    comm: usize,
    status: *mut Status,
) -> c_int {
    let args = args(buf, count, datatype, source, tag, comm);
    // SAFETY: ARGUMENTS; the thread is inside the worker.
    unsafe {
        let received = hot::further_receives(comm).is_some_and(|place| {
            places::with(place, || {
                p2p::try_recv::<FURTHER>(args, status)
                    || p2p::try_recv_queued::<FURTHER>(args, status)
            })
        });
        match received {
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
    buf: *mut c_void,
    count: i64,
    datatype: usize,
    source: c_int,
    tag: c_int,
    comm: usize,
    request: *mut usize,
) -> c_int {
    let args = args(buf, count, datatype, source, tag, comm);
    // SAFETY: ARGUMENTS; the thread is inside the worker.
    unsafe {
        let started = hot::further_receives(comm).is_some_and(|place| {
            places::with(place, || match p2p::try_irecv::<FURTHER>(args, request) {
                Irecv::Done(copied) => {
                    copied.take();
                    true
                }
                Irecv::Post(posting) => {
                    *request = p2p::post_irecv::<FURTHER>(posting, args.buf, tag, comm);
                    true
                }
                Irecv::Declined => p2p::try_irecv_queued::<FURTHER>(args, request),
            })
        });
        match started {
            true => MPI_SUCCESS,
            false => irecv_slow(buf, count, datatype, source, tag, comm, request),
        }
    }
}
