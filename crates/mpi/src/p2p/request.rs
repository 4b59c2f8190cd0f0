//! Requests as MPI sees them: waiting, testing, persistent ones, and operations that poll.
//!
//! A request's handle is that of the protocol layer's request. A persistent request or an operation
//! of this layer is a request of kind `Foreign` whose `user` word is an index into
//! [`crate::objects::operation::Extras`].
//!
//! **VARIABLES.** `request` is a variable, or `requests` and the arrays beside it hold `count` of them; a status is
//! null or there for each. Each function here asks this of its caller, and the entry points of the user.
#![allow(unsafe_code)]

mod active;
mod comms;
mod double;
mod ended;
pub mod generalized;
mod immediate;
mod operation;
mod persistent;
mod result;
mod several;
mod steps;
mod unjoined;
mod workers;

pub(crate) use crate::objects::operation::not_of_kind;
pub use crate::objects::operation::{Notice, Operation, Watch};
pub use crate::p2p::DONE_HANDLE;
pub(crate) use active::moved_by;
pub(crate) use comms::{complete_communication, release_unused};
pub use double::{isendrecv, isendrecv_replace};
pub use ended::{cancel, free};
pub use immediate::{await_of, collect_done, try_arrival, try_collect};
pub(crate) use operation::list_pending;
pub use operation::{completed_request, make_operation, notify};
use operation::{free_operation, keep_polled, operation_has_result, poll_operation};
pub use persistent::{make_persistent, make_persistent_operation, start};
pub use result::empty_status;
pub(crate) use result::peer_of;
use result::{read_result, read_status, status_of};
pub use several::{
    CompletedCall, complete_some, join_errors, status_at, test_all, test_any, wait_any, wait_into,
};
pub(crate) use unjoined::finish_collective;

pub(crate) use steps::name_wait;
use steps::{OPERATION, await_step, awaited_request};
use workers::{places_of, places_of_all, pool_at, pool_of, worker_of};

use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::common::places::{self, Mixed, within_all};
use crate::common::status::Status;
use crate::objects::operation::Extra;
pub(crate) use crate::objects::operation::Marked;
use crate::p2p::slow::{self, Senders};
use crate::process::Process;
use fastpath_bootstrap::segment::Awaited;
use fastpath_protocol::matching::ANY_PEER;
use fastpath_protocol::request::RequestKind;
use fastpath_protocol::waiting::Note;
use fastpath_protocol::{RequestId, State, Worker};

/// Makes the request behind [`DONE_HANDLE`].
pub(crate) fn make_done_request(worker: &mut Worker) {
    let Some(id) = worker.requests.allocate(RequestKind::Send) else {
        return;
    };
    let request = worker.requests.get_mut(id);
    request.state = State::Complete;
    debug_assert_eq!(request.handle as usize, DONE_HANDLE);
}

/// What a request handle names.
enum Named {
    /// `MPI_REQUEST_NULL`, or an inactive persistent request.
    Inactive,
    /// A request of the protocol layer, active or complete.
    Plain(RequestId),
    /// An operation of this layer.
    Operation(usize),
}

fn find(p: &Process, handle: usize) -> Result<RequestId> {
    // SAFETY: INSIDE (`workers`).
    let pool = unsafe { &*pool_at(p, places::of_request(handle))? };
    pool.find(handle as u64).ok_or_else(|| {
        Error::new(
            MPI_ERR_REQUEST,
            format!(
                "invalid request handle {handle:#x}: never made, or completed and freed already"
            ),
        )
    })
}

fn resolve(p: &Process, handle: usize) -> Result<Named> {
    if handle == MPI_REQUEST_NULL {
        return Ok(Named::Inactive);
    }
    let id = find(p, handle)?;
    // SAFETY: INSIDE (`workers`).
    let request = unsafe { (*pool_of(p, id)?).get(id) };
    if request.kind != RequestKind::Foreign {
        return Ok(Named::Plain(id));
    }
    let index = request.user;
    match p.extras.slots().get(index) {
        Some(Some(Extra::Persistent(persistent))) => match persistent.active {
            None => Ok(Named::Inactive),
            Some(inner) => resolve(p, inner),
        },
        Some(Some(Extra::Operation { started: Some(false), .. })) => Ok(Named::Inactive),
        Some(Some(Extra::Operation { .. })) => Ok(Named::Operation(index)),
        _ => Err(Error::new(MPI_ERR_REQUEST, "the request has been freed")),
    }
}

/// Ends a receive whose named source has left the job without sending its message.
fn end_if_hopeless(p: &Process, named: &Named) -> Result {
    if let Named::Plain(id) = *named {
        // SAFETY: the worker lives while MPI runs.
        let worker = unsafe { &mut *worker_of(p, id)? };
        let peer = worker.requests.get(id).peer;
        if peer != ANY_PEER {
            worker.give_up(id, peer);
        }
    }
    Ok(())
}

/// Whether a request of the protocol layer has ended.
#[inline]
fn is_plain_complete(worker: *mut Worker, id: RequestId) -> bool {
    // SAFETY: the worker lives while MPI runs, as for every caller.
    let worker = unsafe { &mut *worker };
    let request = worker.requests.get(id);
    let (ended, peer) = (request.state == State::Complete, request.peer);
    // A receive that nothing has matched may still be cancelled: only who waits for it alone learns that
    // nothing can come (`end_if_hopeless`).
    ended || (!request.is_posted() && peer != ANY_PEER && worker.give_up(id, peer))
}

/// Whether the operation has ended; polls operations of this layer.
fn is_complete(p: &Process, named: &Named) -> Result<bool> {
    match *named {
        Named::Inactive => Ok(true),
        Named::Plain(id) => Ok(is_plain_complete(worker_of(p, id)?, id)),
        Named::Operation(index) => Ok(poll_operation(p, index)),
    }
}

fn check_complete(p: &Process, named: &Named) -> Result<bool> {
    match *named {
        Named::Operation(index) if operation_has_result(p, index) => Ok(true),
        _ => is_complete(p, named),
    }
}

/// Makes the request of a persistent operation that has ended well inactive, and returns its status; None of any other.
/// As [`collect`], in one step.
fn rest_operation(p: &Process, named: &Named) -> Option<Status> {
    let Named::Operation(index) = *named else { return None };
    match p.extras.slots_mut().get_mut(index) {
        Some(Some(Extra::Operation { result, started: Some(started), .. })) => {
            let status = *result.as_ref()?.as_ref().ok()?;
            (*result, *started) = (None, false);
            Some(status)
        }
        _ => None,
    }
}

/// Reads the result of a completed operation and frees its request, or makes it inactive.
///
/// # Safety
/// `handle` is a variable that holds the request.
unsafe fn collect(p: &Process, handle: *mut usize) -> Result<(Status, Option<Error>)> {
    // SAFETY: VARIABLES.
    let value = unsafe { *handle };
    let named = resolve(p, value)?;
    let result = read_result(p, &named)?;
    if value == MPI_REQUEST_NULL {
        return Ok(result);
    }
    let outer = find(p, value)?;
    // SAFETY: INSIDE (`workers`).
    let request = unsafe { (*pool_of(p, outer)?).get(outer) };
    if request.kind == RequestKind::Foreign {
        let index = request.user;
        if let Some(Some(Extra::Persistent(persistent))) = p.extras.slots_mut().get_mut(index) {
            // Which borrows nothing of these.
            if let (Some(_), Named::Plain(id)) = (persistent.active.take(), &named) {
                free_plain(p, *id)?;
            }
            return Ok(result);
        }
        if let Some(Some(Extra::Operation { result: ended, started: Some(started), .. })) =
            p.extras.slots_mut().get_mut(index)
        {
            (*started, *ended) = (false, None);
            return Ok(result);
        }
        // The request has gone even where the program's function that frees it fails.
        // SAFETY: VARIABLES.
        unsafe { *handle = MPI_REQUEST_NULL };
        let freed = free_operation(p, outer, index);
        release_unused(p);
        freed?;
    } else {
        free_plain(p, outer)?;
    }
    // SAFETY: VARIABLES.
    unsafe { *handle = MPI_REQUEST_NULL };
    Ok(result)
}

fn free_plain(p: &Process, id: RequestId) -> Result {
    // SAFETY: INSIDE (`workers`): `pool` is not used once the worker is.
    let pool = unsafe { &mut *pool_of(p, id)? };
    if pool.get(id).kind == RequestKind::Send && pool.get(id).cancelled {
        // SAFETY: the worker lives while MPI runs.
        unsafe { (*worker_of(p, id)?).release_cancelled(id) };
    } else if pool.get(id).handle as usize != DONE_HANDLE {
        pool.free(id);
    }
    Ok(())
}

fn make_foreign(p: &Process, index: usize) -> Result<usize> {
    // SAFETY: INSIDE (`workers`).
    let pool = unsafe { &mut *pool_at(p, 0)? };
    let id = pool.allocate(RequestKind::Foreign).ok_or_else(slow::out_of_requests)?;
    let request = pool.get_mut(id);
    request.user = index;
    Ok(request.handle as usize)
}

/// Waits for the operation behind a request. Does not read or free it.
fn wait_named(p: &Process, call: &'static str, named: &Named) -> Result {
    match *named {
        Named::Inactive => Ok(()),
        Named::Plain(id) => {
            // SAFETY: INSIDE (`workers`).
            let request = unsafe { (*pool_of(p, id)?).get(id) };
            if request.state == State::Complete {
                return Ok(());
            }
            let peer = peer_of(p, request);
            let note = Note {
                call,
                peer,
                tag: request.tag,
                comm: request.user,
                bytes: request.bytes.saturating_sub(p.running()?.record_bytes()),
                awaited: Awaited::UNKNOWN,
                naps: false,
            };
            slow::wait_complete(worker_of(p, id)?, id, &note);
            Ok(())
        }
        Named::Operation(index) => {
            while !check_complete(p, named)? {
                match awaited_request(p, index)? {
                    Some(id) => await_step(p, call, index, id)?,
                    None => break,
                }
            }
            let places = match p.extras.slots().get(index) {
                Some(Some(Extra::Operation { poll: Some(operation), .. })) => operation.places(p),
                _ => 1,
            };
            let wait = (call, OPERATION | index);
            wait_any_of(p, places, wait, || Awaited::UNKNOWN, || check_complete(p, named))
        }
    }
}

/// Who could complete a request, or make an operation of this layer go on.
fn awaited_by(p: &Process, named: &Named) -> Result<Awaited> {
    let id = match *named {
        Named::Plain(id) => Some(id),
        Named::Operation(index) => awaited_request(p, index)?,
        Named::Inactive => None,
    };
    let Some(id) = id else {
        return Ok(Awaited::UNKNOWN);
    };
    // SAFETY: INSIDE (`workers`).
    let request = unsafe { (*pool_of(p, id)?).get(id) };
    Ok(match request.peer {
        ANY_PEER => Senders::of_any(p, request.user).awaited(),
        peer => Awaited::of(&[peer]),
    })
}

/// Makes progress until `done` says so or fails; `awaited` says who could bring that about, and what is waited for is
/// named as in [`Note::comm`]. The caller is inside the workers at `places`.
fn wait_any_of(
    p: &Process, places: u32, (call, named): (&'static str, usize),
    awaited: impl FnOnce() -> Awaited, mut done: impl FnMut() -> Result<bool>,
) -> Result {
    let mut result = done();
    if matches!(result, Ok(false)) {
        let note = Note {
            call,
            peer: -1,
            tag: -1,
            comm: named,
            bytes: 0,
            awaited: awaited(),
            naps: !places.is_power_of_two(),
        };
        // Of one further worker the wait is that one's.
        let home = match places.is_power_of_two() {
            true => places.trailing_zeros(),
            false => 0,
        };
        let _mixed = Mixed::begin(places & !(1 << home));
        // SAFETY: the worker lives while MPI runs; `done` makes its own short references.
        unsafe {
            Worker::wait_until(p.worker_at(home)?, None, &note, |_| {
                result = progress_at(p, places & !(1 << home)).and_then(|()| done());
                !matches!(result, Ok(false))
            });
        }
    }
    result.map(|_| ())
}

/// Whether a request is neither null nor an inactive persistent one.
pub fn is_active(p: &Process, handle: usize) -> Result<bool> {
    Ok(!matches!(resolve(p, handle)?, Named::Inactive))
}

/// Writes a status, except its `MPI_ERROR`.
///
/// # Safety
/// `to` is null (`MPI_STATUS_IGNORE`) or a status.
pub unsafe fn write_status(to: *mut Status, status: Status) {
    if !to.is_null() {
        // SAFETY: VARIABLES: not null, a status.
        unsafe {
            let error = (*to).error;
            *to = status;
            (*to).error = error;
        }
    }
}

/// Writes the empty status: it has `MPI_SUCCESS` in it by definition (MPI 5.0, 3.7.3), also in calls that do not write
/// `MPI_ERROR` otherwise.
///
/// # Safety
/// As [`write_status`].
pub unsafe fn write_empty_status(to: *mut Status) {
    if !to.is_null() {
        // SAFETY: VARIABLES: not null, a status.
        unsafe { *to = empty_status() };
    }
}

/// `MPI_Wait`.
///
/// # Safety
/// `request` is a variable; `status` is null or a status.
pub unsafe fn wait(p: &Process, request: *mut usize, status: *mut Status) -> Result {
    // SAFETY: VARIABLES.
    unsafe {
        let _within = within_all(places_of(p, *request));
        let named = resolve(p, *request)?;
        if let Some(result) = rest_operation(p, &named) {
            write_status(status, result);
            return Ok(());
        }
        wait_named(p, "MPI_Wait", &named)?;
        let (result, error) = collect(p, request)?;
        write_status(status, result);
        error.map_or(Ok(()), Err)
    }
}

/// `MPI_Test`: makes one round of progress if needed.
///
/// # Safety
/// As [`wait`].
pub unsafe fn test(p: &Process, request: *mut usize, status: *mut Status) -> CompletedCall<bool> {
    // SAFETY: VARIABLES.
    unsafe {
        let places = places_of(p, *request);
        let _within = within_all(places);
        let named = resolve(p, *request)?;
        if !check_with_progress(p, places, &named)? {
            return Ok((false, Ok(())));
        }
        let (result, error) = collect(p, request)?;
        write_status(status, result);
        Ok((true, error.map_or(Ok(()), Err)))
    }
}

/// As [`check_complete`], with a round of progress; the caller is inside the workers at `places`.
fn check_with_progress(p: &Process, places: u32, named: &Named) -> Result<bool> {
    let worker = match *named {
        Named::Plain(id) => worker_of(p, id)?,
        _ => p.worker()?,
    };
    let check = || match *named {
        Named::Plain(id) => Ok(is_plain_complete(worker, id)),
        _ => check_complete(p, named),
    };
    if check()? {
        return Ok(true);
    }
    match places.is_power_of_two() {
        true => {
            // SAFETY: the worker lives while MPI runs.
            unsafe { (*worker).progress_all() };
            places::visit(places.trailing_zeros());
        }
        false => progress(p, places)?,
    }
    let complete = check()?;
    if !complete {
        // SAFETY: the worker lives while MPI runs; no reference to it is held.
        unsafe { Worker::note_miss(worker) };
    }
    Ok(complete)
}

/// A call is about to answer "not yet": on a crowded node it yields. Every nonblocking query ends here.
pub(crate) fn note_miss(p: &Process) -> Result {
    // SAFETY: the worker lives while MPI runs; no reference to it is held.
    unsafe { Worker::note_miss(p.worker()?) };
    Ok(())
}

/// A round of progress in the first worker, of a call that asks an operation of this layer.
pub(crate) fn make_progress(p: &Process) -> Result {
    progress(p, 1)
}

/// A round of progress, for a call that does not wait: in the workers at `places`, which the caller is inside, and in
/// the others unless another thread is inside.
fn progress(p: &Process, places: u32) -> Result {
    progress_at(p, places)?;
    places::visit(places.max(1).trailing_zeros());
    Ok(())
}

/// A round of progress in the workers at `places`, which the caller is inside.
fn progress_at(p: &Process, places: u32) -> Result {
    for place in places::each(places) {
        // SAFETY: the worker lives while MPI runs.
        unsafe { (*p.worker_at(place)?).progress_all() };
    }
    Ok(())
}

/// `MPI_Request_get_status`: as test, but the request stays.
///
/// # Safety
/// `status` is null or a status.
pub unsafe fn get_status(p: &Process, request: usize, status: *mut Status) -> Result<bool> {
    let places = places_of(p, request);
    let _within = within_all(places);
    let named = resolve(p, request)?;
    if !check_with_progress(p, places, &named)? {
        return Ok(false);
    }
    let result = read_status(p, &named)?;
    // SAFETY: VARIABLES.
    unsafe { write_status(status, result) };
    Ok(true)
}
