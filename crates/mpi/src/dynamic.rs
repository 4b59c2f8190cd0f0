#![allow(unsafe_code)]
//! Processes and connections that come while a job runs (MPI-5.0 section 11.8).
//!
//! What is spawned are ranks of one job, whose memory has room for more ranks than it begins with; so are, to each
//! other, those of two jobs that are connected ([`foreign`]). The launcher starts processes and keeps the names of
//! services ([`fastpath_bootstrap::control`]). Groups are made of ranks of the job; a spawned world is a range of them.
//! Two sides meet at their roots, in a context of their own ([`Meeting`](crate::comm_creation::meeting::Meeting)), and
//! agree on an intercommunicator as `MPI_Intercomm_create` does.

mod door;
mod foreign;
mod join;
mod line;
mod names;
mod port;
mod soft;
mod spawn;

pub use join::join;
pub use names::{look_up, publish as publish_name, unpublish};
pub use port::{accept, close, connect, open};
pub(crate) use spawn::meet_parent;
pub use spawn::{Asked, SpawnResult, get_parent, spawn};

use crate::common::consts::{MPI_ERR_INFO_VALUE, MPI_ERR_PORT};
use crate::common::error::{Error, Result};
use crate::process::{self, Process, ProcessPart};
use fastpath_base::clock;
use fastpath_base::config::Key;
use fastpath_bootstrap::control::{Answer, Request, client};
use fastpath_bootstrap::job::describe_start;
use fastpath_bootstrap::segment::Awaited;
use fastpath_protocol::Worker;
use fastpath_protocol::waiting::Note;
use std::cell::Cell;

/// Counts what must not be taken for an earlier one of its kind: from 1.
struct Counter(Cell<u32>);

impl Counter {
    /// Nothing was counted.
    pub const fn new() -> Self {
        Counter(Cell::new(0))
    }

    /// The next number; after 2^32 they come again.
    pub fn next(&self) -> u32 {
        self.0.set(self.0.get().wrapping_add(1).max(1));
        self.0.get()
    }
}

/// Numbers of ports and connections.
static CALLS: ProcessPart<Counter> = ProcessPart::new(Counter::new());

/// How long a call waits for the other side of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Timeout {
    /// Length of the timeout, in nanoseconds.
    length_ns: u64,
    /// When it ends, in nanoseconds of the clock.
    until_ns: u64,
    /// The info key or variable that sets it.
    source: &'static str,
}

const SECOND_NS: u64 = 1_000_000_000;
const INFO_KEY: &str = "the info key timeout";

impl Timeout {
    /// For ever.
    pub const ENDLESS: Timeout =
        Timeout { length_ns: u64::MAX, until_ns: u64::MAX, source: INFO_KEY };

    /// As the info key `timeout` says, in seconds from now on (as in MPICH); for ever without it.
    ///
    /// # Errors
    /// `MPI_ERR_INFO_VALUE` for what is no number of seconds.
    pub fn read(hints: &[(String, String)]) -> Result<Timeout> {
        match hints.iter().find(|(key, _)| key == "timeout") {
            Some((_, text)) => Timeout::parse(text),
            None => Ok(Timeout::ENDLESS),
        }
    }

    /// Timeout of `MPI_Comm_connect`: the info key `timeout`, or `FASTPATH_CONNECT_TIMEOUT` without it. An attempt to
    /// connect ends at some time (MPI 5.0, section 11.9.3).
    ///
    /// # Errors
    /// The info key is not a number of seconds.
    pub fn read_for_connect(p: &Process, hints: &[(String, String)]) -> Result<Timeout> {
        let given = Timeout::read(hints)?;
        let usual = p.running()?.config.number(Key::ConnectTimeout);
        Ok(match (given.until_ns, usual) {
            (u64::MAX, Some(length_ns)) => Timeout::after(length_ns, "FASTPATH_CONNECT_TIMEOUT"),
            _ => given,
        })
    }

    fn parse(text: &str) -> Result<Timeout> {
        let refuse = |_| {
            let text = format!("timeout is {text:?}: it is a whole number of seconds");
            Error::new(MPI_ERR_INFO_VALUE, text)
        };
        text.trim().parse().map(Timeout::of_seconds).map_err(refuse)
    }

    fn of_seconds(seconds: u32) -> Timeout {
        Timeout::after(u64::from(seconds) * SECOND_NS, INFO_KEY)
    }

    fn after(length_ns: u64, source: &'static str) -> Timeout {
        Timeout { length_ns, until_ns: clock::now_ns().saturating_add(length_ns), source }
    }

    fn seconds(&self) -> f64 {
        self.length_ns as f64 / SECOND_NS as f64
    }

    fn is_over(&self) -> bool {
        clock::now_ns() >= self.until_ns
    }

    /// The error if that time is over: `what` has not happened.
    pub fn check(&self, what: &str) -> Option<Error> {
        if !self.is_over() {
            return None;
        }
        let text = format!("{what} for {} s, the limit that {} sets", self.seconds(), self.source);
        Some(Error::new(MPI_ERR_PORT, text))
    }
}

/// Asks the launcher. Other threads may call MPI meanwhile.
///
/// # Errors
/// `class`, where there is no launcher of ours, or it does not answer.
fn ask(p: &Process, class: i32, what: &str, request: &Request) -> Result<Answer> {
    let job = p.running()?.job;
    if job.launcher().is_none() {
        let text = format!("this process was started without mpiexec, and only mpiexec can {what}");
        let advice = format!("start it with mpiexec: {}", describe_start(1));
        return Err(Error::new(class, text).with_advice(Some(advice)));
    }
    let answer = process::run_outside(|| client::ask(job.job_id(), request));
    answer.map_err(|why| Error::new(class, why))
}

/// The worker, while nothing waits.
fn with_worker<T>(p: &Process, act: impl FnOnce(&mut Worker) -> T) -> Result<T> {
    let worker = p.worker()?;
    // SAFETY: the worker lives while MPI runs; this call holds the lock, and no other reference to it is held.
    Ok(act(unsafe { &mut *worker }))
}

/// Waits, with progress, until `done` returns true, which is its last call. A change of what it looks at need not wake
/// this process.
fn wait(p: &Process, comm: usize, done: impl FnMut(&mut Worker) -> bool) -> Result {
    let note = Note {
        call: p.call.get(),
        peer: -1,
        tag: -1,
        comm,
        bytes: 0,
        awaited: Awaited::UNKNOWN,
        naps: true,
    };
    let worker = p.worker()?;
    // SAFETY: the worker lives while MPI runs; no reference to it is held here.
    unsafe { Worker::wait_until(worker, None, &note, done) };
    Ok(())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn timeout__is_a_number_of_seconds_or_endless() {
        let read = |text: &str| Timeout::read(&[("timeout".to_owned(), text.to_owned())]);
        assert!(Timeout::read(&[]).unwrap().check("x").is_none());
        assert!(read(" 4000000 ").unwrap().check("x").is_none());
        let over = read("0").unwrap().check("nobody has come").unwrap();
        assert_eq!(over.code(), MPI_ERR_PORT);
        assert!(over.message().starts_with("nobody has come for 0 s"));
        for text in ["", "soon", "-1", "1.5"] {
            assert_eq!(read(text).unwrap_err().code(), MPI_ERR_INFO_VALUE, "{text}");
        }
    }
}
