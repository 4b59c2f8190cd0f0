#![allow(unsafe_code)]
//! Signals as something to take one by one, and their names.

use crate::poll::let_signals_in;
use fastpath_base::refusal::describe_call;
use fastpath_base::sync::{StaticOrdering as Ordering, StaticU64};
use std::io;
use std::mem::zeroed;
use std::ptr::null_mut;

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

/// Signals that have come and were not taken, a bit each. A handler writes it.
static ARRIVED: StaticU64 = StaticU64::new(0);

extern "C" fn note_arrival(signal: libc::c_int) {
    ARRIVED.fetch_or(1 << signal, Ordering::Relaxed);
}

/// Has a signal come that was not taken?
pub fn has_arrived() -> bool {
    ARRIVED.load(Ordering::Relaxed) != 0
}

/// All signals that the launcher handles. They are held back, and let in while it waits.
pub struct Signals {
    /// What is held back while it waits.
    mask: libc::sigset_t,
}

/// What the launcher was started with; its ranks get it back.
#[derive(Clone, Copy)]
pub struct Inherited {
    /// Blocked signals.
    pub mask: libc::sigset_t,
    /// Signals that have a handler in the launcher and must not have one in a rank.
    pub handled: libc::sigset_t,
    /// Limit of open files; None where the kernel does not say.
    pub files: Option<libc::rlimit>,
}

impl Signals {
    /// Blocks every signal that can be blocked (those that are not handled are not delivered) and notes the handled
    /// ones while the launcher waits. A signal that was ignored when the launcher was started (`nohup`) stays ignored.
    ///
    /// # Errors
    /// The call that was refused, and why.
    pub fn take_over() -> Result<(Signals, Inherited), String> {
        // SAFETY: all zeros is valid for these plain structures, and the calls fill them; the handler writes an atomic
        // and nothing else.
        unsafe {
            // A daemon may have left SIGCHLD ignored; then nobody's end could be waited for.
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
            // A write to a terminal from the background is reported, not a reason to stop.
            libc::sigaddset(&mut blocked, libc::SIGTTOU);
            libc::sigaddset(&mut blocked, libc::SIGTTIN);
            libc::sigaddset(&mut blocked, libc::SIGPIPE);
            // Output to a file that may not grow (`ulimit -f`) is lost with an error.
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
            let inherited = Inherited { mask: old, handled: wanted, files: read_file_limit() };
            Ok((Signals { mask }, inherited))
        }
    }

    /// What to hold back while the launcher waits.
    pub fn mask(&self) -> libc::sigset_t {
        self.mask
    }

    /// The next signal that has come, if any.
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

/// The signals of a set.
pub fn members(set: &libc::sigset_t) -> impl Iterator<Item = i32> {
    // SAFETY: the set is valid, the numbers are those of signals.
    (1..32).filter(move |&signal| unsafe { libc::sigismember(set, signal) } == 1)
}

fn read_file_limit() -> Option<libc::rlimit> {
    // SAFETY: all zeros is valid for the structure, which the call fills.
    unsafe {
        let mut files: libc::rlimit = zeroed();
        (libc::getrlimit(libc::RLIMIT_NOFILE, &mut files) == 0).then_some(files)
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

/// Sends a signal to a process group; false if it does not exist.
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
pub fn raise_file_limit(old: libc::rlimit, need: u64) -> bool {
    if old.rlim_cur >= need {
        return true;
    }
    // Whoever is privileged may go beyond the hard limit.
    let raised = libc::rlimit { rlim_cur: need, rlim_max: old.rlim_max.max(need) };
    // SAFETY: plain setrlimit on a valid structure.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raised) == 0 }
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
}
