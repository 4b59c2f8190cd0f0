//! Reading and writing files, blocking (MPI 5.0, section 14.4).
//!
//! **ARGUMENTS.** What pointers among the arguments point to: see the module above.
#![allow(unsafe_code)]

use core::ffi::c_void;
use fastpath_mpi::file;
use fastpath_mpi::file::access::{Access, Place};
use fastpath_mpi::request::write_status;
use fastpath_mpi::status::Status;
use fastpath_mpi::{Process, Result};

/// `MPI_File_read_at`
///
/// # Safety
/// The buffer is as count and datatype say; `status` is null or a status.
pub unsafe fn file_read_at(
    p: &Process,
    fh: usize,
    offset: i64,
    buf: *mut c_void,
    count: i64,
    datatype: usize,
    status: *mut Status,
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
    unsafe {
        let done = file::find(p, fh)?.access(p, &access)?;
        write_status(status, done);
    }
    Ok(())
}

/// `MPI_File_write_at`
///
/// # Safety
/// The buffer is as count and datatype say; `status` is null or a status.
pub unsafe fn file_write_at(
    p: &Process,
    fh: usize,
    offset: i64,
    buf: *const c_void,
    count: i64,
    datatype: usize,
    status: *mut Status,
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
    unsafe {
        let done = file::find(p, fh)?.access(p, &access)?;
        write_status(status, done);
    }
    Ok(())
}

/// `MPI_File_read_at_all`
///
/// # Safety
/// The buffer is as count and datatype say; `status` is null or a status.
pub unsafe fn file_read_at_all(
    p: &Process,
    fh: usize,
    offset: i64,
    buf: *mut c_void,
    count: i64,
    datatype: usize,
    status: *mut Status,
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
    unsafe {
        let done = file::find(p, fh)?.access(p, &access)?;
        write_status(status, done);
    }
    Ok(())
}

/// `MPI_File_write_at_all`
///
/// # Safety
/// The buffer is as count and datatype say; `status` is null or a status.
pub unsafe fn file_write_at_all(
    p: &Process,
    fh: usize,
    offset: i64,
    buf: *const c_void,
    count: i64,
    datatype: usize,
    status: *mut Status,
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
    unsafe {
        let done = file::find(p, fh)?.access(p, &access)?;
        write_status(status, done);
    }
    Ok(())
}

/// `MPI_File_read`
///
/// # Safety
/// The buffer is as count and datatype say; `status` is null or a status.
pub unsafe fn file_read(
    p: &Process,
    fh: usize,
    buf: *mut c_void,
    count: i64,
    datatype: usize,
    status: *mut Status,
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
    unsafe {
        let done = file::find(p, fh)?.access(p, &access)?;
        write_status(status, done);
    }
    Ok(())
}

/// `MPI_File_write`
///
/// # Safety
/// The buffer is as count and datatype say; `status` is null or a status.
pub unsafe fn file_write(
    p: &Process,
    fh: usize,
    buf: *const c_void,
    count: i64,
    datatype: usize,
    status: *mut Status,
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
    unsafe {
        let done = file::find(p, fh)?.access(p, &access)?;
        write_status(status, done);
    }
    Ok(())
}

/// `MPI_File_read_all`
///
/// # Safety
/// The buffer is as count and datatype say; `status` is null or a status.
pub unsafe fn file_read_all(
    p: &Process,
    fh: usize,
    buf: *mut c_void,
    count: i64,
    datatype: usize,
    status: *mut Status,
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
    unsafe {
        let done = file::find(p, fh)?.access(p, &access)?;
        write_status(status, done);
    }
    Ok(())
}

/// `MPI_File_write_all`
///
/// # Safety
/// The buffer is as count and datatype say; `status` is null or a status.
pub unsafe fn file_write_all(
    p: &Process,
    fh: usize,
    buf: *const c_void,
    count: i64,
    datatype: usize,
    status: *mut Status,
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
    unsafe {
        let done = file::find(p, fh)?.access(p, &access)?;
        write_status(status, done);
    }
    Ok(())
}

/// `MPI_File_read_shared`
///
/// # Safety
/// The buffer is as count and datatype say; `status` is null or a status.
pub unsafe fn file_read_shared(
    p: &Process,
    fh: usize,
    buf: *mut c_void,
    count: i64,
    datatype: usize,
    status: *mut Status,
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
    unsafe {
        let done = file::find(p, fh)?.access(p, &access)?;
        write_status(status, done);
    }
    Ok(())
}

/// `MPI_File_write_shared`
///
/// # Safety
/// The buffer is as count and datatype say; `status` is null or a status.
pub unsafe fn file_write_shared(
    p: &Process,
    fh: usize,
    buf: *const c_void,
    count: i64,
    datatype: usize,
    status: *mut Status,
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
    unsafe {
        let done = file::find(p, fh)?.access(p, &access)?;
        write_status(status, done);
    }
    Ok(())
}

/// `MPI_File_read_ordered`
///
/// # Safety
/// The buffer is as count and datatype say; `status` is null or a status.
pub unsafe fn file_read_ordered(
    p: &Process,
    fh: usize,
    buf: *mut c_void,
    count: i64,
    datatype: usize,
    status: *mut Status,
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
    unsafe {
        let done = file::find(p, fh)?.access(p, &access)?;
        write_status(status, done);
    }
    Ok(())
}

/// `MPI_File_write_ordered`
///
/// # Safety
/// The buffer is as count and datatype say; `status` is null or a status.
pub unsafe fn file_write_ordered(
    p: &Process,
    fh: usize,
    buf: *const c_void,
    count: i64,
    datatype: usize,
    status: *mut Status,
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
    unsafe {
        let done = file::find(p, fh)?.access(p, &access)?;
        write_status(status, done);
    }
    Ok(())
}
