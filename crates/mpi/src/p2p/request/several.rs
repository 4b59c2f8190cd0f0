//! Calls that wait for or test several requests (MPI-5.0 section 3.7.5).
//!
//! **VARIABLES.** `requests` and its parallel arrays have `count` entries. A status is null or valid for each request.
#![allow(unsafe_code)]

use super::{
    NamedRequest, awaited_by, check_complete, collect, note_miss, progress, resolve, wait_any_of,
    wait_named, write_empty_status, write_status,
};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::common::status::Status;
use crate::p2p::slow::Senders;
use crate::process::Process;
use fastpath_protocol::RequestId;
use fastpath_protocol::matching::ANY_PEER;
use fastpath_segment::AwaitedRanks;

/// Result of a call that has completed operations, and the error of these operations. The program gets the result even
/// with such an error, because the requests are complete.
pub type CompletedCall<T> = Result<(T, Result)>;

/// Completes one request of an array. Writes the operation's error to the status, and returns it.
unsafe fn collect_into(
    p: &Process, request: *mut usize, status: *mut Status,
) -> Result<Option<Error>> {
    // SAFETY: VARIABLES.
    unsafe {
        let (result, error) = match collect(p, request) {
            // The request remains active, and its status has the error.
            Err(error) if error.code() == MPIX_ERR_PROC_FAILED_PENDING => {
                (super::empty_status(), Some(error))
            }
            collected => collected?,
        };
        if !status.is_null() {
            let code = error.as_ref().map_or(MPI_SUCCESS, Error::code);
            *status = result;
            (*status).error = code;
        }
        Ok(error)
    }
}

/// Returns the address of status `index`, or null.
///
/// # Safety
/// `statuses` must be null or an array with that entry.
pub unsafe fn status_at(statuses: *mut Status, index: usize) -> *mut Status {
    if statuses.is_null() {
        statuses
    } else {
        // SAFETY: the array has that entry, by this function's contract.
        unsafe { statuses.add(index) }
    }
}

/// Returns the error of a call that completes several requests: the text of the first error, with the class
/// `MPI_ERR_IN_STATUS` if the program gets statuses.
pub fn join_errors(first: Option<Error>, has_statuses: bool) -> Result {
    match first {
        None => Ok(()),
        Some(error) if !has_statuses => Err(error),
        Some(error) => {
            let joined = Error::new(MPI_ERR_IN_STATUS, error.message());
            Err(joined.on_object_of(&error))
        }
    }
}

/// Waits for one request of several. Writes the operation's error to the status, and returns it.
///
/// # Safety
/// See VARIABLES.
pub unsafe fn wait_into(
    p: &Process, call: &'static str, request: *mut usize, status: *mut Status,
) -> Result<Option<Error>> {
    // SAFETY: VARIABLES.
    unsafe {
        let named = resolve(p, *request)?;
        wait_named(p, call, &named)?;
        collect_into(p, request, status)
    }
}

/// `MPI_Testall`: completes all requests or none.
///
/// # Safety
/// See VARIABLES.
pub unsafe fn test_all(
    p: &Process, count: usize, requests: *mut usize, statuses: *mut Status,
) -> CompletedCall<bool> {
    // SAFETY: VARIABLES.
    unsafe {
        for round in 0..2 {
            let mut all = true;
            for index in 0..count {
                all &= check_complete(p, &resolve(p, *requests.add(index))?)?;
            }
            if all {
                let mut first = None;
                for index in 0..count {
                    first =
                        first.or(collect_into(p, requests.add(index), status_at(statuses, index))?);
                }
                return Ok((true, join_errors(first, !statuses.is_null())));
            }
            if round == 0 {
                progress(p)?;
            }
        }
    }
    note_miss(p)?;
    Ok((false, Ok(())))
}

/// Returns the first completed active entry of an array, and whether any entry is active.
unsafe fn find_complete(
    p: &Process, count: usize, requests: *const usize,
) -> Result<(Option<usize>, bool)> {
    let mut any_active = false;
    for index in 0..count {
        // SAFETY: VARIABLES.
        let named = resolve(p, unsafe { *requests.add(index) })?;
        if matches!(named, NamedRequest::Inactive) {
            continue;
        }
        any_active = true;
        if check_complete(p, &named)? {
            return Ok((Some(index), true));
        }
    }
    Ok((None, any_active))
}

/// Finds a completed entry like [`find_complete`], for a call that waits. If every active request is a receive whose
/// senders have left, none can complete; the last one is then ended.
unsafe fn find_complete_or_gone(
    p: &Process, count: usize, requests: *const usize,
) -> Result<(Option<usize>, bool)> {
    // SAFETY: VARIABLES.
    unsafe {
        let found = find_complete(p, count, requests)?;
        if found != (None, true) {
            return Ok(found);
        }
        let mut last = None;
        for index in 0..count {
            match resolve(p, *requests.add(index))? {
                NamedRequest::Inactive => {}
                NamedRequest::Plain(id) if has_no_sender(p, id)? => last = Some(id),
                _ => return Ok(found),
            }
        }
        if let Some(id) = last {
            (*p.worker()?).give_up_slow(id);
        }
        find_complete(p, count, requests)
    }
}

/// Returns whether every process that could send the message of a receive has left.
fn has_no_sender(p: &Process, id: RequestId) -> Result<bool> {
    // SAFETY: the worker lives while MPI runs.
    let worker = unsafe { &*p.worker()? };
    let request = worker.requests.get(id);
    Ok(match request.peer {
        ANY_PEER => Senders::of_any(p, request.user).have_left(worker),
        peer => request.is_posted() && worker.peer_has_left(peer),
    })
}

/// Returns the ranks that could complete any of these requests. Safety: see VARIABLES.
unsafe fn awaited_by_any(p: &Process, count: usize, requests: *mut usize) -> AwaitedRanks {
    let mut awaited = AwaitedRanks::UNKNOWN;
    for index in 0..count {
        // SAFETY: VARIABLES.
        let Ok(named) = resolve(p, unsafe { *requests.add(index) }) else {
            return AwaitedRanks::UNKNOWN;
        };
        if matches!(named, NamedRequest::Inactive) {
            continue;
        }
        match awaited_by(p, &named) {
            Ok(one) if one.is_known() => awaited.add(one),
            _ => return AwaitedRanks::UNKNOWN,
        }
    }
    awaited
}

/// `MPI_Waitany`; `None` if no request is active.
///
/// # Safety
/// See VARIABLES.
pub unsafe fn wait_any(
    p: &Process, count: usize, requests: *mut usize, status: *mut Status,
) -> CompletedCall<Option<usize>> {
    // SAFETY: VARIABLES.
    unsafe {
        let mut found = (None, true);
        let awaited = || awaited_by_any(p, count, requests);
        wait_any_of(p, ("MPI_Waitany", 0), awaited, || {
            found = find_complete_or_gone(p, count, requests)?;
            Ok(found.0.is_some() || !found.1)
        })?;
        finish_any(p, found.0, requests, status)
    }
}

unsafe fn finish_any(
    p: &Process, found: Option<usize>, requests: *mut usize, status: *mut Status,
) -> CompletedCall<Option<usize>> {
    // SAFETY: VARIABLES.
    unsafe {
        let Some(index) = found else {
            write_empty_status(status);
            return Ok((None, Ok(())));
        };
        let (result, error) = collect(p, requests.add(index))?;
        write_status(status, result);
        Ok((Some(index), error.map_or(Ok(()), Err)))
    }
}

/// `MPI_Testany`. Returns whether a request has completed or none is active, and the index of a completed one, if any.
///
/// # Safety
/// See VARIABLES.
pub unsafe fn test_any(
    p: &Process, count: usize, requests: *mut usize, status: *mut Status,
) -> CompletedCall<(bool, Option<usize>)> {
    // SAFETY: VARIABLES.
    unsafe {
        let mut found = find_complete(p, count, requests)?;
        if found == (None, true) {
            progress(p)?;
            found = find_complete(p, count, requests)?;
        }
        if found == (None, true) {
            note_miss(p)?;
            return Ok(((false, None), Ok(())));
        }
        let (index, outcome) = finish_any(p, found.0, requests, status)?;
        Ok(((true, index), outcome))
    }
}

/// `MPI_Waitsome` if `wait`, otherwise `MPI_Testsome`. Stores the indices of the completed requests, and returns their
/// number; `None` if no request is active.
///
/// # Safety
/// See VARIABLES. `indices` must have `count` entries.
pub unsafe fn complete_some(
    p: &Process, wait: bool, count: usize, requests: *mut usize, indices: *mut i32,
    statuses: *mut Status,
) -> CompletedCall<Option<usize>> {
    // SAFETY: VARIABLES.
    unsafe {
        let mut found = find_complete(p, count, requests)?;
        if found == (None, true) && !wait {
            progress(p)?;
        } else if found == (None, true) {
            let awaited = || awaited_by_any(p, count, requests);
            wait_any_of(p, ("MPI_Waitsome", 0), awaited, || {
                found = find_complete_or_gone(p, count, requests)?;
                Ok(found.0.is_some() || !found.1)
            })?;
        }
        if !found.1 {
            return Ok((None, Ok(())));
        }
        let mut done = 0;
        let mut first = None;
        for index in 0..count {
            let named = resolve(p, *requests.add(index))?;
            if matches!(named, NamedRequest::Inactive) || !check_complete(p, &named)? {
                continue;
            }
            first = first.or(collect_into(p, requests.add(index), status_at(statuses, done))?);
            *indices.add(done) = index as i32;
            done += 1;
        }
        if done == 0 {
            note_miss(p)?;
        }
        Ok((Some(done), join_errors(first, !statuses.is_null())))
    }
}
