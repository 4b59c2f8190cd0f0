//! Requests that the program frees or cancels: `MPI_Request_free`, `MPI_Cancel`.
//!
//! **VARIABLES.** `request` is a variable, as each function here requires. INSIDE is defined in `request.rs`.
#![allow(unsafe_code)]

use super::{Extra, NamedRequest, find, free_operation, free_plain, pool, release_unused, resolve};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::p2p::slow;
use crate::process::Process;
use fastpath_protocol::RequestState;
use fastpath_protocol::request::RequestKind;

/// `MPI_Request_free`: an active request continues and frees itself.
///
/// # Safety
/// See VARIABLES.
pub unsafe fn free(p: &Process, request: *mut usize) -> Result {
    // SAFETY: VARIABLES.
    let handle = unsafe { *request };
    if handle == MPI_REQUEST_NULL {
        return Err(Error::new(MPI_ERR_REQUEST, "the request is MPI_REQUEST_NULL"));
    }
    let id = find(p, handle)?;
    // SAFETY: INSIDE.
    let found = unsafe { (*pool(p)?).get_mut(id) };
    if found.kind == RequestKind::Foreign {
        let index = found.user;
        let active = match p.extras.slots_mut().get_mut(index) {
            Some(Some(Extra::Persistent(persistent))) => persistent.active.take(),
            _ => None,
        };
        if let Some(mut inner) = active {
            // SAFETY: `inner` is a local variable.
            unsafe { free(p, &mut inner)? };
        }
        if let Some(Some(Extra::Operation { poll: Some(operation), freed, .. })) =
            p.extras.slots_mut().get_mut(index)
        {
            operation.check_free()?;
            if operation.outlives_request() {
                *freed = true;
                // SAFETY: VARIABLES.
                unsafe { *request = MPI_REQUEST_NULL };
                return Ok(());
            }
        }
        free_operation(p, id, index)?;
        release_unused(p);
    } else if found.state == RequestState::Complete {
        let stored = slow::settle(p, id);
        free_plain(p, id)?;
        stored?;
    } else {
        found.detached = true;
    }
    // SAFETY: VARIABLES.
    unsafe { *request = MPI_REQUEST_NULL };
    Ok(())
}

/// `MPI_Cancel`: cancels an unmatched operation. A send that left without a request continues.
pub fn cancel(p: &Process, handle: usize) -> Result {
    if handle == MPI_REQUEST_NULL {
        return Err(Error::new(MPI_ERR_REQUEST, "the request is MPI_REQUEST_NULL"));
    }
    match resolve(p, handle)? {
        NamedRequest::Inactive => {
            Err(Error::new(MPI_ERR_REQUEST, "the persistent request is not active"))
        }
        NamedRequest::Plain(id) => {
            // SAFETY: the worker lives while MPI runs.
            let worker = unsafe { &mut *p.worker()? };
            if !worker.cancel_recv(id) {
                slow::take_over(worker, id);
                worker.cancel_send(id);
            }
            Ok(())
        }
        NamedRequest::Operation(index) => {
            let function = match p.extras.slots().get(index) {
                Some(Some(Extra::Operation { poll: Some(operation), .. })) => {
                    operation.cancel_function()
                }
                _ => None,
            };
            if let Some(function) = function {
                return function();
            }
            let taken = match p.extras.slots_mut().get_mut(index) {
                Some(Some(Extra::Operation { poll, .. })) => poll.take(),
                _ => None,
            };
            let Some(mut operation) = taken else {
                return Ok(());
            };
            let result = operation.cancel(p);
            if let Some(Some(Extra::Operation { poll, .. })) = p.extras.slots_mut().get_mut(index) {
                *poll = Some(operation);
            }
            result
        }
    }
}
