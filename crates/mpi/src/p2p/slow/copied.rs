//! Sends from a copy: those of buffered mode, counted against the attached buffer, and those of the library.
#![allow(unsafe_code)]

use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::common::places;
use crate::objects::arguments::{Args, Checked, Mode};
use crate::objects::attached::{Attached, BufferCell};
use crate::objects::comm::Comm;
use crate::process::{self, Engine, Process};
use fastpath_base::heap::may_fail;
use fastpath_base::sync::Ordering;
use fastpath_protocol::buffer::Buffer;
use fastpath_protocol::request::RequestKind;
use fastpath_protocol::{Fault, Request, RequestId, Started, State, Worker};

/// The buffer that a message on a communicator is counted against: the communicator's own, that of the session it
/// comes from, the process's (MPI-5.0 section 3.6).
fn buffer_of(p: &Process, comm: &Comm) -> &'static Attached {
    let in_use = |place: &BufferCell| place.get().filter(|attached| attached.is_attached.get());
    let of_session = || in_use(&p.sessions.get(comm.session.get())?.buffer);
    in_use(&comm.buffer).or_else(of_session).unwrap_or_else(|| {
        let process = std::ptr::from_ref(&p.attached);
        // SAFETY: a reference that is used within this call alone, or by copies of the process that MPI runs in.
        unsafe { &*process }
    })
}

/// Bytes behind a copy: the address of what it is counted against.
const TRAILER: usize = size_of::<usize>();

/// What a copy is counted against.
///
/// # Safety
/// The request's buffer was made by [`send`].
pub(crate) unsafe fn charged_to(request: &Request) -> &'static Attached {
    // SAFETY: `send` has written the address there, of a buffer that is never given back.
    unsafe {
        let place = request.ptr.add(request.bytes as usize);
        &*place.cast::<*const Attached>().read_unaligned()
    }
}

/// Has completed copies given back.
pub(crate) fn install(p: &Process) {
    if let Ok(worker) = p.worker() {
        // SAFETY: the worker lives while MPI runs.
        unsafe { (*worker).on_detached = Some(release) };
    }
}

fn release(request: &Request) {
    // SAFETY: called inside MPI, by the thread that makes progress.
    let p = unsafe { process::get_unlocked() };
    if let Some(checks) = p.checks() {
        checks.forget(request.id());
    }
    if request.owned {
        let mut length = request.bytes as usize;
        if request.charged {
            // SAFETY: made by `send`.
            let attached = unsafe { charged_to(request) };
            attached.used.fetch_sub(cost(p, request.bytes), Ordering::Relaxed);
            length += TRAILER;
        }
        // SAFETY: `send` and `take_over` leaked a vector of exactly this length and capacity.
        drop(unsafe { Vec::from_raw_parts(request.ptr, length, length) });
    }
}

/// What a message takes of the attached buffer, by its bytes on its way.
fn cost(p: &Process, bytes: u64) -> i64 {
    let record = p.engine().map_or(0, Engine::record_bytes);
    (bytes - record) as i64 + MPI_BSEND_OVERHEAD as i64
}

/// Sends by way of a copy.
///
/// # Safety
/// The buffer is readable as its layout says.
pub(crate) unsafe fn send(p: &Process, checked: &Checked, args: &Args) -> Result<Started> {
    let (_record, buffer) = super::watch(p, args, RequestKind::Send, checked)?;
    let bytes = buffer.bytes;
    let need = cost(p, bytes);
    let place = checked.place;
    let _within = places::within(place);
    let attached = buffer_of(p, &checked.comm);
    let room = || match attached.is_automatic() {
        true => i64::MAX,
        false => attached.size.get() - attached.used(),
    };
    if room() < need {
        // SAFETY: the worker lives while MPI runs.
        unsafe { (*p.worker_at(place)?).progress_all() };
    }
    if room() < need {
        let (bytes, have) = (checked.buffer.bytes, room().max(0));
        return Err(Error::new(
            MPI_ERR_BUFFER,
            format!(
                "buffered send of {bytes} bytes needs {need} bytes of attached buffer \
                 (MPI_BSEND_OVERHEAD included), {have} are free: attach a larger one with \
                 MPI_Buffer_attach"
            ),
        ));
    }
    let length = bytes as usize + TRAILER;
    let mut copy: Vec<u8> = Vec::new();
    if may_fail(|| copy.try_reserve_exact(length)).is_err() {
        let text = format!("no memory for the copy of a message of {bytes} bytes");
        return Err(Error::new(MPI_ERR_NO_MEM, text));
    }
    // SAFETY: the user's buffer as promised; the vector has the capacity.
    unsafe {
        match &buffer.layout {
            None => fastpath_base::copy::copy(copy.as_mut_ptr(), buffer.ptr, bytes as usize),
            Some(layout) => {
                let to = std::slice::from_raw_parts_mut(copy.as_mut_ptr(), bytes as usize);
                layout.pack(buffer.ptr, buffer.count, 0, to);
            }
        }
        let behind = copy.as_mut_ptr().add(bytes as usize);
        behind.cast::<*const Attached>().write_unaligned(std::ptr::from_ref(attached));
        copy.set_len(length);
    }
    let copy = copy.into_boxed_slice();
    let copied = Buffer::contiguous(Box::into_raw(copy).cast(), bytes);
    let ptr = copied.ptr;
    let give_back = || {
        // SAFETY: made above, and no request holds it.
        drop(unsafe { Vec::from_raw_parts(ptr, length, length) });
    };
    // SAFETY: the copy lives until the request completes (`release`).
    match unsafe { super::post_send(p, checked, copied, args, Mode::Standard) } {
        Ok(Started::Done) => give_back(),
        Ok(Started::Request(id)) => {
            // SAFETY: the worker lives while MPI runs.
            let worker = unsafe { &mut *p.worker_at(place)? };
            attached.used.fetch_add(need, Ordering::Relaxed);
            match leave_to_request(worker, id, true) {
                Fault::None => {}
                fault => return Err(super::explain(fault, args, checked.buffer.bytes, 0)),
            }
        }
        Err(error) => {
            give_back();
            return Err(error);
        }
    }
    Ok(Started::Done)
}

/// Leaves a copy to the request that sends it, and forgets the request: now if it has ended already, else when it ends.
/// Says what befell it so far.
fn leave_to_request(worker: &mut Worker, id: RequestId, charged: bool) -> Fault {
    let request = worker.requests.get_mut(id);
    (request.owned, request.charged) = (true, charged);
    if request.state != State::Complete {
        request.detached = true;
        return Fault::None;
    }
    let fault = request.fault;
    release(request);
    worker.requests.free(id);
    fault
}

/// Leaves a copy of the library's own, which was given to a send, to that one (0: it has ended); `args` are those of
/// the program's call.
///
/// # Errors
/// Those of the send.
///
/// # Safety
/// `copy` is a box that was leaked; its bytes are what was sent.
pub(crate) unsafe fn leave_copy(
    p: &Process, sent: Result<RequestId>, args: &Args, copy: *mut [u8],
) -> Result {
    // SAFETY: `copy` is a box that was leaked, by this function's contract, and is given back once: by one of the ways
    // below.
    let give_back = || drop(unsafe { Box::from_raw(copy) });
    let id = match sent {
        Ok(id) => id,
        Err(error) => {
            give_back();
            return Err(error);
        }
    };
    if id == 0 {
        give_back();
        return Ok(());
    }
    // SAFETY: the worker lives while MPI runs, and the caller is inside.
    let worker = unsafe { &mut *p.worker()? };
    match leave_to_request(worker, id, false) {
        Fault::None => Ok(()),
        fault => Err(super::explain(fault, args, copy.len() as u64, 0)),
    }
}

/// Copies a message that is on its way, in part, so that its send completes whatever the receiver does. The copy is the
/// library's own: the attached buffer has room for what the program sends through it.
pub(crate) fn take_over(worker: &mut Worker, id: RequestId) {
    let copy = |request: &Request| {
        let mut copy = vec![0_u8; request.bytes as usize].into_boxed_slice();
        // SAFETY: the send's buffer is readable until it completes; the copy has the message's length.
        unsafe { request.pack(0, copy.as_mut_ptr(), copy.len()) };
        Buffer::contiguous(Box::into_raw(copy).cast(), request.bytes)
    };
    if let Some(heir) = worker.hand_over(id, copy) {
        let request = worker.requests.get_mut(heir);
        (request.owned, request.charged) = (true, false);
    }
}
