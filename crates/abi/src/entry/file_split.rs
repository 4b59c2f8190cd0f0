//! Split collective accesses of files (MPI 5.0, section 14.4.5).
//!
//! **ARGUMENTS.** What pointers among the arguments point to: see the module above.
#![allow(unsafe_code)]

use core::ffi::c_void;
use fastpath_mpi::file::access::{Access, Place};
use fastpath_mpi::file::{self, split::Which};
use fastpath_mpi::request::write_status;
use fastpath_mpi::status::Status;
use fastpath_mpi::{Process, Result};

/// `MPI_File_read_at_all_begin`
///
/// # Safety
/// The buffer is as count and datatype say.
pub unsafe fn file_read_at_all_begin(
    p: &Process,
    fh: usize,
    offset: i64,
    buf: *mut c_void,
    count: i64,
    datatype: usize,
) -> Result<()> {
    let access = Access {
        writes: false,
        place: Place::At(offset),
        collective: true,
        buf: buf.cast(),
        count,
        datatype,
    };
    // SAFETY: ARGUMENTS.
    unsafe { file::find(p, fh)?.begin(p, &access) }
}

/// `MPI_File_write_at_all_begin`
///
/// # Safety
/// The buffer is as count and datatype say.
pub unsafe fn file_write_at_all_begin(
    p: &Process,
    fh: usize,
    offset: i64,
    buf: *const c_void,
    count: i64,
    datatype: usize,
) -> Result<()> {
    let access = Access {
        writes: true,
        place: Place::At(offset),
        collective: true,
        buf: buf.cast::<u8>().cast_mut(),
        count,
        datatype,
    };
    // SAFETY: ARGUMENTS.
    unsafe { file::find(p, fh)?.begin(p, &access) }
}

/// `MPI_File_read_at_all_end`
///
/// # Safety
/// `status` is null or a status.
pub unsafe fn file_read_at_all_end(
    p: &Process,
    fh: usize,
    _buf: *mut c_void,
    status: *mut Status,
) -> Result<()> {
    let ended = file::find(p, fh)?.end(Which::ReadAtAll)?;
    // SAFETY: ARGUMENTS.
    unsafe { write_status(status, ended) };
    Ok(())
}

/// `MPI_File_write_at_all_end`
///
/// # Safety
/// `status` is null or a status.
pub unsafe fn file_write_at_all_end(
    p: &Process,
    fh: usize,
    _buf: *const c_void,
    status: *mut Status,
) -> Result<()> {
    let ended = file::find(p, fh)?.end(Which::WriteAtAll)?;
    // SAFETY: ARGUMENTS.
    unsafe { write_status(status, ended) };
    Ok(())
}

/// `MPI_File_read_all_begin`
///
/// # Safety
/// The buffer is as count and datatype say.
pub unsafe fn file_read_all_begin(
    p: &Process,
    fh: usize,
    buf: *mut c_void,
    count: i64,
    datatype: usize,
) -> Result<()> {
    let access = Access {
        writes: false,
        place: Place::Individual,
        collective: true,
        buf: buf.cast(),
        count,
        datatype,
    };
    // SAFETY: ARGUMENTS.
    unsafe { file::find(p, fh)?.begin(p, &access) }
}

/// `MPI_File_write_all_begin`
///
/// # Safety
/// The buffer is as count and datatype say.
pub unsafe fn file_write_all_begin(
    p: &Process,
    fh: usize,
    buf: *const c_void,
    count: i64,
    datatype: usize,
) -> Result<()> {
    let access = Access {
        writes: true,
        place: Place::Individual,
        collective: true,
        buf: buf.cast::<u8>().cast_mut(),
        count,
        datatype,
    };
    // SAFETY: ARGUMENTS.
    unsafe { file::find(p, fh)?.begin(p, &access) }
}

/// `MPI_File_read_all_end`
///
/// # Safety
/// `status` is null or a status.
pub unsafe fn file_read_all_end(
    p: &Process,
    fh: usize,
    _buf: *mut c_void,
    status: *mut Status,
) -> Result<()> {
    let ended = file::find(p, fh)?.end(Which::ReadAll)?;
    // SAFETY: ARGUMENTS.
    unsafe { write_status(status, ended) };
    Ok(())
}

/// `MPI_File_write_all_end`
///
/// # Safety
/// `status` is null or a status.
pub unsafe fn file_write_all_end(
    p: &Process,
    fh: usize,
    _buf: *const c_void,
    status: *mut Status,
) -> Result<()> {
    let ended = file::find(p, fh)?.end(Which::WriteAll)?;
    // SAFETY: ARGUMENTS.
    unsafe { write_status(status, ended) };
    Ok(())
}

/// `MPI_File_read_ordered_begin`
///
/// # Safety
/// The buffer is as count and datatype say.
pub unsafe fn file_read_ordered_begin(
    p: &Process,
    fh: usize,
    buf: *mut c_void,
    count: i64,
    datatype: usize,
) -> Result<()> {
    let access = Access {
        writes: false,
        place: Place::Ordered,
        collective: true,
        buf: buf.cast(),
        count,
        datatype,
    };
    // SAFETY: ARGUMENTS.
    unsafe { file::find(p, fh)?.begin(p, &access) }
}

/// `MPI_File_write_ordered_begin`
///
/// # Safety
/// The buffer is as count and datatype say.
pub unsafe fn file_write_ordered_begin(
    p: &Process,
    fh: usize,
    buf: *const c_void,
    count: i64,
    datatype: usize,
) -> Result<()> {
    let access = Access {
        writes: true,
        place: Place::Ordered,
        collective: true,
        buf: buf.cast::<u8>().cast_mut(),
        count,
        datatype,
    };
    // SAFETY: ARGUMENTS.
    unsafe { file::find(p, fh)?.begin(p, &access) }
}

/// `MPI_File_read_ordered_end`
///
/// # Safety
/// `status` is null or a status.
pub unsafe fn file_read_ordered_end(
    p: &Process,
    fh: usize,
    _buf: *mut c_void,
    status: *mut Status,
) -> Result<()> {
    let ended = file::find(p, fh)?.end(Which::ReadOrdered)?;
    // SAFETY: ARGUMENTS.
    unsafe { write_status(status, ended) };
    Ok(())
}

/// `MPI_File_write_ordered_end`
///
/// # Safety
/// `status` is null or a status.
pub unsafe fn file_write_ordered_end(
    p: &Process,
    fh: usize,
    _buf: *const c_void,
    status: *mut Status,
) -> Result<()> {
    let ended = file::find(p, fh)?.end(Which::WriteOrdered)?;
    // SAFETY: ARGUMENTS.
    unsafe { write_status(status, ended) };
    Ok(())
}
