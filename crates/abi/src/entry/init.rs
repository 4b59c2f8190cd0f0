//! Initialisation, finalisation and threads (MPI 5.0, chapter 11).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::p2p_immediate::choose_bodies;
use super::store;
use core::ffi::{c_char, c_int};
use fastpath_mpi::common::consts::*;
use fastpath_mpi::lifecycle::finalize;
use fastpath_mpi::process::errhandler::abort;
use fastpath_mpi::process::{self, ProcessPhase};
use fastpath_mpi::{Process, Result};

/// # Safety
/// Always sound: the arguments are ignored.
pub unsafe fn init(_argc: *mut c_int, _argv: *mut *mut *mut c_char) -> Result<()> {
    fastpath_mpi::lifecycle::init::init(MPI_THREAD_SINGLE)?;
    choose_bodies();
    Ok(())
}

pub unsafe fn init_thread(
    _argc: *mut c_int, _argv: *mut *mut *mut c_char, required: c_int, provided: *mut c_int,
) -> Result<()> {
    let level = fastpath_mpi::lifecycle::init::init(required)?;
    choose_bodies();
    // SAFETY: ARGUMENTS.
    unsafe { store(provided, level) }
}

pub unsafe fn finalize(p: &Process) -> Result<()> {
    finalize::finalize(p)
}

pub fn initialized() -> Result<c_int> {
    Ok((process::world_phase() != ProcessPhase::Uninitialized) as c_int)
}

pub fn finalized() -> Result<c_int> {
    Ok((process::world_phase() == ProcessPhase::Finalized) as c_int)
}

pub fn query_thread(p: &Process) -> Result<c_int> {
    Ok(p.thread_level.get())
}

pub fn is_thread_main(p: &Process) -> Result<c_int> {
    Ok(p.is_main_thread() as c_int)
}

pub unsafe fn abort(p: &Process, comm: usize, errorcode: c_int) -> Result<()> {
    abort::abort_by_program(p, p.comm(comm).ok().as_deref(), errorcode)
}
