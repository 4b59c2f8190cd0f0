//! Address space by the kernel.
#![allow(unsafe_code)]

use std::io;

/// Reserves `bytes` of private address space that reads as zero and is backed with memory only
/// where it is written. Given back by [`release`], if ever.
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
        return Err(io::Error::last_os_error());
    }
    Ok(at.cast())
}

/// Gives back what [`reserve`] gave.
///
/// # Safety
/// `at` and `bytes` are those of one reservation, and nothing uses it any more.
pub unsafe fn release(at: *mut u8, bytes: usize) {
    // SAFETY: the caller's. Nothing can be done about a refusal, and nothing need be.
    unsafe { libc::munmap(at.cast(), bytes) };
}
