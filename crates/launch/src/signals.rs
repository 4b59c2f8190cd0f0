#![allow(unsafe_code)]
//! Signals, taken one by one by the main loop.

use crate::poll::{ARRIVED, has_arrived, let_signals_in};
use fastpath_base::refusal::describe_call;
use fastpath_base::sync::StaticOrdering as Ordering;
use std::io;
use std::mem::zeroed;
use std::ptr::null_mut;

/// Signals that are forwarded to every rank.
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

extern "C" fn note_arrival(signal: libc::c_int) {
    ARRIVED.fetch_or(1 << signal, Ordering::Relaxed);
}

/// Signals that the launcher handles. They are blocked except during a wait.
pub struct Signals {
    mask: libc::sigset_t,
}

/// State that the launcher was started with, restored in ranks.
#[derive(Clone, Copy)]
pub struct InheritedSignals {
    pub mask: libc::sigset_t,
    /// Signals that have a handler in the launcher. A rank must not inherit the handler.
    pub handled: libc::sigset_t,
    /// Limit of open files; None if the kernel does not report it.
    pub files: Option<libc::rlimit>,
}

impl Signals {
    /// Blocks every signal that can be blocked, so that unhandled signals are not delivered. Handled signals arrive
    /// during waits. A signal that was ignored when the launcher was started (`nohup`) stays ignored.
    pub fn take_over() -> Result<(Signals, InheritedSignals), String> {
        // SAFETY: all zeros is valid for these plain structures, and the calls fill them; the handler only writes an
        // atomic.
        unsafe {
            // A daemon may have left SIGCHLD ignored; then waitpid would not report the ends of children.
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            let mut wanted: libc::sigset_t = zeroed();
            libc::sigemptyset(&mut wanted);
            libc::sigaddset(&mut wanted, libc::SIGCHLD);
            for &signal in FORWARDED {
                if !is_ignored(signal) {
                    libc::sigaddset(&mut wanted, signal);
                }
            }
            let mut blocked = wanted;
            // A background write to a terminal fails instead of stopping the launcher.
            libc::sigaddset(&mut blocked, libc::SIGTTOU);
            libc::sigaddset(&mut blocked, libc::SIGTTIN);
            libc::sigaddset(&mut blocked, libc::SIGPIPE);
            // Output to a file that may not grow (`ulimit -f`) fails with an error.
            libc::sigaddset(&mut blocked, libc::SIGXFSZ);
            let mut old: libc::sigset_t = zeroed();
            if libc::sigprocmask(libc::SIG_BLOCK, &blocked, &mut old) != 0 {
                let cause = io::Error::last_os_error();
                return Err(describe_call("rt_sigprocmask", &cause));
            }
            let mut mask = old;
            members(&blocked).for_each(|signal| {
                libc::sigaddset(&mut mask, signal);
            });
            let mut action: libc::sigaction = zeroed();
            let handler: extern "C" fn(libc::c_int) = note_arrival;
            action.sa_sigaction = handler as usize;
            libc::sigfillset(&mut action.sa_mask);
            for signal in members(&wanted) {
                libc::sigdelset(&mut mask, signal);
                if libc::sigaction(signal, &action, null_mut()) != 0 {
                    let cause = io::Error::last_os_error();
                    return Err(describe_call("rt_sigaction", &cause));
                }
            }
            let inherited =
                InheritedSignals { mask: old, handled: wanted, files: read_file_limit() };
            Ok((Signals { mask }, inherited))
        }
    }

    pub fn mask(&self) -> libc::sigset_t {
        self.mask
    }

    pub fn next(&self) -> Option<i32> {
        if !has_arrived() {
            let_signals_in(&self.mask);
        }
        let arrived = ARRIVED.load(Ordering::Relaxed);
        let signal = (arrived != 0).then(|| arrived.trailing_zeros())?;
        ARRIVED.fetch_and(!(1 << signal), Ordering::Relaxed);
        Some(signal as i32)
    }
}

pub fn members(set: &libc::sigset_t) -> impl Iterator<Item = i32> {
    // SAFETY: the set is initialized, and the numbers are valid signals.
    (1..32).filter(move |&signal| unsafe { libc::sigismember(set, signal) } == 1)
}

fn read_file_limit() -> Option<libc::rlimit> {
    // SAFETY: all zeros is a valid rlimit, which the call fills.
    unsafe {
        let mut files: libc::rlimit = zeroed();
        (libc::getrlimit(libc::RLIMIT_NOFILE, &mut files) == 0).then_some(files)
    }
}

fn is_ignored(signal: i32) -> bool {
    // SAFETY: a null action changes nothing; all zeros is a valid sigaction, which the call fills.
    unsafe {
        let mut old: libc::sigaction = zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut old) == 0
            && old.sa_sigaction == libc::SIG_IGN
    }
}

/// Sends a signal to a process group. Returns false if the group does not exist.
pub fn signal_group(group: libc::pid_t, signal: i32) -> bool {
    // SAFETY: kill takes no pointers. A group of 1 or less would address other processes, so it is refused.
    group > 1 && unsafe { libc::kill(-group, signal) } == 0
}

/// Whether this process has a nice value other than 0.
pub fn is_niced() -> bool {
    // SAFETY: getpriority takes no pointers, and cannot fail for the calling process.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) != 0 }
}

/// Whether process `pid` has another session than this process.
pub fn is_of_other_session(pid: libc::pid_t) -> bool {
    // SAFETY: getsid takes no pointers.
    unsafe { libc::getsid(pid) != libc::getsid(0) }
}

/// Whether SIGTSTP stops process `pid`, because the process neither handles, ignores nor blocks the signal. True if the
/// kernel does not report that.
pub fn is_stoppable(pid: libc::pid_t) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let masks = status.lines().filter_map(|line| {
        let names = ["SigBlk:", "SigCgt:", "SigIgn:"];
        let mask = names.iter().find_map(|name| line.strip_prefix(name))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    });
    masks.fold(0, |all, mask| all | mask) & (1 << (libc::SIGTSTP - 1)) == 0
}

/// Stops this process as the terminal would have, until it is continued.
pub fn stop_self() {
    // SAFETY: raise takes no pointers.
    unsafe { libc::raise(libc::SIGSTOP) };
}

/// Raises the limit of open files to `need`. Returns false if that is not allowed.
pub fn raise_file_limit(old: libc::rlimit, need: u64) -> bool {
    if old.rlim_cur >= need {
        return true;
    }
    // A privileged process may exceed the hard limit.
    let raised = libc::rlimit { rlim_cur: need, rlim_max: old.rlim_max.max(need) };
    // SAFETY: the structure is initialized and outlives the call.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raised) == 0 }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn group__of_everybody_is_never_signalled() {
        // Signal 0 only tests whether a signal could be sent, which is true of this process.
        assert!(!signal_group(0, 0) && !signal_group(1, 0) && !signal_group(-1, 0));
    }
}
