//! Whether the processor can read an address.
#![allow(unsafe_code)]

/// Returns whether the processor can read the byte at an address. Returns true if the kernel does not answer.
pub(super) fn is_readable(address: *const u8) -> bool {
    let mut byte = 0_u8;
    let to = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let from = libc::iovec { iov_base: address.cast_mut().cast(), iov_len: 1 };
    // SAFETY: the kernel checks both addresses, and `byte` outlives the call.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &to, 1, &from, 1, 0) };
    read == 1 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::is_readable;
    use std::ptr;

    #[test]
    fn address__of_a_variable__is_readable() {
        let byte = 1_u8;
        assert!(is_readable(&raw const byte));
    }

    #[test]
    fn address__without_access_rights__is_not_readable() {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new private mapping, which is removed below.
        let at = unsafe { libc::mmap(ptr::null_mut(), 4096, libc::PROT_NONE, flags, -1, 0) };
        assert!(!is_readable(at.cast_const().cast()));
        // SAFETY: the mapping is that of this test.
        unsafe { libc::munmap(at, 4096) };
    }
}
