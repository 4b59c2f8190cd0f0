#![allow(unsafe_code)]
//! Processes and connections added while a job runs (MPI 5.0, section 11.8).
//!
//! Spawned processes join the parent's job, whose memory has space for more ranks than the job starts with. Processes
//! of a connected job also become ranks ([`foreign`]). The launcher starts processes and stores service names
//! ([`fastpath_job::control`]). Groups consist of ranks of the job, and a spawned `MPI_COMM_WORLD` is a range of ranks.
//! To connect two sides, their roots exchange messages in a separate context
//! ([`Meeting`](crate::comm_creation::meeting::Meeting)). They agree on an intercommunicator as in
//! `MPI_Intercomm_create`.

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
pub use spawn::{SpawnRequest, SpawnResult, get_parent, spawn};

use crate::common::consts::{MPI_ERR_INFO_VALUE, MPI_ERR_PORT};
use crate::common::error::{Error, Result};
use crate::p2p::slow;
use crate::process::{self, Process, ProcessPart};
use fastpath_base::clock;
use fastpath_base::config::Key;
use fastpath_job::control::{Answer, Request, client};
use fastpath_job::describe_start;
use fastpath_protocol::Worker;
use fastpath_segment::AwaitedRanks;
use std::cell::Cell;

/// Counter of calls or ports, from 1.
struct Counter(Cell<u32>);

impl Counter {
    /// Makes a counter whose first number is 1.
    pub const fn new() -> Self {
        Counter(Cell::new(0))
    }

    /// Returns the next number. Numbers repeat after 2^32 - 1 calls.
    pub fn next(&self) -> u32 {
        self.0.set(self.0.get().wrapping_add(1).max(1));
        self.0.get()
    }
}

static CALLS: ProcessPart<Counter> = ProcessPart::new(Counter::new());

/// Time limit of a wait for the other side of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Timeout {
    length_ns: u64,
    until_ns: u64,
    /// Source of the limit, named in error messages: an info key or an environment variable.
    source: &'static str,
}

const SECOND_NS: u64 = 1_000_000_000;
const INFO_KEY: &str = "the info key timeout";

impl Timeout {
    /// No time limit.
    pub const ENDLESS: Timeout =
        Timeout { length_ns: u64::MAX, until_ns: u64::MAX, source: INFO_KEY };

    /// Reads the info key `timeout`, in seconds from now (as in MPICH); without it, there is no limit. Errors:
    /// `MPI_ERR_INFO_VALUE` unless the value is a number of seconds.
    pub fn read(hints: &[(String, String)]) -> Result<Timeout> {
        match hints.iter().find(|(key, _)| key == "timeout") {
            Some((_, text)) => Timeout::parse(text),
            None => Ok(Timeout::ENDLESS),
        }
    }

    /// Reads the timeout of `MPI_Comm_connect`: the info key `timeout`, or else `FASTPATH_CONNECT_TIMEOUT`. An attempt
    /// to connect must end eventually (MPI 5.0, section 11.9.3). Errors: `MPI_ERR_INFO_VALUE` unless the info key is a
    /// number of seconds.
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
            let text = format!("the info key timeout is {text:?}: pass a whole number of seconds");
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

    /// Returns an error if the time limit has passed. `what` describes what has not happened.
    pub fn check(&self, what: &str) -> Option<Error> {
        if !self.is_over() {
            return None;
        }
        let text = format!("{what} within {} s, the limit of {}", self.seconds(), self.source);
        let advice = "make the matching call (MPI_Comm_connect or MPI_Comm_accept) in time, or \
                      raise the time limit";
        Some(Error::new(MPI_ERR_PORT, text).with_advice(Some(advice)))
    }
}

/// Sends a request to the launcher and waits for the answer. Other threads may call MPI meanwhile. Errors: `class` if
/// the job was not started by this project's `mpiexec`, or if `mpiexec` does not answer.
fn ask(p: &Process, class: i32, what: &str, request: &Request) -> Result<Answer> {
    let job = p.running()?.job;
    if job.launcher().is_none() {
        let text =
            format!("only Fastpath's mpiexec can {what}, and this process was started without it");
        let advice = format!("start the program with Fastpath's mpiexec: {}", describe_start(1));
        return Err(Error::new(class, text).with_advice(Some(advice)));
    }
    let answer = process::run_outside(|| client::ask(job.job_id(), request));
    answer.map_err(|why| Error::new(class, why))
}

fn with_worker<T>(p: &Process, act: impl FnOnce(&mut Worker) -> T) -> Result<T> {
    let worker = p.worker()?;
    // SAFETY: the worker lives while MPI runs. This call holds the lock, and no other reference to the worker is held.
    Ok(act(unsafe { &mut *worker }))
}

/// Makes progress until `done` returns true. Sleeps have a time limit: the awaited change might not wake this process.
fn wait(p: &Process, comm: usize, done: impl FnMut(&mut Worker) -> bool) -> Result {
    slow::wait_until(p, (comm, 0), AwaitedRanks::UNKNOWN, true, done)
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
        let over = read("0").unwrap().check("no process has connected").unwrap();
        assert_eq!(over.code(), MPI_ERR_PORT);
        assert!(over.message().starts_with("no process has connected within 0 s"));
        for text in ["", "soon", "-1", "1.5"] {
            assert_eq!(read(text).unwrap_err().code(), MPI_ERR_INFO_VALUE, "{text}");
        }
    }
}
