//! Comparison of the arguments of a collective call (`FASTPATH_CHECK`).
//!
//! Before the call, each rank sends a record to each other rank: call, root, operation, and the signature of the data
//! for that rank. The records travel in an alltoall, by the usual algorithms.
#![allow(unsafe_code)]

use super::fabric::{CallFabric, Fabric, checked, drive};
use super::vector::Vector;
use super::{alltoall, choose};
use crate::check::{Checks, RECORD_BYTES, Record};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::objects::comm::Comm;
use crate::objects::datatype::Datatype;
use crate::objects::op::Op;
use crate::p2p::channel::Channel;
use crate::process::Process;

/// Datatype and count; `None` if no data is sent or received.
pub(super) type Data<'a> = Option<(&'a Datatype, i64)>;

/// Arguments of a collective call that must agree with those of the other ranks.
pub(super) struct Arguments<'a> {
    root: Option<u32>,
    op: Option<&'a Op>,
    sends: &'a dyn Fn(u32) -> Data<'a>,
    receives: &'a dyn Fn(u32) -> Data<'a>,
}

impl<'a> Arguments<'a> {
    pub(super) fn new(
        sends: &'a dyn Fn(u32) -> Data<'a>, receives: &'a dyn Fn(u32) -> Data<'a>,
    ) -> Self {
        Arguments { root: None, op: None, sends, receives }
    }

    pub(super) fn root(self, root: u32) -> Self {
        let root = Some(root);
        Arguments { root, ..self }
    }

    pub(super) fn op(self, op: &'a Op) -> Self {
        let op = Some(op);
        Arguments { op, ..self }
    }
}

/// Returns the data of a call that sends or receives nothing.
pub(super) fn nothing<'a>(_: u32) -> Data<'a> {
    None
}

/// With checks, compares the arguments, which the rank has validated, with those of the other ranks. Fails on all ranks
/// with `MPI_ERR_ROOT` or `MPI_ERR_OP` if root or operation differ, with `MPI_ERR_OTHER` for different calls. Different
/// signatures are only reported.
#[inline]
pub(super) async fn compare<C: CallFabric>(f: &C, arguments: Arguments<'_>) -> Result {
    checked(f).await;
    match f.channel().process.checks() {
        None => Ok(()),
        // Boxed, because the future is as large as that of an alltoall.
        Some(checks) => Box::pin(compare_slow(f, checks, &arguments)).await,
    }
}

/// With checks, verifies that all ranks make the same call; for calls on communicators and files. Errors:
/// `MPI_ERR_OTHER`.
pub(crate) fn compare_calls(p: &Process, comm: &Comm) -> Result {
    if p.checks().is_none() || comm.is_inter() {
        return Ok(());
    }
    drive(compare_call(&Channel::next(p, comm)))
}

/// With checks, verifies that all ranks make this outstanding call. Errors: `MPI_ERR_OTHER`.
pub(crate) async fn compare_call<C: CallFabric>(f: &C) -> Result {
    compare(f, Arguments::new(&nothing, &nothing)).await
}

/// Notifies the other ranks, which wait for this rank's arguments, that this rank has refused the call.
#[cold]
#[inline(never)]
pub(crate) fn refuse_call(f: &Channel<'_>) {
    f.refuse.set(None);
    let handler = f.comm.errhandler.get();
    if handler == MPI_ERRORS_ARE_FATAL || handler == MPI_ERRORS_ABORT {
        return; // this rank's error handler ends the whole job
    }
    if let Some(checks) = f.process.checks() {
        let own = Record::of_refused(f.process.call.get(), &checks.place());
        // An error of this exchange is ignored, because the error of the call itself has the reason.
        let _ = drive(exchange(f, &vec![own; f.comm.size() as usize]));
    }
}

async fn exchange<F: Fabric>(f: &F, out: &[Record]) -> Result<Vec<Record>> {
    let mut into = vec![Record::NONE; out.len()];
    let from = into.as_mut_ptr();
    let block = |at: *const Record| {
        move |rank: u32| Vector::raw(at.wrapping_add(rank as usize).cast(), RECORD_BYTES)
    };
    let how = choose::usual_alltoall(RECORD_BYTES, f.size(), f.room());
    // SAFETY: both vectors have a record for each rank, and they do not overlap.
    unsafe { alltoall::run(f, how, &block(out.as_ptr()), &block(from)).await? };
    Ok(into)
}

async fn compare_slow<C: CallFabric>(f: &C, checks: &Checks, arguments: &Arguments<'_>) -> Result {
    let process = f.channel().process;
    f.channel().refuse.set(None);
    let mut own = Record::of_call(process.call.get(), &checks.place());
    own.root = arguments.root.map_or(-1, |root| root as i32);
    own.op = arguments.op.map_or(0, Op::predefined_handle);
    let with_data = |record: Record, data: Data<'_>| match data {
        Some((datatype, count)) => record.with_data(datatype, count as u64),
        None => record,
    };
    let out = (0..f.size()).map(|rank| with_data(own, (arguments.sends)(rank)));
    let out = out.collect::<Vec<_>>();
    // A rank that waits in the comparison reports the bytes of the program's data, not those of a record.
    let moved =
        |rank| size_of_data((arguments.receives)(rank)).max(size_of_data((arguments.sends)(rank)));
    checks.compared_bytes.set((0..f.size()).map(moved).max().unwrap_or(0));
    f.channel().refuse.set(Some(compares));
    let into = exchange(f, &out).await;
    f.channel().refuse.set(None);
    let into = into.map_err(|error| with_own_bytes(error, arguments))?;
    let mut result = Ok(());
    for (rank, theirs) in (0..).zip(&into) {
        let expected = with_data(own, (arguments.receives)(rank));
        if let Err(error) = agree(rank, &expected, theirs) {
            result = result.and(Err(error));
        } else if !expected.has_same_data(theirs) {
            let text = format!(
                "{} expects {} from rank {rank}, which passes {} to {}",
                expected.title(),
                expected.describe_data(),
                theirs.describe_data(),
                theirs.title()
            );
            checks.tell(&text);
        }
    }
    result
}

/// Replaces the size of a record in the error by the size of the program's data.
#[cold]
fn with_own_bytes(error: Error, arguments: &Arguments<'_>) -> Error {
    let Some((peer, tag, _)) = error.about() else {
        return error;
    };
    let data = u32::try_from(peer).ok().and_then(|peer| (arguments.receives)(peer));
    error.about_message(peer, tag, size_of_data(data))
}

fn size_of_data(data: Data<'_>) -> u64 {
    data.map_or(0, |(datatype, count)| datatype.layout().size() * count as u64)
}

/// Function in [`Channel::refuse`] while arguments are compared. It does nothing: this rank has accepted its arguments.
fn compares(_: &Channel<'_>) {}

fn agree(rank: u32, own: &Record, theirs: &Record) -> Result {
    let all = "all ranks must make the same collective calls, in the same order";
    let refuse = |class, text: String| Err(Error::new(class, text));
    if theirs.is_valid() && theirs.is_refused() {
        return Ok(()); // rank `rank` itself reports why it refused the call
    }
    if !theirs.is_valid() {
        let text =
            format!("rank {rank} makes a different call, or runs without FASTPATH_CHECK=1: {all}");
        return refuse(MPI_ERR_OTHER, text);
    }
    let (own_title, their_title) = (own.title(), theirs.title());
    if own.call() != theirs.call() {
        let text = format!("rank {rank} is in {their_title}, this rank is in {own_title}: {all}");
        return refuse(MPI_ERR_OTHER, text);
    }
    if own.root != theirs.root {
        let text = format!(
            "rank {rank} passes the root {} to {their_title}, this rank passes {} to {own_title}",
            theirs.root, own.root
        );
        return refuse(MPI_ERR_ROOT, text);
    }
    if own.op != theirs.op {
        let text = format!(
            "rank {rank} passes {} to {their_title}, this rank passes {} to {own_title}",
            crate::objects::op::describe_handle(theirs.op),
            crate::objects::op::describe_handle(own.op)
        );
        let advice = "pass the same operation on all ranks";
        return refuse(MPI_ERR_OP, text).map_err(|error| error.with_advice(Some(advice)));
    }
    Ok(())
}
