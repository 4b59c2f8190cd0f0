//! Failures of processes in a job that tolerates them (`FASTPATH_FT`, ULFM; docs/decisions/0098).
//!
//! A job that does not ask pays nothing: detection runs in callbacks that are not set. Where it asks, the launcher
//! signals each death, and progress then calls [`note_failures`]. A communicator with a dead member, or a revoked one,
//! is *broken*: it leaves the tables of the immediate path, and [`Process::comm`] finds it only on a cold path, which
//! refuses the calls that cannot succeed. [`end_hopeless`] ends operations on broken communicators that had begun
//! before, or that calls without a look-up of the communicator begin later.
#![allow(unsafe_code)]

use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::objects::comm::{Comm, FIRST_TAG};
use crate::process::{self, Process, ProcessPart};
use fastpath_base::sync::{StaticBool, StaticOrdering};
use fastpath_protocol::matching::ANY_PEER;
use fastpath_protocol::request::RequestKind;
use fastpath_protocol::tag::Context;
use fastpath_protocol::{Fault, Request, Worker};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Failures that this process knows.
struct Failures {
    /// World ranks that have died, in the order of detection.
    failed: RefCell<Vec<u32>>,
    /// Broken communicators that have not been freed, or that requests still use.
    broken: RefCell<Vec<Rc<Comm>>>,
    hooks: Cell<FailureHooks>,
}

static FAILURES: ProcessPart<Failures> = ProcessPart::new(Failures {
    failed: RefCell::new(Vec::new()),
    broken: RefCell::new(Vec::new()),
    hooks: Cell::new(FailureHooks::NONE),
});

/// Whether the job tolerates failures.
static IS_ON: StaticBool = StaticBool::new(false);

/// Callbacks into the layer of recovery.
#[derive(Clone, Copy)]
pub(crate) struct FailureHooks {
    /// Called after world ranks were found to have died.
    pub on_deaths: fn(&Process, &mut Worker, &[u32]),
    /// Called with each new communicator.
    pub on_comm: fn(&Process, &mut Worker, &Rc<Comm>),
    /// Called after all members have disconnected from a communicator.
    pub on_disconnect: fn(&Process, Context),
}

impl Default for FailureHooks {
    fn default() -> Self {
        FailureHooks::NONE
    }
}

impl FailureHooks {
    const NONE: FailureHooks =
        FailureHooks { on_deaths: |_, _, _| {}, on_comm: |_, _, _| {}, on_disconnect: |_, _| {} };
}

/// Sets the callbacks, and switches the detection on if the job tolerates failures.
pub(crate) fn start(p: &Process, hooks: FailureHooks, tolerates: bool) {
    FAILURES.of(p).hooks.set(hooks);
    IS_ON.store(tolerates, StaticOrdering::Relaxed);
}

/// Returns whether the job tolerates failures.
#[inline]
pub(crate) fn is_on() -> bool {
    IS_ON.load(StaticOrdering::Relaxed)
}

/// Returns the world ranks that have died, in the order of detection.
pub(crate) fn list_dead(p: &Process) -> Vec<u32> {
    FAILURES.of(p).failed.borrow().clone()
}

/// Drops the communicators of an exiting process.
pub(crate) fn drop_all(p: &Process) {
    FAILURES.of(p).broken.take();
    FAILURES.of(p).failed.take();
}

/// Returns whether a process is a member of either group.
fn is_member(comm: &Comm, world: u32) -> bool {
    let mut groups = [Some(&comm.group), comm.remote_group.as_ref()].into_iter().flatten();
    groups.any(|group| group.world_ranks().contains(&world))
}

/// Records the ranks that have died since the last call, and ends the operations that cannot complete without them.
pub(crate) fn note_failures(p: &Process, worker: &mut Worker) {
    let mut new = Vec::new();
    for peer in 0..worker.present() {
        if peer != worker.rank && worker.has_died(peer) {
            new.push(peer);
        }
    }
    note_deaths(p, worker, &new);
}

/// Records the deaths of world ranks, some of which may be known already.
pub(crate) fn note_deaths(p: &Process, worker: &mut Worker, ranks: &[u32]) {
    if !is_on() || ranks.is_empty() {
        return;
    }
    let known = list_dead(p);
    let new: Vec<u32> = ranks.iter().copied().filter(|rank| !known.contains(rank)).collect();
    if new.is_empty() {
        return;
    }
    FAILURES.of(p).failed.borrow_mut().extend(&new);
    let freed = p.freed_comms.list();
    for comm in list_comms(p).into_iter().chain(freed) {
        note_members(p, worker, &comm, &new);
    }
    end_hopeless(p, worker);
    (FAILURES.of(p).hooks.get().on_deaths)(p, worker, &new);
    // An agreement may have got its decision, and waits for any source may be over.
    worker.wake_sleepers();
}

/// Records those of `failed` that are members of a communicator.
fn note_members(p: &Process, worker: &mut Worker, comm: &Rc<Comm>, failed: &[u32]) {
    let members = failed.iter().copied().filter(|&world| is_member(comm, world));
    let mut is_new = false;
    for world in members {
        comm.faults.note(world);
        is_new = true;
    }
    if is_new {
        mark_broken(p, worker, comm);
    }
}

/// Records the known deaths of members of a new communicator, which has a handle. Passes it the notices that have
/// arrived before, also in a job that does not tolerate failures.
pub(crate) fn note_new_comm(p: &Process, comm: &Rc<Comm>) {
    if let Ok(worker) = p.worker() {
        // SAFETY: the worker lives while MPI runs, and the caller is inside MPI.
        let worker = unsafe { &mut *worker };
        if is_on() {
            let failed = list_dead(p);
            note_members(p, worker, comm, &failed);
        }
        (FAILURES.of(p).hooks.get().on_comm)(p, worker, comm);
    }
}

/// Notes that all members have disconnected from a communicator.
pub(crate) fn note_disconnect(p: &Process, context: Context) {
    if is_on() {
        (FAILURES.of(p).hooks.get().on_disconnect)(p, context);
    }
}

/// Revokes a communicator in this process. Returns false if it was revoked already.
pub(crate) fn revoke_here(p: &Process, worker: &mut Worker, comm: &Rc<Comm>) -> bool {
    if comm.faults.revoked.replace(true) {
        return false;
    }
    mark_broken(p, worker, comm);
    end_hopeless(p, worker);
    true
}

fn list_comms(p: &Process) -> Vec<Rc<Comm>> {
    let handles = [MPI_COMM_WORLD, MPI_COMM_SELF].into_iter().chain(p.comms.handles());
    handles.filter_map(|handle| p.comms.get(handle)).collect()
}

/// Finds a communicator by its context.
pub(crate) fn find_comm(p: &Process, context: Context) -> Option<Rc<Comm>> {
    let freed = p.freed_comms.list();
    list_comms(p).into_iter().chain(freed).find(|comm| comm.context == context)
}

/// Returns the revoked communicators.
pub(crate) fn list_revoked(p: &Process) -> Vec<Rc<Comm>> {
    let broken = FAILURES.of(p).broken.borrow();
    broken.iter().filter(|comm| comm.faults.revoked.get()).cloned().collect()
}

fn mark_broken(p: &Process, worker: &mut Worker, comm: &Rc<Comm>) {
    let mut broken = FAILURES.of(p).broken.borrow_mut();
    if broken.iter().any(|other| Rc::ptr_eq(other, comm)) {
        return;
    }
    broken.push(comm.clone());
    let handle = comm.handle.get();
    p.hot_comm_clear(handle);
    p.comms.hide(handle);
    worker.hooks.on_pause = Some(end_hopeless_hook);
    worker.wake_sleepers();
}

fn end_hopeless_hook(worker: &mut Worker) {
    // SAFETY: the hook runs inside MPI, so this thread holds the lock or is the only one.
    end_hopeless(unsafe { process::get_unlocked() }, worker);
}

/// Ends the operations on broken communicators that can no longer complete.
pub(crate) fn end_hopeless(p: &Process, worker: &mut Worker) {
    let mut broken = FAILURES.of(p).broken.borrow_mut();
    // Only this list still refers to a communicator that was freed and has no requests.
    broken.retain(|comm| Rc::strong_count(comm) > 1);
    if broken.is_empty() {
        worker.hooks.on_pause = None;
        return;
    }
    let judge = |request: &Request| {
        let context = Context::of_key(request.key);
        let comm = broken
            .iter()
            .find(|comm| comm.context == context || comm.context.collective() == context)?;
        let is_collective = comm.context != context;
        judge_request(comm, request, is_collective).or_else(|| {
            let is_dead = request.peer != ANY_PEER && comm.faults.failed().contains(&request.peer);
            is_dead.then_some(Fault::PeerGone)
        })
    };
    let is_message = |request: &&Request| {
        matches!(request.kind, RequestKind::Send | RequestKind::Recv) && !request.detached
    };
    let messages = worker.requests.active().filter(is_message);
    let hopeless: Vec<_> =
        messages.filter_map(|request| Some((request.id(), judge(request)?))).collect();
    drop(broken);
    for (id, fault) in hopeless {
        match fault {
            Fault::PeerGone => _ = worker.give_up_slow(id),
            fault => worker.fail_request(id, fault),
        }
    }
}

/// Returns the fault of an operation that cannot complete on a broken communicator; `None` if it can complete.
fn judge_request(comm: &Comm, request: &Request, is_collective: bool) -> Option<Fault> {
    if comm.faults.revoked.get() {
        return Some(Fault::Revoked);
    }
    // Tags from 0 on belong to calls that only some members make (MPI_Comm_create_group).
    (is_collective && request.tag <= FIRST_TAG && request.peer != ANY_PEER)
        .then_some(Fault::MemberDied)
}

/// Returns a communicator that is hidden because it is broken, if the current call may use it. Errors:
/// `MPIX_ERR_REVOKED` for communication on a revoked communicator; `MPIX_ERR_PROC_FAILED` for a collective call on a
/// communicator with a dead member.
#[cold]
#[inline(never)]
pub(crate) fn find_broken(p: &Process, handle: usize) -> Result<Rc<Comm>> {
    let comm = p.comms.find(handle)?;
    let call = p.call.get();
    let is_collective = is_collective(call);
    if let (true, Ok(worker)) = (is_collective || is_message(call), p.worker()) {
        // A program may repeat a refused call until it learns of a revocation.
        // SAFETY: the worker lives while MPI runs, and this call has not begun to use it.
        unsafe { (*worker).progress() };
    }
    if comm.faults.revoked.get() && (is_collective || is_message(call)) {
        return Err(describe_revocation(&comm));
    }
    match is_collective && comm.faults.has_failed() {
        true => Err(describe_deaths(&comm)),
        false => Ok(comm),
    }
}

/// Returns the error of a call on a revoked communicator.
pub(crate) fn describe_revocation(comm: &Comm) -> Error {
    let text = format!("the communicator ({}) was revoked", comm.title());
    Error::new(MPIX_ERR_REVOKED, text)
}

/// Returns the error of a collective call on a communicator with dead members.
pub(crate) fn describe_deaths(comm: &Comm) -> Error {
    Error::new(MPIX_ERR_PROC_FAILED, list_deaths(comm))
}

/// Returns the error of a call that ends because the communicator has become broken.
pub(crate) fn describe_broken(comm: &Comm) -> Error {
    match comm.faults.revoked.get() {
        true => describe_revocation(comm),
        false => describe_deaths(comm),
    }
}

/// Lists the dead members of a communicator.
pub(crate) fn list_deaths(comm: &Comm) -> String {
    let mut ranks: Vec<i32> =
        comm.faults.failed().iter().map(|&world| comm.peer_rank(world)).collect();
    ranks.sort_unstable();
    let title = comm.title();
    match &ranks[..] {
        [rank] => format!("rank {rank} of the communicator ({title}) has died"),
        [first, ..] => {
            let count = ranks.len();
            format!("{count} ranks of the communicator ({title}) have died, the first is {first}")
        }
        [] => format!("a rank of the communicator ({title}) has died"),
    }
}

/// Collective functions on a communicator, without the forms that begin with `I`, or end with `_init` or `_c`.
static COLLECTIVE: &[&str] = &[
    "allgather",
    "allgatherv",
    "allreduce",
    "alltoall",
    "alltoallv",
    "alltoallw",
    "barrier",
    "bcast",
    "cart_create",
    "cart_sub",
    "comm_accept",
    "comm_connect",
    "comm_create",
    "comm_dup",
    "comm_dup_with_info",
    "comm_idup",
    "comm_idup_with_info",
    "comm_spawn",
    "comm_spawn_multiple",
    "comm_split",
    "comm_split_type",
    "dist_graph_create",
    "dist_graph_create_adjacent",
    "exscan",
    "file_open",
    "gather",
    "gatherv",
    "graph_create",
    "intercomm_create",
    "intercomm_merge",
    "neighbor_allgather",
    "neighbor_allgatherv",
    "neighbor_alltoall",
    "neighbor_alltoallv",
    "neighbor_alltoallw",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_block",
    "scan",
    "scatter",
    "scatterv",
    "win_allocate",
    "win_allocate_shared",
    "win_create",
    "win_create_dynamic",
];

/// Functions that communicate with some members.
static MESSAGES: &[&str] = &[
    "bsend",
    "comm_create_group",
    "improbe",
    "iprobe",
    "mprobe",
    "precv",
    "probe",
    "psend",
    "recv",
    "rsend",
    "send",
    "sendrecv",
    "sendrecv_replace",
    "ssend",
];

fn is_among(list: &[&str], call: &str) -> bool {
    let name = call.strip_prefix("MPI_").unwrap_or(call).to_ascii_lowercase();
    let name = name.strip_suffix("_c").unwrap_or(&name);
    let name = name.strip_suffix("_init").unwrap_or(name);
    let immediate = name.strip_prefix('i').unwrap_or(name);
    [name, immediate].iter().any(|name| list.binary_search(name).is_ok())
}

fn is_collective(call: &str) -> bool {
    is_among(COLLECTIVE, call)
}

fn is_message(call: &str) -> bool {
    is_among(MESSAGES, call)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn calls__are_told_apart_by_name() {
        assert!(COLLECTIVE.is_sorted() && MESSAGES.is_sorted());
        for call in [
            "MPI_Barrier",
            "MPI_Ibarrier",
            "MPI_Barrier_init",
            "MPI_Allreduce_c",
            "MPI_Ineighbor_alltoallw_c",
            "MPI_Bcast_init_c",
            "MPI_Comm_idup",
            "MPI_Intercomm_merge",
            "MPI_Comm_spawn",
            "MPI_Win_create",
        ] {
            assert!(is_collective(call) && !is_message(call), "{call}");
        }
        for call in ["MPI_Send", "MPI_Isend_c", "MPI_Irecv", "MPI_Psend_init", "MPI_Improbe"] {
            assert!(is_message(call) && !is_collective(call), "{call}");
        }
        for call in ["MPI_Comm_free", "MPI_Comm_rank", "MPIX_Comm_shrink", "MPI_Comm_get_attr"] {
            assert!(!is_message(call) && !is_collective(call), "{call}");
        }
    }
}
