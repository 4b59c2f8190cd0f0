//! Intercommunicators (MPI-5.0 section 7.6): two disjoint groups, each of which addresses the other.
//!
//! Both groups use one context. A member sends only to the other group, so that the sender's process and rank identify
//! a message. Messages within a group use [`Comm::local`], in the same context. When both groups must agree, their
//! ranks 0 exchange words, and each broadcasts them in its group.

use super::create::{derive, select_color, take_context, take_spare};
use super::publish;
use crate::coll;
use crate::coll::words::{self, Members};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::objects::comm::Comm;
use crate::objects::comm::contexts::ContextBlock;
use crate::objects::group::Group;
use crate::p2p::channel::Channel;
use crate::process::Process;
use fastpath_job::{Job, Origin};
use fastpath_protocol::tag::Context;
use std::rc::Rc;

/// Number of words in a message between leaders: number of members, and a block of contexts.
const GREETING: usize = 2;

#[derive(Debug)]
pub(crate) struct LeaderAgreement {
    /// Remote group, as ranks in this process's job.
    pub remote: Vec<u32>,
    /// Block of contexts.
    pub block: ContextBlock,
}

/// Connection between the two leaders.
pub(crate) struct Bridge<'a> {
    /// Channel of a communicator with both leaders.
    pub channel: Channel<'a>,
    /// Rank of the other leader in the communicator of `channel`.
    pub leader: u32,
}

/// `MPI_Intercomm_create`. `peer` and `remote_leader` are significant only at the local leader. Errors: `MPI_ERR_RANK`
/// for an unknown leader, `MPI_ERR_TAG` for a negative tag, `MPI_ERR_COMM` if the groups overlap. All members of a
/// group return their leader's error.
pub fn create_inter(
    p: &Process, local: &Comm, local_leader: i32, peer: usize, remote_leader: i32, tag: i32,
) -> Result<usize> {
    local.require_intra()?;
    let leader =
        u32::try_from(local_leader).ok().filter(|&rank| rank < local.size()).ok_or_else(|| {
            let last = local.size() - 1;
            let text = format!(
                "the local leader {local_leader} is not a rank of the local communicator (0 to \
                 {last})"
            );
            Error::new(MPI_ERR_RANK, text)
        })?;
    coll::compare_calls(p, local)?;
    let members = Channel::next(p, local);
    let pact = (local.rank == leader).then(|| {
        let peer = p.comm(peer)?;
        let bridge = find_leader(p, &peer, remote_leader, tag)?;
        greet(p, &local.group, bridge)
    });
    let (remote, block) = pass_on(p, &members, &local.group, leader, pact)?;
    let made = assemble(p, local.group.clone(), Rc::new(remote), block)?;
    made.errhandler.set(local.errhandler.get());
    publish(p, made)
}

fn find_leader<'a>(p: &'a Process, peer: &'a Comm, leader: i32, tag: i32) -> Result<Bridge<'a>> {
    if tag < 0 {
        return Err(Error::new(MPI_ERR_TAG, format!("the tag {tag} is negative")));
    }
    match u32::try_from(leader) {
        Ok(leader) if leader < peer.peer_count() => {
            Ok(Bridge { channel: Channel::tagged(p, peer, tag), leader })
        }
        _ => {
            let last = peer.peer_count() - 1;
            let text = format!(
                "the remote leader {leader} is not a rank of the peer communicator (0 to {last})"
            );
            let advice = "pass a rank of the peer communicator";
            Err(Error::new(MPI_ERR_RANK, text).with_advice(Some(advice)))
        }
    }
}

/// Exchanges groups with the other leader, and agrees on a block of contexts. The caller leads `group`.
pub(crate) fn greet(p: &Process, group: &Group, bridge: Bridge<'_>) -> Result<LeaderAgreement> {
    let (channel, to) = (&bridge.channel, bridge.leader);
    let me = channel.comm.my_world_rank();
    let own = p.contexts.reserve(me);
    let result = exchange_groups(p, group, own, channel, to);
    let lost = match &result {
        Ok(pact) => pact.block != own,
        Err(_) => true,
    };
    if lost {
        p.contexts.give_back(me, own);
    }
    result
}

fn exchange_groups(
    p: &Process, group: &Group, own: ContextBlock, channel: &Channel<'_>, to: u32,
) -> Result<LeaderAgreement> {
    let me = channel.comm.my_world_rank();
    let mine: [u64; GREETING] = [group.size().into(), own.to_wire()];
    let mut theirs = [0; GREETING];
    channel.exchange_words(to, &mine, to, &mut theirs)?;
    let all = p.running()?.job.present() as u64;
    if theirs[0] == 0 || theirs[0] > all {
        let text = format!("the remote leader sent an invalid size of its group: {}", theirs[0]);
        return Err(Error::new(MPI_ERR_OTHER, text));
    }
    let job = p.running()?.job;
    let ours = write_ranks(job, group.world_ranks());
    let mut words = vec![0; ORIGIN * theirs[0] as usize];
    channel.exchange_words(to, &ours, to, &mut words)?;
    let remote = read_ranks(job, &words)?;
    let common = group.intersection(&Group::new(remote.clone(), me));
    if let Some(world) = common.world_ranks().first() {
        let text = format!("rank {world} of MPI_COMM_WORLD is in both groups");
        let advice = "pass two groups that share no process";
        return Err(Error::new(MPI_ERR_COMM, text).with_advice(Some(advice)));
    }
    let there = channel.comm.peer_group().world_ranks()[to as usize];
    let block = match job.origin(me as usize) < job.origin(there as usize) {
        true => own,
        false => ContextBlock::from_wire(theirs[1]),
    };
    Ok(LeaderAgreement { remote, block })
}

/// Number of words that encode a rank: its job, and its rank in that job. Ranks of two jobs are unrelated.
const ORIGIN: usize = 2;

/// Encodes ranks of this process's job for another process. The ranks may be of connected jobs.
fn write_ranks(job: &Job, ranks: &[u32]) -> Vec<u64> {
    let origins = ranks.iter().map(|&rank| job.origin(rank as usize));
    origins.flat_map(|origin| [origin.job, u64::from(origin.rank)]).collect()
}

fn read_ranks(job: &Job, words: &[u64]) -> Result<Vec<u32>> {
    let read = |pair: &[u64]| {
        let &[id, rank] = pair else { return None };
        let rank = u32::try_from(rank).ok()?;
        job.find_origin(Origin { job: id, rank })
    };
    let ranks: Option<Vec<u32>> = words.chunks(ORIGIN).map(read).collect();
    ranks.ok_or_else(|| {
        let text = "the remote group has a process of a job to which this process is not connected";
        Error::new(MPI_ERR_OTHER, text)
    })
}

/// Checks that this process has addresses of the ranks. Errors: `MPI_ERR_NO_MEM` if one is missing.
pub(crate) fn require_reach(job: &Job, ranks: &[u32]) -> Result {
    match ranks.iter().find(|&&rank| !job.reaches(rank as usize)) {
        None => Ok(()),
        Some(rank) => Err(Error::new(
            MPI_ERR_NO_MEM,
            format!(
                "rank {rank} joined the job later, and this process has no address space for \
                 messages to or from that rank: raise `ulimit -v`"
            ),
        )),
    }
}

/// Broadcasts the leader's agreement to the members of `group`. Only the leader passes an agreement.
pub(crate) fn pass_on(
    p: &Process, members: &impl Members, group: &Group, leader: u32,
    pact: Option<Result<LeaderAgreement>>,
) -> Result<(Group, ContextBlock)> {
    let me = group.world_ranks()[members.rank() as usize];
    let job = p.running()?.job;
    let mut words = Vec::new();
    if let Some(Ok(pact)) = &pact {
        words.push(pact.block.to_wire());
        words.extend(write_ranks(job, &pact.remote));
    }
    let failure = pact.as_ref().and_then(|pact| pact.as_ref().err());
    let told = words::broadcast_outcome(members, leader, failure, &mut words);
    pact.transpose()?;
    told?;
    let Some((&block, ranks)) = words.split_first() else {
        return Err(Error::new(MPI_ERR_INTERN, "the local leader sent an incomplete message"));
    };
    let remote = read_ranks(job, ranks)?;
    require_reach(job, &remote)?;
    Ok((Group::new(remote, me), ContextBlock::from_wire(block)))
}

/// Makes an intercommunicator with the first context of a block. The other contexts are its spares.
pub(crate) fn assemble(
    p: &Process, local: Rc<Group>, remote: Rc<Group>, mut block: ContextBlock,
) -> Result<Comm> {
    let context = take_context(&mut block)?;
    let comm = join(p, context, local, remote);
    comm.spares.set(block);
    Ok(comm)
}

pub(crate) fn join(p: &Process, context: Context, local: Rc<Group>, remote: Rc<Group>) -> Comm {
    let rank = local.rank().unwrap_or(0);
    Comm::new(p, context, local, Some(remote), rank)
}

/// Returns whether the local group is the first of the two. Both groups compute the same order.
pub(crate) fn is_first(p: &Process, comm: &Comm) -> bool {
    let origin = |group: &Group| {
        let first = *group.world_ranks().first()?;
        Some(p.engine()?.job.origin(first as usize))
    };
    origin(&comm.group) < origin(comm.peer_group())
}

/// Exchanges words between the ranks 0 of both groups, and broadcasts them in both groups. Returns this group's words,
/// then those of the other group.
fn exchange_words(
    p: &Process, comm: &Comm, mine: &[u64], theirs: usize,
) -> Result<(Vec<u64>, Vec<u64>)> {
    let between = Channel::next(p, comm);
    let within = Channel::tagged(p, comm.find_local()?, between.tag);
    let mut words = mine.to_vec();
    words.resize(mine.len() + theirs, 0);
    let (out, into) = words.split_at_mut(mine.len());
    if comm.rank == 0 {
        between.exchange_words(0, out, 0, into)?;
    }
    words::broadcast_from(&within, 0, &mut words)?;
    let theirs = words.split_off(mine.len());
    Ok((words, theirs))
}

/// Returns a channel on the local group. The tag is that of the intercommunicator's next collective call.
fn next_within<'a>(p: &'a Process, comm: &'a Comm) -> Result<Channel<'a>> {
    let local = comm.find_local()?;
    Ok(Channel::tagged(p, local, Channel::take_tag(comm)))
}

pub(super) fn synchronize(p: &Process, comm: &Comm) -> Result {
    words::synchronize(&next_within(p, comm)?)?;
    exchange_words(p, comm, &[0], 1).map(|_| ())
}

/// Distributes new contexts for duplicates. Rank 0 of the first group provides them.
pub(super) fn refill_spares(p: &Process, comm: &Comm) -> Result<ContextBlock> {
    let first = is_first(p, comm);
    let leads = first && comm.rank == 0;
    let own = match leads {
        true => p.contexts.reserve(comm.my_world_rank()),
        false => ContextBlock::EMPTY,
    };
    let (ours, theirs) = exchange_words(p, comm, &[own.to_wire()], 1)?;
    let words = if first { ours } else { theirs };
    Ok(ContextBlock::from_wire(words[0]))
}

/// `MPI_Intercomm_merge`: the group that passes `high` comes last. Errors: `MPI_ERR_COMM` for an intracommunicator.
pub fn merge(p: &Process, comm: &Comm, high: bool) -> Result<usize> {
    comm.remote()?;
    let context = take_spare(p, comm)?;
    let (ours, theirs) = exchange_words(p, comm, &[high.into()], 1)?;
    // If both groups pass the same value, the first group comes first.
    let leads = match (ours[0] != 0, theirs[0] != 0) {
        (false, true) => true,
        (true, false) => false,
        _ => is_first(p, comm),
    };
    let (low, last) = match leads {
        true => (&*comm.group, comm.peer_group()),
        false => (comm.peer_group(), &*comm.group),
    };
    let ranks = low.world_ranks().iter().chain(last.world_ranks());
    let group = Group::new(ranks.copied().collect(), comm.my_world_rank());
    let made = derive(p, comm, context, Rc::new(group));
    publish(p, made)
}

/// `MPI_Comm_split` of an intercommunicator. Returns `MPI_COMM_NULL` if the other group has no rank of that color.
pub(super) fn split(p: &Process, comm: &Comm, color: i32, key: i32) -> Result<usize> {
    let me = comm.my_world_rank();
    let own = match color {
        MPI_UNDEFINED => ContextBlock::EMPTY,
        _ => p.contexts.reserve(me),
    };
    let tables = exchange_colors(p, comm, color, key, own);
    let parts = tables.map(|(here, there)| choose_members(p, comm, color, &here, &there));
    let leads = matches!(&parts, Ok(Some((_, _, block))) if *block == own);
    if !leads {
        p.contexts.give_back(me, own);
    }
    let Some((local, remote, block)) = parts? else {
        return Ok(MPI_COMM_NULL);
    };
    let local = Rc::new(local).of_session(comm.session.get());
    let made = assemble(p, local, Rc::new(remote), block)?;
    made.errhandler.set(comm.errhandler.get());
    publish(p, made)
}

type Colors = Vec<[u64; 2]>;

/// Returns color, key and block of all members of both groups.
fn exchange_colors(
    p: &Process, comm: &Comm, color: i32, key: i32, own: ContextBlock,
) -> Result<(Colors, Colors)> {
    let mine = [(color as u32 as u64) << 32 | u64::from(key as u32), own.to_wire()];
    let here = words::gather_all(&next_within(p, comm)?, mine)?;
    let words: Vec<u64> = here.iter().flatten().copied().collect();
    let (_, theirs) = exchange_words(p, comm, &words, 2 * comm.peer_count() as usize)?;
    let there = theirs.chunks_exact(2).map(|pair| [pair[0], pair[1]]);
    Ok((here, there.collect()))
}

/// Returns the groups of one color, and the block of contexts of their leader: the first member of the first group.
fn choose_members(
    p: &Process, comm: &Comm, color: i32, here: &[[u64; 2]], there: &[[u64; 2]],
) -> Option<(Group, Group, ContextBlock)> {
    if color == MPI_UNDEFINED {
        return None;
    }
    let (local, remote) = (select_color(here, color), select_color(there, color));
    let (&near, &far) = (local.first()?, remote.first()?);
    let of = |group: &Group, ranks: &[u32]| -> Vec<u32> {
        let world = group.world_ranks();
        ranks.iter().map(|&rank| world[rank as usize]).collect()
    };
    let (local, remote) = (of(&comm.group, &local), of(comm.peer_group(), &remote));
    let block = match is_first(p, comm) {
        true => ContextBlock::from_wire(here[near as usize][1]),
        false => ContextBlock::from_wire(there[far as usize][1]),
    };
    let me = comm.my_world_rank();
    Some((Group::new(local, me), Group::new(remote, me), block))
}

pub(super) fn create_part(p: &Process, comm: &Comm, group: &Group) -> Result<usize> {
    // Only members of the group pass this color to `split`.
    match group.rank() {
        Some(rank) => split(p, comm, 0, rank as i32),
        None => split(p, comm, MPI_UNDEFINED, 0),
    }
}
