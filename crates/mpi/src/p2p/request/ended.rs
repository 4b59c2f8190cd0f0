//! Requests that are given up: `MPI_Request_free`, `MPI_Cancel`.
//!
//! **VARIABLES.** As in `request`: `request` is a variable.
#![allow(unsafe_code)]

use super::{
    Extra, Named, find, free_operation, free_plain, places_of, pool_of, release_unused, resolve,
    worker_of,
};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::common::places::within_all;
use crate::p2p::slow;
use crate::process::Process;
use fastpath_protocol::State;
use fastpath_protocol::request::RequestKind;

/// `MPI_Request_free`: an active request goes on and frees itself.
///
/// # Safety
/// `request` is a variable.
pub unsafe fn free(p: &Process, request: *mut usize) -> Result {
    // SAFETY: VARIABLES.
    let handle = unsafe { *request };
    if handle == MPI_REQUEST_NULL {
        return Err(Error::new(MPI_ERR_REQUEST, "the request is MPI_REQUEST_NULL"));
    }
    let _within = within_all(places_of(p, handle));
    let id = find(p, handle)?;
    // SAFETY: INSIDE (`workers`).
    let found = unsafe { (*pool_of(p, id)?).get_mut(id) };
    if found.kind == RequestKind::Foreign {
        let index = found.user;
        let active = match p.extras.slots_mut().get_mut(index) {
            Some(Some(Extra::Persistent(persistent))) => persistent.active.take(),
            _ => None,
        };
        if let Some(mut inner) = active {
            // SAFETY: a local variable.
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
    } else if found.state == State::Complete {
        slow::settle(p, id);
        free_plain(p, id)?;
    } else {
        found.detached = true;
    }
    // SAFETY: VARIABLES.
    unsafe { *request = MPI_REQUEST_NULL };
    Ok(())
}

/// `MPI_Cancel`: what nothing has matched is taken back. A send that left without a request goes on.
pub fn cancel(p: &Process, handle: usize) -> Result {
    if handle == MPI_REQUEST_NULL {
        return Err(Error::new(MPI_ERR_REQUEST, "the request is MPI_REQUEST_NULL"));
    }
    let _within = within_all(places_of(p, handle));
    match resolve(p, handle)? {
        Named::Inactive => Err(Error::new(MPI_ERR_REQUEST, "the persistent request is not active")),
        Named::Plain(id) => {
            // SAFETY: the worker lives while MPI runs.
            let worker = unsafe { &mut *worker_of(p, id)? };
            if !worker.cancel_recv(id) {
                slow::take_over(worker, id);
                worker.cancel_send(id);
            }
            Ok(())
        }
        Named::Operation(index) => {
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
