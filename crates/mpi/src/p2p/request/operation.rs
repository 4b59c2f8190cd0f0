//! Operations of this layer behind a request, and what calls say to them.
#![allow(unsafe_code)]

use super::{
    DONE_HANDLE, Extra, Notice, Operation, Watch, active, empty_status, find, make_foreign,
    not_of_kind, pool_of,
};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::common::status::Status;
use crate::process::Process;
use fastpath_protocol::RequestId;
use fastpath_protocol::request::RequestKind;

/// Passes a notice on to the operation behind a request, whether active or not.
///
/// # Errors
/// `MPI_ERR_REQUEST` for a request that is invalid, or not of such an operation; the operation's own errors.
pub fn notify(p: &Process, handle: usize, notice: Notice) -> Result<bool> {
    if handle == MPI_REQUEST_NULL {
        let text = "the request is MPI_REQUEST_NULL";
        return Err(Error::new(MPI_ERR_REQUEST, text));
    }
    let id = find(p, handle)?;
    // SAFETY: INSIDE (`workers`).
    let request = unsafe { (*pool_of(p, id)?).get(id) };
    let index = request.user;
    let taken = match p.extras.slots_mut().get_mut(index) {
        Some(Some(Extra::Operation { poll, .. })) if request.kind == RequestKind::Foreign => {
            poll.take()
        }
        _ => return Err(not_of_kind("of an operation that takes such a call")),
    };
    let Some(mut operation) = taken else {
        let text = "a function of the program that the request runs has called this";
        return Err(Error::new(MPI_ERR_REQUEST, text));
    };
    let answer = operation.notify(p, notice);
    let mut ends = false;
    if let Some(Some(Extra::Operation { poll, watch, freed, result, .. })) =
        p.extras.slots_mut().get_mut(index)
    {
        let now = match result {
            Some(_) => Watch::Named,
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

/// Polls an operation of this layer; says whether it has ended.
pub(super) fn poll_operation(p: &Process, index: usize) -> bool {
    let taken = match p.extras.slots_mut().get_mut(index) {
        Some(Some(Extra::Operation { poll, .. })) => poll.take(),
        _ => return true,
    };
    // None while it runs a function of the program, which asks.
    let Some(mut operation) = taken else {
        return false;
    };
    let ended = operation.poll(p);
    keep_polled(p, index, operation, ended)
}

/// Puts an operation back that was polled; says whether it has ended. It is kept for `free`, but not polled again: the
/// result says so.
pub(super) fn keep_polled(
    p: &Process, index: usize, operation: Box<dyn Operation<Process>>,
    ended: Option<Result<Status>>,
) -> bool {
    let complete = ended.is_some();
    let now = match complete {
        true => Watch::Named,
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
    // SAFETY: INSIDE (`workers`).
    unsafe { (*pool_of(p, id)?).free(id) };
    match extra {
        Some(Extra::Operation { poll: Some(mut operation), watch, .. }) => {
            active::note(p, index, watch, Watch::Named);
            operation.free(p)
        }
        _ => Ok(()),
    }
}

/// Makes a request out of an operation of this layer and returns its handle.
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
    active::note(p, index, Watch::Named, watch);
    make_foreign(p, index)
}

/// The call that makes an operation, with its place, where mistakes are looked for.
pub(super) fn name_maker(p: &Process) -> String {
    p.checks().map(|checks| checks.name(p.call.get())).unwrap_or_default()
}

/// The operations that the program has neither completed nor freed, where mistakes are looked for: the call that made
/// each, and what is known of it.
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
                true => "it is over, but no call has waited for it or tested it".into(),
                false => operation.state(),
            };
            Some((made.clone(), format!("{state}{title}")))
        }
        _ => None,
    };
    p.extras.slots().iter().flatten().filter_map(describe).collect()
}

/// A request that has completed with an empty status; one of its own where mistakes are looked for, so that it is known
/// whether the program completes it.
///
/// # Errors
/// `MPI_ERR_OTHER` where there are no more requests.
pub fn completed_request(p: &Process) -> Result<usize> {
    match p.checks() {
        None => Ok(DONE_HANDLE),
        Some(_) => make_operation(p, Box::new(Over)),
    }
}

/// What was over when its call returned.
struct Over;

impl Operation<Process> for Over {
    fn is_over(&self) -> bool {
        true
    }

    fn poll(&mut self, _: &Process) -> Option<Result<Status>> {
        Some(Ok(empty_status()))
    }
}
