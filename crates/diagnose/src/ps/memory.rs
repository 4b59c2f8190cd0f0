//! Reads the memory of another process while it runs.
#![allow(unsafe_code)]

/// Reads up to `bytes` bytes from an address of another process, as far as they are readable.
pub(super) fn read_memory(pid: i32, from: u64, bytes: usize) -> Vec<u8> {
    let mut buffer = vec![0_u8; bytes];
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: bytes };
    // One piece per page, so that a read stops at the first unreadable page.
    let mut pieces = Vec::new();
    let mut at = from;
    let end = from.saturating_add(bytes as u64);
    while at < end {
        let next = ((at | 4095) + 1).min(end);
        pieces
            .push(libc::iovec { iov_base: at as *mut libc::c_void, iov_len: (next - at) as usize });
        at = next;
    }
    // SAFETY: the local buffer is writable for the total length of the pieces. These are addresses of the other
    // process, which the kernel checks.
    let read = unsafe {
        libc::process_vm_readv(pid, &local, 1, pieces.as_ptr(), pieces.len() as libc::c_ulong, 0)
    };
    buffer.truncate(usize::try_from(read).unwrap_or(0));
    buffer
}
