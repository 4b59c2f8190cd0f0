//! Which workers carry requests, by their handles.
//!
//! **INSIDE.** A pool is one of a worker that the caller is inside, which lives while MPI runs; a reference into it
//! ends before anything waits, calls out or goes to the worker another way. Each use of [`pool_at`] and [`pool_of`]
//! keeps this.
#![allow(unsafe_code)]

use super::Extra;
use crate::common::consts::MPI_REQUEST_NULL;
use crate::common::error::Result;
use crate::common::places;
use crate::process::Process;
use fastpath_protocol::request::{RequestKind, RequestPool};
use fastpath_protocol::{RequestId, Worker};

/// The requests of the worker at a place, which the caller is inside.
pub(super) fn pool_at(p: &Process, place: u32) -> Result<*mut RequestPool> {
    // SAFETY: the worker lives while MPI runs; no reference is made.
    Ok(unsafe { &raw mut (*p.worker_at(place)?).requests })
}

/// The requests among which that one is.
pub(super) fn pool_of(p: &Process, id: RequestId) -> Result<*mut RequestPool> {
    pool_at(p, places::of_request(id as usize))
}

/// The worker of a request, which the caller is inside.
pub(super) fn worker_of(p: &Process, id: RequestId) -> Result<*mut Worker> {
    p.worker_at(places::of_request(id as usize))
}

/// The places of the workers that carry what a handle names, as a mask; an invalid handle counts as the first worker's.
#[inline]
pub(super) fn places_of(p: &Process, handle: usize) -> u32 {
    if places::made() == 1 {
        return 1;
    }
    places_of_slow(p, handle)
}

#[cold]
fn places_of_slow(p: &Process, handle: usize) -> u32 {
    match places::of_request(handle) {
        _ if handle == MPI_REQUEST_NULL => 0,
        0 => places_of_foreign(p, handle),
        place => 1 << place,
    }
}

/// The same of a request of the first worker.
fn places_of_foreign(p: &Process, handle: usize) -> u32 {
    let index = || {
        // SAFETY: INSIDE.
        let pool = unsafe { &*pool_at(p, 0).ok()? };
        let request = pool.get(pool.find(handle as u64)?);
        (request.kind == RequestKind::Foreign).then_some(request.user)
    };
    let Some(index) = index() else { return 1 };
    match p.extras.slots().get(index) {
        Some(Some(Extra::Persistent(persistent))) => {
            persistent.active.map_or(0, |inner| places_of(p, inner))
        }
        Some(Some(Extra::Operation { poll: Some(operation), .. })) => operation.places(p),
        _ => 1,
    }
}

/// The places of the workers that carry any of some requests.
///
/// # Safety
/// `requests` holds `count` requests.
pub(super) unsafe fn places_of_all(p: &Process, count: usize, requests: *const usize) -> u32 {
    // SAFETY: `requests` holds `count` requests, by this function's contract, and `index` is less.
    let handles = (0..count).map(|index| unsafe { *requests.add(index) });
    let places = handles.fold(0, |places, handle| places | places_of(p, handle));
    // Where there is nothing to wait for, it is the first worker's.
    places.max(1)
}
