//! `FASTPATH_CHECK=1`: looks for mistakes of the program and reports them on standard error, at the cost of speed.
//! Without it there is no [`Checks`], and nothing of this runs.
//!
//! - A message between two ranks begins with the [`Record`] of the call that sends it, which the receive compares with
//!   its own (`message`).
//! - The ranks of a collective call exchange such records before it begins (`coll/agreement.rs`).
//! - `MPI_Finalize` lists requests that were never completed, messages that were never received (`left`), windows that
//!   were never freed (`rma/left.rs`), and files that were never closed.
//! - Below `MPI_THREAD_MULTIPLE` each call says which thread is inside, so that a second one is seen (`threads`).
//!
//! The switch must be the same on all ranks, since messages are longer by their record; `mpiexec` sees to that.
#![allow(unsafe_code)]

pub(crate) mod caller;
mod message;
mod record;
pub(crate) mod threads;

pub(crate) use record::{RECORD_BYTES, Record};

use crate::check::caller::{Call, CallSite};
use fastpath_base::tell;
use fastpath_protocol::RequestId;
pub(crate) use message::Watched;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};

/// Lines after which a process reports no more.
const LINES_MAX: usize = 200;

/// What is known in a process that looks for mistakes.
pub struct Checks {
    /// The rank of the process in its job.
    rank: usize,
    /// The program's sends and receives under way.
    pub(crate) watched: RefCell<HashMap<RequestId, Watched>>,
    /// Bytes of the program's data in the collective call whose arguments are being compared.
    pub(crate) compared_bytes: Cell<u64>,
    /// Places as they are written.
    places: RefCell<HashMap<CallSite, String>>,
    /// What was reported, since one mistake in a loop is one mistake.
    told: RefCell<HashSet<String>>,
}

impl Checks {
    /// Nothing is known yet in the process of that rank.
    pub(crate) fn new(rank: usize) -> Self {
        Checks {
            rank,
            watched: RefCell::default(),
            compared_bytes: Cell::default(),
            places: RefCell::default(),
            told: RefCell::default(),
        }
    }

    /// Where the program has made the call that this thread is in; empty where the stack does not say.
    pub(crate) fn place(&self) -> String {
        let Some(place) = Call::find(None).map(|call| call.place()) else {
            return String::new();
        };
        let mut places = self.places.borrow_mut();
        places.entry(place).or_insert_with(|| place.to_string()).clone()
    }

    /// The call that this thread is in, with its place.
    pub(crate) fn name(&self, call: &str) -> String {
        name_call(call, &self.place())
    }

    /// Writes a line about a mistake, once.
    pub(crate) fn tell(&self, what: &str) {
        self.tell_first(what.to_string(), what);
    }

    /// Writes a line about the first of several mistakes that have one remedy.
    pub(crate) fn tell_first(&self, mistake: String, what: &str) {
        let mut told = self.told.borrow_mut();
        if told.len() >= LINES_MAX || !told.insert(mistake) {
            return;
        }
        let rank = self.rank;
        tell!("fastpath: rank {rank}: {what}");
        if told.len() == LINES_MAX {
            tell!(
                "fastpath: rank {rank}: FASTPATH_CHECK has reported {LINES_MAX} mistakes and \
                 reports no more"
            );
        }
    }
}

/// `call at place`, as a message names a call.
pub(crate) fn name_call(call: &str, place: &str) -> String {
    match place {
        "" => call.to_string(),
        _ => format!("{call} at {place}"),
    }
}
