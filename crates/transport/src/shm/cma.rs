//! Single copy by the kernel: `process_vm_readv` and `process_vm_writev` (cross-memory attach).
//!
//! Whether it is allowed is found out by trying, once for each peer: Yama, a container's seccomp
//! filter or another user refuse it, and then the peer is not asked again. The trial reads a secret
//! that the peer has published, because a process number can mean another process in another
//! namespace.
#![allow(unsafe_code)]

use super::domain::Domain;
use super::endpoint::ShmEndpoint;
use crate::contract::{Remote, RemoteError};
use fastpath_base::sync::Ordering;
use std::io;

/// What is known of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Not tried yet.
    Unknown,
    /// It works, by this process number.
    Granted(libc::pid_t),
    /// Refused, with the kernel's `errno`; 0 where it was switched off, or where the process number
    /// leads to another process.
    Refused(i32),
}

/// Who is likely to have refused a copy with this `errno`, and where it was seen, for people.
pub fn explain_refusal(errno: i32) -> String {
    if errno == 0 {
        return "the process number leads to another process (another namespace)".to_owned();
    }
    let error = io::Error::from_raw_os_error(errno);
    let who = match errno {
        libc::EPERM | libc::EACCES => {
            let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
            match scope.as_deref().map(str::trim) {
                Ok(scope @ ("1" | "2" | "3")) => {
                    format!(" (Yama: kernel.yama.ptrace_scope is {scope})")
                }
                _ => " (a seccomp filter or a security module of the container)".to_owned(),
            }
        }
        libc::ENOSYS => " (this kernel was built without it, or a filter says so)".to_owned(),
        _ => String::new(),
    };
    format!("process_vm_readv: {error}{who}")
}

/// Whether this process can copy from the memory of `peer`, found out by trying; `None` while that one
/// has not started.
///
/// # Errors
/// As [`explain_refusal`].
pub fn probe_peer(domain: &Domain, peer: u32) -> Option<Result<(), String>> {
    match read_witness(domain, peer) {
        Permission::Unknown => None,
        Permission::Granted(_) => Some(Ok(())),
        // It has ended already: nothing speaks against it.
        Permission::Refused(libc::ESRCH) if domain.has_left(peer) => Some(Ok(())),
        Permission::Refused(errno) => Some(Err(explain_refusal(errno))),
    }
}

/// Copies `len` bytes at `from.addr` of the peer's memory to `to`.
///
/// # Errors
/// `Unsupported` where it is not permitted, `Fault` where the memory is not there.
///
/// # Safety
/// `to` is writable for `len` bytes.
pub unsafe fn read(
    endpoint: &mut ShmEndpoint, to: *mut u8, len: usize, from: Remote,
) -> Result<(), RemoteError> {
    let pid = find_process(endpoint, from)?;
    // SAFETY: `to` is writable for `len` bytes, by this function's contract; the kernel checks the other side.
    unsafe { read_process(pid, to, len, from.addr) }.map_err(|code| note_refusal(endpoint, code))
}

/// Copies `len` bytes at `from` to `to.addr` of the peer's memory.
///
/// # Errors
/// As [`read`].
///
/// # Safety
/// `from` is readable for `len` bytes.
pub unsafe fn write(
    endpoint: &mut ShmEndpoint, from: *const u8, len: usize, to: Remote,
) -> Result<(), RemoteError> {
    let pid = find_process(endpoint, to)?;
    // SAFETY: `from` is readable for `len` bytes, by this function's contract; the kernel checks the other side.
    unsafe { write_process(pid, from, len, to.addr) }.map_err(|code| note_refusal(endpoint, code))
}

fn find_process(endpoint: &mut ShmEndpoint, remote: Remote) -> Result<libc::pid_t, RemoteError> {
    if endpoint.permission == Permission::Unknown {
        endpoint.permission = read_witness(endpoint.domain, endpoint.peer());
    }
    match endpoint.permission {
        Permission::Granted(pid) if remote.rkey == pid as u64 => Ok(pid),
        Permission::Granted(_) => Err(RemoteError::Fault),
        Permission::Unknown | Permission::Refused(_) => Err(RemoteError::Unsupported),
    }
}

#[cold]
fn read_witness(domain: &Domain, peer: u32) -> Permission {
    let page = domain.page(peer);
    // ORDERING: acquire pairs with the release in `Domain::publish_witness`.
    let address = page.witness_address.load(Ordering::Acquire);
    if address == 0 {
        return Permission::Unknown;
    }
    let pid = page.owner_pid.load(Ordering::Relaxed) as libc::pid_t;
    let wanted = [0, 1].map(|index: usize| page.witness[index].load(Ordering::Relaxed));
    let mut found = [0u64; 2];
    // SAFETY: the array has 16 bytes.
    let read =
        unsafe { read_process(pid, found.as_mut_ptr().cast(), size_of_val(&found), address) };
    match read {
        Ok(()) if found == wanted => Permission::Granted(pid),
        Ok(()) => Permission::Refused(0),
        Err(errno) => Permission::Refused(errno),
    }
}

/// What an error means; a permission that was taken away stays away.
#[cold]
fn note_refusal(endpoint: &mut ShmEndpoint, code: i32) -> RemoteError {
    if matches!(code, libc::EPERM | libc::EACCES | libc::ENOSYS) {
        endpoint.permission = Permission::Refused(code);
        return RemoteError::Unsupported;
    }
    RemoteError::Fault
}

/// Copies from another process's memory.
///
/// # Errors
/// The kernel's `errno`; part of it may have been copied.
///
/// # Safety
/// `to` is writable for `len` bytes.
pub unsafe fn read_process(
    pid: libc::pid_t, to: *mut u8, len: usize, addr: u64,
) -> Result<(), i32> {
    copy_all(len, |done| {
        let local = libc::iovec {
            // SAFETY: inside the caller's buffer.
            iov_base: unsafe { to.add(done) }.cast(),
            iov_len: len - done,
        };
        let remote = remote_part(addr, done, len);
        // SAFETY: the kernel checks the remote side; the local side is the caller's promise.
        unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) }
    })
}

/// Copies to another process's memory.
///
/// # Errors
/// As [`read_process`].
///
/// # Safety
/// `from` is readable for `len` bytes.
pub unsafe fn write_process(
    pid: libc::pid_t, from: *const u8, len: usize, addr: u64,
) -> Result<(), i32> {
    copy_all(len, |done| {
        // SAFETY: inside the caller's buffer.
        let at = unsafe { from.add(done) }.cast_mut();
        let local = libc::iovec { iov_base: at.cast(), iov_len: len - done };
        let remote = remote_part(addr, done, len);
        // SAFETY: the kernel checks the remote side; the local side is the caller's promise.
        unsafe { libc::process_vm_writev(pid, &local, 1, &remote, 1, 0) }
    })
}

fn remote_part(addr: u64, done: usize, len: usize) -> libc::iovec {
    let at = (addr as usize).wrapping_add(done);
    libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(at), iov_len: len - done }
}

/// The kernel copies at most 2 GiB at once.
fn copy_all(len: usize, mut copy_rest: impl FnMut(usize) -> isize) -> Result<(), i32> {
    let mut done = 0;
    while done < len {
        match usize::try_from(copy_rest(done)) {
            Ok(moved) if moved > 0 => done += moved,
            Ok(_) => return Err(libc::EFAULT),
            Err(_) => {
                return Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EFAULT));
            }
        }
    }
    Ok(())
}
