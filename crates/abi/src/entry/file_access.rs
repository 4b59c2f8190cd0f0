//! Reads and writes of files (MPI 5.0, section 14.4). Each kind of call has one body.
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::{Access, SplitKind};
use fastpath_mpi::common::status::Status;
use fastpath_mpi::io;
use fastpath_mpi::p2p::request::write_status;
use fastpath_mpi::{Process, Result};

/// Runs a blocking access.
pub unsafe fn access(p: &Process, access: Access, fh: usize, status: *mut Status) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        let done = io::find(p, fh)?.access(p, &access)?;
        write_status(status, done);
    }
    Ok(())
}

/// Starts an access with a request.
pub unsafe fn start(p: &Process, access: Access, fh: usize) -> Result<usize> {
    // SAFETY: ARGUMENTS.
    unsafe { io::find(p, fh)?.start(p, &access) }
}

/// Begins a split collective access (section 14.4.5).
pub unsafe fn begin(p: &Process, access: Access, fh: usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { io::find(p, fh)?.begin(p, &access) }
}

/// Ends a split collective access.
pub unsafe fn end(p: &Process, which: SplitKind, fh: usize, status: *mut Status) -> Result<()> {
    let ended = io::find(p, fh)?.end(which)?;
    // SAFETY: ARGUMENTS.
    unsafe { write_status(status, ended) };
    Ok(())
}
