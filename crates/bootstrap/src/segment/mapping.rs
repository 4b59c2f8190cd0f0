#![allow(unsafe_code)]
//! A piece of the segment's file in the address space of this process.

use super::error::{SegmentError, system};
use fastpath_base::refusal::describe_mapping;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// A piece of the segment in the address space; unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    pub(super) base: NonNull<u8>,
    pub(super) bytes: usize,
}

// SAFETY: a mapping is an address range of the process, not of a thread.
unsafe impl Send for Mapping {}
// SAFETY: it hands out addresses only; what is done with them is the user's own proof.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a piece that begins on a page border, shared.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn new(
        file: BorrowedFd<'_>,
        offset: u64,
        bytes: usize,
        writable: bool,
    ) -> Result<Mapping, SegmentError> {
        let access = match writable {
            true => libc::PROT_READ | libc::PROT_WRITE,
            false => libc::PROT_READ,
        };
        // SAFETY: a new shared mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                access,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                offset as libc::off_t,
            )
        };
        if base == libc::MAP_FAILED {
            let cause = io::Error::last_os_error();
            return Err(SegmentError::NoAddresses(describe_mapping(
                bytes as u64,
                &cause,
            )));
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| system("mmap"))?;
        Ok(Mapping { base, bytes })
    }

    /// First byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// A mapping is never empty.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that was mapped; whoever holds addresses into it borrows
        // from the owner of this mapping.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
