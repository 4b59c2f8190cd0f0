//! Threads of the library.
#![allow(unsafe_code)]

/// Signals that a thread sends itself by what it does.
const OWN_FAULTS: [libc::c_int; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];

/// Runs with signals held back, so that a thread started meanwhile never runs the program's handlers, but those of its
/// own faults: held back, they would end the process without a word.
pub fn without_signals<T>(act: impl FnOnce() -> T) -> T {
    // SAFETY: a set of signals is plain data, filled before it is used; the old one is put back.
    unsafe {
        let (mut held, mut old) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut held);
        for signal in OWN_FAULTS {
            libc::sigdelset(&mut held, signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &held, &mut old);
        let result = act();
        libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut());
        result
    }
}
