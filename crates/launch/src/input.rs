#![allow(unsafe_code)]
//! Standard input for rank 0.
//!
//! A file or a pipe is simply handed over: rank 0 then reads exactly what it wants, and the
//! rest is left for others. A terminal cannot be handed over, because a rank is not in the
//! terminal's foreground group: what is typed is passed on through a pipe.

use crate::poll::{self, Interest, Poller};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// The terminal's end of the way to rank 0.
#[derive(Debug)]
pub struct TerminalInput {
    writer: Option<OwnedFd>,
    token: u64,
    waiting: Vec<u8>,
}

/// What rank 0 gets as standard input, and the forwarding if there is any.
///
/// # Errors
/// The kernel's.
pub fn open_input(poller: &Poller, token: u64) -> io::Result<(OwnedFd, Option<TerminalInput>)> {
    if !io::stdin().is_terminal() {
        return Ok((above_standard(poll::standard(0).as_raw_fd())?, None));
    }
    let (reader, writer) = std::io::pipe()?;
    let writer = OwnedFd::from(writer);
    poll::set_nonblocking(writer.as_fd());
    poller.add(poll::standard(0), token, Interest::Read)?;
    let input = TerminalInput {
        writer: Some(writer),
        token,
        waiting: Vec::new(),
    };
    Ok((OwnedFd::from(reader), Some(input)))
}

/// What all other ranks get.
///
/// # Errors
/// The kernel's.
pub fn open_null() -> io::Result<OwnedFd> {
    Ok(File::open("/dev/null")?.into())
}

/// A copy of a descriptor that is none of 0, 1, 2 and closes on exec.
fn above_standard(fd: i32) -> io::Result<OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: plain fcntl; the copy is new and nobody else's.
    unsafe {
        let copy = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3);
        if copy < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(copy))
    }
}

impl TerminalInput {
    /// The terminal has something, or it is time to try again.
    pub fn forward(&mut self, poller: &Poller) {
        if self.writer.is_none() {
            return;
        }
        if self.waiting.is_empty() {
            if !is_foreground() {
                // Reading now would stop the launcher; somebody continues it in the
                // foreground, and then `resume` is called.
                poller.change(poll::standard(0), self.token, Interest::Nothing);
                return;
            }
            let mut buffer = [0u8; 4096];
            match poll::read(poll::standard(0), &mut buffer) {
                Ok(0) => return self.close(poller),
                Ok(n) => self.waiting.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => return,
                Err(_) => return self.close(poller),
            }
        }
        self.pass_on(poller);
    }

    /// Looks at the terminal again after the launcher was continued.
    pub fn resume(&mut self, poller: &Poller) {
        if self.writer.is_some() && self.waiting.is_empty() {
            poller.change(poll::standard(0), self.token, Interest::Read);
        }
    }

    fn pass_on(&mut self, poller: &Poller) {
        let Some(writer) = &self.writer else { return };
        match poll::write(writer.as_fd(), &self.waiting) {
            Ok(n) => {
                self.waiting.drain(..n);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return self.close(poller),
        }
        let writer = writer.as_fd();
        if self.waiting.is_empty() {
            poller.change(writer, self.token, Interest::Nothing);
            poller.change(poll::standard(0), self.token, Interest::Read);
        } else {
            poller.change(poll::standard(0), self.token, Interest::Nothing);
            poller.change(writer, self.token, Interest::Write);
        }
    }

    fn close(&mut self, poller: &Poller) {
        poller.change(poll::standard(0), self.token, Interest::Nothing);
        self.writer = None;
        self.waiting.clear();
    }
}

fn is_foreground() -> bool {
    // SAFETY: plain calls that only ask.
    unsafe { libc::tcgetpgrp(0) == libc::getpgrp() }
}
