//! Immediate path of barrier and short allreduce between two ranks: two messages, no request, no allocation, and no
//! lock below `MPI_THREAD_MULTIPLE`. Other cases use the ordinary path, which checks arguments and reports errors.
//!
//! **BYTES.** Each buffer of an exchange is valid for the bytes of its message, and the communicator's handle is that
//! of the call. Each unsafe function here requires BYTES of its caller.
#![allow(unsafe_code)]

mod nonblocking;

use super::skip_empty;
use crate::common::consts::MPI_IN_PLACE;
use crate::common::error::Result;
use crate::common::lock;
use crate::objects::comm::Comm;
use crate::objects::datatype::is_memory;
use crate::objects::hot::{self, HotComm, INSIDE, OPEN};
use crate::objects::op::{Kernel, cache};
use crate::p2p::channel::Channel;
use crate::process::{self, Process};
use fastpath_base::copy::copy_small;
use fastpath_protocol::buffer::Buffer;
use fastpath_protocol::waiting::{SPIN_POLLS, spin};
use fastpath_protocol::wire::SHORT_LIMIT;
use fastpath_protocol::{Endpoint, tag};
use fastpath_transport::Post;
pub use nonblocking::{make_allreduce, make_barrier};
use std::mem::MaybeUninit;

/// Outcome of a call. It is not a `Result` within an option, so that it fits one register.
#[must_use]
pub enum PairCall {
    /// The call is complete.
    Done,
    /// Nothing was done.
    Declined,
    /// The peer's message has not arrived. [`MissingMessage::receive`] waits for it. Inside MPI,
    /// [`MissingMessage::wait`] waits for it.
    Waiting(MissingMessage),
}

/// Message that has not arrived.
#[derive(Clone, Copy)]
pub struct MissingMessage {
    tag: i32,
    from: u32,
}

struct PairComm {
    comm: &'static HotComm,
    other: usize,
    endpoint: *mut Endpoint,
}

/// Returns the pair of a communicator with two ranks, if no earlier message or posted receive precedes the exchange.
#[inline(always)] // `fastpath bench instructions` counts MPI_Barrier
fn find_pair<const WAY: u8>(handle: usize) -> Option<PairComm> {
    let pair = find_two::<WAY>(handle)?;
    // SAFETY: the keys match, so MPI runs and there is a worker.
    let is_quiet = unsafe { (*hot::worker_of::<WAY>()).matcher.is_quiet_beside(pair.endpoint) };
    is_quiet.then_some(pair)
}

/// Returns the pair of a communicator; `None` unless it has two ranks and is in the tables for `WAY` (see `hot::OPEN`).
#[inline(always)] // `fastpath bench instructions` counts MPI_Barrier
fn find_two<const WAY: u8>(handle: usize) -> Option<PairComm> {
    let comm = hot::comm(handle);
    let key = hot::key::<WAY>(handle);
    if comm.send_key != key || comm.recv_key != key || comm.size != 2 || comm.comm.is_null() {
        return None;
    }
    let other = 1 - (comm.own_key - comm.from_key) as usize;
    // SAFETY: the keys match, so the entry has an endpoint for each of the two ranks.
    let endpoint = unsafe { *comm.endpoints.add(other) };
    Some(PairComm { comm, other, endpoint })
}

/// Sends `bytes` bytes as the next collective call, and polls once for the peer's message.
///
/// # Safety
/// See [`exchange_as`].
#[inline(always)] // `fastpath bench instructions` counts MPI_Barrier
unsafe fn exchange(pair: &PairComm, out: *const u8, into: *mut u8, bytes: usize) -> PairCall {
    // SAFETY: the communicator lives while it is in the table.
    let comm = unsafe { &*pair.comm.comm };
    // SAFETY: BYTES.
    let outcome = unsafe { exchange_as(pair, Channel::next_tag(comm), out, into, bytes) };
    if !matches!(outcome, PairCall::Declined) {
        Channel::advance(comm);
    }
    outcome
}

/// Exchanges `bytes` bytes with the peer under a tag, like [`exchange`].
///
/// # Safety
/// `out` is readable, `into` writable for `bytes` bytes, at most [`SHORT_LIMIT`].
#[inline(always)] // `fastpath bench instructions` counts MPI_Barrier
unsafe fn exchange_as(
    pair: &PairComm, tag: i32, out: *const u8, into: *mut u8, bytes: usize,
) -> PairCall {
    let PairComm { comm, other, endpoint } = *pair;
    // SAFETY: this is the only thread inside MPI: below MPI_THREAD_MULTIPLE always, and at that level because it has
    // the lock. The caller promises valid memory.
    unsafe {
        match (*endpoint).send_immediate(tag::collective_key(comm.own_key), tag, out, bytes) {
            Post::Done => {}
            Post::Wake => _ = (*endpoint).wake(),
            _ => return PairCall::Declined,
        }
        let from = tag::collective_key(comm.from_key + other as u64);
        match (*endpoint).recv_short_whole(from, tag, into, bytes) {
            Some(_) => PairCall::Done,
            None => PairCall::Waiting(MissingMessage { tag, from: other as u32 }),
        }
    }
}

impl MissingMessage {
    /// Waits for the message.
    ///
    /// # Safety
    /// `into` is writable for `bytes` bytes, and `handle` is that of the call.
    #[inline(never)]
    pub unsafe fn receive(
        self, name: &'static str, handle: usize, into: *mut u8, bytes: usize,
    ) -> Result {
        // SAFETY: BYTES.
        if unsafe { self.spin(handle, into, bytes, SPIN_POLLS) } {
            return Ok(());
        }
        let p = process::enter(name, false)?;
        let comm = p.comm(handle)?;
        // SAFETY: BYTES.
        unsafe { self.wait(&p, &comm, into, bytes) }
    }

    /// Waits for the message inside MPI, without polling through the hot tables first.
    ///
    /// # Safety
    /// See [`MissingMessage::receive`].
    unsafe fn wait(self, p: &Process, comm: &Comm, into: *mut u8, bytes: usize) -> Result {
        let buffer = Buffer::contiguous(into, bytes as u64);
        // SAFETY: BYTES.
        unsafe { Channel::tagged(p, comm, self.tag).recv(self.from, buffer) }
    }
}

impl MissingMessage {
    /// Polls for the message `polls` times, through the hot tables only. Returns whether it has received the message.
    ///
    /// # Safety
    /// See [`MissingMessage::receive`]. The communicator must be in the table.
    unsafe fn spin(&self, handle: usize, into: *mut u8, bytes: usize, polls: u32) -> bool {
        let comm = hot::comm(handle);
        let worker = hot::worker();
        let from = self.from as usize;
        let key = tag::collective_key(comm.from_key + from as u64);
        // SAFETY: the communicator is in the table, so the worker lives. No reference outlives a statement.
        unsafe {
            let (endpoint, peer) = (*comm.endpoints.add(from), *comm.world.add(from));
            if !(*worker).wait.directed || !(*worker).may_watch(peer) {
                return false;
            }
            let poll = |_| (*endpoint).recv_short_whole(key, self.tag, into, bytes);
            spin(polls, poll, || (*worker).wants_attention(peer)).is_some()
        }
    }
}

/// `MPI_Barrier` of two ranks.
#[inline(always)] // `fastpath bench instructions` counts MPI_Barrier
pub fn barrier(handle: usize) -> PairCall {
    meet_by::<OPEN>(handle)
}

#[inline(always)] // `fastpath bench instructions` counts MPI_Barrier
fn meet_by<const WAY: u8>(handle: usize) -> PairCall {
    match find_pair::<WAY>(handle) {
        // SAFETY: messages without bytes touch no memory.
        Some(pair) => unsafe { exchange(&pair, std::ptr::null(), std::ptr::null_mut(), 0) },
        None => PairCall::Declined,
    }
}

/// Executes a barrier of two ranks inside MPI. Returns false, without effect, if this path does not apply. Errors:
/// failure of the peer.
pub fn meet(p: &Process, comm: &Comm) -> Result<bool> {
    let handle = comm.handle.get();
    let outcome = match lock::is_enabled() {
        false => barrier(handle),
        true => meet_by::<INSIDE>(handle),
    };
    match outcome {
        PairCall::Declined => Ok(false),
        PairCall::Done => Ok(true),
        // SAFETY: messages without bytes touch no memory.
        PairCall::Waiting(missing) => unsafe {
            let null = std::ptr::null_mut();
            if lock::is_enabled() || !missing.spin(handle, null, 0, SPIN_POLLS) {
                missing.wait(p, comm, null, 0)?;
            }
            Ok(true)
        },
    }
}

/// `MPI_Allreduce` of two ranks with a predefined operation on up to [`SHORT_LIMIT`] bytes, or of any number of ranks
/// without data. Returns `None`, without effect, in all other cases.
///
/// # Safety
/// The buffers must be valid for count and datatype.
#[inline(always)] // `fastpath bench instructions` counts MPI_Allreduce
pub unsafe fn allreduce(
    send: *const u8, recv: *mut u8, count: i64, datatype: usize, op: usize, handle: usize,
) -> Option<Result> {
    // SAFETY: BYTES.
    let receive = |missing: MissingMessage, into, bytes| unsafe {
        missing.receive("MPI_Allreduce", handle, into, bytes)
    };
    // SAFETY: BYTES; `receive` waits for the message that it gets.
    unsafe { allreduce_by::<OPEN>(send, recv, count, datatype, op, handle, receive) }
}

/// `MPI_Allreduce` at `MPI_THREAD_MULTIPLE`, by a thread that is inside MPI; see [`allreduce`].
///
/// # Safety
/// See [`allreduce`].
pub unsafe fn allreduce_inside(
    p: &Process, send: *const u8, recv: *mut u8, count: i64, datatype: usize, op: usize,
    handle: usize,
) -> Option<Result> {
    if !lock::is_enabled() {
        return None;
    }
    // SAFETY: BYTES.
    let receive = |missing: MissingMessage, into, bytes| unsafe {
        missing.wait(p, &*p.comm(handle)?, into, bytes)
    };
    // SAFETY: BYTES; `receive` waits for the message that it gets.
    unsafe { allreduce_by::<INSIDE>(send, recv, count, datatype, op, handle, receive) }
}

/// Executes [`allreduce`] through the hot tables for `WAY`. Safety: see [`allreduce`]. `receive` waits for the message
/// that it gets, with the given destination and length.
#[inline(always)] // `fastpath bench instructions` counts MPI_Allreduce
unsafe fn allreduce_by<const WAY: u8>(
    send: *const u8, recv: *mut u8, count: i64, datatype: usize, op: usize, handle: usize,
    receive: impl FnOnce(MissingMessage, *mut u8, usize) -> Result,
) -> Option<Result> {
    let find = || find_pair::<WAY>(handle);
    let found = ShortReduction::find((send, recv), (count, datatype, op), find)?;
    let Some((pair, sum)) = found else {
        let empty = (count, datatype);
        let skipped = recv as usize != MPI_IN_PLACE && skip_empty(handle, empty, empty, 0);
        return skipped.then_some(Ok(()));
    };
    let mut space = OperandSpace::uninit();
    // SAFETY: BYTES; `space` has room for `SHORT_LIMIT` bytes.
    unsafe {
        let into = sum.destination(&mut space);
        match exchange(&pair, sum.operand(), into, sum.bytes) {
            PairCall::Done => {}
            PairCall::Declined => return None,
            PairCall::Waiting(missing) => {
                if let Err(e) = receive(missing, into, sum.bytes) {
                    return Some(Err(e));
                }
            }
        }
        sum.combine(&mut space);
    }
    Some(Ok(()))
}

/// Memory for the peer's operand.
type OperandSpace = MaybeUninit<[u64; SHORT_LIMIT / 8]>;

/// Reduction of two ranks by a predefined operation, of up to [`SHORT_LIMIT`] bytes.
#[derive(Clone, Copy)]
struct ShortReduction {
    send: *const u8,
    recv: *mut u8,
    count: usize,
    bytes: usize,
    kernel: Kernel,
    /// Whether this is the lower rank. Its result replaces the peer's operand, because an operation stores its result
    /// in the right operand.
    is_lower: bool,
}

impl ShortReduction {
    /// Returns the reduction, and the pair that `find_pair` returns. Returns `None` if no kernel of operation and
    /// datatype is cached, or if there is no pair. Returns `Some(None)` if the other arguments do not suit this path.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Allreduce
    fn find(
        (send, recv): (*const u8, *mut u8), (count, datatype, op): (i64, usize, usize),
        find_pair: impl FnOnce() -> Option<PairComm>,
    ) -> Option<Option<(PairComm, ShortReduction)>> {
        let element = hot::datatype(datatype);
        let bytes = (count as u64).wrapping_mul(element.size);
        let kernel = cache::find(op, datatype)?;
        let plain = element.key == datatype as u64
            && (count as u64).wrapping_sub(1) < SHORT_LIMIT as u64
            && bytes <= SHORT_LIMIT as u64
            && is_memory(recv)
            && !send.is_null()
            && send != recv;
        if !plain {
            return Some(None);
        }
        let pair = find_pair()?;
        let (count, bytes, is_lower) = (count as usize, bytes as usize, pair.other == 1);
        Some(Some((pair, ShortReduction { send, recv, count, bytes, kernel, is_lower })))
    }

    fn is_in_place(&self) -> bool {
        self.send as usize == MPI_IN_PLACE
    }

    #[inline(always)] // `fastpath bench instructions` counts MPI_Allreduce
    fn operand(&self) -> *const u8 {
        if self.is_in_place() { self.recv.cast_const() } else { self.send }
    }

    /// Returns the buffer for the peer's operand: the receive buffer if the result replaces the peer's operand and the
    /// call is not in place; otherwise `space`.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Allreduce
    fn destination(&self, space: &mut OperandSpace) -> *mut u8 {
        if self.is_lower && !self.is_in_place() { self.recv } else { space.as_mut_ptr().cast() }
    }

    /// Combines both operands.
    ///
    /// # Safety
    /// See BYTES. The peer's operand has been received at [`ShortReduction::destination`], with this `space`.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Allreduce
    unsafe fn combine(&self, space: &mut OperandSpace) {
        let ShortReduction { send, recv, count, bytes, kernel, .. } = *self;
        let theirs = space.as_mut_ptr().cast::<u8>();
        // SAFETY: BYTES; the kernel is for elements that are `bytes` bytes in all.
        unsafe {
            if !self.is_lower {
                if !self.is_in_place() {
                    copy_small(recv, send, bytes);
                }
                kernel(theirs, recv, count);
            } else if self.is_in_place() {
                kernel(recv, theirs, count);
                copy_small(recv, theirs, bytes);
            } else {
                kernel(send, recv, count);
            }
        }
    }
}
