//! Opening, queries, views, pointers and error handlers of files (MPI 5.0, sections 14.2, 14.3, 14.4 and 14.6).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::datatype::insert;
use super::group::insert_group;
use super::info::insert_info;
use super::{Count, load, read_bytes, read_text, store, store_text};
use core::ffi::{c_char, c_int, c_void};
use fastpath_mpi::common::consts::{MPI_ERR_ARG, MPI_FILE_NULL, MPI_MAX_DATAREP_STRING};
use fastpath_mpi::io::representation::{
    self, Conversion, Convert, DataRepresentation, ExtentFunction, LargeConversion,
};
use fastpath_mpi::io::{find, open};
use fastpath_mpi::objects::datatype::Datatype;
use fastpath_mpi::objects::info::find_hints;
use fastpath_mpi::process::errhandler::{
    HandlerKind, Scope, call_errhandler, get_errhandler, set_errhandler,
};
use fastpath_mpi::{Error, Process, Result};

pub unsafe fn file_open(
    p: &Process, comm: usize, filename: *const c_char, amode: c_int, info: usize,
) -> Result<usize> {
    let comm = p.comm(comm)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        // With a null pointer, all ranks report an error together, as for any name that cannot be opened.
        let name = read_bytes(filename).unwrap_or_default();
        open::open(p, &comm, name, amode, find_hints(&p.infos, info))
    }
}

pub unsafe fn file_close(p: &Process, fh: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        let handle = load(fh)?;
        let result = open::close(p, handle);
        if find(p, handle).is_err() {
            store(fh, MPI_FILE_NULL)?;
        }
        result
    }
}

pub unsafe fn file_delete(p: &Process, filename: *const c_char, info: usize) -> Result<()> {
    find_hints(&p.infos, info)?;
    // SAFETY: ARGUMENTS.
    open::delete_file(p, unsafe { read_bytes(filename) }.unwrap_or_default())
}

pub fn file_set_size(p: &Process, fh: usize, size: i64) -> Result<()> {
    find(p, fh)?.set_size(p, size)
}

pub fn file_preallocate(p: &Process, fh: usize, size: i64) -> Result<()> {
    find(p, fh)?.preallocate(p, size)
}

pub fn file_get_size(p: &Process, fh: usize) -> Result<i64> {
    find(p, fh)?.size()
}

pub fn file_sync(p: &Process, fh: usize) -> Result<()> {
    find(p, fh)?.sync(p)
}

pub fn file_get_group(p: &Process, fh: usize) -> Result<usize> {
    let members = find(p, fh)?.group();
    insert_group(p, (*members).clone())
}

pub fn file_get_amode(p: &Process, fh: usize) -> Result<c_int> {
    Ok(find(p, fh)?.amode)
}

pub fn file_set_info(p: &Process, fh: usize, info: usize) -> Result<()> {
    find(p, fh)?.set_info(p, find_hints(&p.infos, info))
}

pub fn file_get_info(p: &Process, fh: usize) -> Result<usize> {
    let info = find(p, fh)?.info(p);
    insert_info(p, info)
}

pub unsafe fn file_set_view(
    p: &Process, fh: usize, disp: i64, etype: usize, filetype: usize, datarep: *const c_char,
    info: usize,
) -> Result<()> {
    let file = find(p, fh)?;
    // SAFETY: ARGUMENTS. With a null pointer, all ranks report an error together.
    let datarep = unsafe { read_text("datarep", datarep, MPI_MAX_DATAREP_STRING as usize) };
    let datarep = datarep.unwrap_or_default();
    file.set_view(p, disp, (etype, filetype), &datarep, find_hints(&p.infos, info))
}

/// # Safety
/// `datarep` is null or a string; the functions are null or of the types that the standard gives, and stay so.
pub unsafe fn register_datarep(
    p: &Process, datarep: *const c_char, read_conversion_fn: usize, write_conversion_fn: usize,
    dtype_file_extent_fn: usize, extra_state: *mut c_void,
) -> Result<()> {
    // SAFETY: ARGUMENTS; null is the `None` of a function pointer's option.
    unsafe {
        let convert = |function: usize| {
            core::mem::transmute::<usize, Option<Conversion>>(function).map(Convert::Small)
        };
        let both = (convert(read_conversion_fn), convert(write_conversion_fn));
        register(p, datarep, both, dtype_file_extent_fn, extra_state)
    }
}

/// # Safety
/// The contract is that of [`register_datarep`].
pub unsafe fn register_datarep_c(
    p: &Process, datarep: *const c_char, read_conversion_fn: usize, write_conversion_fn: usize,
    dtype_file_extent_fn: usize, extra_state: *mut c_void,
) -> Result<()> {
    // SAFETY: a nonzero address is a function of its parameter's type, by this function's contract.
    unsafe {
        let convert = |function: usize| {
            core::mem::transmute::<usize, Option<LargeConversion>>(function).map(Convert::Large)
        };
        let both = (convert(read_conversion_fn), convert(write_conversion_fn));
        register(p, datarep, both, dtype_file_extent_fn, extra_state)
    }
}

/// # Safety
/// The contract is that of [`register_datarep`].
unsafe fn register(
    p: &Process, datarep: *const c_char, (read, write): (Option<Convert>, Option<Convert>),
    extent: usize, extra_state: *mut c_void,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    let (name, extent) = unsafe {
        let name = read_text("datarep", datarep, MPI_MAX_DATAREP_STRING as usize)?;
        (name, core::mem::transmute::<usize, Option<ExtentFunction>>(extent))
    };
    let extent = extent
        .ok_or_else(|| Error::new(MPI_ERR_ARG, "dtype_file_extent_fn is NULL: pass a function"))?;
    representation::register(p, DataRepresentation { name, read, write, extent, extra_state })
}

/// Returns a handle of a view's datatype: the predefined one, or a new one that the user must free.
fn handle_of(p: &Process, datatype: &Datatype) -> Result<usize> {
    match datatype.basic() {
        Some(basic) => Ok(basic.handle.into()),
        None => insert(p, datatype.clone()),
    }
}

pub unsafe fn file_get_view(
    p: &Process, fh: usize, disp: *mut i64, etype: *mut usize, filetype: *mut usize,
    datarep: *mut c_char,
) -> Result<()> {
    let shown = find(p, fh)?.shown();
    let mut length = 0;
    let room = MPI_MAX_DATAREP_STRING as usize;
    // SAFETY: ARGUMENTS.
    unsafe {
        store_text(shown.representation.name(), datarep, room, &mut length)?;
        store(disp, shown.view.displacement())?;
        store(etype, handle_of(p, &shown.etype)?)?;
        store(filetype, handle_of(p, &shown.filetype)?)
    }
}

pub fn file_seek(p: &Process, fh: usize, offset: i64, whence: c_int) -> Result<()> {
    find(p, fh)?.seek(offset, whence)
}

pub fn file_get_position(p: &Process, fh: usize) -> Result<i64> {
    find(p, fh)?.position()
}

pub fn file_seek_shared(p: &Process, fh: usize, offset: i64, whence: c_int) -> Result<()> {
    find(p, fh)?.seek_shared(p, offset, whence)
}

pub fn file_get_position_shared(p: &Process, fh: usize) -> Result<i64> {
    find(p, fh)?.shared_position(p)
}

pub fn file_get_byte_offset(p: &Process, fh: usize, offset: i64) -> Result<i64> {
    find(p, fh)?.byte_offset(offset)
}

pub fn file_get_type_extent<C: Count>(p: &Process, fh: usize, datatype: usize) -> Result<C> {
    let bytes = find(p, fh)?.type_extent(p, &p.datatype(datatype)?)?;
    Ok(C::from_i64_or_undefined(bytes))
}

pub fn file_set_atomicity(p: &Process, fh: usize, flag: c_int) -> Result<()> {
    find(p, fh)?.set_atomicity(p, flag != 0)
}

pub fn file_get_atomicity(p: &Process, fh: usize) -> Result<c_int> {
    Ok(find(p, fh)?.is_atomic().into())
}

/// Sets the handler of a file; for `MPI_FILE_NULL`, the handler of files opened later.
pub fn file_set_errhandler(p: &Process, file: usize, errhandler: usize) -> Result<()> {
    match file {
        MPI_FILE_NULL => set_errhandler(p, HandlerKind::File, &p.file_errhandler, errhandler),
        _ => set_errhandler(p, HandlerKind::File, &find(p, file)?.errhandler, errhandler),
    }
}

pub fn file_get_errhandler(p: &Process, file: usize) -> Result<usize> {
    let handle = match file {
        MPI_FILE_NULL => get_errhandler(p, &p.file_errhandler),
        _ => get_errhandler(p, &find(p, file)?.errhandler),
    };
    Ok(handle)
}

pub fn file_call_errhandler(p: &Process, fh: usize, errorcode: c_int) -> Result<()> {
    if fh != MPI_FILE_NULL {
        find(p, fh)?;
    }
    call_errhandler(p, Scope::File(fh), "MPI_File_call_errhandler", errorcode);
    Ok(())
}
