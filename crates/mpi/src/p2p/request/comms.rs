//! The communicators that requests need, and the requests that communicators need.
#![allow(unsafe_code)]

use super::{Extra, poll_operation};
use crate::common::error::Result;
use crate::common::places;
use crate::objects::comm::Comm;
use crate::p2p::slow;
use crate::process::Process;
use crate::process::errhandler;
use fastpath_protocol::Request;
use fastpath_protocol::matching::ANY_PEER;
use fastpath_protocol::request::RequestKind;
use std::collections::HashSet;

/// Gives back what no request needs any more. Walks all requests, but where there is nothing to give back.
pub fn release_unused(p: &Process) {
    if p.freed_comms.is_empty() {
        return;
    }
    let needed = comms_in_use(p);
    p.freed_comms.retain(|comm| {
        let keep = needed.contains(&comm.handle.get());
        if !keep {
            p.spare_buffers.put(&comm.buffer);
            errhandler::detach(p, comm.errhandler.get());
            p.contexts.release(comm.my_world_rank(), comm.context);
            if comm.place != 0 {
                places::keep_title(comm.handle.get(), None);
            }
            p.comms.reuse(comm.handle.get());
        }
        keep
    });
}

/// Handles of the communicators that requests were made on, and perhaps some that none was.
fn comms_in_use(p: &Process) -> HashSet<usize> {
    let of_extra = |extra: &Extra<Process>| match extra {
        Extra::Persistent(persistent) => Some(persistent.args.comm),
        Extra::Operation { poll, .. } => poll.as_ref().and_then(|operation| operation.comm()),
    };
    let slots = p.extras.slots();
    let mut comms: HashSet<usize> = slots.iter().flatten().filter_map(of_extra).collect();
    for (place, worker) in p.workers() {
        let _within = places::within(place);
        // SAFETY: the worker lives while MPI runs, and the caller is inside.
        let pool = unsafe { &(*worker).requests };
        let plain = pool.in_use().filter(|r| r.kind != RequestKind::Foreign);
        comms.extend(plain.map(|request| request.user));
    }
    comms
}

/// Waits until all communication of this process on a communicator is complete (`MPI_Comm_disconnect`, MPI-5.0 section
/// 11.10.4). Communication that only a rank which has left could complete is not waited for.
///
/// # Errors
/// MPI is not initialized.
pub(crate) fn complete_communication(p: &Process, comm: &Comm) -> Result {
    if !is_pending(p, comm) {
        return Ok(());
    }
    slow::wait_on_workers(p, (comm.handle.get(), 0), || {
        for index in pending_operations(p, comm) {
            poll_operation(p, index);
        }
        !is_pending(p, comm)
    })
}

/// Whether a communication on a communicator is under way that can still complete.
fn is_pending(p: &Process, comm: &Comm) -> bool {
    let handle = comm.handle.get();
    let members = comm.remote_group.as_ref().unwrap_or(&comm.group).world_ranks();
    p.workers().any(|(place, worker)| {
        let _within = places::within(place);
        // SAFETY: the worker lives while MPI runs, and the caller is inside.
        let worker = unsafe { &*worker };
        let can_end = |request: &Request| match request.peer {
            // `MPI_Comm_disconnect` fails where a member has left.
            ANY_PEER => !members.iter().any(|&rank| worker.peer_has_left(rank)),
            _ => !worker.is_hopeless(request),
        };
        let mut own = worker.requests.active().filter(|request| {
            request.user == handle && request.kind != RequestKind::Foreign
            // A dropped receive: no byte of it reaches the program.
            && !(request.detached && request.bytes == 0)
        });
        own.any(can_end)
    }) || !pending_operations(p, comm).is_empty()
}

/// The indices of the operations on a communicator that are under way.
fn pending_operations(p: &Process, comm: &Comm) -> Vec<usize> {
    let handle = comm.handle.get();
    let is_pending = |extra: &Option<Extra<Process>>| match extra {
        Some(Extra::Operation { poll: Some(operation), result: None, started, .. }) => {
            *started != Some(false) && operation.comm() == Some(handle) && !operation.is_over()
        }
        _ => false,
    };
    let slots = p.extras.slots();
    let places = slots.iter().enumerate();
    places.filter(|(_, extra)| is_pending(extra)).map(|(index, _)| index).collect()
}
