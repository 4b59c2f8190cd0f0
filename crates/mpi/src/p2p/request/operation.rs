//! Operations that the MPI layer runs itself behind a request, and calls that notify or query them. INSIDE is defined
//! in `request.rs`.
#![allow(unsafe_code)]

mod active;

pub(crate) use active::moved_by;

use super::{
    DONE_HANDLE, Extra, Notice, Operation, PollCondition, empty_status, find, make_foreign,
    not_of_kind, pool,
};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::common::status::Status;
use crate::process::Process;
use fastpath_protocol::RequestId;
use fastpath_protocol::request::RequestKind;

/// Passes a notice to the operation of an active or inactive request. Errors: `MPI_ERR_REQUEST` for a request that is
/// invalid, or has no such operation; the operation's own errors.
pub fn notify(p: &Process, handle: usize, notice: Notice) -> Result<bool> {
    if handle == MPI_REQUEST_NULL {
        let text = "the request is MPI_REQUEST_NULL";
        return Err(Error::new(MPI_ERR_REQUEST, text));
    }
    let id = find(p, handle)?;
    // SAFETY: INSIDE.
    let request = unsafe { (*pool(p)?).get(id) };
    let index = request.user;
    let taken = match p.extras.slots_mut().get_mut(index) {
        Some(Some(Extra::Operation { poll, .. })) if request.kind == RequestKind::Foreign => {
            poll.take()
        }
        _ => return Err(not_of_kind("of a generalized or partitioned operation")),
    };
    let Some(mut operation) = taken else {
        let text = "a callback function of the request made this call";
        let advice = "make the call outside of the callback functions of the request";
        return Err(Error::new(MPI_ERR_REQUEST, text).with_advice(Some(advice)));
    };
    let answer = operation.notify(p, notice);
    let mut ends = false;
    if let Some(Some(Extra::Operation { poll, watch, freed, result, .. })) =
        p.extras.slots_mut().get_mut(index)
    {
        let now = match result {
            Some(_) => PollCondition::Named,
            None => operation.watch(),
        };
        let before = std::mem::replace(watch, now);
        ends = *freed && !operation.outlives_request();
        *poll = Some(operation);
        active::note(p, index, before, now);
    }
    if ends {
        free_operation(p, id, index)?;
    }
    answer
}

/// Polls an operation of the MPI layer; returns whether it has ended.
pub(super) fn poll_operation(p: &Process, index: usize) -> bool {
    let taken = match p.extras.slots_mut().get_mut(index) {
        Some(Some(Extra::Operation { poll, .. })) => poll.take(),
        _ => return true,
    };
    // The slot is empty only while the operation runs a function of the program, which has made this call.
    let Some(mut operation) = taken else {
        return false;
    };
    let ended = operation.poll(p);
    keep_polled(p, index, operation, ended)
}

/// Returns a polled operation to its slot, and returns whether it has ended. An ended operation stays in its slot for
/// `free`, and its stored result prevents further polls.
pub(super) fn keep_polled(
    p: &Process, index: usize, operation: Box<dyn Operation<Process>>,
    ended: Option<Result<Status>>,
) -> bool {
    let complete = ended.is_some();
    let now = match complete {
        true => PollCondition::Named,
        false => operation.watch(),
    };
    if let Some(Some(Extra::Operation { poll, result, watch, polls, .. })) =
        p.extras.slots_mut().get_mut(index)
    {
        *polls = polls.wrapping_add(1);
        *poll = Some(operation);
        *result = result.take().or(ended);
        let before = std::mem::replace(watch, now);
        active::note(p, index, before, now);
    }
    complete
}

pub(super) fn operation_has_result(p: &Process, index: usize) -> bool {
    matches!(p.extras.slots().get(index), Some(Some(Extra::Operation { result: Some(_), .. })))
}

pub(super) fn free_operation(p: &Process, id: RequestId, index: usize) -> Result {
    let extra = p.extras.remove(index);
    // SAFETY: INSIDE.
    unsafe { (*pool(p)?).free(id) };
    match extra {
        Some(Extra::Operation { poll: Some(mut operation), watch, .. }) => {
            active::note(p, index, watch, PollCondition::Named);
            operation.free(p)
        }
        _ => Ok(()),
    }
}

/// Makes a request for an operation of the MPI layer, and returns its handle.
pub fn make_operation(p: &Process, operation: Box<dyn Operation<Process>>) -> Result<usize> {
    let watch = operation.watch();
    let index = p.extras.insert(Extra::Operation {
        poll: Some(operation),
        result: None,
        watch,
        polls: 0,
        started: None,
        freed: false,
        made: name_maker(p),
    });
    active::note(p, index, PollCondition::Named, watch);
    make_foreign(p, index)
}

/// Returns the call that makes an operation, with its call site, if checks are on.
pub(super) fn name_maker(p: &Process) -> String {
    p.checks().map(|checks| checks.name(p.call.get())).unwrap_or_default()
}

/// With checks, returns the operations that the program has neither completed nor freed: maker and state of each.
pub(crate) fn list_pending(p: &Process) -> Vec<(String, String)> {
    let describe = |extra: &Extra<Process>| match extra {
        Extra::Operation { poll: Some(operation), result, started, freed, made, .. }
            if *started != Some(false)
                && !freed
                && !made.is_empty()
                && !operation.is_composed() =>
        {
            let comm = operation.comm().and_then(|comm| p.comm_of_request(comm));
            let title = comm.map_or_else(String::new, |comm| format!(" in {}", comm.title()));
            let state = match result.is_some() || operation.is_over() {
                true => "the operation is complete, but the program has not waited for or tested \
                         the request"
                    .into(),
                false => operation.state(),
            };
            Some((made.clone(), format!("{state}{title}")))
        }
        _ => None,
    };
    p.extras.slots().iter().flatten().filter_map(describe).collect()
}

/// Returns a completed request with an empty status. With checks each call makes its own request, because a request
/// that the program never completes is reported. Errors: `MPI_ERR_OTHER` if there are no more requests.
pub fn completed_request(p: &Process) -> Result<usize> {
    match p.checks() {
        None => Ok(DONE_HANDLE),
        Some(_) => make_operation(p, Box::new(CompletedOperation)),
    }
}

/// Operation that had ended when its call returned.
struct CompletedOperation;

impl Operation<Process> for CompletedOperation {
    fn is_over(&self) -> bool {
        true
    }

    fn poll(&mut self, _: &Process) -> Option<Result<Status>> {
        Some(Ok(empty_status()))
    }
}
