#![allow(unsafe_code)]
//! Signals as something to read, and their names.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Signals that are passed on to every rank.
pub const FORWARDED: &[i32] = &[
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGTSTP,
    libc::SIGCONT,
];

/// All signals that the launcher handles, held back and read one by one.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
}

/// What the launcher was started with; its ranks get it back.
#[derive(Clone, Copy)]
pub struct Inherited {
    /// Blocked signals.
    pub mask: libc::sigset_t,
    /// Limit of open files.
    pub files: libc::rlimit,
}

impl Signals {
    /// Blocks every signal that can be blocked (those that are not read are delivered to
    /// nobody, and a rank is never started with a handler of ours) and opens the queue. A
    /// signal that was ignored when the launcher was started (`nohup`) stays ignored.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take_over() -> io::Result<(Signals, Inherited)> {
        // SAFETY: all zeros is valid for these plain structures, and the calls fill them.
        unsafe {
            let mut inherited = Inherited {
                mask: zeroed(),
                files: zeroed(),
            };
            // A daemon may have left SIGCHLD ignored; then nobody's end could be waited for.
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            libc::getrlimit(libc::RLIMIT_NOFILE, &mut inherited.files);
            let mut wanted: libc::sigset_t = zeroed();
            libc::sigemptyset(&mut wanted);
            libc::sigaddset(&mut wanted, libc::SIGCHLD);
            for &signal in FORWARDED {
                if !is_ignored(signal) {
                    libc::sigaddset(&mut wanted, signal);
                }
            }
            let mut blocked = wanted;
            // A write to a terminal from the background is reported, not a reason to stop.
            libc::sigaddset(&mut blocked, libc::SIGTTOU);
            libc::sigaddset(&mut blocked, libc::SIGTTIN);
            libc::sigaddset(&mut blocked, libc::SIGPIPE);
            if libc::sigprocmask(libc::SIG_BLOCK, &blocked, &mut inherited.mask) != 0 {
                return Err(io::Error::last_os_error());
            }
            let fd = libc::signalfd(-1, &wanted, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok((
                Signals {
                    fd: OwnedFd::from_raw_fd(fd),
                },
                inherited,
            ))
        }
    }

    /// For the poller.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The next signal that has come, if any.
    pub fn next(&self) -> Option<i32> {
        // SAFETY: all zeros is a valid record, and the call fills it whole or fails.
        unsafe {
            let mut info: libc::signalfd_siginfo = zeroed();
            let size = size_of::<libc::signalfd_siginfo>();
            let n = libc::read(self.fd.as_raw_fd(), (&raw mut info).cast(), size);
            (n == size as isize).then_some(info.ssi_signo as i32)
        }
    }
}

fn is_ignored(signal: i32) -> bool {
    // SAFETY: asks only; all zeros is valid for the structure.
    unsafe {
        let mut old: libc::sigaction = zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut old) == 0
            && old.sa_sigaction == libc::SIG_IGN
    }
}

/// Sends a signal to a process group; false when there is none.
pub fn signal_group(group: libc::pid_t, signal: i32) -> bool {
    // SAFETY: plain kill; a group number of 1 or less would mean others, so it is refused.
    group > 1 && unsafe { libc::kill(-group, signal) } == 0
}

/// Stops this process the way the terminal would have, until it is continued.
pub fn stop_self() {
    // SAFETY: plain raise.
    unsafe { libc::raise(libc::SIGSTOP) };
}

/// Raises the limit of open files to `need`; false when that is not allowed.
pub fn raise_file_limit(inherited: &Inherited, need: u64) -> bool {
    let old = inherited.files;
    if old.rlim_cur >= need {
        return true;
    }
    let set = |limit: libc::rlimit| {
        // SAFETY: plain setrlimit on a valid structure.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) == 0 }
    };
    if old.rlim_max >= need {
        return set(libc::rlimit {
            rlim_cur: need,
            ..old
        });
    }
    // Whoever is privileged may go beyond the hard limit.
    set(libc::rlimit {
        rlim_cur: need,
        rlim_max: need,
    })
}

/// Name and meaning of a signal, as in "SIGSEGV (Segmentation fault)".
pub fn describe_signal(signal: i32) -> String {
    let (name, meaning) = match signal {
        libc::SIGHUP => ("SIGHUP", "hangup"),
        libc::SIGINT => ("SIGINT", "interrupt"),
        libc::SIGQUIT => ("SIGQUIT", "quit"),
        libc::SIGILL => ("SIGILL", "illegal instruction"),
        libc::SIGTRAP => ("SIGTRAP", "trap"),
        libc::SIGABRT => ("SIGABRT", "abort"),
        libc::SIGBUS => ("SIGBUS", "bus error"),
        libc::SIGFPE => ("SIGFPE", "arithmetic error"),
        libc::SIGKILL => ("SIGKILL", "killed, by somebody or for want of memory"),
        libc::SIGUSR1 => ("SIGUSR1", "user signal 1"),
        libc::SIGSEGV => ("SIGSEGV", "segmentation fault"),
        libc::SIGUSR2 => ("SIGUSR2", "user signal 2"),
        libc::SIGPIPE => ("SIGPIPE", "nobody reads its output"),
        libc::SIGALRM => ("SIGALRM", "alarm"),
        libc::SIGTERM => ("SIGTERM", "terminated"),
        libc::SIGXCPU => ("SIGXCPU", "limit of processor time"),
        libc::SIGXFSZ => ("SIGXFSZ", "limit of file size"),
        libc::SIGSYS => ("SIGSYS", "forbidden system call"),
        _ => return format!("signal {signal}"),
    };
    format!("signal {signal}, {name} ({meaning})")
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn group__of_everybody_is_never_signalled() {
        // Signal 0 only asks whether it could be sent: to ourselves it could.
        assert!(!signal_group(0, 0) && !signal_group(1, 0) && !signal_group(-1, 0));
    }

    #[test]
    fn names__are_known() {
        assert!(describe_signal(11).contains("SIGSEGV"));
        assert_eq!(describe_signal(40), "signal 40");
    }
}
