//! Reading and writing files (MPI 5.0, section 14.4): one body for each kind of call.
//!
//! **ARGUMENTS.** What pointers among the arguments point to: see the module above.
#![allow(unsafe_code)]

use super::{Access, Which};
use fastpath_mpi::common::status::Status;
use fastpath_mpi::io;
use fastpath_mpi::p2p::request::write_status;
use fastpath_mpi::{Process, Result};

/// `MPI_File_read` and all that block.
///
/// # Safety
/// The buffer is as count and datatype say; `status` is null or a status.
pub unsafe fn file_read(p: &Process, access: Access, fh: usize, status: *mut Status) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        let done = io::find(p, fh)?.access(p, &access)?;
        write_status(status, done);
    }
    Ok(())
}

/// `MPI_File_iread` and all with a request.
///
/// # Safety
/// The buffer is as count and datatype say.
pub unsafe fn file_iread(p: &Process, access: Access, fh: usize) -> Result<usize> {
    // SAFETY: ARGUMENTS.
    unsafe { io::find(p, fh)?.start(p, &access) }
}

/// `MPI_File_read_all_begin` and all that begin a split collective access (section 14.4.5).
///
/// # Safety
/// The buffer is as count and datatype say.
pub unsafe fn file_read_all_begin(p: &Process, access: Access, fh: usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { io::find(p, fh)?.begin(p, &access) }
}

/// `MPI_File_read_all_end` and all that end one.
///
/// # Safety
/// `status` is null or a status.
pub unsafe fn file_read_all_end(
    p: &Process, which: Which, fh: usize, status: *mut Status,
) -> Result<()> {
    let ended = io::find(p, fh)?.end(which)?;
    // SAFETY: ARGUMENTS.
    unsafe { write_status(status, ended) };
    Ok(())
}
