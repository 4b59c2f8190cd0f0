//! Creation of communicators from communicators (MPI-5.0 section 7.4.2).
//!
//! The leader of a new communicator, its rank 0, provides the context (see
//! [`contexts`](crate::objects::comm::contexts)). Members wait only for the context, so a member may send on the new
//! communicator before another member has it.

use super::{inter, publish};
use crate::coll::words::Members;
use crate::coll::{self, words};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::objects::attribute;
use crate::objects::comm::contexts::ContextBlock;
use crate::objects::comm::{Comm, hints};
use crate::objects::group::Group;
use crate::p2p::channel::Channel;
use crate::process::Process;
use fastpath_protocol::tag::Context;
use std::rc::Rc;

/// `MPI_Comm_dup`. Errors: the code of a user's attribute copy function; errors of communication.
pub fn duplicate(p: &Process, parent: &Comm) -> Result<usize> {
    duplicate_with(p, parent, parent.hints.borrow().clone())
}

/// `MPI_Comm_dup_with_info`: the new communicator has the hints `given` and no others. Errors: see [`duplicate`].
pub fn duplicate_with(p: &Process, parent: &Comm, given: Vec<(String, String)>) -> Result<usize> {
    coll::compare_calls(p, parent)?;
    let handle = duplicate_early(p, parent, given)?;
    // This call may wait for other members. It fetches contexts so that a later `MPI_Comm_idup` need not wait.
    if parent.spares.get().is_empty() {
        refill_spares(p, parent)?;
    }
    Ok(handle)
}

/// Duplicates a communicator like [`duplicate_with`]. The call waits for other members only if no context is left.
/// Errors: see [`duplicate`].
pub fn duplicate_early(p: &Process, parent: &Comm, given: Vec<(String, String)>) -> Result<usize> {
    let context = take_spare(p, parent)?;
    let comm = match &parent.remote_group {
        Some(remote) => inter::join(p, context, parent.group.clone(), remote.clone()),
        None => derive(p, parent, context, parent.group.clone()),
    };
    comm.errhandler.set(parent.errhandler.get());
    *comm.hints.borrow_mut() = hints::select(given);
    comm.topology.replace(parent.topology.borrow().clone());
    let mut spares = parent.spares.get();
    comm.spares.set(spares.split_off());
    parent.spares.set(spares);
    let copied = attribute::copy_attributes(p, parent.holder(), &comm.attributes);
    let handle = publish(p, comm)?;
    if let Err(error) = copied {
        super::free_comm(p, handle)?;
        return Err(error);
    }
    Ok(handle)
}

/// Takes the next context for a communicator led by the parent's rank 0. All members take the same contexts in the same
/// order. If none is left, rank 0 allocates more.
pub(crate) fn take_spare(p: &Process, parent: &Comm) -> Result<Context> {
    if parent.spares.get().is_empty() {
        refill_spares(p, parent)?;
    }
    let mut spares = parent.spares.get();
    let context = take_context(&mut spares)?;
    parent.spares.set(spares);
    Ok(context)
}

/// Distributes new contexts from rank 0 to all members.
fn refill_spares(p: &Process, parent: &Comm) -> Result {
    if parent.is_inter() {
        parent.spares.set(inter::refill_spares(p, parent)?);
        return Ok(());
    }
    let ranks: Vec<u32> = (0..parent.size()).collect();
    let channel = Channel::next(p, parent);
    parent.spares.set(distribute(p, &channel, &parent.group, &ranks)?);
    Ok(())
}

pub(crate) fn take_context(block: &mut ContextBlock) -> Result<Context> {
    block.take().ok_or_else(|| {
        Error::new(
            MPI_ERR_OTHER,
            "rank 0 of the new communicator is rank 0 of too many other communicators: free some \
             of these communicators",
        )
    })
}

/// Distributes a block of contexts of the leader to all members of `group`. `ranks` are the members' ranks in the
/// channel.
fn distribute(
    p: &Process, members: &impl Members, group: &Group, ranks: &[u32],
) -> Result<ContextBlock> {
    let Some(&leader) = group.world_ranks().first() else {
        return Ok(ContextBlock::EMPTY);
    };
    let position = group.rank().unwrap_or(0);
    let own = if position == 0 { p.contexts.reserve(leader).to_wire() } else { 0 };
    let wire = words::broadcast(members, ranks, position, own)?;
    Ok(ContextBlock::from_wire(wire))
}

/// Makes a communicator of members of an intracommunicator. The new communicator inherits the error handler.
pub(crate) fn derive(p: &Process, parent: &Comm, context: Context, group: Rc<Group>) -> Comm {
    let rank = group.rank().unwrap_or(0);
    let comm = Comm::new(p, context, group.of_session(parent.session.get()), None, rank);
    comm.errhandler.set(parent.errhandler.get());
    comm
}

/// Makes a communicator of `group`. All members of the group call this function with the same group. `channel` connects
/// members of `parent`.
pub(crate) fn create_among(
    p: &Process, parent: &Comm, channel: &Channel, group: Rc<Group>,
) -> Result<Comm> {
    let ranks = ranks_in(&group, parent)?;
    let mut block = distribute(p, channel, &group, &ranks)?;
    let context = take_context(&mut block)?;
    let comm = derive(p, parent, context, group);
    comm.spares.set(block);
    Ok(comm)
}

/// Makes a communicator of the first `count` members of `parent`. All members of `parent` call this function; those
/// from rank `count` on get `None`.
pub(crate) fn create_of_first(p: &Process, parent: &Comm, count: u32) -> Result<Option<Comm>> {
    coll::compare_calls(p, parent)?;
    let context = take_spare(p, parent)?;
    if parent.rank >= count {
        return Ok(None);
    }
    let world_ranks = parent.group.world_ranks()[..count as usize].to_vec();
    let group = Rc::new(Group::new(world_ranks, parent.my_world_rank()));
    let comm = derive(p, parent, context, group);
    Ok(Some(comm))
}

fn ranks_in(group: &Group, parent: &Comm) -> Result<Vec<u32>> {
    let all: Vec<i32> = (0..group.size() as i32).collect();
    let ranks = group.translate(&all, &parent.group)?;
    match ranks.iter().position(|&rank| rank == MPI_UNDEFINED) {
        None => Ok(ranks.into_iter().map(|rank| rank as u32).collect()),
        Some(stranger) => {
            let message = format!("rank {stranger} of the group is not in the communicator");
            let advice = "pass a subgroup of the communicator's group";
            Err(Error::new(MPI_ERR_GROUP, message).with_advice(Some(advice)))
        }
    }
}

/// `MPI_Comm_create`: returns `MPI_COMM_NULL` on processes outside the group. Errors: `MPI_ERR_GROUP` for a group with
/// processes that are not in the communicator.
pub fn create(p: &Process, parent: &Comm, group: &Rc<Group>) -> Result<usize> {
    if parent.is_inter() {
        ranks_in(group, parent)?;
        return inter::create_part(p, parent, group);
    }
    coll::compare_calls(p, parent)?;
    let channel = Channel::next(p, parent);
    ranks_in(group, parent)?;
    if group.rank().is_none() {
        return Ok(MPI_COMM_NULL);
    }
    publish(p, create_among(p, parent, &channel, group.clone())?)
}

/// `MPI_Comm_create_group`: called only by the members of the group. Errors: `MPI_ERR_TAG` for a tag below 0,
/// `MPI_ERR_GROUP` for a group with processes that are not in the communicator.
pub fn create_group(p: &Process, parent: &Comm, group: &Rc<Group>, tag: i32) -> Result<usize> {
    parent.require_intra()?;
    if tag < 0 {
        return Err(Error::new(MPI_ERR_TAG, format!("the tag {tag} is negative")));
    }
    if group.rank().is_none() {
        return Ok(MPI_COMM_NULL);
    }
    let channel = Channel::tagged(p, parent, tag);
    publish(p, create_among(p, parent, &channel, group.clone())?)
}

/// `MPI_Comm_split`: returns `MPI_COMM_NULL` for color `MPI_UNDEFINED`. Errors: `MPI_ERR_ARG` for other negative
/// colors.
pub fn split(p: &Process, parent: &Comm, color: i32, key: i32) -> Result<usize> {
    split_with(p, parent, color, key, Vec::new())
}

/// Splits a communicator like [`split`], and gives the new communicator `hints`.
pub(super) fn split_with(
    p: &Process, parent: &Comm, color: i32, key: i32, hints: Vec<(String, String)>,
) -> Result<usize> {
    if color < 0 && color != MPI_UNDEFINED {
        let message =
            format!("the color {color} is negative: pass a color of 0 or more, or MPI_UNDEFINED");
        return Err(Error::new(MPI_ERR_ARG, message));
    }
    if parent.is_inter() {
        return inter::split(p, parent, color, key);
    }
    coll::compare_calls(p, parent)?;
    let channel = Channel::next(p, parent);
    match split_members(p, &channel, &parent.group, color, key)? {
        None => Ok(MPI_COMM_NULL),
        Some((group, mut block)) => {
            let context = take_context(&mut block)?;
            let comm = derive(p, parent, context, Rc::new(group));
            comm.spares.set(block);
            comm.hints.replace(hints);
            publish(p, comm)
        }
    }
}

/// Returns the caller's new group and the block of contexts of that group's leader. Each rank sends color, key and one
/// of its blocks, which is used if the rank becomes a leader. One round of messages thus suffices.
fn split_members(
    p: &Process, members: &impl Members, group: &Group, color: i32, key: i32,
) -> Result<Option<(Group, ContextBlock)>> {
    let world_ranks = group.world_ranks();
    let (rank, me) = (members.rank(), world_ranks[members.rank() as usize]);
    let own = if color == MPI_UNDEFINED { ContextBlock::EMPTY } else { p.contexts.reserve(me) };
    let mine = [(color as u32 as u64) << 32 | u64::from(key as u32), own.to_wire()];
    let all = match words::gather_all(members, mine) {
        Ok(all) => all,
        Err(error) => {
            p.contexts.give_back(me, own);
            return Err(error);
        }
    };
    if color == MPI_UNDEFINED {
        return Ok(None);
    }
    let ranks = select_color(&all, color);
    if ranks[0] != rank {
        p.contexts.give_back(me, own);
    }
    let leader = ranks[0] as usize;
    let block = ContextBlock::from_wire(all[leader][1]);
    let members = ranks.iter().map(|&rank| world_ranks[rank as usize]).collect();
    Ok(Some((Group::new(members, me), block)))
}

/// Returns the ranks of a color, ordered by key, then by rank.
pub(super) fn select_color(all: &[[u64; 2]], color: i32) -> Vec<u32> {
    let of_color = (0..).zip(all).filter(|(_, [word, _])| (word >> 32) as u32 as i32 == color);
    let mut ranks: Vec<(i32, u32)> =
        of_color.map(|(rank, [word, _])| (*word as u32 as i32, rank)).collect();
    ranks.sort_unstable();
    ranks.into_iter().map(|(_, rank)| rank).collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::coll::fabric::Fabric;
    use crate::coll::simulator::{self, Mode};

    const U: i32 = MPI_UNDEFINED;

    /// Splits a communicator of simulated ranks, which are threads. Returns each new group's world ranks and context.
    fn split_all(args: &[(i32, i32)]) -> Vec<Option<(Vec<u32>, Context)>> {
        simulator::run(args.len() as u32, Mode::Rendezvous, |m| {
            let p = Process::new();
            let world: Vec<u32> = (0..args.len() as u32).map(|rank| rank + 10).collect();
            let group = Group::new(world, m.rank() + 10);
            let (color, key) = args[m.rank() as usize];
            let (group, mut block) = split_members(&p, m, &group, color, key).unwrap()?;
            assert_eq!(group.world_ranks()[group.rank().unwrap() as usize], m.rank() + 10);
            Some((group.world_ranks().to_vec(), block.take().unwrap()))
        })
    }

    #[test]
    fn split__orders_by_key_then_rank() {
        let parts =
            split_all(&[(0, 5), (1, 0), (0, -5), (U, 0), (0, 5), (1, 0), (i32::MAX, i32::MIN)]);
        let ranks: Vec<Option<&[u32]>> =
            parts.iter().map(|part| part.as_ref().map(|(ranks, _)| &ranks[..])).collect();
        let (low, high) = (Some(&[12, 10, 14][..]), Some(&[11, 15][..]));
        assert_eq!(ranks, [low, high, low, None, low, high, Some(&[16][..])]);
    }

    #[test]
    fn split__agrees_on_one_context_per_color() {
        let parts = split_all(&[(0, 0), (1, 0), (0, 0), (1, 0), (2, 0)]);
        let contexts: Vec<Context> = parts.into_iter().map(|part| part.unwrap().1).collect();
        assert_eq!((contexts[0], contexts[1]), (contexts[2], contexts[3]));
        assert!(
            contexts[0] != contexts[1] && contexts[1] != contexts[4] && contexts[0] != contexts[4]
        );
        let leaders: Vec<u32> = contexts.iter().map(|context| context.origin().0).collect();
        assert_eq!(leaders, [10, 11, 10, 11, 14]);
    }

    #[test]
    fn split__takes_numbers_only_from_leaders() {
        let first = |p: &Process| p.contexts.reserve(0).take().unwrap().origin().1;
        let unused = first(&Process::new());
        let next = simulator::run(3, Mode::Rendezvous, |m| {
            let p = Process::new();
            let group = Group::new(vec![0, 1, 2], m.rank());
            split_members(&p, m, &group, 0, -(m.rank() as i32)).unwrap();
            first(&p)
        });
        assert!(next[0] == unused && next[1] == unused && next[2] > unused);
    }

    #[test]
    fn distribute__gives_all_members_the_leaders_block() {
        let blocks = simulator::run(5, Mode::Rendezvous, |m| {
            let p = Process::new();
            let group = Group::new(vec![14, 10, 13], m.rank() + 10);
            group.rank().map(|_| distribute(&p, m, &group, &[4, 0, 3]).unwrap().take().unwrap())
        });
        assert!(blocks[0].is_some() && blocks[0] == blocks[3] && blocks[3] == blocks[4]);
        assert_eq!(blocks[0].unwrap().origin().0, 14);
        assert_eq!((blocks[1], blocks[2]), (None, None));
    }
}
