//! Point-to-point communication (MPI-5.0 chapter 3).
//!
//! **ARGUMENTS.** What pointers among the arguments point to: see the module above.
#![allow(unsafe_code)]

use super::arguments::Sent;
use super::{clear, store};
use core::ffi::{c_int, c_void};
use fastpath_mpi::common::consts::*;
use fastpath_mpi::common::status::Status;
use fastpath_mpi::objects::arguments::{Args, Mode};
use fastpath_mpi::p2p::buffered::{Owner, attach, flush};
use fastpath_mpi::p2p::request;
use fastpath_mpi::p2p::slow;
use fastpath_mpi::process::errhandler::{Scope, raise};
use fastpath_mpi::{Process, Result};

#[inline]
pub(super) fn args(
    buf: *const c_void, count: i64, datatype: usize, peer: c_int, tag: c_int, comm: usize,
) -> Args {
    Args { buf: buf.cast_mut().cast(), count, datatype, peer, tag, comm }
}

/// Source and tag in one argument: with them all arguments of a receive are in registers, and a function can end in a
/// jump to another one.
#[derive(Clone, Copy)]
pub(super) struct Envelope(u64);

impl Envelope {
    #[inline(always)] // `fastpath bench instructions` counts MPI_Recv
    pub(super) fn new(source: c_int, tag: c_int) -> Self {
        Envelope(u64::from(source as u32) | (tag as u64) << 32)
    }

    pub(super) fn source(self) -> c_int {
        self.0 as c_int
    }

    pub(super) fn tag(self) -> c_int {
        (self.0 >> 32) as c_int
    }
}

/// The code of a result; an error goes to the communicator's handler.
pub(super) fn finish(result: Result<()>, name: &'static str, comm: usize) -> c_int {
    match result {
        Ok(()) => MPI_SUCCESS,
        Err(error) => raise(None, Scope::Comm(comm), name, error),
    }
}

/// As [`finish`]; a call that fails gives no request.
///
/// # Safety
/// `request` is null or a variable.
pub(super) unsafe fn finish_request(
    result: Result<()>, name: &'static str, comm: usize, request: *mut usize,
) -> c_int {
    if result.is_err() {
        // SAFETY: ARGUMENTS.
        unsafe { clear(request, MPI_REQUEST_NULL) };
    }
    finish(result, name, comm)
}

/// # Safety
/// The standard's.
pub unsafe fn ssend(message: Sent) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { slow::send("MPI_Ssend", message.into(), Mode::Synchronous) }
}

/// # Safety
/// The standard's.
pub unsafe fn bsend(message: Sent) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { slow::send("MPI_Bsend", message.into(), Mode::Buffered) }
}

/// # Safety
/// The standard's.
pub unsafe fn rsend(message: Sent) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { slow::send("MPI_Rsend", message.into(), Mode::Ready) }
}

/// # Safety
/// The standard's.
pub unsafe fn issend(message: Sent, request: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { slow::isend("MPI_Issend", message.into(), Mode::Synchronous, request) }
}

/// # Safety
/// The standard's.
pub unsafe fn ibsend(message: Sent, request: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { slow::isend("MPI_Ibsend", message.into(), Mode::Buffered, request) }
}

/// # Safety
/// The standard's.
pub unsafe fn irsend(message: Sent, request: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { slow::isend("MPI_Irsend", message.into(), Mode::Ready, request) }
}

/// # Safety
/// The standard's.
pub unsafe fn sendrecv(
    sendbuf: *const c_void, sendcount: i64, sendtype: usize, dest: c_int, sendtag: c_int,
    recvbuf: *mut c_void, recvcount: i64, recvtype: usize, source: c_int, recvtag: c_int,
    comm: usize, status: *mut Status,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        let out = args(sendbuf, sendcount, sendtype, dest, sendtag, comm);
        let into = args(recvbuf, recvcount, recvtype, source, recvtag, comm);
        slow::sendrecv("MPI_Sendrecv", out, into, status)
    }
}

/// # Safety
/// The standard's.
pub unsafe fn sendrecv_replace(
    p: &Process, buf: *mut c_void, count: i64, datatype: usize, dest: c_int, sendtag: c_int,
    source: c_int, recvtag: c_int, comm: usize, status: *mut Status,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        let out = args(buf, count, datatype, dest, sendtag, comm);
        let into = args(buf, count, datatype, source, recvtag, comm);
        slow::sendrecv_replace(p, out, into, status)
    }
}

/// # Safety
/// The standard's.
pub unsafe fn buffer_attach(p: &Process, buffer: *mut c_void, size: i64) -> Result<()> {
    attach(p, Owner::Process, buffer as usize, size)
}

/// # Safety
/// The standard's.
pub unsafe fn buffer_detach<C: super::Count>(
    p: &Process, buffer_addr: *mut c_void, size: *mut C,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { super::buffer::detach_into(p, Owner::Process, buffer_addr, size) }
}

/// # Safety
/// The standard's.
pub unsafe fn buffer_flush(p: &Process) -> Result<()> {
    flush(p, Owner::Process)
}

/// # Safety
/// The standard's.
pub unsafe fn isendrecv(
    p: &Process, sendbuf: *const c_void, sendcount: i64, sendtype: usize, dest: c_int,
    sendtag: c_int, recvbuf: *mut c_void, recvcount: i64, recvtype: usize, source: c_int,
    recvtag: c_int, comm: usize, request: *mut usize,
) -> Result<()> {
    let out = args(sendbuf, sendcount, sendtype, dest, sendtag, comm);
    let into = args(recvbuf, recvcount, recvtype, source, recvtag, comm);
    // SAFETY: ARGUMENTS.
    unsafe { store(request, request::isendrecv(p, out, into, None)?) }
}

/// # Safety
/// The standard's.
pub unsafe fn isendrecv_replace(
    p: &Process, buf: *mut c_void, count: i64, datatype: usize, dest: c_int, sendtag: c_int,
    source: c_int, recvtag: c_int, comm: usize, request: *mut usize,
) -> Result<()> {
    let out = args(buf, count, datatype, dest, sendtag, comm);
    let into = args(buf, count, datatype, source, recvtag, comm);
    // SAFETY: ARGUMENTS.
    unsafe { store(request, request::isendrecv_replace(p, out, into)?) }
}
