//! Waiting for an operation that the MPI layer runs itself behind a request, such as a nonblocking collective call. The
//! wait is a sequence of steps, and each step waits for one request of the protocol layer. INSIDE is defined in
//! `request.rs`.
#![allow(unsafe_code)]

use super::{Extra, PollCondition, pool};
use crate::common::error::Result;
use crate::objects::comm::Comm;
use crate::p2p::channel::deadlock;
use crate::process::{self, Process, Runtime};
use fastpath_base::tell::FixedString;
use fastpath_protocol::matching::ANY_PEER;
use fastpath_protocol::waiting::{Note, Title};
use fastpath_protocol::{RequestId, RequestState};
use fastpath_segment::AwaitedRanks;
use std::fmt::Write;

/// Flag of [`Note::comm`]: the value is the index of an operation, not the handle of a communicator.
pub(super) const OPERATION: usize = 1 << 63;

/// Names the object of a wait; see [`Hooks::name_wait`](fastpath_protocol::worker::hooks::Hooks::name_wait).
pub(crate) fn name_wait(handle: usize, peer: Option<u32>) -> Title {
    // SAFETY: a thread that holds the lock calls this from a wait.
    let p = unsafe { process::get_unlocked() };
    let added = p.engine().map_or(0, Runtime::record_bytes);
    if handle & OPERATION == 0 {
        let comm = p.comm_of_request(handle).map(|comm| fixed_title(&comm));
        return Title { comm: comm.unwrap_or_default(), added, ..Title::default() };
    }
    let slots = p.extras.slots();
    let Some(Some(Extra::Operation { poll: Some(operation), .. })) = slots.get(handle & !OPERATION)
    else {
        return Title { added, ..Title::default() };
    };
    let comm = operation.comm().and_then(|comm| p.comm_of_request(comm));
    // A peer in the local group of an intercommunicator has no rank among the remote ranks.
    let found = peer.zip(comm).and_then(|(peer, comm)| {
        let ranks = comm.peer_group().world_ranks();
        let rank = ranks.iter().position(|&rank| rank == peer)?;
        Some((rank as i32, fixed_title(&comm)))
    });
    let (peer, comm) = found.unzip();
    Title { comm: comm.unwrap_or_default(), began: operation.began(), peer, added }
}

fn fixed_title<const N: usize>(comm: &Comm) -> FixedString<N> {
    let mut title = FixedString::default();
    let _ = comm.write_title(&mut title);
    let dead = comm.faults.failed().len();
    let _ = match comm.faults.revoked.get() {
        true => write!(title, ", revoked"),
        false if dead > 0 => write!(title, ", {dead} dead"),
        false => Ok(()),
    };
    title
}

/// Returns the request with a known peer that an operation waits for, if there is one.
pub(super) fn awaited_request(p: &Process, index: usize) -> Result<Option<RequestId>> {
    let id = match p.extras.slots().get(index) {
        Some(Some(Extra::Operation { watch: PollCondition::Request(id), .. })) => *id,
        _ => return Ok(None),
    };
    // SAFETY: INSIDE.
    let peer = unsafe { (*pool(p)?).get(id).peer };
    Ok((peer != ANY_PEER).then_some(id))
}

/// Waits until an operation that waits for request `id` has advanced or can advance. Polls the request's peer first.
pub(super) fn await_step(p: &Process, call: &'static str, index: usize, id: RequestId) -> Result {
    let worker = p.worker()?;
    let polls = || match p.extras.slots().get(index) {
        Some(Some(Extra::Operation { polls, .. })) => Some(*polls),
        _ => None,
    };
    // SAFETY: the worker lives while MPI runs.
    let request = unsafe { (*worker).requests.get(id) };
    // With checks, the step may be the comparison of the ranks' calls, which moves no bytes of the program.
    let bytes = if p.checks().is_some() { 0 } else { request.bytes };
    let (peer, before) = (request.peer, polls());
    let note = Note {
        call,
        peer: -1,
        tag: -1,
        comm: OPERATION | index,
        bytes,
        awaited: AwaitedRanks::of(&[peer]),
        naps: false,
    };
    // SAFETY: the worker lives while MPI runs; no reference to it is held across the wait.
    unsafe {
        deadlock::wait_until(p, worker, Some(peer), &note, |w| {
            polls() != before
                || w.requests.get(id).state == RequestState::Complete
                || w.give_up(id, peer)
        });
    }
    Ok(())
}
