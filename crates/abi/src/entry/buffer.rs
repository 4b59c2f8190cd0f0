//! Buffers of communicators and sessions, and flushes of all buffers (MPI 5.0, section 3.6).
//!
//! **ARGUMENTS.** What pointers among the arguments point to: see the module above.
#![allow(unsafe_code)]

use super::{Count, store};
use core::ffi::c_void;
use fastpath_mpi::p2p::buffered::{Owner, attach, detach, flush, iflush};
use fastpath_mpi::{Process, Result};

/// Detaches a buffer and stores where it lies, and its size.
///
/// # Safety
/// `buffer_addr` is null or the address of a pointer; `size` is null or a variable.
pub(crate) unsafe fn detach_into<C: Count>(
    p: &Process, owner: Owner, buffer_addr: *mut c_void, size: *mut C,
) -> Result<()> {
    let (address, bytes) = detach(p, owner)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        store(buffer_addr.cast::<usize>(), address)?;
        store(size, C::from_i64_or_undefined(bytes))
    }
}

/// `MPI_Buffer_iflush`
pub fn buffer_iflush(p: &Process) -> Result<usize> {
    iflush(p, Owner::Process)
}

/// `MPI_Comm_attach_buffer`
///
/// # Safety
/// The standard's.
pub unsafe fn comm_attach_buffer(
    p: &Process, comm: usize, buffer: *mut c_void, size: i64,
) -> Result<()> {
    attach(p, Owner::Comm(comm), buffer as usize, size)
}

/// `MPI_Comm_detach_buffer`
///
/// # Safety
/// As [`detach_into`].
pub unsafe fn comm_detach_buffer<C: Count>(
    p: &Process, comm: usize, buffer_addr: *mut c_void, size: *mut C,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { detach_into(p, Owner::Comm(comm), buffer_addr, size) }
}

/// `MPI_Comm_flush_buffer`
pub fn comm_flush_buffer(p: &Process, comm: usize) -> Result<()> {
    flush(p, Owner::Comm(comm))
}

/// `MPI_Comm_iflush_buffer`
pub fn comm_iflush_buffer(p: &Process, comm: usize) -> Result<usize> {
    iflush(p, Owner::Comm(comm))
}

/// `MPI_Session_attach_buffer`
///
/// # Safety
/// The standard's.
pub unsafe fn session_attach_buffer(
    p: &Process, session: usize, buffer: *mut c_void, size: i64,
) -> Result<()> {
    attach(p, Owner::Session(session), buffer as usize, size)
}

/// `MPI_Session_detach_buffer`
///
/// # Safety
/// As [`detach_into`].
pub unsafe fn session_detach_buffer<C: Count>(
    p: &Process, session: usize, buffer_addr: *mut c_void, size: *mut C,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { detach_into(p, Owner::Session(session), buffer_addr, size) }
}

/// `MPI_Session_flush_buffer`
pub fn session_flush_buffer(p: &Process, session: usize) -> Result<()> {
    flush(p, Owner::Session(session))
}

/// `MPI_Session_iflush_buffer`
pub fn session_iflush_buffer(p: &Process, session: usize) -> Result<usize> {
    iflush(p, Owner::Session(session))
}
