//! The system calls: sockets, and the set of those that are watched.
#![allow(unsafe_code)]

use fastpath_base::fd::{CheckedFd, LostFd};
use fastpath_bootstrap::network::ports::{check_refusal, dial, keep_alive};
use socket2::SockRef;
use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// A connection that is no more (linux/tcp_states.h).
const TCP_CLOSE: u8 = 7;

/// What a read or write came to.
#[derive(Debug)]
pub(super) enum Moved {
    /// So many bytes, at least one.
    Bytes(usize),
    /// Not now.
    Later,
    /// The peer has closed its end, or it was closed for it; why, where the kernel says so.
    Ended(Option<io::Error>),
}

/// One connection. It does not block, and closes on exec.
#[derive(Debug)]
pub(super) struct Socket(CheckedFd);

fn check(answer: libc::c_int) -> io::Result<libc::c_int> {
    match answer {
        0.. => Ok(answer),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Socket {
    /// Begins to connect to an address.
    pub fn dial(to: SocketAddr) -> io::Result<Socket> {
        Socket::prepare(dial(to, None)?)
    }

    /// Takes a connection from a listening socket; `None` where there is none now.
    pub fn accept(listener: BorrowedFd<'_>) -> io::Result<Option<Socket>> {
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let null = std::ptr::null_mut();
        // SAFETY: no address is asked for.
        let fd = unsafe { libc::accept4(listener.as_raw_fd(), null, std::ptr::null_mut(), flags) };
        match check(fd) {
            Ok(fd) => {
                // SAFETY: new, and nobody else's.
                Ok(Socket::prepare(unsafe { OwnedFd::from_raw_fd(fd) }).ok())
            }
            Err(e) if is_later(&e) || e.kind() == ErrorKind::ConnectionAborted => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn prepare(fd: OwnedFd) -> io::Result<Socket> {
        SockRef::from(&fd).set_tcp_nodelay(true)?;
        keep_alive(&fd)?;
        Ok(Socket(CheckedFd::keep(fd, "a connection to another rank")))
    }

    /// The number, unchecked: on another file than a socket the calls of a connection fail.
    pub fn fd(&self) -> RawFd {
        self.0.number_unchecked()
    }

    /// What has become of the connecting; for a refusal see [`check_refusal`].
    pub fn take_error(&self) -> io::Result<()> {
        let fd = self.0.get()?;
        let error = SockRef::from(fd).take_error()?;
        error.map_or(Ok(()), |error| Err(check_refusal(fd, error)))
    }

    /// Reads into the buffer, which is not empty.
    #[inline]
    pub fn read(&self, to: &mut [u8]) -> Moved {
        // SAFETY: writable for its length.
        unsafe { self.read_to(to.as_mut_ptr(), to.len()) }
    }

    /// Reads to where so many bytes have room, at least one.
    ///
    /// # Safety
    /// Writable for that length.
    #[inline]
    pub unsafe fn read_to(&self, to: *mut u8, room: usize) -> Moved {
        // SAFETY: `to` is writable for `room` bytes, by this function's contract.
        match unsafe { libc::recv(self.fd(), to.cast(), room, 0) } {
            got @ 1.. => Moved::Bytes(got as usize),
            0 => Moved::Ended(None),
            _ => self.explain_failure(io::Error::last_os_error()),
        }
    }

    /// Writes of these buffers, one after the other; not all are empty.
    pub fn write_all_of(&self, parts: [&[u8]; 3]) -> Moved {
        let mut parts = parts.map(|part| libc::iovec {
            iov_base: part.as_ptr().cast_mut().cast(),
            iov_len: part.len(),
        });
        // SAFETY: all zeros is a valid msghdr.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len() as _;
        // SAFETY: message and parts live, and are readable for their lengths.
        let sent = unsafe { libc::sendmsg(self.fd(), &message, libc::MSG_NOSIGNAL) };
        match sent {
            0.. => Moved::Bytes(sent as usize),
            _ => self.explain_failure(io::Error::last_os_error()),
        }
    }

    /// Writes of the buffer, which is not empty.
    #[inline]
    pub fn write(&self, from: &[u8]) -> Moved {
        let flags = libc::MSG_NOSIGNAL;
        // SAFETY: readable for its length.
        let sent = unsafe { libc::send(self.fd(), from.as_ptr().cast(), from.len(), flags) };
        match sent {
            0.. => Moved::Bytes(sent as usize),
            _ => self.explain_failure(io::Error::last_os_error()),
        }
    }

    /// Outcome of a call that failed.
    #[cold]
    fn explain_failure(&self, error: io::Error) -> Moved {
        match is_later(&error) {
            true => Moved::Later,
            false => Moved::Ended(Some(self.0.explain(error))),
        }
    }

    /// Bytes that were written and that the peer's kernel does not have yet; none where it will never take them.
    pub fn unacknowledged(&self) -> usize {
        let mut bytes: libc::c_int = 0;
        // SAFETY: an integer, as this request wants.
        let answer = unsafe { libc::ioctl(self.fd(), libc::TIOCOUTQ, &raw mut bytes) };
        // Of a connection that was reset the kernel counts what is left of it for ever.
        if answer == 0 && bytes > 0 && self.state() != TCP_CLOSE { bytes as usize } else { 0 }
    }

    /// The kernel's state of the connection (tcp(7), `TCP_INFO`); 0 where it does not tell.
    fn state(&self) -> u8 {
        let mut state = [0_u8; 8];
        let mut length = state.len() as libc::socklen_t;
        // SAFETY: as large as the length says: the state is the first byte of the structure.
        unsafe {
            libc::getsockopt(
                self.fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                state.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        state[0]
    }

    /// Nanoseconds since the peer's kernel was last heard.
    pub fn silent_ns(&self) -> u64 {
        // SAFETY: all bits zero is such a structure.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
        let at = (&raw mut info).cast();
        // SAFETY: as large as the length says.
        let answer = unsafe {
            libc::getsockopt(self.fd(), libc::IPPROTO_TCP, libc::TCP_INFO, at, &mut length)
        };
        match answer {
            0 => info.tcpi_last_ack_recv as u64 * 1_000_000,
            _ => 0,
        }
    }

    #[cfg(test)]
    pub fn limit_buffers(&self, bytes: usize) {
        let fd = self.0.get().unwrap();
        let socket = SockRef::from(fd);
        socket.set_send_buffer_size(bytes).unwrap();
        socket.set_recv_buffer_size(bytes).unwrap();
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Something has happened at a socket that is watched under this number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    pub token: u64,
    /// There is something to be read, or it has failed.
    pub readable: bool,
    /// It can be written, or has failed.
    pub writable: bool,
}

/// Sockets that are watched.
#[derive(Debug)]
pub(super) struct Epoll(CheckedFd);

/// Events taken at once.
const EVENTS: usize = 64;

impl Epoll {
    pub fn new() -> io::Result<Epoll> {
        // SAFETY: plain call, which returns a new descriptor.
        let kept = unsafe {
            CheckedFd::of_call(libc::epoll_create1(libc::EPOLL_CLOEXEC), "watching its connections")
        };
        kept.map(Epoll)
    }

    /// The set.
    ///
    /// # Errors
    /// The program closed it.
    pub fn get(&self) -> Result<BorrowedFd<'_>, LostFd> {
        self.0.get().map(AsFd::as_fd)
    }

    fn control(&self, what: i32, fd: RawFd, token: u64, events: i32) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: token };
        let set = self.0.number_unchecked();
        // SAFETY: an event, which is read.
        let done = check(unsafe { libc::epoll_ctl(set, what, fd, &mut event) });
        done.map(|_| ()).map_err(|error| self.0.explain(error))
    }

    fn interest(write: bool) -> i32 {
        match write {
            true => libc::EPOLLIN | libc::EPOLLOUT,
            false => libc::EPOLLIN,
        }
    }

    /// Watches a descriptor for what can be read, and also for room to write. Closing it ends that.
    pub fn add(&self, fd: RawFd, token: u64, write: bool) -> io::Result<()> {
        // Another set would take it. What was not added to a set cannot be changed there.
        self.0.get()?;
        self.control(libc::EPOLL_CTL_ADD, fd, token, Self::interest(write))
    }

    /// Watches it for what can be read, or for nothing.
    pub fn set_reading(&self, fd: RawFd, token: u64, read: bool) -> io::Result<()> {
        let events = if read { libc::EPOLLIN } else { 0 };
        self.control(libc::EPOLL_CTL_MOD, fd, token, events)
    }

    /// Watches it for something else, or under another number.
    pub fn change(&self, fd: RawFd, token: u64, write: bool) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, Self::interest(write))
    }

    /// Adds what has happened to `found`.
    ///
    /// # Errors
    /// The program closed the set.
    pub fn poll(&self, found: &mut Vec<Event>) -> Result<(), LostFd> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        let set = self.0.number_unchecked();
        // SAFETY: room for so many events.
        let count = unsafe { libc::epoll_wait(set, events.as_mut_ptr(), EVENTS as i32, 0) };
        if count < 0 {
            return self.check_slow();
        }
        found.extend(events[..count as usize].iter().map(|event| Event {
            token: event.u64,
            readable: event.events as i32 & !libc::EPOLLOUT != 0,
            writable: event.events as i32 & !libc::EPOLLIN != 0,
        }));
        Ok(())
    }

    /// After a poll that failed: it was interrupted, or the set is gone.
    #[cold]
    #[inline(never)]
    fn check_slow(&self) -> Result<(), LostFd> {
        self.0.get().map(|_| ())
    }
}

/// Nobody can connect to this socket any more, and who waits there is hung up on.
pub(super) fn stop_listening(listener: &CheckedFd) {
    if let Ok(listener) = listener.get() {
        let _ = SockRef::from(listener).shutdown(Shutdown::Both);
    }
}
