#![allow(unsafe_code)]
//! Standard input of the ranks that read it: by default rank 0.
//!
//! A file or a pipe for one rank is handed over: the rank reads what it needs, and leaves the rest. A terminal cannot
//! be handed over, because a rank is not in the terminal's foreground group. Several ranks cannot share a file, because
//! each gets all of it. In these cases the launcher reads, and sends a copy through a pipe to each rank.
//!
//! In a job on several hosts the launcher's input reaches the agent of the first host. Other agents with readers
//! connect to it, and get a copy as ranks do.

use crate::agent::Agent;
use crate::agent::peers::Peers;
use crate::args::Stdin;
use crate::poll::{self, Interest, Poller};
use fastpath_base::tell;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::mpsc::Receiver;

const PIECE: usize = 64 << 10;
/// Maximum number of bytes queued for the slowest reader. If more are queued, input is not read.
const MOST_WAITING: usize = 16 << 20;

#[derive(Debug)]
pub struct Inputs {
    null: OwnedFd,
    readers: Vec<(usize, OwnedFd)>,
}

impl Inputs {
    pub fn of(&self, rank: usize) -> RawFd {
        let own = self.readers.binary_search_by_key(&rank, |(r, _)| *r);
        own.map_or(self.null.as_raw_fd(), |at| self.readers[at].1.as_raw_fd())
    }
}

/// The launcher's end of the pipes to the ranks.
#[derive(Debug)]
pub struct Forward {
    writers: Vec<Writer>,
    token: u64,
    terminal: bool,
    /// Whether the launcher is in the terminal's background.
    background: bool,
    watched: bool,
    ended: bool,
    /// Number of hosts whose agents have not connected yet. Data is kept for these agents.
    awaited: usize,
    waiting: Vec<u8>,
}

#[derive(Debug)]
struct Writer {
    fd: OwnedFd,
    written: usize,
    watched: bool,
}

/// Opens the input of the `local` ranks. `token` is the poller's token for forwarded input. `awaited` is the number of
/// other hosts that get a copy.
pub fn open_inputs(
    poller: &Poller, token: u64, who: &Stdin, local: Range<usize>, awaited: usize,
) -> io::Result<(Inputs, Option<Forward>)> {
    let list = who.among(local);
    let mut inputs = Inputs { null: open_null()?, readers: Vec::new() };
    let terminal = io::stdin().is_terminal();
    if let ([rank], false, 0) = (&list[..], terminal, awaited) {
        let own = copy_above(poll::standard(0), 3)?;
        inputs.readers.push((*rank, own));
        return Ok((inputs, None));
    }
    if list.is_empty() && awaited == 0 {
        return Ok((inputs, None));
    }
    let mut forward = Forward {
        writers: Vec::new(),
        token,
        terminal,
        background: false,
        watched: false,
        ended: false,
        awaited,
        waiting: Vec::new(),
    };
    for rank in list {
        let (reader, writer) = std::io::pipe()?;
        let fd = OwnedFd::from(writer);
        poll::set_nonblocking(fd.as_fd());
        inputs.readers.push((rank, reader.into()));
        forward.writers.push(Writer { fd, written: 0, watched: false });
    }
    forward.settle(poller);
    Ok((inputs, Some(forward)))
}

/// Prepares the input of a job on several hosts. In the first host's agent, returns the number of agents to wait for.
/// In another agent with readers, replaces its standard input by a copy.
pub fn meet_agents(agent: &mut Agent, who: &Stdin) -> io::Result<usize> {
    let staying = agent.take_staying();
    let reads = |node: usize| !who.among(agent.ranks_of(node)).is_empty();
    let Some(peers) = agent.peers() else {
        return Ok(0);
    };
    match agent.node() {
        0 => Ok((1..peers.nodes()).filter(|&node| reads(node)).count()),
        node if reads(node) => fetch_input(peers.clone(), staying).map(|()| 0),
        _ => Ok(0),
    }
}

/// Replaces this process's standard input by what the first agent sends.
fn fetch_input(peers: Peers, staying: Option<Receiver<()>>) -> io::Result<()> {
    let (reader, mut writer) = std::io::pipe()?;
    // SAFETY: dup2 takes no pointers, and no code has read standard input yet.
    if unsafe { libc::dup2(reader.as_raw_fd(), 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let copy = move || {
        // Wait until the first agent knows that this node's ranks run. Otherwise the first agent may end with its own
        // ranks, and the rest of the input would be lost.
        let _ = staying.map(|staying| staying.recv());
        match peers.open_input() {
            Ok(mut from) => {
                let from: &mut dyn Read = &mut from;
                drop(io::copy(from, &mut writer));
            }
            Err(e) => {
                let host = peers.host(0);
                tell!("mpiexec: cannot receive standard input from host {host}: {e}");
            }
        }
    };
    let thread = std::thread::Builder::new().stack_size(1 << 17);
    thread.spawn(copy).map(drop)
}

/// Opens the input of a rank that reads nothing.
pub fn open_null() -> io::Result<OwnedFd> {
    match File::open("/dev/null") {
        Ok(file) => Ok(file.into()),
        // A container may have no /dev. A pipe without a writer also reads as empty.
        Err(_) => Ok(std::io::pipe()?.0.into()),
    }
}

/// Duplicates a descriptor to a number of at least `least`, with close-on-exec.
pub fn copy_above(fd: BorrowedFd<'_>, least: i32) -> io::Result<OwnedFd> {
    // SAFETY: fcntl takes no pointers; the copy is new, so this is its only owner.
    unsafe {
        match libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) {
            -1 => Err(io::Error::last_os_error()),
            copy => Ok(OwnedFd::from_raw_fd(copy)),
        }
    }
}

impl Forward {
    /// Forwards input. Called when input is available, or when a rank's pipe has room again.
    pub fn forward(&mut self, poller: &Poller) {
        if self.is_wanted() {
            self.read_some();
            self.pass_on(poller);
            self.settle(poller);
        }
    }

    /// Adds a connected agent of another host, which gets a copy.
    pub fn add(&mut self, socket: OwnedFd, poller: &Poller) {
        self.awaited = self.awaited.saturating_sub(1);
        self.writers.push(Writer { fd: socket, written: 0, watched: false });
        self.pass_on(poller);
        self.settle(poller);
    }

    pub fn resume(&mut self, poller: &Poller) {
        self.background = false;
        self.settle(poller);
    }

    /// Whether data was read that at least one reader has not received yet.
    pub fn owes(&self) -> bool {
        self.awaited > 0 || !self.waiting.is_empty() && !self.writers.is_empty()
    }

    /// Whether there is a reader, or another host's agent may still connect as one.
    fn is_wanted(&self) -> bool {
        !self.writers.is_empty() || self.awaited > 0
    }

    /// Whether more input is needed.
    fn is_hungry(&self) -> bool {
        !self.ended && !self.background && self.is_wanted() && self.waiting.len() < MOST_WAITING
    }

    fn read_some(&mut self) {
        let input = poll::standard(0);
        // Reading in the background would stop the launcher. When it is continued in the foreground, `resume` is
        // called.
        self.background |= self.terminal && !is_foreground();
        if !self.is_hungry() || !poll::is_readable(input) {
            return;
        }
        // Read into the heap: the stack can be smaller than a piece (`ulimit -s`).
        let filled = self.waiting.len();
        self.waiting.resize(filled + PIECE, 0);
        let mut got = 0;
        match poll::read(input, &mut self.waiting[filled..]) {
            Ok(0) => self.ended = true,
            Ok(n) => got = n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.ended = true,
        }
        self.waiting.truncate(filled + got);
    }

    fn pass_on(&mut self, poller: &Poller) {
        let waiting = &self.waiting;
        self.writers.retain_mut(|writer| {
            while writer.written < waiting.len() {
                match poll::write(writer.fd.as_fd(), &waiting[writer.written..]) {
                    Ok(n) => writer.written += n,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => return true,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => {
                        poller.change(writer.fd.as_fd(), 0, Interest::Nothing);
                        return false;
                    }
                }
            }
            true
        });
        let done = self.writers.iter().map(|w| w.written).min();
        let done = match self.awaited {
            0 => done.unwrap_or(self.waiting.len()),
            _ => 0,
        };
        self.waiting.drain(..done);
        self.writers.iter_mut().for_each(|w| w.written -= done);
        if self.ended {
            // Closing the pipe is the end of file for the rank.
            let left = self.waiting.len();
            self.writers.retain(|w| {
                let waits = w.written < left;
                if !waits {
                    poller.change(w.fd.as_fd(), 0, Interest::Nothing);
                }
                waits
            });
        }
    }

    fn settle(&mut self, poller: &Poller) {
        let want = self.is_hungry();
        if want != self.watched {
            let interest = if want { Interest::Read } else { Interest::Nothing };
            poller.change(poll::standard(0), self.token, interest);
            self.watched = want;
        }
        let (token, left) = (self.token, self.waiting.len());
        for writer in &mut self.writers {
            let want = writer.written < left;
            if want != writer.watched {
                let interest = if want { Interest::Write } else { Interest::Nothing };
                poller.change(writer.fd.as_fd(), token, interest);
                writer.watched = want;
            }
        }
    }
}

fn is_foreground() -> bool {
    // SAFETY: tcgetpgrp and getpgrp take no pointers and change nothing.
    unsafe { libc::tcgetpgrp(0) == libc::getpgrp() }
}
