//! The bodies of the entry points, one file for each chapter of the standard.
//!
//! The build wires them by name; there is no list to keep. For `MPI_Comm_dup` it looks in every
//! file of this folder for
//!
//! ```ignore
//! pub fn comm_dup(p: &Process, comm: usize) -> Result<usize>
//! ```
//!
//! * Every `pub fn` is such a body; one that is no MPI function or is there twice is a build error.
//!   Helpers are `pub(crate)` or private. The files are declared as modules by the build too.
//! * With `&Process` as first parameter the body is called inside MPI: initialised, under the lock
//!   of `MPI_THREAD_MULTIPLE`, its name recorded. Without it the body does all that itself.
//! * `Err` goes to the error handler of the first communicator, window, file or session argument,
//!   after the variables for new handles were set to null.
//! * With `Form` as second parameter the body of a collective call serves its three forms: `gather` is the body of
//!   `MPI_Gather`, `MPI_Igather` and `MPI_Gather_init`, without their info and request. Where the blocking call has a
//!   body of its own, `igather` serves the other two.
//! * With `Access` as second parameter the body serves all calls that access a file so, with offset, memory, count and
//!   datatype in it: `file_read` is the body of `MPI_File_read`, `MPI_File_write_at` and so on, `file_iread` of those
//!   with a request, `file_read_all_begin` of those that begin a split access, and `file_read_all_end`, with `Which`,
//!   of those that end it.
//! * With `Width` as second parameter the body is told which of `MPI_X` and `MPI_X_c` it serves.
//! * A parameter whose type is a struct of `arguments.rs` is made of the arguments that have the names of its fields.
//! * A body whose `Result` has a value leaves out C's last argument, the pointer to the variable for it; where that is
//!   null, the body is not called.
//! * A body that returns no `Result` returns what the C function returns.
//! * `pub unsafe fn comm_rank_quick(comm: usize, rank: *mut c_int) -> bool` is asked first, before MPI
//!   is entered: the call is over where it returns true, and goes to `comm_rank` otherwise.
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
//! What differs from another function in its name alone (`MPI_Win_toint`, `MPI_Type_size_x`) says so in the table
//! (`as`), and has no body.
//! Pairs that differ in more than width (`MPI_Op_create`, `MPI_Register_datarep`,
//! `MPI_Type_get_contents`, `MPI_Type_get_envelope`) need a second body `x_c`; where both exist,
//! each form calls its own.
#![allow(unsafe_code)]
// The standard says how many there are.
#![allow(clippy::too_many_arguments)]

use core::ffi::{c_char, c_int};
use fastpath_base::heap::may_fail;
pub(crate) use fastpath_mpi::coll::Form;
use fastpath_mpi::common::consts::{
    MPI_ERR_ARG, MPI_ERR_COUNT, MPI_ERR_NO_MEM, MPI_INFO_NULL, MPI_UNDEFINED,
};
pub(crate) use fastpath_mpi::io::access::{Access, FilePlace};
pub(crate) use fastpath_mpi::io::split::Which;
pub(crate) use fastpath_mpi::objects::datatype::Form as Width;
use fastpath_mpi::objects::info::find_info;
use fastpath_mpi::{Error, Process, Result};

include!(concat!(env!("OUT_DIR"), "/modules.rs"));

/// An integer that counts elements or bytes, in the width of either form of a function.
#[allow(dead_code)]
pub(crate) trait Count: Copy {
    /// Whether the large-count form of a function has this type.
    const LARGE: bool;

    /// The value.
    fn to_i64(self) -> i64;

    /// `value`, or `None` where it does not fit.
    fn from_i64(value: i64) -> Option<Self>;

    /// `value`, or `MPI_UNDEFINED` where it does not fit, as queries of sizes answer.
    fn from_i64_or_undefined(value: i64) -> Self;
}

macro_rules! impl_count {
    ($($int:ty: $large:expr),*) => {$(
        impl Count for $int {
            const LARGE: bool = $large;

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

impl_count!(i32: false, i64: true, isize: false);

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

/// Stores what `make` makes in the caller's variable; where there is none, nothing is made.
///
/// # Errors
/// `MPI_ERR_ARG` for a null pointer; those of `make`.
///
/// # Safety
/// `to` is null or the caller's variable of that type.
#[inline]
pub(crate) unsafe fn give<T>(to: *mut T, make: impl FnOnce() -> Result<T>) -> Result<()> {
    if to.is_null() {
        return Err(null_result());
    }
    let made = make()?;
    // SAFETY: not null, and the caller's by the contract of this function.
    unsafe { to.write(made) };
    Ok(())
}

/// Whether the hints of a call that knows none are an info object.
///
/// # Errors
/// `MPI_ERR_INFO`
pub(crate) fn check_info(p: &Process, info: usize) -> Result<()> {
    match info {
        MPI_INFO_NULL => Ok(()),
        _ => find_info(&p.infos, info).map(|_| ()),
    }
}

/// As [`store`], for the short ways: whether there is a variable.
///
/// # Safety
/// `to` is null or the caller's variable of that type.
#[inline(always)] // `fastpath bench instructions` counts the queries that end here
pub(crate) unsafe fn answer<T>(to: *mut T, value: T) -> bool {
    if to.is_null() {
        return false;
    }
    // SAFETY: not null, and the caller's by the contract of this function.
    unsafe { to.write(value) };
    true
}

/// The caller's array of `count` elements.
///
/// # Errors
/// `MPI_ERR_ARG` for a negative count, or a null pointer with a count above 0.
///
/// # Safety
/// `array` is null or has `count` elements, which nothing changes while the result lives.
pub(crate) unsafe fn read_array<'a, T>(array: *const T, count: c_int) -> Result<&'a [T]> {
    match usize::try_from(count) {
        Err(_) => Err(Error::new(
            MPI_ERR_ARG,
            format!("the number of elements is {count}: it must be 0 or more"),
        )),
        Ok(0) => Ok(&[]),
        Ok(_) if array.is_null() => Err(Error::new(
            MPI_ERR_ARG,
            format!("the pointer to an array of {count} elements is null"),
        )),
        // SAFETY: not null, and `count` elements by the contract of this function.
        Ok(count) => Ok(unsafe { core::slice::from_raw_parts(array, count) }),
    }
}

/// The bytes of a caller's string, without the NUL; `None` for a null pointer.
///
/// # Safety
/// `text` is null or ends in a NUL, and nothing changes it while the result lives.
pub(crate) unsafe fn read_bytes<'a>(text: *const c_char) -> Option<&'a [u8]> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not null, and ends in a NUL by the contract of this function.
    Some(unsafe { core::ffi::CStr::from_ptr(text) }.to_bytes())
}

/// Sets the variable for a result to null, in a call that fails.
///
/// # Safety
/// `to` is null or a variable.
#[cold]
#[inline(never)]
pub(crate) unsafe fn clear<T>(to: *mut T, null: T) {
    if !to.is_null() {
        // SAFETY: not null, and a variable by the contract of this function.
        unsafe { to.write(null) };
    }
}

/// The error of a null pointer that has to point somewhere.
#[cold]
pub(crate) fn null_result() -> Error {
    Error::new(MPI_ERR_ARG, "a pointer is null")
}

/// The caller's variable.
///
/// # Errors
/// `MPI_ERR_ARG` for a null pointer.
///
/// # Safety
/// `from` is null or a variable.
#[inline]
pub(crate) unsafe fn load<T: Copy>(from: *const T) -> Result<T> {
    if from.is_null() {
        return Err(Error::new(MPI_ERR_ARG, "the pointer to an argument is null"));
    }
    // SAFETY: not null, and the caller's by the contract of this function.
    Ok(unsafe { from.read() })
}

/// The caller's array `name` of `count` counts or displacements.
///
/// # Errors
/// `MPI_ERR_COUNT` for a negative count, `MPI_ERR_ARG` for a null pointer with a count above 0,
/// `MPI_ERR_NO_MEM` where there is no memory for them.
///
/// # Safety
/// `from` is null or has `count` entries.
pub(crate) unsafe fn read_counts<C: Count>(
    name: &str, from: *const C, count: i64,
) -> Result<Vec<i64>> {
    let Ok(length) = usize::try_from(count) else {
        return Err(Error::new(MPI_ERR_COUNT, format!("the count {count} is negative")));
    };
    if length > 0 && from.is_null() {
        return Err(Error::new(MPI_ERR_ARG, format!("{name} is null")));
    }
    let mut values = Vec::new();
    if may_fail(|| values.try_reserve_exact(length)).is_err() {
        return Err(Error::new(MPI_ERR_NO_MEM, format!("no memory for {count} entries of {name}")));
    }
    // SAFETY: the array has `count` entries by the contract of this function.
    values.extend((0..length).map(|i| unsafe { from.add(i).read() }.to_i64()));
    Ok(values)
}

/// The caller's string `name`, cut after `limit` bytes at most, between characters.
///
/// # Errors
/// `MPI_ERR_ARG` for a null pointer.
///
/// # Safety
/// `from` is null or a string ended by a NUL.
pub(crate) unsafe fn read_text(name: &str, from: *const c_char, limit: usize) -> Result<String> {
    if from.is_null() {
        return Err(Error::new(MPI_ERR_ARG, format!("{name} is null")));
    }
    // SAFETY: not null, and a string by the contract of this function.
    let text = unsafe { core::ffi::CStr::from_ptr(from) }.to_string_lossy();
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Ok(text[..end].to_string())
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
    text: &str, to: *mut c_char, capacity: usize, length: *mut c_int,
) -> Result<()> {
    if to.is_null() {
        return Err(null_result());
    }
    let bytes = text.as_bytes();
    let count = bytes.len().min(capacity - 1);
    // SAFETY: `count` bytes and the NUL are within the capacity that the caller promised.
    unsafe {
        to.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), count);
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
    fn text__is_read_up_to_a_whole_character() {
        let read = |text: &core::ffi::CStr, limit| {
            // SAFETY: strings and null are allowed.
            unsafe { read_text("t", text.as_ptr(), limit) }.unwrap()
        };
        assert_eq!(read(c"abc", 10), "abc");
        assert_eq!(read(c"abc", 2), "ab");
        assert_eq!(read(c"a\u{e9}b", 2), "a");
        // SAFETY: null is refused before it is read.
        let error = unsafe { read_text("t", core::ptr::null(), 2) }.unwrap_err();
        assert_eq!(error.code(), MPI_ERR_ARG);
    }

    #[test]
    fn counts__are_checked_before_they_are_read() {
        // SAFETY: arrays of the stated length and null are allowed.
        unsafe {
            assert_eq!(read_counts("c", [1_i32, -2].as_ptr(), 2).unwrap(), [1, -2]);
            assert!(read_counts("c", core::ptr::null::<i64>(), 0).unwrap().is_empty());
            let error =
                |count| read_counts("c", core::ptr::null::<i64>(), count).unwrap_err().code();
            assert_eq!((error(1), error(-1)), (MPI_ERR_ARG, MPI_ERR_COUNT));
        }
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
