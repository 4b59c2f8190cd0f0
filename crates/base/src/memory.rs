//! Address space by the kernel.
#![allow(unsafe_code)]

use crate::refusal::{describe_mapping, read_limit};
use std::ffi::CStr;
use std::io;

/// Reserves `bytes` of private address space that reads as zero and is backed with memory only
/// where it is written. Given back by [`release`], if ever.
///
/// # Errors
/// The kernel refuses: the error states `bytes` and the limits of this process.
pub fn reserve(bytes: usize) -> io::Result<*mut u8> {
    // miri knows no further flags.
    let lazily = if cfg!(miri) { 0 } else { libc::MAP_NORESERVE };
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing that exists.
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

/// Gives back what [`reserve`] gave.
///
/// # Safety
/// `at` and `bytes` are those of one reservation, and nothing uses it any more.
pub unsafe fn release(at: *mut u8, bytes: usize) {
    tell_leak_checker(c"__lsan_unregister_root_region", at.cast(), bytes);
    // SAFETY: `at` and `bytes` are those of one reservation that nothing uses any more, by this function's contract.
    // Nothing can be done about a refusal, and nothing need be.
    unsafe { libc::munmap(at.cast(), bytes) };
}

/// Calls a function of LeakSanitizer's interface (`sanitizer/lsan_interface.h`), if the program has been built with it.
/// Reservations hold pointers to allocated memory, and the sanitizer searches only those mappings that it knows.
fn tell_leak_checker(function: &CStr, at: *mut libc::c_void, bytes: usize) {
    // miri has no dynamic linker.
    if cfg!(miri) {
        return;
    }
    // SAFETY: a lookup by a name that ends in 0.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, function.as_ptr()) };
    if found.is_null() {
        return;
    }
    // SAFETY: the names given here are of functions of this type.
    unsafe {
        let call: extern "C" fn(*const libc::c_void, usize) = std::mem::transmute(found);
        call(at, bytes);
    }
}

/// Bytes of private address space that this process may have (`ulimit -v`, `ulimit -d`); None without a limit.
pub fn address_limit() -> Option<u64> {
    // miri cannot ask, and backs all of a reservation: the smallest ones will do.
    if cfg!(miri) {
        return Some(0);
    }
    let limits = [libc::RLIMIT_AS, libc::RLIMIT_DATA].map(read_limit);
    limits.into_iter().flatten().min()
}
