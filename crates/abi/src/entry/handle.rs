//! Handles as integers (MPI 5.0, chapter 20).
//!
//! The integer of a handle is its value: the standard's number if predefined, otherwise between 2^30 and 2^31. Both
//! conversions only change the type, for every kind of object.

use core::ffi::c_int;

/// `MPI_X_toint` of every kind of handle.
pub fn to_int(handle: usize) -> c_int {
    handle as c_int
}

/// `MPI_X_fromint` of every kind of handle.
pub fn from_int(handle: c_int) -> usize {
    handle as u32 as usize
}
