#![allow(unsafe_code)]
//! Delivery of this process's output before the job ends. At the end of a job, some launchers discard the content of
//! pipes.

use crate::poll::pause;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_millis(250);

/// Waits up to 250 ms until the readers of standard output and standard error have taken all output.
pub fn await_taken() {
    let since = Instant::now();
    while [1, 2].into_iter().any(has_untaken) && since.elapsed() < LIMIT {
        pause();
    }
}

/// Returns whether a pipe or a socket holds bytes that its reader has not taken. Other files have no reader.
fn has_untaken(fd: RawFd) -> bool {
    // SAFETY: zeros are a valid stat, which the kernel fills in.
    let mut about: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is writable.
    if unsafe { libc::fstat(fd, &mut about) } != 0 {
        return false;
    }
    let request = match about.st_mode & libc::S_IFMT {
        libc::S_IFIFO => libc::FIONREAD,
        libc::S_IFSOCK => libc::TIOCOUTQ,
        _ => return false,
    };
    let mut bytes: libc::c_int = 0;
    // SAFETY: both possible requests write one integer, to `bytes`.
    let rc = unsafe { libc::ioctl(fd, request, &mut bytes) };
    rc == 0 && bytes > 0
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn bytes__are_untaken_until_they_are_read() {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        assert!(!has_untaken(writer.as_raw_fd()));
        writer.write_all(b"last words").unwrap();
        assert!(has_untaken(writer.as_raw_fd()));
        reader.read_exact(&mut [0; 10]).unwrap();
        assert!(!has_untaken(writer.as_raw_fd()));
        let (mut near, mut far) = UnixStream::pair().unwrap();
        near.write_all(b"x").unwrap();
        assert!(has_untaken(near.as_raw_fd()));
        far.read_exact(&mut [0; 1]).unwrap();
        assert!(!has_untaken(near.as_raw_fd()));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(!has_untaken(file.as_raw_fd()) && !has_untaken(1 << 20));
    }
}
