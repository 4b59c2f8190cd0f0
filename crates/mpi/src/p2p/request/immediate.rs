//! Immediate path of completion.
//!
//! **VARIABLES.** `request` is a variable, and `status` is null or a status. Each function here requires this of its
//! caller. [`try_collect`] alone also accepts a null `request`.
#![allow(unsafe_code)]

use super::{DONE_HANDLE, empty_status, status_of};
use crate::common::consts::*;
use crate::common::status::Status;
use crate::objects::hot;
use crate::p2p::fill_status;
use fastpath_protocol::Request;
use fastpath_protocol::request::RequestPool;

/// Completes a send or receive that has ended without fault, using only the worker of the hot tables. Otherwise returns
/// false, without effect. With `ENTRY`, the status is an entry of an array, and its error is set too. For `WAY` see
/// `hot::OPEN`.
///
/// # Safety
/// `request` must be null or a variable, and `status` null or a status.
#[inline]
pub unsafe fn try_collect<const ENTRY: bool, const WAY: u8>(
    request: *mut usize, status: *mut Status,
) -> bool {
    if request.is_null() {
        return false;
    }
    // SAFETY: VARIABLES.
    unsafe {
        let worker = hot::worker_of::<WAY>();
        if worker.is_null() {
            return false;
        }
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

/// Completes a send that was done immediately and has no request of the worker. Returns false for any other request.
///
/// # Safety
/// See VARIABLES.
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

/// Reads and frees a request that ended without fault. Safety: see VARIABLES; `request` holds the handle of `found`.
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

/// Takes the messages that have arrived from the named source of a posted receive, up to the message of that receive.
/// Completes the receive if its message was found in a slot; returns false in any other case.
///
/// # Safety
/// See [`try_collect`].
#[inline(always)] // `fastpath bench instructions` counts MPI_Irecv_Wait_posted
pub unsafe fn try_arrival<const WAY: u8>(request: *mut usize, status: *mut Status) -> bool {
    if request.is_null() {
        return false;
    }
    let worker = hot::worker_of::<WAY>();
    if worker.is_null() {
        return false;
    }
    // SAFETY: VARIABLES; the worker is not null, so MPI runs and only the calling thread is inside it.
    unsafe {
        let Some(found) = (*worker).requests.find_posted_recv(*request as u64) else {
            return false;
        };
        let over = (*worker).drain_until(found);
        if over {
            // The message was in a slot, so the receive has no fault.
            let bytes = (*found).received as i64;
            fill_status(status, (*found).source, (*found).received_tag, bytes);
            (*worker).requests.free_at(found);
            *request = MPI_REQUEST_NULL;
        }
        over
    }
}
