//! Communicators that requests need, and requests that communicators need.
#![allow(unsafe_code)]

use super::{Extra, NamedRequest, awaited_by, poll_operation};
use crate::common::error::Result;
use crate::objects::comm::Comm;
use crate::p2p::slow;
use crate::process::Process;
use crate::process::errhandler;
use fastpath_protocol::matching::ANY_PEER;
use fastpath_protocol::request::RequestKind;
use fastpath_segment::AwaitedRanks;
use std::collections::HashSet;

/// Frees the communicators that no request needs any more. Walks all requests, unless there is nothing to free.
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
            p.comms.reuse(comm.handle.get());
        }
        keep
    });
}

/// Returns the handles of all communicators that requests were made on. The set may also have a few other handles.
fn comms_in_use(p: &Process) -> HashSet<usize> {
    let of_extra = |extra: &Extra<Process>| match extra {
        Extra::Persistent(persistent) => Some(persistent.args.comm),
        Extra::Operation { poll, .. } => poll.as_ref().and_then(|operation| operation.comm()),
    };
    let slots = p.extras.slots();
    let mut comms: HashSet<usize> = slots.iter().flatten().filter_map(of_extra).collect();
    if let Ok(worker) = p.worker() {
        // SAFETY: the worker lives while MPI runs, and the caller is inside.
        let pool = unsafe { &(*worker).requests };
        let plain = pool.in_use().filter(|r| r.kind != RequestKind::Foreign);
        comms.extend(plain.map(|request| request.user));
    }
    comms
}

/// Waits until all communication of this process on a communicator is complete (`MPI_Comm_disconnect`, MPI-5.0 section
/// 11.10.4). Does not wait for communication that only a departed rank could complete. Fails if MPI is not initialized.
pub(crate) fn complete_communication(p: &Process, comm: &Comm) -> Result {
    let mut pending = find_awaited(p, comm);
    // Begin a new wait whenever the awaited ranks change, because this rank's page must name the current ones.
    while let Some(awaited) = pending {
        slow::wait_until(p, (comm.handle.get(), 0), awaited, false, |_| {
            for index in pending_operations(p, comm) {
                poll_operation(p, index);
            }
            pending = find_awaited(p, comm);
            pending != Some(awaited)
        })?;
    }
    Ok(())
}

/// Returns the ranks that could complete communication under way on a communicator; `None` if no rank needs to.
fn find_awaited(p: &Process, comm: &Comm) -> Option<AwaitedRanks> {
    let handle = comm.handle.get();
    let members = comm.peer_group().world_ranks();
    let mut pending: Option<AwaitedRanks> = None;
    let mut add = |awaited| pending = Some(pending.map_or(awaited, |other| other.or(awaited)));
    if let Ok(worker) = p.worker() {
        // SAFETY: the worker lives while MPI runs, and the caller is inside.
        let worker = unsafe { &*worker };
        let own = worker.requests.active().filter(|request| {
            request.user == handle && request.kind != RequestKind::Foreign
            // Dropped receives do not count, because no byte of them reaches the program.
            && !(request.detached && request.bytes == 0)
        });
        for request in own {
            match request.peer {
                // `MPI_Comm_disconnect` fails if a member has left, so it does not wait for a receive from any source.
                ANY_PEER if members.iter().any(|&rank| worker.peer_has_left(rank)) => {}
                ANY_PEER => add(AwaitedRanks::of(members)),
                _ if worker.is_hopeless(request) => {}
                peer => add(AwaitedRanks::of(&[peer])),
            }
        }
    }
    for index in pending_operations(p, comm) {
        add(awaited_by(p, &NamedRequest::Operation(index)).unwrap_or(AwaitedRanks::UNKNOWN));
    }
    pending
}

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
