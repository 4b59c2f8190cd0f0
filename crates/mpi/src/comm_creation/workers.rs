//! Which of the process's workers carry the messages of a new communicator.

use crate::coll::words;
use crate::common::error::Result;
use crate::common::places;
use crate::objects::comm::Comm;
use crate::objects::comm::spread::{self, Spread};
use crate::p2p::channel::Channel;
use crate::process::Process;
use fastpath_bootstrap::segment::FURTHER;
use fastpath_protocol::Endpoint;

/// Gives a new communicator its place, and makes the worker there if it does not exist yet. Returns how many further
/// workers each of its members has.
///
/// # Errors
/// There is no address space for it.
pub(crate) fn settle(p: &Process, comm: &mut Comm) -> Result<u32> {
    let peers = comm.remote_group.iter().flat_map(|group| group.world_ranks());
    let members: Vec<u32> = comm.group.world_ranks().iter().chain(peers).copied().collect();
    if !places::are_offered() || members.len() < 2 {
        return Ok(0);
    }
    let engine = p.running()?;
    let further = places::count_common(engine.job, engine.worker(), p.call.get(), &members);
    if further == 0 {
        return Ok(0);
    }
    let (leader, counter) = comm.context.origin();
    let place = 1 + leader.wrapping_add(counter) % further;
    places::make(p.worker()?, place, true)?;
    comm.place = place;
    let peers = comm.peer_group().world_ranks().iter();
    let endpoints: Box<[*mut Endpoint]> =
        peers.filter_map(|&peer| p.endpoint_at(place, peer)).collect();
    comm.own_endpoints = Some(endpoints);
    Ok(further)
}

/// Spreads the messages of a new communicator, which has its place and its hints, if all members promise what that
/// needs. All of them make the call; `further` is how many further workers each has.
///
/// # Errors
/// There is no address space for the workers; those of communication.
pub(crate) fn settle_spread(p: &Process, comm: &mut Comm, further: u32) -> Result {
    if comm.place == 0 || further < 2 {
        return Ok(());
    }
    let mine = spread::find_promises(&comm.hints.borrow());
    let all = words::gather_all(&Channel::next(p, comm), [mine])?;
    let promised = all.iter().fold(mine, |common, [one]| common & one);
    if promised == 0 {
        return Ok(());
    }
    let peers = comm.group.world_ranks();
    let mut endpoints = Vec::new();
    for place in 1..=further.min(FURTHER as u32) {
        // Any thread's: biased to none until one has come to it often, so that a look at an unused one needs no fence.
        places::make(p.worker()?, place, false)?;
        let of_place = peers.iter().filter_map(|&peer| p.endpoint_at(place, peer));
        endpoints.push(of_place.collect());
    }
    comm.spread = Some(Box::new(Spread::new(promised, comm.rank, endpoints)));
    Ok(())
}
