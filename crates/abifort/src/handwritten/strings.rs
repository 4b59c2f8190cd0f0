//! Procedures that return a string and its length. In Fortran the length does not count C's terminating zero byte.
#![allow(unsafe_code)]

use crate::convert::{info_from, session_from, store_error};
use crate::ffi;
use crate::text::{self, LONGEST, OutText};
use core::ffi::c_int;

/// Gets a string by `call`, which gets the length for C and the memory. `is_there` tells whether there is a string.
///
/// # Safety
/// `length` is valid for reads and writes, `value` for writes of `value_bytes` bytes.
unsafe fn get(
    length: *mut c_int, value: *mut u8, value_bytes: usize,
    call: impl FnOnce(*mut c_int, *mut u8) -> (c_int, bool),
) -> c_int {
    // SAFETY: by this function's contract.
    unsafe {
        let room = (*length).clamp(0, LONGEST);
        let mut memory = OutText::new(room);
        // With length 0, C returns only the length.
        let mut c_length = if room == 0 { 0 } else { room + 1 };
        let (code, is_there) = call(&mut c_length, memory.address());
        if code == 0 && is_there {
            *length = (c_length - 1).max(0);
            if room > 0 {
                memory.store(value, value_bytes);
            }
        }
        code
    }
}

#[allow(clippy::too_many_arguments)]
pub unsafe fn info_get_string(
    call: ffi::MPI_Info_get_string_fn, info: *mut c_int, key: *mut u8, length: *mut c_int,
    value: *mut u8, flag: *mut c_int, ierror: *mut c_int, key_bytes: usize, value_bytes: usize,
) {
    // SAFETY: ARGUMENTS.
    unsafe {
        let mut key = text::to_c(key, key_bytes, true);
        let mut found = 0;
        let code = get(length, value, value_bytes, |length, memory| {
            let code = call(info_from(*info), key.as_mut_ptr(), length, memory, &mut found);
            (code, found != 0)
        });
        if code == 0 {
            *flag = c_int::from(found != 0);
        }
        store_error(ierror, code);
    }
}

#[allow(clippy::too_many_arguments)]
pub unsafe fn session_get_nth_pset(
    call: ffi::MPI_Session_get_nth_pset_fn, session: *mut c_int, info: *mut c_int, n: *mut c_int,
    length: *mut c_int, name: *mut u8, ierror: *mut c_int, name_bytes: usize,
) {
    // SAFETY: ARGUMENTS.
    unsafe {
        let code = get(length, name, name_bytes, |length, memory| {
            (call(session_from(*session), info_from(*info), *n, length, memory), true)
        });
        store_error(ierror, code);
    }
}
