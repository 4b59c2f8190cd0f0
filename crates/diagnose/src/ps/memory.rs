//! The memory of another process, read while it runs.
#![allow(unsafe_code)]

/// What can be read of another process's memory from an address on, up to `bytes` bytes.
pub(super) fn read_memory(pid: i32, from: u64, bytes: usize) -> Vec<u8> {
    let mut buffer = vec![0_u8; bytes];
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: bytes };
    // In pages, so that what ends in the middle is read up to its end.
    let mut pieces = Vec::new();
    let mut at = from;
    let end = from.saturating_add(bytes as u64);
    while at < end {
        let next = ((at | 4095) + 1).min(end);
        pieces
            .push(libc::iovec { iov_base: at as *mut libc::c_void, iov_len: (next - at) as usize });
        at = next;
    }
    // SAFETY: the local buffer is writable for as many bytes as the pieces have together; the others are addresses of
    // the other process, which the kernel checks.
    let read = unsafe {
        libc::process_vm_readv(pid, &local, 1, pieces.as_ptr(), pieces.len() as libc::c_ulong, 0)
    };
    buffer.truncate(usize::try_from(read).unwrap_or(0));
    buffer
}
