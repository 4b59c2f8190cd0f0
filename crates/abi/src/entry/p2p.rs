//! Point-to-point communication (MPI 5.0, chapter 3), except the four calls of `p2p_immediate`.
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::arguments::SendArguments;
use super::arguments::args;
use super::store;
use core::ffi::{c_int, c_void};
use fastpath_mpi::common::status::Status;
use fastpath_mpi::objects::arguments::{Args, Mode};
use fastpath_mpi::p2p::buffered::{Owner, attach, flush};
use fastpath_mpi::p2p::request;
use fastpath_mpi::p2p::slow;
use fastpath_mpi::{Process, Result};

pub unsafe fn ssend(message: SendArguments) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { slow::send("MPI_Ssend", message.into(), Mode::Synchronous) }
}

pub unsafe fn bsend(message: SendArguments) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { slow::send("MPI_Bsend", message.into(), Mode::Buffered) }
}

pub unsafe fn rsend(message: SendArguments) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { slow::send("MPI_Rsend", message.into(), Mode::Ready) }
}

pub unsafe fn issend(message: SendArguments, request: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { slow::isend("MPI_Issend", message.into(), Mode::Synchronous, request) }
}

pub unsafe fn ibsend(message: SendArguments, request: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { slow::isend("MPI_Ibsend", message.into(), Mode::Buffered, request) }
}

pub unsafe fn irsend(message: SendArguments, request: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { slow::isend("MPI_Irsend", message.into(), Mode::Ready, request) }
}

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

pub unsafe fn buffer_attach(p: &Process, buffer: *mut c_void, size: i64) -> Result<()> {
    attach(p, Owner::Process, buffer as usize, size)
}

pub unsafe fn buffer_detach<C: super::Count>(
    p: &Process, buffer_addr: *mut c_void, size: *mut C,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { super::buffer::detach_into(p, Owner::Process, buffer_addr, size) }
}

pub unsafe fn buffer_flush(p: &Process) -> Result<()> {
    flush(p, Owner::Process)
}

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

pub unsafe fn isendrecv_replace(
    p: &Process, buf: *mut c_void, count: i64, datatype: usize, dest: c_int, sendtag: c_int,
    source: c_int, recvtag: c_int, comm: usize, request: *mut usize,
) -> Result<()> {
    let out = args(buf, count, datatype, dest, sendtag, comm);
    let into = args(buf, count, datatype, source, recvtag, comm);
    // SAFETY: ARGUMENTS.
    unsafe { store(request, request::isendrecv_replace(p, out, into)?) }
}

/// Makes a persistent send, or a receive if `mode` is `None` (MPI 5.0, section 3.9).
unsafe fn make_persistent(
    p: &Process, call: &'static str, message: Args, mode: Option<Mode>, request: *mut usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { store(request, request::make_persistent(p, call, message, mode)?) }
}

pub unsafe fn send_init(p: &Process, message: SendArguments, request: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { make_persistent(p, "MPI_Send_init", message.into(), Some(Mode::Standard), request) }
}

pub unsafe fn ssend_init(p: &Process, message: SendArguments, request: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        make_persistent(p, "MPI_Ssend_init", message.into(), Some(Mode::Synchronous), request)
    }
}

pub unsafe fn bsend_init(p: &Process, message: SendArguments, request: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { make_persistent(p, "MPI_Bsend_init", message.into(), Some(Mode::Buffered), request) }
}

pub unsafe fn rsend_init(p: &Process, message: SendArguments, request: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { make_persistent(p, "MPI_Rsend_init", message.into(), Some(Mode::Ready), request) }
}

pub unsafe fn recv_init(
    p: &Process, buf: *mut c_void, count: i64, datatype: usize, source: c_int, tag: c_int,
    comm: usize, request: *mut usize,
) -> Result<()> {
    let message = args(buf, count, datatype, source, tag, comm);
    // SAFETY: ARGUMENTS.
    unsafe { make_persistent(p, "MPI_Recv_init", message, None, request) }
}
