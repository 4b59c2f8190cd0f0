//! Buffered mode: the message is copied, and the copy is counted against the attached buffer.
#![allow(unsafe_code)]

use crate::channel::Ticket;
use crate::comm::Comm;
use crate::consts::*;
use crate::error::{Error, Result};
use crate::p2p::{Args, Mode};
use crate::p2p_slow::{self as slow, Checked};
use crate::places::{self, Mixed};
use crate::process::Engine;
use crate::process::Process;
use crate::request::{self, Operation};
use crate::status::Status;
use fastpath_base::sync::{AtomicI64, Ordering};
use fastpath_bootstrap::segment::Awaited;
use fastpath_protocol::buffer::Buffer;
use fastpath_protocol::request::Kind;
use fastpath_protocol::waiting::Note;
use fastpath_protocol::{Fault, Request, RequestId, Started, State, Worker};
use std::cell::{Cell, RefCell};

/// A buffer that the program has attached to the process, a communicator or a session. Copies that are under way hold
/// its address: one of a communicator or session is never given back, but kept for the next one ([`Spares`]).
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

    fn used(&self) -> i64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether there is room for all messages.
    fn is_automatic(&self) -> bool {
        self.address.get() == MPI_BUFFER_AUTOMATIC
    }
}

/// The buffer of a communicator or a session, once one was attached.
pub(crate) type Place = Cell<Option<&'static Attached>>;

/// Buffers of communicators and sessions that are gone.
pub(crate) struct Spares(RefCell<Vec<&'static Attached>>);

impl Spares {
    /// None.
    pub const fn new() -> Self {
        Spares(RefCell::new(Vec::new()))
    }

    fn take(&self) -> &'static Attached {
        let spare = self.0.borrow_mut().pop();
        spare.unwrap_or_else(|| Box::leak(Box::default()))
    }

    /// Keeps the buffer of an object that goes, and of which no message is under way.
    pub fn put(&self, place: &Place) {
        if let Some(attached) = place.take() {
            attached.is_attached.set(false);
            self.0.borrow_mut().push(attached);
        }
    }
}

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
fn at_place<T>(p: &Process, owner: Owner, act: impl FnOnce(&Place) -> Result<T>) -> Result<T> {
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

/// The buffer that a message on a communicator is counted against: the communicator's own, that of the session it
/// comes from, the process's (MPI-5.0 section 3.6).
fn buffer_of(p: &Process, comm: &Comm) -> &'static Attached {
    let in_use = |place: &Place| place.get().filter(|attached| attached.is_attached.get());
    let of_session = || in_use(&p.sessions.get(comm.session.get())?.buffer);
    in_use(&comm.buffer).or_else(of_session).unwrap_or_else(|| {
        let process = std::ptr::from_ref(&p.attached);
        // SAFETY: as in `at_place`.
        unsafe { &*process }
    })
}

/// Bytes behind a copy: the address of what it is counted against.
const TRAILER: usize = size_of::<usize>();

/// What a copy is counted against.
///
/// # Safety
/// The request's buffer was made by [`send`].
unsafe fn charged_to(request: &Request) -> &'static Attached {
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
    let p = unsafe { crate::process::get_unlocked() };
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
    let (_record, buffer) = slow::watch(p, args, Kind::Send, checked)?;
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
    if copy.try_reserve_exact(length).is_err() {
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
    match unsafe { slow::post_send(p, checked, copied, args, Mode::Standard) } {
        Ok(Started::Done) => give_back(),
        Ok(Started::Request(id)) => {
            // SAFETY: the worker lives while MPI runs.
            let worker = unsafe { &mut *p.worker_at(place)? };
            attached.used.fetch_add(need, Ordering::Relaxed);
            match leave_to_request(worker, id, true) {
                Fault::None => {}
                fault => return Err(slow::explain(fault, args, checked.buffer.bytes, 0)),
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

/// Leaves a copy of the library's own, which was given to a send, to that one; `args` are those of the program's call.
///
/// # Errors
/// Those of the send.
///
/// # Safety
/// `copy` is a box that was leaked; its bytes are what was sent.
pub(crate) unsafe fn leave_copy(
    p: &Process, sent: Result<Ticket>, args: &Args, copy: *mut [u8],
) -> Result {
    // SAFETY: `copy` is a box that was leaked, by this function's contract, and is given back once: by one of the ways
    // below.
    let give_back = || drop(unsafe { Box::from_raw(copy) });
    let id = match sent {
        Ok(ticket) => ticket.id(),
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
        fault => Err(slow::explain(fault, args, copy.len() as u64, 0)),
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

/// `MPI_Buffer_attach` and its like.
///
/// # Errors
/// `MPI_ERR_BUFFER` where one is attached already, `MPI_ERR_ARG` for a negative size.
pub fn attach(p: &Process, owner: Owner, address: usize, size: i64) -> Result {
    if size < 0 && address != MPI_BUFFER_AUTOMATIC {
        return Err(Error::new(MPI_ERR_ARG, format!("the size {size} is negative")));
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

/// `MPI_Buffer_flush` and its like: waits until all messages have left. There are none without a buffer.
///
/// # Errors
/// `MPI_ERR_COMM`, `MPI_ERR_SESSION` for a handle that is none.
pub fn flush(p: &Process, owner: Owner) -> Result {
    let attached = at_place(p, owner, |place| Ok(place.get()))?;
    attached.map_or(Ok(()), |attached| drain(p, attached))
}

/// Waits until all messages of an object that goes have left.
pub(crate) fn drain_place(p: &Process, place: &Place) -> Result {
    place.get().map_or(Ok(()), |attached| drain(p, attached))
}

fn drain(p: &Process, attached: &Attached) -> Result {
    if attached.used() <= 0 {
        return Ok(());
    }
    let worker = p.worker()?;
    let places = places::made();
    let _within = places::within_all(places);
    let _mixed = Mixed::begin(places);
    let note = Note {
        call: p.call.get(),
        peer: -1,
        tag: -1,
        comm: 0,
        bytes: attached.used() as u64,
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
                if attached.used() > 0 {
                    // The receiver may have left.
                    (*worker).end_detached(|_, _| false);
                }
            }
            attached.used() <= 0
        })
    };
    Ok(())
}

/// The messages of a buffer that had not left when a call asked for them: place of the worker, request, handle.
struct Flush(Vec<(u32, RequestId, u32)>);

/// `MPI_Buffer_iflush` and its like: a request that is complete when all messages which are in the buffer now have
/// left.
///
/// # Errors
/// `MPI_ERR_COMM`, `MPI_ERR_SESSION` for a handle that is none.
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

impl Operation for Flush {
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
