//! Random bytes of the system, for secrets.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Read};

/// Returns `N` random bytes, at most 256, from `getrandom`, or from /dev/urandom if a container refuses the call.
///
/// # Errors
/// Neither the call nor the device is available.
pub fn draw_random<const N: usize>() -> io::Result<[u8; N]> {
    const { assert!(N <= 256) };
    let mut bytes = [0; N];
    // SAFETY: the buffer is writable for its length. The kernel never returns part of 256 bytes or fewer.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), N, 0) };
    if got != N as isize {
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    }
    Ok(bytes)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes__differ() {
        let (one, two): ([u8; 32], [u8; 32]) = (draw_random().unwrap(), draw_random().unwrap());
        assert_ne!(one, two);
    }
}
