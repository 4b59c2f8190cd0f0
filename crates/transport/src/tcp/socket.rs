//! System calls of sockets and of the epoll instance.
#![allow(unsafe_code)]

use fastpath_base::fd::{CheckedFd, LostFd};
use fastpath_job::network::ports::{check_refusal, dial, keep_alive};
use socket2::SockRef;
use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// State of a closed connection (linux/tcp_states.h).
const TCP_CLOSE: u8 = 7;

#[derive(Debug)]
pub(super) enum IoOutcome {
    Bytes(usize),
    /// The call would block, so the caller tries again later.
    Later,
    Ended(Option<io::Error>),
}

/// Socket of a connection: nonblocking and closed on exec.
#[derive(Debug)]
pub(super) struct Socket(CheckedFd);

fn check(answer: libc::c_int) -> io::Result<libc::c_int> {
    match answer {
        0.. => Ok(answer),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Socket {
    pub fn dial(to: SocketAddr) -> io::Result<Socket> {
        Socket::prepare(dial(to, None)?)
    }

    pub fn accept(listener: BorrowedFd<'_>) -> io::Result<Option<Socket>> {
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let null = std::ptr::null_mut();
        // SAFETY: null pointers request no address.
        let fd = unsafe { libc::accept4(listener.as_raw_fd(), null, std::ptr::null_mut(), flags) };
        match check(fd) {
            Ok(fd) => {
                // SAFETY: the descriptor is new and has no other owner.
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

    /// Descriptor number, unchecked. If the program reused it for another kind of file, the calls of a connection fail.
    pub fn fd(&self) -> RawFd {
        self.0.number_unchecked()
    }

    pub fn take_error(&self) -> io::Result<()> {
        let fd = self.0.get()?;
        let error = SockRef::from(fd).take_error()?;
        error.map_or(Ok(()), |error| Err(check_refusal(fd, error)))
    }

    #[inline]
    pub fn read(&self, to: &mut [u8]) -> IoOutcome {
        // SAFETY: the slice is writable for its length.
        unsafe { self.read_to(to.as_mut_ptr(), to.len()) }
    }

    /// Reads up to `room` bytes, at least one.
    ///
    /// # Safety
    /// `to` is writable for `room` bytes.
    #[inline]
    pub unsafe fn read_to(&self, to: *mut u8, room: usize) -> IoOutcome {
        // SAFETY: `to` is writable for `room` bytes, by this function's contract.
        match unsafe { libc::recv(self.fd(), to.cast(), room, 0) } {
            got @ 1.. => IoOutcome::Bytes(got as usize),
            0 => IoOutcome::Ended(None),
            _ => self.explain_failure(io::Error::last_os_error()),
        }
    }

    /// Writes these buffers in order; at least one is nonempty.
    pub fn write_all_of(&self, parts: [&[u8]; 3]) -> IoOutcome {
        let mut parts = parts.map(|part| libc::iovec {
            iov_base: part.as_ptr().cast_mut().cast(),
            iov_len: part.len(),
        });
        // SAFETY: all zeros is a valid msghdr.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len() as _;
        // SAFETY: message and parts live until the call returns, and are readable for their lengths.
        let sent = unsafe { libc::sendmsg(self.fd(), &message, libc::MSG_NOSIGNAL) };
        match sent {
            0.. => IoOutcome::Bytes(sent as usize),
            _ => self.explain_failure(io::Error::last_os_error()),
        }
    }

    #[inline]
    pub fn write(&self, from: &[u8]) -> IoOutcome {
        let flags = libc::MSG_NOSIGNAL;
        // SAFETY: the slice is readable for its length.
        let sent = unsafe { libc::send(self.fd(), from.as_ptr().cast(), from.len(), flags) };
        match sent {
            0.. => IoOutcome::Bytes(sent as usize),
            _ => self.explain_failure(io::Error::last_os_error()),
        }
    }

    #[cold]
    fn explain_failure(&self, error: io::Error) -> IoOutcome {
        match is_later(&error) {
            true => IoOutcome::Later,
            false => IoOutcome::Ended(Some(self.0.explain(error))),
        }
    }

    /// Bytes written that the peer's kernel has not acknowledged; 0 if it never will.
    pub fn unacknowledged(&self) -> usize {
        let mut bytes: libc::c_int = 0;
        // SAFETY: the request writes an integer.
        let answer = unsafe { libc::ioctl(self.fd(), libc::TIOCOUTQ, &raw mut bytes) };
        // For a reset connection the kernel counts the remaining bytes forever.
        if answer == 0 && bytes > 0 && self.state() != TCP_CLOSE { bytes as usize } else { 0 }
    }

    fn state(&self) -> u8 {
        let mut state = [0_u8; 8];
        let mut length = state.len() as libc::socklen_t;
        // SAFETY: the buffer is as large as `length`; the state is the first byte of the structure.
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

    /// Nanoseconds since the last packet of the peer's kernel.
    pub fn silent_ns(&self) -> u64 {
        // SAFETY: all bits zero is a valid tcp_info.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
        let at = (&raw mut info).cast();
        // SAFETY: the structure is as large as `length`.
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

#[derive(Debug, Clone, Copy)]
pub(super) struct SocketEvent {
    pub token: u64,
    pub readable: bool,
    pub writable: bool,
}

#[derive(Debug)]
pub(super) struct Epoll(CheckedFd);

const EVENTS: usize = 64;

impl Epoll {
    pub fn new() -> io::Result<Epoll> {
        // SAFETY: the call takes a plain integer and returns a new descriptor or -1.
        let kept = unsafe {
            CheckedFd::of_call(libc::epoll_create1(libc::EPOLL_CLOEXEC), "watching its connections")
        };
        kept.map(Epoll)
    }

    pub fn get(&self) -> Result<BorrowedFd<'_>, LostFd> {
        self.0.get().map(AsFd::as_fd)
    }

    fn control(&self, what: i32, fd: RawFd, token: u64, events: i32) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: token };
        let set = self.0.number_unchecked();
        // SAFETY: the call only reads the event.
        let done = check(unsafe { libc::epoll_ctl(set, what, fd, &mut event) });
        done.map(|_| ()).map_err(|error| self.0.explain(error))
    }

    fn interest(write: bool) -> i32 {
        match write {
            true => libc::EPOLLIN | libc::EPOLLOUT,
            false => libc::EPOLLIN,
        }
    }

    /// Watches a descriptor for reads, and with `write` also for writes. Closing the descriptor ends the watch.
    pub fn add(&self, fd: RawFd, token: u64, write: bool) -> io::Result<()> {
        // Check the epoll descriptor first: if its number now names another epoll instance, that instance would accept
        // the new entry. A change of an entry needs no check, because it fails if the entry is absent.
        self.0.get()?;
        self.control(libc::EPOLL_CTL_ADD, fd, token, Self::interest(write))
    }

    pub fn set_reading(&self, fd: RawFd, token: u64, read: bool) -> io::Result<()> {
        let events = if read { libc::EPOLLIN } else { 0 };
        self.control(libc::EPOLL_CTL_MOD, fd, token, events)
    }

    pub fn change(&self, fd: RawFd, token: u64, write: bool) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, Self::interest(write))
    }

    /// Adds pending events to `found`. Fails if the program closed the instance.
    pub fn poll(&self, found: &mut Vec<SocketEvent>) -> Result<(), LostFd> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        let set = self.0.number_unchecked();
        // SAFETY: the array has room for `EVENTS` events.
        let count = unsafe { libc::epoll_wait(set, events.as_mut_ptr(), EVENTS as i32, 0) };
        if count < 0 {
            return self.check_slow();
        }
        found.extend(events[..count as usize].iter().map(|event| SocketEvent {
            token: event.u64,
            readable: event.events as i32 & !libc::EPOLLOUT != 0,
            writable: event.events as i32 & !libc::EPOLLIN != 0,
        }));
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn check_slow(&self) -> Result<(), LostFd> {
        self.0.get().map(|_| ())
    }
}

pub(super) fn stop_listening(listener: &CheckedFd) {
    if let Ok(listener) = listener.get() {
        let _ = SockRef::from(listener).shutdown(Shutdown::Both);
    }
}
