//! Calls that wait for or test several requests (MPI-5.0 section 3.7.5).
//!
//! **VARIABLES.** As in `request`: `requests` and the arrays beside it hold `count` entries; a status is null or there
//! for each.
#![allow(unsafe_code)]

use super::{
    Named, awaited_by, check_complete, collect, note_miss, places_of, places_of_all, progress,
    resolve, wait_any_of, wait_named, worker_of, write_empty_status, write_status,
};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::common::places::within_all;
use crate::common::status::Status;
use crate::p2p::slow::Senders;
use crate::process::Process;
use fastpath_bootstrap::segment::Awaited;
use fastpath_protocol::RequestId;
use fastpath_protocol::matching::ANY_PEER;

/// What a call hands out, and the error of the operations that have ended. The first is stored even where there is the
/// second: the requests are complete, and the program must learn which.
pub type CompletedCall<T> = Result<(T, Result)>;

/// Completes request `index` of an array and notes its error, for calls that complete several.
unsafe fn collect_into(
    p: &Process, request: *mut usize, status: *mut Status,
) -> Result<Option<Error>> {
    // SAFETY: VARIABLES.
    unsafe {
        let (result, error) = collect(p, request)?;
        if !status.is_null() {
            let code = error.as_ref().map_or(MPI_SUCCESS, Error::code);
            *status = result;
            (*status).error = code;
        }
        Ok(error)
    }
}

/// Where the status of entry `index` goes.
///
/// # Safety
/// `statuses` is null or an array with that entry.
pub unsafe fn status_at(statuses: *mut Status, index: usize) -> *mut Status {
    if statuses.is_null() {
        statuses
    } else {
        // SAFETY: the array has that entry, by this function's contract.
        unsafe { statuses.add(index) }
    }
}

/// The error of a call that completes several: the first one's text, in a class that points to the statuses.
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

/// Waits for one request of several; its status gets its error.
///
/// # Safety
/// `request` is a variable; `status` is null or a status.
pub unsafe fn wait_into(
    p: &Process, call: &'static str, request: *mut usize, status: *mut Status,
) -> Result<Option<Error>> {
    // SAFETY: VARIABLES.
    unsafe {
        let _within = within_all(places_of(p, *request));
        let named = resolve(p, *request)?;
        wait_named(p, call, &named)?;
        collect_into(p, request, status)
    }
}

/// `MPI_Testall`: all or none.
///
/// # Safety
/// As [`wait_into`], for each request.
pub unsafe fn test_all(
    p: &Process, count: usize, requests: *mut usize, statuses: *mut Status,
) -> CompletedCall<bool> {
    // SAFETY: VARIABLES.
    unsafe {
        let places = places_of_all(p, count, requests);
        let _within = within_all(places);
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
                progress(p, places)?;
            }
        }
    }
    note_miss(p)?;
    Ok((false, Ok(())))
}

/// One look over an array: the first completed active entry, and whether any is active.
unsafe fn find_complete(
    p: &Process, count: usize, requests: *const usize,
) -> Result<(Option<usize>, bool)> {
    let mut any_active = false;
    for index in 0..count {
        // SAFETY: VARIABLES.
        let named = resolve(p, unsafe { *requests.add(index) })?;
        if matches!(named, Named::Inactive) {
            continue;
        }
        any_active = true;
        if check_complete(p, &named)? {
            return Ok((Some(index), true));
        }
    }
    Ok((None, any_active))
}

/// As [`find_complete`], of a call that waits: receives end if no possible sender is left, and nothing else that is
/// active could proceed.
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
                Named::Inactive => {}
                Named::Plain(id) if has_no_sender(p, id)? => last = Some(id),
                _ => return Ok(found),
            }
        }
        if let Some(id) = last {
            (*worker_of(p, id)?).give_up_slow(id);
        }
        find_complete(p, count, requests)
    }
}

/// Whether no process is left that could send what a receive waits for.
fn has_no_sender(p: &Process, id: RequestId) -> Result<bool> {
    // SAFETY: the worker lives while MPI runs.
    let worker = unsafe { &*worker_of(p, id)? };
    let request = worker.requests.get(id);
    Ok(match request.peer {
        ANY_PEER => Senders::of_any(p, request.user).have_left(worker),
        peer => request.is_posted() && worker.peer_has_left(peer),
    })
}

/// Who could complete any of these requests.
///
/// # Safety
/// `requests` holds `count` requests.
unsafe fn awaited_by_any(p: &Process, count: usize, requests: *mut usize) -> Awaited {
    let mut awaited = Awaited::UNKNOWN;
    for index in 0..count {
        // SAFETY: VARIABLES.
        let Ok(named) = resolve(p, unsafe { *requests.add(index) }) else {
            return Awaited::UNKNOWN;
        };
        if matches!(named, Named::Inactive) {
            continue;
        }
        match awaited_by(p, &named) {
            Ok(one) if one.is_known() => awaited.add(one),
            _ => return Awaited::UNKNOWN,
        }
    }
    awaited
}

/// `MPI_Waitany`; `None` where no request is active.
///
/// # Safety
/// `requests` holds `count` requests; `status` is null or a status.
pub unsafe fn wait_any(
    p: &Process, count: usize, requests: *mut usize, status: *mut Status,
) -> CompletedCall<Option<usize>> {
    // SAFETY: VARIABLES.
    unsafe {
        let mut found = (None, true);
        let places = places_of_all(p, count, requests);
        let _within = within_all(places);
        let awaited = || awaited_by_any(p, count, requests);
        wait_any_of(p, places, ("MPI_Waitany", 0), awaited, || {
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

/// `MPI_Testany`: `(completed or nothing active, index)`.
///
/// # Safety
/// As [`wait_any`].
pub unsafe fn test_any(
    p: &Process, count: usize, requests: *mut usize, status: *mut Status,
) -> CompletedCall<(bool, Option<usize>)> {
    // SAFETY: VARIABLES.
    unsafe {
        let places = places_of_all(p, count, requests);
        let _within = within_all(places);
        let mut found = find_complete(p, count, requests)?;
        if found == (None, true) {
            progress(p, places)?;
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

/// `MPI_Waitsome` and `MPI_Testsome`: indices of all that have completed, at least one if `wait`;
/// `None` where no request is active.
///
/// # Safety
/// `requests`, `indices` hold `count` entries; `statuses` is null or as long.
pub unsafe fn complete_some(
    p: &Process, wait: bool, count: usize, requests: *mut usize, indices: *mut i32,
    statuses: *mut Status,
) -> CompletedCall<Option<usize>> {
    // SAFETY: VARIABLES.
    unsafe {
        let places = places_of_all(p, count, requests);
        let _within = within_all(places);
        let mut found = find_complete(p, count, requests)?;
        if found == (None, true) && !wait {
            progress(p, places)?;
        } else if found == (None, true) {
            let awaited = || awaited_by_any(p, count, requests);
            wait_any_of(p, places, ("MPI_Waitsome", 0), awaited, || {
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
            if matches!(named, Named::Inactive) || !check_complete(p, &named)? {
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
