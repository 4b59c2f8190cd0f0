//! Error handlers, error classes, codes and strings (MPI 5.0, sections 9.3 to 9.5).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::{load, read_text, store, store_text};
use core::ffi::{c_char, c_int};
use fastpath_mpi::common::consts::{MPI_ERRHANDLER_NULL, MPI_MAX_ERROR_STRING};
use fastpath_mpi::process::errhandler::{
    HandlerKind, Scope, call_errhandler, create_errhandler, free_errhandler, get_errhandler,
    note_set, set_errhandler,
};
use fastpath_mpi::{Process, Result};

/// # Safety
/// The function is null, or has the type that the standard gives for this call.
pub unsafe fn comm_create_errhandler(p: &Process, comm_errhandler_fn: usize) -> Result<usize> {
    // SAFETY: ARGUMENTS.
    unsafe { create_errhandler(p, HandlerKind::Comm, comm_errhandler_fn) }
}

pub fn comm_set_errhandler(p: &Process, comm: usize, errhandler: usize) -> Result<()> {
    set_errhandler(p, HandlerKind::Comm, &p.comm(comm)?.errhandler, errhandler)?;
    note_set(p, comm);
    Ok(())
}

pub fn comm_get_errhandler(p: &Process, comm: usize) -> Result<usize> {
    let comm = p.comm(comm)?;
    Ok(get_errhandler(p, &comm.errhandler))
}

pub fn comm_call_errhandler(p: &Process, comm: usize, errorcode: c_int) -> Result<()> {
    p.comm(comm)?;
    call_errhandler(p, Scope::Comm(comm), "MPI_Comm_call_errhandler", errorcode);
    Ok(())
}

/// # Safety
/// The contract is that of [`comm_create_errhandler`].
pub unsafe fn win_create_errhandler(p: &Process, win_errhandler_fn: usize) -> Result<usize> {
    // SAFETY: ARGUMENTS.
    unsafe { create_errhandler(p, HandlerKind::Win, win_errhandler_fn) }
}

/// # Safety
/// The contract is that of [`comm_create_errhandler`].
pub unsafe fn file_create_errhandler(p: &Process, file_errhandler_fn: usize) -> Result<usize> {
    // SAFETY: ARGUMENTS.
    unsafe { create_errhandler(p, HandlerKind::File, file_errhandler_fn) }
}

/// # Safety
/// The contract is that of [`comm_create_errhandler`].
pub unsafe fn session_create_errhandler(
    p: &Process, session_errhandler_fn: usize,
) -> Result<usize> {
    // SAFETY: ARGUMENTS.
    unsafe { create_errhandler(p, HandlerKind::Session, session_errhandler_fn) }
}

pub unsafe fn errhandler_free(p: &Process, errhandler: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        free_errhandler(p, load(errhandler)?)?;
        store(errhandler, MPI_ERRHANDLER_NULL)
    }
}

pub fn error_class(p: &Process, errorcode: c_int) -> Result<c_int> {
    Ok(p.codes.class(errorcode))
}

pub unsafe fn error_string(
    p: &Process, errorcode: c_int, string: *mut c_char, resultlen: *mut c_int,
) -> Result<()> {
    let text = p.codes.text(errorcode);
    // SAFETY: ARGUMENTS.
    unsafe { store_text(&text, string, MPI_MAX_ERROR_STRING as usize, resultlen) }
}

pub fn add_error_class(p: &Process) -> Result<c_int> {
    p.codes.add_class()
}

pub fn add_error_code(p: &Process, errorclass: c_int) -> Result<c_int> {
    p.codes.add_code(errorclass)
}

pub unsafe fn add_error_string(p: &Process, errorcode: c_int, string: *const c_char) -> Result<()> {
    // SAFETY: ARGUMENTS.
    let text = unsafe { read_text("string", string, MPI_MAX_ERROR_STRING as usize) }?;
    p.codes.set_text(errorcode, &text)
}

pub fn remove_error_class(p: &Process, errorclass: c_int) -> Result<()> {
    p.codes.remove_class(errorclass)
}

pub fn remove_error_code(p: &Process, errorcode: c_int) -> Result<()> {
    p.codes.remove_code(errorcode)
}

pub fn remove_error_string(p: &Process, errorcode: c_int) -> Result<()> {
    p.codes.remove_text(errorcode)
}
