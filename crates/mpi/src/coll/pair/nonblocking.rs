//! Immediate path of nonblocking and persistent barrier and short allreduce between two ranks. The message is sent
//! through the hot tables. The call polls for the peer's message about as long as a request takes to make. If the
//! message does not arrive, a request waits for it. BYTES is defined in `pair.rs`.
#![allow(unsafe_code)]

use super::{
    MissingMessage, OperandSpace, PairCall, PairComm, ShortReduction, exchange, exchange_as,
    find_pair, find_two,
};
use crate::coll::Form;
use crate::coll::fabric::{CallFabric, Fabric};
use crate::coll::nonblocking::{NonblockingFabric, go_on, prepare_checked};
use crate::common::error::Result;
use crate::common::lock;
use crate::objects::hot::{INSIDE, OPEN};
use crate::objects::op;
use crate::p2p::request::completed_request;
use crate::process::Process;
use fastpath_protocol::buffer::Buffer;
use std::ptr::{null, null_mut};
use std::rc::Rc;

/// Number of polls for the peer's message before a request is made. The polls take about as long as making a request.
const POLLS: u32 = 256;

/// `MPI_Ibarrier` and `MPI_Barrier_init` of two ranks. Returns `None`, without effect, if this path does not apply.
///
/// # Safety
/// The request in the form must be null or a variable.
pub unsafe fn make_barrier(p: &Process, form: Form, handle: usize) -> Option<Result> {
    if form.is_blocking() {
        return None;
    }
    // SAFETY: messages without bytes touch no memory, and the caller promises a valid request.
    unsafe { make(p, form, handle, find_for(form, handle)?, None) }
}

/// `MPI_Iallreduce` and `MPI_Allreduce_init` of two ranks; see [`super::allreduce`].
///
/// # Safety
/// See [`make_barrier`]. The buffers must be valid for count and datatype until the call is complete.
pub unsafe fn make_allreduce(
    p: &Process, form: Form, buffers: (*const u8, *mut u8), data: (i64, usize, usize),
    handle: usize,
) -> Option<Result> {
    if form.is_blocking() {
        return None;
    }
    if let Form::Persistent(_) = form {
        // Cache the kernel: `find` searches only the cache, and this may be the first call that uses this kernel.
        let basic = p.datatype(data.1).ok().and_then(|datatype| datatype.basic());
        basic.and_then(|basic| op::find_predefined(data.2, basic));
    }
    let (pair, sum) = ShortReduction::find(buffers, data, || find_for(form, handle))??;
    // SAFETY: BYTES.
    unsafe { make(p, form, handle, pair, Some(sum)) }
}

/// Returns the pair of a communicator, if any. A persistent call checks for earlier messages at each start, not here.
fn find_for(form: Form, handle: usize) -> Option<PairComm> {
    match (form, lock::is_enabled()) {
        (Form::Persistent(_), false) => find_two::<OPEN>(handle),
        (Form::Persistent(_), true) => find_two::<INSIDE>(handle),
        _ => find_now(handle),
    }
}

fn find_now(handle: usize) -> Option<PairComm> {
    match lock::is_enabled() {
        false => find_pair::<OPEN>(handle),
        true => find_pair::<INSIDE>(handle),
    }
}

/// Sends a nonblocking call's message, or prepares a persistent call; `None` if it cannot. Safety: see
/// [`make_allreduce`].
unsafe fn make(
    p: &Process, form: Form, handle: usize, pair: PairComm, sum: Option<ShortReduction>,
) -> Option<Result> {
    let (request, made) = match form {
        Form::Nonblocking(request) if !request.is_null() => {
            let mut space = OperandSpace::uninit();
            let (out, into, bytes) = sides(&sum, &mut space);
            // SAFETY: BYTES.
            let outcome = unsafe {
                let outcome = exchange(&pair, out, into, bytes);
                poll_on(p, handle, &pair, outcome, (into, bytes))
            };
            let made = match outcome {
                PairCall::Declined => return None,
                PairCall::Done => {
                    // SAFETY: BYTES.
                    unsafe { combine(&sum, &mut space) };
                    completed_request(p)
                }
                PairCall::Waiting(missing) => {
                    // SAFETY: BYTES hold until the request has completed.
                    let rest = |f| unsafe { receive(f, sum) };
                    go_on(p, handle, missing.tag, rest)
                }
            };
            (request, made)
        }
        Form::Persistent(request) if !request.is_null() => {
            // SAFETY: BYTES hold from each start until its completion.
            let made = prepare_checked(p, handle, move |f| unsafe { run(f, handle, sum) });
            (request, made)
        }
        _ => return None,
    };
    // SAFETY: the request is not null, and so points to a variable, by this function's contract.
    Some(made.map(|made| unsafe { request.write(made) }))
}

/// Returns the address of this rank's operand, the buffer for the peer's operand, and the bytes of each.
fn sides(sum: &Option<ShortReduction>, space: &mut OperandSpace) -> (*const u8, *mut u8, usize) {
    match sum {
        Some(sum) => (sum.operand(), sum.destination(space), sum.bytes),
        None => (null(), null_mut(), 0),
    }
}

/// Combines both operands if the call is an allreduce. Safety: see [`ShortReduction::combine`].
unsafe fn combine(sum: &Option<ShortReduction>, space: &mut OperandSpace) {
    if let Some(sum) = sum {
        // SAFETY: BYTES.
        unsafe { sum.combine(space) };
    }
}

/// Notifies the peer's progress thread after an exchange, then polls [`POLLS`] times for the peer's message.
///
/// # Safety
/// See [`exchange_as`]. The handle is that of the pair's communicator.
unsafe fn poll_on(
    p: &Process, handle: usize, pair: &PairComm, outcome: PairCall, (into, bytes): (*mut u8, usize),
) -> PairCall {
    if !matches!(outcome, PairCall::Declined)
        && let Ok(worker) = p.worker()
    {
        // SAFETY: the worker lives while MPI runs; the tables have an entry for each of the two ranks.
        unsafe { (*worker).call_peer(*pair.comm.world.add(pair.other)) };
    }
    // SAFETY: BYTES.
    let comes = |missing: &MissingMessage| unsafe { missing.spin(handle, into, bytes, POLLS) };
    match outcome {
        PairCall::Waiting(missing) if !lock::is_enabled() && comes(&missing) => PairCall::Done,
        other => other,
    }
}

/// Completes a call whose own message has been sent.
///
/// # Safety
/// See [`make_allreduce`], whose conditions must hold until the future is ready.
async unsafe fn receive(f: NonblockingFabric, sum: Option<ShortReduction>) -> Result {
    let mut space = OperandSpace::uninit();
    let (_, into, bytes) = sides(&sum, &mut space);
    // SAFETY: BYTES.
    let received = unsafe { f.recv(1 - f.rank(), Buffer::contiguous(into, bytes as u64)).await };
    f.channel().conclude(received)?;
    // SAFETY: BYTES.
    unsafe { combine(&sum, &mut space) };
    Ok(())
}

/// Executes one start of a persistent call.
///
/// # Safety
/// See [`make_allreduce`], whose conditions must hold until the future is ready.
async unsafe fn run(
    f: Rc<NonblockingFabric>, handle: usize, sum: Option<ShortReduction>,
) -> Result {
    let mut space = OperandSpace::uninit();
    let (out, into, bytes) = sides(&sum, &mut space);
    let (p, tag) = (f.channel().process, f.channel().tag);
    // SAFETY: BYTES.
    let outcome = find_now(handle).map_or(PairCall::Declined, |pair| unsafe {
        let outcome = exchange_as(&pair, tag, out, into, bytes);
        poll_on(p, handle, &pair, outcome, (into, bytes))
    });
    let other = 1 - f.rank();
    let theirs = Buffer::contiguous(into, bytes as u64);
    // SAFETY: BYTES.
    let received = unsafe {
        match outcome {
            PairCall::Done => Ok(()),
            PairCall::Waiting(_) => f.recv(other, theirs).await,
            PairCall::Declined => {
                let own = Buffer::contiguous(out.cast_mut(), bytes as u64);
                f.exchange(other, own, other, theirs).await
            }
        }
    };
    f.channel().conclude(received)?;
    // SAFETY: BYTES.
    unsafe { combine(&sum, &mut space) };
    Ok(())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn size_of_future<A, F>(_: impl FnOnce(A) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn request__of_a_pair_takes_at_most_2_kib() {
        // SAFETY: the future is never polled.
        let once = size_of_future(|f| unsafe { receive(f, None) });
        // SAFETY: the future is never polled.
        let again = size_of_future(|f| unsafe { run(f, 0, None) });
        assert!(once.max(again) <= 2048, "{once} and {again} bytes");
    }
}
