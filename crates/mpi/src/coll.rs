//! Collective communication (MPI 5.0, chapter 6): blocking, nonblocking and persistent, on intracommunicators and, by
//! `inter`, on intercommunicators.
//!
//! Each file has one family: the call as the standard has it, with the checks of its arguments, and below it the
//! algorithms. Each is written once, as an `async fn` over `fabric::Fabric`: on a communicator's channel it blocks, and
//! runs straight through; on an outstanding call (`nonblocking`) it is a state machine in the request, which goes on
//! when a message has come; in tests it runs on a simulator of any number of ranks. Which algorithm runs is said in one
//! place, `coll_choice`. Long calls of ranks that share processors go through memory that all map, `shared`. What a
//! call is made with is in `arguments`, its three forms in `form`.
//!
//! Results of reductions depend only on the number of ranks, the count and the place, never on the order of arrival;
//! all ranks of an allreduce get the same bits; an operation that does not commute is applied in the order of ranks.
//!
//! **VECTORS.** Who starts a call or an algorithm promises what its `# Safety` says: which vectors, blocks and buffers
//! are readable and which are writable, for all their bytes and until the call has ended; nothing else writes to them
//! meanwhile, and what is written overlaps nothing else, unless that is allowed there. An algorithm passes on what it
//! got, or parts of it, for the same use. The memory of a `Scratch` is its own, of the size that it asked for.
//!
//! **FABRIC.** A method of a `Fabric` that forwards to another function passes its arguments on, and the trait demands
//! of its caller what that function demands.
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
mod local;
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

pub(crate) use agreement::{compare_call, compare_calls, refuse_call};
pub use allgather::{Allgather, Allgatherv};
pub use allreduce::Allreduce;
pub use alltoall::{Alltoall, Alltoallv, Alltoallw};
pub use arguments::{Block, Blocks, Collective, Operands, Side, TypedBlocks};
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

/// Whether the address is `MPI_IN_PLACE`.
#[inline]
fn is_in_place(buf: *const u8) -> bool {
    buf as usize == MPI_IN_PLACE
}

/// The channel of the next collective call. Taken before anything else is checked, so that all ranks stay in step
/// when one of them refuses a call.
#[inline]
fn open<'a>(p: &'a Process, comm: &'a Comm) -> Channel<'a> {
    let f = Channel::next(p, comm);
    let is_unchecked = p.checks().is_some() && !comm.is_inter();
    f.refuse.set(is_unchecked.then_some(refuse_call));
    f
}

/// Counts a collective call whose two sides, count and datatype of each, are empty, and which needs no more; false
/// where they are not, or handles and root have to be looked up: nothing has happened then.
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
        // The ordinary path counts it too, which another rank may take.
        // SAFETY: the communicator lives while it is in the table; below MPI_THREAD_MULTIPLE, where alone it is there,
        // this is the only thread inside MPI.
        Channel::advance(unsafe { &*comm.comm });
    }
    known
}

/// The root as a rank.
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
        format!("the root {root} is no rank of the communicator (0 to {last})"),
    )
}

/// Reads which algorithms a person asks for; returns warnings, and what all ranks must have alike.
pub(crate) fn ask(config: &fastpath_base::config::Config, rank: usize) -> (Vec<String>, u32) {
    choose::ask(config, rank)
}

/// Whether the report wants all calls counted, so that none may take the immediate path.
pub(crate) fn counts() -> bool {
    choose::counts()
}

/// What the report says of the algorithms that ran, and of what was learnt for calls on `MPI_COMM_WORLD`: a line each;
/// as JSON only of the algorithms.
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

/// Returns when all members have called it: a barrier as part of another call.
pub(crate) fn meet(channel: &Channel<'_>) -> Result {
    fabric::drive(barrier::barrier(channel))
}
