#![allow(unsafe_code)]
//! The process of the engine that has started this one: a daemon on this host. Where that is killed, nobody ends the
//! ranks that it had started.

use super::watch::{poll_entry, poll_for, wait_a_second};
use crate::job::{Job, find_engine_process};
use crate::segment::{FailureKind, Phase};
use fastpath_base::fd::CheckedFd;
use fastpath_base::topology;
use std::time::Duration;

/// The process, as it is watched.
#[derive(Debug)]
pub struct Starter {
    process: u32,
    descriptor: CheckedFd,
}

impl Starter {
    /// None where it cannot be told, or the kernel has no descriptors of processes (before Linux 5.3).
    pub fn find() -> Option<Starter> {
        let process = find_engine_process()?;
        // SAFETY: the call takes integers; it gives a descriptor that is closed on exec, or -1.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) } as i32;
        // SAFETY: a descriptor of our own, or -1.
        let descriptor =
            unsafe { CheckedFd::of_call(fd, "watching the launcher's process") }.ok()?;
        // While it was opened that process may have ended, and another one got its number.
        (find_engine_process() == Some(process)).then_some(Starter { process, descriptor })
    }

    /// What poll(2) is asked for: there is something once the process has ended.
    pub fn entry(&self) -> libc::pollfd {
        poll_entry(self.descriptor.number_or_none(), libc::POLLIN)
    }

    /// It has ended, and so does this process, unless it has finalized MPI.
    pub fn end_with_it(&self, job: &Job) {
        if job.own_page().phase() == Phase::Finalized {
            return;
        }
        let header = job.header();
        // Before anybody can see who is dead: what happens to others because of it is no failure of theirs.
        let is_first = header.failure.record(FailureKind::Gone, job.rank(), 1);
        // Where a rank of another host has aborted, the engine may end here before its ranks: it ends them, or the word
        // of that comes, in this time.
        wait_a_second();
        // Who has aborted has said so.
        if is_first && header.abort.load().is_none() {
            let text = format!(
                "fastpath: on {}, the launcher's process ({}) has ended: the ranks that it had \
                 started there end too\n",
                topology::host_name(),
                self.process
            );
            say(&text);
        }
        if job.own_page().phase() == Phase::Finalized {
            return;
        }
        // SAFETY: ends the process. Handlers of the program might wait for other ranks, or for the engine.
        unsafe { libc::_exit(1) };
    }
}

/// Writes to standard error, if there is room within a second: whoever read it may have ended as well, and this process
/// is to end. Not by the library's stream: another thread may hold that, and wait for room.
fn say(text: &str) {
    let mut entries = [poll_entry(libc::STDERR_FILENO, libc::POLLOUT)];
    poll_for(&mut entries, Some(Duration::from_secs(1)));
    if entries[0].revents & libc::POLLOUT != 0 {
        // SAFETY: so many bytes are readable.
        unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
    }
}
