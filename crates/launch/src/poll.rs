#![allow(unsafe_code)]
//! The kernel's event queue (`epoll`), and the few calls on descriptors that the loop needs.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// What a descriptor is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Something to read.
    Read,
    /// Room to write.
    Write,
    /// Nothing for now.
    Nothing,
}

/// A set of watched descriptors.
#[derive(Debug)]
pub struct Poller {
    queue: OwnedFd,
    ready: Vec<libc::epoll_event>,
}

impl Poller {
    /// An empty set.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> io::Result<Poller> {
        // SAFETY: plain call; the descriptor is new and nobody else's.
        let queue = unsafe {
            let fd = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Poller {
            queue,
            ready: Vec::new(),
        })
    }

    /// Watches a descriptor; `token` comes back with its events. Regular files cannot be
    /// watched: they are always ready.
    ///
    /// # Errors
    /// The kernel's.
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, interest)
    }

    /// Watches it for something else. With [`Interest::Nothing`] a closed far end is not
    /// reported either.
    pub fn change(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) {
        // EPOLLHUP cannot be masked, so a descriptor without interest leaves the set.
        if interest == Interest::Nothing {
            let _ = self.control(libc::EPOLL_CTL_DEL, fd, token, interest);
        } else if self
            .control(libc::EPOLL_CTL_MOD, fd, token, interest)
            .is_err()
        {
            let _ = self.control(libc::EPOLL_CTL_ADD, fd, token, interest);
        }
    }

    fn control(
        &self,
        op: i32,
        fd: BorrowedFd<'_>,
        token: u64,
        interest: Interest,
    ) -> io::Result<()> {
        let events = match interest {
            Interest::Read => libc::EPOLLIN,
            Interest::Write => libc::EPOLLOUT,
            Interest::Nothing => 0,
        };
        let mut event = libc::epoll_event {
            events: events as u32,
            u64: token,
        };
        // SAFETY: the event is valid for the call.
        let rc = unsafe { libc::epoll_ctl(self.queue.as_raw_fd(), op, fd.as_raw_fd(), &mut event) };
        if rc == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Waits until something is ready or the time is up; None waits without limit. Returns
    /// the tokens.
    pub fn wait(&mut self, limit_ms: Option<u64>) -> Vec<u64> {
        const BATCH: usize = 256;
        let limit = limit_ms.map_or(-1, |ms| i32::try_from(ms).unwrap_or(i32::MAX));
        self.ready
            .resize(BATCH, libc::epoll_event { events: 0, u64: 0 });
        // SAFETY: the buffer has BATCH entries.
        let n = unsafe {
            libc::epoll_wait(
                self.queue.as_raw_fd(),
                self.ready.as_mut_ptr(),
                BATCH as i32,
                limit,
            )
        };
        self.ready
            .iter()
            .take(usize::try_from(n).unwrap_or(0))
            .map(|e| e.u64)
            .collect()
    }
}

/// Is there room to write right now?
pub fn is_writable(fd: BorrowedFd<'_>) -> bool {
    wait_writable(fd, 0)
}

/// Waits until there is room to write (or an error to be met by writing).
pub fn wait_writable(fd: BorrowedFd<'_>, limit_ms: i32) -> bool {
    let mut p = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one valid entry.
    unsafe { libc::poll(&mut p, 1, limit_ms) == 1 }
}

/// Is there something to read right now, or the end to be met?
pub fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut p = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid entry.
    unsafe { libc::poll(&mut p, 1, 0) == 1 }
}

/// Reads what is there, at most the buffer's length.
///
/// # Errors
/// The kernel's; `WouldBlock` when nothing is there.
pub fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is writable for its length.
    let n = unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Writes what it can.
///
/// # Errors
/// The kernel's.
pub fn write(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the buffer is readable for its length.
    let n = unsafe { libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// A pipe: reading end (not blocking) and writing end, both above 2 and closed on exec.
///
/// # Errors
/// The kernel's, usually that too many files are open.
pub fn make_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = std::io::pipe()?;
    let reader = OwnedFd::from(reader);
    set_nonblocking(reader.as_fd());
    Ok((reader, writer.into()))
}

/// Makes reads and writes on this open file return at once.
pub fn set_nonblocking(fd: BorrowedFd<'_>) {
    // SAFETY: plain fcntl on an open descriptor.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
}

/// One of the launcher's own standard descriptors.
pub fn standard(fd: i32) -> BorrowedFd<'static> {
    // SAFETY: the runtime opens 0, 1 and 2 at start where they are closed, and this program
    // never closes them.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Are both the same file, pipe or terminal?
pub fn is_same_file(a: BorrowedFd<'_>, b: BorrowedFd<'_>) -> bool {
    let identity = |fd: BorrowedFd<'_>| {
        // SAFETY: all zeros is a valid stat, and the call fills it.
        unsafe {
            let mut s: libc::stat = std::mem::zeroed();
            (libc::fstat(fd.as_raw_fd(), &mut s) == 0).then_some((s.st_dev, s.st_ino, s.st_rdev))
        }
    };
    identity(a).is_some_and(|i| Some(i) == identity(b))
}

/// Does every write to it succeed at once, because it is a file or the like?
pub fn is_regular(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: all zeros is a valid stat, and the call fills it.
    unsafe {
        let mut s: libc::stat = std::mem::zeroed();
        libc::fstat(fd.as_raw_fd(), &mut s) == 0 && s.st_mode & libc::S_IFMT == libc::S_IFREG
    }
}
