//! `PMPI_X`, and `MPI_X` as another name of it, for every function of the standard.
//!
//! A call that fails sets its results to null and goes to the error handler; nothing else happens
//! here.
#![allow(unsafe_code, non_snake_case, missing_docs, unused_imports, unused_unsafe)]
#![allow(
    clippy::missing_safety_doc,
    clippy::undocumented_unsafe_blocks,
    clippy::too_many_arguments,
    clippy::redundant_field_names,
    clippy::pedantic
)]

use crate::entry::{self, clear};
use core::ffi::{c_char, c_int, c_void};
use fastpath_mpi::Error;
use fastpath_mpi::common::consts::*;
use fastpath_mpi::common::status::Status;
use fastpath_mpi::process::enter;
use fastpath_mpi::process::errhandler::{HandlerKind, Scope, raise as fail};

include!(concat!(env!("OUT_DIR"), "/exports.rs"));

/// For a function of a later table that has no body yet.
#[cold]
#[inline(never)]
#[allow(dead_code)]
fn fail_unsupported(scope: Scope, name: &'static str) -> c_int {
    fail(None, scope, name, Error::unsupported(name))
}

/// The handle that a caller's variable holds, 0 (never valid) without a variable.
///
/// # Safety
/// `handle` is null or points to a handle.
unsafe fn read_handle(handle: *const usize) -> usize {
    if handle.is_null() {
        0
    } else {
        // SAFETY: not null, so it points to a handle, as the caller promises.
        unsafe { *handle }
    }
}
