//! Bytes that nobody guesses.
#![allow(unsafe_code)]

use std::io;

/// As many of them as a job's secret has.
///
/// # Errors
/// The kernel refuses them.
pub fn draw() -> io::Result<[u8; 32]> {
    let mut secret = [0; 32];
    // SAFETY: the buffer is writable for its length. So few bytes come whole.
    let got = unsafe { libc::getrandom(secret.as_mut_ptr().cast(), secret.len(), 0) };
    match got == secret.len() as isize {
        true => Ok(secret),
        false => Err(io::Error::last_os_error()),
    }
}
