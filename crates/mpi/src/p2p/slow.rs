//! Point-to-point communication in full: all checks, modes and kinds of buffer.
//!
//! **USER'S BUFFER.** A buffer is readable for a send and writable for a receive, for its count and datatype. It stays
//! so until the call returns, or until the request of a started operation completes. `status` and `request` are null or
//! variables of their type. The caller of an MPI entry point promises this, and so does the caller of each function
//! here. TABLES is defined in `p2p.rs`.
#![allow(unsafe_code)]

mod checked;
mod copied;
mod eager;
mod exchange;
mod nonblocking;
mod senders;
mod watched;

pub(crate) use checked::{check_matched, check_recv, check_send};
pub(crate) use copied::{charged_to, install, leave_copy, take_over};
pub use eager::try_send_eager;
pub(crate) use exchange::{pack_copy, refuse_alias};
pub use exchange::{send_with_lock, sendrecv, sendrecv_replace};
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
use crate::common::status::Status;
use crate::objects::arguments::{Args, CheckedArguments, Mode};
use crate::objects::comm::Comm;
use crate::objects::hot;
use crate::p2p::channel::deadlock;
use crate::p2p::fault::explain;
use crate::p2p::staged;
use crate::p2p::{Immediate, fill_status, find_source, named_want, source_of, try_copy, try_send};
use crate::process::background::ProgressGuard;
use crate::process::{self, Process, failures};
use fastpath_base::trace::{self, Point};
use fastpath_protocol::buffer::Buffer;
use fastpath_protocol::matching::{ANY_PEER, MatchCriteria};
use fastpath_protocol::protocols::Parts;
use fastpath_protocol::tag::ANY_TAG;
use fastpath_protocol::waiting::{Note, spin};
use fastpath_protocol::{Endpoint, Fault, RequestId, RequestState, SendArgs, StartOutcome, Worker};
use fastpath_segment::AwaitedRanks;
use fastpath_transport::Post;

/// Number of polls of a short receive before it suspends the progress thread. A ping-pong needs fewer polls.
const ATTEND_POLLS: u32 = 128;

/// Returns whether the receive of an `MPI_Sendrecv` will pass its argument checks. If so, the send may be posted first.
#[inline]
pub fn is_plain_recv(args: &Args) -> bool {
    hot::datatype(args.datatype).key == args.datatype as u64
        && args.count as u64 <= i32::MAX as u64
        && (args.peer as u32) < hot::comm(args.comm).size
        && (args.tag >= 0 || args.tag == ANY_TAG)
}

pub(crate) fn want(comm: &Comm, source: i32, tag: i32) -> MatchCriteria {
    match source {
        MPI_ANY_SOURCE => MatchCriteria { peer: ANY_PEER, tag, key: comm.context.key(0) },
        _ => MatchCriteria {
            peer: comm.peer_group().world_ranks()[source as usize],
            tag,
            key: comm.context.key(source as u32),
        },
    }
}

pub(crate) fn note(call: &'static str, comm: &Comm, args: &Args, bytes: u64) -> Note {
    Note {
        call,
        peer: args.peer,
        tag: args.tag,
        comm: comm.handle.get(),
        bytes,
        awaited: AwaitedRanks::UNKNOWN,
        naps: false,
    }
}

/// Starts a checked send. Safety: see USER'S BUFFER.
pub(crate) unsafe fn start_send(
    p: &Process, checked: &CheckedArguments, args: &Args, mode: Mode,
) -> Result<StartOutcome> {
    // SAFETY: USER'S BUFFER.
    unsafe {
        match p.checks() {
            None => post_send(p, checked, checked.buffer.clone(), args, mode),
            Some(_) => start_watched_send(p, checked, args, mode),
        }
    }
}

/// Starts a send of `buffer`, which may include a record. Safety: see USER'S BUFFER.
#[inline]
pub(crate) unsafe fn post_send(
    p: &Process, checked: &CheckedArguments, buffer: Buffer, args: &Args, mode: Mode,
) -> Result<StartOutcome> {
    let comm = &checked.comm;
    let bytes = buffer.bytes;
    staged::load(checked)?;
    let send = SendArgs {
        peer: comm.peer_group().world_ranks()[args.peer as usize],
        key: comm.context.key(comm.rank),
        tag: args.tag,
        buffer,
        synchronous: mode == Mode::Synchronous,
    };
    let worker = p.worker()?;
    // SAFETY: the worker lives while MPI runs; the buffer is readable (USER'S BUFFER).
    let started = unsafe { (*worker).start_send(send) };
    let started = started.map_err(|fault| explain(fault, args, bytes - record_bytes(p), 0))?;
    if let StartOutcome::Request(id) = started {
        // SAFETY: the request was just started, by the worker that lives while MPI runs.
        unsafe { (*worker).requests.get_mut(id).user = args.comm };
        staged::keep(p, id, checked);
    }
    Ok(started)
}

/// Starts a checked receive. Safety: see USER'S BUFFER.
pub(crate) unsafe fn start_recv(
    p: &Process, checked: &CheckedArguments, args: &Args,
) -> Result<RequestId> {
    // SAFETY: USER'S BUFFER.
    unsafe {
        match p.checks() {
            None => post_recv::<false>(p, checked, checked.buffer.clone(), args),
            Some(_) => start_watched_recv(p, checked, args),
        }
    }
}

/// Starts a receive into `buffer`, which may include a record. `LATER` is true for a nonblocking call.
#[inline]
unsafe fn post_recv<const LATER: bool>(
    p: &Process, checked: &CheckedArguments, buffer: Buffer, args: &Args,
) -> Result<RequestId> {
    let want = want(&checked.comm, args.peer, args.tag);
    let worker = p.worker()?;
    // SAFETY: the worker lives while MPI runs; the buffer is writable (USER'S BUFFER).
    unsafe {
        let started = match LATER {
            false => (*worker).start_recv(want, buffer),
            true => (*worker).start_irecv(want, buffer),
        };
        let id = started.map_err(|fault| explain(fault, args, checked.buffer.bytes, 0))?;
        (*worker).requests.get_mut(id).user = args.comm;
        staged::keep(p, id, checked);
        Ok(id)
    }
}

/// Makes progress until `done` returns true; `done` is not called again. Reports of the wait name `comm`, `bytes` and
/// `awaited`. With `naps`, a sleep has a time limit, because the awaited change might not wake this process. Errors:
/// MPI is not initialized.
pub(crate) fn wait_until(
    p: &Process, (comm, bytes): (usize, u64), awaited: AwaitedRanks, naps: bool,
    done: impl FnMut(&mut Worker) -> bool,
) -> Result {
    let note = Note { call: p.call.get(), peer: -1, tag: -1, comm, bytes, awaited, naps };
    // SAFETY: the worker lives while MPI runs, and no reference to it is held.
    unsafe { Worker::wait_until(p.worker()?, None, &note, done) };
    Ok(())
}

/// Waits until the request of a blocking call is complete. The calling thread is inside MPI.
pub(crate) fn wait_complete(worker: *mut Worker, id: RequestId, note: &Note) {
    wait_with(worker, id, note, Senders::give_up);
}

/// Waits until a nonblocking request is complete, or until a possible sender of its message has died. The calling
/// thread is inside MPI.
pub(crate) fn wait_nonblocking(worker: *mut Worker, id: RequestId, note: &Note) {
    wait_with(worker, id, note, Senders::end_wait);
}

/// Waits for a request. `is_over` decides about a receive from any source that is not complete.
fn wait_with(
    worker: *mut Worker, id: RequestId, note: &Note,
    is_over: fn(&Senders, &mut Worker, RequestId) -> bool,
) {
    // SAFETY: the worker lives while MPI runs, and no reference to it is held here.
    unsafe {
        let request = (*worker).requests.get(id);
        if request.state == RequestState::Complete {
            return;
        }
        let p = process::get_unlocked();
        if request.peer == ANY_PEER {
            let senders = Senders::of_any(p, request.user);
            let awaited = senders.awaited();
            let note = Note { awaited, ..*note };
            // After a death the wait may be over although the request is not complete.
            let awaited = if failures::is_on() { 0 } else { id };
            return deadlock::wait_for(p, worker, None, &note, awaited, |w| {
                w.requests.get(id).state == RequestState::Complete || is_over(&senders, w, id)
            });
        }
        let peer = request.peer;
        deadlock::wait_for(p, worker, Some(peer), note, id, |w| {
            w.requests.get(id).state == RequestState::Complete || w.give_up(id, peer)
        });
    }
}

/// Executes any blocking send.
///
/// # Safety
/// See USER'S BUFFER.
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
        // In traces, the time since the entry of the call counts as checks.
        trace::share_time_of(Point::Call);
        let worker = p.worker()?;
        let _attending = ProgressGuard::begin(Some(worker));
        match start_send(&p, &checked, &args, mode)? {
            StartOutcome::Done => {
                trace::share_time_of(Point::Posted);
                Ok(())
            }
            StartOutcome::Request(id) => {
                wait_complete(worker, id, &note(name, &checked.comm, &args, checked.buffer.bytes));
                let loaded = settle(&p, id);
                let fault = (*worker).requests.get(id).fault;
                match fault {
                    Fault::None => {
                        (*worker).requests.free(id);
                        loaded
                    }
                    fault => {
                        (*worker).free_failed(id);
                        Err(explain(fault, &args, checked.buffer.bytes, 0))
                    }
                }
            }
        }
    }
}

/// Wakes the receiver of an immediate send, whose message has left. Called if the receiver sleeps or has left the job.
/// Returns an error if the receiver has left the job.
#[cold]
#[inline(never)]
pub fn wake(comm: usize, peer: i32, tag: i32, bytes: u64) -> Result {
    match wake_sleeping_peer(comm, peer) {
        true => Ok(()),
        false => Err(explain_gone(comm, peer, tag, bytes)),
    }
}

/// Wakes the receiver of an immediate send. Returns false if the receiver has left the job.
#[inline]
pub fn wake_sleeping_peer(comm: usize, peer: i32) -> bool {
    // SAFETY: the immediate send has found the endpoint there.
    unsafe { (**hot::comm(comm).endpoints.add(peer as usize)).wake() != Post::PeerGone }
}

/// Returns the error of an immediate send whose message will not be received.
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

/// Executes any blocking receive.
///
/// # Safety
/// See USER'S BUFFER.
pub unsafe fn recv(name: &'static str, args: Args, status: *mut Status) -> Result {
    // SAFETY: USER'S BUFFER.
    unsafe { recv_slow(name, args, status, None) }
}

/// Executes any blocking receive. First polls the named source in the caller's frame. `EXCHANGE`: whether the receive
/// belongs to an `MPI_Sendrecv`. The compiler inlines the polling loop only if each copy of it has one caller.
///
/// # Safety
/// See USER'S BUFFER.
#[inline(always)] // `bench/arrival` counts MPI_Recv; each frame adds eight instructions
pub unsafe fn poll_recv<const EXCHANGE: bool>(
    name: &'static str, args: Args, status: *mut Status,
) -> Result {
    // SAFETY: USER'S BUFFER.
    unsafe {
        match spin_quiet::<EXCHANGE>(&args, status) {
            Some(SpinOutcome::Done) => Ok(()),
            spun => recv_slow(name, args, status, spun),
        }
    }
}

/// Executes any blocking receive for a thread that is inside the lock. First polls the named source there, then calls
/// `leave`, which must leave the lock.
///
/// # Safety
/// See USER'S BUFFER.
#[inline(always)] // `bench/arrival` counts MPI_Recv at MPI_THREAD_MULTIPLE
pub unsafe fn poll_recv_inside(
    name: &'static str, args: Args, status: *mut Status, leave: impl FnOnce(),
) -> Result {
    // SAFETY: USER'S BUFFER.
    unsafe {
        let spun = spin_recv::<{ hot::INSIDE }>(&args, status);
        leave();
        match spun {
            SpinOutcome::Done => Ok(()),
            spun => recv_slow(name, args, status, Some(spun)),
        }
    }
}

/// Polls the named peer for a while like [`spin_recv`]. Returns `None` if a message or receive precedes this one. Few
/// instructions follow the arrival of a short message. The loop repeats that of [`spin_recv`]: one loop for both made
/// messages of 1 KiB slower (`docs/performance.md`).
#[inline(always)] // `fastpath bench latency`: 8 B
unsafe fn spin_quiet<const EXCHANGE: bool>(
    args: &Args, status: *mut Status,
) -> Option<SpinOutcome> {
    // SAFETY: USER'S BUFFER and TABLES: the endpoint and the worker are from the tables.
    unsafe {
        let (endpoint, key, room) = find_source::<{ hot::OPEN }>(args)?;
        let worker = hot::worker_of::<{ hot::OPEN }>();
        if !(*worker).wait.directed || !(*worker).is_idle() || (*worker).is_crowded() {
            return None;
        }
        let mut cold = false;
        let look = |count| {
            if (*endpoint).has_arrival() {
                return Some((*endpoint).copy_short(key, args.tag, args.buf, room));
            }
            if count == 1 {
                cold = (*endpoint).begin_wait();
            } else if cold {
                cold = (*endpoint).warm();
            }
            None
        };
        let peer = *hot::comm(args.comm).world.add(args.peer as usize);
        let is_needed = || (*worker).must_look_around(peer) && !(*endpoint).has_arrival();
        let polls = (*worker).wait.spin_polls((*endpoint).spin_polls());
        Some(match spin(polls, look, is_needed) {
            Some(Some(taken)) => {
                fill_status(status, args.peer, taken.tag, taken.len as i64);
                (*endpoint).take_short();
                SpinOutcome::Done
            }
            Some(None) => {
                let want = MatchCriteria { peer, tag: args.tag, key };
                recv_arrival::<{ hot::OPEN }>(args, endpoint, want, room, status)
            }
            None => SpinOutcome::Nothing,
        })
    }
}

#[cold]
#[inline(never)]
unsafe fn recv_slow(
    name: &'static str, args: Args, status: *mut Status, spun: Option<SpinOutcome>,
) -> Result {
    // SAFETY: USER'S BUFFER.
    unsafe {
        let has_spun = spun.is_some();
        let mut spun = spun.unwrap_or_else(|| spin_recv::<{ hot::OPEN }>(&args, status));
        if let SpinOutcome::Done = spun {
            return Ok(());
        }
        let p = process::enter(name, false)?;
        if !has_spun && lock::is_enabled() && hot::receives_inside(args.comm) {
            spun = spin_recv::<{ hot::INSIDE }>(&args, status);
        }
        if let SpinOutcome::Done = spun {
            return Ok(());
        }
        let worker = p.worker()?;
        let _attending = ProgressGuard::begin(Some(worker));
        if let SpinOutcome::Request(id) = spun {
            let context = p.comm(args.comm)?;
            wait_complete(worker, id, &note(name, &context, &args, 0));
            return finish_recv(worker, id, &args, status);
        }
        let Some(checked) = check_recv(&p, &args)? else {
            fill_status(status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
            return Ok(());
        };
        let id = start_recv(&p, &checked, &args)?;
        wait_complete(worker, id, &note(name, &checked.comm, &args, checked.buffer.bytes));
        trace::share_time_of(Point::Waited);
        let stored = settle(&p, id);
        finish_recv(worker, id, &args, status).and(stored)
    }
}

/// Polls only the named peer for a while, unless other work needs this process.
unsafe fn spin_recv<const WAY: u8>(args: &Args, status: *mut Status) -> SpinOutcome {
    let comm = hot::comm(args.comm);
    let worker = hot::worker_of::<WAY>();
    let Some((want, room)) = named_want::<WAY>(args) else {
        return SpinOutcome::Nothing;
    };
    let peer = want.peer;
    // SAFETY: USER'S BUFFER; `named_want` has compared the entry's key, so the worker lives and has an endpoint for the
    // rank. No reference to the worker outlives a statement.
    unsafe {
        let endpoint = *comm.endpoints.add(args.peer as usize);
        if !(*worker).wait.directed
            || !(*worker).is_idle()
            || (*worker).is_crowded()
            || (*worker).matcher.find_unexpected(&want).is_some()
        {
            return SpinOutcome::Nothing;
        }
        if !poll_source::<WAY>(worker, endpoint, peer, u32::MAX) {
            return SpinOutcome::Nothing;
        }
        if (*worker).matcher.is_quiet_beside(endpoint)
            && let Some(taken) = (*endpoint).copy_short(want.key, args.tag, args.buf, room)
        {
            fill_status(status, args.peer, taken.tag, taken.len as i64);
            (*endpoint).take_short();
            return SpinOutcome::Done;
        }
        recv_arrival::<WAY>(args, endpoint, want, room, status)
    }
}

/// Polls a named peer for a while, at most `most` times. Returns whether something has arrived; a false result may also
/// mean that other work needs this process.
///
/// # Safety
/// `endpoint` belongs to `peer`, and `worker` is in the hot tables. No reference to either is held.
#[inline(always)] // `fastpath bench latency`: 8 B
pub(crate) unsafe fn poll_source<const WAY: u8>(
    worker: *mut Worker, endpoint: *mut Endpoint, peer: u32, most: u32,
) -> bool {
    // SAFETY: worker and endpoint are valid, by this function's contract. No reference to them outlives a statement.
    unsafe {
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
        // The awaited message may be the peer's next arrival; poll again before leaving the loop.
        let is_needed = || {
            ((WAY != hot::OPEN && lock::get().is_wanted()) || (*worker).must_look_around(peer))
                && !(*endpoint).has_arrival()
        };
        let polls = (*worker).wait.spin_polls((*endpoint).spin_polls()).min(most);
        let has_arrived = spin(polls, has_arrival, is_needed).is_some();
        if attends {
            (*worker).resume();
        }
        has_arrived
    }
}

/// Receives the peer's next arrival, whole or in parts, if it is the wanted message.
unsafe fn recv_arrival<const WAY: u8>(
    args: &Args, endpoint: *mut Endpoint, want: MatchCriteria, room: usize, status: *mut Status,
) -> SpinOutcome {
    // SAFETY: USER'S BUFFER.
    unsafe {
        let worker = hot::worker_of::<WAY>();
        if !(*worker).is_unclaimed(want.peer) {
            return SpinOutcome::Nothing;
        }
        if let Some(taken) = (*endpoint).recv_immediate(want.key, args.tag, args.buf, room) {
            fill_status(status, args.peer, taken.tag, taken.len as i64);
            return SpinOutcome::Done;
        }
        match (*worker).recv_parts(want, args.buf, room as u64, args.comm) {
            None => SpinOutcome::Nothing,
            Some(Parts::Request(id)) => SpinOutcome::Request(id),
            Some(Parts::Done { tag, len }) => {
                fill_status(status, args.peer, tag, len as i64);
                SpinOutcome::Done
            }
        }
    }
}

enum SpinOutcome {
    Done,
    /// A part has arrived. This request receives the rest of the message.
    Request(RequestId),
    /// The message has not arrived, or needs the general path.
    Nothing,
}

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
