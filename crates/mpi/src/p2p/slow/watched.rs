//! Sends and receives whose messages begin with a record, where mistakes are looked for (`FASTPATH_CHECK`).
#![allow(unsafe_code)]

use super::*;
use crate::check::Watched;
use crate::process::Engine;
use fastpath_protocol::request::RequestKind;

/// As [`start_send`], with a record before the data.
#[cold]
#[inline(never)]
pub(super) unsafe fn start_watched_send(
    p: &Process, checked: &Checked, args: &Args, mode: Mode,
) -> Result<Started> {
    let (watched, buffer) = watch(p, args, RequestKind::Send, checked)?;
    // SAFETY: the buffer is readable until the request completes, by this function's contract; the record lives as long
    // as the request.
    let started = unsafe { post_send(p, checked, buffer, args, mode)? };
    if let Started::Request(id) = started {
        keep(p, id, watched);
    }
    Ok(started)
}

/// As [`start_recv`], with room for a record before the data.
#[cold]
#[inline(never)]
pub(super) unsafe fn start_watched_recv(
    p: &Process, checked: &Checked, args: &Args,
) -> Result<RequestId> {
    let (watched, buffer) = watch(p, args, RequestKind::Recv, checked)?;
    // SAFETY: the buffer is writable until the request completes, by this function's contract; the record lives as long
    // as the request.
    let id = unsafe { post_recv::<false>(p, checked, buffer, args)? };
    keep(p, id, watched);
    Ok(id)
}

/// The buffer as it travels; where mistakes are looked for, with a record before it that [`keep`] takes.
pub(crate) fn watch(
    p: &Process, args: &Args, kind: RequestKind, checked: &Checked,
) -> Result<(Option<Watched>, Buffer)> {
    match (p.checks(), &checked.datatype) {
        (Some(checks), Some(datatype)) => {
            let data = (datatype, args.count as u64);
            let (watched, buffer) = checks.watch(p.call.get(), kind, data, &checked.buffer)?;
            Ok((Some(watched), buffer))
        }
        _ => Ok((None, checked.buffer.clone())),
    }
}

/// Keeps the record of a request.
#[inline]
pub(crate) fn keep(p: &Process, id: RequestId, watched: Option<Watched>) {
    if let (Some(checks), Some(watched)) = (p.checks(), watched) {
        checks.keep(id, watched);
    }
}

/// Takes the record off a request that has ended, and compares it.
#[inline]
pub(crate) fn settle(p: &Process, id: RequestId) {
    if let (Some(checks), Ok(worker)) = (p.checks(), p.worker()) {
        checks.settle(worker, id);
    }
}

/// Bytes that a message is longer by on its way.
#[cold]
pub(super) fn record_bytes(p: &Process) -> u64 {
    p.engine().map_or(0, Engine::record_bytes)
}
