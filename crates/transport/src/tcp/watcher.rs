//! A thread that wakes a sleeping rank when one of its sockets has something.
//!
//! A rank sleeps on a word by which its peers wake it, and nobody can sleep on a word and on sockets at once. So a
//! thread sleeps on the set of sockets in its stead, where it has been armed; it starts at the rank's first sleep, and
//! runs for a moment at the first event after each [`Watcher::arm`].
#![allow(unsafe_code)]

use fastpath_base::fd::{CheckedFd, open_stop_pipe};
use fastpath_base::thread::without_signals;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

const SOCKETS: u64 = 0;
const STOP: u64 = 1;
const PURPOSE: &str = "waking from a sleep when a connection has something";

/// The thread; it ends when this is dropped.
pub(super) struct Watcher {
    /// Two descriptors: the set of sockets, of which it tells once, and one that ends the thread.
    gate: Arc<CheckedFd>,
    stop: CheckedFd,
    sockets: RawFd,
    thread: Option<JoinHandle<()>>,
}

fn control(gate: RawFd, what: i32, fd: RawFd, token: u64, events: i32) -> io::Result<()> {
    let mut event = libc::epoll_event { events: events as u32, u64: token };
    // SAFETY: an event, which is read.
    match unsafe { libc::epoll_ctl(gate, what, fd, &mut event) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Watcher {
    /// Calls `wake` after each event of the sockets that was waited for. The set outlives this.
    ///
    /// # Errors
    /// The process has too many threads or open files.
    pub fn start(sockets: BorrowedFd<'_>, wake: impl Fn() + Send + 'static) -> io::Result<Self> {
        // SAFETY: plain call, which returns a new descriptor.
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

    /// From now on the next event wakes, also one that is there already.
    pub fn arm(&self) -> io::Result<()> {
        let events = libc::EPOLLIN | libc::EPOLLONESHOT;
        // In another set there is no such entry to change.
        let gate = self.gate.number_unchecked();
        control(gate, libc::EPOLL_CTL_MOD, self.sockets, SOCKETS, events)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // A thread that cannot be told sleeps until the process ends.
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
        // SAFETY: room for one event.
        let count = unsafe { libc::epoll_wait(gate.number_unchecked(), &mut event, 1, -1) };
        match (count, event.u64) {
            (1, SOCKETS) => wake(),
            (1, _) => return,
            _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}
