//! The same pairs in calls that do not block, and in persistent ones: the message goes by the hot tables. If the other
//! rank's is there, or comes in the time that a request would take, the call is over. If not, a request waits.
#![allow(unsafe_code)]

use super::{
    Missing, OperandSpace, PairCall, PairComm, ShortReduction, exchange, exchange_as, find_pair,
    find_two,
};
use crate::coll::Form;
use crate::coll::fabric::{Call, Fabric};
use crate::coll::nonblocking::{Outstanding, go_on, prepare_checked};
use crate::common::error::Result;
use crate::common::lock;
use crate::objects::hot::{INSIDE, OPEN};
use crate::objects::op;
use crate::p2p::request::completed_request;
use crate::process::Process;
use fastpath_protocol::buffer::Buffer;
use std::ptr::{null, null_mut};
use std::rc::Rc;

/// Polls for the other rank's message before a request is made: they take about as long as that.
const POLLS: u32 = 256;

/// `MPI_Ibarrier` and `MPI_Barrier_init` of two ranks. `None` where that does not fit, and nothing has happened.
///
/// # Safety
/// The request in the form is null or a variable.
pub unsafe fn make_barrier(p: &Process, form: Form, handle: usize) -> Option<Result> {
    if form.is_blocking() {
        return None;
    }
    // SAFETY: messages without bytes touch no memory; the caller vouches for the request.
    unsafe { make(p, form, handle, find_for(form, handle)?, None) }
}

/// The same of `MPI_Iallreduce` and `MPI_Allreduce_init`, as [`super::allreduce`].
///
/// # Safety
/// As [`make_barrier`]; the buffers are as count and datatype say until the call is complete.
pub unsafe fn make_allreduce(
    p: &Process, form: Form, buffers: (*const u8, *mut u8), data: (i64, usize, usize),
    handle: usize,
) -> Option<Result> {
    if form.is_blocking() {
        return None;
    }
    if let Form::Persistent(_) = form {
        // Nothing may have been combined so yet.
        let basic = p.datatype(data.1).ok().and_then(|datatype| datatype.basic());
        basic.and_then(|basic| op::find_predefined(data.2, basic));
    }
    let (pair, sum) = ShortReduction::find(buffers, data, || find_for(form, handle))??;
    // SAFETY: BYTES.
    unsafe { make(p, form, handle, pair, Some(sum)) }
}

/// The pair of a communicator: of a persistent call whatever is under way, which each start looks at.
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

/// # Safety
/// As [`make_allreduce`].
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
                    // SAFETY: BYTES, until the request has completed.
                    let rest = |f| unsafe { receive(f, sum) };
                    go_on(p, handle, missing.tag, rest)
                }
            };
            (request, made)
        }
        Form::Persistent(request) if !request.is_null() => {
            // SAFETY: BYTES, from each start until its completion.
            let made = prepare_checked(p, handle, move |f| unsafe { run(f, handle, sum) });
            (request, made)
        }
        _ => return None,
    };
    // SAFETY: the caller vouches for it.
    Some(made.map(|made| unsafe { request.write(made) }))
}

/// What a rank sends, where the other's goes, and how many bytes each.
fn sides(sum: &Option<ShortReduction>, space: &mut OperandSpace) -> (*const u8, *mut u8, usize) {
    match sum {
        Some(sum) => (sum.operand(), sum.destination(space), sum.bytes),
        None => (null(), null_mut(), 0),
    }
}

/// # Safety
/// As [`ShortReduction::combine`].
unsafe fn combine(sum: &Option<ShortReduction>, space: &mut OperandSpace) {
    if let Some(sum) = sum {
        // SAFETY: BYTES.
        unsafe { sum.combine(space) };
    }
}

/// After an exchange: tells the peer's progress thread of the message, and polls for the peer's for a moment more.
///
/// # Safety
/// As [`exchange_as`]; the handle is that of the pair's communicator.
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
    let comes = |missing: &Missing| unsafe { missing.spin(handle, into, bytes, POLLS) };
    match outcome {
        PairCall::Waiting(missing) if !lock::is_enabled() && comes(&missing) => PairCall::Done,
        other => other,
    }
}

/// The rest of a call whose message was sent.
///
/// # Safety
/// As [`make_allreduce`], until the future is ready.
async unsafe fn receive(f: Outstanding, sum: Option<ShortReduction>) -> Result {
    let mut space = OperandSpace::uninit();
    let (_, into, bytes) = sides(&sum, &mut space);
    // SAFETY: BYTES.
    let received = unsafe { f.recv(1 - f.rank(), Buffer::contiguous(into, bytes as u64)).await };
    f.channel().conclude(received)?;
    // SAFETY: BYTES.
    unsafe { combine(&sum, &mut space) };
    Ok(())
}

/// A start of a persistent call.
///
/// # Safety
/// As [`make_allreduce`], until the future is ready.
async unsafe fn run(f: Rc<Outstanding>, handle: usize, sum: Option<ShortReduction>) -> Result {
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
        // SAFETY: never run.
        let once = size_of_future(|f| unsafe { receive(f, None) });
        // SAFETY: never run.
        let again = size_of_future(|f| unsafe { run(f, 0, None) });
        assert!(once.max(again) <= 2048, "{once} and {again} bytes");
    }
}
