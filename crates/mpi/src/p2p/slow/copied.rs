//! Sends from a copy: buffered sends, and sends of the library. USER'S BUFFER is defined in `slow.rs`.
#![allow(unsafe_code)]

use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::objects::arguments::{Args, CheckedArguments, Mode};
use crate::objects::attached::{AttachedBuffer, BufferCell};
use crate::objects::comm::Comm;
use crate::p2p::fault;
use crate::p2p::staged;
use crate::process::{self, Process, Runtime};
use fastpath_base::heap::may_fail;
use fastpath_base::sync::Ordering;
use fastpath_protocol::buffer::Buffer;
use fastpath_protocol::request::RequestKind;
use fastpath_protocol::{Fault, Request, RequestId, RequestState, StartOutcome, Worker};

/// Returns the buffer that a message on a communicator uses: the one attached to the communicator, to its session, or
/// to the process (MPI-5.0 section 3.6).
fn buffer_of(p: &Process, comm: &Comm) -> &'static AttachedBuffer {
    let in_use = |place: &BufferCell| place.get().filter(|attached| attached.is_attached.get());
    let of_session = || in_use(&p.sessions.get(comm.session.get())?.buffer);
    in_use(&comm.buffer).or_else(of_session).unwrap_or_else(|| {
        let process = std::ptr::from_ref(&p.attached);
        // SAFETY: the process is a static of the library, and its buffer is never freed.
        unsafe { &*process }
    })
}

/// Number of bytes after a copy. They hold the address of the attached buffer.
const TRAILER: usize = size_of::<usize>();

/// Returns the attached buffer of a copy. Safety: the request's buffer must have been made by [`send`].
pub(crate) unsafe fn charged_to(request: &Request) -> &'static AttachedBuffer {
    // SAFETY: `send` has written the address there, and an attached buffer is never freed.
    unsafe {
        let place = request.ptr.add(request.bytes as usize);
        &*place.cast::<*const AttachedBuffer>().read_unaligned()
    }
}

/// Installs the function by which the worker frees copies that have been sent.
pub(crate) fn install(p: &Process) {
    if let Ok(worker) = p.worker() {
        // SAFETY: the worker lives while MPI runs.
        unsafe { (*worker).hooks.on_detached = Some(release) };
    }
}

fn release(request: &Request) {
    // SAFETY: the thread that makes progress calls this inside MPI.
    let p = unsafe { process::get_unlocked() };
    if let Some(checks) = p.checks() {
        checks.forget(request.id());
    }
    staged::release(p, request);
    if request.owned {
        let mut length = request.bytes as usize;
        if request.charged {
            // SAFETY: a charged request's buffer was made by `send`.
            let attached = unsafe { charged_to(request) };
            attached.used.fetch_sub(cost(p, request.bytes), Ordering::Relaxed);
            length += TRAILER;
        }
        // SAFETY: `send` and `take_over` leaked a vector of exactly this length and capacity.
        drop(unsafe { Vec::from_raw_parts(request.ptr, length, length) });
    }
}

/// Returns the bytes of the attached buffer that a message uses. `bytes` includes a record.
fn cost(p: &Process, bytes: u64) -> i64 {
    let record = p.engine().map_or(0, Runtime::record_bytes);
    (bytes - record) as i64 + MPI_BSEND_OVERHEAD as i64
}

/// Sends a copy of the message. Safety: see USER'S BUFFER in the parent module.
pub(crate) unsafe fn send(
    p: &Process, checked: &CheckedArguments, args: &Args,
) -> Result<StartOutcome> {
    super::watched::refuse_settled(p, checked, args)?;
    staged::load(checked)?;
    let (_record, buffer) = super::watch(p, args, RequestKind::Send, checked)?;
    let bytes = buffer.bytes;
    let need = cost(p, bytes);
    let attached = buffer_of(p, &checked.comm);
    let room = || match attached.is_automatic() {
        true => i64::MAX,
        false => attached.size.get() - attached.used(),
    };
    if room() < need {
        // SAFETY: the worker lives while MPI runs.
        unsafe { (*p.worker()?).progress_all() };
    }
    if room() < need {
        let (bytes, have) = (checked.buffer.bytes, room().max(0));
        return Err(Error::new(
            MPI_ERR_BUFFER,
            format!(
                "a buffered send of {bytes} bytes needs {need} bytes of the attached buffer \
                 (MPI_BSEND_OVERHEAD included), but {have} bytes are free"
            ),
        )
        .with_advice(Some("attach a larger buffer with MPI_Buffer_attach")));
    }
    let length = bytes as usize + TRAILER;
    let mut copy: Vec<u8> = Vec::new();
    if may_fail(|| copy.try_reserve_exact(length)).is_err() {
        let text = format!("no memory for the copy of a message of {bytes} bytes");
        return Err(Error::new(MPI_ERR_NO_MEM, text));
    }
    // SAFETY: the user's buffer is readable, by this function's contract, and the vector has the capacity.
    unsafe {
        match &buffer.layout {
            None => fastpath_base::copy::copy(copy.as_mut_ptr(), buffer.ptr, bytes as usize),
            Some(layout) => {
                let to = std::slice::from_raw_parts_mut(copy.as_mut_ptr(), bytes as usize);
                layout.pack(buffer.ptr, buffer.count, 0, to);
            }
        }
        let behind = copy.as_mut_ptr().add(bytes as usize);
        behind.cast::<*const AttachedBuffer>().write_unaligned(std::ptr::from_ref(attached));
        copy.set_len(length);
    }
    staged::finish_send(checked)?;
    let copy = copy.into_boxed_slice();
    let copied = Buffer::contiguous(Box::into_raw(copy).cast(), bytes);
    let ptr = copied.ptr;
    let give_back = || {
        // SAFETY: the copy was made above, and no request holds it.
        drop(unsafe { Vec::from_raw_parts(ptr, length, length) });
    };
    // SAFETY: the copy lives until the request completes, when `release` frees it.
    match unsafe { super::post_send(p, checked, copied, args, Mode::Standard) } {
        Ok(StartOutcome::Done) => give_back(),
        Ok(StartOutcome::Request(id)) => {
            // SAFETY: the worker lives while MPI runs.
            let worker = unsafe { &mut *p.worker()? };
            attached.used.fetch_add(need, Ordering::Relaxed);
            match leave_to_request(worker, id, true) {
                Fault::None => {}
                fault => return Err(fault::explain(fault, args, checked.buffer.bytes, 0)),
            }
        }
        Err(error) => {
            give_back();
            return Err(error);
        }
    }
    Ok(StartOutcome::Done)
}

/// Passes a copy to the request that sends it. Detaches the request if it is outstanding; otherwise frees it. Returns
/// the fault of a request that has completed.
fn leave_to_request(worker: &mut Worker, id: RequestId, charged: bool) -> Fault {
    let request = worker.requests.get_mut(id);
    (request.owned, request.charged) = (true, charged);
    if request.state != RequestState::Complete {
        request.detached = true;
        return Fault::None;
    }
    let fault = request.fault;
    release(request);
    worker.free_failed(id);
    fault
}

/// Passes a copy that the library owns to the request `sent` that sends it; 0 if the send has ended. `args` are those
/// of the program's call. Errors: those of the send. Safety: `copy` must be a leaked box with the message's bytes.
pub(crate) unsafe fn leave_copy(
    p: &Process, sent: Result<RequestId>, args: &Args, copy: *mut [u8],
) -> Result {
    // SAFETY: `copy` is a leaked box, by this function's contract, and only one of the paths below frees it.
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
        fault => Err(fault::explain(fault, args, copy.len() as u64, 0)),
    }
}

/// Copies a message that has been sent in part, so that its send completes independently of the receiver. The copy is
/// not counted against the attached buffer, whose space is for the program's buffered sends.
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
