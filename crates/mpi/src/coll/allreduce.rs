//! Allreduce. VECTORS is defined in `coll.rs`.
#![allow(unsafe_code)]

use super::agreement::{Arguments, compare};
use super::arguments::{Collective, Operands};
use super::fabric::{CallFabric, Fabric, place};
use super::halving::Actors;
use super::local::{RankValue, Reduction};
use super::ring::{self, Deal, deal_evenly};
use super::scratch::Scratch;
use super::vector::Vector;
use super::{allgather, bcast, choose, halving, inter, lines, nodes, reduce, shared};
use crate::common::error::Result;

/// Arguments of `MPI_Allreduce`.
pub struct Allreduce {
    /// Operands, operation and datatype.
    pub operands: Operands,
    /// Number of elements.
    pub count: i64,
}

impl Collective for Allreduce {
    #[inline]
    async unsafe fn run<C: CallFabric>(&self, f: &C) -> Result {
        let o = &self.operands;
        let red = &o.reduction()?;
        let (operand, result) = o.vectors(f.channel(), self.count)?;
        let data = |_| Some((o.datatype(), self.count));
        compare(f, Arguments::new(&data, &data).op(&o.op)).await?;
        if result.bytes() == 0 {
            return Ok(());
        }
        let size = red.size(result.count, f.room());
        let how = choose::allreduce(size, f.size(), place(f));
        // SAFETY: VECTORS: the buffers are those of the call.
        f.channel().conclude(unsafe { run(f, how, red, operand, result).await })
    }

    async unsafe fn run_between<C: CallFabric>(&self, f: &C) -> Result {
        // SAFETY: VECTORS: the buffers are those of the call.
        unsafe { inter::allreduce(f, self).await }
    }

    fn calls_back(&self) -> bool {
        self.operands.calls_back()
    }
}

/// Runs an allreduce. Operand and result may be the same vector.
///
/// # Safety
/// The operand is readable and the result writable. They do not overlap, or are the same.
#[inline]
pub(super) async unsafe fn run<'a, F: Fabric>(
    f: &F, how: choose::Allreduce, red: &'a Reduction<'a>, operand: Vector<'a>, result: Vector<'a>,
) -> Result {
    // SAFETY: VECTORS.
    unsafe {
        match how {
            choose::Allreduce::Doubling if result.bytes() <= choose::ALLREDUCE_PIECE => {
                doubling(f, red, operand, result).await
            }
            _ => run_other(f, how, red, operand, result).await,
        }
    }
}

/// Runs an allreduce by any algorithm except doubling in one piece, which [`run`] handles itself. Safety: see [`run`].
#[inline(never)]
async unsafe fn run_other<'a, F: Fabric>(
    f: &F, how: choose::Allreduce, red: &'a Reduction<'a>, operand: Vector<'a>, result: Vector<'a>,
) -> Result {
    // SAFETY: VECTORS.
    unsafe {
        match (how, f.nodes()) {
            (choose::Allreduce::Nodes, Some(nodes)) => {
                Box::pin(nodes::allreduce(f, nodes, red, operand, result)).await
            }
            _ => run_as(f, how, red, operand, result).await,
        }
    }
}

/// Runs any algorithm except that of `nodes.rs`. Safety: see [`run`].
pub(super) async unsafe fn run_as<'a, F: Fabric>(
    f: &F, how: choose::Allreduce, red: &'a Reduction<'a>, operand: Vector<'a>, result: Vector<'a>,
) -> Result {
    let in_place = operand.ptr == result.ptr;
    // SAFETY: VECTORS.
    unsafe {
        match how {
            _ if f.size() == 1 => operand.copy_to(result),
            choose::Allreduce::Flat => {
                let at_root = (f.rank() == 0).then_some(result);
                reduce::flat(f, red, operand, at_root, 0).await?;
                bcast::flat(f, result, 0).await
            }
            choose::Allreduce::HalvingDoubling => {
                let send = (!in_place).then_some(operand.ptr.cast_const());
                f.apart(halving::allreduce(f, red, send, result.ptr, result.count)).await
            }
            choose::Allreduce::Ring => {
                let deal = deal_evenly(result.count, f.size());
                let block = |rank: u32| {
                    let (first, count) = deal.block(rank);
                    result.part(first, count)
                };
                f.apart(ring::reduce_scatter(f, red, operand.ptr, &deal, block(f.rank()).ptr))
                    .await?;
                f.apart(allgather::ring(f, None, &block)).await
            }
            choose::Allreduce::Shared if let Some(buffers) = f.shared()? => {
                f.apart(shared::reduce(f, buffers, red, operand, Some(result))).await
            }
            choose::Allreduce::Lines
                if let Some(lines) = f.lines()?
                    && lines::fits_allreduce(&lines, red, result.bytes()) =>
            {
                f.apart(lines::allreduce(f, &lines, red, operand, result)).await
            }
            choose::Allreduce::Doubling
            | choose::Allreduce::Shared
            | choose::Allreduce::Lines
            | choose::Allreduce::Nodes => {
                let piece = choose::ALLREDUCE_PIECE / red.layout.size();
                f.apart(in_pieces(f, red, operand, result, piece.max(1))).await
            }
        }
    }
}

/// Recursive doubling of `piece` elements at a time.
///
/// # Safety
/// See [`run`].
pub(super) async unsafe fn in_pieces<'a, F: Fabric>(
    f: &F, red: &'a Reduction<'a>, operand: Vector<'a>, result: Vector<'a>, piece: u64,
) -> Result {
    let mut done = 0;
    while done < result.count {
        let count = piece.min(result.count - done);
        // SAFETY: VECTORS; pieces do not overlap.
        unsafe { doubling(f, red, operand.part(done, count), result.part(done, count)).await? };
        done += count;
    }
    Ok(())
}

/// Recursive doubling: in step k partners exchange values that each combine 2^k ranks. If the number of ranks is no
/// power of two, the odd rank of each of the first few pairs acts for its pair.
///
/// # Safety
/// See [`run`].
#[inline]
async unsafe fn doubling<'a, F: Fabric>(
    f: &F, red: &'a Reduction<'a>, operand: Vector<'a>, result: Vector<'a>,
) -> Result {
    let (rank, ranks) = (f.rank(), f.size());
    let actors = Actors::of(ranks);
    let is_paired = actors.is_paired(rank);
    // SAFETY: VECTORS; the scratch is as long as the operand.
    unsafe {
        if is_paired && rank % 2 == 0 {
            f.send(rank + 1, operand.buffer()).await?;
            return f.recv(rank + 1, result.buffer()).await;
        }
        let mut scratch = Scratch::new(f);
        let other = scratch.elements(red.layout, operand.count)?;
        let me = actors.number(rank);
        // Combining with the operand of a higher rank moves the value to the other buffer. Choose the buffers so that
        // the last move ends in the result.
        let above = actors.count.trailing_zeros() - me.count_ones();
        let (spare, home) = match (operand.ptr == result.ptr, above % 2 == 1) {
            (true, _) => (other, None),
            (false, true) => (result, Some(other)),
            (false, false) => (other, Some(result)),
        };
        let mut sum = RankValue { red, value: operand, spare, home };
        if is_paired {
            f.recv(rank - 1, sum.spare.buffer()).await?;
            sum.combine_lower()?;
        }
        let mut mask = 1;
        while mask < actors.count {
            let them = me ^ mask;
            let partner = actors.rank(them);
            f.exchange(partner, sum.value.buffer(), partner, sum.spare.buffer()).await?;
            if them < me {
                sum.combine_lower()?;
            } else {
                sum.combine_higher();
            }
            mask *= 2;
        }
        if sum.value.ptr != result.ptr {
            sum.value.copy_to(result)?;
        }
        if is_paired { f.send(rank - 1, result.buffer()).await } else { Ok(()) }
    }
}
