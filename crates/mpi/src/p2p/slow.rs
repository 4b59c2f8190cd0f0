//! Point-to-point communication in full: every check, every mode, every kind of buffer.
//!
//! **USER'S BUFFER.** A buffer is readable for a send and writable for a receive, as count and datatype say, until the
//! call returns, or of a started operation until its request completes. `status` and `request` are null or variables of
//! their kind. Whoever calls an entry point of MPI promises this, and each function here asks the same of its caller.
#![allow(unsafe_code)]

mod checked;
mod copied;
mod eager;
mod exchange;
mod fault;
mod nonblocking;
mod senders;
mod watched;

pub(crate) use checked::{check_matched, check_recv, check_send};
pub(crate) use copied::{charged_to, install, leave_copy, take_over};
pub use eager::try_send_eager;
pub(crate) use exchange::{pack_copy, refuse_alias};
pub use exchange::{send_with_lock, sendrecv, sendrecv_replace};
pub(crate) use fault::{end_without_answer, explain, explain_disagreement};
pub use nonblocking::{irecv, isend};
pub(crate) use nonblocking::{
    irecv_checked, isend_checked, make_proc_null, out_of_requests, start_irecv, start_isend,
};
pub(crate) use senders::Senders;
pub(crate) use watched::{keep, settle, watch};
use watched::{record_bytes, start_watched_recv, start_watched_send};

use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::common::lock;
use crate::common::places::{self, Mixed};
use crate::common::status::Status;
use crate::objects::arguments::{Args, Checked, Mode};
use crate::objects::comm::Comm;
use crate::objects::hot::{self, HotComm};
use crate::p2p::{Immediate, fill_status, named_want, source_of, try_send};
use crate::process::background::Attending;
use crate::process::{self, Process};
use fastpath_base::trace::{self, Point};
use fastpath_bootstrap::segment::Awaited;
use fastpath_protocol::buffer::Buffer;
use fastpath_protocol::matching::{ANY_PEER, Want};
use fastpath_protocol::protocols::Parts;
use fastpath_protocol::tag::ANY_TAG;
use fastpath_protocol::waiting::{Note, spin};
use fastpath_protocol::{Endpoint, Fault, RequestId, SendArgs, Started, State, Worker};
use fastpath_transport::Post;

/// Looks of a receive for a short message after which a long one may come, of which the progress thread is not told:
/// beyond what a ping-pong takes.
const ATTEND_POLLS: u32 = 128;

/// Whether a receive could never fail its checks once the send half has gone.
#[inline]
pub fn is_plain_recv(args: &Args) -> bool {
    hot::datatype(args.datatype).key == args.datatype as u64
        && args.count as u64 <= i32::MAX as u64
        && (args.peer as u32) < hot::comm(args.comm).size
        && (args.tag >= 0 || args.tag == ANY_TAG)
}

/// What a receive on `comm` asks for.
pub(crate) fn want(comm: &Comm, source: i32, tag: i32) -> Want {
    match source {
        MPI_ANY_SOURCE => Want { peer: ANY_PEER, tag, key: comm.context.key(0) },
        _ => Want {
            peer: comm.peer_group().world_ranks()[source as usize],
            tag,
            key: comm.context.key(source as u32),
        },
    }
}

/// The note of a wait for `args`.
pub(crate) fn note(call: &'static str, comm: &Comm, args: &Args, bytes: u64) -> Note {
    Note {
        call,
        peer: args.peer,
        tag: args.tag,
        comm: comm.handle.get(),
        bytes,
        awaited: Awaited::UNKNOWN,
        naps: false,
    }
}

/// Starts a checked send.
///
/// # Safety
/// The buffer is readable until the request completes.
pub(crate) unsafe fn start_send(
    p: &Process, checked: &Checked, args: &Args, mode: Mode,
) -> Result<Started> {
    // SAFETY: USER'S BUFFER.
    unsafe {
        match p.checks() {
            None => post_send(p, checked, checked.buffer.clone(), args, mode),
            Some(_) => start_watched_send(p, checked, args, mode),
        }
    }
}

/// Starts a send of what is to travel.
///
/// # Safety
/// As [`start_send`].
#[inline]
pub(crate) unsafe fn post_send(
    p: &Process, checked: &Checked, buffer: Buffer, args: &Args, mode: Mode,
) -> Result<Started> {
    let comm = &checked.comm;
    let bytes = buffer.bytes;
    let send = SendArgs {
        peer: comm.peer_group().world_ranks()[args.peer as usize],
        key: comm.context.key(comm.rank),
        tag: args.tag,
        buffer,
        synchronous: mode == Mode::Synchronous,
    };
    let _within = places::within(checked.place);
    let worker = p.worker_at(checked.place)?;
    // SAFETY: the worker lives while MPI runs; the caller's promise for the buffer.
    let started = unsafe { (*worker).start_send(send) };
    let started = started.map_err(|fault| explain(fault, args, bytes - record_bytes(p), 0))?;
    if let Started::Request(id) = started {
        // SAFETY: the request was just started, by the worker that lives while MPI runs.
        unsafe { (*worker).requests.get_mut(id).user = args.comm };
    }
    Ok(started)
}

/// Starts a checked receive.
///
/// # Safety
/// The buffer is writable until the request completes.
pub(crate) unsafe fn start_recv(p: &Process, checked: &Checked, args: &Args) -> Result<RequestId> {
    // SAFETY: USER'S BUFFER.
    unsafe {
        match p.checks() {
            None => post_recv::<false>(p, checked, checked.buffer.clone(), args),
            Some(_) => start_watched_recv(p, checked, args),
        }
    }
}

/// Starts a receive of what travels; `LATER`: of a call that returns at once.
#[inline]
unsafe fn post_recv<const LATER: bool>(
    p: &Process, checked: &Checked, buffer: Buffer, args: &Args,
) -> Result<RequestId> {
    let want = want(&checked.comm, args.peer, args.tag);
    let _within = places::within(checked.place);
    let worker = p.worker_at(checked.place)?;
    // SAFETY: as in `start_send`.
    unsafe {
        let started = match LATER {
            false => (*worker).start_recv(want, buffer),
            true => (*worker).start_irecv(want, buffer),
        };
        let id = started.map_err(|fault| explain(fault, args, checked.buffer.bytes, 0))?;
        (*worker).requests.get_mut(id).user = args.comm;
        Ok(id)
    }
}

/// Waits, with progress of all workers, until `done` returns true, which is its last call. `comm` and `bytes` are
/// reported meanwhile.
///
/// # Errors
/// MPI is not initialized.
pub(crate) fn wait_on_workers(
    p: &Process, (comm, bytes): (usize, u64), mut done: impl FnMut() -> bool,
) -> Result {
    let worker = p.worker()?;
    let places = places::made();
    let _within = places::within_all(places);
    let _mixed = Mixed::begin(places);
    let note = Note {
        call: p.call.get(),
        peer: -1,
        tag: -1,
        comm,
        bytes,
        awaited: Awaited::UNKNOWN,
        naps: places != 1,
    };
    // SAFETY: the workers live while MPI runs, and no reference to one is held.
    unsafe {
        Worker::wait_until(worker, None, &note, |_| {
            for (_, other) in p.workers().filter(|&(place, _)| place != 0) {
                (*other).progress_all();
            }
            done()
        });
    }
    Ok(())
}

/// Waits until a request is complete. The calling thread is inside MPI and the worker; for a further worker it waits
/// inside only that.
pub(crate) fn wait_complete(worker: *mut Worker, id: RequestId, note: &Note) {
    // SAFETY: the worker lives while MPI runs; no reference to it is held here.
    unsafe {
        let request = (*worker).requests.get(id);
        if request.state == State::Complete {
            return;
        }
        let place = (*worker).wait.place;
        let outside = |wait: &mut dyn FnMut()| match place {
            0 => wait(),
            place => places::outside(place, wait),
        };
        if request.peer == ANY_PEER {
            let senders = Senders::of_any(process::get_unlocked(), request.user);
            let awaited = senders.awaited();
            let note = Note { awaited, ..*note };
            return outside(&mut || {
                Worker::wait_for(worker, None, &note, id, |w| {
                    w.requests.get(id).state == State::Complete || senders.give_up(w, id)
                });
            });
        }
        let peer = request.peer;
        outside(&mut || {
            Worker::wait_for(worker, Some(peer), note, id, |w| {
                w.requests.get(id).state == State::Complete || w.give_up(id, peer)
            });
        });
    }
}

/// Any blocking send.
///
/// # Safety
/// The buffer is readable as count and datatype say.
#[inline(never)]
pub unsafe fn send(name: &'static str, args: Args, mode: Mode) -> Result {
    let p = process::enter(name, false)?;
    let Some(checked) = check_send(&p, &args)? else {
        return Ok(());
    };
    // SAFETY: USER'S BUFFER.
    unsafe {
        if mode == Mode::Buffered {
            return copied::send(&p, &checked, &args).map(|_| ());
        }
        // Since the call was entered, its arguments were checked.
        trace::share_time_of(Point::Call);
        let _attending = Attending::begin(p.worker().ok());
        let _within = places::within(checked.place);
        match start_send(&p, &checked, &args, mode)? {
            Started::Done => {
                trace::share_time_of(Point::Posted);
                Ok(())
            }
            Started::Request(id) => {
                let worker = p.worker_at(checked.place)?;
                wait_complete(worker, id, &note(name, &checked.comm, &args, checked.buffer.bytes));
                settle(&p, id);
                let fault = (*worker).requests.get(id).fault;
                (*worker).requests.free(id);
                match fault {
                    Fault::None => Ok(()),
                    fault => Err(explain(fault, &args, checked.buffer.bytes, 0)),
                }
            }
        }
    }
}

/// The message of an immediate send has left; its receiver sleeps or has gone.
#[cold]
#[inline(never)]
pub fn wake(comm: usize, peer: i32, tag: i32, bytes: u64) -> Result {
    match wake_sleeping_peer(comm, peer) {
        true => Ok(()),
        false => Err(explain_gone(comm, peer, tag, bytes)),
    }
}

/// The same without its error; false where the receiver has gone.
#[inline]
pub fn wake_sleeping_peer(comm: usize, peer: i32) -> bool {
    // SAFETY: the immediate send has found the endpoint there.
    unsafe { wake_peer(hot::comm(comm), peer) }
}

/// The same by the entry that the send has used.
///
/// # Safety
/// The entry has an endpoint for the peer.
#[inline]
pub unsafe fn wake_peer(entry: &HotComm, peer: i32) -> bool {
    // SAFETY: by this function's contract.
    let post = unsafe { (**entry.endpoints.add(peer as usize)).wake() };
    post != Post::PeerGone
}

/// The error of an immediate send whose message will not be received any more.
#[cold]
pub fn explain_gone(comm: usize, peer: i32, tag: i32, bytes: u64) -> Error {
    let args = Args {
        buf: std::ptr::null_mut(),
        count: bytes as i64,
        datatype: MPI_BYTE,
        peer,
        tag,
        comm,
    };
    explain(Fault::PeerGone, &args, bytes, 0)
}

/// Any blocking receive.
///
/// # Safety
/// The buffer is writable as count and datatype say; `status` is null or a status.
#[inline(never)]
pub unsafe fn recv(name: &'static str, args: Args, status: *mut Status) -> Result {
    // SAFETY: USER'S BUFFER.
    unsafe {
        let mut spun = if let Some(place) = hot::further_receives(args.comm) {
            places::with(place, || spin_recv::<{ hot::FURTHER }>(&args, status))
        } else if let Some(place) = hot::spread_receives(args.comm, args.peer, args.tag) {
            places::with(place, || spin_recv::<{ hot::SPREAD }>(&args, status))
        } else {
            spin_recv::<{ hot::OPEN }>(&args, status)
        };
        if let Spun::Done = spun {
            return Ok(());
        }
        let p = process::enter(name, false)?;
        if lock::is_enabled() && hot::receives_inside(args.comm) {
            spun = spin_recv::<{ hot::INSIDE }>(&args, status);
        }
        if let Spun::Done = spun {
            return Ok(());
        }
        let _attending = Attending::begin(p.worker().ok());
        if let Spun::Request(id) = spun {
            let context = p.comm(args.comm)?;
            let place = places::of_request(id as usize);
            let _within = places::within(place);
            let worker = p.worker_at(place)?;
            wait_complete(worker, id, &note(name, &context, &args, 0));
            return finish_recv(worker, id, &args, status);
        }
        let Some(checked) = check_recv(&p, &args)? else {
            fill_status(status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
            return Ok(());
        };
        let _within = places::within(checked.place);
        let worker = p.worker_at(checked.place)?;
        let id = start_recv(&p, &checked, &args)?;
        wait_complete(worker, id, &note(name, &checked.comm, &args, checked.buffer.bytes));
        trace::share_time_of(Point::Waited);
        settle(&p, id);
        finish_recv(worker, id, &args, status)
    }
}

/// Polls only the named peer for a while, as long as nothing else needs this process.
unsafe fn spin_recv<const WAY: u8>(args: &Args, status: *mut Status) -> Spun {
    let comm = hot::entry::<WAY>(args.comm, args.peer, args.tag);
    let worker = hot::worker_of::<WAY>(comm);
    let Some((want, room)) = named_want::<WAY>(args) else {
        return Spun::Nothing;
    };
    let peer = want.peer;
    // SAFETY: as in `try_copy`; no reference to the worker outlives a statement.
    unsafe {
        let endpoint = *comm.endpoints.add(args.peer as usize);
        if !(*worker).wait.directed
            || !(*worker).is_idle()
            || (*worker).is_crowded()
            || (*worker).matcher.find_unexpected(&want).is_some()
        {
            return Spun::Nothing;
        }
        let (mut cold, mut attends) = (false, false);
        let has_arrival = |count| {
            if (*endpoint).has_arrival() {
                return Some(());
            }
            if count == 1 {
                cold = (*endpoint).begin_wait();
            } else if cold {
                cold = (*endpoint).warm();
            }
            if WAY == hot::INSIDE && count == ATTEND_POLLS && (*worker).background.runs {
                attends = true;
                (*worker).attend();
            }
            None
        };
        // The peer's next arrival may be the message: the next poll finds it.
        let is_needed = || {
            ((WAY != hot::OPEN && places::is_wanted(comm.place))
                || (*worker).must_look_around(peer))
                && !(*endpoint).has_arrival()
        };
        let polls = (*worker).wait.spin_polls((*endpoint).spin_polls());
        let spun = match spin(polls, has_arrival, is_needed) {
            Some(()) => recv_arrival::<WAY>(args, endpoint, want, room, status),
            None => Spun::Nothing,
        };
        if attends {
            (*worker).resume();
        }
        spun
    }
}

/// The peer's next arrival, if it is the wanted message: whole or in parts.
unsafe fn recv_arrival<const WAY: u8>(
    args: &Args, endpoint: *mut Endpoint, want: Want, room: usize, status: *mut Status,
) -> Spun {
    // SAFETY: USER'S BUFFER.
    unsafe {
        let worker = hot::worker_of::<WAY>(hot::entry::<WAY>(args.comm, args.peer, args.tag));
        if !(*worker).is_unclaimed(want.peer) {
            return Spun::Nothing;
        }
        if let Some(taken) = (*endpoint).recv_immediate(want.key, args.tag, args.buf, room) {
            fill_status(status, args.peer, taken.tag, taken.len as i64);
            return Spun::Done;
        }
        match (*worker).recv_parts(want, args.buf, room as u64, args.comm) {
            None => Spun::Nothing,
            Some(Parts::Request(id)) => Spun::Request(id),
            Some(Parts::Done { tag, len }) => {
                fill_status(status, args.peer, tag, len as i64);
                Spun::Done
            }
        }
    }
}

/// What spinning for a message came to.
enum Spun {
    /// It has been received.
    Done,
    /// Its rest is received by this request.
    Request(RequestId),
    /// It is not there, or is nothing for this path.
    Nothing,
}

/// Reads and frees a completed receive.
pub(crate) unsafe fn finish_recv(
    worker: *mut Worker, id: RequestId, args: &Args, status: *mut Status,
) -> Result {
    // SAFETY: USER'S BUFFER.
    unsafe {
        let request = (*worker).requests.get(id);
        let (fault, bytes, sent) = (request.fault, request.bytes, request.limit);
        let (source, tag, received) = (source_of(request), request.received_tag, request.received);
        fill_status(status, source, tag, received as i64);
        (*worker).requests.free(id);
        match fault {
            Fault::None => Ok(()),
            fault => Err(explain(fault, &Args { peer: source, tag, ..*args }, bytes, sent)),
        }
    }
}
