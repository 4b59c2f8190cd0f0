//! Address space reserved from the kernel.
#![allow(unsafe_code)]

use crate::refusal::{describe_mapping, read_limit};
use std::ffi::CStr;
use std::io;

/// Reserves `bytes` of private address space that reads as zero and takes memory only where written; see [`release`].
///
/// # Errors
/// The kernel refuses. The error states `bytes` and the limits of this process.
pub fn reserve(bytes: usize) -> io::Result<*mut u8> {
    // miri supports only MAP_PRIVATE and MAP_ANONYMOUS.
    let lazily = if cfg!(miri) { 0 } else { libc::MAP_NORESERVE };
    // SAFETY: an anonymous mapping at an address that the kernel chooses touches no existing memory.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | lazily,
            -1,
            0,
        )
    };
    if at == libc::MAP_FAILED {
        let cause = io::Error::last_os_error();
        return Err(describe_mapping(bytes as u64, &cause));
    }
    tell_leak_checker(c"__lsan_register_root_region", at, bytes);
    Ok(at.cast())
}

/// Returns a reservation of [`reserve`] to the kernel.
///
/// # Safety
/// `at` and `bytes` are of one reservation, which has no user any more.
pub unsafe fn release(at: *mut u8, bytes: usize) {
    tell_leak_checker(c"__lsan_unregister_root_region", at.cast(), bytes);
    // SAFETY: `at` and `bytes` are of one reservation without users, by this function's contract. A failure leaks the
    // range and is harmless.
    unsafe { libc::munmap(at.cast(), bytes) };
}

/// Calls a function of LeakSanitizer's interface (`sanitizer/lsan_interface.h`), if the program is built with it.
/// Reservations hold pointers to allocated memory, and the sanitizer searches only known mappings.
fn tell_leak_checker(function: &CStr, at: *mut libc::c_void, bytes: usize) {
    // miri has no dynamic linker.
    if cfg!(miri) {
        return;
    }
    // SAFETY: dlsym only looks up a name, which ends in 0.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, function.as_ptr()) };
    if found.is_null() {
        return;
    }
    // SAFETY: the names passed here are of functions of this type.
    unsafe {
        let call: extern "C" fn(*const libc::c_void, usize) = std::mem::transmute(found);
        call(at, bytes);
    }
}

/// Bytes of private address space that this process may have (`ulimit -v`, `ulimit -d`); `None` without a limit.
pub fn address_limit() -> Option<u64> {
    // miri cannot read limits, and allocates whole reservations, so assume the smallest limit.
    if cfg!(miri) {
        return Some(0);
    }
    let limits = [libc::RLIMIT_AS, libc::RLIMIT_DATA].map(read_limit);
    limits.into_iter().flatten().min()
}
