//! Handles as integers (MPI 5.0, chapter 20).
//!
//! The integer of a handle is the handle's value: the standard's number for a predefined handle, otherwise a number
//! between 2^30 and 2^31. Both conversions only change the type, for every kind of object.

use core::ffi::c_int;

/// Body of `MPI_X_toint` for every kind of handle.
pub fn to_int(handle: usize) -> c_int {
    handle as c_int
}

/// Body of `MPI_X_fromint` for every kind of handle.
pub fn from_int(handle: c_int) -> usize {
    handle as u32 as usize
}
