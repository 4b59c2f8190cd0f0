//! The same pairs in calls that do not block, and in persistent ones: the message goes by the hot tables. If the other
//! rank's is there, or comes in the time that a request would take, the call is over. If not, a request waits.
#![allow(unsafe_code)]

use super::{Missing, PairCall, PairComm, Place, Sum, exchange, exchange_as, find_pair};
use crate::coll::Form;
use crate::coll::fabric::{Call, Fabric};
use crate::coll::nonblocking::{Outstanding, go_on, prepare_checked};
use crate::error::Result;
use crate::hot::{INSIDE, OPEN};
use crate::lock;
use crate::process::Process;
use crate::request::completed_request;
use fastpath_protocol::buffer::Buffer;
use std::borrow::Borrow;
use std::ptr::{self, null, null_mut};

/// Looks for the other rank's message before a request is made. They take as long as that at most.
const LOOKS: u32 = 256;

/// `MPI_Ibarrier` and `MPI_Barrier_init` of two ranks. `None` where that does not fit, and nothing has happened.
///
/// # Safety
/// The request in the form is null or a variable.
pub unsafe fn make_barrier(p: &Process, form: Form, handle: usize) -> Option<Result> {
    if form.is_blocking() {
        return None;
    }
    // SAFETY: messages without bytes touch no memory; the caller vouches for the request.
    unsafe { make(p, form, handle, find_any(handle)?, None) }
}

/// The same of `MPI_Iallreduce` and `MPI_Allreduce_init`, as [`super::allreduce`].
///
/// # Safety
/// As [`make_barrier`]; the buffers are as count and datatype say until the call is complete.
pub unsafe fn make_allreduce(
    p: &Process, form: Form, (send, recv): (*const u8, *mut u8),
    (count, datatype, op): (i64, usize, usize), handle: usize,
) -> Option<Result> {
    if form.is_blocking() {
        return None;
    }
    // SAFETY: BYTES.
    unsafe {
        let (pair, sum) = match lock::is_enabled() {
            false => Sum::find::<OPEN>(send, recv, count, datatype, op, handle),
            true => Sum::find::<INSIDE>(send, recv, count, datatype, op, handle),
        }??;
        make(p, form, handle, pair, Some(sum))
    }
}

fn find_any(handle: usize) -> Option<PairComm> {
    match lock::is_enabled() {
        false => find_pair::<OPEN>(handle),
        true => find_pair::<INSIDE>(handle),
    }
}

/// # Safety
/// As [`make_allreduce`].
unsafe fn make(
    p: &Process, form: Form, handle: usize, pair: PairComm, sum: Option<Sum>,
) -> Option<Result> {
    let (request, made) = match form {
        Form::Nonblocking(request) if !request.is_null() => {
            let mut place = Place::uninit();
            let (out, into, bytes) = sides(&sum, &mut place);
            // SAFETY: BYTES.
            let outcome = unsafe {
                let outcome = exchange(&pair, out, into, bytes);
                look_again(p, handle, &pair, outcome, (into, bytes))
            };
            let made = match outcome {
                PairCall::Declined => return None,
                PairCall::Done => {
                    // SAFETY: BYTES.
                    unsafe { combine(&sum, &mut place) };
                    completed_request(p)
                }
                PairCall::Waiting(missing) => {
                    // SAFETY: BYTES, until the request has completed.
                    let rest = |f| unsafe { run(f, handle, sum, true) };
                    go_on(p, handle, missing.tag, rest)
                }
            };
            (request, made)
        }
        Form::Persistent(request) if !request.is_null() => {
            // SAFETY: BYTES, from each start until its completion.
            let made = prepare_checked(p, handle, move |f| unsafe { run(f, handle, sum, false) });
            (request, made)
        }
        _ => return None,
    };
    // SAFETY: the caller vouches for it.
    Some(made.map(|made| unsafe { request.write(made) }))
}

/// What a rank sends, where the other's goes, and how many bytes each.
fn sides(sum: &Option<Sum>, place: &mut Place) -> (*const u8, *mut u8, usize) {
    match sum {
        Some(sum) => (sum.operand(), sum.destination(place), sum.bytes),
        None => (null(), null_mut(), 0),
    }
}

/// # Safety
/// As [`Sum::combine`].
unsafe fn combine(sum: &Option<Sum>, place: &mut Place) {
    if let Some(sum) = sum {
        // SAFETY: BYTES.
        unsafe { sum.combine(place) };
    }
}

/// Looks for the other rank's message for a moment more.
///
/// # Safety
/// As [`exchange_as`]; the handle is that of the pair's communicator.
unsafe fn look_again(
    p: &Process, handle: usize, pair: &PairComm, outcome: PairCall, (into, bytes): (*mut u8, usize),
) -> PairCall {
    if !matches!(outcome, PairCall::Declined)
        && let Ok(worker) = p.worker()
    {
        // SAFETY: the worker lives while MPI runs; the tables have an entry for each of the two ranks.
        unsafe { (*worker).call_peer(*pair.comm.world.add(pair.other)) };
    }
    // SAFETY: BYTES.
    let comes = |missing: &Missing| unsafe { missing.spin(handle, into, bytes, LOOKS) };
    match outcome {
        PairCall::Waiting(missing) if !lock::is_enabled() && comes(&missing) => PairCall::Done,
        other => other,
    }
}

/// An exchange of which the message `is_sent` already or not, and what follows.
///
/// # Safety
/// As [`make_allreduce`], until the future is ready.
async unsafe fn run(
    f: impl Borrow<Outstanding>, handle: usize, sum: Option<Sum>, is_sent: bool,
) -> Result {
    let f = f.borrow();
    let mut place = Place::uninit();
    let (out, into, bytes) = sides(&sum, &mut place);
    let outcome = match is_sent {
        true => None,
        // The handle may be another communicator's by now.
        false => {
            find_any(handle).filter(|pair| ptr::eq(pair.comm.comm, f.channel().comm)).map(|pair| {
                let (p, tag) = (f.channel().process, f.channel().tag);
                // SAFETY: BYTES.
                unsafe {
                    let outcome = exchange_as(&pair, tag, out, into, bytes);
                    look_again(p, handle, &pair, outcome, (into, bytes))
                }
            })
        }
    };
    let other = 1 - f.rank();
    let theirs = Buffer::contiguous(into, bytes as u64);
    // SAFETY: BYTES.
    let received = unsafe {
        match outcome {
            Some(PairCall::Done) => Ok(()),
            None | Some(PairCall::Declined) if !is_sent => {
                let own = Buffer::contiguous(out.cast_mut(), bytes as u64);
                f.exchange(other, own, other, theirs).await
            }
            _ => f.recv(other, theirs).await,
        }
    };
    f.channel().conclude(received)?;
    // SAFETY: BYTES.
    unsafe { combine(&sum, &mut place) };
    Ok(())
}
