//! Collective calls on intercommunicators (MPI 5.0, section 6.2.3): what one group contributes the other one gets.
//!
//! A fabric of an intercommunicator reaches the ranks of the other group. [`Call::beside`] is one of the own group, on
//! which the algorithms of intracommunicators run. Where all of a group contribute to all of the other one, each group
//! works by itself, and its rank 0 speaks for it. With a root, that one sends and receives by itself: to rank 0 of the
//! other group where all get the same.
#![allow(unsafe_code)]

use super::allgather::{Allgather, Allgatherv};
use super::allreduce::Allreduce;
use super::alltoall::{Alltoall, AlltoallArrays};
use super::arguments::{BlockArray, Collective, Operands, Side};
use super::bcast::Bcast;
use super::fabric::{Batch, Call, checked, trade};
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

/// A call on an intercommunicator.
pub struct Between<T>(pub T);

impl<T: Collective> Collective for Between<T> {
    async unsafe fn run<C: Call>(&self, f: &C) -> Result {
        // SAFETY: VECTORS, those of the call.
        let result = unsafe { self.0.run_between(f).await };
        f.channel().conclude(result)
    }

    fn calls_back(&self) -> bool {
        self.0.calls_back()
    }
}

/// The error of a call that intercommunicators do not have.
#[cold]
pub(super) fn refuse_inter() -> Error {
    let text = "the communicator is an intercommunicator, which has no such call: pass an \
        intracommunicator";
    Error::new(MPI_ERR_COMM, text)
}

/// What the calling process is in a call with a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The root.
    Root,
    /// In the root's group.
    Idle,
    /// In the other group; the root's rank.
    Other(u32),
}

impl Role {
    /// From the argument of the call.
    ///
    /// # Errors
    /// `MPI_ERR_ROOT`
    fn of(comm: &Comm, root: i32) -> Result<Role> {
        match root {
            MPI_ROOT => Ok(Role::Root),
            MPI_PROC_NULL => Ok(Role::Idle),
            _ => match u32::try_from(root) {
                Ok(rank) if rank < comm.peer_count() => Ok(Role::Other(rank)),
                _ => {
                    let last = comm.peer_count() - 1;
                    let text = format!(
                        "the root {root} is no rank of the remote group (0 to {last}), nor \
                         MPI_ROOT or MPI_PROC_NULL"
                    );
                    Err(Error::new(MPI_ERR_ROOT, text))
                }
            },
        }
    }
}

fn role<C: Call>(f: &C, root: i32) -> Result<Role> {
    Role::of(f.channel().comm, root)
}

/// The elements of a side that counts.
fn elements(side: &Side) -> Result<Vector<'_>> {
    match side.vector()? {
        Some(elements) => Ok(elements),
        None if side.is_in_place() => Err(refuse_in_place()),
        None => Err(Error::new(MPI_ERR_TYPE, "the datatype is MPI_DATATYPE_NULL")),
    }
}

#[cold]
fn refuse_in_place() -> Error {
    let text = "MPI_IN_PLACE is not allowed on an intercommunicator";
    Error::new(MPI_ERR_BUFFER, text)
}

/// Notes how the call goes, and its bytes: a group by itself and their heads with each other (`leaders`), a root with
/// each rank (`linear`), or each rank with each (`together`).
#[inline]
fn note<A, C: Call>(
    f: &C, call: &'static choose::Call<A>, way: &'static str, bytes: impl FnOnce() -> u64,
) {
    if f.only_checks() {
        return;
    }
    let ranks = f.size() + f.channel().comm.peer_count();
    choose::note_between(call, way, ranks, bytes);
}

/// The fabric of the own group, for a call whose arguments have been checked.
async fn beside<C: Call>(f: &C) -> Result<C> {
    checked(f).await;
    f.beside()
}

/// The bytes of a side that counts.
fn bytes_of(side: &Side) -> u64 {
    side.vector().ok().flatten().map_or(0, |elements| elements.bytes())
}

/// `MPI_Barrier`
pub(super) async fn barrier<C: Call>(f: &C) -> Result {
    note(f, &choose::BARRIER, "leaders", || 0);
    let near = beside(f).await?;
    barrier::run(&near).await?;
    if f.rank() == 0 {
        // SAFETY: messages without bytes touch no memory.
        unsafe {
            f.exchange(0, Buffer::empty(), 0, Buffer::empty()).await?;
        }
    }
    // Nobody leaves before rank 0 has heard of the other group.
    barrier::run(&near).await
}

/// `MPI_Bcast`
///
/// # Safety
/// The buffer is readable at the root and writable in the other group.
pub(super) async unsafe fn bcast<C: Call>(f: &C, call: &Bcast) -> Result {
    let role = role(f, call.root)?;
    if role == Role::Idle {
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
            Role::Root => f.send(0, data.buffer()).await,
            Role::Idle => Ok(()),
            Role::Other(root) => {
                let near = beside(f).await?;
                if f.rank() == 0 {
                    f.recv(root, data.buffer()).await?;
                }
                bcast::run(&near, data, 0).await
            }
        }
    }
}

/// Receives a block from each rank of the other group.
///
/// # Safety
/// The blocks are writable.
async unsafe fn recv_from_all<'a, C: Call>(f: &C, block: impl Fn(u32) -> Vector<'a>) -> Result {
    checked(f).await;
    let mut batch = Batch::new(f);
    for rank in 0..f.channel().comm.peer_count() {
        // SAFETY: VECTORS; used by the batch alone until it has finished.
        unsafe { batch.recv(rank, block(rank)) };
    }
    batch.finish().await
}

/// Sends a block to each rank of the other group.
///
/// # Safety
/// The blocks are readable.
async unsafe fn send_to_all<'a, C: Call>(f: &C, block: impl Fn(u32) -> Vector<'a>) -> Result {
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
async unsafe fn send_one<C: Call>(f: &C, root: u32, data: Vector<'_>) -> Result {
    checked(f).await;
    match data.bytes() {
        0 => Ok(()),
        // SAFETY: VECTORS.
        _ => unsafe { f.send(root, data.buffer()).await },
    }
}

/// `MPI_Gather`
///
/// # Safety
/// The send buffer is readable, at the root the receive buffer writable for every block.
pub(super) async unsafe fn gather<C: Call>(f: &C, call: &Gather) -> Result {
    note(f, &choose::GATHER, "linear", || bytes_of(&call.send).max(bytes_of(&call.recv)));
    // SAFETY: VECTORS.
    unsafe {
        match role(f, call.root)? {
            Role::Root => recv_from_all(f, even_blocks(elements(&call.recv)?)).await,
            Role::Idle => Ok(()),
            Role::Other(root) => send_one(f, root, elements(&call.send)?).await,
        }
    }
}

/// `MPI_Gatherv`
///
/// # Safety
/// As [`gather`].
pub(super) async unsafe fn gatherv<C: Call>(f: &C, call: &Gatherv) -> Result {
    let there = f.channel().comm.peer_count();
    let all = || call.recv.as_ref().map_or(0, |recv| recv.longest(there));
    note(f, &choose::GATHERV, "linear", || bytes_of(&call.send).max(all()));
    // SAFETY: VECTORS.
    unsafe {
        match (role(f, call.root)?, &call.recv) {
            (Role::Root, Some(recv)) => recv_from_all(f, recv.check()?).await,
            (Role::Other(root), _) => send_one(f, root, elements(&call.send)?).await,
            _ => Ok(()),
        }
    }
}

/// Receives from the root.
///
/// # Safety
/// The data is writable.
async unsafe fn recv_one<C: Call>(f: &C, root: u32, data: Vector<'_>) -> Result {
    checked(f).await;
    match data.bytes() {
        0 => Ok(()),
        // SAFETY: VECTORS.
        _ => unsafe { f.recv(root, data.buffer()).await },
    }
}

/// `MPI_Scatter`
///
/// # Safety
/// The receive buffer is writable, at the root the send buffer readable for every block.
pub(super) async unsafe fn scatter<C: Call>(f: &C, call: &Scatter) -> Result {
    note(f, &choose::SCATTER, "linear", || bytes_of(&call.send).max(bytes_of(&call.recv)));
    // SAFETY: VECTORS.
    unsafe {
        match role(f, call.root)? {
            Role::Root => send_to_all(f, even_blocks(elements(&call.send)?)).await,
            Role::Idle => Ok(()),
            Role::Other(root) => recv_one(f, root, elements(&call.recv)?).await,
        }
    }
}

/// `MPI_Scatterv`
///
/// # Safety
/// As [`scatter`].
pub(super) async unsafe fn scatterv<C: Call>(f: &C, call: &Scatterv) -> Result {
    let there = f.channel().comm.peer_count();
    let all = || call.send.as_ref().map_or(0, |send| send.longest(there));
    note(f, &choose::SCATTERV, "linear", || bytes_of(&call.recv).max(all()));
    // SAFETY: VECTORS.
    unsafe {
        match (role(f, call.root)?, &call.send) {
            (Role::Root, Some(send)) => send_to_all(f, send.check()?).await,
            (Role::Other(root), _) => recv_one(f, root, elements(&call.recv)?).await,
            _ => Ok(()),
        }
    }
}

/// Each rank of either group sends a block to each of the other one.
///
/// # Safety
/// Blocks of `out` are readable, those of `into` writable; they do not overlap.
async unsafe fn swap_all<'a, 'b, C: Call>(
    f: &C, out: impl Fn(u32) -> Vector<'a>, into: impl Fn(u32) -> Vector<'b>,
) -> Result {
    checked(f).await;
    let there = f.channel().comm.peer_count();
    let mut batch = Batch::new(f);
    // Each begins with another one, so that they spread.
    let ranks = || (0..there).map(|i| (i + f.rank()) % there);
    // SAFETY: VECTORS; used by the batch alone until it has finished.
    unsafe {
        ranks().for_each(|rank| batch.recv(rank, into(rank)));
        ranks().for_each(|rank| batch.send(rank, out(rank)));
    }
    batch.finish().await
}

/// `MPI_Allgather`
///
/// # Safety
/// The send buffer is readable, the receive buffer writable for every block; they do not overlap.
pub(super) async unsafe fn allgather<C: Call>(f: &C, call: &Allgather) -> Result {
    let (own, into) = (elements(&call.send)?, call.recv.vector()?);
    let total = || into.bytes().saturating_mul(f.channel().comm.peer_count().into());
    note(f, &choose::ALLGATHER, "together", total);
    // SAFETY: VECTORS.
    unsafe { swap_all(f, |_| own, even_blocks(into)).await }
}

/// `MPI_Allgatherv`
///
/// # Safety
/// As [`allgather`].
pub(super) async unsafe fn allgatherv<C: Call>(f: &C, call: &Allgatherv) -> Result {
    let (own, into) = (elements(&call.send)?, call.recv.check()?);
    let there = f.channel().comm.peer_count();
    let total = || (0..there).fold(0u64, |sum, r| sum.saturating_add(into(r).bytes()));
    note(f, &choose::ALLGATHERV, "together", total);
    // SAFETY: VECTORS.
    unsafe { swap_all(f, |_| own, into).await }
}

/// `MPI_Alltoall`
///
/// # Safety
/// The send buffer is readable and the receive buffer writable for every block; they do not overlap.
pub(super) async unsafe fn alltoall<C: Call>(f: &C, call: &Alltoall) -> Result {
    let (out, into) = (elements(&call.send)?, call.recv.vector()?);
    note(f, &choose::ALLTOALL, "together", || into.bytes());
    // SAFETY: VECTORS.
    unsafe { swap_all(f, even_blocks(out), even_blocks(into)).await }
}

/// `MPI_Alltoallv`, `MPI_Alltoallw`
///
/// # Safety
/// As [`alltoall`].
pub(super) async unsafe fn alltoall_arrays<C: Call, B: BlockArray>(
    f: &C, call: &AlltoallArrays<B>,
) -> Result {
    let send = call.send.as_ref().ok_or_else(refuse_in_place)?;
    let (out, into) = (send.check()?, call.recv.check()?);
    let there = f.channel().comm.peer_count();
    note(f, B::ALLTOALL, "together", || call.recv.longest(there));
    // SAFETY: VECTORS.
    unsafe { swap_all(f, out, into).await }
}

/// The operands of the own group, combined at its rank 0 in `result`, which counts only there.
///
/// # Safety
/// The operand is readable, the result writable; they do not overlap.
async unsafe fn reduce_near<C: Call>(
    near: &C, red: &Reduction<'_>, operand: Vector<'_>, result: Vector<'_>,
) -> Result {
    let how = choose::reduce(red.size(operand.count, near.room()), near.size(), near.room());
    let red = &{ *red };
    let at = |v: Vector<'_>| red.at(v.ptr, v.count);
    let result = (near.rank() == 0).then(|| at(result));
    // SAFETY: VECTORS.
    unsafe { reduce::run(near, how, red, at(operand), result, 0).await }
}

/// `MPI_Reduce`
///
/// # Safety
/// The send buffer is readable in the other group, the receive buffer writable at the root.
pub(super) async unsafe fn reduce<C: Call>(f: &C, call: &Reduce) -> Result {
    let (o, count) = (&call.operands, call.count);
    let role = role(f, call.root)?;
    if role == Role::Idle {
        return Ok(());
    }
    note(f, &choose::REDUCE, "leaders", || {
        Vector::new(o.recv, count, o.datatype()).map_or(0, |elements| elements.bytes())
    });
    let red = &o.reduction()?;
    // SAFETY: VECTORS.
    unsafe {
        match role {
            Role::Root => recv_one(f, 0, Vector::new(o.recv, count, o.datatype())?).await,
            Role::Idle => Ok(()),
            Role::Other(root) => {
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

/// `MPI_Allreduce`
///
/// # Safety
/// The send buffer is readable, the receive buffer writable; they do not overlap.
pub(super) async unsafe fn allreduce<C: Call>(f: &C, call: &Allreduce) -> Result {
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

/// `MPI_Reduce_scatter`: `counts` are those of the own group, as many elements in all as in the other one.
///
/// # Safety
/// The send buffer is readable for all blocks, the receive buffer writable for the own one; they do not overlap.
pub(super) async unsafe fn reduce_scatter<C: Call>(
    f: &C, call: &'static choose::Call<choose::ReduceScatter>, o: &Operands,
    counts: impl Fn(u32) -> i64,
) -> Result {
    let red = &o.reduction()?;
    let total = (0..f.size()).try_fold(0_i64, |sum, rank| match counts(rank) {
        count if count < 0 => None,
        count => sum.checked_add(count),
    });
    let total = total
        .ok_or_else(|| Error::new(MPI_ERR_COUNT, "a count is negative, or too many elements"))?;
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
