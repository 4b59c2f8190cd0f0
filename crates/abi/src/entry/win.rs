//! Construction, release and queries of windows (MPI 5.0, sections 12.2, 7.7, 7.8 and 9.3).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::attribute::read;
use super::group::insert_group;
use super::info::insert_info;
use super::{Count, load, read_text, store, store_text};
use core::ffi::{c_char, c_int, c_void};
use fastpath_mpi::common::consts::{MPI_ERR_OTHER, MPI_MAX_OBJECT_NAME, MPI_WIN_NULL};
use fastpath_mpi::objects::attribute::{delete_attribute, set_attribute};
use fastpath_mpi::objects::info::find_hints;
use fastpath_mpi::process::errhandler::{
    HandlerKind, Scope, call_errhandler, get_errhandler, set_errhandler,
};
use fastpath_mpi::rma::create::{WindowArguments, free, make, query_shared};
use fastpath_mpi::rma::window::Flavor;
use fastpath_mpi::rma::{dynamic, hints};
use fastpath_mpi::{Error, Process, Result};

fn wanted(
    p: &Process, flavor: Flavor, base: *mut c_void, (size, unit): (isize, i64), info: usize,
) -> Result<WindowArguments> {
    Ok(WindowArguments {
        flavor,
        base: base.cast(),
        size: size as i64,
        unit,
        hints: find_hints(&p.infos, info)?,
    })
}

/// # Safety
/// The memory stays until the window is freed; `win` is null or a variable.
pub unsafe fn win_create(
    p: &Process, base: *mut c_void, size: isize, disp_unit: i64, info: usize, comm: usize,
    win: *mut usize,
) -> Result<()> {
    let wanted = wanted(p, Flavor::Create, base, (size, disp_unit), info)?;
    // SAFETY: ARGUMENTS.
    unsafe { store(win, make(p, &*p.comm(comm)?, &wanted)?.handle.get()) }
}

pub unsafe fn win_allocate(
    p: &Process, size: isize, disp_unit: i64, info: usize, comm: usize, baseptr: *mut c_void,
    win: *mut usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { allocate(p, Flavor::Allocate, (size, disp_unit), info, comm, baseptr, win) }
}

/// # Safety
/// The contract is that of [`win_allocate`].
pub unsafe fn win_allocate_shared(
    p: &Process, size: isize, disp_unit: i64, info: usize, comm: usize, baseptr: *mut c_void,
    win: *mut usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { allocate(p, Flavor::Shared, (size, disp_unit), info, comm, baseptr, win) }
}

/// # Safety
/// The contract is that of [`win_allocate`].
unsafe fn allocate(
    p: &Process, flavor: Flavor, place: (isize, i64), info: usize, comm: usize,
    baseptr: *mut c_void, win: *mut usize,
) -> Result<()> {
    let wanted = wanted(p, flavor, core::ptr::null_mut(), place, info)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        let window = make(p, &*p.comm(comm)?, &wanted)?;
        store(baseptr.cast(), window.base.get())?;
        store(win, window.handle.get())
    }
}

pub unsafe fn win_create_dynamic(p: &Process, info: usize, comm: usize) -> Result<usize> {
    let wanted = wanted(p, Flavor::Dynamic, core::ptr::null_mut(), (0, 1), info)?;
    // SAFETY: ARGUMENTS.
    unsafe { Ok(make(p, &*p.comm(comm)?, &wanted)?.handle.get()) }
}

/// # Safety
/// The memory stays until it is detached or the window freed.
pub unsafe fn win_attach(p: &Process, win: usize, base: *mut c_void, size: isize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { dynamic::attach(p, &*p.win(win)?, base.cast(), size as i64) }
}

pub fn win_detach(p: &Process, win: usize, base: *const c_void) -> Result<()> {
    dynamic::detach(p, &*p.win(win)?, base.cast())
}

pub unsafe fn win_free(p: &Process, win: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        free(p, load(win)?)?;
        store(win, MPI_WIN_NULL)
    }
}

pub unsafe fn win_shared_query<C: Count>(
    p: &Process, win: usize, rank: c_int, size: *mut isize, disp_unit: *mut C, baseptr: *mut c_void,
) -> Result<()> {
    let (bytes, unit, base) = query_shared(p, &*p.win(win)?, rank)?;
    let Some(unit) = C::from_i64(unit) else {
        let text = format!(
            "the window's displacement unit of {unit} bytes does not fit an int: call \
             MPI_Win_shared_query_c"
        );
        return Err(Error::new(MPI_ERR_OTHER, text));
    };
    // SAFETY: ARGUMENTS.
    unsafe {
        store(size, bytes as isize)?;
        store(disp_unit, unit)?;
        store(baseptr.cast(), base)
    }
}

pub fn win_get_group(p: &Process, win: usize) -> Result<usize> {
    insert_group(p, p.win(win)?.group.clone())
}

pub fn win_set_info(p: &Process, win: usize, info: usize) -> Result<()> {
    hints::change(&*p.win(win)?, find_hints(&p.infos, info)?);
    Ok(())
}

pub fn win_get_info(p: &Process, win: usize) -> Result<usize> {
    let info = hints::describe(&*p.win(win)?);
    insert_info(p, info)
}

pub unsafe fn win_set_name(p: &Process, win: usize, win_name: *const c_char) -> Result<()> {
    let window = p.win(win)?;
    // SAFETY: ARGUMENTS.
    let name = unsafe { read_text("win_name", win_name, MPI_MAX_OBJECT_NAME as usize - 1) }?;
    window.set_name(p, name);
    Ok(())
}

pub unsafe fn win_get_name(
    p: &Process, win: usize, win_name: *mut c_char, resultlen: *mut c_int,
) -> Result<()> {
    let name = match win {
        MPI_WIN_NULL => "MPI_WIN_NULL".to_string(),
        _ => p.win(win)?.name.borrow().clone(),
    };
    // SAFETY: ARGUMENTS.
    unsafe { store_text(&name, win_name, MPI_MAX_OBJECT_NAME as usize, resultlen) }
}

/// # Safety
/// The value is one that the key's copy and delete functions can take.
pub unsafe fn win_set_attr(
    p: &Process, win: usize, win_keyval: c_int, attribute_val: *mut c_void,
) -> Result<()> {
    set_attribute(p, p.win(win)?.holder(), win_keyval, attribute_val)
}

pub unsafe fn win_get_attr(
    p: &Process, win: usize, win_keyval: c_int, attribute_val: *mut c_void, flag: *mut c_int,
) -> Result<()> {
    let window = p.win(win)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        match window.predefined(win_keyval) {
            Some(value) => {
                store(attribute_val.cast(), value)?;
                store(flag, 1)
            }
            None => read(p, window.holder(), win_keyval, attribute_val, flag),
        }
    }
}

pub fn win_delete_attr(p: &Process, win: usize, win_keyval: c_int) -> Result<()> {
    delete_attribute(p, p.win(win)?.holder(), win_keyval)
}

pub fn win_set_errhandler(p: &Process, win: usize, errhandler: usize) -> Result<()> {
    set_errhandler(p, HandlerKind::Win, &p.win(win)?.errhandler, errhandler)
}

pub fn win_get_errhandler(p: &Process, win: usize) -> Result<usize> {
    let window = p.win(win)?;
    Ok(get_errhandler(p, &window.errhandler))
}

pub fn win_call_errhandler(p: &Process, win: usize, errorcode: c_int) -> Result<()> {
    p.win(win)?;
    call_errhandler(p, Scope::Win(win), "MPI_Win_call_errhandler", errorcode);
    Ok(())
}
