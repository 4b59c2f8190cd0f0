//! Messages from and to device memory, by copies in host memory.
#![allow(unsafe_code)]

use crate::common::error::Result;
use crate::objects::arguments::CheckedArguments;
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
pub(crate) fn stage(buffer: Buffer) -> Result<(Buffer, Option<Rc<Staging>>)> {
    match device::may_appear() {
        true => stage_slow(buffer),
        false => Ok((buffer, None)),
    }
}

#[cold]
fn stage_slow(buffer: Buffer) -> Result<(Buffer, Option<Rc<Staging>>)> {
    Ok(match Staging::packed(&buffer)? {
        Some(staging) => (staging.buffer(), Some(Rc::new(staging))),
        None => (buffer, None),
    })
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

/// Stores the data of a receive that has ended to device memory, and drops the copy. Errors: the driver failed.
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
    match request.kind == RequestKind::Recv && !request.cancelled {
        true => staging.store(request.received),
        false => Ok(()),
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
