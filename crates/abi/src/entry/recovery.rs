//! Fault tolerance: extensions of `mpi-ext.h` (docs/decisions/0098).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::group::insert_group;
use super::{load, store};
use core::ffi::c_int;
use fastpath_mpi::recovery;
use fastpath_mpi::{Process, Result};

pub fn revoke(p: &Process, comm: usize) -> Result<()> {
    recovery::revoke(p, &p.comm(comm)?)
}

pub fn is_revoked(p: &Process, comm: usize) -> Result<c_int> {
    Ok(recovery::is_revoked(p, &*p.comm(comm)?)?.into())
}

pub fn get_failed(p: &Process, comm: usize) -> Result<usize> {
    insert_group(p, recovery::get_failed(p, &*p.comm(comm)?)?)
}

pub fn ack_failed(p: &Process, comm: usize, num_to_ack: c_int) -> Result<c_int> {
    let count = usize::try_from(num_to_ack).unwrap_or(0);
    Ok(recovery::acknowledge(p, &*p.comm(comm)?, count)? as c_int)
}

pub fn failure_ack(p: &Process, comm: usize) -> Result<()> {
    recovery::acknowledge(p, &*p.comm(comm)?, usize::MAX).map(|_| ())
}

pub fn failure_get_acked(p: &Process, comm: usize) -> Result<usize> {
    insert_group(p, recovery::get_acknowledged(&*p.comm(comm)?))
}

/// Agrees on the AND of the flags. The flag is valid also if the call returns `MPIX_ERR_PROC_FAILED`.
pub unsafe fn agree(p: &Process, comm: usize, flag: *mut c_int) -> Result<()> {
    let comm = p.comm(comm)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        let (value, outcome) = recovery::agree(p, &comm, load(flag)?)?;
        store(flag, value)?;
        outcome
    }
}

pub unsafe fn iagree(
    p: &Process, comm: usize, flag: *mut c_int, request: *mut usize,
) -> Result<()> {
    let comm = p.comm(comm)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        load(flag)?;
        store(request, recovery::start_agree(p, comm, flag)?)
    }
}

pub fn shrink(p: &Process, comm: usize) -> Result<usize> {
    recovery::shrink(p, &*p.comm(comm)?)
}

/// Starts to shrink. The variable for the new communicator is written when the request completes.
pub unsafe fn ishrink(
    p: &Process, comm: usize, newcomm: *mut usize, request: *mut usize,
) -> Result<()> {
    let comm = p.comm(comm)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        store(newcomm, fastpath_mpi::common::consts::MPI_COMM_NULL)?;
        store(request, recovery::start_shrink(p, comm, newcomm)?)
    }
}
