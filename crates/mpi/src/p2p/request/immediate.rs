//! The immediate path of completion.
//!
//! **VARIABLES.** As in `request`: `request` is a variable, `status` is null or a status. A given worker lives, and
//! only the calling thread is inside it.
#![allow(unsafe_code)]

use super::{DONE_HANDLE, empty_status, status_of};
use crate::common::consts::*;
use crate::common::status::Status;
use crate::p2p::fill_status;
use fastpath_protocol::request::RequestPool;
use fastpath_protocol::{Request, Worker};

/// Completes a send or receive that has ended without fault, with nothing but the hot worker, or does nothing and
/// returns false. With `ENTRY` the status is one of several and gets its error. `WAY` says which worker's it is
/// (`hot::OPEN`).
///
/// # Safety
/// `request` is null or a variable; `status` is null or a status.
#[inline]
pub unsafe fn try_collect<const ENTRY: bool, const WAY: u8>(
    request: *mut usize, status: *mut Status,
) -> bool {
    if request.is_null() {
        return false;
    }
    // SAFETY: VARIABLES.
    unsafe {
        let worker = crate::objects::hot::worker_of_request::<WAY>(*request);
        !worker.is_null() && collect_of::<ENTRY>(worker, request, status)
    }
}

/// As [`try_collect`], of a known worker, which the calling thread is inside.
///
/// # Safety
/// As [`try_collect`]; `request` is a variable, and the worker lives.
#[inline]
pub unsafe fn collect_of<const ENTRY: bool>(
    worker: *mut Worker, request: *mut usize, status: *mut Status,
) -> bool {
    // SAFETY: VARIABLES; this is the only thread inside the worker, as in `p2p::try_send`.
    unsafe {
        if collect_done::<ENTRY>(request, status) {
            return true;
        }
        let pool = &mut (*worker).requests;
        let Some(id) = pool.find(*request as u64) else {
            return false;
        };
        let found = pool.get(id);
        if !found.ended_well() {
            return false;
        }
        let found = pool.address(id);
        collect::<ENTRY>(pool, found, request, status);
    }
    true
}

/// As [`collect_of`], and looks so often, at most, for the message of a receive from a named source.
///
/// # Safety
/// As [`collect_of`].
#[inline]
pub unsafe fn await_of<const ENTRY: bool>(
    worker: *mut Worker, request: *mut usize, status: *mut Status, polls: u32,
) -> bool {
    // SAFETY: VARIABLES; the worker lives, and the calling thread is inside.
    unsafe {
        for _ in 0..polls {
            let Some(found) = (*worker).requests.find_posted_recv(*request as u64) else {
                break;
            };
            if (*worker).drain_until(found) {
                collect::<ENTRY>(&mut (*worker).requests, found, request, status);
                return true;
            }
            if (*worker).wait.is_wanted() || (*worker).is_crowded() {
                return false;
            }
        }
        collect_of::<ENTRY>(worker, request, status)
    }
}

/// Completes a send that was done at once, which is no worker's; false for any other request.
///
/// # Safety
/// `request` is a variable; `status` is null or a status.
#[inline]
pub unsafe fn collect_done<const ENTRY: bool>(request: *mut usize, status: *mut Status) -> bool {
    // SAFETY: VARIABLES.
    unsafe {
        if *request != DONE_HANDLE {
            return false;
        }
        if !status.is_null() {
            let error = if ENTRY { MPI_SUCCESS } else { (*status).error };
            *status = empty_status();
            (*status).error = error;
        }
        *request = MPI_REQUEST_NULL;
    }
    true
}

/// Reads and frees what has ended without fault.
///
/// # Safety
/// As [`try_collect`]; `request` names the request.
#[inline(always)] // `fastpath bench instructions` counts MPI_Wait_isend
unsafe fn collect<const ENTRY: bool>(
    pool: &mut RequestPool, found: *mut Request, request: *mut usize, status: *mut Status,
) {
    // SAFETY: VARIABLES.
    unsafe {
        if !status.is_null() {
            let error = if ENTRY { MPI_SUCCESS } else { (*status).error };
            *status = status_of(&*found);
            (*status).error = error;
        }
        pool.free_at(found);
        *request = MPI_REQUEST_NULL;
    }
}

/// As [`try_collect`], for a receive from a named source that was posted and whose message has arrived since, in a
/// slot: what stands before it is taken too. Anything else is left to the ordinary way.
///
/// # Safety
/// As [`try_collect`].
#[inline(always)] // `fastpath bench instructions` counts MPI_Irecv_Wait_posted
pub unsafe fn try_arrival<const WAY: u8>(request: *mut usize, status: *mut Status) -> bool {
    if request.is_null() {
        return false;
    }
    // SAFETY: VARIABLES.
    let worker = crate::objects::hot::worker_of_request::<WAY>(unsafe { *request });
    if worker.is_null() {
        return false;
    }
    // SAFETY: as in `try_collect`.
    unsafe {
        let Some(found) = (*worker).requests.find_posted_recv(*request as u64) else {
            return false;
        };
        let over = (*worker).drain_until(found);
        if over {
            // What goes the short way ends without fault.
            let bytes = (*found).received as i64;
            fill_status(status, (*found).source, (*found).received_tag, bytes);
            (*worker).requests.free_at(found);
            *request = MPI_REQUEST_NULL;
        }
        over
    }
}
