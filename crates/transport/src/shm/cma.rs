//! Single copy by the kernel: `process_vm_readv` and `process_vm_writev` (cross-memory attach).
//!
//! Permission is tested once for each peer. Yama, a container's seccomp filter or another user id may refuse it, and
//! then no copy is tried again. In another namespace the peer's process number can name another process. Therefore the
//! test reads a secret that the peer has published.
#![allow(unsafe_code)]

use super::domain::Domain;
use crate::contract::{Remote, RemoteBlock, RemoteError};
use fastpath_base::sync::Ordering;
use std::io;

/// Permission to copy from and to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Not tested yet.
    Unknown,
    /// Permitted; the peer has this process number.
    Granted(libc::pid_t),
    /// Refused, with the kernel's `errno`. 0 if copies are switched off, or the process number names another process.
    Refused(i32),
}

/// Probable cause of a copy's `errno`, for messages.
pub fn explain_refusal(errno: i32) -> String {
    if errno == 0 {
        return "the peer's process number belongs to another process in this process namespace"
            .to_owned();
    }
    let error = io::Error::from_raw_os_error(errno);
    let who = match errno {
        libc::EPERM | libc::EACCES => {
            let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
            match scope.as_deref().map(str::trim) {
                Ok(scope @ ("1" | "2" | "3")) => {
                    format!(" (refused by Yama: kernel.yama.ptrace_scope is {scope})")
                }
                _ => " (refused by a seccomp filter or a security module of the container)"
                    .to_owned(),
            }
        }
        libc::ENOSYS => {
            " (the kernel was built without this call, or a seccomp filter refuses the call)"
                .to_owned()
        }
        _ => String::new(),
    };
    format!("process_vm_readv: {error}{who}")
}

/// Tests whether this process can copy from the memory of `peer`. `None` if `peer` has not started.
///
/// # Errors
/// Text of [`explain_refusal`].
pub fn probe_peer(domain: &Domain, peer: u32) -> Option<Result<(), String>> {
    match read_witness(domain, peer) {
        Permission::Unknown => None,
        Permission::Granted(_) => Some(Ok(())),
        // The peer has ended, which is no refusal.
        Permission::Refused(libc::ESRCH) if domain.has_left(peer) => Some(Ok(())),
        Permission::Refused(errno) => Some(Err(explain_refusal(errno))),
    }
}

impl Permission {
    /// Process number of `peer`, in whose memory `remote` is. If no copy was tested, tests one first. Returns
    /// `Unsupported` if copies are not permitted, `Fault` if the key names another process.
    pub(super) fn find_process(
        &mut self, domain: &Domain, peer: u32, remote: Remote,
    ) -> Result<libc::pid_t, RemoteError> {
        if *self == Permission::Unknown {
            *self = read_witness(domain, peer);
        }
        match *self {
            Permission::Granted(pid) if remote.rkey == pid as u64 => Ok(pid),
            Permission::Granted(_) => Err(RemoteError::Fault),
            Permission::Unknown | Permission::Refused(_) => Err(RemoteError::Unsupported),
        }
    }

    /// Error of a copy that failed with `errno`. After `EPERM`, `EACCES` or `ENOSYS`, copies stay refused.
    #[cold]
    pub(super) fn note_error(&mut self, errno: i32) -> RemoteError {
        if matches!(errno, libc::EPERM | libc::EACCES | libc::ENOSYS) {
            *self = Permission::Refused(errno);
            return RemoteError::Unsupported;
        }
        RemoteError::Fault
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
    // SAFETY: the array has the 16 bytes that the call writes.
    let read =
        unsafe { read_process(pid, found.as_mut_ptr().cast(), size_of_val(&found), address) };
    match read {
        Ok(()) if found == wanted => Permission::Granted(pid),
        Ok(()) => Permission::Refused(0),
        Err(errno) => Permission::Refused(errno),
    }
}

/// Copies from another process's memory.
///
/// # Errors
/// The kernel's `errno`; some bytes may have been copied.
///
/// # Safety
/// `to` is writable for `len` bytes.
pub unsafe fn read_process(
    pid: libc::pid_t, to: *mut u8, len: usize, addr: u64,
) -> Result<(), i32> {
    copy_all(len, |done| {
        let local = libc::iovec {
            // SAFETY: `done` is at most `len`, so this is inside the caller's buffer.
            iov_base: unsafe { to.add(done) }.cast(),
            iov_len: len - done,
        };
        let remote = remote_part(addr, done, len);
        // SAFETY: the kernel checks the remote side; the local side is valid by this function's contract.
        unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) }
    })
}

/// Copies to another process's memory.
///
/// # Errors
/// The kernel's `errno`; some bytes may have been copied.
///
/// # Safety
/// `from` is readable for `len` bytes.
pub unsafe fn write_process(
    pid: libc::pid_t, from: *const u8, len: usize, addr: u64,
) -> Result<(), i32> {
    copy_all(len, |done| {
        // SAFETY: `done` is at most `len`, so this is inside the caller's buffer.
        let at = unsafe { from.add(done) }.cast_mut();
        let local = libc::iovec { iov_base: at.cast(), iov_len: len - done };
        let remote = remote_part(addr, done, len);
        // SAFETY: the kernel checks the remote side; the local side is valid by this function's contract.
        unsafe { libc::process_vm_writev(pid, &local, 1, &remote, 1, 0) }
    })
}

fn remote_part(addr: u64, done: usize, len: usize) -> libc::iovec {
    let at = (addr as usize).wrapping_add(done);
    libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(at), iov_len: len - done }
}

/// Largest number of blocks that the kernel takes in a call (`IOV_MAX`).
const BLOCKS_MAX: usize = 1024;

/// Copies blocks of another process's memory to `to`, one after the other. Offsets of blocks count from `addr`.
///
/// # Errors
/// The kernel's `errno`; some bytes may have been copied.
///
/// # Safety
/// `to` is writable for the bytes of all blocks.
pub unsafe fn read_blocks(
    pid: libc::pid_t, to: *mut u8, addr: u64, blocks: &[RemoteBlock],
) -> Result<(), i32> {
    copy_blocks(to, addr, blocks, |local, remote| {
        let count = remote.len() as libc::c_ulong;
        // SAFETY: the kernel checks the remote side; the local side is valid by this function's contract.
        unsafe { libc::process_vm_readv(pid, local, 1, remote.as_ptr(), count, 0) }
    })
}

/// Copies the bytes at `from` to blocks of another process's memory. Offsets of blocks count from `addr`.
///
/// # Errors
/// The kernel's `errno`; some bytes may have been copied.
///
/// # Safety
/// `from` is readable for the bytes of all blocks.
pub unsafe fn write_blocks(
    pid: libc::pid_t, from: *const u8, addr: u64, blocks: &[RemoteBlock],
) -> Result<(), i32> {
    copy_blocks(from.cast_mut(), addr, blocks, |local, remote| {
        let count = remote.len() as libc::c_ulong;
        // SAFETY: the kernel checks the remote side; the local side is valid by this function's contract.
        unsafe { libc::process_vm_writev(pid, local, 1, remote.as_ptr(), count, 0) }
    })
}

/// Calls `copy` with the local side and up to [`BLOCKS_MAX`] blocks until all blocks are copied.
fn copy_blocks(
    local: *mut u8, addr: u64, blocks: &[RemoteBlock],
    mut copy: impl FnMut(&libc::iovec, &[libc::iovec]) -> isize,
) -> Result<(), i32> {
    let mut remote = Vec::with_capacity(blocks.len().min(BLOCKS_MAX));
    let mut local = local;
    for blocks in blocks.chunks(BLOCKS_MAX) {
        remote.clear();
        remote.extend(
            blocks
                .iter()
                .map(|block| remote_part(addr.wrapping_add(block.offset), 0, block.len as usize)),
        );
        let (mut rest, mut left) = (&mut remote[..], RemoteBlock::total(blocks) as usize);
        while left != 0 {
            let here = libc::iovec { iov_base: local.cast(), iov_len: left };
            let moved = moved_bytes(copy(&here, rest))?;
            (local, left) = (local.wrapping_add(moved), left - moved);
            rest = skip_bytes(rest, moved);
        }
    }
    Ok(())
}

/// Returns the part of `blocks` that follows the first `bytes` bytes.
fn skip_bytes(mut blocks: &mut [libc::iovec], mut bytes: usize) -> &mut [libc::iovec] {
    while bytes != 0 {
        let first = &mut blocks[0];
        if bytes < first.iov_len {
            first.iov_base = first.iov_base.wrapping_byte_add(bytes);
            first.iov_len -= bytes;
            break;
        }
        bytes -= first.iov_len;
        blocks = &mut blocks[1..];
    }
    blocks
}

/// Converts the result of a copy to its bytes, at least 1.
fn moved_bytes(result: isize) -> Result<usize, i32> {
    match usize::try_from(result) {
        Ok(0) => Err(libc::EFAULT),
        Ok(moved) => Ok(moved),
        Err(_) => Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EFAULT)),
    }
}

/// Copies in a loop, because the kernel copies at most 2 GiB in a call.
fn copy_all(len: usize, mut copy_rest: impl FnMut(usize) -> isize) -> Result<(), i32> {
    let mut done = 0;
    while done < len {
        done += moved_bytes(copy_rest(done))?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// Copies blocks by a call that moves at most `most` bytes, and never all of its blocks.
    fn copy_in_parts(blocks: &[RemoteBlock], most: usize) -> Result<Vec<(usize, usize)>, i32> {
        let mut moved = Vec::new();
        copy_blocks(std::ptr::null_mut(), 1000, blocks, |local, remote| {
            let mut left = most;
            for part in remote {
                let len = part.iov_len.min(left);
                if len != 0 {
                    moved.push((part.iov_base.addr(), len));
                }
                left -= len;
            }
            assert!(remote.len() <= BLOCKS_MAX && local.iov_len != 0);
            (most - left) as isize
        })?;
        Ok(moved)
    }

    #[test]
    fn blocks__that_the_kernel_copies_in_parts__are_copied_once() {
        let block = |offset, len| RemoteBlock { offset, len };
        let blocks = [block(0, 5), block(100, 3), block(50, 4)];
        assert_eq!(copy_in_parts(&blocks, 100).unwrap(), [(1000, 5), (1100, 3), (1050, 4)]);
        let parts = [(1000, 4), (1004, 1), (1100, 3), (1050, 4)];
        assert_eq!(copy_in_parts(&blocks, 4).unwrap(), parts);
        let parts = [(1000, 5), (1100, 1), (1101, 2), (1050, 4)];
        assert_eq!(copy_in_parts(&blocks, 6).unwrap(), parts);
        assert_eq!(copy_in_parts(&blocks, 0), Err(libc::EFAULT));
        let many: Vec<RemoteBlock> = (0..3000).map(|index| block(10 * index, 1)).collect();
        assert_eq!(copy_in_parts(&many, usize::MAX).unwrap().len(), 3000);
    }
}
