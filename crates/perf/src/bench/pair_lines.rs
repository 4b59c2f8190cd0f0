#![allow(unsafe_code)]
//! The floor's two cache lines in memory that two ranks share, outside MPI.
//!
//! One rank makes a memory file and tells the other its process id and descriptor; the other
//! opens it through /proc. Where that is not permitted the floor is left out.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::NonNull;

use crate::library::MpiLibrary;
use crate::measure::floor::Lines;

/// A mapping of one page that holds [`Lines`].
pub struct PairLines {
    page: NonNull<Lines>,
}

const PAGE: usize = 4096;

impl PairLines {
    /// Shares a page between this rank and `partner`: both call it, the owner with true. None on
    /// both sides when one of them could not map it.
    pub fn share(mpi: &MpiLibrary, owner: bool, partner: usize, tag: i32) -> Option<PairLines> {
        if owner {
            let made = make_file().ok();
            let descriptor = made.as_ref().map_or(-1, |f| i64::from(f.as_raw_fd()));
            let mut address = [0; 16];
            address[..8].copy_from_slice(&u64::from(std::process::id()).to_le_bytes());
            address[8..].copy_from_slice(&descriptor.to_le_bytes());
            mpi.send(&address, partner, tag);
            let mut mapped = [0];
            mpi.receive(&mut mapped, partner, tag);
            let own = made.and_then(|f| PairLines::map(&f).ok());
            // The partner learns whether it may rely on this side.
            let both = [u8::from(mapped[0] == 1 && own.is_some())];
            mpi.send(&both, partner, tag);
            own.filter(|_| both[0] == 1)
        } else {
            let mut address = [0; 16];
            mpi.receive(&mut address, partner, tag);
            let word = |at: usize| {
                let mut w = [0; 8];
                w.copy_from_slice(&address[at..at + 8]);
                i64::from_le_bytes(w)
            };
            let path = format!("/proc/{}/fd/{}", word(0), word(8));
            let opened = OpenOptions::new().read(true).write(true).open(path);
            let own = opened.and_then(|f| PairLines::map(&f)).ok();
            mpi.send(&[u8::from(own.is_some())], partner, tag);
            let mut both = [0];
            mpi.receive(&mut both, partner, tag);
            own.filter(|_| both[0] == 1)
        }
    }

    fn map(file: &File) -> io::Result<PairLines> {
        if file.metadata()?.len() < PAGE as u64 {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        // SAFETY: a fresh shared mapping of a page that the file holds; nothing is replaced.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let page = NonNull::new(at.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(PairLines { page })
    }

    /// The lines, shared with the other rank.
    pub fn lines(&self) -> &Lines {
        // SAFETY: the mapping is at least as large and as aligned as `Lines`, lives as long as
        // `self`, and `Lines` is atomics alone, valid in any state.
        unsafe { self.page.as_ref() }
    }
}

impl Drop for PairLines {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `map` made; no reference outlives `self`.
        unsafe { libc::munmap(self.page.as_ptr().cast(), PAGE) };
    }
}

/// A memory file of one page.
fn make_file() -> io::Result<File> {
    // SAFETY: the name is a C string; the call touches no other memory.
    let fd = unsafe { libc::memfd_create(c"fastpath-floor".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` is open and owned by nobody else.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(PAGE as u64)?;
    Ok(file)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn two_mappings__are_one_memory() {
        let file = make_file().unwrap();
        let (a, b) = (
            PairLines::map(&file).unwrap(),
            PairLines::map(&file).unwrap(),
        );
        std::thread::scope(|scope| {
            let answering = b.lines();
            scope.spawn(|| answering.answer());
            assert_eq!(a.lines().ask(0, 10), 10);
            a.lines().stop();
        });
    }

    #[test]
    fn map__refuses_a_file_that_is_too_short() {
        let file = make_file().unwrap();
        file.set_len(0).unwrap();
        assert!(PairLines::map(&file).is_err());
    }
}
