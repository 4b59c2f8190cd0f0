//! Buffers of buffered sends: attach, detach and flush.
#![allow(unsafe_code)]

use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::common::status::Status;
use crate::objects::attached::{AttachedBuffer, BufferCell};
use crate::objects::datatype::name_special;
use crate::objects::staging::refuse_device;
use crate::p2p::request::{self, Operation};
use crate::p2p::slow::{self, charged_to};
use crate::process::Process;
use fastpath_protocol::RequestId;
use fastpath_segment::AwaitedRanks;
use std::cell::Cell;

/// Object that a buffer is attached to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// `MPI_Buffer_attach`.
    Process,
    /// `MPI_Comm_attach_buffer`, by the communicator's handle.
    Comm(usize),
    /// `MPI_Session_attach_buffer`, by the session's handle.
    Session(usize),
}

/// Calls `act` with the cell that holds the attached buffer of `owner`.
fn at_place<T>(p: &Process, owner: Owner, act: impl FnOnce(&BufferCell) -> Result<T>) -> Result<T> {
    match owner {
        Owner::Process => {
            // The process is a static of the library, and its buffer is never freed.
            let process = std::ptr::from_ref(&p.attached);
            // SAFETY: the reference is used only within this call, or by copies made by the static process.
            act(&Cell::new(Some(unsafe { &*process })))
        }
        Owner::Comm(comm) => act(&p.comm(comm)?.buffer),
        Owner::Session(session) => act(&p.sessions.find(session)?.buffer),
    }
}

fn find(p: &Process, owner: Owner) -> Result<&'static AttachedBuffer> {
    let attached = at_place(p, owner, |place| Ok(place.get()))?;
    attached.filter(|attached| attached.is_attached.get()).ok_or_else(|| {
        let error = Error::new(MPI_ERR_BUFFER, "no buffer is attached");
        error.with_advice(Some("call MPI_Buffer_attach first"))
    })
}

/// `MPI_Buffer_attach` and similar calls. Errors: `MPI_ERR_BUFFER` if there is a buffer, `MPI_ERR_ARG` if `size` < 0.
pub fn attach(p: &Process, owner: Owner, address: usize, size: i64) -> Result {
    if size < 0 && address != MPI_BUFFER_AUTOMATIC {
        return Err(Error::new(
            MPI_ERR_ARG,
            format!("the size {size} is negative: pass 0 or more"),
        ));
    }
    if address != MPI_BUFFER_AUTOMATIC && size > 0 {
        refuse_device(std::ptr::with_exposed_provenance_mut(address))?;
    }
    if address == MPI_IN_PLACE || (address == 0 && size > 0) {
        let text = format!(
            "the address of the {size} bytes is {}, which is not memory",
            name_special(address as *const u8)
        );
        return Err(Error::new(MPI_ERR_BUFFER, text));
    }
    at_place(p, owner, |place| {
        let attached = place.get().unwrap_or_else(|| p.spare_buffers.take());
        if attached.is_attached.get() {
            let error = Error::new(MPI_ERR_BUFFER, "a buffer is attached already");
            return Err(
                error.with_advice(Some("detach the attached buffer first, by MPI_Buffer_detach"))
            );
        }
        attached.address.set(address);
        attached.size.set(size);
        attached.is_attached.set(true);
        place.set(Some(attached));
        Ok(())
    })
}

/// `MPI_Buffer_detach` and similar calls: waits until all messages have left, and returns the buffer's address and
/// size. Errors: `MPI_ERR_BUFFER` if no buffer is attached.
pub fn detach(p: &Process, owner: Owner) -> Result<(usize, i64)> {
    let attached = find(p, owner)?;
    drain(p, attached)?;
    attached.is_attached.set(false);
    let size = match attached.is_automatic() {
        true => 0,
        false => attached.size.get(),
    };
    attached.size.set(0);
    Ok((attached.address.replace(0), size))
}

/// `MPI_Buffer_flush` and similar calls: waits until all messages have left. Does nothing without a buffer. Errors:
/// `MPI_ERR_COMM`, `MPI_ERR_SESSION` for an invalid handle.
pub fn flush(p: &Process, owner: Owner) -> Result {
    let attached = at_place(p, owner, |place| Ok(place.get()))?;
    attached.map_or(Ok(()), |attached| drain(p, attached))
}

/// Waits until all messages of an object that is being freed have left.
pub(crate) fn drain_place(p: &Process, place: &BufferCell) -> Result {
    place.get().map_or(Ok(()), |attached| drain(p, attached))
}

fn drain(p: &Process, attached: &AttachedBuffer) -> Result {
    let is_empty = || attached.used() <= 0;
    if is_empty() {
        return Ok(());
    }
    slow::wait_until(p, (0, attached.used() as u64), AwaitedRanks::UNKNOWN, false, |worker| {
        if !is_empty() {
            // A receiver that has left the job takes no message, so the messages to it end here.
            worker.end_detached(|_, _| false);
        }
        is_empty()
    })
}

/// Buffered messages that had not left when `MPI_Buffer_iflush` was called: request and handle of each.
struct Flush(Vec<(RequestId, u32)>);

/// `MPI_Buffer_iflush` and similar calls: returns a request for the departure of all messages now in the buffer.
/// Errors: `MPI_ERR_COMM`, `MPI_ERR_SESSION` for an invalid handle.
pub fn iflush(p: &Process, owner: Owner) -> Result<usize> {
    let Some(attached) = at_place(p, owner, |place| Ok(place.get()))? else {
        return request::completed_request(p);
    };
    // SAFETY: the worker lives while MPI runs, and the caller is inside.
    let requests = unsafe { &(*p.worker()?).requests };
    let copies = requests.in_use().filter(|r| r.owned && r.charged);
    // SAFETY: `copied::send` made the buffer of a charged request, as `charged_to` requires.
    let own = copies.filter(|r| std::ptr::eq(unsafe { charged_to(r) }, attached));
    let under_way = own.map(|request| (request.id(), request.handle)).collect();
    request::make_operation(p, Box::new(Flush(under_way)))
}

impl Operation<Process> for Flush {
    fn poll(&mut self, p: &Process) -> Option<Result<Status>> {
        let Ok(worker) = p.worker() else {
            return Some(Ok(request::empty_status()));
        };
        // SAFETY: the worker lives while MPI runs, and the caller is inside.
        let worker = unsafe { &mut *worker };
        self.0.retain(|&(id, handle)| {
            // A receiver that has left the job takes no message, so the messages to it end here.
            worker.end_detached(|_, _| false);
            let request = worker.requests.get(id);
            request.handle == handle && request.owned && request.charged
        });
        let ended = self.0.is_empty();
        ended.then(|| Ok(request::empty_status()))
    }
}
