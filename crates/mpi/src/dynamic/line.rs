//! Messages on a stream socket between processes of two jobs that agree on a communicator. A message begins with its
//! length, and each end sends one message at a time. No byte after a message is read, because the socket's owner may
//! use it later.
#![allow(unsafe_code)]

use super::wait;
use crate::common::error::Result;
use crate::process::Process;
use std::io;
use std::os::fd::RawFd;

/// Maximum size of a message, in bytes. The list of a job of many ranks fits.
const MOST: usize = 256 << 20;
const HEAD: usize = 4;

/// Sends a message and receives one, making progress. Errors: the outer error means that MPI is not initialised. The
/// inner one means that the other end has closed, or sent no valid message.
pub fn swap(p: &Process, fd: RawFd, message: &[u8]) -> Result<io::Result<Vec<u8>>> {
    let mut out = (message.len() as u32).to_le_bytes().to_vec();
    out.extend_from_slice(message);
    let (mut sent, mut got) = (0, 0);
    let mut into = vec![0; HEAD];
    let mut failed = None;
    wait(p, 0, |_| {
        // The first error is final, so nothing is moved after it.
        if failed.is_some() {
            return true;
        }
        loop {
            if let Err(cause) = move_bytes(fd, (&out, &mut sent), (&mut into, &mut got)) {
                failed = Some(cause);
                return true;
            }
            if got != HEAD || into.len() != HEAD {
                break;
            }
            match u32::from_le_bytes([into[0], into[1], into[2], into[3]]) as usize {
                0 => break,
                length if length > MOST => {
                    failed = Some(io::ErrorKind::InvalidData.into());
                    return true;
                }
                length => into.resize(HEAD + length, 0),
            }
        }
        sent == out.len() && got == into.len()
    })?;
    Ok(match failed {
        Some(cause) => Err(cause),
        None => Ok(into.split_off(HEAD)),
    })
}

/// Sends and receives as many bytes as possible without blocking. Errors: those of the kernel; `UnexpectedEof` if the
/// other end has closed although bytes are expected.
pub fn move_bytes(
    fd: RawFd, (bytes, sent): (&[u8], &mut usize), (theirs, got): (&mut [u8], &mut usize),
) -> io::Result<()> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let out = &bytes[*sent..];
    if !out.is_empty() {
        // SAFETY: `out` is readable, and the kernel refuses a descriptor that is not a socket.
        let moved = unsafe { libc::send(fd, out.as_ptr().cast(), out.len(), flags) };
        advance(sent, moved)?;
    }
    let into = &mut theirs[*got..];
    if into.is_empty() {
        return Ok(());
    }
    // SAFETY: `into` is writable, and the kernel refuses a descriptor that is not a socket.
    match unsafe { libc::recv(fd, into.as_mut_ptr().cast(), into.len(), flags) } {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        moved => advance(got, moved),
    }
}

/// Adds the number of bytes that a system call has moved. Adds 0 if the call would have blocked.
fn advance(done: &mut usize, moved: isize) -> io::Result<()> {
    match usize::try_from(moved) {
        Ok(moved) => *done += moved,
        Err(_) => {
            let cause = io::Error::last_os_error();
            let waits = [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted];
            if !waits.contains(&cause.kind()) {
                return Err(cause);
            }
        }
    }
    Ok(())
}
