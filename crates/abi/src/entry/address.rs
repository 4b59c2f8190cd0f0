//! Addresses as integers (MPI 5.0, section 5.1.5).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use core::ffi::c_void;
use fastpath_mpi::Result;

pub fn get_address(location: *const c_void) -> Result<isize> {
    Ok(location.expose_provenance() as isize)
}

pub fn aint_add(base: isize, disp: isize) -> isize {
    base.wrapping_add(disp)
}

pub fn aint_diff(addr1: isize, addr2: isize) -> isize {
    addr1.wrapping_sub(addr2)
}
