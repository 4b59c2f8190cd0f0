//! Thread that wakes a sleeping rank when an adapter has a completion.
//!
//! A rank sleeps on a futex word by which its peers wake it, so it cannot also sleep on a descriptor. This thread
//! sleeps on the descriptor instead, and wakes the rank as a peer would. It starts at the rank's first sleep, and runs
//! briefly at the first completion after each [`super::CompletionQueue::arm`].
#![allow(unsafe_code)]

use super::queue::CompletionChannel;
use fastpath_base::fd::{CheckedFd, open_stop_pipe};
use fastpath_base::thread::without_signals;
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// Handle of the thread, which ends when the handle is dropped.
pub struct Watcher {
    stop: CheckedFd,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Starts a thread that calls `wake` after each event of the channel.
    ///
    /// # Errors
    /// The process has too many threads or open files.
    pub fn start(
        channel: Arc<CompletionChannel>, wake: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let (ends, stop) = open_stop_pipe("waking from a sleep when an adapter has an event")?;
        let thread = without_signals(|| {
            let builder = Builder::new().name("fastpath-rdma".to_owned()).stack_size(1 << 17);
            builder.spawn(move || watch(&channel, &ends, wake))
        })?;
        Ok(Watcher { stop, thread: Some(thread) })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // If the write fails, the thread sleeps until the process ends.
        if let Some(thread) = self.thread.take()
            && self.stop.write_byte()
        {
            let _ = thread.join();
        }
    }
}

fn watch(channel: &CompletionChannel, stop: &CheckedFd, wake: impl Fn()) {
    let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut entries = [entry(channel.fd()), entry(stop.number_unchecked())];
    loop {
        // SAFETY: `entries` is an array of two entries.
        unsafe { libc::poll(entries.as_mut_ptr(), 2, -1) };
        if entries[1].revents != 0 {
            return;
        }
        let taken = channel.drain();
        if taken != 0 || entries[0].revents != 0 {
            wake();
        }
        if taken == 0 && entries[0].revents & !libc::POLLIN != 0 {
            return; // else the descriptor of a lost device would stay readable
        }
    }
}
