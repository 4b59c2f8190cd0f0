#![allow(unsafe_code)]
//! Waiting for descriptors and signals (`ppoll`), and the few calls on descriptors that the loop needs.

use crate::signals::has_arrived;
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{from_ref, null};

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
pub struct Poller {
    watched: RefCell<Watched>,
    /// Signals held back while it waits.
    mask: libc::sigset_t,
}

#[derive(Default)]
struct Watched {
    entries: Vec<libc::pollfd>,
    /// What comes back with the events of each.
    tokens: Vec<u64>,
}

impl Poller {
    /// An empty set. `mask` are the signals to hold back while it waits; others end a wait.
    ///
    /// # Errors
    /// The kernel refuses the call that waits.
    pub fn new(mask: libc::sigset_t) -> io::Result<Poller> {
        let poller = Poller { watched: RefCell::default(), mask };
        match poll_entries(&mut [], Some(0), Some(&poller.mask)) {
            Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
            _ => Ok(poller),
        }
    }

    /// Watches a descriptor for something; `token` comes back with its events. It must be watched for nothing before it
    /// is closed. Regular files are always ready.
    pub fn change(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) {
        let mut watched = self.watched.borrow_mut();
        let place = watched.entries.iter().position(|entry| entry.fd == fd.as_raw_fd());
        let events = match interest {
            Interest::Read => libc::POLLIN,
            Interest::Write => libc::POLLOUT,
            Interest::Nothing => {
                if let Some(place) = place {
                    watched.entries.swap_remove(place);
                    watched.tokens.swap_remove(place);
                }
                return;
            }
        };
        match place {
            Some(place) => {
                watched.entries[place].events = events;
                watched.tokens[place] = token;
            }
            None => {
                watched.entries.push(libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 });
                watched.tokens.push(token);
            }
        }
    }

    /// Waits until something is ready, a signal has come or the time is up; None waits without
    /// limit. Returns the tokens.
    pub fn wait(&self, limit_ms: Option<u64>) -> Vec<u64> {
        let mut watched = self.watched.borrow_mut();
        // One that has come and was not taken would not end the wait.
        let limit = if has_arrived() { Some(0) } else { limit_ms };
        if poll_entries(&mut watched.entries, limit, Some(&self.mask)).is_err() {
            return Vec::new();
        }
        let ready = watched.entries.iter().zip(&watched.tokens);
        ready.filter(|(entry, _)| entry.revents != 0).map(|(_, &token)| token).collect()
    }
}

/// Waits until an entry is ready or a signal that `mask` lets in has come, for at most `limit_ms` milliseconds. Returns
/// how many entries are ready.
fn poll_entries(
    entries: &mut [libc::pollfd], limit_ms: Option<u64>, mask: Option<&libc::sigset_t>,
) -> io::Result<usize> {
    let limit = limit_ms.map(|ms| libc::timespec {
        tv_sec: (ms / 1000) as libc::time_t,
        tv_nsec: (ms % 1000 * 1_000_000) as libc::c_long,
    });
    // SAFETY: the entries, the time and the mask are valid for the call.
    let ready = unsafe {
        libc::ppoll(
            entries.as_mut_ptr(),
            entries.len() as libc::nfds_t,
            limit.as_ref().map_or(null(), from_ref),
            mask.map_or(null(), from_ref),
        )
    };
    usize::try_from(ready).map_err(|_| io::Error::last_os_error())
}

/// Sleeps for `ms` milliseconds.
pub fn pause(ms: u64) {
    let _ = poll_entries(&mut [], Some(ms), None);
}

/// Lets in the signals that are held back and not in `mask`.
pub fn let_signals_in(mask: &libc::sigset_t) {
    let _ = poll_entries(&mut [], Some(0), Some(mask));
}

/// Is there room to write right now?
pub fn is_writable(fd: BorrowedFd<'_>) -> bool {
    wait_for(fd, libc::POLLOUT, Some(0))
}

/// Waits until there is room to write (or an error to be met by writing).
pub fn wait_writable(fd: BorrowedFd<'_>, limit_ms: u64) -> bool {
    wait_for(fd, libc::POLLOUT, Some(limit_ms))
}

/// Is there something to read right now, or the end to be met?
pub fn is_readable(fd: BorrowedFd<'_>) -> bool {
    wait_readable(fd, Some(0))
}

/// Waits until `fd` has data or has reached its end. `limit_ms` is the longest wait; None waits without a limit.
pub fn wait_readable(fd: BorrowedFd<'_>, limit_ms: Option<u64>) -> bool {
    wait_for(fd, libc::POLLIN, limit_ms)
}

/// Has the other end of a connection been closed? What it has written before may still be there to be read.
pub fn is_hung_up(fd: BorrowedFd<'_>) -> bool {
    wait_for(fd, libc::POLLRDHUP, Some(0))
}

fn wait_for(fd: BorrowedFd<'_>, events: libc::c_short, limit_ms: Option<u64>) -> bool {
    let fd = fd.as_raw_fd();
    let mut entry = libc::pollfd { fd, events, revents: 0 };
    poll_entries(std::slice::from_mut(&mut entry), limit_ms, None).is_ok_and(|n| n == 1)
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

#[cfg(test)]
#[allow(non_snake_case)]
pub mod tests {
    use super::*;

    /// One that holds no signals back.
    pub fn poller() -> Poller {
        // SAFETY: all zeros is the empty set.
        Poller::new(unsafe { std::mem::zeroed() }).unwrap()
    }

    #[test]
    fn poller__tells_what_is_ready_of_what_it_watches() {
        let poller = poller();
        let (reader, writer) = make_pipe().unwrap();
        poller.change(reader.as_fd(), 7, Interest::Read);
        assert!(poller.wait(Some(0)).is_empty());
        assert_eq!(write(writer.as_fd(), b"x").unwrap(), 1);
        assert_eq!(poller.wait(None), [7]);
        poller.change(writer.as_fd(), 8, Interest::Write);
        assert_eq!(poller.wait(None), [7, 8]);
        poller.change(reader.as_fd(), 7, Interest::Nothing);
        assert_eq!(poller.wait(None), [8]);
        // Twice is once.
        poller.change(reader.as_fd(), 7, Interest::Nothing);
        poller.change(reader.as_fd(), 9, Interest::Read);
        poller.change(writer.as_fd(), 8, Interest::Nothing);
        assert_eq!(poller.wait(None), [9]);
    }

    #[test]
    fn connection__is_hung_up_once_the_other_end_is_closed() {
        let check = |own: BorrowedFd<'_>, other: OwnedFd| {
            assert!(!is_hung_up(own));
            assert_eq!(write(other.as_fd(), b"x").unwrap(), 1);
            assert!(wait_for(own, libc::POLLIN, Some(10_000)) && !is_hung_up(own));
            drop(other);
            // Though a byte is still to be read. The kernel may take a moment to bring the end.
            assert!(wait_for(own, libc::POLLRDHUP, Some(10_000)) && is_hung_up(own));
        };
        let (own, other) = std::os::unix::net::UnixStream::pair().unwrap();
        check(own.as_fd(), other.into());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let other = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        check(listener.accept().unwrap().0.as_fd(), other.into());
    }

    #[test]
    fn poller__tells_of_an_end() {
        let poller = poller();
        let (reader, writer) = make_pipe().unwrap();
        poller.change(reader.as_fd(), 1, Interest::Read);
        drop(writer);
        assert_eq!(poller.wait(None), [1]);
        assert!(is_readable(reader.as_fd()));
    }
}
