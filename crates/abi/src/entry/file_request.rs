//! Reading and writing files with a request (MPI 5.0, section 14.4).
//!
//! **ARGUMENTS.** What pointers among the arguments point to: see the module above.
#![allow(unsafe_code)]

use super::store;
use core::ffi::c_void;
use fastpath_mpi::file;
use fastpath_mpi::file::access::{Access, Place};
use fastpath_mpi::{Process, Result};

/// `MPI_File_iread_at`
///
/// # Safety
/// The buffer is as count and datatype say; `request` is null or a variable.
pub unsafe fn file_iread_at(
    p: &Process,
    fh: usize,
    offset: i64,
    buf: *mut c_void,
    count: i64,
    datatype: usize,
    request: *mut usize,
) -> Result<()> {
    let access = Access {
        writes: false,
        place: Place::At(offset),
        collective: false,
        buf: buf.cast(),
        count,
        datatype,
    };
    // SAFETY: ARGUMENTS.
    unsafe { store(request, file::find(p, fh)?.start(p, &access)?) }
}

/// `MPI_File_iwrite_at`
///
/// # Safety
/// The buffer is as count and datatype say; `request` is null or a variable.
pub unsafe fn file_iwrite_at(
    p: &Process,
    fh: usize,
    offset: i64,
    buf: *const c_void,
    count: i64,
    datatype: usize,
    request: *mut usize,
) -> Result<()> {
    let access = Access {
        writes: true,
        place: Place::At(offset),
        collective: false,
        buf: buf.cast::<u8>().cast_mut(),
        count,
        datatype,
    };
    // SAFETY: ARGUMENTS.
    unsafe { store(request, file::find(p, fh)?.start(p, &access)?) }
}

/// `MPI_File_iread_at_all`
///
/// # Safety
/// The buffer is as count and datatype say; `request` is null or a variable.
pub unsafe fn file_iread_at_all(
    p: &Process,
    fh: usize,
    offset: i64,
    buf: *mut c_void,
    count: i64,
    datatype: usize,
    request: *mut usize,
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
    unsafe { store(request, file::find(p, fh)?.start(p, &access)?) }
}

/// `MPI_File_iwrite_at_all`
///
/// # Safety
/// The buffer is as count and datatype say; `request` is null or a variable.
pub unsafe fn file_iwrite_at_all(
    p: &Process,
    fh: usize,
    offset: i64,
    buf: *const c_void,
    count: i64,
    datatype: usize,
    request: *mut usize,
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
    unsafe { store(request, file::find(p, fh)?.start(p, &access)?) }
}

/// `MPI_File_iread`
///
/// # Safety
/// The buffer is as count and datatype say; `request` is null or a variable.
pub unsafe fn file_iread(
    p: &Process,
    fh: usize,
    buf: *mut c_void,
    count: i64,
    datatype: usize,
    request: *mut usize,
) -> Result<()> {
    let access = Access {
        writes: false,
        place: Place::Individual,
        collective: false,
        buf: buf.cast(),
        count,
        datatype,
    };
    // SAFETY: ARGUMENTS.
    unsafe { store(request, file::find(p, fh)?.start(p, &access)?) }
}

/// `MPI_File_iwrite`
///
/// # Safety
/// The buffer is as count and datatype say; `request` is null or a variable.
pub unsafe fn file_iwrite(
    p: &Process,
    fh: usize,
    buf: *const c_void,
    count: i64,
    datatype: usize,
    request: *mut usize,
) -> Result<()> {
    let access = Access {
        writes: true,
        place: Place::Individual,
        collective: false,
        buf: buf.cast::<u8>().cast_mut(),
        count,
        datatype,
    };
    // SAFETY: ARGUMENTS.
    unsafe { store(request, file::find(p, fh)?.start(p, &access)?) }
}

/// `MPI_File_iread_all`
///
/// # Safety
/// The buffer is as count and datatype say; `request` is null or a variable.
pub unsafe fn file_iread_all(
    p: &Process,
    fh: usize,
    buf: *mut c_void,
    count: i64,
    datatype: usize,
    request: *mut usize,
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
    unsafe { store(request, file::find(p, fh)?.start(p, &access)?) }
}

/// `MPI_File_iwrite_all`
///
/// # Safety
/// The buffer is as count and datatype say; `request` is null or a variable.
pub unsafe fn file_iwrite_all(
    p: &Process,
    fh: usize,
    buf: *const c_void,
    count: i64,
    datatype: usize,
    request: *mut usize,
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
    unsafe { store(request, file::find(p, fh)?.start(p, &access)?) }
}

/// `MPI_File_iread_shared`
///
/// # Safety
/// The buffer is as count and datatype say; `request` is null or a variable.
pub unsafe fn file_iread_shared(
    p: &Process,
    fh: usize,
    buf: *mut c_void,
    count: i64,
    datatype: usize,
    request: *mut usize,
) -> Result<()> {
    let access = Access {
        writes: false,
        place: Place::Shared,
        collective: false,
        buf: buf.cast(),
        count,
        datatype,
    };
    // SAFETY: ARGUMENTS.
    unsafe { store(request, file::find(p, fh)?.start(p, &access)?) }
}

/// `MPI_File_iwrite_shared`
///
/// # Safety
/// The buffer is as count and datatype say; `request` is null or a variable.
pub unsafe fn file_iwrite_shared(
    p: &Process,
    fh: usize,
    buf: *const c_void,
    count: i64,
    datatype: usize,
    request: *mut usize,
) -> Result<()> {
    let access = Access {
        writes: true,
        place: Place::Shared,
        collective: false,
        buf: buf.cast::<u8>().cast_mut(),
        count,
        datatype,
    };
    // SAFETY: ARGUMENTS.
    unsafe { store(request, file::find(p, fh)?.start(p, &access)?) }
}
