//! Sends and receives whose messages begin with a record (`FASTPATH_CHECK`).
#![allow(unsafe_code)]

use super::*;
use crate::check::CheckedMessage;
use crate::process::Runtime;
use fastpath_protocol::request::RequestKind;

/// Starts a send with a record before the data; see [`start_send`].
#[cold]
#[inline(never)]
pub(super) unsafe fn start_watched_send(
    p: &Process, checked: &CheckedArguments, args: &Args, mode: Mode,
) -> Result<StartOutcome> {
    refuse_settled(p, checked, args)?;
    let (watched, buffer) = watch(p, args, RequestKind::Send, checked)?;
    // SAFETY: the buffer is readable until the request completes, by contract, and the record lives as long.
    let started = unsafe { post_send(p, checked, buffer, args, mode)? };
    if let StartOutcome::Request(id) = started {
        keep(p, id, watched);
    }
    Ok(started)
}

/// With checks, refuses a send to a rank that waits in `MPI_Finalize` for the messages of other ranks. Without checks,
/// that rank would already have left the job.
pub(super) fn refuse_settled(p: &Process, checked: &CheckedArguments, args: &Args) -> Result {
    let peer = checked.comm.peer_group().world_ranks()[args.peer as usize];
    // SAFETY: the worker lives while MPI runs.
    match p.checks().is_some() && unsafe { (*p.worker()?).is_settled(peer) } {
        true => Err(explain(Fault::PeerGone, args, checked.buffer.bytes, 0)),
        false => Ok(()),
    }
}

/// Starts a receive with memory for a record before the data; see [`start_recv`].
#[cold]
#[inline(never)]
pub(super) unsafe fn start_watched_recv(
    p: &Process, checked: &CheckedArguments, args: &Args,
) -> Result<RequestId> {
    let (watched, buffer) = watch(p, args, RequestKind::Recv, checked)?;
    // SAFETY: the buffer is writable until the request completes, by contract, and the record lives as long.
    let id = unsafe { post_recv::<false>(p, checked, buffer, args)? };
    keep(p, id, watched);
    Ok(id)
}

/// Returns the buffer of a message. With checks, the buffer begins with a record, which the caller passes to [`keep`].
pub(crate) fn watch(
    p: &Process, args: &Args, kind: RequestKind, checked: &CheckedArguments,
) -> Result<(Option<CheckedMessage>, Buffer)> {
    match (p.checks(), &checked.datatype) {
        (Some(checks), Some(datatype)) => {
            let data = (datatype, args.count as u64);
            let (watched, buffer) = checks.watch(p.call.get(), kind, data, &checked.buffer)?;
            Ok((Some(watched), buffer))
        }
        _ => Ok((None, checked.buffer.clone())),
    }
}

#[inline]
pub(crate) fn keep(p: &Process, id: RequestId, watched: Option<CheckedMessage>) {
    if let (Some(checks), Some(watched)) = (p.checks(), watched) {
        checks.keep(id, watched);
    }
}

/// Removes the record from a request that has ended, and compares it. Then stores received data to device memory.
/// Errors: the data could not be stored.
#[inline]
pub(crate) fn settle(p: &Process, id: RequestId) -> Result {
    if let (Some(checks), Ok(worker)) = (p.checks(), p.worker()) {
        checks.settle(worker, id);
    }
    staged::settle(p, id)
}

#[cold]
pub(super) fn record_bytes(p: &Process) -> u64 {
    p.engine().map_or(0, Runtime::record_bytes)
}
