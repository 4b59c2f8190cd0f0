//! Handles as integers (MPI 5.0, chapter 20).
//!
//! A handle is its integer: predefined handles are the numbers of the standard, others lie between
//! 2^30 and 2^31. So both directions only change the type, whatever the object: these serve all.

use core::ffi::c_int;

/// `MPI_Comm_toint`, and the same of all other handles.
pub fn comm_toint(comm: usize) -> c_int {
    comm as c_int
}

/// `MPI_Comm_fromint`, and the same of all other handles.
pub fn comm_fromint(comm: c_int) -> usize {
    comm as u32 as usize
}
