//! Collective communication (MPI 5.0, chapter 6): blocking, nonblocking and persistent, on intracommunicators and, in
//! `inter`, on intercommunicators.
//!
//! Each file has one family of calls: the standard's call, which checks its arguments, and its algorithms. Each
//! algorithm is written once, as an `async fn` over `fabric::Fabric`. On a communicator's channel it blocks and never
//! suspends. In an outstanding call (`nonblocking`) it is a state machine in the request, which advances when a message
//! arrives. Tests run it on a simulator. `coll_choice` chooses the algorithm. Ranks of one host also use memory that
//! all of them map: buffers for long data (`shared`), and lines for short data (`lines`). `arguments` has the arguments
//! of calls, and `form` the three forms of a call.
//!
//! The result of a reduction depends only on the number of ranks, the count and the position, not on the order of
//! arrival. All ranks of an allreduce get the same bits. An operation that does not commute is applied in rank order.
//!
//! **VECTORS.** The caller of a call or algorithm guarantees its `# Safety` section, until the call has ended. The
//! section names the vectors, blocks and buffers that are readable or writable, for all their bytes. No other code
//! writes to them meanwhile. Written memory overlaps no other, unless the section allows it. An algorithm passes on its
//! own vectors, or parts of them, for the same use. The memory of a `Scratch` is private and has the requested size.
//!
//! **FABRIC.** A method of a `Fabric` may forward its arguments to another function. The trait requires of the method's
//! caller what that function requires of its caller.
#![allow(unsafe_code)]

mod agreement;
mod allgather;
mod allreduce;
mod alltoall;
mod apart;
mod arguments;
mod barrier;
mod bcast;
mod branches;
pub(crate) mod fabric;
mod form;
mod gather;
mod halving;
mod inter;
pub(crate) mod lines;
mod local;
pub(crate) mod mapping;
mod neighbor;
pub(crate) mod nodes;
pub(crate) mod nonblocking;
pub mod pair;
mod reduce;
mod reduce_scatter;
mod ring;
mod scan;
mod scatter;
mod scratch;
pub(crate) mod shared;
#[cfg(test)]
pub(crate) mod simulator;
#[cfg(test)]
mod tests;
mod tree;
pub(crate) mod vector;
pub(crate) mod words;

pub use crate::objects::staging::Use;
pub(crate) use agreement::{compare_call, compare_calls, refuse_call};
pub use allgather::{Allgather, Allgatherv};
pub use allreduce::Allreduce;
pub use alltoall::{Alltoall, Alltoallv, Alltoallw};
pub use arguments::{
    Blocks, Collective, CollectiveBuffer, Operands, SignificantBuffer, TypedBlocks,
};
pub use barrier::Barrier;
pub use bcast::Bcast;
pub use form::Form;
pub use gather::{Gather, Gatherv};
pub use local::reduce_local;
pub use neighbor::*;
pub use reduce::Reduce;
pub use reduce_scatter::{ReduceScatter, ReduceScatterBlock};
pub use scan::{Exscan, Scan};
pub use scatter::{Scatter, Scatterv};

use crate::coll_choice as choose;
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::objects::comm::Comm;
use crate::objects::hot;
use crate::p2p::channel::Channel;
use crate::process::Process;

#[inline]
fn is_in_place(buf: *const u8) -> bool {
    buf as usize == MPI_IN_PLACE
}

/// Opens the channel of the next collective call. This precedes all checks, so that a refused call is counted too.
#[inline]
fn open<'a>(p: &'a Process, comm: &'a Comm) -> Channel<'a> {
    let f = Channel::next(p, comm);
    let is_unchecked = p.checks().is_some() && !comm.is_inter();
    f.refuse.set(is_unchecked.then_some(refuse_call));
    f
}

/// Counts a collective call that moves no data. `first` and `second` are count and datatype of both sides. Returns
/// false, without effect, if a count is not 0, or if handles and root need the ordinary path.
#[inline]
pub fn skip_empty(comm: usize, first: (i64, usize), second: (i64, usize), root: i32) -> bool {
    (first.0 | second.0) == 0 && count_empty(comm, first.1, second.1, root)
}

#[inline(never)]
fn count_empty(handle: usize, first: usize, second: usize, root: i32) -> bool {
    let comm = hot::comm(handle);
    let is_known = |datatype: usize| hot::datatype(datatype).key == datatype as u64;
    let known = comm.send_key == handle as u64
        && !comm.comm.is_null()
        && (root as u32) < comm.size
        && is_known(first)
        && is_known(second);
    if known {
        // Another rank may take the ordinary path, which counts the call, so count it here too.
        // SAFETY: the communicator lives while it is in the table. It is there only below MPI_THREAD_MULTIPLE, where
        // this is the only thread inside MPI.
        Channel::advance(unsafe { &*comm.comm });
    }
    known
}

#[inline]
pub(crate) fn check_root(comm: &Comm, root: i32) -> Result<u32> {
    match u32::try_from(root) {
        Ok(rank) if rank < comm.size() => Ok(rank),
        _ => Err(refuse_root(comm, root)),
    }
}

#[cold]
#[inline(never)]
fn refuse_root(comm: &Comm, root: i32) -> Error {
    let last = comm.size() - 1;
    Error::new(
        MPI_ERR_ROOT,
        format!("the root {root} is not a rank of the communicator (0 to {last})"),
    )
}

/// Reads the algorithms that the user names. Returns warnings, and a code that must be equal on all ranks.
pub(crate) fn ask(config: &fastpath_base::config::Config, rank: usize) -> (Vec<String>, u32) {
    choose::ask(config, rank)
}

/// Returns whether the report counts all calls. If so, no call may take the immediate path.
pub(crate) fn counts() -> bool {
    choose::counts()
}

/// Returns a line for each algorithm that ran and, except as JSON, for each choice learned for `MPI_COMM_WORLD`.
pub(crate) fn report(p: &Process, json: bool) -> Vec<String> {
    let mut lines = choose::report(json);
    if !json
        && let Ok(world) = p.comm(MPI_COMM_WORLD)
        && let Some(Some(mapped)) = world.mapped.get()
    {
        lines.extend(mapped.report());
    }
    lines
}

/// Executes a barrier as part of another call.
pub(crate) fn meet(channel: &Channel<'_>) -> Result {
    fabric::drive(barrier::barrier(channel))
}
