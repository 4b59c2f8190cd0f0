//! A stream socket to a process of another job, while both agree on a communicator: messages with their length in
//! front, one each way at a time. Nothing is read beyond a message: the socket's owner uses it afterwards.
#![allow(unsafe_code)]

use super::wait;
use crate::common::error::Result;
use crate::process::Process;
use std::io;
use std::os::fd::RawFd;

/// Most bytes of a message: the lists of a job of many ranks.
const MOST: usize = 256 << 20;
/// Bytes of the length in front.
const HEAD: usize = 4;

/// Sends a message and receives one, with progress.
///
/// # Errors
/// The outer one: MPI is not initialised. The inner one: the other end has gone, or says what is no message.
pub fn swap(p: &Process, fd: RawFd, message: &[u8]) -> Result<io::Result<Vec<u8>>> {
    let mut out = (message.len() as u32).to_le_bytes().to_vec();
    out.extend_from_slice(message);
    let (mut sent, mut got) = (0, 0);
    let mut into = vec![0; HEAD];
    let mut failed = None;
    wait(p, 0, |_| {
        // Asked again, it answers the same.
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

/// Sends and receives what goes without waiting.
///
/// # Errors
/// The kernel's; `UnexpectedEof` where the other end has closed while something was expected.
pub fn move_bytes(
    fd: RawFd, (bytes, sent): (&[u8], &mut usize), (theirs, got): (&mut [u8], &mut usize),
) -> io::Result<()> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let out = &bytes[*sent..];
    if !out.is_empty() {
        // SAFETY: the bytes that are left are readable; a descriptor that is no socket is refused.
        let moved = unsafe { libc::send(fd, out.as_ptr().cast(), out.len(), flags) };
        advance(sent, moved)?;
    }
    let into = &mut theirs[*got..];
    if into.is_empty() {
        return Ok(());
    }
    // SAFETY: the bytes that are left are writable.
    match unsafe { libc::recv(fd, into.as_mut_ptr().cast(), into.len(), flags) } {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        moved => advance(got, moved),
    }
}

/// Counts what a call has moved; what would have blocked has moved nothing.
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
