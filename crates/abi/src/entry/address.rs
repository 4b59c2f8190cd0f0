//! Addresses as integers (MPI 5.0, section 5.1.5).
//!
//! **ARGUMENTS.** What pointers among the arguments point to: see the module above.
#![allow(unsafe_code)]

use core::ffi::c_void;
use fastpath_mpi::Result;

/// `MPI_Get_address`
pub fn get_address(location: *const c_void) -> Result<isize> {
    Ok(location.expose_provenance() as isize)
}

/// `MPI_Aint_add`
pub fn aint_add(base: isize, disp: isize) -> isize {
    base.wrapping_add(disp)
}

/// `MPI_Aint_diff`
pub fn aint_diff(addr1: isize, addr2: isize) -> isize {
    addr1.wrapping_sub(addr2)
}
