//! Generalized requests (MPI 5.0, section 13.2).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::store;
use core::ffi::c_void;
use fastpath_mpi::p2p::request::generalized;
use fastpath_mpi::{Process, Result};

/// # Safety
/// The functions are null or of the right types; `request` is null or a variable.
pub unsafe fn grequest_start(
    p: &Process, query_fn: usize, free_fn: usize, cancel_fn: usize, extra_state: *mut c_void,
    request: *mut usize,
) -> Result<()> {
    let functions = (query_fn, free_fn, cancel_fn);
    // SAFETY: ARGUMENTS.
    unsafe {
        let made = generalized::start_generalized(p, functions, extra_state as usize)?;
        store(request, made)
    }
}

pub fn grequest_complete(p: &Process, request: usize) -> Result<()> {
    generalized::complete_generalized(p, request)
}
