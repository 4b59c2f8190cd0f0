//! `MPIX_Comm_shrink`: a new communicator of the living members.

use super::agreement;
use crate::comm_creation::{create, inter, publish};
use crate::common::consts::MPI_ERR_INTERN;
use crate::common::error::{Error, Result};
use crate::ft::message::Decision;
use crate::objects::comm::Comm;
use crate::objects::comm::contexts::ContextBlock;
use crate::objects::group::Group;
use crate::process::Process;
use std::rc::Rc;

/// Contribution of this member: contexts that it reserves for the new communicator.
pub(super) struct ReservedContexts {
    block: ContextBlock,
    me: u32,
}

/// Reserves contexts for the new communicator. The members agree on those of the lowest living member.
pub(super) fn reserve(p: &Process, comm: &Comm) -> ReservedContexts {
    let me = comm.my_world_rank();
    ReservedContexts { block: p.contexts.reserve(me), me }
}

/// Starts the agreement about the new communicator.
pub(super) fn start(
    p: &Process, comm: &Comm, reserved: &ReservedContexts,
) -> Result<agreement::StartedAgreement> {
    let started = agreement::start(p, comm, -1, reserved.block.to_wire());
    if started.is_err() {
        p.contexts.give_back(reserved.me, reserved.block);
    }
    started
}

/// Makes the new communicator, without the members that the decision counts as dead, and returns its handle.
pub(super) fn conclude(
    p: &Process, comm: &Comm, reserved: &ReservedContexts, decision: &Decision, dead: &[u32],
) -> Result<usize> {
    agreement::learn(p, dead)?;
    let mut block = ContextBlock::from_wire(decision.offer);
    if block != reserved.block {
        p.contexts.give_back(reserved.me, reserved.block);
    }
    if dead.contains(&reserved.me) {
        let text = "the other ranks count this rank as dead";
        return Err(Error::new(MPI_ERR_INTERN, text));
    }
    let context = create::take_context(&mut block)?;
    let survivors = |group: &Group| {
        let ranks = group.world_ranks().iter().copied();
        Rc::new(Group::new(ranks.filter(|rank| !dead.contains(rank)).collect(), reserved.me))
    };
    let group = survivors(&comm.group);
    let made = match &comm.remote_group {
        None => create::derive(p, comm, context, group),
        Some(remote) => {
            let made = inter::join(p, context, group, survivors(remote));
            made.errhandler.set(comm.errhandler.get());
            made
        }
    };
    made.spares.set(block);
    publish(p, made)
}

/// `MPIX_Comm_shrink`. Returns the handle of a communicator without the dead members.
pub fn shrink(p: &Process, comm: &Comm) -> Result<usize> {
    let reserved = reserve(p, comm);
    let started = start(p, comm, &reserved)?;
    let (decision, dead) = agreement::wait(p, comm, started)?;
    conclude(p, comm, &reserved, &decision, &dead)
}
