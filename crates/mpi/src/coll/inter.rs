//! Collective calls on intercommunicators (MPI 5.0, section 6.2.3): each group receives the other group's data.
//!
//! The fabric of an intercommunicator addresses the remote group. [`CallFabric::beside`] returns a fabric of the local
//! group, which runs the algorithms of intracommunicators. In reductions without a root and in barriers, each group
//! works separately, and the ranks 0 exchange the results. In calls with a root, the root itself sends and receives.
//! Data for all ranks of the other group goes to its rank 0, which passes it on. VECTORS is defined in `coll.rs`.
#![allow(unsafe_code)]

use super::allgather::{Allgather, Allgatherv};
use super::allreduce::Allreduce;
use super::alltoall::{Alltoall, AlltoallArrays};
use super::arguments::{BlockArray, Collective, CollectiveBuffer, Operands};
use super::bcast::Bcast;
use super::choose::CallPlace;
use super::fabric::{Batch, CallFabric, checked, trade};
use super::gather::{Gather, Gatherv};
use super::local::Reduction;
use super::reduce::Reduce;
use super::scatter::{Scatter, Scatterv};
use super::scratch::Scratch;
use super::vector::{Vector, even_blocks};
use super::{barrier, bcast, choose, reduce};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::objects::comm::Comm;
use fastpath_protocol::buffer::Buffer;

pub struct InterCollective<T>(pub T);

impl<T: Collective> Collective for InterCollective<T> {
    async unsafe fn run<C: CallFabric>(&self, f: &C) -> Result {
        // SAFETY: VECTORS: the buffers are those of the call.
        let result = unsafe { self.0.run_between(f).await };
        f.channel().conclude(result)
    }

    fn calls_back(&self) -> bool {
        self.0.calls_back()
    }
}

#[cold]
pub(super) fn refuse_inter() -> Error {
    let text = "the communicator is an intercommunicator, which this call does not allow";
    Error::new(MPI_ERR_COMM, text).with_advice(Some("pass an intracommunicator"))
}

/// Role of the calling process in a call with a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RootRole {
    Root,
    /// Another member of the root's group.
    Idle,
    /// Member of the other group. The value is the root's rank.
    Other(u32),
}

impl RootRole {
    /// Returns the role for the root argument. Errors: `MPI_ERR_ROOT` for an invalid root.
    fn of(comm: &Comm, root: i32) -> Result<RootRole> {
        match root {
            MPI_ROOT => Ok(RootRole::Root),
            MPI_PROC_NULL => Ok(RootRole::Idle),
            _ => match u32::try_from(root) {
                Ok(rank) if rank < comm.peer_count() => Ok(RootRole::Other(rank)),
                _ => {
                    let last = comm.peer_count() - 1;
                    let text = format!(
                        "the root {root} is not a rank of the remote group (0 to {last}), MPI_ROOT \
                         or MPI_PROC_NULL"
                    );
                    Err(Error::new(MPI_ERR_ROOT, text).with_advice(Some(
                        "pass MPI_ROOT on the root, MPI_PROC_NULL on the other ranks of its group, \
                         and the root's rank in the other group",
                    )))
                }
            },
        }
    }
}

fn role<C: CallFabric>(f: &C, root: i32) -> Result<RootRole> {
    RootRole::of(f.channel().comm, root)
}

fn elements(side: &CollectiveBuffer) -> Result<Vector<'_>> {
    match side.vector()? {
        Some(elements) => Ok(elements),
        None if side.is_in_place() => Err(refuse_in_place()),
        None => Err(Error::new(MPI_ERR_TYPE, "the datatype is MPI_DATATYPE_NULL")),
    }
}

#[cold]
fn refuse_in_place() -> Error {
    let text = "MPI_IN_PLACE is not allowed on an intercommunicator";
    Error::new(MPI_ERR_BUFFER, text).with_advice(Some("pass two buffers"))
}

/// Records the call's bytes and algorithm. `way` is `leaders` if the ranks 0 of both groups exchange, `linear` if the
/// root exchanges with each rank, and `together` if each rank exchanges with each rank of the other group.
#[inline]
fn note<A, C: CallFabric>(
    f: &C, call: &'static choose::CallAlgorithms<A>, way: &'static str, bytes: impl FnOnce() -> u64,
) {
    if f.only_checks() {
        return;
    }
    let ranks = f.size() + f.channel().comm.peer_count();
    choose::note_between(call, way, ranks, bytes);
}

/// Returns the fabric of the local group. A call that only checks its arguments stops here.
async fn beside<C: CallFabric>(f: &C) -> Result<C> {
    checked(f).await;
    f.beside()
}

/// Returns the bytes of a significant buffer; 0 if it is invalid.
fn bytes_of(side: &CollectiveBuffer) -> u64 {
    side.vector().ok().flatten().map_or(0, |elements| elements.bytes())
}

pub(super) async fn barrier<C: CallFabric>(f: &C) -> Result {
    note(f, &choose::BARRIER, "leaders", || 0);
    let near = beside(f).await?;
    barrier::run(&near).await?;
    if f.rank() == 0 {
        // SAFETY: messages without bytes touch no memory.
        unsafe {
            f.exchange(0, Buffer::empty(), 0, Buffer::empty()).await?;
        }
    }
    // All ranks wait until rank 0 has synchronized with the other group.
    barrier::run(&near).await
}

/// `MPI_Bcast`. Safety: the buffer is readable at the root and writable in the other group.
pub(super) async unsafe fn bcast<C: CallFabric>(f: &C, call: &Bcast) -> Result {
    let role = role(f, call.root)?;
    if role == RootRole::Idle {
        return Ok(());
    }
    let data = call.data.vector()?;
    if data.bytes() == 0 {
        return Ok(());
    }
    note(f, &choose::BCAST, "leaders", || data.bytes());
    checked(f).await;
    // SAFETY: VECTORS.
    unsafe {
        match role {
            RootRole::Root => f.send(0, data.buffer()).await,
            RootRole::Idle => Ok(()),
            RootRole::Other(root) => {
                let near = beside(f).await?;
                if f.rank() == 0 {
                    f.recv(root, data.buffer()).await?;
                }
                bcast::run(&near, data, 0).await
            }
        }
    }
}

/// Receives a block from each rank of the other group. Safety: the blocks are writable.
async unsafe fn recv_from_all<'a, C: CallFabric>(
    f: &C, block: impl Fn(u32) -> Vector<'a>,
) -> Result {
    checked(f).await;
    let mut batch = Batch::new(f);
    for rank in 0..f.channel().comm.peer_count() {
        // SAFETY: VECTORS; only the batch uses the blocks until it has finished.
        unsafe { batch.recv(rank, block(rank)) };
    }
    batch.finish().await
}

/// Sends a block to each rank of the other group. Safety: the blocks are readable.
async unsafe fn send_to_all<'a, C: CallFabric>(f: &C, block: impl Fn(u32) -> Vector<'a>) -> Result {
    checked(f).await;
    let mut batch = Batch::new(f);
    for rank in 0..f.channel().comm.peer_count() {
        // SAFETY: VECTORS.
        unsafe { batch.send(rank, block(rank)) };
    }
    batch.finish().await
}

/// Sends to the root.
///
/// # Safety
/// The data is readable.
async unsafe fn send_one<C: CallFabric>(f: &C, root: u32, data: Vector<'_>) -> Result {
    checked(f).await;
    match data.bytes() {
        0 => Ok(()),
        // SAFETY: VECTORS.
        _ => unsafe { f.send(root, data.buffer()).await },
    }
}

/// `MPI_Gather`. Safety: the send buffer is readable. At the root, the receive buffer is writable for every block.
pub(super) async unsafe fn gather<C: CallFabric>(f: &C, call: &Gather) -> Result {
    note(f, &choose::GATHER, "linear", || bytes_of(&call.send).max(bytes_of(&call.recv)));
    // SAFETY: VECTORS.
    unsafe {
        match role(f, call.root)? {
            RootRole::Root => recv_from_all(f, even_blocks(elements(&call.recv)?)).await,
            RootRole::Idle => Ok(()),
            RootRole::Other(root) => send_one(f, root, elements(&call.send)?).await,
        }
    }
}

/// `MPI_Gatherv`. Safety: see [`gather`].
pub(super) async unsafe fn gatherv<C: CallFabric>(f: &C, call: &Gatherv) -> Result {
    let there = f.channel().comm.peer_count();
    let all = || call.recv.as_ref().map_or(0, |recv| recv.longest(there));
    note(f, &choose::GATHERV, "linear", || bytes_of(&call.send).max(all()));
    // SAFETY: VECTORS.
    unsafe {
        match (role(f, call.root)?, &call.recv) {
            (RootRole::Root, Some(recv)) => recv_from_all(f, recv.check()?).await,
            (RootRole::Other(root), _) => send_one(f, root, elements(&call.send)?).await,
            _ => Ok(()),
        }
    }
}

/// Receives from the root.
///
/// # Safety
/// The data is writable.
async unsafe fn recv_one<C: CallFabric>(f: &C, root: u32, data: Vector<'_>) -> Result {
    checked(f).await;
    match data.bytes() {
        0 => Ok(()),
        // SAFETY: VECTORS.
        _ => unsafe { f.recv(root, data.buffer()).await },
    }
}

/// `MPI_Scatter`. Safety: the receive buffer is writable. At the root, the send buffer is readable for every block.
pub(super) async unsafe fn scatter<C: CallFabric>(f: &C, call: &Scatter) -> Result {
    note(f, &choose::SCATTER, "linear", || bytes_of(&call.send).max(bytes_of(&call.recv)));
    // SAFETY: VECTORS.
    unsafe {
        match role(f, call.root)? {
            RootRole::Root => send_to_all(f, even_blocks(elements(&call.send)?)).await,
            RootRole::Idle => Ok(()),
            RootRole::Other(root) => recv_one(f, root, elements(&call.recv)?).await,
        }
    }
}

/// `MPI_Scatterv`. Safety: see [`scatter`].
pub(super) async unsafe fn scatterv<C: CallFabric>(f: &C, call: &Scatterv) -> Result {
    let there = f.channel().comm.peer_count();
    let all = || call.send.as_ref().map_or(0, |send| send.longest(there));
    note(f, &choose::SCATTERV, "linear", || bytes_of(&call.recv).max(all()));
    // SAFETY: VECTORS.
    unsafe {
        match (role(f, call.root)?, &call.send) {
            (RootRole::Root, Some(send)) => send_to_all(f, send.check()?).await,
            (RootRole::Other(root), _) => recv_one(f, root, elements(&call.recv)?).await,
            _ => Ok(()),
        }
    }
}

/// Exchanges blocks: each rank of both groups sends one block to each rank of the other group.
///
/// # Safety
/// Blocks of `out` are readable and those of `into` writable. They do not overlap.
async unsafe fn swap_all<'a, 'b, C: CallFabric>(
    f: &C, out: impl Fn(u32) -> Vector<'a>, into: impl Fn(u32) -> Vector<'b>,
) -> Result {
    checked(f).await;
    let there = f.channel().comm.peer_count();
    let mut batch = Batch::new(f);
    // Each rank begins with a different peer, to spread the load.
    let ranks = || (0..there).map(|i| (i + f.rank()) % there);
    // SAFETY: VECTORS; only the batch uses the blocks until it has finished.
    unsafe {
        ranks().for_each(|rank| batch.recv(rank, into(rank)));
        ranks().for_each(|rank| batch.send(rank, out(rank)));
    }
    batch.finish().await
}

/// `MPI_Allgather`. Safety: the send buffer is readable, and the receive buffer writable for every block. They do not
/// overlap.
pub(super) async unsafe fn allgather<C: CallFabric>(f: &C, call: &Allgather) -> Result {
    let (own, into) = (elements(&call.send)?, call.recv.vector()?);
    let total = || into.bytes().saturating_mul(f.channel().comm.peer_count().into());
    note(f, &choose::ALLGATHER, "together", total);
    // SAFETY: VECTORS.
    unsafe { swap_all(f, |_| own, even_blocks(into)).await }
}

/// `MPI_Allgatherv`. Safety: see [`allgather`].
pub(super) async unsafe fn allgatherv<C: CallFabric>(f: &C, call: &Allgatherv) -> Result {
    let (own, into) = (elements(&call.send)?, call.recv.check()?);
    let there = f.channel().comm.peer_count();
    let total = || (0..there).fold(0u64, |sum, r| sum.saturating_add(into(r).bytes()));
    note(f, &choose::ALLGATHERV, "together", total);
    // SAFETY: VECTORS.
    unsafe { swap_all(f, |_| own, into).await }
}

/// `MPI_Alltoall`. Safety: the send buffer is readable and the receive buffer writable for every block. They do not
/// overlap.
pub(super) async unsafe fn alltoall<C: CallFabric>(f: &C, call: &Alltoall) -> Result {
    let (out, into) = (elements(&call.send)?, call.recv.vector()?);
    note(f, &choose::ALLTOALL, "together", || into.bytes());
    // SAFETY: VECTORS.
    unsafe { swap_all(f, even_blocks(out), even_blocks(into)).await }
}

/// `MPI_Alltoallv` and `MPI_Alltoallw`. Safety: see [`alltoall`].
pub(super) async unsafe fn alltoall_arrays<C: CallFabric, B: BlockArray>(
    f: &C, call: &AlltoallArrays<B>,
) -> Result {
    let send = call.send.as_ref().ok_or_else(refuse_in_place)?;
    let (out, into) = (send.check()?, call.recv.check()?);
    let there = f.channel().comm.peer_count();
    note(f, B::ALLTOALL, "together", || call.recv.longest(there));
    // SAFETY: VECTORS.
    unsafe { swap_all(f, out, into).await }
}

/// Combines the local group's operands. `result` is significant at rank 0 of the local group.
///
/// # Safety
/// The operand is readable and the result writable. They do not overlap.
async unsafe fn reduce_near<C: CallFabric>(
    near: &C, red: &Reduction<'_>, operand: Vector<'_>, result: Vector<'_>,
) -> Result {
    let place = CallPlace::messages(near.room());
    let how = choose::reduce(red.size(operand.count, near.room()), near.size(), place);
    let red = &{ *red };
    let at = |v: Vector<'_>| red.at(v.ptr, v.count);
    let result = (near.rank() == 0).then(|| at(result));
    // SAFETY: VECTORS.
    unsafe { reduce::run(near, how, red, at(operand), result, 0).await }
}

/// `MPI_Reduce`. Safety: the send buffer is readable in the other group, and the receive buffer writable at the root.
pub(super) async unsafe fn reduce<C: CallFabric>(f: &C, call: &Reduce) -> Result {
    let (o, count) = (&call.operands, call.count);
    let role = role(f, call.root)?;
    if role == RootRole::Idle {
        return Ok(());
    }
    note(f, &choose::REDUCE, "leaders", || {
        Vector::new(o.recv, count, o.datatype()).map_or(0, |elements| elements.bytes())
    });
    let red = &o.reduction()?;
    // SAFETY: VECTORS.
    unsafe {
        match role {
            RootRole::Root => recv_one(f, 0, Vector::new(o.recv, count, o.datatype())?).await,
            RootRole::Idle => Ok(()),
            RootRole::Other(root) => {
                let operand = Vector::new(o.send, count, o.datatype())?;
                if operand.bytes() == 0 {
                    return Ok(());
                }
                let near = beside(f).await?;
                let mut scratch = Scratch::new(f);
                let result = match f.rank() {
                    0 => scratch.elements(red.layout, operand.count)?,
                    _ => operand,
                };
                reduce_near(&near, red, operand, result).await?;
                match f.rank() {
                    0 => f.send(root, result.buffer()).await,
                    _ => Ok(()),
                }
            }
        }
    }
}

/// `MPI_Allreduce`. Safety: the send buffer is readable and the receive buffer writable. They do not overlap.
pub(super) async unsafe fn allreduce<C: CallFabric>(f: &C, call: &Allreduce) -> Result {
    let (o, count) = (&call.operands, call.count);
    let red = &o.reduction()?;
    let operand = Vector::new(o.send, count, o.datatype())?;
    let result = Vector::new(o.recv, count, o.datatype())?;
    if operand.bytes() == 0 {
        return Ok(());
    }
    note(f, &choose::ALLREDUCE, "leaders", || operand.bytes());
    let near = beside(f).await?;
    let mut scratch = Scratch::new(f);
    // SAFETY: VECTORS.
    unsafe {
        let own = match f.rank() {
            0 => scratch.elements(red.layout, operand.count)?,
            _ => operand,
        };
        reduce_near(&near, red, operand, own).await?;
        if f.rank() == 0 {
            trade(f, 0, own, 0, result).await?;
        }
        bcast::run(&near, result, 0).await
    }
}

/// `MPI_Reduce_scatter`: `counts` are those of the local group, whose sum equals that of the other group.
///
/// # Safety
/// The send buffer is readable for all blocks, and the receive buffer writable for this rank's block. They do not
/// overlap.
pub(super) async unsafe fn reduce_scatter<C: CallFabric>(
    f: &C, call: &'static choose::CallAlgorithms<choose::ReduceScatter>, o: &Operands,
    counts: impl Fn(u32) -> i64,
) -> Result {
    let red = &o.reduction()?;
    let total = (0..f.size()).try_fold(0_i64, |sum, rank| match counts(rank) {
        count if count < 0 => None,
        count => sum.checked_add(count),
    });
    let total = total.ok_or_else(|| {
        Error::new(MPI_ERR_COUNT, "a count is negative, or the sum of the counts exceeds 2^63 - 1")
    })?;
    let operand = Vector::new(o.send, total, o.datatype())?;
    let block = Vector::new(o.recv, counts(f.rank()), o.datatype())?;
    if operand.bytes() == 0 {
        return Ok(());
    }
    note(f, call, "leaders", || operand.bytes());
    let near = beside(f).await?;
    let (mut first, mut second) = (Scratch::new(f), Scratch::new(f));
    // SAFETY: VECTORS; the scratch has room for all blocks.
    unsafe {
        if f.rank() != 0 {
            reduce_near(&near, red, operand, operand).await?;
            return recv_one(&near, 0, block).await;
        }
        let own = first.elements(red.layout, operand.count)?;
        let theirs = second.elements(red.layout, operand.count)?;
        reduce_near(&near, red, operand, own).await?;
        trade(f, 0, own, 0, theirs).await?;
        let mut batch = Batch::new(&near);
        let mut at = counts(0);
        for rank in 1..near.size() {
            batch.send(rank, theirs.part(at as u64, counts(rank) as u64));
            at += counts(rank);
        }
        let copied = theirs.part(0, counts(0) as u64).copy_to(block);
        batch.finish().await?;
        f.put_off(copied)
    }
}
