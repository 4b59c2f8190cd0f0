#![allow(unsafe_code)]
//! A small process that outlives the launcher by a moment.
//!
//! A rank asks the kernel to be killed when the launcher dies, but what a rank itself has
//! started (a program below a shell script, say) would live on. The guard waits for the end
//! of a pipe that only the launcher holds, and then kills the ranks' process groups.

use crate::limits::{Need, describe_clone, describe_files};
use crate::signals::signal_group;
use fastpath_base::sync::Ordering;
use fastpath_bootstrap::segment::Segment;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// The guard's end in the launcher.
#[derive(Debug)]
pub struct Guard {
    pid: libc::pid_t,
    /// Its closing, by whatever end of the launcher, sets the guard off.
    _alive: OwnedFd,
}

impl Guard {
    /// Starts the guard; to be called before the first rank.
    ///
    /// # Errors
    /// No pipe or no process to be had, and why.
    pub fn start(segment: &Segment, need: Need) -> Result<Guard, String> {
        let (reader, writer) = std::io::pipe().map_err(|e| describe_files("pipe2", &e, need))?;
        let (reader, alive) = (OwnedFd::from(reader), OwnedFd::from(writer));
        // SAFETY: the launcher has one thread, so the child is a whole copy of it.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(describe_clone(&io::Error::last_os_error()));
        }
        if pid == 0 {
            drop(alive);
            keep_watch(&reader, segment);
        }
        Ok(Guard { pid, _alive: alive })
    }

    /// Its process number.
    pub fn pid(&self) -> libc::pid_t {
        self.pid
    }

    /// The job has ended in good order: the guard is not needed any more.
    pub fn dismiss(self) {
        // SAFETY: our own child, not yet waited for, so the number is still its own.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

/// The guard's whole life.
fn keep_watch(alive: &OwnedFd, segment: &Segment) -> ! {
    let fd = alive.as_raw_fd();
    // SAFETY: plain system calls. The guard leaves the launcher's session, so that signals
    // from the terminal pass it by, and closes all files but its pipe: nobody waits for the
    // end of an output because of it.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"mpi-guard".as_ptr());
        libc::dup2(fd, 0);
        close_from(1);
        let mut byte = 0u8;
        while libc::read(0, (&raw mut byte).cast(), 1) != 0 {
            if *libc::__errno_location() != libc::EINTR {
                break;
            }
        }
        for page in segment.node_ranks().filter_map(|rank| segment.page(rank)) {
            let group = page.launched_pid.load(Ordering::Relaxed);
            signal_group(libc::pid_t::try_from(group).unwrap_or(0), libc::SIGKILL);
        }
        libc::_exit(0)
    }
}

/// Closes every descriptor from `first` on.
fn close_from(first: u32) {
    // SAFETY: the guard uses none of them.
    unsafe {
        if libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) == 0 {
            return;
        }
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        for fd in u64::from(first)..limit.rlim_cur.min(1 << 20) {
            libc::close(fd as libc::c_int);
        }
    }
}
