//! Waits for an operation of this layer, step by step: each for the request that it waits for.
#![allow(unsafe_code)]

use super::{Extra, Watch, pool_of};
use crate::common::error::Result;
use crate::process::{self, Engine, Process};
use fastpath_bootstrap::segment::Awaited;
use fastpath_protocol::matching::ANY_PEER;
use fastpath_protocol::waiting::{Note, Title};
use fastpath_protocol::{RequestId, State, Worker};

/// In [`Note::comm`]: the index of an operation rather than the handle of a communicator.
pub(super) const OPERATION: usize = 1 << 63;

/// See [`Worker::name_wait`].
pub(crate) fn name_wait(handle: usize, peer: Option<u32>) -> Title {
    // SAFETY: called by a thread that holds the lock, from a wait.
    let p = unsafe { process::get_unlocked() };
    let added = p.engine().map_or(0, Engine::record_bytes);
    if handle & OPERATION == 0 {
        let comm = p.comm_of_request(handle).map(|comm| comm.title());
        return Title { comm: comm.unwrap_or_default(), added, ..Title::default() };
    }
    let slots = p.extras.slots();
    let Some(Some(Extra::Operation { poll: Some(operation), .. })) = slots.get(handle & !OPERATION)
    else {
        return Title { added, ..Title::default() };
    };
    let comm = operation.comm().and_then(|comm| p.comm_of_request(comm));
    // Of two groups the peer may be in one's own.
    let found = peer.zip(comm).and_then(|(peer, comm)| {
        let ranks = comm.peer_group().world_ranks();
        let rank = ranks.iter().position(|&rank| rank == peer)?;
        Some((rank as i32, comm.title()))
    });
    let (peer, comm) = found.unzip();
    Title { comm: comm.unwrap_or_default(), began: operation.began(), peer, added }
}

/// The request with a known peer that an operation waits for, if it waits for one.
pub(super) fn awaited_request(p: &Process, index: usize) -> Result<Option<RequestId>> {
    let id = match p.extras.slots().get(index) {
        Some(Some(Extra::Operation { watch: Watch::Request(id), .. })) => *id,
        _ => return Ok(None),
    };
    // SAFETY: INSIDE (`workers`).
    let peer = unsafe { (*pool_of(p, id)?).get(id).peer };
    Ok((peer != ANY_PEER).then_some(id))
}

/// Waits until an operation, which waits for that request, has gone on or can; its peer is looked at first.
pub(super) fn await_step(p: &Process, call: &'static str, index: usize, id: RequestId) -> Result {
    let worker = p.worker()?;
    let polls = || match p.extras.slots().get(index) {
        Some(Some(Extra::Operation { polls, .. })) => Some(*polls),
        _ => None,
    };
    // SAFETY: the worker lives while MPI runs.
    let request = unsafe { (*worker).requests.get(id) };
    // Where mistakes are looked for, the step may be the comparison of the ranks' calls.
    let bytes = if p.checks().is_some() { 0 } else { request.bytes };
    let (peer, before) = (request.peer, polls());
    let note = Note {
        call,
        peer: -1,
        tag: -1,
        comm: OPERATION | index,
        bytes,
        awaited: Awaited::of(&[peer]),
        naps: false,
    };
    // SAFETY: the worker lives while MPI runs; no reference to it is held across the wait.
    unsafe {
        Worker::wait_until(worker, Some(peer), &note, |w| {
            polls() != before || w.requests.get(id).state == State::Complete || w.give_up(id, peer)
        });
    }
    Ok(())
}
