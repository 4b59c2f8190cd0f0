#![allow(unsafe_code)]
//! The engine's process that started this one: a daemon on this host. If it is killed, its ranks end themselves.

use super::death::OwnRank;
use crate::detect::find_engine_process;
use crate::poll::{poll_entry, poll_for, wait_a_second};
use fastpath_base::fd::CheckedFd;
use fastpath_base::topology;
use fastpath_segment::{FailureKind, RankPhase};
use std::time::Duration;

/// The watched process.
#[derive(Debug)]
pub struct StarterProcess {
    process: u32,
    descriptor: CheckedFd,
}

impl StarterProcess {
    /// Finds the process; `None` if it is unknown, or the kernel has no descriptors of processes (before Linux 5.3).
    pub fn find() -> Option<StarterProcess> {
        let process = find_engine_process()?;
        // SAFETY: the call takes integers, and returns a descriptor that is closed on exec, or -1.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) } as i32;
        // SAFETY: a result that is not -1 is a new descriptor without another owner.
        let descriptor =
            unsafe { CheckedFd::of_call(fd, "watching the launcher's process") }.ok()?;
        // The process may have ended before it was opened, and another process may have its number.
        (find_engine_process() == Some(process)).then_some(StarterProcess { process, descriptor })
    }

    /// Entry for poll(2), which is readable once the process has ended.
    pub fn entry(&self) -> libc::pollfd {
        poll_entry(self.descriptor.number_or_none(), libc::POLLIN)
    }

    /// Ends this process after the engine's process has ended, unless this process has finalized MPI.
    pub fn end_with_it(&self, own: OwnRank) {
        if own.page().phase() == RankPhase::Finalized {
            return;
        }
        let header = own.header();
        // Record the failure before other ranks can see the death, because failures that this death causes must not be
        // recorded as the first failure.
        let is_first = header.failure.record(FailureKind::Gone, own.rank, 1);
        // If a rank of another host has aborted, the engine's process may end here before the ranks of this host.
        // Within this time the engine ends these ranks, or the abort becomes known.
        wait_a_second();
        // An aborting rank has already reported the abort.
        if is_first && header.abort.load().is_none() {
            let text = format!(
                "fastpath: on {}, the launcher's process ({}) has ended, so the ranks that the \
                 launcher started there end too\n",
                topology::host_name(),
                self.process
            );
            say(&text);
        }
        if own.page().phase() == RankPhase::Finalized {
            return;
        }
        // SAFETY: `_exit` has no precondition. It skips handlers, which might wait for ranks or the engine.
        unsafe { libc::_exit(1) };
    }
}

/// Writes to standard error, and waits at most a second for space in its buffer: the reader may have ended, and this
/// process must end. The function avoids the library's stream, which another thread may hold while it waits for space.
fn say(text: &str) {
    let mut entries = [poll_entry(libc::STDERR_FILENO, libc::POLLOUT)];
    poll_for(&mut entries, Some(Duration::from_secs(1)));
    if entries[0].revents & libc::POLLOUT != 0 {
        // SAFETY: the text is readable for its length.
        unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
    }
}
