#![allow(unsafe_code)]
//! Socket functions that the standard library lacks: the process at the other end, and writing without a signal.

use std::io::{self, ErrorKind};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

/// Returns the process at the other end of a Unix socket. Errors: the kernel's, also if `fd` is not a socket.
fn peer_credentials(fd: RawFd) -> io::Result<libc::ucred> {
    let mut peer = MaybeUninit::<libc::ucred>::zeroed();
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes, and refuses a descriptor that is not a socket.
    let rc = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            peer.as_mut_ptr().cast(),
            &mut bytes,
        )
    };
    match rc {
        // SAFETY: all zeros, or what the kernel has written, is a valid ucred.
        0 => Ok(unsafe { peer.assume_init() }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the process at the other end of a Unix socket; 0 if it has no number in this namespace. `None` on an error.
pub(crate) fn peer_process(fd: RawFd) -> Option<libc::pid_t> {
    peer_credentials(fd).ok().map(|peer| peer.pid)
}

/// Refuses a peer of another user. Errors: the peer is another user's, or the kernel does not report it.
pub(crate) fn check_user(socket: impl AsFd) -> io::Result<()> {
    let user = peer_credentials(socket.as_fd().as_raw_fd())?.uid;
    let own = own_user();
    match user == own {
        true => Ok(()),
        false => {
            let why = format!(
                "the process at the other end belongs to user {user}, this process to user {own}"
            );
            Err(io::Error::new(ErrorKind::PermissionDenied, why))
        }
    }
}

/// Returns whether the process at the other end of a Unix socket is of this process's user.
pub fn is_own_user(socket: impl AsFd) -> bool {
    check_user(socket).is_ok()
}

pub(crate) fn own_user() -> u32 {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

/// Writes all bytes, without a signal if the other end is closed: C programs, unlike Rust, do not ignore SIGPIPE.
pub(crate) fn send_all(socket: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: the bytes are readable for the length given.
        let sent = unsafe {
            let flags = libc::MSG_NOSIGNAL;
            libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags)
        };
        match usize::try_from(sent) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(_) => {
                let cause = io::Error::last_os_error();
                if cause.kind() != ErrorKind::Interrupted {
                    return Err(cause);
                }
            }
        }
    }
    Ok(())
}
