//! Creation, publication and release of communicators (MPI-5.0 sections 7.4 and 7.6).

pub mod create;
pub(crate) mod departed;
pub mod inter;
pub(crate) mod meeting;
pub mod split_type;
pub mod topology;

use crate::coll::mapping;
use crate::coll::{self, words};
use crate::common::consts::*;
use crate::common::error::{Error, NOT_TO_BE_FREED, Result};
use crate::objects::attribute;
use crate::objects::comm::Comm;
use crate::objects::comm::contexts::ContextBlock;
use crate::objects::group::Group;
use crate::p2p::buffered;
use crate::p2p::channel::Channel;
use crate::p2p::request;
use crate::process::Process;
use crate::process::errhandler;
use crate::process::failures;
use fastpath_protocol::tag::Context;
use std::rc::Rc;

impl Comm {
    /// Makes a communicator without a handle, whose errors are fatal. `rank` is the caller's rank in `group`.
    pub fn new(
        p: &Process, context: Context, group: Rc<Group>, remote_group: Option<Rc<Group>>, rank: u32,
    ) -> Self {
        let endpoint = |peer| p.endpoint_address(peer);
        Comm::with_endpoints(p.call.get(), &endpoint, context, group, remote_group, rank)
    }
}

/// Gives a new communicator a handle and publishes it. Errors: `MPI_ERR_OTHER` if no handle is free.
pub fn publish(p: &Process, comm: Comm) -> Result<usize> {
    let comm = Rc::new(comm);
    let handle = p.comms.publish(comm.clone())?;
    comm.handle.set(handle);
    if let Some(local) = &comm.local {
        local.handle.set(handle);
    }
    errhandler::attach(p, comm.errhandler.get());
    p.hot_comm_set(handle, &comm);
    comm.list();
    failures::note_new_comm(p, &comm);
    count_link(p, &comm);
    Ok(handle)
}

/// Returns the members that are not in this process's world, including those of other jobs.
fn outsiders(p: &Process, comm: &Comm) -> impl Iterator<Item = usize> {
    let groups = [Some(&comm.group), comm.remote_group.as_ref()].into_iter().flatten();
    let job = p.engine().map(|engine| engine.job);
    groups.flat_map(move |group| {
        let ranks = job.map(|job| job.outside(group.world_ranks()));
        ranks.into_iter().flatten()
    })
}

/// Counts a communicator that connects this world to another world of the job (MPI-5.0 section 11.10.4).
fn count_link(p: &Process, comm: &Comm) {
    if let Some(engine) = p.engine()
        && outsiders(p, comm).any(|rank| !engine.job.is_foreign(rank))
    {
        comm.is_link.set(true);
        engine.job.note_link(true);
    }
}

/// Reverses [`count_link`].
fn drop_link(p: &Process, comm: &Comm) {
    if comm.is_link.take()
        && let Some(engine) = p.engine()
    {
        engine.job.note_link(false);
    }
}

/// `MPI_Comm_free`: deletes the attributes, then the handle. Objects of the communicator that requests use stay alive.
/// Errors: `MPI_ERR_COMM` for a predefined communicator or another invalid handle; the code of a user's delete
/// function, after which the communicator remains.
pub fn free_comm(p: &Process, handle: usize) -> Result {
    let comm = p.comm(handle)?;
    if handle == MPI_COMM_WORLD || handle == MPI_COMM_SELF {
        let text = "MPI_COMM_WORLD and MPI_COMM_SELF cannot be freed";
        return Err(Error::new(MPI_ERR_COMM, text).with_advice(Some(NOT_TO_BE_FREED)));
    }
    attribute::delete_attributes(p, comm.holder())?;
    mapping::give_back(p, &comm)?;
    p.hot_comm_clear(handle);
    if p.parent.get() == handle {
        p.parent.set(MPI_COMM_NULL);
    }
    p.comms.withdraw(handle);
    drop_link(p, &comm);
    let spares = comm.spares.replace(ContextBlock::EMPTY);
    p.contexts.give_back(comm.my_world_rank(), spares);
    let is_outside = outsiders(p, &comm).next().is_some();
    p.freed_comms.add(comm);
    request::release_unused(p);
    if is_outside {
        departed::release(p);
    }
    Ok(())
}

/// `MPI_Comm_disconnect`: frees a communicator like [`free_comm`], after all members have called it and completed all
/// communication. If it connects worlds, no member returns before all have removed the link from their counts. A later
/// failure then ends no other world. Errors: see [`free_comm`]; errors of communication.
pub fn disconnect_comm(p: &Process, handle: usize) -> Result {
    let comm = p.comm(handle)?;
    if comm.faults.is_broken() {
        // Members that have died would be waited for.
        return free_comm(p, handle);
    }
    buffered::drain_place(p, &comm.buffer)?;
    request::complete_communication(p, &comm)?;
    synchronize(p, &comm)?;
    let is_link = comm.is_link.get();
    // All members take the same branch: if there is a second world, each member has outsiders. `is_link` may differ
    // between members, because it does not count worlds of other jobs.
    let done = match outsiders(p, &comm).next() {
        None => Ok(()),
        Some(_) => {
            drop_link(p, &comm);
            synchronize(p, &comm)
        }
    };
    let context = comm.context;
    let done = done.and_then(|()| free_comm(p, handle));
    if done.is_ok() {
        failures::note_disconnect(p, context);
    }
    if done.is_err() && is_link {
        count_link(p, &comm);
    }
    done
}

fn synchronize(p: &Process, comm: &Comm) -> Result {
    if comm.is_inter() {
        return inter::synchronize(p, comm);
    }
    if comm.size() == 1 {
        return Ok(());
    }
    coll::compare_calls(p, comm)?;
    words::synchronize(&Channel::next(p, comm))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
