//! Blocking collective communication on intracommunicators (MPI 5.0, chapter 6).
//!
//! Each file has one family: the call as the standard has it, with the checks of its arguments, and below it the
//! algorithms. These are generic over `fabric::Fabric`, so that the same code runs on a communicator's channel and,
//! in tests, on a simulator of any number of ranks. Which algorithm runs is said in one place, `choose`.
//!
//! Results of reductions depend on the number of ranks, the count and the place alone, never on who arrives first;
//! all ranks of an allreduce get the same bits; an operation that does not commute is applied in the order of ranks.
#![allow(unsafe_code)]

mod agreement;
mod allgather;
mod allreduce;
mod alltoall;
mod apart;
mod barrier;
mod bcast;
mod choose;
mod fabric;
mod gather;
mod halving;
mod local;
pub mod pair;
mod reduce;
mod reduce_scatter;
mod ring;
mod scan;
mod scatter;
mod scratch;
#[cfg(test)]
mod simulator;
#[cfg(test)]
mod tests;
mod vector;

pub(crate) use agreement::{compare_calls, refuse_call};
pub use allgather::{allgather, allgatherv};
pub use allreduce::allreduce;
pub use alltoall::{alltoall, alltoallv, alltoallw};
pub use barrier::barrier;
pub use bcast::bcast;
pub use gather::{gather, gatherv};
pub use local::reduce_local;
pub use reduce::reduce;
pub use reduce_scatter::{reduce_scatter, reduce_scatter_block};
pub use scan::{exscan, scan};
pub use scatter::{scatter, scatterv};
pub use vector::{Array, Arrays};

use crate::channel::Channel;
use crate::comm::Comm;
use crate::consts::*;
use crate::error::{Error, Result};
use crate::hot;
use crate::process::Process;

/// Whether the address is `MPI_IN_PLACE`.
#[inline]
fn is_in_place(buf: *const u8) -> bool {
    buf as usize == MPI_IN_PLACE
}

/// The channel of the next collective call. Taken before anything else is checked, so that all ranks stay in step
/// when one of them refuses a call.
#[inline]
pub fn open<'a>(p: &'a Process, comm: &'a Comm) -> Result<Channel<'a>> {
    if comm.is_inter() {
        return Err(refuse_inter());
    }
    let f = Channel::next(p, comm);
    f.is_unchecked.set(p.checks().is_some());
    Ok(f)
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

#[cold]
#[inline(never)]
fn refuse_inter() -> Error {
    let text =
        "collective calls on an intercommunicator are not implemented in this version of Fastpath";
    Error::new(MPI_ERR_UNSUPPORTED_OPERATION, text)
}

/// The root as a rank.
#[inline]
fn check_root(comm: &Comm, root: i32) -> Result<u32> {
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
