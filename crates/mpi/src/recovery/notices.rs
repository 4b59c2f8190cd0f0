//! Notices between the members of communicators, and what each of them begins.
#![allow(unsafe_code)]

use super::agreement::{self, AGREEMENT};
use super::deaths::{self, DIED};
use super::revoke::{self, REVOKED};
use crate::comm_creation::departed;
use crate::objects::comm::Comm;
use crate::process::failures;
use crate::process::{self, Process, ProcessPart};
use fastpath_protocol::Worker;
use fastpath_protocol::tag::Context;
use fastpath_protocol::worker::hooks::ReceivedNotice;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Maximum number of stored notices about communicators that this process does not have yet.
const MOST_EARLY: usize = 4096;

struct EarlyNotice {
    sender: u32,
    kind: u32,
    context: Context,
    bytes: Box<[u8]>,
}

/// Notices about communicators that this process has not finished to create.
static EARLY: ProcessPart<RefCell<Vec<EarlyNotice>>> = ProcessPart::new(RefCell::new(Vec::new()));

/// Contexts of the [`MOST_EARLY`] communicators that this process made last, in a job that tolerates failures.
static KNOWN: ProcessPart<RefCell<VecDeque<Context>>> =
    ProcessPart::new(RefCell::new(VecDeque::new()));

/// Function of later folders, called after deaths.
static AFTER_DEATHS: ProcessPart<Cell<fn(&Process)>> = ProcessPart::new(Cell::new(|_| {}));

pub(super) fn set_after_deaths(p: &Process, call: fn(&Process)) {
    AFTER_DEATHS.of(p).set(call);
}

pub(super) fn drop_all(p: &Process) {
    EARLY.of(p).take();
    KNOWN.of(p).take();
    agreement::drop_all(p);
}

/// Called by progress after ranks of this node have ended.
pub(super) fn note_ends(worker: &mut Worker) {
    // SAFETY: the hook runs inside MPI, so this thread holds the lock or is the only one.
    failures::note_failures(unsafe { process::get_unlocked() }, worker);
    departed::release_after_ends(worker);
}

/// Passes deaths to the agreements, and repeats the revocations of which the dead may not have informed their
/// neighbours.
pub(super) fn report_deaths(p: &Process, worker: &mut Worker, ranks: &[u32]) {
    deaths::spread(p, worker, ranks);
    agreement::report_deaths(p, worker, ranks);
    revoke::repeat(p, worker);
    (AFTER_DEATHS.of(p).get())(p);
}

/// Called by progress with each notice.
pub(super) fn receive(worker: &mut Worker, notice: &ReceivedNotice) {
    // SAFETY: the hook runs inside MPI, so this thread holds the lock or is the only one.
    let p = unsafe { process::get_unlocked() };
    if notice.kind == DIED {
        return deaths::receive(p, worker, &notice.bytes);
    }
    let context = Context::from_wire(notice.number);
    if notice.kind == AGREEMENT
        && agreement::receive_known(p, worker, context, notice.sender, &notice.bytes)
    {
        return;
    }
    match failures::find_comm(p, context) {
        Some(comm) => handle(p, worker, &comm, notice.sender, notice.kind, &notice.bytes),
        // Notices of a communicator that was freed are of no use.
        None if KNOWN.of(p).borrow().contains(&context) => {}
        None => {
            let mut early = EARLY.of(p).borrow_mut();
            if early.len() < MOST_EARLY {
                let (sender, kind, bytes) = (notice.sender, notice.kind, notice.bytes.clone());
                early.push(EarlyNotice { sender, kind, context, bytes });
            }
        }
    }
}

/// Handles the notices that have arrived before the communicator was created here.
pub(super) fn deliver(p: &Process, worker: &mut Worker, comm: &Rc<Comm>) {
    if failures::is_on() {
        let mut known = KNOWN.of(p).borrow_mut();
        known.truncate(MOST_EARLY - 1);
        known.push_front(comm.context);
    }
    let early = EARLY.of(p).take();
    let (own, others): (Vec<_>, Vec<_>) =
        early.into_iter().partition(|notice| notice.context == comm.context);
    EARLY.of(p).borrow_mut().extend(others);
    for notice in own {
        handle(p, worker, comm, notice.sender, notice.kind, &notice.bytes);
    }
}

fn handle(p: &Process, worker: &mut Worker, comm: &Rc<Comm>, sender: u32, kind: u32, bytes: &[u8]) {
    match kind {
        REVOKED => revoke::receive(p, worker, comm, sender),
        AGREEMENT => agreement::receive(p, worker, comm, sender, bytes),
        _ => {}
    }
}
