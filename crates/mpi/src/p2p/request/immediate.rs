//! Immediate path of completion.
//!
//! **VARIABLES.** `request` is a variable, and `status` is null or a status. Each function here requires this of its
//! caller. [`try_collect`] alone also accepts a null `request`.
#![allow(unsafe_code)]

use super::{DONE_HANDLE, empty_status, status_at, status_of};
use crate::common::consts::*;
use crate::common::status::Status;
use crate::objects::hot;
use crate::p2p::{fill_status, slow};
use fastpath_protocol::matching::ANY_PEER;
use fastpath_protocol::{Request, Worker};

/// Largest number of polls of [`spin_arrival`]. It is small, because other requests may need progress, which the
/// general wait makes.
const POLLS: u32 = 512;

/// Completes a send or receive that has ended without fault, using only the worker of the hot tables. Otherwise returns
/// false, without effect. For `WAY` see `hot::OPEN`.
///
/// # Safety
/// `request` must be null or a variable, and `status` null or a status.
#[inline]
pub unsafe fn try_collect<const WAY: u8>(request: *mut usize, status: *mut Status) -> bool {
    // SAFETY: VARIABLES; a worker that is not null has only the calling thread inside it.
    unsafe {
        !request.is_null()
            && match hot::worker_of::<WAY>().as_mut() {
                Some(worker) => collect_ended::<false>(worker, request, status),
                None => false,
            }
    }
}

/// Completes requests of an array from `index` on like [`try_collect`], up to the first that it declines. Returns that
/// index, or `count`. Sets the error of each status.
///
/// # Safety
/// `requests` must have `count` variables, and `statuses` must be null or have `count` statuses.
#[inline]
pub unsafe fn try_collect_run<const WAY: u8>(
    mut index: usize, count: usize, requests: *mut usize, statuses: *mut Status,
) -> usize {
    // SAFETY: the index is below `count`; a worker that is not null has only the calling thread inside it.
    unsafe {
        let Some(worker) = hot::worker_of::<WAY>().as_mut() else {
            return index;
        };
        while index < count
            && collect_ended::<true>(worker, requests.add(index), status_at(statuses, index))
        {
            index += 1;
        }
    }
    index
}

/// Completes a request that has ended without fault. Otherwise returns false. With `ENTRY`, the status is an entry of
/// an array, and its error is set too. Safety: see VARIABLES.
#[inline(always)] // `fastpath bench instructions` counts MPI_Wait_isend
unsafe fn collect_ended<const ENTRY: bool>(
    worker: &mut Worker, request: *mut usize, status: *mut Status,
) -> bool {
    // SAFETY: VARIABLES.
    unsafe {
        if collect_done::<ENTRY>(request, status) {
            return true;
        }
        let Some(found) = worker.requests.find_ended_well(*request as u64) else {
            return false;
        };
        if !status.is_null() {
            let error = if ENTRY { MPI_SUCCESS } else { (*status).error };
            *status = status_of(&*found);
            (*status).error = error;
        }
        worker.requests.free_at(found);
        *request = MPI_REQUEST_NULL;
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

/// Takes the messages that have arrived from the named source of a posted receive, up to the message of that receive.
/// Completes the receive if its message was found in a slot; returns false in any other case.
///
/// # Safety
/// See [`try_collect`].
#[inline(always)] // `fastpath bench instructions` counts MPI_Irecv_Wait_posted
pub unsafe fn try_arrival<const WAY: u8>(request: *mut usize, status: *mut Status) -> bool {
    // SAFETY: VARIABLES; if the receive is posted, MPI runs and only the calling thread is inside the worker.
    unsafe {
        match find_posted::<WAY>(request) {
            Some((worker, found)) if (*worker).drain_until(found) => {
                collect_arrived::<false>(worker, found, request, status);
                true
            }
            _ => false,
        }
    }
}

/// Polls the named source of a posted receive for a while. Completes the receive if its message arrives in a slot;
/// returns false in any other case. With `ENTRY`, the status is an entry of an array, and its error is set too. With
/// `takes_more`, further messages of the source that have arrived are taken too.
///
/// # Safety
/// See [`try_collect`].
#[inline(always)] // few instructions follow the arrival: `fastpath bench latency`
pub unsafe fn spin_arrival<const ENTRY: bool, const WAY: u8>(
    request: *mut usize, status: *mut Status, takes_more: bool,
) -> bool {
    // SAFETY: VARIABLES; if the receive is posted, MPI runs and only the calling thread is inside the worker.
    unsafe {
        let Some((worker, found)) = find_posted::<WAY>(request) else {
            return false;
        };
        let peer = (*found).peer;
        if peer == ANY_PEER || !(*worker).wait.directed || (*worker).is_crowded() {
            return false;
        }
        let endpoint = (*worker).endpoint_address(peer);
        while (*worker).is_idle() && slow::poll_source::<WAY>(worker, endpoint, peer, POLLS) {
            if (*worker).drain_until(found) {
                collect_arrived::<ENTRY>(worker, found, request, status);
                if takes_more {
                    (*worker).drain_round(peer);
                }
                return true;
            }
            if (*endpoint).has_arrival() {
                return false; // an arrival for the general path
            }
        }
        false
    }
}

/// Returns the posted receive of a request's handle, and its worker.
///
/// # Safety
/// See [`try_collect`].
#[inline(always)] // see `try_arrival`
unsafe fn find_posted<const WAY: u8>(request: *mut usize) -> Option<(*mut Worker, *mut Request)> {
    if request.is_null() {
        return None;
    }
    let worker = hot::worker_of::<WAY>();
    if worker.is_null() {
        return None;
    }
    // SAFETY: VARIABLES; the worker is not null, so MPI runs and only the calling thread is inside it.
    let found = unsafe { (*worker).requests.find_posted_recv(*request as u64) }?;
    Some((worker, found))
}

/// Reads and frees a receive whose message was taken from a slot, so that it has no fault.
///
/// # Safety
/// See VARIABLES; `request` holds the handle of `found`, a request of `worker`.
#[inline(always)] // see `try_arrival`
unsafe fn collect_arrived<const ENTRY: bool>(
    worker: *mut Worker, found: *mut Request, request: *mut usize, status: *mut Status,
) {
    // SAFETY: VARIABLES.
    unsafe {
        fill_status(status, (*found).source, (*found).received_tag, (*found).received as i64);
        if ENTRY && let Some(status) = status.as_mut() {
            status.error = MPI_SUCCESS;
        }
        (*worker).requests.free_at(found);
        *request = MPI_REQUEST_NULL;
    }
}
