//! The immediate path of barrier and short allreduce between two ranks: two messages, no request, no lock, no
//! allocation. Whatever does not fit takes the ordinary path, which checks and explains. At `MPI_THREAD_MULTIPLE` the
//! same goes inside the lock.
//!
//! **BYTES.** Each buffer of an exchange is valid for the bytes of its message, and a handle is that of the call: each
//! function here asks this of its caller.
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
use fastpath_protocol::worker::SHORT_LIMIT;
use fastpath_protocol::{Endpoint, tag};
use fastpath_transport::Post;
pub use nonblocking::{make_allreduce, make_barrier};
use std::mem::MaybeUninit;

/// What became of a call. Not a `Result` within an option: it travels in one register.
#[must_use]
pub enum PairCall {
    /// It is complete.
    Done,
    /// Nothing has happened.
    Declined,
    /// The other rank's message is not there yet: [`Missing::receive`], or [`Missing::wait`] inside MPI, waits for it.
    Waiting(Missing),
}

/// A message that is still to come.
#[derive(Clone, Copy)]
pub struct Missing {
    tag: i32,
    from: u32,
}

/// This rank, and the other.
struct PairComm {
    comm: &'static HotComm,
    other: usize,
    endpoint: *mut Endpoint,
}

/// The pair behind a communicator's handle, if it has two ranks and nothing stands before their next messages.
#[inline(always)] // `fastpath bench instructions` counts MPI_Barrier
fn find_pair<const WAY: u8>(handle: usize) -> Option<PairComm> {
    let pair = find_two::<WAY>(handle)?;
    // SAFETY: the keys match, so MPI runs and there is a worker.
    let is_quiet =
        unsafe { (*hot::worker_of::<WAY>(pair.comm)).matcher.is_quiet_beside(pair.endpoint) };
    is_quiet.then_some(pair)
}

/// The same, whatever stands before their messages.
#[inline(always)] // `fastpath bench instructions` counts MPI_Barrier
fn find_two<const WAY: u8>(handle: usize) -> Option<PairComm> {
    let comm = hot::comm(handle);
    let key = hot::key::<WAY>(handle);
    if comm.send_key != key || comm.recv_key != key || comm.size != 2 || comm.comm.is_null() {
        return None;
    }
    let other = 1 - (comm.own_key - comm.from_key) as usize;
    // SAFETY: the tables have an entry for each of the two ranks.
    let endpoint = unsafe { *comm.endpoints.add(other) };
    Some(PairComm { comm, other, endpoint })
}

/// Sends `bytes` bytes to the other rank as the next collective call, and looks once for its as many.
///
/// # Safety
/// As [`exchange_as`].
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

/// The same under a tag.
///
/// # Safety
/// `out` is readable, `into` writable for `bytes` bytes, at most [`SHORT_LIMIT`].
#[inline(always)] // `fastpath bench instructions` counts MPI_Barrier
unsafe fn exchange_as(
    pair: &PairComm, tag: i32, out: *const u8, into: *mut u8, bytes: usize,
) -> PairCall {
    let PairComm { comm, other, endpoint } = *pair;
    // SAFETY: this is the only thread inside MPI: below MPI_THREAD_MULTIPLE, and there since it has the lock. The
    // caller vouches for the memory.
    unsafe {
        match (*endpoint).send_immediate(tag::collective_key(comm.own_key), tag, out, bytes) {
            Post::Done => {}
            Post::Wake => _ = (*endpoint).wake(),
            _ => return PairCall::Declined,
        }
        let from = tag::collective_key(comm.from_key + other as u64);
        match (*endpoint).recv_short_whole(from, tag, into, bytes) {
            Some(_) => PairCall::Done,
            None => PairCall::Waiting(Missing { tag, from: other as u32 }),
        }
    }
}

impl Missing {
    /// Waits for the message.
    ///
    /// # Safety
    /// `into` is writable for `bytes` bytes; the handle is that of the call.
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

    /// The same without looking first.
    ///
    /// # Safety
    /// As [`Missing::receive`].
    unsafe fn wait(self, p: &Process, comm: &Comm, into: *mut u8, bytes: usize) -> Result {
        let buffer = Buffer::contiguous(into, bytes as u64);
        // SAFETY: BYTES.
        unsafe { Channel::tagged(p, comm, self.tag).recv(self.from, buffer) }
    }
}

impl Missing {
    /// Looks for the message so many times with nothing but the hot tables; false leaves everything as it was.
    ///
    /// # Safety
    /// As [`Missing::receive`], while the communicator is in the table.
    unsafe fn spin(&self, handle: usize, into: *mut u8, bytes: usize, polls: u32) -> bool {
        let comm = hot::comm(handle);
        let worker = hot::worker();
        let from = self.from as usize;
        let key = tag::collective_key(comm.from_key + from as u64);
        // SAFETY: as in `find_pair`; no reference to the worker outlives a statement.
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
        // SAFETY: no memory is touched.
        Some(pair) => unsafe { exchange(&pair, std::ptr::null(), std::ptr::null_mut(), 0) },
        None => PairCall::Declined,
    }
}

/// As the barrier of two ranks by a call that is inside MPI already; false where that does not fit, and nothing has
/// happened.
///
/// # Errors
/// What was found out about the other rank.
pub fn meet(p: &Process, comm: &Comm) -> Result<bool> {
    let handle = comm.handle.get();
    let outcome = match lock::is_enabled() {
        false => barrier(handle),
        true => meet_by::<INSIDE>(handle),
    };
    match outcome {
        PairCall::Declined => Ok(false),
        PairCall::Done => Ok(true),
        // SAFETY: no memory is touched.
        PairCall::Waiting(missing) => unsafe {
            let null = std::ptr::null_mut();
            if lock::is_enabled() || !missing.spin(handle, null, 0, SPIN_POLLS) {
                missing.wait(p, comm, null, 0)?;
            }
            Ok(true)
        },
    }
}

/// `MPI_Allreduce` of two ranks with a predefined operation on up to [`SHORT_LIMIT`] bytes, or of any number on none;
/// `None` where that does not fit, and nothing has happened.
///
/// # Safety
/// The buffers are as count and datatype say.
#[inline(always)] // `fastpath bench instructions` counts MPI_Allreduce
pub unsafe fn allreduce(
    send: *const u8, recv: *mut u8, count: i64, datatype: usize, op: usize, handle: usize,
) -> Option<Result> {
    // SAFETY: BYTES.
    let receive = |missing: Missing, into, bytes| unsafe {
        missing.receive("MPI_Allreduce", handle, into, bytes)
    };
    // SAFETY: BYTES; `receive` waits for the message that it is given.
    unsafe { allreduce_by::<OPEN>(send, recv, count, datatype, op, handle, receive) }
}

/// The same at `MPI_THREAD_MULTIPLE`, of a thread that is inside MPI.
///
/// # Safety
/// As [`allreduce`].
pub unsafe fn allreduce_inside(
    p: &Process, send: *const u8, recv: *mut u8, count: i64, datatype: usize, op: usize,
    handle: usize,
) -> Option<Result> {
    if !lock::is_enabled() {
        return None;
    }
    // SAFETY: BYTES.
    let receive =
        |missing: Missing, into, bytes| unsafe { missing.wait(p, &*p.comm(handle)?, into, bytes) };
    // SAFETY: BYTES; `receive` waits for the message that it is given.
    unsafe { allreduce_by::<INSIDE>(send, recv, count, datatype, op, handle, receive) }
}

/// # Safety
/// As [`allreduce`]; `receive` waits for a message of so many bytes.
#[inline(always)] // `fastpath bench instructions` counts MPI_Allreduce
unsafe fn allreduce_by<const WAY: u8>(
    send: *const u8, recv: *mut u8, count: i64, datatype: usize, op: usize, handle: usize,
    receive: impl FnOnce(Missing, *mut u8, usize) -> Result,
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

/// Memory for the other rank's operand.
type OperandSpace = MaybeUninit<[u64; SHORT_LIMIT / 8]>;

/// What two ranks combine: up to [`SHORT_LIMIT`] bytes, by a predefined operation.
#[derive(Clone, Copy)]
struct ShortReduction {
    send: *const u8,
    recv: *mut u8,
    count: usize,
    /// Bytes of all elements.
    bytes: usize,
    kernel: Kernel,
    /// The result is where the right operand was: on the lower rank that is the other's.
    is_lower: bool,
}

impl ShortReduction {
    /// With the pair that `find_pair` finds; `None` inside where the arguments do not fit, outside where the operation
    /// or the communicator does not.
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

    /// What this rank sends.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Allreduce
    fn operand(&self) -> *const u8 {
        if self.is_in_place() { self.recv.cast_const() } else { self.send }
    }

    /// Where the other's operand goes: straight into the receive buffer if that is where the result will be, unless
    /// the own one is there.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Allreduce
    fn destination(&self, space: &mut OperandSpace) -> *mut u8 {
        if self.is_lower && !self.is_in_place() { self.recv } else { space.as_mut_ptr().cast() }
    }

    /// Combines both operands.
    ///
    /// # Safety
    /// BYTES; the other's operand has been received where [`ShortReduction::destination`] said, in the same space.
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
