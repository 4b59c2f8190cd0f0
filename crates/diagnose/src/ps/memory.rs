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
        // The last page of the address space has no next one.
        let next = (at | 4095).saturating_add(1).min(end);
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

/// Reads words from an address of another process; `None` unless all of them are readable.
pub(super) fn read_words(pid: i32, from: u64, words: usize) -> Option<Vec<u64>> {
    let bytes = read_memory(pid, from, 8 * words);
    let words_of = bytes.chunks_exact(8).map(|w| w.try_into().map(u64::from_le_bytes));
    (bytes.len() == 8 * words).then(|| words_of.flatten().collect())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn words__are_those_of_the_process_or_none() {
        let pid = std::process::id() as i32;
        let own = [7_u64, 8];
        assert_eq!(read_words(pid, own.as_ptr() as u64, 2).unwrap(), own);
        for from in [0, u64::MAX - 7, u64::MAX - 4095, u64::MAX] {
            assert_eq!(read_words(pid, from, 1), None, "{from:x}");
        }
    }
}
