//! Queries of the ABI, and settings made by Fortran support (MPI 5.0, chapter 20).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::{null_argument, null_result, store};
use core::ffi::{c_int, c_void};
use fastpath_mpi::common::consts::{MPI_ABI_SUBVERSION, MPI_ABI_VERSION, MPI_INFO_NULL};
use fastpath_mpi::objects::fortran::{Logical, MAX_LOGICAL, check_logical_size};
use fastpath_mpi::objects::info::{Info, find_info};
use fastpath_mpi::{Process, Result};

pub unsafe fn abi_get_version(abi_major: *mut c_int, abi_minor: *mut c_int) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        store(abi_major, MPI_ABI_VERSION)?;
        store(abi_minor, MPI_ABI_SUBVERSION)
    }
}

/// Stores the sizes of the integer types.
pub unsafe fn abi_get_info(p: &Process, info: *mut usize) -> Result<()> {
    let sizes = [
        ("mpi_aint_size", size_of::<isize>()),
        ("mpi_count_size", size_of::<i64>()),
        ("mpi_offset_size", size_of::<i64>()),
    ];
    // SAFETY: ARGUMENTS.
    unsafe { store(info, MPI_INFO_NULL)? };
    let made = Info::from_pairs(sizes.map(|(key, size)| (key, size.to_string())));
    // SAFETY: ARGUMENTS.
    unsafe { store(info, p.infos.publish(made)?) }
}

/// Stores a copy of the info that the program has set, or `MPI_INFO_NULL` if it has set none.
pub unsafe fn abi_get_fortran_info(p: &Process, info: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { store(info, MPI_INFO_NULL)? };
    let Some(known) = p.fortran.info() else {
        return Ok(());
    };
    // SAFETY: ARGUMENTS.
    unsafe { store(info, p.infos.publish(known)?) }
}

pub fn abi_set_fortran_info(p: &Process, info: usize) -> Result<()> {
    p.fortran.set_info(&*find_info(&p.infos, info)?)
}

/// # Safety
/// `logical_true` and `logical_false` are null or variables of `logical_size` bytes, `is_set` is null
/// or a variable.
pub unsafe fn abi_get_fortran_booleans(
    p: &Process, logical_size: c_int, logical_true: *mut c_void, logical_false: *mut c_void,
    is_set: *mut c_int,
) -> Result<()> {
    let size = check_logical_size(logical_size)?;
    let known = p.fortran.booleans(size);
    // SAFETY: ARGUMENTS.
    unsafe { store(is_set, c_int::from(known.is_some()))? };
    if let Some((yes, no)) = known {
        for (to, value) in [(logical_true, yes), (logical_false, no)] {
            if to.is_null() {
                return Err(null_result());
            }
            // SAFETY: the caller's variable has `size` bytes by the contract, and `value` has at least as many.
            unsafe { to.cast::<u8>().copy_from_nonoverlapping(value.as_ptr(), size) };
        }
    }
    Ok(())
}

/// # Safety
/// `logical_true` and `logical_false` are null or variables of `logical_size` bytes.
pub unsafe fn abi_set_fortran_booleans(
    p: &Process, logical_size: c_int, logical_true: *const c_void, logical_false: *const c_void,
) -> Result<()> {
    let size = check_logical_size(logical_size)?;
    let read = |from: *const c_void| -> Result<Logical> {
        let mut value = [0; MAX_LOGICAL];
        if from.is_null() {
            return Err(null_argument());
        }
        // SAFETY: the caller's variable has `size` bytes by the contract, and `value` has at least as many.
        unsafe { value.as_mut_ptr().copy_from_nonoverlapping(from.cast(), size) };
        Ok(value)
    };
    p.fortran.set_booleans(size, read(logical_true)?, read(logical_false)?)
}
