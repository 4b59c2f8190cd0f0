//! Address space by the kernel.
#![allow(unsafe_code)]

use crate::refusal::{describe_mapping, read_limit};
use std::io;

/// Reserves `bytes` of private address space that reads as zero and is backed with memory only
/// where it is written. Given back by [`release`], if ever.
///
/// # Errors
/// The kernel refuses: the error states `bytes` and the limits of this process.
pub fn reserve(bytes: usize) -> io::Result<*mut u8> {
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing that exists.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if at == libc::MAP_FAILED {
        let cause = io::Error::last_os_error();
        return Err(describe_mapping(bytes as u64, &cause));
    }
    Ok(at.cast())
}

/// Gives back what [`reserve`] gave.
///
/// # Safety
/// `at` and `bytes` are those of one reservation, and nothing uses it any more.
pub unsafe fn release(at: *mut u8, bytes: usize) {
    // SAFETY: `at` and `bytes` are those of one reservation that nothing uses any more, by this function's contract.
    // Nothing can be done about a refusal, and nothing need be.
    unsafe { libc::munmap(at.cast(), bytes) };
}

/// Bytes of private address space that this process may have (`ulimit -v`, `ulimit -d`); None without a limit.
pub fn address_limit() -> Option<u64> {
    let limits = [libc::RLIMIT_AS, libc::RLIMIT_DATA].map(read_limit);
    limits.into_iter().flatten().min()
}
