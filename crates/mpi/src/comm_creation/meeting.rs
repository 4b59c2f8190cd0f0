//! Communicators from groups whose members share no communicator yet.

use crate::coll::fabric::Fabric;
use crate::coll::words;
use crate::comm_creation::inter::{self, Bridge};
use crate::comm_creation::{create, publish};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::objects::comm::Comm;
use crate::objects::comm::contexts::ContextBlock;
use crate::objects::group::Group;
use crate::p2p::channel::Channel;
use crate::process::Process;
use crate::process::errhandler::{HandlerKind, check_errhandler};
use fastpath_protocol::tag::Context;
use std::rc::Rc;

/// Purpose of a meeting. It distinguishes several meetings of one call.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    Comm = 1,
    Side = 2,
    Leaders = 3,
    Parent = 4,
    Port = 5,
    Join = 6,
}

/// Temporary communicator of the members of a group, without a handle, and a mark that identifies the meeting.
pub(crate) struct Meeting {
    comm: Comm,
    /// Hash of the program's string, the purpose and the members.
    mark: u64,
}

impl Meeting {
    /// Makes the meeting of `group`; all members pass the same text.
    pub fn new(p: &Process, group: Rc<Group>, text: &[u8], purpose: Purpose) -> Self {
        // FNV-1a hash, 64 bits.
        let mut mark = 0xcbf2_9ce4_8422_2325_u64;
        let job = p.engine().map(|engine| engine.job);
        let ranks = group.world_ranks().iter();
        let ranks = ranks.flat_map(|&rank| {
            let origin = job.map_or((0, rank), |job| {
                let origin = job.origin(rank as usize);
                (origin.job, origin.rank)
            });
            [origin.0, u64::from(origin.1)].map(u64::to_le_bytes)
        });
        let ranks = ranks.flatten();
        let bytes = text.iter().copied().chain([0, purpose as u8]).chain(ranks);
        bytes.for_each(|byte| mark = (mark ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        let rank = group.rank().unwrap_or(0);
        Meeting { comm: Comm::new(p, Context::SESSIONS, group, None, rank), mark }
    }

    /// Makes the meeting of this process with one other process. Returns that process's rank in the meeting.
    pub fn of_pair(
        p: &Process, (me, there): (u32, u32), text: &[u8], purpose: Purpose,
    ) -> (Self, u32) {
        let origin = |rank: u32| p.engine().map(|engine| engine.job.origin(rank as usize));
        // Both processes compute the same order.
        let pair = match origin(me) < origin(there) {
            true => vec![me, there],
            false => vec![there, me],
        };
        let other = u32::from(pair[0] == me);
        let meeting = Meeting::new(p, Rc::new(Group::new(pair, me)), text, purpose);
        (meeting, other)
    }

    pub fn mark(&self) -> u64 {
        self.mark
    }

    /// Returns the channel to the other members.
    pub fn channel<'a>(&'a self, p: &'a Process) -> Channel<'a> {
        let tag = (self.mark ^ self.mark >> 32) as i32 & i32::MAX;
        Channel::tagged(p, &self.comm, tag)
    }

    /// Checks another member's mark. Two concurrent meetings of the same processes may have the same tag by chance.
    pub fn check(&self, mark: u64) -> Result {
        match mark == self.mark {
            true => Ok(()),
            false => Err(Error::new(
                MPI_ERR_OTHER,
                "another communicator is being created from the same processes at the same time, \
                 and the string tags of both are too similar: choose another string tag",
            )),
        }
    }
}

/// `MPI_Comm_create_from_group`: returns `MPI_COMM_NULL` for an empty group. Errors: `MPI_ERR_ERRHANDLER`;
/// `MPI_ERR_GROUP` if the process is no member.
pub fn create_from_group(
    p: &Process, group: &Rc<Group>, text: &[u8], errhandler: usize,
) -> Result<usize> {
    check_errhandler(p, HandlerKind::Comm, errhandler)?;
    if group.size() == 0 {
        return Ok(MPI_COMM_NULL);
    }
    require_member(group, "the group")?;
    let meeting = Meeting::new(p, group.clone(), text, Purpose::Comm);
    let leader = group.world_ranks()[0];
    let members = meeting.channel(p);
    let own = match members.rank() {
        0 => p.contexts.reserve(leader),
        _ => ContextBlock::EMPTY,
    };
    let mut words = [own.to_wire(), meeting.mark];
    words::broadcast_from(&members, 0, &mut words)?;
    meeting.check(words[1])?;
    let mut block = ContextBlock::from_wire(words[0]);
    let context = create::take_context(&mut block)?;
    let made = Comm::new(p, context, group.clone(), None, meeting.comm.rank);
    made.spares.set(block);
    made.errhandler.set(errhandler);
    publish(p, made)
}

fn require_member(group: &Group, name: &str) -> Result {
    match group.rank() {
        Some(_) => Ok(()),
        None => Err(Error::new(MPI_ERR_GROUP, format!("this process is not in {name}"))
            .with_advice(Some("make the call only on the members of the group"))),
    }
}

fn find_leader(group: &Group, leader: i32, side: &str) -> Result<u32> {
    let found = usize::try_from(leader).ok().and_then(|leader| group.world_ranks().get(leader));
    found.copied().ok_or_else(|| {
        let size = group.size();
        let text = format!(
            "the {side} leader {leader} is not a rank of the {side} group, which has {size} \
             processes"
        );
        Error::new(MPI_ERR_RANK, text).with_advice(Some("pass a rank of that group"))
    })
}

/// `MPI_Intercomm_create_from_groups`. The remote group and its leader are significant only at the local leader.
/// Errors: `MPI_ERR_ERRHANDLER`; `MPI_ERR_GROUP` if the process is not in the local group; `MPI_ERR_RANK` for an
/// unknown leader; `MPI_ERR_COMM` if the groups overlap.
pub fn create_inter_from_groups(
    p: &Process, (local, local_leader): (&Rc<Group>, i32), (remote, remote_leader): (usize, i32),
    text: &[u8], errhandler: usize,
) -> Result<usize> {
    check_errhandler(p, HandlerKind::Comm, errhandler)?;
    require_member(local, "the local group")?;
    let leader = find_leader(local, local_leader, "local")?;
    let side = Meeting::new(p, local.clone(), text, Purpose::Side);
    let me = side.comm.my_world_rank();
    let pact = (leader == me).then(|| {
        let there = find_leader(&*p.group(remote)?, remote_leader, "remote")?;
        let (bridge, leader) = Meeting::of_pair(p, (me, there), text, Purpose::Leaders);
        let channel = bridge.channel(p);
        inter::greet(p, local, Bridge { channel, leader })
    });
    let members = side.channel(p);
    let leader = local_leader as u32;
    let (remote, block) = inter::pass_on(p, &members, local, leader, pact)?;
    let made = inter::assemble(p, local.clone(), Rc::new(remote), block)?;
    made.errhandler.set(errhandler);
    publish(p, made)
}
