//! Messages from and to device memory, by copies in host memory.
#![allow(unsafe_code)]

use crate::common::error::Result;
use crate::objects::arguments::CheckedArguments;
use crate::objects::message_copy::MessageCopy;
use crate::objects::staging::Staging;
use crate::process::Process;
use fastpath_base::device;
use fastpath_protocol::buffer::Buffer;
use fastpath_protocol::request::RequestKind;
use fastpath_protocol::{Request, RequestId};
use std::rc::Rc;

/// Returns the buffer of a message, and its copy if the program's buffer is in device memory. Errors: the memory cannot
/// be used.
#[inline]
pub(crate) fn stage(p: &Process, buffer: Buffer) -> Result<(Buffer, Option<Rc<MessageCopy>>)> {
    match device::may_appear() {
        true => stage_slow(p, buffer),
        false => Ok((buffer, None)),
    }
}

#[cold]
fn stage_slow(p: &Process, buffer: Buffer) -> Result<(Buffer, Option<Rc<MessageCopy>>)> {
    let copy = match p.checks() {
        None => MessageCopy::make(&buffer)?,
        // The layout of a message with a record has places in memory.
        Some(_) => MessageCopy::make_whole(&buffer)?,
    };
    Ok(match copy {
        Some(copy) => (copy.buffer(), Some(Rc::new(copy))),
        None => (buffer, None),
    })
}

/// Replaces a copy in pieces by a whole one, for a message whose parts are sent or received separately.
/// Errors: see [`stage`].
pub(crate) fn stage_whole(checked: &mut CheckedArguments) -> Result {
    if checked.staging.as_ref().is_some_and(|copy| copy.whole().is_none()) {
        let buffer = Buffer::contiguous(checked.buffer.ptr, checked.buffer.bytes);
        if let Some(copy) = MessageCopy::make_whole(&buffer)? {
            (checked.buffer, checked.staging) = (copy.buffer(), Some(Rc::new(copy)));
        }
    }
    Ok(())
}

/// Returns the whole copy of a message, if the program's buffer is in device memory.
pub(crate) fn whole(checked: &CheckedArguments) -> Option<&Staging> {
    checked.staging.as_ref().and_then(|copy| copy.whole())
}

/// Ends the packing of a send whose data has been copied elsewhere. Errors: the driver failed.
pub(crate) fn finish_send(checked: &CheckedArguments) -> Result {
    checked.staging.as_ref().map_or(Ok(()), |copy| copy.finish_send())
}

/// Returns a part of a copy as the buffer of a message: `bytes` bytes from byte `from` on.
pub(crate) fn part(staging: &Staging, from: u64, bytes: u64) -> Buffer {
    Buffer::contiguous(staging.address().wrapping_add(from as usize), bytes)
}

/// Copies the data of a send from device memory. Errors: the driver failed.
#[inline]
pub(crate) fn load(checked: &CheckedArguments) -> Result {
    checked.staging.as_ref().map_or(Ok(()), |staging| staging.load())
}

/// Keeps the copy of a message until its request has ended.
#[inline]
pub(crate) fn keep(p: &Process, id: RequestId, checked: &CheckedArguments) {
    if let Some(staging) = &checked.staging {
        p.staged.keep(id, staging);
    }
}

/// Drops the copy of a request that is dropped.
#[cold]
pub(crate) fn forget(p: &Process, id: RequestId) {
    drop(p.staged.take(id));
}

/// Ends the copy of a request that has ended: stores the data of a receive to device memory. Errors: the driver failed.
#[inline]
pub(crate) fn settle(p: &Process, id: RequestId) -> Result {
    match device::may_appear() {
        true => settle_slow(p, id),
        false => Ok(()),
    }
}

#[cold]
fn settle_slow(p: &Process, id: RequestId) -> Result {
    let Some(staging) = p.staged.take(id) else { return Ok(()) };
    // SAFETY: the worker lives while MPI runs, and the caller is inside MPI.
    let request = unsafe { (*p.worker()?).requests.get(id) };
    match request.kind {
        _ if request.cancelled => Ok(()),
        RequestKind::Recv => staging.store(request.received),
        _ => staging.finish_send(),
    }
}

/// Stores the data of a receive whose request the program has freed, and drops the copy. An error of the driver has no
/// call that could return it.
pub(crate) fn release(p: &Process, request: &Request) {
    if let Some(staging) = p.staged.take(request.id())
        && request.kind == RequestKind::Recv
        && !request.cancelled
    {
        let _ = staging.store(request.received);
    }
}
