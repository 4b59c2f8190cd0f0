//! Buffers of buffered sends: attached, detached, and flushed.
#![allow(unsafe_code)]

use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::common::places;
use crate::common::status::Status;
use crate::objects::attached::{Attached, BufferCell};
use crate::objects::datatype::name_special;
use crate::p2p::request::{self, Operation};
use crate::p2p::slow::{self, charged_to};
use crate::process::Process;
use fastpath_protocol::RequestId;
use std::cell::Cell;

/// Which buffer a call is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// `MPI_Buffer_attach`.
    Process,
    /// `MPI_Comm_attach_buffer`, by the communicator's handle.
    Comm(usize),
    /// `MPI_Session_attach_buffer`, by the session's handle.
    Session(usize),
}

/// Does something with the place of a buffer.
fn at_place<T>(p: &Process, owner: Owner, act: impl FnOnce(&BufferCell) -> Result<T>) -> Result<T> {
    match owner {
        Owner::Process => {
            // The process is a variable of the library; its buffer is never given back.
            let process = std::ptr::from_ref(&p.attached);
            // SAFETY: a reference that is used within this call alone, or by copies of the process that MPI runs in.
            act(&Cell::new(Some(unsafe { &*process })))
        }
        Owner::Comm(comm) => act(&p.comm(comm)?.buffer),
        Owner::Session(session) => act(&p.sessions.find(session)?.buffer),
    }
}

fn find(p: &Process, owner: Owner) -> Result<&'static Attached> {
    let attached = at_place(p, owner, |place| Ok(place.get()))?;
    attached
        .filter(|attached| attached.is_attached.get())
        .ok_or_else(|| Error::new(MPI_ERR_BUFFER, "no buffer is attached"))
}

/// `MPI_Buffer_attach` and its like.
///
/// # Errors
/// `MPI_ERR_BUFFER` where one is attached already, `MPI_ERR_ARG` for a negative size.
pub fn attach(p: &Process, owner: Owner, address: usize, size: i64) -> Result {
    if size < 0 && address != MPI_BUFFER_AUTOMATIC {
        return Err(Error::new(MPI_ERR_ARG, format!("the size {size} is negative")));
    }
    if address == MPI_IN_PLACE || (address == 0 && size > 0) {
        let text =
            format!("{size} bytes at an address that is {}", name_special(address as *const u8));
        return Err(Error::new(MPI_ERR_BUFFER, text));
    }
    at_place(p, owner, |place| {
        let attached = place.get().unwrap_or_else(|| p.spare_buffers.take());
        if attached.is_attached.get() {
            return Err(Error::new(
                MPI_ERR_BUFFER,
                "a buffer is attached already: detach it first",
            ));
        }
        attached.address.set(address);
        attached.size.set(size);
        attached.is_attached.set(true);
        place.set(Some(attached));
        Ok(())
    })
}

/// `MPI_Buffer_detach` and its like: waits until all messages have left; returns address and size.
///
/// # Errors
/// `MPI_ERR_BUFFER` where none is attached.
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

/// `MPI_Buffer_flush` and its like: waits until all messages have left. Without a buffer there are none.
///
/// # Errors
/// `MPI_ERR_COMM`, `MPI_ERR_SESSION` for an invalid handle.
pub fn flush(p: &Process, owner: Owner) -> Result {
    let attached = at_place(p, owner, |place| Ok(place.get()))?;
    attached.map_or(Ok(()), |attached| drain(p, attached))
}

/// Waits until all messages of an object that goes have left.
pub(crate) fn drain_place(p: &Process, place: &BufferCell) -> Result {
    place.get().map_or(Ok(()), |attached| drain(p, attached))
}

fn drain(p: &Process, attached: &Attached) -> Result {
    let is_empty = || attached.used() <= 0;
    if is_empty() {
        return Ok(());
    }
    slow::wait_on_workers(p, (0, attached.used() as u64), || {
        for (_, worker) in p.workers().filter(|_| !is_empty()) {
            // The receiver may have left.
            // SAFETY: the worker lives while MPI runs, and no reference to it is held.
            unsafe { (*worker).end_detached(|_, _| false) };
        }
        is_empty()
    })
}

/// The messages of a buffer that had not left when a call asked for them: place of the worker, request, handle.
struct Flush(Vec<(u32, RequestId, u32)>);

/// `MPI_Buffer_iflush` and its like: a request that is complete when all messages which are in the buffer now have
/// left.
///
/// # Errors
/// `MPI_ERR_COMM`, `MPI_ERR_SESSION` for an invalid handle.
pub fn iflush(p: &Process, owner: Owner) -> Result<usize> {
    let Some(attached) = at_place(p, owner, |place| Ok(place.get()))? else {
        return request::completed_request(p);
    };
    let mut under_way = Vec::new();
    for (place, worker) in p.workers() {
        let _within = places::within(place);
        // SAFETY: the worker lives while MPI runs, and the caller is inside.
        let requests = unsafe { &(*worker).requests };
        let copies = requests.in_use().filter(|r| r.owned && r.charged);
        // SAFETY: a charged copy was made by `send`.
        let own = copies.filter(|r| std::ptr::eq(unsafe { charged_to(r) }, attached));
        under_way.extend(own.map(|request| (place, request.id(), request.handle)));
    }
    request::make_operation(p, Box::new(Flush(under_way)))
}

impl Operation<Process> for Flush {
    fn poll(&mut self, p: &Process) -> Option<Result<Status>> {
        self.0.retain(|&(place, id, handle)| {
            let _within = places::within(place);
            let Ok(worker) = p.worker_at(place) else {
                return false;
            };
            // SAFETY: the worker lives while MPI runs, and the caller is inside.
            let worker = unsafe { &mut *worker };
            // The receiver may have left.
            worker.end_detached(|_, _| false);
            let request = worker.requests.get(id);
            request.handle == handle && request.owned && request.charged
        });
        let ended = self.0.is_empty();
        ended.then(|| Ok(request::empty_status()))
    }

    fn places(&self, _: &Process) -> u32 {
        self.0.iter().fold(1, |mask, (place, ..)| mask | 1 << place)
    }
}
