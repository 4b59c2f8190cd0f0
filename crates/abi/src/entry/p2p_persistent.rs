//! Persistent sends and receives (MPI-5.0 section 3.9).
//!
//! **ARGUMENTS.** What pointers among the arguments point to: see the module above.
#![allow(unsafe_code)]

use super::arguments::Sent;
use super::p2p::args;
use super::store;
use core::ffi::{c_int, c_void};
use fastpath_mpi::objects::arguments::{Args, Mode};
use fastpath_mpi::p2p::request;
use fastpath_mpi::{Process, Result};

/// Makes a persistent send, or a receive where there is no mode.
///
/// # Safety
/// As the calls below.
unsafe fn make(
    p: &Process, call: &'static str, message: Args, mode: Option<Mode>, request: *mut usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { store(request, request::make_persistent(p, call, message, mode)?) }
}

/// # Safety
/// The standard's.
pub unsafe fn send_init(p: &Process, message: Sent, request: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { make(p, "MPI_Send_init", message.into(), Some(Mode::Standard), request) }
}

/// # Safety
/// The standard's.
pub unsafe fn ssend_init(p: &Process, message: Sent, request: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { make(p, "MPI_Ssend_init", message.into(), Some(Mode::Synchronous), request) }
}

/// # Safety
/// The standard's.
pub unsafe fn bsend_init(p: &Process, message: Sent, request: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { make(p, "MPI_Bsend_init", message.into(), Some(Mode::Buffered), request) }
}

/// # Safety
/// The standard's.
pub unsafe fn rsend_init(p: &Process, message: Sent, request: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { make(p, "MPI_Rsend_init", message.into(), Some(Mode::Ready), request) }
}

/// # Safety
/// The standard's.
pub unsafe fn recv_init(
    p: &Process, buf: *mut c_void, count: i64, datatype: usize, source: c_int, tag: c_int,
    comm: usize, request: *mut usize,
) -> Result<()> {
    let message = args(buf, count, datatype, source, tag, comm);
    // SAFETY: ARGUMENTS.
    unsafe { make(p, "MPI_Recv_init", message, None, request) }
}
