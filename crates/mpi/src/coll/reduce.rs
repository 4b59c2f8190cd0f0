//! Reduce. VECTORS is defined in `coll.rs`.
#![allow(unsafe_code)]

use super::agreement::{Arguments, compare};
use super::arguments::{Collective, Operands};
use super::fabric::{CallFabric, Fabric, place};
use super::halving::{self, Actors};
use super::local::{RankValue, Reduction, Stack};
use super::scratch::Scratch;
use super::vector::Vector;
use super::{check_root, choose, inter, nodes, shared};
use crate::common::error::Result;

/// Arguments of `MPI_Reduce`.
pub struct Reduce {
    /// Operands and operation. The receive buffer is significant only at the root.
    pub operands: Operands,
    /// Number of elements.
    pub count: i64,
    /// Rank of the root; on an intercommunicator also `MPI_ROOT` or `MPI_PROC_NULL`.
    pub root: i32,
}

impl Collective for Reduce {
    async unsafe fn run<C: CallFabric>(&self, f: &C) -> Result {
        let (o, count) = (&self.operands, self.count);
        let root = check_root(f.channel().comm, self.root)?;
        let red = &o.reduction()?;
        let (operand, result) = match f.rank() == root {
            true => o.vectors(f.channel(), count).map(|(own, all)| (own, Some(all)))?,
            false => (Vector::new(o.send, count, o.datatype())?, None),
        };
        let data = |_| Some((o.datatype(), count));
        compare(f, Arguments::new(&data, &data).op(&o.op).root(root)).await?;
        if operand.bytes() == 0 {
            return Ok(());
        }
        let how = choose::reduce(red.size(operand.count, f.room()), f.size(), place(f));
        // SAFETY: VECTORS: the buffers are those of the call.
        f.channel().conclude(unsafe { run(f, how, red, operand, result, root).await })
    }

    async unsafe fn run_between<C: CallFabric>(&self, f: &C) -> Result {
        // SAFETY: VECTORS: the buffers are those of the call.
        unsafe { inter::reduce(f, self).await }
    }

    fn calls_back(&self) -> bool {
        self.operands.calls_back()
    }
}

/// Runs a reduce. `operand` is this rank's vector. Only the root passes `result`, which may be the operand.
///
/// # Safety
/// The operand is readable and the result writable. They do not overlap, or are the same.
pub(super) async unsafe fn run<'a, F: Fabric>(
    f: &F, how: choose::Reduce, red: &'a Reduction<'a>, operand: Vector<'a>,
    result: Option<Vector<'a>>, root: u32,
) -> Result {
    // SAFETY: VECTORS.
    unsafe {
        match (how, f.nodes()) {
            (choose::Reduce::Nodes, Some(nodes)) => {
                Box::pin(nodes::reduce(f, nodes, red, operand, result, root)).await
            }
            _ => run_as(f, how, red, operand, result, root).await,
        }
    }
}

/// Runs any algorithm except that of `nodes.rs`. Safety: see [`run`].
pub(super) async unsafe fn run_as<'a, F: Fabric>(
    f: &F, how: choose::Reduce, red: &'a Reduction<'a>, operand: Vector<'a>,
    result: Option<Vector<'a>>, root: u32,
) -> Result {
    // SAFETY: VECTORS.
    unsafe {
        match how {
            _ if f.size() == 1 => result.map_or(Ok(()), |result| operand.copy_to(result)),
            choose::Reduce::Flat => flat(f, red, operand, result, root).await,
            choose::Reduce::Shared if let Some(buffers) = f.shared()? => {
                f.apart(shared::reduce(f, buffers, red, operand, result)).await
            }
            choose::Reduce::Binomial | choose::Reduce::Shared | choose::Reduce::Nodes => {
                binomial(f, red, operand, result, root).await
            }
            choose::Reduce::Halving => f.apart(halved(f, red, operand, result, root)).await,
        }
    }
}

/// All ranks send their operands to the root, which combines them.
///
/// # Safety
/// See [`run`].
pub(super) async unsafe fn flat<'a, F: Fabric>(
    f: &F, red: &'a Reduction<'a>, operand: Vector<'a>, result: Option<Vector<'a>>, root: u32,
) -> Result {
    // SAFETY: VECTORS.
    unsafe {
        match result {
            None => f.send(root, operand.buffer()).await,
            Some(result) => flat_root(f, red, operand, result).await,
        }
    }
}

/// The root receives the operands in rank order and combines them along the tree.
///
/// # Safety
/// See [`run`].
async unsafe fn flat_root<'a, F: Fabric>(
    f: &F, red: &'a Reduction<'a>, own: Vector<'a>, result: Vector<'a>,
) -> Result {
    let (root, ranks) = (f.rank(), f.size());
    let mut scratch = Scratch::new(f);
    let others = scratch.elements(red.layout, own.count * Stack::places(ranks))?;
    let mut sum = Stack::new(red, ranks, own, result, others);
    // SAFETY: VECTORS; the scratch has the memory that the stack needs.
    unsafe {
        for rank in 0..ranks {
            if rank == root {
                sum.take_own(rank)?;
            } else {
                let place = sum.place(rank);
                f.recv(rank, place.buffer()).await?;
            }
            sum.combine(rank);
        }
        sum.finish()
    }
}

/// Binomial tree. The head of a branch is the root if the root is in the branch, otherwise the branch's first rank.
/// Operands therefore keep their order, and are combined along the same tree as by the other algorithms.
///
/// # Safety
/// See [`run`].
async unsafe fn binomial<'a, F: Fabric>(
    f: &F, red: &'a Reduction<'a>, operand: Vector<'a>, result: Option<Vector<'a>>, root: u32,
) -> Result {
    let (rank, actors) = (f.rank(), Actors::of(f.size()));
    let (me, top) = (actors.number(rank), actors.number(root));
    let head = |first: u32, size: u32| match top - top % size == first {
        true => root,
        false => actors.first(first),
    };
    // Returns the first actor of this rank's branch with `size` actors.
    let branch = |size: u32| me - me % size;
    let is_head = |size: u32| head(branch(size), size) == rank;
    if !is_head(1) {
        // SAFETY: VECTORS.
        return unsafe { f.send(rank ^ 1, operand.buffer()).await };
    }
    let steps = (1..=actors.count.ilog2()).take_while(|step| is_head(1 << step));
    let steps = steps.count() as u32;
    let is_paired = actors.is_paired(rank);
    let combines = steps + u32::from(is_paired);
    let mut scratch = Scratch::new(f);
    let needed = u64::from((combines > 0) as u8 + (result.is_none() && combines > 0) as u8);
    let others = match needed {
        0 => operand,
        _ => scratch.elements(red.layout, operand.count * needed)?,
    };
    let other = others.part(0, operand.count);
    let last = match needed {
        2 => others.part(operand.count, operand.count),
        _ => result.unwrap_or(operand),
    };
    // Combining with the operand of a higher rank moves the value to the other buffer. Choose the buffers so that the
    // last move ends in `last`.
    let below = (me & ((1 << steps) - 1)).count_ones() + u32::from(is_paired && rank % 2 == 1);
    let (spare, home) = match (operand.ptr == last.ptr, (combines - below) % 2 == 1) {
        (true, _) => (other, None),
        (false, true) => (last, Some(other)),
        (false, false) => (other, Some(last)),
    };
    let mut sum = RankValue { red, value: operand, spare, home };
    // SAFETY: VECTORS; both buffers are as long as the operand.
    unsafe {
        if is_paired {
            f.recv(rank ^ 1, sum.spare.buffer()).await?;
            sum.combine(rank % 2 == 1)?;
        }
        for step in 0..steps {
            let size = 1 << step;
            let other = branch(size) ^ size;
            f.recv(head(other, size), sum.spare.buffer()).await?;
            sum.combine(other < me)?;
        }
        match result {
            Some(result) if sum.value.ptr != result.ptr => sum.value.copy_to(result),
            Some(_) => Ok(()),
            None => {
                let size = 2 << steps;
                f.send(head(branch(size), size), sum.value.buffer()).await
            }
        }
    }
}

/// Each rank reduces a part of the vector, and the root gathers the parts.
///
/// # Safety
/// See [`run`]. The operation must commute.
async unsafe fn halved<'a, F: Fabric>(
    f: &F, red: &'a Reduction<'a>, operand: Vector<'a>, result: Option<Vector<'a>>, root: u32,
) -> Result {
    let mut scratch = Scratch::new(f);
    let place = match result {
        Some(result) => result,
        None => scratch.elements(red.layout, operand.count)?,
    };
    let send = (operand.ptr != place.ptr).then_some(operand.ptr.cast_const());
    // SAFETY: VECTORS; the scratch is as long as the operand.
    unsafe { halving::reduce(f, red, send, place.ptr, operand.count, root).await }
}
