//! Attributes of communicators, datatypes and windows, also by their deprecated calls (MPI 5.0, sections 7.7 and 18.1).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::{load, store};
use core::ffi::{c_int, c_void};
use fastpath_mpi::common::consts::{MPI_ERR_ARG, MPI_KEYVAL_INVALID};
use fastpath_mpi::objects::attribute::{
    Holder, KeyvalKind, create_keyval, delete_attribute, free_keyval, get_attribute, set_attribute,
};
use fastpath_mpi::{Error, Process, Result};

/// # Safety
/// The functions are constants or functions of the right type; `comm_keyval` is null or a variable.
pub unsafe fn comm_create_keyval(
    p: &Process, comm_copy_attr_fn: usize, comm_delete_attr_fn: usize, comm_keyval: *mut c_int,
    extra_state: *mut c_void,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        make(p, KeyvalKind::Comm, comm_copy_attr_fn, comm_delete_attr_fn, comm_keyval, extra_state)
    }
}

pub unsafe fn comm_free_keyval(p: &Process, comm_keyval: *mut c_int) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { free(p, KeyvalKind::Comm, comm_keyval) }
}

pub fn comm_set_attr(
    p: &Process, comm: usize, comm_keyval: c_int, attribute_val: *mut c_void,
) -> Result<()> {
    set_attribute(p, p.comm(comm)?.holder(), comm_keyval, attribute_val)
}

pub unsafe fn comm_get_attr(
    p: &Process, comm: usize, comm_keyval: c_int, attribute_val: *mut c_void, flag: *mut c_int,
) -> Result<()> {
    let comm = p.comm(comm)?;
    // SAFETY: ARGUMENTS.
    unsafe { read(p, comm.holder(), comm_keyval, attribute_val, flag) }
}

pub fn comm_delete_attr(p: &Process, comm: usize, comm_keyval: c_int) -> Result<()> {
    delete_attribute(p, p.comm(comm)?.holder(), comm_keyval)
}

/// # Safety
/// The functions are constants or functions of the right type; `type_keyval` is null or a variable.
pub unsafe fn type_create_keyval(
    p: &Process, type_copy_attr_fn: usize, type_delete_attr_fn: usize, type_keyval: *mut c_int,
    extra_state: *mut c_void,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        make(p, KeyvalKind::Type, type_copy_attr_fn, type_delete_attr_fn, type_keyval, extra_state)
    }
}

pub unsafe fn type_free_keyval(p: &Process, type_keyval: *mut c_int) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { free(p, KeyvalKind::Type, type_keyval) }
}

/// # Safety
/// The functions are constants or functions of the right type; `win_keyval` is null or a variable.
pub unsafe fn win_create_keyval(
    p: &Process, win_copy_attr_fn: usize, win_delete_attr_fn: usize, win_keyval: *mut c_int,
    extra_state: *mut c_void,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        make(p, KeyvalKind::Win, win_copy_attr_fn, win_delete_attr_fn, win_keyval, extra_state)
    }
}

pub unsafe fn win_free_keyval(p: &Process, win_keyval: *mut c_int) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { free(p, KeyvalKind::Win, win_keyval) }
}

/// Makes a key and stores it.
///
/// # Safety
/// The functions are constants or functions of the right type; `keyval` is null or a variable.
unsafe fn make(
    p: &Process, kind: KeyvalKind, copy: usize, delete: usize, keyval: *mut c_int,
    extra_state: *mut c_void,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { store(keyval, create_keyval(p, kind, copy, delete, extra_state)?) }
}

/// Frees a key and sets its variable to `MPI_KEYVAL_INVALID`.
///
/// # Safety
/// `keyval` is null or a variable.
unsafe fn free(p: &Process, kind: KeyvalKind, keyval: *mut c_int) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        free_keyval(p, kind, load(keyval)?)?;
        store(keyval, MPI_KEYVAL_INVALID)
    }
}

/// Stores whether an attribute is set, and its value if it is.
///
/// # Safety
/// `value` is null or a variable of pointer size, `flag` is null or a variable.
pub(crate) unsafe fn read(
    p: &Process, holder: Holder, keyval: c_int, value: *mut c_void, flag: *mut c_int,
) -> Result<()> {
    let found = get_attribute(p, holder, keyval)?;
    if let Some(found) = found {
        if value.is_null() {
            return Err(Error::new(
                MPI_ERR_ARG,
                "attribute_val is NULL: pass the address of a variable for the attribute's value",
            ));
        }
        // SAFETY: `value` is not null, and so points to a variable of pointer size by this function's contract. Any
        // alignment is allowed.
        unsafe { value.cast::<*mut c_void>().write_unaligned(found) };
    }
    // SAFETY: ARGUMENTS.
    unsafe { store(flag, found.is_some().into()) }
}
