//! Completion of operations (MPI-5.0 section 3.7) and the status object.
//!
//! **ARGUMENTS.** What pointers among the arguments point to: see the module above.
#![allow(unsafe_code)]

use super::store;
use core::ffi::c_int;
use fastpath_mpi::common::consts::*;
use fastpath_mpi::common::lock;
use fastpath_mpi::common::places;
use fastpath_mpi::common::status::Status;
use fastpath_mpi::objects::hot::{self, FURTHER, INSIDE, OPEN};
use fastpath_mpi::p2p::request::{self, try_arrival, try_collect};
use fastpath_mpi::process::errhandler::{Scope, raise};
use fastpath_mpi::{Error, Process, Result, process};

/// Looks for a message, at most, before a wait for a request of a further worker goes the long way: a few microseconds.
const POLLS: u32 = 512;

fn checked(count: c_int) -> Result<usize> {
    usize::try_from(count)
        .map_err(|_| Error::new(MPI_ERR_COUNT, format!("the count {count} is negative")))
}

fn present<T>(pointer: *mut T, what: &str) -> Result<*mut T> {
    match pointer.is_null() {
        true => Err(Error::new(MPI_ERR_ARG, format!("the pointer for {what} is null"))),
        false => Ok(pointer),
    }
}

/// # Safety
/// The standard's.
#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn wait(request: *mut usize, status: *mut Status) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe {
        // A send that was done at once, which needs no lock at any level, or whatever else has ended.
        let done = !request.is_null() && request::collect_done::<false>(request, status);
        if done || try_collect::<false, OPEN>(request, status) {
            return MPI_SUCCESS;
        }
        wait_posted(request, status)
    }
}

/// What has not ended yet: a receive whose message is there is completed; for the rest as many arguments, so that it is
/// a jump and not a call.
#[cold]
#[inline(never)]
unsafe fn wait_posted(request: *mut usize, status: *mut Status) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe {
        if try_arrival::<OPEN>(request, status) {
            return MPI_SUCCESS;
        }
        wait_slow(request, status)
    }
}

/// The short ways inside the lock of `MPI_THREAD_MULTIPLE`.
#[cold]
#[inline(never)]
unsafe fn wait_inside(request: *mut usize, status: *mut Status) -> bool {
    // SAFETY: ARGUMENTS.
    unsafe {
        !request.is_null()
            && match places::of_request(*request) {
                0 => lock::with_lock(|| {
                    try_collect::<false, INSIDE>(request, status)
                        || try_arrival::<INSIDE>(request, status)
                }),
                place => places::with(place, || {
                    let worker = places::further_worker(place);
                    request::await_of::<false>(worker, request, status, POLLS)
                }),
            }
    }
}

/// What has not ended yet, or not without fault.
#[cold]
#[inline(never)]
unsafe fn wait_slow(request: *mut usize, status: *mut Status) -> c_int {
    // SAFETY: ARGUMENTS.
    if unsafe { wait_inside(request, status) } {
        return MPI_SUCCESS;
    }
    // SAFETY: ARGUMENTS.
    let result = process::enter("MPI_Wait", false)
        .and_then(|p| unsafe { request::wait(&p, present(request, "the request")?, status) });
    match result {
        Ok(()) => MPI_SUCCESS,
        Err(error) => raise(None, Scope::None, "MPI_Wait", error),
    }
}

/// # Safety
/// The standard's.
#[inline]
pub unsafe fn test(request: *mut usize, flag: *mut c_int, status: *mut Status) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        if !flag.is_null() && try_collect::<false, OPEN>(request, status) {
            *flag = 1;
            return Ok(());
        }
        let hidden = hot::is_hidden() && !flag.is_null() && !request.is_null();
        if hidden && test_inside(request, status) {
            *flag = 1;
            return Ok(());
        }
        let p = process::enter("MPI_Test", false)?;
        let (done, outcome) = request::test(&p, present(request, "the request")?, status)?;
        store(flag, done as c_int)?;
        outcome
    }
}

/// The short ways inside the lock of the request's worker, and of a send that was done at once.
///
/// # Safety
/// As [`test`]; `request` is a variable.
#[cold]
#[inline(never)]
unsafe fn test_inside(request: *mut usize, status: *mut Status) -> bool {
    // SAFETY: `request` is a variable and `status` null or a status, by this function's contract.
    unsafe {
        if request::collect_done::<false>(request, status) {
            return true;
        }
        match places::of_request(*request) {
            0 => lock::with_lock(|| {
                try_collect::<false, INSIDE>(request, status)
                    || try_arrival::<INSIDE>(request, status)
            }),
            place => places::with(place, || {
                try_collect::<false, FURTHER>(request, status)
                    || try_arrival::<FURTHER>(request, status)
            }),
        }
    }
}

/// # Safety
/// The standard's.
pub unsafe fn waitall(count: c_int, requests: *mut usize, statuses: *mut Status) -> Result<()> {
    let mut first = None;
    // SAFETY: ARGUMENTS.
    unsafe {
        if count < 0 || (count > 0 && requests.is_null()) {
            present(requests, "the requests").and_then(|_| checked(count))?;
        }
        let count = count.max(0) as usize;
        let mut index = 0;
        while index < count {
            let status = request::status_at(statuses, index);
            match try_collect::<true, OPEN>(requests.add(index), status) {
                true => index += 1,
                false => {
                    let failed;
                    (index, failed) = waitall_slow(index, count, requests, statuses)?;
                    first = first.or(failed);
                }
            }
        }
        if count == 0 {
            process::enter("MPI_Waitall", false)?;
        }
    }
    request::join_errors(first, !statuses.is_null())
}

/// Completes requests of one further worker, and sends that were done at once, from `index` on, with its lock taken
/// once; the index of the first one that it leaves.
///
/// # Safety
/// As [`waitall`].
unsafe fn collect_further(
    mut index: usize, count: usize, requests: *mut usize, statuses: *mut Status,
) -> usize {
    // SAFETY: ARGUMENTS.
    unsafe {
        let entry = |index| (requests.add(index), request::status_at(statuses, index));
        while index < count {
            let (request, status) = entry(index);
            if !request::collect_done::<true>(request, status) {
                break;
            }
            index += 1;
        }
        if index == count {
            return index;
        }
        let place = places::of_request(*requests.add(index));
        if place == 0 {
            return index;
        }
        let worker = places::further_worker(place);
        places::with(place, || {
            while index < count {
                let (request, status) = entry(index);
                // A send that was done at once has the handle of one of the first worker.
                let is_its_own = places::of_request(*request) == place;
                let collected = match is_its_own {
                    true => request::await_of::<true>(worker, request, status, POLLS),
                    false => request::collect_done::<true>(request, status),
                };
                if !collected {
                    break;
                }
                index += 1;
            }
        });
    }
    index
}

/// Waits for one of several that has not ended yet, or not without fault; at `MPI_THREAD_MULTIPLE` for all from there
/// on, with the lock taken once. Returns the next index and an error.
#[cold]
#[inline(never)]
unsafe fn waitall_slow(
    mut index: usize, count: usize, requests: *mut usize, statuses: *mut Status,
) -> Result<(usize, Option<Error>)> {
    let ended = match hot::is_hidden() {
        // SAFETY: ARGUMENTS.
        true => unsafe { collect_further(index, count, requests, statuses) },
        false => index,
    };
    if ended != index {
        return Ok((ended, None));
    }
    let p = process::enter("MPI_Waitall", false)?;
    let end = if lock::is_enabled() { count } else { index + 1 };
    let (mut first, begun) = (None, index);
    while index < end {
        // SAFETY: ARGUMENTS; the lock is taken.
        unsafe {
            let (request, status) = (requests.add(index), request::status_at(statuses, index));
            let is_first = places::of_request(*request) == 0;
            if !is_first && index != begun {
                // Of a further worker: the short way, once more.
                return Ok((index, first));
            }
            let collected =
                is_first && lock::is_enabled() && try_collect::<true, INSIDE>(request, status);
            if !collected {
                let failed = request::wait_into(&p, "MPI_Waitall", request, status)?;
                first = first.or(failed);
            }
        }
        index += 1;
    }
    Ok((index, first))
}

/// # Safety
/// The standard's.
pub unsafe fn testall(
    p: &Process, count: c_int, requests: *mut usize, flag: *mut c_int, statuses: *mut Status,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        let (done, outcome) = request::test_all(p, checked(count)?, requests, statuses)?;
        store(flag, done as c_int)?;
        outcome
    }
}

/// # Safety
/// The standard's.
pub unsafe fn waitany(
    p: &Process, count: c_int, requests: *mut usize, indx: *mut c_int, status: *mut Status,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        let (found, outcome) = request::wait_any(p, checked(count)?, requests, status)?;
        store(indx, found.map_or(MPI_UNDEFINED, |index| index as c_int))?;
        outcome
    }
}

/// # Safety
/// The standard's.
pub unsafe fn testany(
    p: &Process, count: c_int, requests: *mut usize, indx: *mut c_int, flag: *mut c_int,
    status: *mut Status,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        let ((done, found), outcome) = request::test_any(p, checked(count)?, requests, status)?;
        store(indx, found.map_or(MPI_UNDEFINED, |index| index as c_int))?;
        store(flag, done as c_int)?;
        outcome
    }
}

/// # Safety
/// The standard's.
pub unsafe fn waitsome(
    p: &Process, incount: c_int, requests: *mut usize, outcount: *mut c_int, indices: *mut c_int,
    statuses: *mut Status,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        let (done, outcome) =
            request::complete_some(p, true, checked(incount)?, requests, indices, statuses)?;
        store(outcount, done.map_or(MPI_UNDEFINED, |count| count as c_int))?;
        outcome
    }
}

/// # Safety
/// The standard's.
pub unsafe fn testsome(
    p: &Process, incount: c_int, requests: *mut usize, outcount: *mut c_int, indices: *mut c_int,
    statuses: *mut Status,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        let (done, outcome) =
            request::complete_some(p, false, checked(incount)?, requests, indices, statuses)?;
        store(outcount, done.map_or(MPI_UNDEFINED, |count| count as c_int))?;
        outcome
    }
}

/// # Safety
/// The standard's.
pub unsafe fn request_free(p: &Process, request: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { request::free(p, present(request, "the request")?) }
}

/// # Safety
/// The standard's.
pub unsafe fn request_get_status(
    p: &Process, request: usize, flag: *mut c_int, status: *mut Status,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        let done = request::get_status(p, request, status)?;
        store(flag, done as c_int)
    }
}

/// # Safety
/// The standard's.
pub unsafe fn request_get_status_all(
    p: &Process, count: c_int, requests: *const usize, flag: *mut c_int, statuses: *mut Status,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        let count = checked(count)?;
        let mut all = true;
        for index in 0..count {
            all &= request::get_status(p, *requests.add(index), core::ptr::null_mut())?;
        }
        if all && !statuses.is_null() {
            for index in 0..count {
                request::get_status(p, *requests.add(index), statuses.add(index))?;
            }
        }
        store(flag, all as c_int)
    }
}

/// # Safety
/// The standard's.
pub unsafe fn request_get_status_any(
    p: &Process, count: c_int, requests: *const usize, indx: *mut c_int, flag: *mut c_int,
    status: *mut Status,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        let mut active = false;
        for index in 0..checked(count)? {
            let request = *requests.add(index);
            if !request::is_active(p, request)? {
                continue;
            }
            active = true;
            if request::get_status(p, request, status)? {
                store(indx, index as c_int)?;
                return store(flag, 1);
            }
        }
        if !active {
            request::write_empty_status(status);
        }
        store(indx, MPI_UNDEFINED)?;
        store(flag, !active as c_int)
    }
}

/// # Safety
/// The standard's.
pub unsafe fn request_get_status_some(
    p: &Process, incount: c_int, requests: *const usize, outcount: *mut c_int, indices: *mut c_int,
    statuses: *mut Status,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        let (mut active, mut done) = (false, 0);
        for index in 0..checked(incount)? {
            let request = *requests.add(index);
            if !request::is_active(p, request)? {
                continue;
            }
            active = true;
            let status = if statuses.is_null() { statuses } else { statuses.add(done) };
            if request::get_status(p, request, status)? {
                *indices.add(done) = index as c_int;
                done += 1;
            }
        }
        store(outcount, if active { done as c_int } else { MPI_UNDEFINED })
    }
}

/// # Safety
/// The standard's.
pub unsafe fn cancel(p: &Process, request: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    request::cancel(p, unsafe { *present(request, "the request")? })
}

/// # Safety
/// The standard's.
pub unsafe fn start(p: &Process, request: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    request::start(p, unsafe { *present(request, "the request")? })
}

/// # Safety
/// The standard's.
pub unsafe fn startall(p: &Process, count: c_int, requests: *mut usize) -> Result<()> {
    for index in 0..checked(count)? {
        // SAFETY: ARGUMENTS.
        request::start(p, unsafe { *requests.add(index) })?;
    }
    Ok(())
}

/// # Safety
/// The standard's.
pub unsafe fn test_cancelled(p: &Process, status: *const Status) -> Result<c_int> {
    let _ = p;
    // SAFETY: ARGUMENTS.
    unsafe { Ok((*present(status.cast_mut(), "the status")?).is_cancelled() as c_int) }
}

/// # Safety
/// The standard's.
pub unsafe fn status_set_cancelled(p: &Process, status: *mut Status, flag: c_int) -> Result<()> {
    let _ = p;
    // SAFETY: ARGUMENTS.
    unsafe { (*present(status, "the status")?).set_cancelled(flag != 0) };
    Ok(())
}

/// # Safety
/// The standard's.
pub unsafe fn status_set_source(p: &Process, status: *mut Status, source: c_int) -> Result<()> {
    let _ = p;
    // SAFETY: ARGUMENTS.
    unsafe { (*present(status, "the status")?).source = source };
    Ok(())
}

/// # Safety
/// The standard's.
pub unsafe fn status_get_source(p: &Process, status: *const Status) -> Result<c_int> {
    let _ = p;
    // SAFETY: ARGUMENTS.
    unsafe { Ok((*present(status.cast_mut(), "the status")?).source) }
}

/// # Safety
/// The standard's.
pub unsafe fn status_set_tag(p: &Process, status: *mut Status, tag: c_int) -> Result<()> {
    let _ = p;
    // SAFETY: ARGUMENTS.
    unsafe { (*present(status, "the status")?).tag = tag };
    Ok(())
}

/// # Safety
/// The standard's.
pub unsafe fn status_get_tag(p: &Process, status: *const Status) -> Result<c_int> {
    let _ = p;
    // SAFETY: ARGUMENTS.
    unsafe { Ok((*present(status.cast_mut(), "the status")?).tag) }
}

/// # Safety
/// The standard's.
pub unsafe fn status_set_error(p: &Process, status: *mut Status, error: c_int) -> Result<()> {
    let _ = p;
    // SAFETY: ARGUMENTS.
    unsafe { (*present(status, "the status")?).error = error };
    Ok(())
}

/// # Safety
/// The standard's.
pub unsafe fn status_get_error(p: &Process, status: *const Status) -> Result<c_int> {
    let _ = p;
    // SAFETY: ARGUMENTS.
    unsafe { Ok((*present(status.cast_mut(), "the status")?).error) }
}
