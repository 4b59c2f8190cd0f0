//! Completion of operations (MPI 5.0, section 3.7), and the status object.
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::store;
use core::ffi::c_int;
use fastpath_mpi::common::consts::*;
use fastpath_mpi::common::lock;
use fastpath_mpi::common::status::Status;
use fastpath_mpi::objects::hot::{self, INSIDE, OPEN};
use fastpath_mpi::p2p::request::{self, spin_arrival, try_arrival, try_collect, try_collect_run};
use fastpath_mpi::process::errhandler::{Scope, raise};
use fastpath_mpi::{Error, Process, Result, process};

fn checked(count: c_int) -> Result<usize> {
    usize::try_from(count)
        .map_err(|_| Error::new(MPI_ERR_COUNT, format!("the count {count} is negative")))
}

fn present<T>(pointer: *mut T, what: &str) -> Result<*mut T> {
    match pointer.is_null() {
        true => Err(Error::new(
            MPI_ERR_ARG,
            format!("the argument for {what} is NULL: pass the address of a variable or array"),
        )),
        false => Ok(pointer),
    }
}

#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn wait(request: *mut usize, status: *mut Status) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe {
        // `collect_done` needs no lock at any thread level: it collects sends that completed at once. `try_collect`
        // collects other requests that have completed meanwhile.
        let done = !request.is_null() && request::collect_done::<false>(request, status);
        if done || try_collect::<OPEN>(request, status) {
            return MPI_SUCCESS;
        }
        wait_posted(request, status)
    }
}

/// Waits for a request that has not completed; completes a receive whose message has arrived. The arguments equal those
/// of `wait`, so `wait` can end in a jump to this function.
#[cold]
#[inline(never)]
unsafe fn wait_posted(request: *mut usize, status: *mut Status) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe {
        if try_arrival::<OPEN>(request, status)
            || spin_arrival::<false, OPEN>(request, status, false)
        {
            return MPI_SUCCESS;
        }
        wait_slow(request, status)
    }
}

/// Tries the immediate path inside the lock, at `MPI_THREAD_MULTIPLE`. With `WAITS`, also waits briefly for a message.
#[cold]
#[inline(never)]
unsafe fn collect_inside<const WAITS: bool>(request: *mut usize, status: *mut Status) -> bool {
    // SAFETY: ARGUMENTS.
    unsafe {
        !request.is_null()
            && lock::with_lock(|| {
                try_collect::<INSIDE>(request, status)
                    || try_arrival::<INSIDE>(request, status)
                    || (WAITS && spin_arrival::<false, INSIDE>(request, status, false))
            })
    }
}

/// Waits for a request that has not completed or has failed.
#[cold]
#[inline(never)]
unsafe fn wait_slow(request: *mut usize, status: *mut Status) -> c_int {
    // SAFETY: ARGUMENTS.
    if unsafe { collect_inside::<true>(request, status) } {
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

#[inline]
pub unsafe fn test(request: *mut usize, flag: *mut c_int, status: *mut Status) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        if !flag.is_null() && try_collect::<OPEN>(request, status) {
            *flag = 1;
            return Ok(());
        }
        let hidden = hot::is_hidden() && !flag.is_null() && !request.is_null();
        let done = || request::collect_done::<false>(request, status);
        if hidden && (done() || collect_inside::<false>(request, status)) {
            *flag = 1;
            return Ok(());
        }
        let p = process::enter("MPI_Test", false)?;
        let (done, outcome) = request::test(&p, present(request, "the request")?, status)?;
        store(flag, done as c_int)?;
        outcome
    }
}

pub unsafe fn waitall(count: c_int, requests: *mut usize, statuses: *mut Status) -> Result<()> {
    let mut first = None;
    // SAFETY: ARGUMENTS.
    unsafe {
        if count < 0 || (count > 0 && requests.is_null()) {
            present(requests, "the requests").and_then(|_| checked(count))?;
        }
        let count = count.max(0) as usize;
        let mut index = try_collect_run::<OPEN>(0, count, requests, statuses);
        while index < count {
            if spin_entry::<OPEN>(index, count, requests, statuses) {
                index += 1;
            } else {
                let failed;
                (index, failed) = waitall_slow(index, count, requests, statuses)?;
                first = first.or(failed);
            }
            index = try_collect_run::<OPEN>(index, count, requests, statuses);
        }
        if count == 0 {
            process::enter("MPI_Waitall", false)?;
        }
    }
    request::join_errors(first, !statuses.is_null())
}

/// Waits briefly for the receive at `index`, and takes the messages for further entries that have arrived from the same
/// source. Returns whether the receive is complete.
#[cold]
#[inline(never)]
unsafe fn spin_entry<const WAY: u8>(
    index: usize, count: usize, requests: *mut usize, statuses: *mut Status,
) -> bool {
    // SAFETY: ARGUMENTS; `index` is below `count`.
    unsafe {
        let status = request::status_at(statuses, index);
        spin_arrival::<true, WAY>(requests.add(index), status, index + 1 < count)
    }
}

/// Completes requests from `index` on, without the lock, as long as they are sends that completed when they were
/// started. Returns the index of the first other request.
unsafe fn collect_done_sends(
    mut index: usize, count: usize, requests: *mut usize, statuses: *mut Status,
) -> usize {
    // SAFETY: ARGUMENTS.
    let collect = |index| unsafe {
        request::collect_done::<true>(requests.add(index), request::status_at(statuses, index))
    };
    while index < count && collect(index) {
        index += 1;
    }
    index
}

/// Waits for the request at `index`, which has not completed or has failed. At `MPI_THREAD_MULTIPLE`, continues with
/// all further requests under one lock. Returns the next index, and an error.
#[cold]
#[inline(never)]
unsafe fn waitall_slow(
    mut index: usize, count: usize, requests: *mut usize, statuses: *mut Status,
) -> Result<(usize, Option<Error>)> {
    let ended = match hot::is_hidden() {
        // SAFETY: ARGUMENTS.
        true => unsafe { collect_done_sends(index, count, requests, statuses) },
        false => index,
    };
    if ended != index {
        return Ok((ended, None));
    }
    let p = process::enter("MPI_Waitall", false)?;
    let end = if lock::is_enabled() { count } else { index + 1 };
    let mut first = None;
    while index < end {
        // SAFETY: ARGUMENTS; this thread holds the lock.
        unsafe {
            if lock::is_enabled() {
                index = try_collect_run::<INSIDE>(index, end, requests, statuses);
                if index == end {
                    break;
                }
                if spin_entry::<INSIDE>(index, end, requests, statuses) {
                    index += 1;
                    continue;
                }
            }
            let (request, status) = (requests.add(index), request::status_at(statuses, index));
            let failed = request::wait_into(&p, "MPI_Waitall", request, status)?;
            first = first.or(failed);
        }
        index += 1;
    }
    Ok((index, first))
}

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

pub unsafe fn request_free(p: &Process, request: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { request::free(p, present(request, "the request")?) }
}

pub unsafe fn request_get_status(
    p: &Process, request: usize, flag: *mut c_int, status: *mut Status,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        let done = request::get_status(p, request, status)?;
        store(flag, done as c_int)
    }
}

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

pub unsafe fn cancel(p: &Process, request: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    request::cancel(p, unsafe { *present(request, "the request")? })
}

pub unsafe fn start(p: &Process, request: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    request::start(p, unsafe { *present(request, "the request")? })
}

pub unsafe fn startall(p: &Process, count: c_int, requests: *mut usize) -> Result<()> {
    for index in 0..checked(count)? {
        // SAFETY: ARGUMENTS.
        request::start(p, unsafe { *requests.add(index) })?;
    }
    Ok(())
}

pub unsafe fn test_cancelled(p: &Process, status: *const Status) -> Result<c_int> {
    let _ = p;
    // SAFETY: ARGUMENTS.
    unsafe { Ok((*present(status.cast_mut(), "the status")?).is_cancelled() as c_int) }
}

pub unsafe fn status_set_cancelled(p: &Process, status: *mut Status, flag: c_int) -> Result<()> {
    let _ = p;
    // SAFETY: ARGUMENTS.
    unsafe { (*present(status, "the status")?).set_cancelled(flag != 0) };
    Ok(())
}

pub unsafe fn status_set_source(p: &Process, status: *mut Status, source: c_int) -> Result<()> {
    let _ = p;
    // SAFETY: ARGUMENTS.
    unsafe { (*present(status, "the status")?).source = source };
    Ok(())
}

pub unsafe fn status_get_source(p: &Process, status: *const Status) -> Result<c_int> {
    let _ = p;
    // SAFETY: ARGUMENTS.
    unsafe { Ok((*present(status.cast_mut(), "the status")?).source) }
}

pub unsafe fn status_set_tag(p: &Process, status: *mut Status, tag: c_int) -> Result<()> {
    let _ = p;
    // SAFETY: ARGUMENTS.
    unsafe { (*present(status, "the status")?).tag = tag };
    Ok(())
}

pub unsafe fn status_get_tag(p: &Process, status: *const Status) -> Result<c_int> {
    let _ = p;
    // SAFETY: ARGUMENTS.
    unsafe { Ok((*present(status.cast_mut(), "the status")?).tag) }
}

pub unsafe fn status_set_error(p: &Process, status: *mut Status, error: c_int) -> Result<()> {
    let _ = p;
    // SAFETY: ARGUMENTS.
    unsafe { (*present(status, "the status")?).error = error };
    Ok(())
}

pub unsafe fn status_get_error(p: &Process, status: *const Status) -> Result<c_int> {
    let _ = p;
    // SAFETY: ARGUMENTS.
    unsafe { Ok((*present(status.cast_mut(), "the status")?).error) }
}
