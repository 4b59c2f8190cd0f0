//! How communicators are made, made known, and freed (MPI-5.0 sections 7.4 and 7.6).

pub mod create;
pub(crate) mod departed;
pub mod inter;
pub(crate) mod meeting;
pub mod topology;
mod workers;

pub(crate) use workers::settle;

use crate::coll::shared::mapped;
use crate::coll::{self, words};
use crate::common::consts::*;
use crate::common::error::{Error, NOT_TO_BE_FREED, Result};
use crate::objects::attribute;
use crate::objects::comm::Comm;
use crate::objects::comm::contexts::Block;
use crate::objects::group::Group;
use crate::p2p::buffered;
use crate::p2p::channel::Channel;
use crate::p2p::request;
use crate::process::Process;
use crate::process::errhandler;
use fastpath_protocol::tag::Context;
use std::rc::Rc;

impl Comm {
    /// A communicator without a handle, with `MPI_ERRORS_ARE_FATAL`. `rank` is the calling process's
    /// rank in `group`.
    pub fn new(
        p: &Process, context: Context, group: Rc<Group>, remote_group: Option<Rc<Group>>, rank: u32,
    ) -> Self {
        let endpoint = |peer| p.endpoint_address(peer);
        Comm::with_endpoints(p.call.get(), &endpoint, context, group, remote_group, rank)
    }
}

/// Gives a new communicator a handle and makes it known.
///
/// # Errors
/// `MPI_ERR_OTHER` when no handle is free.
pub fn publish(p: &Process, comm: Comm) -> Result<usize> {
    let comm = Rc::new(comm);
    let handle = p.comms.publish(comm.clone())?;
    comm.handle.set(handle);
    if let Some(local) = &comm.local {
        local.handle.set(handle);
    }
    errhandler::attach(p, comm.errhandler.get());
    comm.tell_title();
    p.hot_comm_set(handle, &comm);
    count_link(p, &comm);
    Ok(handle)
}

/// Which members are of other worlds than this process: of other jobs too.
fn outsiders(p: &Process, comm: &Comm) -> impl Iterator<Item = usize> {
    let groups = [Some(&comm.group), comm.remote_group.as_ref()].into_iter().flatten();
    let job = p.engine().map(|engine| engine.job);
    groups.flat_map(move |group| {
        let ranks = job.map(|job| job.outside(group.world_ranks()));
        ranks.into_iter().flatten()
    })
}

/// Counts a communicator that connects this world with another one of the job (MPI-5.0 section 11.10.4).
fn count_link(p: &Process, comm: &Comm) {
    if let Some(engine) = p.engine()
        && outsiders(p, comm).any(|rank| !engine.job.is_foreign(rank))
    {
        comm.is_link.set(true);
        engine.job.note_link(true);
    }
}

/// Counts it no more.
fn drop_link(p: &Process, comm: &Comm) {
    if comm.is_link.take()
        && let Some(engine) = p.engine()
    {
        engine.job.note_link(false);
    }
}

/// `MPI_Comm_free`: deletes the attributes, then the handle. Requests keep what they need of the
/// communicator.
///
/// # Errors
/// `MPI_ERR_COMM` for a handle that is no communicator or a predefined one; what a user's attribute
/// delete function returns, and then the communicator stays.
pub fn free_comm(p: &Process, handle: usize) -> Result {
    let comm = p.comm(handle)?;
    if handle == MPI_COMM_WORLD || handle == MPI_COMM_SELF {
        let text = "MPI_COMM_WORLD and MPI_COMM_SELF cannot be freed";
        return Err(Error::new(MPI_ERR_COMM, text).with_advice(Some(NOT_TO_BE_FREED)));
    }
    attribute::delete_attributes(p, comm.holder())?;
    mapped::give_back(p, &comm)?;
    p.hot_comm_clear(handle);
    if p.parent.get() == handle {
        p.parent.set(MPI_COMM_NULL);
    }
    p.comms.withdraw(handle);
    drop_link(p, &comm);
    let spares = comm.spares.replace(Block::EMPTY);
    p.contexts.give_back(comm.my_world_rank(), spares);
    let is_outside = outsiders(p, &comm).next().is_some();
    p.freed_comms.add(comm);
    request::release_unused(p);
    if is_outside {
        departed::release(p);
    }
    Ok(())
}

/// `MPI_Comm_disconnect`: as [`free_comm`], after all members have called it and all communication of each is
/// complete. If it connects worlds, no member returns before all of them have counted it off: a later failure ends no
/// other world by it.
///
/// # Errors
/// As [`free_comm`], and those of communication.
pub fn disconnect_comm(p: &Process, handle: usize) -> Result {
    let comm = p.comm(handle)?;
    buffered::drain_place(p, &comm.buffer)?;
    request::complete_communication(p, &comm)?;
    synchronize(p, &comm)?;
    let is_link = comm.is_link.get();
    // Members of several jobs know of no worlds but their own: this is the same for all of them.
    let done = match outsiders(p, &comm).next() {
        None => Ok(()),
        Some(_) => {
            drop_link(p, &comm);
            synchronize(p, &comm)
        }
    };
    let done = done.and_then(|()| free_comm(p, handle));
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
