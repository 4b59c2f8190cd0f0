//! Address space by the kernel.
#![allow(unsafe_code)]

use std::io;

/// Reserves `bytes` of private address space that reads as zero and is backed with memory only
/// where it is written. Never given back.
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
