#![allow(unsafe_code)]
//! A piece of the segment's file in the address space of this process.

use crate::error::{SegmentError, system};
use crate::layout::PAGE_BYTES;
use fastpath_base::refusal::describe_mapping;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// A piece of the segment in the address space of this process; unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    pub(crate) base: NonNull<u8>,
    pub(crate) bytes: usize,
}

// SAFETY: a mapping is an address range of the process, not of a thread.
unsafe impl Send for Mapping {}
// SAFETY: a mapping hands out addresses only; each use of an address has its own SAFETY argument.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` bytes of the file from `offset`, a page boundary, as shared memory.
    pub(crate) fn new(
        file: BorrowedFd<'_>, offset: u64, bytes: usize, writable: bool,
    ) -> Result<Mapping, SegmentError> {
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        // SAFETY: the call makes a new shared mapping, at an address that the kernel chooses.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                access(writable),
                flags,
                file.as_raw_fd(),
                offset as libc::off_t,
            )
        };
        Mapping::of(base, bytes)
    }

    /// Maps a piece of the file again without its descriptor: `mremap` of 0 bytes copies a shared mapping, and may make
    /// the copy longer. `self` begins at offset 0 of the file. Takes `offset + bytes` of address space temporarily.
    #[cold]
    pub(crate) fn duplicate(&self, offset: u64, bytes: usize) -> io::Result<Mapping> {
        let front = usize::try_from(offset).ok();
        let all = front.and_then(|front| front.checked_add(bytes));
        let (Some(front), Some(all)) = (front, all) else {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        };
        let base = self.base.as_ptr().cast();
        // SAFETY: the original stays unchanged; only a part of the copy just made is unmapped.
        let copy = unsafe {
            // If the page stayed locked, the kernel would lock the whole copy too, and so allocate its memory.
            libc::munlock(base, PAGE_BYTES);
            let copy = libc::mremap(base, 0, all, libc::MREMAP_MAYMOVE);
            if copy == libc::MAP_FAILED {
                return Err(describe_mapping(all as u64, &io::Error::last_os_error()));
            }
            if front != 0 {
                libc::munmap(copy, front);
            }
            let piece = copy.byte_add(front);
            libc::madvise(piece, bytes, libc::MADV_DODUMP);
            piece
        };
        let base = NonNull::new(copy.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Mapping { base, bytes })
    }

    /// Maps a part of the file as [`Mapping::fill`] does, but without the file's descriptor. Errors: the part leaves
    /// the mapping, or the kernel refuses.
    #[cold]
    pub(crate) fn fill_by_duplicate(&self, part: Range<usize>) -> io::Result<()> {
        let bytes = part.len();
        if part.end > self.bytes {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        let piece = ManuallyDrop::new(self.duplicate(part.start as u64, bytes)?);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: only this function has the piece. The piece replaces addresses of this mapping that hold nothing, or
        // the same part of the file (see `fill`).
        unsafe {
            let at = self.base.as_ptr().add(part.start).cast::<libc::c_void>();
            let from = piece.base.as_ptr().cast();
            if libc::mremap(from, bytes, bytes, flags, at) == libc::MAP_FAILED {
                let cause = io::Error::last_os_error();
                drop(ManuallyDrop::into_inner(piece));
                return Err(cause);
            }
            libc::madvise(at, bytes, libc::MADV_DONTDUMP);
        }
        Ok(())
    }

    /// Reserves addresses without memory, for [`Mapping::fill`].
    pub(crate) fn reserve(bytes: usize) -> Result<Mapping, SegmentError> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: the call makes a new mapping without access rights, at an address that the kernel chooses.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
        Mapping::of(base, bytes)
    }

    fn of(base: *mut libc::c_void, bytes: usize) -> Result<Mapping, SegmentError> {
        if base == libc::MAP_FAILED {
            return Err(refuse(bytes));
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| system("mmap"))?;
        Ok(Mapping { base, bytes })
    }

    /// Maps a part of the file, shared, at the same offset of this mapping's addresses. Both ends of the part are page
    /// boundaries. An earlier mapping of the same part stays unchanged for its readers. Core files leave the part out,
    /// because other processes write it. Errors: the part leaves the addresses, or the kernel refuses.
    pub(crate) fn fill(
        &self, file: BorrowedFd<'_>, part: Range<usize>, writable: bool,
    ) -> Result<(), SegmentError> {
        let bytes = part.len();
        if part.end > self.bytes {
            return Err(refuse(bytes));
        }
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: the addresses are this mapping's own, and hold nothing or the same part of the same file.
        let (base, at) = unsafe {
            let at = self.base.as_ptr().add(part.start).cast();
            let (fd, offset) = (file.as_raw_fd(), part.start as libc::off_t);
            let base = libc::mmap(at, bytes, access(writable), flags, fd, offset);
            libc::madvise(at, bytes, libc::MADV_DONTDUMP);
            (base, at)
        };
        match base == at {
            true => Ok(()),
            false => Err(refuse(bytes)),
        }
    }

    /// First byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Always false: a mapping is never empty.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

fn access(writable: bool) -> libc::c_int {
    match writable {
        true => libc::PROT_READ | libc::PROT_WRITE,
        false => libc::PROT_READ,
    }
}

fn refuse(bytes: usize) -> SegmentError {
    let cause = io::Error::last_os_error();
    SegmentError::NoAddresses(describe_mapping(bytes as u64, &cause))
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is exactly the one that was mapped, and its users borrow from this mapping's owner.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
