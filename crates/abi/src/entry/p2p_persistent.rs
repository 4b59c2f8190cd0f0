//! Persistent sends and receives (MPI-5.0 section 3.9).
//!
//! **ARGUMENTS.** What pointers among the arguments point to: see the module above.
#![allow(unsafe_code)]

use super::p2p::args;
use super::store;
use core::ffi::{c_int, c_void};
use fastpath_mpi::p2p::Mode;
use fastpath_mpi::{Process, Result, request};

/// # Safety
/// The standard's.
pub unsafe fn send_init(
    p: &Process,
    buf: *const c_void,
    count: i64,
    datatype: usize,
    dest: c_int,
    tag: c_int,
    comm: usize,
    request: *mut usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        store(
            request,
            request::make_persistent(
                p,
                "MPI_Send_init",
                args(buf, count, datatype, dest, tag, comm),
                Some(Mode::Standard),
            )?,
        )
    }
}

/// # Safety
/// The standard's.
pub unsafe fn ssend_init(
    p: &Process,
    buf: *const c_void,
    count: i64,
    datatype: usize,
    dest: c_int,
    tag: c_int,
    comm: usize,
    request: *mut usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        store(
            request,
            request::make_persistent(
                p,
                "MPI_Ssend_init",
                args(buf, count, datatype, dest, tag, comm),
                Some(Mode::Synchronous),
            )?,
        )
    }
}

/// # Safety
/// The standard's.
pub unsafe fn bsend_init(
    p: &Process,
    buf: *const c_void,
    count: i64,
    datatype: usize,
    dest: c_int,
    tag: c_int,
    comm: usize,
    request: *mut usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        store(
            request,
            request::make_persistent(
                p,
                "MPI_Bsend_init",
                args(buf, count, datatype, dest, tag, comm),
                Some(Mode::Buffered),
            )?,
        )
    }
}

/// # Safety
/// The standard's.
pub unsafe fn rsend_init(
    p: &Process,
    buf: *const c_void,
    count: i64,
    datatype: usize,
    dest: c_int,
    tag: c_int,
    comm: usize,
    request: *mut usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        store(
            request,
            request::make_persistent(
                p,
                "MPI_Rsend_init",
                args(buf, count, datatype, dest, tag, comm),
                Some(Mode::Ready),
            )?,
        )
    }
}

/// # Safety
/// The standard's.
pub unsafe fn recv_init(
    p: &Process,
    buf: *mut c_void,
    count: i64,
    datatype: usize,
    source: c_int,
    tag: c_int,
    comm: usize,
    request: *mut usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        store(
            request,
            request::make_persistent(
                p,
                "MPI_Recv_init",
                args(buf, count, datatype, source, tag, comm),
                None,
            )?,
        )
    }
}
