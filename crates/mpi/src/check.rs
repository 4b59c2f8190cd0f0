//! `FASTPATH_CHECK=1`: detects errors of the program and reports them on standard error, at the cost of speed. Without
//! the setting there is no [`Checks`], and this code does not run.
//!
//! - A message between two ranks begins with the [`Record`] of the sending call. The receiver compares the record with
//!   its own call (`message`).
//! - The ranks of a collective call exchange such records before the call (`coll/agreement.rs`).
//! - `MPI_Finalize` lists requests that are not completed, messages that are not received (`left`), windows that are
//!   not freed (`rma/left.rs`), and files that are not closed.
//! - Below `MPI_THREAD_MULTIPLE` each call registers its thread, so that calls by a second thread are detected
//!   (`threads`).
//!
//! The setting must be equal on all ranks, because it makes messages longer; `mpiexec` ensures that.
#![allow(unsafe_code)]

pub(crate) mod caller;
mod message;
mod record;
pub(crate) mod threads;

pub(crate) use record::{RECORD_BYTES, Record};

use crate::check::caller::{CallFrames, CallSite};
use fastpath_base::tell;
use fastpath_protocol::RequestId;
pub(crate) use message::CheckedMessage;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};

const LINES_MAX: usize = 200;

/// State of the checks of one process.
pub struct Checks {
    rank: usize,
    /// The program's outstanding sends and receives.
    pub(crate) watched: RefCell<HashMap<RequestId, CheckedMessage>>,
    /// Bytes of program data in the collective call whose arguments are being compared.
    pub(crate) compared_bytes: Cell<u64>,
    places: RefCell<HashMap<CallSite, String>>,
    /// Reports made so far. Each error is reported once.
    told: RefCell<HashSet<String>>,
}

impl Checks {
    pub(crate) fn new(rank: usize) -> Self {
        Checks {
            rank,
            watched: RefCell::default(),
            compared_bytes: Cell::default(),
            places: RefCell::default(),
            told: RefCell::default(),
        }
    }

    /// Returns the call site of this thread's MPI call; empty if the stack does not show it.
    pub(crate) fn place(&self) -> String {
        let Some(place) = CallFrames::find(None).map(|call| call.place()) else {
            return String::new();
        };
        let mut places = self.places.borrow_mut();
        places.entry(place).or_insert_with(|| place.to_string()).clone()
    }

    pub(crate) fn name(&self, call: &str) -> String {
        name_call(call, &self.place())
    }

    pub(crate) fn tell(&self, what: &str) {
        self.tell_first(what.to_string(), what);
    }

    /// Reports `what`, unless an error with the key `mistake` was reported before: one error may have several texts.
    pub(crate) fn tell_first(&self, mistake: String, what: &str) {
        let mut told = self.told.borrow_mut();
        if told.len() >= LINES_MAX || !told.insert(mistake) {
            return;
        }
        let rank = self.rank;
        tell!("fastpath: rank {rank}: {what}");
        if told.len() == LINES_MAX {
            tell!(
                "fastpath: rank {rank}: FASTPATH_CHECK has reported {LINES_MAX} mistakes and will \
                 report no further ones"
            );
        }
    }
}

/// Returns the text `call at place`, which names a call in messages.
pub(crate) fn name_call(call: &str, place: &str) -> String {
    match place {
        "" => call.to_string(),
        _ => format!("{call} at {place}"),
    }
}
