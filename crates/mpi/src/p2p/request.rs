//! Requests of MPI: wait, test, persistent requests, and polled operations.
//!
//! A request's handle is that of the protocol layer's request. A persistent request, or one for an operation that the
//! MPI layer runs itself, is of kind `Foreign`. Its `user` word is an index into [`crate::objects::operation::Extras`].
//!
//! **VARIABLES.** `request` is a variable, or `requests` and its parallel arrays have `count` entries. A status is null
//! or valid for each request. Each function here requires this of its caller, and the entry points require it of the
//! user.
//!
//! **INSIDE.** The worker's requests ([`pool`]) live while MPI runs, and the caller is inside MPI. A reference to a
//! request ends before any code waits, calls the program, or accesses the worker by another path.
#![allow(unsafe_code)]

mod comms;
mod double;
mod ended;
pub mod generalized;
mod immediate;
mod operation;
mod persistent;
mod result;
mod several;
mod staged;
mod steps;
mod unjoined;

pub(crate) use crate::objects::operation::not_of_kind;
pub use crate::objects::operation::{Notice, Operation, PollCondition};
pub use crate::p2p::DONE_HANDLE;
pub(crate) use comms::{complete_communication, release_unused};
pub use double::{isendrecv, isendrecv_replace};
pub use ended::{cancel, free};
pub use immediate::{collect_done, spin_arrival, try_arrival, try_collect, try_collect_run};
pub use operation::{completed_request, make_operation, notify};
use operation::{free_operation, keep_polled, operation_has_result, poll_operation};
pub(crate) use operation::{list_pending, moved_by};
pub use persistent::{make_persistent, make_persistent_operation, start};
pub use result::empty_status;
pub(crate) use result::peer_of;
use result::{read_result, read_status, status_of};
pub use several::{
    CompletedCall, complete_some, join_errors, status_at, test_all, test_any, wait_any, wait_into,
};
pub(crate) use staged::{StagedKind, make_staged};
pub(crate) use unjoined::finish_collective;

pub(crate) use steps::name_wait;
use steps::{OPERATION, await_step, awaited_request};

use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::common::status::Status;
use crate::objects::operation::Extra;
pub(crate) use crate::objects::operation::MarkedRequest;
use crate::p2p::channel::deadlock;
use crate::p2p::slow::{self, Senders};
use crate::process::{Process, failures};
use fastpath_protocol::matching::ANY_PEER;
use fastpath_protocol::request::{RequestKind, RequestPool};
use fastpath_protocol::waiting::Note;
use fastpath_protocol::{RequestId, RequestState, Worker};
use fastpath_segment::AwaitedRanks;

pub(crate) fn make_done_request(worker: &mut Worker) {
    let Some(id) = worker.requests.allocate(RequestKind::Send) else {
        return;
    };
    let request = worker.requests.get_mut(id);
    request.state = RequestState::Complete;
    debug_assert_eq!(request.handle as usize, DONE_HANDLE);
}

enum NamedRequest {
    /// `MPI_REQUEST_NULL`, or an inactive persistent request.
    Inactive,
    Plain(RequestId),
    Operation(usize),
}

/// The worker's requests. See INSIDE.
fn pool(p: &Process) -> Result<*mut RequestPool> {
    // SAFETY: the worker lives while MPI runs; no reference is made.
    Ok(unsafe { &raw mut (*p.worker()?).requests })
}

fn find(p: &Process, handle: usize) -> Result<RequestId> {
    // SAFETY: INSIDE.
    let pool = unsafe { &*pool(p)? };
    pool.find(handle as u64).ok_or_else(|| {
        Error::new(
            MPI_ERR_REQUEST,
            format!(
                "invalid request handle {handle:#x}: never made, or completed and freed already"
            ),
        )
    })
}

fn resolve(p: &Process, handle: usize) -> Result<NamedRequest> {
    if handle == MPI_REQUEST_NULL {
        return Ok(NamedRequest::Inactive);
    }
    let id = find(p, handle)?;
    // SAFETY: INSIDE.
    let request = unsafe { (*pool(p)?).get(id) };
    if request.kind != RequestKind::Foreign {
        return Ok(NamedRequest::Plain(id));
    }
    let index = request.user;
    match p.extras.slots().get(index) {
        Some(Some(Extra::Persistent(persistent))) => match persistent.active {
            None => Ok(NamedRequest::Inactive),
            Some(inner) => resolve(p, inner),
        },
        Some(Some(Extra::Operation { started: Some(false), .. })) => Ok(NamedRequest::Inactive),
        Some(Some(Extra::Operation { .. })) => Ok(NamedRequest::Operation(index)),
        _ => Err(Error::new(MPI_ERR_REQUEST, "the request has been freed")),
    }
}

/// Ends a receive whose named source has left the job without sending its message.
fn end_if_hopeless(p: &Process, named: &NamedRequest) -> Result {
    if let NamedRequest::Plain(id) = *named {
        // SAFETY: the worker lives while MPI runs.
        let worker = unsafe { &mut *p.worker()? };
        let peer = worker.requests.get(id).peer;
        if peer != ANY_PEER {
            worker.give_up(id, peer);
        }
    }
    Ok(())
}

/// Returns whether a request of the protocol layer has ended.
#[inline]
fn is_plain_complete(worker: *mut Worker, id: RequestId) -> bool {
    // SAFETY: the worker lives while MPI runs, and every caller is inside it.
    let worker = unsafe { &mut *worker };
    let request = worker.requests.get(id);
    let (ended, peer) = (request.state == RequestState::Complete, request.peer);
    // An unmatched receive does not end here, because it may be cancelled: only `end_if_hopeless` ends it.
    ended || (!request.is_posted() && peer != ANY_PEER && worker.give_up(id, peer))
}

/// Returns whether the operation of a request has ended. Polls operations of the MPI layer.
fn is_complete(p: &Process, named: &NamedRequest) -> Result<bool> {
    match *named {
        NamedRequest::Inactive => Ok(true),
        NamedRequest::Plain(id) => {
            Ok(is_plain_complete(p.worker()?, id) || is_pending_failure(p, named))
        }
        NamedRequest::Operation(index) => Ok(poll_operation(p, index)),
    }
}

/// Returns whether a receive from any source waits, and a possible source has died whose death the program has not
/// acknowledged. A completing call then returns an error, and the request remains active.
#[inline]
fn is_pending_failure(p: &Process, named: &NamedRequest) -> bool {
    failures::is_on() && has_dead_source(p, named)
}

#[cold]
fn has_dead_source(p: &Process, named: &NamedRequest) -> bool {
    let (&NamedRequest::Plain(id), Ok(worker)) = (named, p.worker()) else {
        return false;
    };
    // SAFETY: the worker lives while MPI runs, and no reference to it lives elsewhere.
    let request = unsafe { (*worker).requests.get(id) };
    let waits = request.is_posted() && request.state == RequestState::Active;
    waits && request.peer == ANY_PEER && Senders::of_any(p, request.user).has_dead()
}

fn check_complete(p: &Process, named: &NamedRequest) -> Result<bool> {
    match *named {
        NamedRequest::Operation(index) if operation_has_result(p, index) => Ok(true),
        _ => is_complete(p, named),
    }
}

/// If a persistent operation has succeeded, makes its request inactive and returns its status. The caller then skips
/// [`collect`]. Returns `None` for any other request, which needs [`collect`].
fn rest_operation(p: &Process, named: &NamedRequest) -> Option<Status> {
    let NamedRequest::Operation(index) = *named else { return None };
    match p.extras.slots_mut().get_mut(index) {
        Some(Some(Extra::Operation { result, started: Some(started), .. })) => {
            let status = *result.as_ref()?.as_ref().ok()?;
            (*result, *started) = (None, false);
            Some(status)
        }
        _ => None,
    }
}

/// Reads the result of a completed operation, and frees its request or makes it inactive. Safety: `handle` must point
/// to a variable that holds the request.
unsafe fn collect(p: &Process, handle: *mut usize) -> Result<(Status, Option<Error>)> {
    // SAFETY: VARIABLES.
    let value = unsafe { *handle };
    let named = resolve(p, value)?;
    let result = read_result(p, &named)?;
    if value == MPI_REQUEST_NULL {
        return Ok(result);
    }
    let outer = find(p, value)?;
    // SAFETY: INSIDE.
    let request = unsafe { (*pool(p)?).get(outer) };
    if request.kind == RequestKind::Foreign {
        let index = request.user;
        if let Some(Some(Extra::Persistent(persistent))) = p.extras.slots_mut().get_mut(index) {
            // The slots stay borrowed during `free_plain`, which does not borrow them.
            if let (Some(_), NamedRequest::Plain(id)) = (persistent.active.take(), &named) {
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
        // The request is freed even if the program's free function fails.
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
    // SAFETY: INSIDE; `pool` is not used after the access to the worker below.
    let pool = unsafe { &mut *pool(p)? };
    if pool.get(id).kind == RequestKind::Send && pool.get(id).cancelled {
        // SAFETY: the worker lives while MPI runs.
        unsafe { (*p.worker()?).release_cancelled(id) };
    } else if pool.get(id).handle as usize != DONE_HANDLE {
        pool.free(id);
    }
    Ok(())
}

fn make_foreign(p: &Process, index: usize) -> Result<usize> {
    // SAFETY: INSIDE.
    let pool = unsafe { &mut *pool(p)? };
    let id = pool.allocate(RequestKind::Foreign).ok_or_else(slow::out_of_requests)?;
    let request = pool.get_mut(id);
    request.user = index;
    Ok(request.handle as usize)
}

/// Waits for the operation of a request. Does not read the result or free the request.
fn wait_named(p: &Process, call: &'static str, named: &NamedRequest) -> Result {
    match *named {
        NamedRequest::Inactive => Ok(()),
        NamedRequest::Plain(id) => {
            // SAFETY: INSIDE.
            let request = unsafe { (*pool(p)?).get(id) };
            if request.state == RequestState::Complete {
                return Ok(());
            }
            let peer = peer_of(p, request);
            let note = Note {
                call,
                peer,
                tag: request.tag,
                comm: request.user,
                bytes: request.bytes.saturating_sub(p.running()?.record_bytes()),
                awaited: AwaitedRanks::UNKNOWN,
                naps: false,
            };
            slow::wait_nonblocking(p.worker()?, id, &note);
            Ok(())
        }
        NamedRequest::Operation(index) => {
            while !check_complete(p, named)? {
                match awaited_request(p, index)? {
                    Some(id) => await_step(p, call, index, id)?,
                    None => break,
                }
            }
            let wait = (call, OPERATION | index);
            wait_any_of(p, wait, || AwaitedRanks::UNKNOWN, || check_complete(p, named))
        }
    }
}

/// Returns the ranks that could complete a request, or advance an operation of the MPI layer.
fn awaited_by(p: &Process, named: &NamedRequest) -> Result<AwaitedRanks> {
    let id = match *named {
        NamedRequest::Plain(id) => Some(id),
        NamedRequest::Operation(index) => awaited_request(p, index)?,
        NamedRequest::Inactive => None,
    };
    let Some(id) = id else {
        return Ok(AwaitedRanks::UNKNOWN);
    };
    // SAFETY: INSIDE.
    let request = unsafe { (*pool(p)?).get(id) };
    Ok(match request.peer {
        ANY_PEER => Senders::of_any(p, request.user).awaited(),
        peer => AwaitedRanks::of(&[peer]),
    })
}

/// Makes progress until `done` returns true or fails. `awaited` returns the ranks that could make `done` return true.
/// `named` is stored in [`Note::comm`], for reports of the wait.
fn wait_any_of(
    p: &Process, (call, named): (&'static str, usize), awaited: impl FnOnce() -> AwaitedRanks,
    mut done: impl FnMut() -> Result<bool>,
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
            naps: false,
        };
        // SAFETY: the worker lives while MPI runs; `done` makes its own short references.
        unsafe {
            deadlock::wait_until(p, p.worker()?, None, &note, |_| {
                result = done();
                !matches!(result, Ok(false))
            });
        }
    }
    result.map(|_| ())
}

/// Returns whether a request is neither null nor an inactive persistent one.
pub fn is_active(p: &Process, handle: usize) -> Result<bool> {
    Ok(!matches!(resolve(p, handle)?, NamedRequest::Inactive))
}

/// Writes a status, except its `MPI_ERROR`.
///
/// # Safety
/// `to` must be null (`MPI_STATUS_IGNORE`) or a status.
pub unsafe fn write_status(to: *mut Status, status: Status) {
    if !to.is_null() {
        // SAFETY: VARIABLES; `to` is not null, and so points to a status.
        unsafe {
            let error = (*to).error;
            *to = status;
            (*to).error = error;
        }
    }
}

/// Writes the empty status. By definition it has `MPI_SUCCESS` (MPI 5.0, 3.7.3) in every call.
///
/// # Safety
/// See [`write_status`].
pub unsafe fn write_empty_status(to: *mut Status) {
    if !to.is_null() {
        // SAFETY: VARIABLES; `to` is not null, and so points to a status.
        unsafe { *to = empty_status() };
    }
}

/// `MPI_Wait`.
///
/// # Safety
/// See VARIABLES.
pub unsafe fn wait(p: &Process, request: *mut usize, status: *mut Status) -> Result {
    // SAFETY: VARIABLES.
    unsafe {
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
/// See VARIABLES.
pub unsafe fn test(p: &Process, request: *mut usize, status: *mut Status) -> CompletedCall<bool> {
    // SAFETY: VARIABLES.
    unsafe {
        let named = resolve(p, *request)?;
        if !check_with_progress(p, &named)? {
            return Ok((false, Ok(())));
        }
        let (result, error) = collect(p, request)?;
        write_status(status, result);
        Ok((true, error.map_or(Ok(()), Err)))
    }
}

/// Makes a round of progress, then checks for completion like [`check_complete`].
fn check_with_progress(p: &Process, named: &NamedRequest) -> Result<bool> {
    let worker = p.worker()?;
    let check = || match *named {
        NamedRequest::Plain(id) => Ok(is_plain_complete(worker, id)),
        _ => check_complete(p, named),
    };
    if check()? {
        return Ok(true);
    }
    // SAFETY: the worker lives while MPI runs.
    unsafe { (*worker).progress_all() };
    let complete = check()? || is_pending_failure(p, named);
    if !complete {
        note_miss(p)?;
    }
    Ok(complete)
}

/// Records an unsuccessful nonblocking query. Yields on an oversubscribed node. Ends the job if an outstanding
/// collective call can never end.
pub(crate) fn note_miss(p: &Process) -> Result {
    let worker = p.worker()?;
    if deadlock::has_watched_calls(p, worker) {
        deadlock::note_miss(p, worker);
    }
    // SAFETY: the worker lives while MPI runs; no reference to it is held.
    unsafe { Worker::note_miss(worker) };
    Ok(())
}

/// Makes one round of progress, for a call that does not wait.
pub(crate) fn progress(p: &Process) -> Result {
    // SAFETY: the worker lives while MPI runs.
    unsafe { (*p.worker()?).progress_all() };
    Ok(())
}

/// `MPI_Request_get_status`: a test that does not free the request.
///
/// # Safety
/// See VARIABLES.
pub unsafe fn get_status(p: &Process, request: usize, status: *mut Status) -> Result<bool> {
    let named = resolve(p, request)?;
    if !check_with_progress(p, &named)? {
        return Ok(false);
    }
    let result = read_status(p, &named)?;
    // SAFETY: VARIABLES.
    unsafe { write_status(status, result) };
    Ok(true)
}
