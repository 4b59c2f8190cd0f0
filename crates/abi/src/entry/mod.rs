//! Bodies of the entry points, one file for each chapter of the standard.
//!
//! A line of `wiring.txt` names the body of a function, and the words that select its arguments:
//!
//! ```text
//! MPI_Comm_dup comm::comm_dup
//! ```
//! ```ignore
//! pub fn comm_dup(p: &Process, comm: usize) -> Result<usize>
//! ```
//!
//! * Every `pub fn` is a body. Helpers are `pub(crate)` or private.
//! * A body has the parameters of C in their order, after the special parameters of the next four points.
//! * A first parameter `&Process` means that the wrapper enters MPI before the call. It checks the initialisation,
//!   takes the lock of `MPI_THREAD_MULTIPLE` and records the name. Without it, the body does all three.
//! * A `Form` after `&Process` is the form of a collective call, with its request. The body gets no request or info.
//! * An `Access` after `&Process` combines offset, memory, count and datatype of a file access. In its place, a
//!   `SplitKind` names the split access that the call ends.
//! * A `Width` after `&Process` distinguishes `MPI_X` from `MPI_X_c`.
//! * A parameter of a struct type of `arguments.rs` combines the arguments that have the names of its fields.
//! * If the body's `Result` has a value, the wrapper stores it at the address in C's last argument. The body lacks that
//!   argument. If the address is null, the body is not called.
//! * A body that returns no `Result` returns the value of the C function.
//! * `Err` goes to the error handler of the first communicator, window, file or session argument, or of the object that
//!   `abigen/table/functions.txt` names. Before that, the variables for new handles are set to null.
//! * A `quick` body returns true if the call is complete. Otherwise the wrapper enters MPI and calls the line's body.
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
//! `MPI_X` and its large-count form `MPI_X_c` can share a body: a count by value arrives as `i64`. If counts or
//! displacements are behind pointers, the body is generic: `fn alltoallv<C: Count, D: Count>(.., sendcounts: *const C,
//! sdispls: *const D, ..)`. Pairs that differ in more than width (`MPI_Op_create`, `MPI_Register_datarep`,
//! `MPI_Type_get_contents`, `MPI_Type_get_envelope`) have two bodies, `x` and `x_c`.
//!
//! **ARGUMENTS.** An `unsafe` function without a `# Safety` section requires valid arguments, as far as the standard
//! makes them significant. Each pointer is null or points to a variable, a status or a string of its type. A `void *`
//! to a result points to a variable of the result's type. Each array is null or has the stated number of entries, or
//! one for each rank, neighbour or dimension. Each buffer for text is null or has room for the stated or the largest
//! length. Each data buffer matches its count and datatype until the operation is complete. An attached buffer stays
//! valid until it is detached.
#![allow(unsafe_code)]
// The standard fixes the number of arguments.
#![allow(clippy::too_many_arguments)]

use core::ffi::{c_char, c_int};
use fastpath_base::heap::may_fail;
pub(crate) use fastpath_mpi::coll::Form;
use fastpath_mpi::common::consts::{
    MPI_ERR_ARG, MPI_ERR_COUNT, MPI_ERR_NO_MEM, MPI_INFO_NULL, MPI_UNDEFINED,
};
pub(crate) use fastpath_mpi::io::access::{Access, FilePlace};
pub(crate) use fastpath_mpi::io::split::SplitKind;
pub(crate) use fastpath_mpi::objects::datatype::Form as Width;
use fastpath_mpi::objects::info::find_info;
use fastpath_mpi::{Error, Process, Result};

pub mod abi;
pub mod address;
pub mod arguments;
pub mod attribute;
pub mod buffer;
pub mod cart;
pub mod coll;
pub mod coll_all;
pub mod coll_neighbor;
pub mod coll_reduce;
pub mod comm;
pub mod contents;
pub mod datatype;
pub mod dynamic;
pub mod env;
pub mod errhandler;
pub mod file;
pub mod file_access;
pub mod graph;
pub mod grequest;
pub mod group;
pub mod handle;
pub mod info;
pub mod init;
pub mod memory;
pub mod op;
pub mod p2p;
pub mod p2p_calls;
pub mod p2p_immediate;
pub mod pack;
pub mod partitioned;
pub mod probe;
pub mod recovery;
pub mod request;
pub mod rma;
pub mod session;
pub mod tool;
pub mod tool_event;
pub mod tool_pvar;
pub mod type_attribute;
pub mod type_query;
pub mod win;
pub mod win_sync;

/// Count of elements or bytes, in the width of either form of a function.
#[allow(dead_code)]
pub(crate) trait Count: Copy {
    const LARGE: bool;

    fn to_i64(self) -> i64;

    /// Returns `value`, or `None` if it does not fit.
    fn from_i64(value: i64) -> Option<Self>;

    /// Returns `value`, or `MPI_UNDEFINED` if it does not fit. Queries of sizes return this value.
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
/// `to` is null or the caller's variable of type `T`.
#[inline]
pub(crate) unsafe fn store<T>(to: *mut T, value: T) -> Result<()> {
    if to.is_null() {
        return Err(null_result());
    }
    // SAFETY: the pointer is not null, and so points to the caller's variable by this function's contract.
    unsafe { to.write(value) };
    Ok(())
}

/// Stores the result of `make` in the caller's variable. If `to` is null, `make` is not called.
///
/// # Errors
/// `MPI_ERR_ARG` for a null pointer, and the errors of `make`.
///
/// # Safety
/// `to` is null or the caller's variable of type `T`.
#[inline]
pub(crate) unsafe fn give<T>(to: *mut T, make: impl FnOnce() -> Result<T>) -> Result<()> {
    if to.is_null() {
        return Err(null_result());
    }
    let made = make()?;
    // SAFETY: the pointer is not null, and so points to the caller's variable by this function's contract.
    unsafe { to.write(made) };
    Ok(())
}

/// Checks the info object of a call that uses no hints.
///
/// # Errors
/// `MPI_ERR_INFO` if it is not an info object.
pub(crate) fn check_info(p: &Process, info: usize) -> Result<()> {
    match info {
        MPI_INFO_NULL => Ok(()),
        _ => find_info(&p.infos, info).map(|_| ()),
    }
}

/// Stores a result on the immediate path, like [`store`]. Returns false if `to` is null.
///
/// # Safety
/// `to` is null or the caller's variable of type `T`.
#[inline(always)] // `fastpath bench instructions` counts the queries that end here
pub(crate) unsafe fn answer<T>(to: *mut T, value: T) -> bool {
    if to.is_null() {
        return false;
    }
    // SAFETY: the pointer is not null, and so points to the caller's variable by this function's contract.
    unsafe { to.write(value) };
    true
}

/// Returns the caller's array of `count` elements.
///
/// # Errors
/// `MPI_ERR_ARG` for a negative count, or a null pointer with a count above 0.
///
/// # Safety
/// `array` is null or has `count` elements, which do not change while the result lives.
pub(crate) unsafe fn read_array<'a, T>(array: *const T, count: c_int) -> Result<&'a [T]> {
    match usize::try_from(count) {
        Err(_) => Err(Error::new(
            MPI_ERR_ARG,
            format!("the number of elements is {count}: pass 0 or more"),
        )),
        Ok(0) => Ok(&[]),
        Ok(_) if array.is_null() => Err(Error::new(
            MPI_ERR_ARG,
            format!("the array of {count} elements is NULL: pass an array"),
        )),
        // SAFETY: `array` is not null, and so has `count` elements by this function's contract.
        Ok(count) => Ok(unsafe { core::slice::from_raw_parts(array, count) }),
    }
}

/// Returns the bytes of a caller's string, without the NUL; `None` for a null pointer.
///
/// # Safety
/// `text` is null or ends in a NUL, and does not change while the result lives.
pub(crate) unsafe fn read_bytes<'a>(text: *const c_char) -> Option<&'a [u8]> {
    if text.is_null() {
        return None;
    }
    // SAFETY: `text` is not null, and so ends in a NUL by this function's contract.
    Some(unsafe { core::ffi::CStr::from_ptr(text) }.to_bytes())
}

/// Sets the variable of a result to its null value, after an error.
///
/// # Safety
/// `to` is null or a variable.
#[cold]
#[inline(never)]
pub(crate) unsafe fn clear<T>(to: *mut T, null: T) {
    if !to.is_null() {
        // SAFETY: `to` is not null, and so points to a variable by this function's contract.
        unsafe { to.write(null) };
    }
}

#[cold]
pub(crate) fn null_result() -> Error {
    let text = "NULL was passed for an argument through which this call returns a value";
    Error::new(MPI_ERR_ARG, text).with_advice(Some("pass the address of a variable or buffer"))
}

#[cold]
fn null_argument() -> Error {
    let text = "NULL was passed for a pointer argument whose value this call reads";
    Error::new(MPI_ERR_ARG, text).with_advice(Some("pass the address of a variable"))
}

/// Returns the value of the caller's variable.
///
/// # Errors
/// `MPI_ERR_ARG` for a null pointer.
///
/// # Safety
/// `from` is null or a variable.
#[inline]
pub(crate) unsafe fn load<T: Copy>(from: *const T) -> Result<T> {
    if from.is_null() {
        return Err(null_argument());
    }
    // SAFETY: the pointer is not null, and so points to the caller's variable by this function's contract.
    Ok(unsafe { from.read() })
}

/// Returns the caller's array `name` of `count` counts or displacements.
///
/// # Errors
/// `MPI_ERR_COUNT` for a negative count, `MPI_ERR_ARG` for a null pointer with a count above 0, `MPI_ERR_NO_MEM` if
/// memory is short.
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
        return Err(Error::new(MPI_ERR_ARG, format!("{name} is NULL: pass an array")));
    }
    let mut values = Vec::new();
    if may_fail(|| values.try_reserve_exact(length)).is_err() {
        return Err(Error::new(MPI_ERR_NO_MEM, format!("no memory for {count} entries of {name}")));
    }
    // SAFETY: the array has `count` entries by this function's contract.
    values.extend((0..length).map(|i| unsafe { from.add(i).read() }.to_i64()));
    Ok(values)
}

/// Returns the caller's string `name`, cut at a character boundary to at most `limit` bytes.
///
/// # Errors
/// `MPI_ERR_ARG` for a null pointer.
///
/// # Safety
/// `from` is null or a string ended by a NUL.
pub(crate) unsafe fn read_text(name: &str, from: *const c_char, limit: usize) -> Result<String> {
    if from.is_null() {
        return Err(Error::new(MPI_ERR_ARG, format!("{name} is NULL: pass a string")));
    }
    // SAFETY: `from` is not null, and so points to a string by this function's contract.
    let text = unsafe { core::ffi::CStr::from_ptr(from) }.to_string_lossy();
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Ok(text[..end].to_string())
}

/// Stores `text` in a caller's buffer of `capacity` bytes, cut to fit and with a NUL. Stores its length without the NUL
/// in `length`.
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
    // SAFETY: `count` bytes and the NUL are within `capacity`, which `to` has by this function's contract.
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
            // SAFETY: the argument is a string or null, which are both allowed.
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
