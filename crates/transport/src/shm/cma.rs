//! Single copy by the kernel: `process_vm_readv` (cross-memory attach).
//!
//! Whether it is allowed is found out by trying: Yama, a container's seccomp filter or another user
//! refuse it, and then the peer is not asked again.
#![allow(unsafe_code)]

use super::endpoint::ShmEndpoint;
use crate::contract::{Remote, RemoteError};

/// Tried and working.
pub const CMA_WORKS: u8 = 1;
/// Tried and refused.
pub const CMA_REFUSED: u8 = 2;

/// Copies `len` bytes at `from.addr` of the process `from.rkey` (a process id) to `to`.
///
/// # Safety
/// `to` is writable for `len` bytes.
pub unsafe fn read(
    endpoint: &mut ShmEndpoint,
    to: *mut u8,
    len: usize,
    from: Remote,
) -> Result<(), RemoteError> {
    if endpoint.cma == CMA_REFUSED {
        return Err(RemoteError::Unsupported);
    }
    // SAFETY: the caller's.
    match unsafe { read_process(from.rkey as libc::pid_t, to, len, from.addr) } {
        Ok(()) => {
            endpoint.cma = CMA_WORKS;
            Ok(())
        }
        Err(code) if code == libc::EPERM || code == libc::ENOSYS => {
            endpoint.cma = CMA_REFUSED;
            Err(RemoteError::Unsupported)
        }
        Err(_) => Err(RemoteError::Fault),
    }
}

/// Copies `len` bytes at `from` to `to.addr` of the process `to.rkey`.
///
/// # Safety
/// `from` is readable for `len` bytes.
pub unsafe fn write(endpoint: &mut ShmEndpoint, from: *const u8, len: usize, to: Remote) -> Result<(), RemoteError> {
    if endpoint.cma == CMA_REFUSED {
        return Err(RemoteError::Unsupported);
    }
    let mut done = 0;
    while done < len {
        let rest = len - done;
        // SAFETY: inside the caller's buffer.
        let local = libc::iovec { iov_base: unsafe { from.add(done) }.cast_mut().cast(), iov_len: rest };
        let remote = libc::iovec { iov_base: (to.addr as usize + done) as *mut _, iov_len: rest };
        // SAFETY: the kernel checks the remote side; the local side is the caller's promise.
        let moved = unsafe { libc::process_vm_writev(to.rkey as libc::pid_t, &local, 1, &remote, 1, 0) };
        if moved <= 0 {
            return Err(RemoteError::Fault);
        }
        done += moved as usize;
    }
    Ok(())
}

/// Copies from another process's memory; the error is an `errno`.
///
/// # Safety
/// `to` is writable for `len` bytes.
pub unsafe fn read_process(pid: libc::pid_t, to: *mut u8, len: usize, addr: u64) -> Result<(), i32> {
    let mut done = 0;
    while done < len {
        let rest = len - done;
        // SAFETY: inside the caller's buffer.
        let local = libc::iovec { iov_base: unsafe { to.add(done) }.cast(), iov_len: rest };
        let remote = libc::iovec { iov_base: (addr as usize + done) as *mut _, iov_len: rest };
        // SAFETY: the kernel checks the remote side; the local side is the caller's promise.
        let moved = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
        if moved <= 0 {
            return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EFAULT));
        }
        done += moved as usize;
    }
    Ok(())
}
