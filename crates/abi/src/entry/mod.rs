//! The bodies of the entry points, one file for each chapter of the standard.
//!
//! The build wires them by name; there is no list to keep. For `MPI_Comm_dup` it looks in every
//! file of this folder for
//!
//! ```ignore
//! pub unsafe fn comm_dup(p: &Process, comm: usize, newcomm: *mut usize) -> Result<()>
//! ```
//!
//! * Every `pub fn` is such a body; one that is no MPI function or is there twice is a build error.
//!   Helpers are `pub(crate)` or private. The files are declared as modules by the build too.
//! * With `&Process` as first parameter the body is called inside MPI: initialised, under the lock
//!   of `MPI_THREAD_MULTIPLE`, its name recorded. Without it the body does all that itself.
//! * `Err` goes to the error handler of the first communicator, window, file or session argument.
//! * A body that returns no `Result` returns what the C function returns.
//!
//! | C | Rust |
//! |---|---|
//! | `int`, an enumeration | `c_int` (`i32`) |
//! | `MPI_Aint` | `isize` |
//! | `MPI_Count`, `MPI_Offset` | `i64` |
//! | a handle `MPI_X` | `usize` |
//! | a callback | `usize`, its address |
//! | `void *`, `char *`, `MPI_X *`, `T name[]` | `*mut c_void`, `*mut c_char`, `*mut usize`, `*mut T`; `*const` where C says so |
//! | `MPI_Status *` | `*mut Status` |
//! | `char *argv[]`, `char ***argv`, `int ranges[][3]` | `*mut *mut c_char`, `*mut *mut *mut c_char`, `*mut [c_int; 3]` |
//!
//! `MPI_X` and its large-count form `MPI_X_c` share the body `x`: a count by value arrives as `i64`;
//! where counts or displacements are behind pointers the body is generic,
//! `fn alltoallv<C: Count, D: Count>(.., sendcounts: *const C, sdispls: *const D, ..)`.
//! Pairs that differ in more than width (`MPI_Op_create`, `MPI_Register_datarep`,
//! `MPI_Type_get_contents`, `MPI_Type_get_envelope`) need a second body `x_c`; where both exist,
//! each form calls its own.
#![allow(unsafe_code)]

use core::ffi::{c_char, c_int};
use fastpath_mpi::consts::{MPI_ERR_ARG, MPI_UNDEFINED};
use fastpath_mpi::{Error, Result};

include!(concat!(env!("OUT_DIR"), "/modules.rs"));

/// An integer that counts elements or bytes, in the width of either form of a function.
#[allow(dead_code)]
pub(crate) trait Count: Copy {
    /// The value.
    fn to_i64(self) -> i64;

    /// `value`, or `None` where it does not fit.
    fn from_i64(value: i64) -> Option<Self>;

    /// `value`, or `MPI_UNDEFINED` where it does not fit, as queries of sizes answer.
    fn from_i64_or_undefined(value: i64) -> Self;
}

macro_rules! impl_count {
    ($($int:ty),*) => {$(
        impl Count for $int {
            #[inline]
            fn to_i64(self) -> i64 {
                self as i64
            }

            #[inline]
            fn from_i64(value: i64) -> Option<Self> {
                Self::try_from(value).ok()
            }

            #[inline]
            fn from_i64_or_undefined(value: i64) -> Self {
                Self::try_from(value).unwrap_or(MPI_UNDEFINED as Self)
            }
        }
    )*};
}

impl_count!(i32, i64, isize);

/// Stores a result in the caller's variable.
///
/// # Errors
/// `MPI_ERR_ARG` for a null pointer.
///
/// # Safety
/// `to` is null or the caller's variable of that type.
#[inline]
pub(crate) unsafe fn store<T>(to: *mut T, value: T) -> Result<()> {
    if to.is_null() {
        return Err(null_result());
    }
    // SAFETY: not null, and the caller's by the contract of this function.
    unsafe { to.write(value) };
    Ok(())
}

#[cold]
fn null_result() -> Error {
    Error::new(MPI_ERR_ARG, "the pointer for a result is null")
}

/// Stores `text` in a caller's buffer of `capacity` bytes, cut to fit and ended by a NUL, and its
/// length without the NUL in `length`.
///
/// # Errors
/// `MPI_ERR_ARG` for a null pointer.
///
/// # Safety
/// `to` is null or has room for `capacity` bytes, at least 1; `length` is null or a variable.
pub(crate) unsafe fn store_text(
    text: &str,
    to: *mut c_char,
    capacity: usize,
    length: *mut c_int,
) -> Result<()> {
    if to.is_null() {
        return Err(null_result());
    }
    let bytes = text.as_bytes();
    let count = bytes.len().min(capacity - 1);
    // SAFETY: `count` bytes and the NUL are within the capacity that the caller promised.
    unsafe {
        to.cast::<u8>()
            .copy_from_nonoverlapping(bytes.as_ptr(), count);
        to.add(count).write(0);
        store(length, count as c_int)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn count__that_does_not_fit_is_undefined() {
        assert_eq!(i32::from_i64_or_undefined(1 << 31), MPI_UNDEFINED);
        assert_eq!(i32::from_i64_or_undefined(i64::from(i32::MAX)), i32::MAX);
        assert_eq!(i64::from_i64_or_undefined(1 << 40), 1 << 40);
        assert_eq!(i32::from_i64(-1 << 31), Some(i32::MIN));
        assert_eq!(i32::from_i64(1 << 31), None);
        assert_eq!((-3_isize).to_i64(), -3);
    }

    #[test]
    fn text__is_cut_to_the_capacity() {
        let mut buffer = [1 as c_char; 8];
        let mut length = 0;
        // SAFETY: the buffer has 8 bytes, and 4 are used.
        unsafe { store_text("abcdef", buffer.as_mut_ptr(), 4, &mut length) }.unwrap();
        assert_eq!(length, 3);
        assert_eq!(buffer.map(|c| c as u8)[..5], *b"abc\0\x01");
        // SAFETY: null is allowed.
        let error = unsafe { store_text("a", core::ptr::null_mut(), 4, &mut length) }.unwrap_err();
        assert_eq!(error.code(), MPI_ERR_ARG);
    }
}
