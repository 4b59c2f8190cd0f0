//! Exports of every function of the standard, as `PMPI_X` and, by an alternative name, as `MPI_X`.
//!
//! A failing call sets its results to null and calls the error handler.
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
use fastpath_mpi::common::consts::*;
use fastpath_mpi::common::status::Status;
use fastpath_mpi::process::enter;
use fastpath_mpi::process::errhandler::{HandlerKind, Scope, raise as fail};

include!(concat!(env!("OUT_DIR"), "/exports.rs"));

/// Returns the handle in a caller's variable. For a null pointer, returns 0, which is never a valid handle.
///
/// # Safety
/// `handle` is null or points to a handle.
unsafe fn read_handle(handle: *const usize) -> usize {
    if handle.is_null() {
        0
    } else {
        // SAFETY: `handle` is not null, and so points to a handle by this function's contract.
        unsafe { *handle }
    }
}
