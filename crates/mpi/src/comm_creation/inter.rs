//! Intercommunicators (MPI-5.0 section 7.6): two groups without a common member, each of which names the other's ranks.
//!
//! Both groups use one context: the members of a group send only to those of the other one, so that the sender's
//! process and its rank identify a message. Messages within a group go through [`Comm::local`], in the same context.
//! Where both groups must agree, the ranks 0 exchange words and pass them on.

use super::create::{derive, select_color, take_context, take_spare};
use super::publish;
use super::workers::settle;
use crate::coll;
use crate::coll::words::{self, Members};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::objects::comm::Comm;
use crate::objects::comm::contexts::Block;
use crate::objects::group::Group;
use crate::p2p::channel::Channel;
use crate::process::Process;
use fastpath_bootstrap::job::{Job, Origin};
use fastpath_protocol::tag::Context;
use std::rc::Rc;

/// Words of a greeting between leaders: members of the group and a block of contexts.
const GREETING: usize = 2;
/// Words that a leader passes on before the ranks: error class, members of the remote group, a block of contexts.
const NEWS: usize = 3;

/// What two leaders have agreed on.
#[derive(Debug)]
pub(crate) struct Pact {
    /// The remote group, as ranks of the job.
    pub remote: Vec<u32>,
    /// Contexts.
    pub block: Block,
}

/// Where a leader finds the other one.
pub(crate) struct Bridge<'a> {
    /// A communicator of both leaders.
    pub channel: Channel<'a>,
    /// The other leader's rank there.
    pub leader: u32,
}

/// `MPI_Intercomm_create`. `peer` and `remote_leader` count only on the local leader.
///
/// # Errors
/// `MPI_ERR_RANK` for a leader that is not there, `MPI_ERR_TAG` for a tag below 0, `MPI_ERR_COMM` where the groups
/// have a process in common. What the leader finds the other members of its group get too.
pub fn create_inter(
    p: &Process, local: &Comm, local_leader: i32, peer: usize, remote_leader: i32, tag: i32,
) -> Result<usize> {
    local.require_intra()?;
    let leader =
        u32::try_from(local_leader).ok().filter(|&rank| rank < local.size()).ok_or_else(|| {
            let last = local.size() - 1;
            let text = format!("the local leader {local_leader} is no rank of it (0 to {last})");
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
                "the remote leader {leader} is no rank of the peer communicator (0 to {last})"
            );
            Err(Error::new(MPI_ERR_RANK, text))
        }
    }
}

/// What the leader of `group`, the caller, agrees on with the other one.
pub(crate) fn greet(p: &Process, group: &Group, bridge: Bridge<'_>) -> Result<Pact> {
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
    p: &Process, group: &Group, own: Block, channel: &Channel<'_>, to: u32,
) -> Result<Pact> {
    let me = channel.comm.my_world_rank();
    let mine: [u64; GREETING] = [group.size().into(), own.to_wire()];
    let mut theirs = [0; GREETING];
    channel.exchange_words(to, &mine, to, &mut theirs)?;
    let all = p.running()?.job.present() as u64;
    if theirs[0] == 0 || theirs[0] > all {
        let text = format!("the remote group says that it has {} members", theirs[0]);
        return Err(Error::new(MPI_ERR_OTHER, text));
    }
    let job = p.running()?.job;
    let ours = write_ranks(job, group.world_ranks());
    let mut words = vec![0; ORIGIN * theirs[0] as usize];
    channel.exchange_words(to, &ours, to, &mut words)?;
    let remote = read_ranks(job, &words)?;
    let common = group.intersection(&Group::new(remote.clone(), me));
    if let Some(world) = common.world_ranks().first() {
        let text = format!(
            "rank {world} of MPI_COMM_WORLD is in both groups: pass groups without a common process"
        );
        return Err(Error::new(MPI_ERR_COMM, text));
    }
    let there = channel.comm.peer_group().world_ranks()[to as usize];
    let block = match job.origin(me as usize) < job.origin(there as usize) {
        true => own,
        false => Block::from_wire(theirs[1]),
    };
    Ok(Pact { remote, block })
}

/// Words of a rank: number of its job, and its rank there. A rank's number in one job says nothing in another one.
const ORIGIN: usize = 2;

/// Ranks of this process's job, its own and those of others that it is connected with, for another process.
fn write_ranks(job: &Job, ranks: &[u32]) -> Vec<u64> {
    let origins = ranks.iter().map(|&rank| job.origin(rank as usize));
    origins.flat_map(|origin| [origin.job, u64::from(origin.rank)]).collect()
}

/// Ranks that another process wrote.
fn read_ranks(job: &Job, words: &[u64]) -> Result<Vec<u32>> {
    let read = |pair: &[u64]| {
        let &[id, rank] = pair else { return None };
        let rank = u32::try_from(rank).ok()?;
        job.find_origin(Origin { job: id, rank })
    };
    let ranks: Option<Vec<u32>> = words.chunks(ORIGIN).map(read).collect();
    ranks.ok_or_else(|| {
        let text = "the remote group names a process that is neither of this job nor of a job \
                    that this process is connected with";
        Error::new(MPI_ERR_OTHER, text)
    })
}

/// Refuses ranks that this process has no addresses for.
///
/// # Errors
/// `MPI_ERR_NO_MEM`.
pub(crate) fn require_reach(job: &Job, ranks: &[u32]) -> Result {
    match ranks.iter().find(|&&rank| !job.reaches(rank as usize)) {
        None => Ok(()),
        Some(rank) => Err(Error::new(
            MPI_ERR_NO_MEM,
            format!(
                "rank {rank} of the job came after this process, whose address space is limited \
                 (`ulimit -v`): it has none for messages with that one"
            ),
        )),
    }
}

/// Passes on to the members of `group` what their leader, the one that has a pact, has agreed on.
pub(crate) fn pass_on(
    p: &Process, members: &impl Members, group: &Group, leader: u32, pact: Option<Result<Pact>>,
) -> Result<(Group, Block)> {
    let me = group.world_ranks()[members.rank() as usize];
    let mut news = [0; NEWS];
    let mut words = Vec::new();
    let mut failed = None;
    match pact {
        Some(Ok(pact)) => {
            let count = pact.remote.len() as u64;
            news = [0, count, pact.block.to_wire()];
            words = write_ranks(p.running()?.job, &pact.remote);
        }
        Some(Err(error)) => {
            news[0] = error.code() as u64;
            failed = Some(error);
        }
        None => {}
    }
    words::broadcast_from(members, leader, &mut news)?;
    if let Some(error) = failed {
        return Err(error);
    }
    if news[0] != 0 {
        let text = format!("rank {leader}, the leader of the local group, failed: see its error");
        return Err(Error::new(news[0] as i32, text));
    }
    words.resize(ORIGIN * news[1] as usize, 0);
    words::broadcast_from(members, leader, &mut words)?;
    let job = p.running()?.job;
    let remote = read_ranks(job, &words)?;
    require_reach(job, &remote)?;
    Ok((Group::new(remote, me), Block::from_wire(news[2])))
}

/// An intercommunicator with the first context of a block; the others are its spares.
pub(crate) fn assemble(
    p: &Process, local: Rc<Group>, remote: Rc<Group>, mut block: Block,
) -> Result<Comm> {
    let context = take_context(&mut block)?;
    let comm = join(p, context, local, remote);
    comm.spares.set(block);
    Ok(comm)
}

/// An intercommunicator of two groups. Its messages go through the first worker.
pub(super) fn join(p: &Process, context: Context, local: Rc<Group>, remote: Rc<Group>) -> Comm {
    let rank = local.rank().unwrap_or(0);
    Comm::new(p, context, local, Some(remote), rank)
}

/// Whether the local group is the first of the two, where both must agree on an order.
pub(crate) fn is_first(p: &Process, comm: &Comm) -> bool {
    let origin = |group: &Group| {
        let first = *group.world_ranks().first()?;
        Some(p.engine()?.job.origin(first as usize))
    };
    origin(&comm.group) < origin(comm.peer_group())
}

/// What the ranks 0 of both groups say, the own one's first, to all members.
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

/// The channel among the local group: its tags are those of the intercommunicator's calls, so that none is used twice.
fn next_within<'a>(p: &'a Process, comm: &'a Comm) -> Result<Channel<'a>> {
    let local = comm.find_local()?;
    Ok(Channel::tagged(p, local, Channel::take_tag(comm)))
}

/// Returns when all members of both groups have called it.
pub(super) fn synchronize(p: &Process, comm: &Comm) -> Result {
    words::synchronize(&next_within(p, comm)?)?;
    exchange_words(p, comm, &[0], 1).map(|_| ())
}

/// More contexts for duplicates, by rank 0 of the first group.
pub(super) fn refill_spares(p: &Process, comm: &Comm) -> Result<Block> {
    let first = is_first(p, comm);
    let leads = first && comm.rank == 0;
    let own = match leads {
        true => p.contexts.reserve(comm.my_world_rank()),
        false => Block::EMPTY,
    };
    let (ours, theirs) = exchange_words(p, comm, &[own.to_wire()], 1)?;
    let words = if first { ours } else { theirs };
    Ok(Block::from_wire(words[0]))
}

/// `MPI_Intercomm_merge`: the group that says `high` comes last.
///
/// # Errors
/// `MPI_ERR_COMM` for an intracommunicator.
pub fn merge(p: &Process, comm: &Comm, high: bool) -> Result<usize> {
    comm.remote()?;
    let context = take_spare(p, comm)?;
    let (ours, theirs) = exchange_words(p, comm, &[high.into()], 1)?;
    // Where both say the same the first group comes first.
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
    let mut made = derive(p, comm, context, Rc::new(group));
    settle(p, &mut made)?;
    publish(p, made)
}

/// `MPI_Comm_split` of an intercommunicator: members of one color on both sides; `MPI_COMM_NULL` where the other group
/// has none of that color.
pub(super) fn split(p: &Process, comm: &Comm, color: i32, key: i32) -> Result<usize> {
    let me = comm.my_world_rank();
    let own = match color {
        MPI_UNDEFINED => Block::EMPTY,
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

/// Color, key and block of all members of both groups.
fn exchange_colors(
    p: &Process, comm: &Comm, color: i32, key: i32, own: Block,
) -> Result<(Colors, Colors)> {
    let mine = [(color as u32 as u64) << 32 | u64::from(key as u32), own.to_wire()];
    let here = words::gather_all(&next_within(p, comm)?, mine)?;
    let words: Vec<u64> = here.iter().flatten().copied().collect();
    let (_, theirs) = exchange_words(p, comm, &words, 2 * comm.peer_count() as usize)?;
    let there = theirs.chunks_exact(2).map(|pair| [pair[0], pair[1]]);
    Ok((here, there.collect()))
}

/// The groups of one color, and the block of the one that leads: the first of the first group.
fn choose_members(
    p: &Process, comm: &Comm, color: i32, here: &[[u64; 2]], there: &[[u64; 2]],
) -> Option<(Group, Group, Block)> {
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
        true => Block::from_wire(here[near as usize][1]),
        false => Block::from_wire(there[far as usize][1]),
    };
    let me = comm.my_world_rank();
    Some((Group::new(local, me), Group::new(remote, me), block))
}

/// `MPI_Comm_create` of an intercommunicator.
pub(super) fn create_part(p: &Process, comm: &Comm, group: &Group) -> Result<usize> {
    // Nobody has this color without being in the group.
    match group.rank() {
        Some(rank) => split(p, comm, 0, rank as i32),
        None => split(p, comm, MPI_UNDEFINED, 0),
    }
}
