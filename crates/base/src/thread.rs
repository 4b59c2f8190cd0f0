//! Threads of the library.
#![allow(unsafe_code)]

/// Signals that a thread's own instructions raise.
const OWN_FAULTS: [libc::c_int; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];

/// Calls `act` with signals blocked, so that threads started in it never run the program's handlers. Signals of a
/// thread's own faults stay unblocked: a fault whose signal is blocked ends the process without a message.
pub fn without_signals<T>(act: impl FnOnce() -> T) -> T {
    // SAFETY: a signal set is plain data, filled before use; the old set is restored.
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
