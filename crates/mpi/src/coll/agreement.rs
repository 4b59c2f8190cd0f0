//! Whether the ranks of a collective call agree, where mistakes are looked for (`FASTPATH_CHECK`).
//!
//! Before the call begins each rank gives each other a record of it: which call, root and operation, and the signature
//! of the data that goes to that rank. This is an alltoall by the same algorithms as the program's, and it comes before
//! the call's own messages.
#![allow(unsafe_code)]

use super::fabric::{Call, Fabric, checked, drive};
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

/// Elements of a datatype; none where nothing is sent or received.
pub(super) type Data<'a> = Option<(&'a Datatype, i64)>;

/// The arguments of a collective call that must agree with those of the other ranks.
pub(super) struct Arguments<'a> {
    root: Option<u32>,
    op: Option<&'a Op>,
    /// What this rank sends to a rank.
    sends: &'a dyn Fn(u32) -> Data<'a>,
    /// What this rank receives from a rank.
    receives: &'a dyn Fn(u32) -> Data<'a>,
}

impl<'a> Arguments<'a> {
    /// What each rank sends to each other and receives from it.
    pub(super) fn new(
        sends: &'a dyn Fn(u32) -> Data<'a>, receives: &'a dyn Fn(u32) -> Data<'a>,
    ) -> Self {
        Arguments { root: None, op: None, sends, receives }
    }

    /// With a root.
    pub(super) fn root(self, root: u32) -> Self {
        let root = Some(root);
        Arguments { root, ..self }
    }

    /// With an operation.
    pub(super) fn op(self, op: &'a Op) -> Self {
        let op = Some(op);
        Arguments { op, ..self }
    }
}

/// Nothing is sent to, or received from, any rank.
pub(super) fn nothing<'a>(_: u32) -> Data<'a> {
    None
}

/// Compares the arguments with those of the other ranks, where that is asked for. They have been checked.
///
/// # Errors
/// `MPI_ERR_ROOT`, `MPI_ERR_OP` where root or operation differ, `MPI_ERR_OTHER` where the ranks make different calls;
/// on all ranks. Different signatures are reported, and the call continues.
#[inline]
pub(super) async fn compare<C: Call>(f: &C, arguments: Arguments<'_>) -> Result {
    checked(f).await;
    match f.channel().process.checks() {
        None => Ok(()),
        // Apart, since it is as large as an alltoall.
        Some(checks) => Box::pin(compare_slow(f, checks, &arguments)).await,
    }
}

/// Compares, where that is asked for, whether all ranks are in the same call that makes or ends a communicator, or is
/// one of a file.
///
/// # Errors
/// `MPI_ERR_OTHER` where they make different calls.
pub(crate) fn compare_calls(p: &Process, comm: &Comm) -> Result {
    if p.checks().is_none() || comm.is_inter() {
        return Ok(());
    }
    drive(compare_call(&Channel::next(p, comm)))
}

/// The same of a call under way.
///
/// # Errors
/// As there.
pub(crate) async fn compare_call<C: Call>(f: &C) -> Result {
    compare(f, Arguments::new(&nothing, &nothing)).await
}

/// Tells the other ranks that this one has refused its arguments, since they wait to hear of them.
#[cold]
#[inline(never)]
pub(crate) fn refuse_call(f: &Channel<'_>) {
    f.refuse.set(None);
    let handler = f.comm.errhandler.get();
    if handler == MPI_ERRORS_ARE_FATAL || handler == MPI_ERRORS_ABORT {
        return; // they end with this rank
    }
    if let Some(checks) = f.process.checks() {
        let own = Record::of_refused(f.process.call.get(), &checks.place());
        // Why it has refused them is the error of the call.
        let _ = drive(exchange(f, &vec![own; f.comm.size() as usize]));
    }
}

/// Gives each rank its record and returns theirs.
async fn exchange<F: Fabric>(f: &F, out: &[Record]) -> Result<Vec<Record>> {
    let mut into = vec![Record::NONE; out.len()];
    let from = into.as_mut_ptr();
    let block = |at: *const Record| {
        move |rank: u32| Vector::raw(at.wrapping_add(rank as usize).cast(), RECORD_BYTES)
    };
    let how = choose::usual_alltoall(RECORD_BYTES, f.size(), f.room());
    // SAFETY: a record for each rank, in two vectors.
    unsafe { alltoall::run(f, how, &block(out.as_ptr()), &block(from)).await? };
    Ok(into)
}

async fn compare_slow<C: Call>(f: &C, checks: &Checks, arguments: &Arguments<'_>) -> Result {
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
    // Who waits meanwhile says the bytes of the program.
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

/// An error of a message with a record, with the bytes of the program's data instead.
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

/// Stands in [`Channel::refuse`] while the ranks compare their arguments: they have been accepted.
fn compares(_: &Channel<'_>) {}

fn agree(rank: u32, own: &Record, theirs: &Record) -> Result {
    let all = "all ranks make the same collective calls, in the same order";
    let refuse = |class, text: String| Err(Error::new(class, text));
    if theirs.is_valid() && theirs.is_refused() {
        return Ok(()); // it says why itself
    }
    if !theirs.is_valid() {
        let text = format!("rank {rank} makes another call, or runs without FASTPATH_CHECK: {all}");
        return refuse(MPI_ERR_OTHER, text);
    }
    let (own_title, their_title) = (own.title(), theirs.title());
    if own.call() != theirs.call() {
        let text = format!("rank {rank} is in {their_title}, this rank in {own_title}: {all}");
        return refuse(MPI_ERR_OTHER, text);
    }
    if own.root != theirs.root {
        let text = format!(
            "rank {rank} passes the root {} to {their_title}, this rank {} to {own_title}",
            theirs.root, own.root
        );
        return refuse(MPI_ERR_ROOT, text);
    }
    if own.op != theirs.op {
        let text = format!(
            "rank {rank} passes {} to {their_title}, this rank {} to {own_title}",
            crate::objects::op::describe_handle(theirs.op),
            crate::objects::op::describe_handle(own.op)
        );
        let advice = "pass the same operation on all ranks";
        return refuse(MPI_ERR_OP, text).map_err(|error| error.with_advice(Some(advice)));
    }
    Ok(())
}
