//! The communicators that requests need.
#![allow(unsafe_code)]

use super::Extra;
use crate::common::places;
use crate::process::Process;
use crate::process::errhandler;
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
