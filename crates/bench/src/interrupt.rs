//! Ending a long run early keeps what was measured: the first request to end is noted, the job is ended, and the
//! results are written; the second ends this program at once.
#![allow(unsafe_code)]

use fastpath_base::sync::{AtomicI32, Ordering};
use std::process::Child;

/// The signal that was seen; 0: none.
static SEEN: AtomicI32 = AtomicI32::new(0);

/// Requests to end, of people and of those who watch over jobs.
const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

extern "C" fn note(signal: libc::c_int) {
    if SEEN.swap(signal, Ordering::Relaxed) != 0 {
        // SAFETY: async-signal-safe; ends the process.
        unsafe { libc::_exit(128 + signal) };
    }
}

/// From now on requests to end are noted. One that the parent had this program ignore stays ignored.
pub fn keep_results() {
    for signal in ENDING {
        // SAFETY: `note` does nothing that a handler may not do; the structures are whole and live across the calls.
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

/// Asks a child that has not been waited for to end.
pub fn end(child: &Child) {
    // SAFETY: a signal; touches no memory.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
}

/// The signal by which this program was asked to end.
pub fn find_request() -> Option<i32> {
    Some(SEEN.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
}
