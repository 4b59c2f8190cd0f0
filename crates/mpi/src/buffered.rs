//! Buffered mode: the message is copied, and the copy is counted against the attached buffer.
#![allow(unsafe_code)]

use crate::consts::*;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::p2p::{Args, Mode};
use crate::p2p_slow::{self as slow, Checked};
use crate::places::{self, Mixed};
use crate::process::Process;
use fastpath_base::sync::{AtomicI64, Ordering};
use fastpath_bootstrap::segment::Awaited;
use fastpath_protocol::buffer::Buffer;
use fastpath_protocol::request::Kind;
use fastpath_protocol::waiting::Note;
use fastpath_protocol::{Request, RequestId, Started, Worker};
use std::cell::Cell;

/// The buffer of `MPI_Buffer_attach`.
#[derive(Default)]
pub struct Attached {
    address: Cell<usize>,
    size: Cell<i64>,
    /// Counted by whichever worker has sent a copy.
    used: AtomicI64,
    is_attached: Cell<bool>,
}

impl Attached {
    /// Nothing attached.
    pub const fn new() -> Self {
        Attached {
            address: Cell::new(0),
            size: Cell::new(0),
            used: AtomicI64::new(0),
            is_attached: Cell::new(false),
        }
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
    let p = unsafe { crate::process::get_unlocked() };
    if let Some(checks) = p.checks() {
        checks.forget(request.id());
    }
    if request.owned {
        // SAFETY: `send` leaked a vector of exactly this length and capacity.
        drop(unsafe {
            Vec::from_raw_parts(request.ptr, request.bytes as usize, request.bytes as usize)
        });
        if request.charged {
            p.attached
                .used
                .fetch_sub(cost(p, request.bytes), Ordering::Relaxed);
        }
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
    let (_record, buffer) = slow::watch(p, args, Kind::Send, checked)?;
    let bytes = buffer.bytes;
    let need = cost(p, bytes);
    let place = checked.comm.place;
    let _within = places::within(place);
    let attached = &p.attached;
    let room = |p: &Process| p.attached.size.get() - p.attached.used.load(Ordering::Relaxed);
    if room(p) < need {
        // SAFETY: the worker lives while MPI runs.
        unsafe { (*p.worker_at(place)?).progress_all() };
    }
    if room(p) < need {
        let (bytes, have) = (checked.buffer.bytes, room(p).max(0));
        return Err(Error::new(
            MPI_ERR_BUFFER,
            format!(
                "buffered send of {bytes} bytes needs {need} bytes of attached buffer \
                 (MPI_BSEND_OVERHEAD included), {have} are free: attach a larger one with \
                 MPI_Buffer_attach"
            ),
        ));
    }
    let mut copy = Vec::with_capacity(bytes as usize);
    // SAFETY: the user's buffer as promised; the vector has the capacity.
    unsafe {
        match &buffer.layout {
            None => fastpath_base::copy::copy(copy.as_mut_ptr(), buffer.ptr, bytes as usize),
            Some(layout) => {
                let to = std::slice::from_raw_parts_mut(copy.as_mut_ptr(), bytes as usize);
                layout.pack(buffer.ptr, buffer.count, 0, to);
            }
        }
        copy.set_len(bytes as usize);
    }
    let copy = copy.into_boxed_slice();
    let copied = Buffer::contiguous(Box::into_raw(copy).cast(), bytes);
    let ptr = copied.ptr;
    let give_back = || {
        // SAFETY: made above, and no request holds it.
        drop(unsafe { Vec::from_raw_parts(ptr, bytes as usize, bytes as usize) });
    };
    // SAFETY: the copy lives until the request completes (`release`).
    match unsafe { slow::post_send(p, &checked.comm, copied, args, Mode::Standard) } {
        Ok(Started::Done) => give_back(),
        Ok(Started::Request(id)) => {
            // SAFETY: the worker lives while MPI runs.
            let worker = unsafe { &mut *p.worker_at(place)? };
            attached.used.fetch_add(need, Ordering::Relaxed);
            let request = worker.requests.get(id);
            (request.owned, request.charged) = (true, true);
            if request.state == fastpath_protocol::State::Complete {
                release(request);
                worker.requests.free(id);
            } else {
                request.detached = true;
            }
        }
        Err(error) => {
            give_back();
            return Err(error);
        }
    }
    Ok(Started::Done)
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
        let request = worker.requests.get(heir);
        (request.owned, request.charged) = (true, false);
    }
}

/// `MPI_Buffer_attach`.
pub fn attach(p: &Process, address: usize, size: i64) -> Result {
    if p.attached.is_attached.get() {
        return Err(Error::new(
            MPI_ERR_BUFFER,
            "a buffer is attached already: detach it first",
        ));
    }
    if size < 0 {
        return Err(Error::new(
            MPI_ERR_ARG,
            format!("the size {size} is negative"),
        ));
    }
    p.attached.address.set(address);
    p.attached.size.set(size);
    p.attached.is_attached.set(true);
    Ok(())
}

/// `MPI_Buffer_detach`: waits until all buffered messages have left; returns address and size.
pub fn detach(p: &Process) -> Result<(usize, i64)> {
    if !p.attached.is_attached.get() {
        return Err(Error::new(MPI_ERR_BUFFER, "no buffer is attached"));
    }
    drain(p)?;
    p.attached.is_attached.set(false);
    Ok((p.attached.address.replace(0), p.attached.size.replace(0)))
}

/// Waits until all buffered messages have left (`MPI_Buffer_flush`).
pub fn drain(p: &Process) -> Result {
    let worker = p.worker()?;
    let places = places::made();
    let _within = places::within_all(places);
    let _mixed = Mixed::begin(places);
    let note = Note {
        call: p.call.get(),
        peer: -1,
        tag: -1,
        comm: 0,
        bytes: p.attached.used.load(Ordering::Relaxed) as u64,
        awaited: Awaited::UNKNOWN,
        naps: places != 1,
    };
    // SAFETY: the worker lives while MPI runs.
    unsafe {
        Worker::wait_until(worker, None, &note, |_| {
            for (place, worker) in p.workers() {
                if place != 0 {
                    (*worker).progress_all();
                }
                if p.attached.used.load(Ordering::Relaxed) > 0 {
                    // The receiver may have left.
                    (*worker).end_detached(|_, _| false);
                }
            }
            p.attached.used.load(Ordering::Relaxed) <= 0
        })
    };
    Ok(())
}
