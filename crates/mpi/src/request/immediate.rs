//! The immediate path of completion.
#![allow(unsafe_code)]

use super::{DONE_HANDLE, empty_status, status_of};
use crate::consts::*;
use crate::status::Status;

/// Completes a send or receive that has ended without fault, with nothing but the hot worker, or
/// does nothing and returns false. With `ENTRY` the status is one of several and gets its error.
///
/// # Safety
/// `request` is null or a variable; `status` is null or a status.
#[inline]
pub unsafe fn try_collect<const ENTRY: bool>(request: *mut usize, status: *mut Status) -> bool {
    let worker = crate::hot::worker();
    if worker.is_null() || request.is_null() {
        return false;
    }
    // SAFETY: the caller's; below MPI_THREAD_MULTIPLE this is the only thread inside MPI.
    unsafe {
        let handle = *request;
        if handle == DONE_HANDLE {
            if !status.is_null() {
                let error = if ENTRY { MPI_SUCCESS } else { (*status).error };
                *status = empty_status();
                (*status).error = error;
            }
            *request = MPI_REQUEST_NULL;
            return true;
        }
        let pool = &mut (*worker).requests;
        let Some(id) = pool.find(handle as u64) else {
            return false;
        };
        let found = pool.get(id);
        if !found.ended_well() {
            return false;
        }
        if !status.is_null() {
            let error = if ENTRY { MPI_SUCCESS } else { (*status).error };
            *status = status_of(found);
            (*status).error = error;
        }
        pool.free(id);
        *request = MPI_REQUEST_NULL;
    }
    true
}
