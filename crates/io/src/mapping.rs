//! Stores into a file through a mapping: they change exactly the given bytes, without a call for each piece.
//!
//! A file is mapped only if its file system shares the file's pages among all processes of this host. Its space must be
//! allocated first, because a store without space raises a signal. So does a store to a page that another process has
//! cut off. [`crate::guard`] catches that signal, and the pieces are then written by calls.
#![allow(unsafe_code)]

use crate::descriptor::Descriptor;
use crate::guard::MappingGuard;
use crate::system::System;
use std::ops::Range;

pub(crate) struct FileMapping {
    at: *mut u8,
    len: usize,
    /// Offset in the file of the first mapped byte.
    start: i64,
    guard: MappingGuard,
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        // SAFETY: `Descriptor::map` mapped this range, and no address in it is used after the drop.
        unsafe { libc::munmap(self.at.cast(), self.len) };
    }
}

impl FileMapping {
    /// Stores `len` bytes at `offset` of the file.
    ///
    /// # Safety
    /// The bytes lie in the mapped range, and `data` is readable for `len` bytes.
    pub(crate) unsafe fn store(&self, offset: i64, data: *const u8, len: usize) {
        debug_assert!(offset >= self.start && (offset - self.start) as usize + len <= self.len);
        // SAFETY: the bytes lie in the mapped range and `data` is readable, by the contract of this function.
        unsafe {
            let to = self.at.add((offset - self.start) as usize);
            to.copy_from_nonoverlapping(data, len);
        }
    }

    pub(crate) fn place(&self, offset: i64) -> *mut u8 {
        self.at.wrapping_add((offset - self.start) as usize)
    }

    /// Whether all stored bytes are in the file: no page was cut off.
    pub(crate) fn is_whole(&self) -> bool {
        !self.guard.has_lost()
    }
}

/// Whether the kernel can populate a mapping for writing (Linux 5.14).
fn knows_populate_write() -> bool {
    // SAFETY: the range is empty; the call only tests whether the kernel knows the advice.
    unsafe { libc::madvise(std::ptr::null_mut(), 0, libc::MADV_POPULATE_WRITE) == 0 }
}

impl Descriptor {
    /// Maps a range of the file and allocates its space. Returns none if the file cannot be mapped.
    pub(crate) fn map(&self, range: Range<i64>) -> Option<FileMapping> {
        if !self.can_map() {
            return None;
        }
        // SAFETY: `sysconf` only returns a value.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(4096);
        let start = range.start / page * page;
        let len = usize::try_from(range.end - start).ok()?;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // MAP_POPULATE maps file pages for reading, so first stores fault. Older kernels have nothing better.
        let (flags, advice) = match self.system {
            System::Paged if knows_populate_write() => {
                (libc::MAP_SHARED, Some(libc::MADV_POPULATE_WRITE))
            }
            _ => (libc::MAP_SHARED | libc::MAP_POPULATE, None),
        };
        // SAFETY: the kernel chooses an unused address, and checks the file descriptor.
        let at = unsafe {
            let bytes = range.end - range.start;
            if libc::fallocate(self.raw(), 0, range.start, bytes) != 0 {
                return None;
            }
            libc::mmap(std::ptr::null_mut(), len, rights, flags, self.raw(), start)
        };
        if at == libc::MAP_FAILED {
            return None;
        }
        if let Some(advice) = advice {
            // SAFETY: the range was mapped above. Pages that the kernel does not populate now fault later.
            unsafe { libc::madvise(at, len, advice) };
        }
        let Some(guard) = MappingGuard::watch(at as usize, len, page as usize) else {
            // SAFETY: the range was mapped above, and no reference to it exists.
            unsafe { libc::munmap(at, len) };
            return None;
        };
        Some(FileMapping { at: at.cast(), len, start, guard })
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::descriptor::testing::scratch_in;
    use std::path::PathBuf;

    const PAGES: usize = 256;

    fn faults() -> i64 {
        // SAFETY: all zeros is a valid `rusage`, which the call overwrites.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `usage` is writable.
        unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
        usage.ru_minflt + usage.ru_majflt
    }

    /// Maps a range, and waits for other tests of this process: only one range can be watched at a time.
    fn map(file: &Descriptor, range: Range<i64>) -> FileMapping {
        loop {
            match file.map(range.clone()) {
                Some(mapping) => return mapping,
                None => std::thread::yield_now(),
            }
        }
    }

    #[test]
    fn map__has_its_pages_before_they_are_stored_to() {
        for folder in [PathBuf::from("/dev/shm"), std::env::temp_dir()] {
            let (file, path) = scratch_in(&folder, "mapping");
            crate::delete(&path).unwrap();
            if !file.can_map() {
                continue;
            }
            let mapping = map(&file, 0..(PAGES * 4096) as i64);
            let is_known = knows_populate_write();
            let before = faults();
            for page in 0..PAGES {
                // SAFETY: each stored byte is within the mapped range.
                unsafe { mapping.store(page as i64 * 4096, [7].as_ptr(), 1) };
            }
            let taken = faults() - before;
            assert!(!is_known || taken < PAGES as i64 / 8, "{taken} faults in {path:?}");
            assert!(mapping.is_whole());
        }
    }
}
