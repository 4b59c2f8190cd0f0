//! Stores into a file through a mapping: exactly the bytes that are to change, without a call for each piece.
//!
//! Only where the file system keeps the file's pages in this host's memory for all its processes, and gives their space
//! in advance: a store that finds no space would be a signal. So is one to a page that somebody has cut off meanwhile;
//! that is caught ([`crate::guard`]), and the pieces are written by calls.
#![allow(unsafe_code)]

use crate::descriptor::Descriptor;
use crate::guard::Guard;
use crate::system::System;
use std::ops::Range;

/// A mapped range of a file.
pub(crate) struct Mapping {
    at: *mut u8,
    len: usize,
    /// Offset in the file of the first mapped byte.
    start: i64,
    guard: Guard,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `Descriptor::map`, and nobody has an address in it any more.
        unsafe { libc::munmap(self.at.cast(), self.len) };
    }
}

impl Mapping {
    /// Stores `len` bytes at `offset` of the file.
    ///
    /// # Safety
    /// They lie in the mapped range; `data` is readable for `len` bytes.
    pub(crate) unsafe fn store(&self, offset: i64, data: *const u8, len: usize) {
        debug_assert!(offset >= self.start && (offset - self.start) as usize + len <= self.len);
        // SAFETY: the bytes lie in the mapped range, and `data` is readable for as many, by this function's contract.
        unsafe {
            let to = self.at.add((offset - self.start) as usize);
            to.copy_from_nonoverlapping(data, len);
        }
    }

    /// Where a byte of the mapped range is.
    pub(crate) fn place(&self, offset: i64) -> *mut u8 {
        self.at.wrapping_add((offset - self.start) as usize)
    }

    /// Whether all that was stored is in the file: no page of it was cut off.
    pub(crate) fn is_whole(&self) -> bool {
        !self.guard.has_lost()
    }
}

/// Whether the kernel brings the pages of a mapping to be written (Linux 5.14).
fn knows_populate_write() -> bool {
    // SAFETY: an advice about no memory: the kernel only says whether it knows it.
    unsafe { libc::madvise(std::ptr::null_mut(), 0, libc::MADV_POPULATE_WRITE) == 0 }
}

impl Descriptor {
    /// Maps a range of the file, whose space is allocated then; none where that cannot be.
    pub(crate) fn map(&self, range: Range<i64>) -> Option<Mapping> {
        if !self.can_map() {
            return None;
        }
        // SAFETY: a query.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(4096);
        let start = range.start / page * page;
        let len = usize::try_from(range.end - start).ok()?;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // MAP_POPULATE maps pages of a file to be read: each would have a fault when it is stored to. An older kernel
        // has nothing better.
        let (flags, advice) = match self.system {
            System::Paged if knows_populate_write() => {
                (libc::MAP_SHARED, Some(libc::MADV_POPULATE_WRITE))
            }
            _ => (libc::MAP_SHARED | libc::MAP_POPULATE, None),
        };
        // SAFETY: an open file; the kernel chooses the address.
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
            // SAFETY: just mapped. Pages that the kernel does not bring now have their faults later.
            unsafe { libc::madvise(at, len, advice) };
        }
        let Some(guard) = Guard::watch(at as usize, len, page as usize) else {
            // SAFETY: just mapped, and used by nobody.
            unsafe { libc::munmap(at, len) };
            return None;
        };
        Some(Mapping { at: at.cast(), len, start, guard })
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::descriptor::testing::scratch_in;
    use std::path::PathBuf;

    const PAGES: usize = 256;

    /// Page faults of this thread.
    fn faults() -> i64 {
        // SAFETY: zeros are a value of it, which the call replaces.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: a variable of that type.
        unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
        usage.ru_minflt + usage.ru_majflt
    }

    /// Maps a file that can be mapped. Other tests of this process map files, too, and one at a time is watched.
    fn map(file: &Descriptor, range: Range<i64>) -> Mapping {
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
                // SAFETY: within what is mapped.
                unsafe { mapping.store(page as i64 * 4096, [7].as_ptr(), 1) };
            }
            let taken = faults() - before;
            assert!(!is_known || taken < PAGES as i64 / 8, "{taken} faults in {path:?}");
            assert!(mapping.is_whole());
        }
    }
}
