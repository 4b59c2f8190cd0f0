//! Keeps the results of a run that a signal ends early. At the first signal, the job is ended and the results are
//! written. The second signal ends this program at once.
#![allow(unsafe_code)]

use fastpath_base::sync::{AtomicI32, Ordering};
use std::process::Child;

/// The recorded signal, or 0.
static SEEN: AtomicI32 = AtomicI32::new(0);

/// Signals that request the end, from users and from supervisors of jobs.
const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

extern "C" fn note(signal: libc::c_int) {
    if SEEN.swap(signal, Ordering::Relaxed) != 0 {
        // SAFETY: _exit is async-signal-safe, and takes no pointers.
        unsafe { libc::_exit(128 + signal) };
    }
}

/// Records signals that request the end from now on. Signals that the parent has ignored stay ignored.
pub fn keep_results() {
    for signal in ENDING {
        // SAFETY: `note` only swaps an atomic and calls `_exit`, both async-signal-safe; the structures outlive the
        // calls.
        unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut old);
            if old.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = note as extern "C" fn(libc::c_int) as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

/// Requests the end of a child that has not been waited for.
pub fn end(child: &Child) {
    // SAFETY: kill takes no pointers; the child is unreaped, so its number is valid.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
}

/// Returns the signal that requested the end of this program, if any.
pub fn find_request() -> Option<i32> {
    Some(SEEN.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
}
