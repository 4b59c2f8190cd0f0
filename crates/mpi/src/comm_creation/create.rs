//! Communicators from communicators (MPI-5.0 section 7.4.2).
//!
//! The context of a new communicator comes from its leader, its rank 0 (see
//! [`contexts`](crate::objects::comm::contexts)). No member waits for more than that: it may send on the new
//! communicator before another one has it.

use super::workers::{settle, settle_spread};
use super::{inter, publish};
use crate::coll::words::Members;
use crate::coll::{self, words};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::objects::attribute;
use crate::objects::comm::contexts::Block;
use crate::objects::comm::{Comm, hints};
use crate::objects::group::Group;
use crate::p2p::channel::Channel;
use crate::process::Process;
use fastpath_bootstrap::job::Job;
use fastpath_protocol::tag::Context;
use std::rc::Rc;

/// `MPI_Comm_dup`.
///
/// # Errors
/// What a user's attribute copy function returns; those of communication.
pub fn duplicate(p: &Process, parent: &Comm) -> Result<usize> {
    duplicate_with(p, parent, parent.hints.borrow().clone())
}

/// `MPI_Comm_dup_with_info`: the new communicator has the given hints and none of the parent's.
///
/// # Errors
/// As [`duplicate`].
pub fn duplicate_with(p: &Process, parent: &Comm, given: Vec<(String, String)>) -> Result<usize> {
    coll::compare_calls(p, parent)?;
    let handle = duplicate_at(p, parent, given, true)?;
    // The call may wait for the others, so that `MPI_Comm_idup` later need not.
    if parent.spares.get().is_empty() {
        refill_spares(p, parent)?;
    }
    Ok(handle)
}

/// As [`duplicate_with`], without waiting for other members unless no context is left.
///
/// # Errors
/// As [`duplicate`].
pub fn duplicate_early(p: &Process, parent: &Comm, given: Vec<(String, String)>) -> Result<usize> {
    duplicate_at(p, parent, given, false)
}

/// `settles`: the call may wait for the others, so that a further worker can carry the messages.
fn duplicate_at(
    p: &Process, parent: &Comm, given: Vec<(String, String)>, settles: bool,
) -> Result<usize> {
    let context = take_spare(p, parent)?;
    let mut comm = match &parent.remote_group {
        Some(remote) => inter::join(p, context, parent.group.clone(), remote.clone()),
        None => derive(p, parent, context, parent.group.clone()),
    };
    comm.errhandler.set(parent.errhandler.get());
    *comm.hints.borrow_mut() = hints::select(given);
    if settles && !comm.is_inter() {
        let further = settle(p, &mut comm)?;
        settle_spread(p, &mut comm, further)?;
    }
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

/// The next context for a communicator led by the parent's rank 0. All members take the same, in the
/// same order; when none is left, rank 0 hands out more.
pub(crate) fn take_spare(p: &Process, parent: &Comm) -> Result<Context> {
    if parent.spares.get().is_empty() {
        refill_spares(p, parent)?;
    }
    let mut spares = parent.spares.get();
    let context = take_context(&mut spares)?;
    parent.spares.set(spares);
    Ok(context)
}

/// Rank 0 hands out more contexts to all members.
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

pub(crate) fn take_context(block: &mut Block) -> Result<Context> {
    block.take().ok_or_else(|| {
        Error::new(
            MPI_ERR_OTHER,
            "the leader of the new communicator, its rank 0, leads as many communicators as it \
             can: free some",
        )
    })
}

/// A block of the leader's, known to all members of `group`, whose ranks in the channel's
/// communicator are `ranks`. The caller is a member.
fn distribute(p: &Process, members: &impl Members, group: &Group, ranks: &[u32]) -> Result<Block> {
    let Some(&leader) = group.world_ranks().first() else {
        return Ok(Block::EMPTY);
    };
    let position = group.rank().unwrap_or(0);
    let own = if position == 0 { p.contexts.reserve(leader).to_wire() } else { 0 };
    let wire = words::broadcast(members, ranks, position, own)?;
    Ok(Block::from_wire(wire))
}

/// A communicator of an intracommunicator's members, with its error handler.
pub(super) fn derive(p: &Process, parent: &Comm, context: Context, group: Rc<Group>) -> Comm {
    let rank = group.rank().unwrap_or(0);
    let comm = Comm::new(p, context, group.of_session(parent.session.get()), None, rank);
    comm.errhandler.set(parent.errhandler.get());
    comm
}

/// A communicator of the calling process and the other members of `group`, each of which calls this
/// with an equal group. `channel` is of `parent`.
pub(crate) fn create_among(
    p: &Process, parent: &Comm, channel: &Channel, group: Rc<Group>,
) -> Result<Comm> {
    let ranks = ranks_in(&group, parent)?;
    let mut block = distribute(p, channel, &group, &ranks)?;
    let context = take_context(&mut block)?;
    let mut comm = derive(p, parent, context, group);
    comm.spares.set(block);
    settle(p, &mut comm)?;
    Ok(comm)
}

/// A communicator of the first `count` members of `parent`, all of which call this, with what is left of the parent's
/// contexts. `None` on ranks that are not members.
pub(crate) fn create_of_first(p: &Process, parent: &Comm, count: u32) -> Result<Option<Comm>> {
    coll::compare_calls(p, parent)?;
    let context = take_spare(p, parent)?;
    if parent.rank >= count {
        return Ok(None);
    }
    let world_ranks = parent.group.world_ranks()[..count as usize].to_vec();
    let group = Rc::new(Group::new(world_ranks, parent.my_world_rank()));
    let mut comm = derive(p, parent, context, group);
    settle(p, &mut comm)?;
    Ok(Some(comm))
}

fn ranks_in(group: &Group, parent: &Comm) -> Result<Vec<u32>> {
    let all: Vec<i32> = (0..group.size() as i32).collect();
    let ranks = group.translate(&all, &parent.group)?;
    match ranks.iter().position(|&rank| rank == MPI_UNDEFINED) {
        None => Ok(ranks.into_iter().map(|rank| rank as u32).collect()),
        Some(stranger) => {
            let message = format!(
                "rank {stranger} of the group is not in the communicator: pass a subgroup of its \
                 group"
            );
            Err(Error::new(MPI_ERR_GROUP, message))
        }
    }
}

/// `MPI_Comm_create`: `MPI_COMM_NULL` on processes that are not in the group.
///
/// # Errors
/// `MPI_ERR_GROUP` for a group with processes that the communicator does not have.
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

/// `MPI_Comm_create_group`: called only by the members of the group.
///
/// # Errors
/// `MPI_ERR_TAG` for a tag below 0, `MPI_ERR_GROUP` for a group with processes that the communicator
/// does not have.
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

/// `MPI_Comm_split`: `MPI_COMM_NULL` where `color` is `MPI_UNDEFINED`.
///
/// # Errors
/// `MPI_ERR_ARG` for another negative color.
pub fn split(p: &Process, parent: &Comm, color: i32, key: i32) -> Result<usize> {
    split_with(p, parent, color, key, None)
}

/// As [`split`]; with hints, those of the new communicator.
fn split_with(
    p: &Process, parent: &Comm, color: i32, key: i32, given: Option<&[(String, String)]>,
) -> Result<usize> {
    if color < 0 && color != MPI_UNDEFINED {
        let message =
            format!("the color {color} is negative: pass one of 0 or more, or MPI_UNDEFINED");
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
            let mut comm = derive(p, parent, context, Rc::new(group));
            comm.spares.set(block);
            let further = settle(p, &mut comm)?;
            if let Some(given) = given {
                *comm.hints.borrow_mut() = hints::select(given.to_vec());
                settle_spread(p, &mut comm, further)?;
            }
            publish(p, comm)
        }
    }
}

/// The caller's new group and its leader's block. Each rank sends color, key and a block of its own that counts if it
/// turns out to lead, so that one round of messages is enough.
fn split_members(
    p: &Process, members: &impl Members, group: &Group, color: i32, key: i32,
) -> Result<Option<(Group, Block)>> {
    let world_ranks = group.world_ranks();
    let (rank, me) = (members.rank(), world_ranks[members.rank() as usize]);
    let own = if color == MPI_UNDEFINED { Block::EMPTY } else { p.contexts.reserve(me) };
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
    let block = Block::from_wire(all[leader][1]);
    let members = ranks.iter().map(|&rank| world_ranks[rank as usize]).collect();
    Ok(Some((Group::new(members, me), block)))
}

/// The ranks with that color, by key and where keys are equal by rank.
pub(super) fn select_color(all: &[[u64; 2]], color: i32) -> Vec<u32> {
    let of_color = (0..).zip(all).filter(|(_, [word, _])| (word >> 32) as u32 as i32 == color);
    let mut ranks: Vec<(i32, u32)> =
        of_color.map(|(rank, [word, _])| (*word as u32 as i32, rank)).collect();
    ranks.sort_unstable();
    ranks.into_iter().map(|(_, rank)| rank).collect()
}

/// A number that the members of a communicator on this process's host have alike, and others have not.
fn number_host(job: &Job, comm: &Comm) -> i32 {
    let own = job.host(job.rank());
    let mut members = comm.group.world_ranks().iter();
    match members.any(|&rank| job.is_foreign(rank as usize)) {
        // Jobs share no memory, whichever hosts they are on.
        true => {
            let mixed = job.job_id().wrapping_add(own.into());
            (mixed ^ mixed >> 32) as i32 & i32::MAX
        }
        // Counted from 0 by the launcher.
        false => own as i32,
    }
}

/// The key of `MPI_Get_hw_resource_info` for the memory that the ranks of a host share: a URI, as the standard has it
/// since MPI 4.1. `MPI_Comm_split_type` takes it for the standard's `mpi_shared_memory`.
pub const SHARED_MEMORY_URI: &str = "fastpath://shared_memory";

/// `MPI_Comm_split_type`. All ranks of one host share its memory, and no finer kind of hardware is distinguished, so
/// `MPI_COMM_TYPE_HW_UNGUIDED` gives `MPI_COMM_NULL`.
///
/// # Errors
/// `MPI_ERR_ARG` for an unknown type.
pub fn split_type(
    p: &Process, parent: &Comm, kind: i32, key: i32, given: &[(String, String)],
) -> Result<usize> {
    let hint =
        |name: &str| given.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let own_host = p.engine().map_or(0, |e| number_host(e.job, parent));
    let by_resource = || match hint("mpi_hw_resource_type") {
        Some("mpi_shared_memory" | SHARED_MEMORY_URI) => own_host,
        _ => MPI_UNDEFINED,
    };
    let color = match kind {
        MPI_UNDEFINED | MPI_COMM_TYPE_HW_UNGUIDED => MPI_UNDEFINED,
        MPI_COMM_TYPE_SHARED => own_host,
        MPI_COMM_TYPE_HW_GUIDED => by_resource(),
        MPI_COMM_TYPE_RESOURCE_GUIDED => match hint("mpi_pset_name") {
            None => by_resource(),
            Some("mpi://WORLD") => 0,
            Some("mpi://SELF") => parent.rank as i32,
            Some(_) => MPI_UNDEFINED,
        },
        _ => {
            return Err(Error::new(
                MPI_ERR_ARG,
                format!("{kind} is no type to split a communicator by"),
            ));
        }
    };
    split_with(p, parent, color, key, Some(given))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::coll::fabric::Fabric;
    use crate::coll::simulator::{self, Mode};

    const U: i32 = MPI_UNDEFINED;

    /// Splits among threads, each with its own process; returns the new world ranks and the context.
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
