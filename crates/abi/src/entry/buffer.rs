//! Buffers of communicators and sessions, and flushes of all buffers (MPI 5.0, section 3.6).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::{Count, store};
use core::ffi::c_void;
use fastpath_mpi::p2p::buffered::{Owner, attach, detach, flush, iflush};
use fastpath_mpi::{Process, Result};

/// Detaches a buffer and stores its address and size.
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

pub fn buffer_iflush(p: &Process) -> Result<usize> {
    iflush(p, Owner::Process)
}

pub unsafe fn comm_attach_buffer(
    p: &Process, comm: usize, buffer: *mut c_void, size: i64,
) -> Result<()> {
    attach(p, Owner::Comm(comm), buffer as usize, size)
}

/// # Safety
/// The contract is that of [`detach_into`].
pub unsafe fn comm_detach_buffer<C: Count>(
    p: &Process, comm: usize, buffer_addr: *mut c_void, size: *mut C,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { detach_into(p, Owner::Comm(comm), buffer_addr, size) }
}

pub fn comm_flush_buffer(p: &Process, comm: usize) -> Result<()> {
    flush(p, Owner::Comm(comm))
}

pub fn comm_iflush_buffer(p: &Process, comm: usize) -> Result<usize> {
    iflush(p, Owner::Comm(comm))
}

pub unsafe fn session_attach_buffer(
    p: &Process, session: usize, buffer: *mut c_void, size: i64,
) -> Result<()> {
    attach(p, Owner::Session(session), buffer as usize, size)
}

/// # Safety
/// The contract is that of [`detach_into`].
pub unsafe fn session_detach_buffer<C: Count>(
    p: &Process, session: usize, buffer_addr: *mut c_void, size: *mut C,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { detach_into(p, Owner::Session(session), buffer_addr, size) }
}

pub fn session_flush_buffer(p: &Process, session: usize) -> Result<()> {
    flush(p, Owner::Session(session))
}

pub fn session_iflush_buffer(p: &Process, session: usize) -> Result<usize> {
    iflush(p, Owner::Session(session))
}
