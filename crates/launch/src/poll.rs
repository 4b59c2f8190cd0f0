#![allow(unsafe_code)]
//! Waits for descriptors and signals (`ppoll`), and wrappers of system calls on descriptors.

use fastpath_base::sync::{StaticOrdering as Ordering, StaticU64};
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{from_ref, null};

// Tokens of the main loop's descriptors.
pub const INPUT: u64 = 1;
pub const SINKS: [u64; 2] = [2, 3];
/// Token of the listening socket for ranks.
pub const CONTROL: u64 = 5;
pub const CLIENTS: u64 = 6;
/// Token of the socket that reports the end of a round of requests to other agents.
pub const ROUND: u64 = 7;
/// Token of the first stream of the ranks.
pub const STREAMS: u64 = 16;

/// Signals that have arrived and were not taken yet, as a bit mask. A handler in `signals` sets the bits.
pub static ARRIVED: StaticU64 = StaticU64::new(0);

/// Whether a signal has arrived and was not taken yet.
pub fn has_arrived() -> bool {
    ARRIVED.load(Ordering::Relaxed) != 0
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    Read,
    Write,
    Nothing,
}

pub struct Poller {
    watched: RefCell<PolledDescriptors>,
    mask: libc::sigset_t,
}

#[derive(Default)]
struct PolledDescriptors {
    entries: Vec<libc::pollfd>,
    tokens: Vec<u64>,
}

impl Poller {
    /// Creates an empty set. `mask` holds the signals to block during a wait; other signals end the wait.
    pub fn new(mask: libc::sigset_t) -> io::Result<Poller> {
        let poller = Poller { watched: RefCell::default(), mask };
        match poll_entries(&mut [], Some(0), Some(&poller.mask)) {
            Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
            _ => Ok(poller),
        }
    }

    /// Sets the event for which `wait` polls a descriptor and returns `token`. `Nothing` must be set before the
    /// descriptor is closed. Regular files are always ready.
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

    /// Waits until a descriptor is ready, a signal arrives or the time is over; None waits without limit. Returns the
    /// tokens of the ready descriptors.
    pub fn wait(&self, limit_ms: Option<u64>) -> Vec<u64> {
        let mut watched = self.watched.borrow_mut();
        // Do not wait if a signal has arrived before: that signal would not end the wait.
        let limit = if has_arrived() { Some(0) } else { limit_ms };
        if poll_entries(&mut watched.entries, limit, Some(&self.mask)).is_err() {
            return Vec::new();
        }
        let ready = watched.entries.iter().zip(&watched.tokens);
        ready.filter(|(entry, _)| entry.revents != 0).map(|(_, &token)| token).collect()
    }
}

/// Waits until an entry is ready or a signal outside `mask` arrives, for at most `limit_ms` milliseconds. Returns the
/// number of ready entries.
fn poll_entries(
    entries: &mut [libc::pollfd], limit_ms: Option<u64>, mask: Option<&libc::sigset_t>,
) -> io::Result<usize> {
    let limit = limit_ms.map(|ms| libc::timespec {
        tv_sec: (ms / 1000) as libc::time_t,
        tv_nsec: (ms % 1000 * 1_000_000) as libc::c_long,
    });
    // SAFETY: the entries, the time and the mask outlive the call.
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

pub fn pause(ms: u64) {
    let _ = poll_entries(&mut [], Some(ms), None);
}

/// Delivers pending signals that are not in `mask`.
pub fn let_signals_in(mask: &libc::sigset_t) {
    let _ = poll_entries(&mut [], Some(0), Some(mask));
}

pub fn is_writable(fd: BorrowedFd<'_>) -> bool {
    wait_for(fd, libc::POLLOUT, Some(0))
}

/// Waits until there is room to write, or a write would fail.
pub fn wait_writable(fd: BorrowedFd<'_>, limit_ms: u64) -> bool {
    wait_for(fd, libc::POLLOUT, Some(limit_ms))
}

/// Whether data or the end of the stream can be read now.
pub fn is_readable(fd: BorrowedFd<'_>) -> bool {
    wait_readable(fd, Some(0))
}

/// Waits until `fd` has data or has reached its end. `limit_ms` is the maximum wait in milliseconds; None waits without
/// a limit.
pub fn wait_readable(fd: BorrowedFd<'_>, limit_ms: Option<u64>) -> bool {
    wait_for(fd, libc::POLLIN, limit_ms)
}

/// Whether the other end of a connection is closed. Data written before the end may still be unread.
pub fn is_hung_up(fd: BorrowedFd<'_>) -> bool {
    wait_for(fd, libc::POLLRDHUP, Some(0))
}

fn wait_for(fd: BorrowedFd<'_>, events: libc::c_short, limit_ms: Option<u64>) -> bool {
    let fd = fd.as_raw_fd();
    let mut entry = libc::pollfd { fd, events, revents: 0 };
    poll_entries(std::slice::from_mut(&mut entry), limit_ms, None).is_ok_and(|n| n == 1)
}

/// Reads available data, at most the buffer's length.
///
/// # Errors
/// The kernel's; `WouldBlock` if there is no data.
pub fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is writable for its length.
    let n = unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

pub fn write(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the buffer is readable for its length.
    let n = unsafe { libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Creates a pipe: read end (not blocking) and write end, both above 2 and closed on exec.
pub fn make_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = std::io::pipe()?;
    let reader = OwnedFd::from(reader);
    set_nonblocking(reader.as_fd());
    Ok((reader, writer.into()))
}

pub fn set_nonblocking(fd: BorrowedFd<'_>) {
    // SAFETY: fcntl takes no pointers here, and the descriptor is open.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
}

pub fn standard(fd: i32) -> BorrowedFd<'static> {
    // SAFETY: the runtime opens 0, 1 and 2 at start if they are closed, and this program never closes them.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Whether both descriptors refer to one file, pipe or terminal.
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

/// Whether every write succeeds at once, as for a regular file.
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

    pub fn poller() -> Poller {
        // SAFETY: all zeros is the empty signal set.
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
            // A byte is still unread. The kernel may deliver the end with a delay.
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
