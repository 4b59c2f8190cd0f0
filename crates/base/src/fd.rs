//! Descriptors that the library keeps for longer than one call.
//!
//! A program may close descriptors that it did not open, and then open files that get the same numbers. A kept
//! descriptor therefore carries the device and inode of its file, and [`CheckedHandle::get`] compares them before use.
//! It also has a high number, because the kernel gives new files the lowest free one.
//!
//! docs/decisions/0077-kept-descriptors.md has the rule, and the effect of losing each descriptor.
#![allow(unsafe_code)]

use crate::refusal::read_limit;
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Lowest number of a kept descriptor, if the limit on open files allows it. Loops that close "all" descriptors
/// commonly stop below it. The descriptor table for this number takes 16 KiB of kernel memory.
const HIGH_NUMBER: u64 = 1024;

/// Device and inode of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    /// Returns device and inode.
    pub fn words(self) -> [u64; 2] {
        [self.device, self.inode]
    }

    /// Returns the identity of the file behind `number`. `None` if the descriptor is closed. Sends no request to a file
    /// server.
    pub fn of(number: RawFd) -> Option<FileIdentity> {
        // SAFETY: all zeros is a value of both structures. The calls fill them, and fail on a closed descriptor.
        unsafe {
            let mut about: libc::statx = std::mem::zeroed();
            // Request no other fields: a network file system would ask its server for them, or flush written data.
            let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
            if libc::statx(number, c"".as_ptr(), flags, libc::STATX_INO, &mut about) == 0 {
                let device = libc::makedev(about.stx_dev_major, about.stx_dev_minor);
                return Some(FileIdentity { device, inode: about.stx_ino });
            }
            // Older kernels and sandboxes lack statx.
            let mut about: libc::stat = std::mem::zeroed();
            let is_open = libc::fstat(number, &mut about) == 0;
            is_open.then_some(FileIdentity { device: about.st_dev, inode: about.st_ino })
        }
    }
}

/// A descriptor of the library that the program has closed, or replaced by another file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostFd {
    /// Number of the descriptor.
    pub number: RawFd,
    /// Use of the descriptor, as a noun.
    pub purpose: &'static str,
}

impl fmt::Display for LostFd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LostFd { number, purpose } = self;
        write!(f, "the program closed descriptor {number}, which Fastpath had opened for {purpose}")
    }
}

impl std::error::Error for LostFd {}

impl From<LostFd> for io::Error {
    fn from(lost: LostFd) -> io::Error {
        io::Error::other(lost)
    }
}

/// Moves a descriptor to a high number, closed on exec. It keeps its number if the limit on open files is low.
pub fn move_high(fd: OwnedFd) -> OwnedFd {
    let limit = read_limit(libc::RLIMIT_NOFILE).unwrap_or(u64::MAX);
    let least = (limit / 2).min(HIGH_NUMBER) as RawFd;
    if fd.as_raw_fd() >= least {
        return fd;
    }
    // SAFETY: plain fcntl on an open descriptor.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) } {
        -1 => fd,
        // SAFETY: `fcntl` returned a new descriptor, which has no other owner.
        copy => unsafe { OwnedFd::from_raw_fd(copy) },
    }
}

/// Owner of a descriptor that stays open, such as a socket, with the identity of its file. Drop closes the descriptor
/// if it still belongs to the library.
#[derive(Debug)]
pub struct CheckedHandle<T: AsRawFd> {
    owner: ManuallyDrop<T>,
    /// Identity of the file. `None` if the kernel gave none; the descriptor then counts as lost.
    identity: Option<FileIdentity>,
    purpose: &'static str,
}

/// A kept descriptor of any kind.
pub type CheckedFd = CheckedHandle<OwnedFd>;

impl<T: AsRawFd + From<OwnedFd>> CheckedHandle<T> {
    /// Keeps a descriptor at a high number. `purpose` is a noun that completes "opened for".
    pub fn keep(fd: impl Into<OwnedFd>, purpose: &'static str) -> CheckedHandle<T> {
        CheckedHandle::keep_in_place(move_high(fd.into()), purpose)
    }

    /// Keeps a descriptor at its present number, because an environment variable names that number.
    pub fn keep_in_place(fd: impl Into<OwnedFd>, purpose: &'static str) -> CheckedHandle<T> {
        let owner = T::from(fd.into());
        let identity = FileIdentity::of(owner.as_raw_fd());
        CheckedHandle { owner: ManuallyDrop::new(owner), identity, purpose }
    }
}

impl<T: AsRawFd> CheckedHandle<T> {
    /// Returns the owner of the descriptor, if the descriptor still belongs to the library. Costs one system call.
    /// # Errors
    /// The program closed the descriptor, or its number belongs to another file.
    #[inline]
    pub fn get(&self) -> Result<&T, LostFd> {
        match self.is_ours() {
            true => Ok(&self.owner),
            false => Err(self.lost()),
        }
    }

    /// Returns whether the number still belongs to the library's file.
    pub fn is_ours(&self) -> bool {
        self.identity.is_some() && FileIdentity::of(self.number_unchecked()) == self.identity
    }

    /// Returns the number without a check. Use it for calls on a message path that fail on a regular file (`send`,
    /// `recv`, `epoll_wait`), and for calls that change nothing (`poll`).
    #[inline]
    pub fn number_unchecked(&self) -> RawFd {
        self.owner.as_raw_fd()
    }

    /// Returns the number. Returns -1, which `poll` ignores, if the descriptor was lost.
    pub fn number_or_none(&self) -> RawFd {
        self.get().map_or(-1, T::as_raw_fd)
    }

    /// Returns the error that reports this descriptor as lost.
    pub fn lost(&self) -> LostFd {
        LostFd { number: self.number_unchecked(), purpose: self.purpose }
    }

    /// Returns the cause of an error of a call on the unchecked number: [`LostFd`] if the descriptor was lost.
    #[cold]
    pub fn explain(&self, error: io::Error) -> io::Error {
        match self.is_ours() {
            true => error,
            false => self.lost().into(),
        }
    }

    /// Writes a byte. Returns false if the descriptor was lost or the write failed.
    pub fn write_byte(&self) -> bool {
        let (byte, number) = (1_u8, self.number_unchecked());
        // SAFETY: the byte is readable, and the descriptor was found to be the library's.
        self.is_ours() && unsafe { libc::write(number, (&raw const byte).cast(), 1) } == 1
    }

    /// Returns the owner and gives up the check, if the descriptor still belongs to the library.
    /// # Errors
    /// The program closed the descriptor, or its number belongs to another file.
    pub fn take(self) -> Result<T, LostFd> {
        self.get()?;
        let mut kept = ManuallyDrop::new(self);
        // SAFETY: the owner is neither used nor dropped after this, as `kept` is never dropped.
        Ok(unsafe { ManuallyDrop::take(&mut kept.owner) })
    }
}

impl CheckedHandle<OwnedFd> {
    /// Keeps a new descriptor that a system call has returned, or returns the call's error.
    ///
    /// # Errors
    /// `answer` is negative: the system's last error.
    ///
    /// # Safety
    /// `answer` is negative or a new descriptor that nothing else owns.
    pub unsafe fn of_call(answer: libc::c_int, purpose: &'static str) -> io::Result<CheckedFd> {
        match answer {
            // SAFETY: `answer` is a new descriptor without another owner, by this function's contract.
            0.. => Ok(CheckedFd::keep(unsafe { OwnedFd::from_raw_fd(answer) }, purpose)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl<T: AsRawFd> Drop for CheckedHandle<T> {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: the owner is dropped only here, and `is_ours` has found the library's file.
            unsafe { ManuallyDrop::drop(&mut self.owner) };
        }
    }
}

/// Opens a pipe that signals a thread of the library to end. The thread polls the first end;
/// [`CheckedHandle::write_byte`] on the second end wakes the thread. Unlike an eventfd, a pipe has its own inode.
///
/// # Errors
/// The process has too many open files.
pub fn open_stop_pipe(purpose: &'static str) -> io::Result<(CheckedFd, CheckedFd)> {
    let mut ends = [-1; 2];
    // SAFETY: `ends` has space for two descriptors.
    match unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } {
        // SAFETY: `pipe2` returned both, and neither has another owner.
        0 => Ok(ends
            .map(|end| CheckedFd::keep(unsafe { OwnedFd::from_raw_fd(end) }, purpose))
            .into()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::net::UnixStream;

    fn open_null() -> CheckedFd {
        CheckedFd::keep(File::open("/dev/null").unwrap(), "a test")
    }

    #[test]
    fn kept__open__is_high_and_yields_its_number() {
        let kept = open_null();
        let limit = read_limit(libc::RLIMIT_NOFILE).unwrap_or(u64::MAX);
        assert!(kept.number_unchecked() as u64 >= (limit / 2).min(HIGH_NUMBER));
        assert_eq!(kept.get().unwrap().as_raw_fd(), kept.number_unchecked());
        // SAFETY: F_GETFD only reads a flag of the descriptor.
        let flags = unsafe { libc::fcntl(kept.number_unchecked(), libc::F_GETFD) };
        assert_eq!(flags, libc::FD_CLOEXEC);
    }

    #[test]
    fn kept__number_reused__is_lost_and_leaves_the_other_file_open() {
        let (kept, other) = (open_null(), File::open("/dev/zero").unwrap());
        let number = kept.number_unchecked();
        // SAFETY: the call takes no pointer. It replaces the kept file, as a program does that closes and opens files.
        assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), number) }, number);
        let lost = kept.get().unwrap_err();
        assert_eq!(lost, LostFd { number, purpose: "a test" });
        let text = lost.to_string();
        assert!(text.contains(&format!("closed descriptor {number}, which")), "{text}");
        drop(kept);
        assert_eq!(FileIdentity::of(number), FileIdentity::of(other.as_raw_fd()));
        // SAFETY: `number` is the copy made by `dup2` above, which nothing else uses.
        unsafe { libc::close(number) };
    }

    #[test]
    fn kept__closed__is_lost_and_explains_errors() {
        let kept = CheckedFd::keep(UnixStream::pair().unwrap().0, "a test");
        let error = || io::Error::from_raw_os_error(libc::EBADF);
        assert_eq!(kept.explain(error()).raw_os_error(), Some(libc::EBADF));
        // SAFETY: the call takes no pointer. It closes the kept file, as a program might.
        unsafe { libc::close(kept.number_unchecked()) };
        assert!(kept.explain(error()).to_string().contains("a test"));
        assert!(kept.take().is_err());
    }

    #[test]
    fn kept__dropped__closes() {
        let (near, far) = UnixStream::pair().unwrap();
        drop(CheckedFd::keep(near, "a test"));
        let mut byte = [0];
        assert_eq!(std::io::Read::read(&mut &far, &mut byte).unwrap(), 0);
    }
}
