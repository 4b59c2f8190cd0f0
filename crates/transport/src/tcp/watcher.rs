//! Thread that wakes a sleeping rank when one of its sockets has an event.
//!
//! A rank sleeps on a futex word by which its peers wake it, so it cannot also sleep on sockets. This thread, once
//! armed, sleeps on the epoll instance instead. It starts at the rank's first sleep, and runs briefly at the first
//! event after each [`Watcher::arm`].
#![allow(unsafe_code)]

use fastpath_base::fd::{CheckedFd, open_stop_pipe};
use fastpath_base::thread::without_signals;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

const SOCKETS: u64 = 0;
const STOP: u64 = 1;
const PURPOSE: &str = "waking from a sleep when a connection has data";

pub(super) struct Watcher {
    /// Epoll instance with two descriptors: the sockets' instance, reported once, and a pipe that ends the thread.
    gate: Arc<CheckedFd>,
    stop: CheckedFd,
    sockets: RawFd,
    thread: Option<JoinHandle<()>>,
}

fn control(gate: RawFd, what: i32, fd: RawFd, token: u64, events: i32) -> io::Result<()> {
    let mut event = libc::epoll_event { events: events as u32, u64: token };
    // SAFETY: the call only reads the event.
    match unsafe { libc::epoll_ctl(gate, what, fd, &mut event) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Watcher {
    /// Starts a thread. After each arm, the thread calls `wake` at the first event of `sockets`, which outlives the
    /// thread.
    pub fn start(sockets: BorrowedFd<'_>, wake: impl Fn() + Send + 'static) -> io::Result<Self> {
        // SAFETY: the call takes a plain integer and returns a new descriptor or -1.
        let gate = unsafe { CheckedFd::of_call(libc::epoll_create1(libc::EPOLL_CLOEXEC), PURPOSE) };
        let gate = Arc::new(gate?);
        let (ends, stop) = open_stop_pipe(PURPOSE)?;
        let (raw, sockets) = (gate.number_unchecked(), sockets.as_raw_fd());
        control(raw, libc::EPOLL_CTL_ADD, sockets, SOCKETS, libc::EPOLLONESHOT)?;
        control(raw, libc::EPOLL_CTL_ADD, ends.number_unchecked(), STOP, libc::EPOLLIN)?;
        let ours = (gate.clone(), ends);
        let thread = without_signals(|| {
            let builder = Builder::new().name("fastpath-tcp".to_owned()).stack_size(1 << 17);
            builder.spawn(move || {
                let (gate, _ends) = ours;
                watch(&gate, wake);
            })
        })?;
        Ok(Watcher { gate, stop, sockets, thread: Some(thread) })
    }

    /// Makes the next event, or one that is already pending, call `wake`.
    pub fn arm(&self) -> io::Result<()> {
        let events = libc::EPOLLIN | libc::EPOLLONESHOT;
        // If this number now names another epoll instance, the call fails, because that instance lacks the entry.
        let gate = self.gate.number_unchecked();
        control(gate, libc::EPOLL_CTL_MOD, self.sockets, SOCKETS, events)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // If the write fails, the thread sleeps until the process ends.
        if let Some(thread) = self.thread.take()
            && self.gate.is_ours()
            && self.stop.write_byte()
        {
            let _ = thread.join();
        }
    }
}

fn watch(gate: &CheckedFd, wake: impl Fn()) {
    loop {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: `event` has room for one event.
        let count = unsafe { libc::epoll_wait(gate.number_unchecked(), &mut event, 1, -1) };
        match (count, event.u64) {
            (1, SOCKETS) => wake(),
            (1, _) => return,
            _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}
