//! Reduce_scatter and Reduce_scatter_block. VECTORS is defined in `coll.rs`.
#![allow(unsafe_code)]

use super::agreement::{Arguments, compare};
use super::apart::check_apart;
use super::arguments::{Collective, Operands};
use super::fabric::{CallFabric, Fabric, place};
use super::local::Reduction;
use super::ring::{self, Deal};
use super::scratch::Scratch;
use super::vector::Vector;
use super::{allreduce, choose, inter, is_in_place, shared};
use crate::common::consts::MPI_ERR_COUNT;
use crate::common::error::{Error, Result};
use std::cell::OnceCell;

/// Arguments of `MPI_Reduce_scatter`.
pub struct ReduceScatter {
    /// Operands and operation. In place, the receive buffer has all blocks.
    pub operands: Operands,
    /// Number of elements of each rank's block.
    pub counts: Vec<i64>,
    /// First element of each block, computed at the first start.
    starts: OnceCell<Vec<u64>>,
}

impl ReduceScatter {
    /// Makes a call with a count for each rank.
    pub fn new(operands: Operands, counts: Vec<i64>) -> Self {
        ReduceScatter { operands, counts, starts: OnceCell::new() }
    }
}

impl Collective for ReduceScatter {
    async unsafe fn run<C: CallFabric>(&self, f: &C) -> Result {
        let counts = &self.counts;
        let total = counts.iter().try_fold(0u64, |total, &count| {
            let sum = u64::try_from(count).ok().and_then(|c| total.checked_add(c));
            sum.ok_or_else(|| refuse_count(count))
        })?;
        let starts = self.starts.get_or_init(|| {
            let next = |at: &mut u64, &count: &i64| Some(std::mem::replace(at, *at + count as u64));
            counts.iter().scan(0, next).collect()
        });
        let deal = |rank: u32| (starts[rank as usize], counts[rank as usize] as u64);
        let count = |to: u32| counts[to as usize];
        // SAFETY: VECTORS: the buffers are those of the call.
        unsafe {
            scatter_result(f, &choose::REDUCE_SCATTER, &self.operands, total, &deal, count).await
        }
    }

    async unsafe fn run_between<C: CallFabric>(&self, f: &C) -> Result {
        let counts = |rank: u32| self.counts[rank as usize];
        // SAFETY: VECTORS: the buffers are those of the call.
        unsafe { inter::reduce_scatter(f, &choose::REDUCE_SCATTER, &self.operands, counts).await }
    }

    fn calls_back(&self) -> bool {
        self.operands.calls_back()
    }
}

/// Arguments of `MPI_Reduce_scatter_block`.
pub struct ReduceScatterBlock {
    /// Operands and operation. In place, the receive buffer has all blocks.
    pub operands: Operands,
    /// Number of elements for each rank.
    pub count: i64,
}

impl Collective for ReduceScatterBlock {
    async unsafe fn run<C: CallFabric>(&self, f: &C) -> Result {
        let count = self.count;
        let share = u64::try_from(count).map_err(|_| refuse_count(count))?;
        let total = share.checked_mul(f.size() as u64).ok_or_else(|| refuse_count(count))?;
        let deal = move |rank: u32| (rank as u64 * share, share);
        let call = &choose::REDUCE_SCATTER_BLOCK;
        // SAFETY: VECTORS: the buffers are those of the call.
        unsafe { scatter_result(f, call, &self.operands, total, &deal, |_| count).await }
    }

    async unsafe fn run_between<C: CallFabric>(&self, f: &C) -> Result {
        // SAFETY: VECTORS: the buffers are those of the call.
        unsafe {
            inter::reduce_scatter(f, &choose::REDUCE_SCATTER_BLOCK, &self.operands, |_| self.count)
                .await
        }
    }

    fn calls_back(&self) -> bool {
        self.operands.calls_back()
    }
}

/// Executes either call of this file after its counts are checked. `deal` returns start and length of each rank's
/// block.
///
/// # Safety
/// See [`Collective::run`].
async unsafe fn scatter_result<C: CallFabric>(
    f: &C, call: &'static choose::CallAlgorithms<choose::ReduceScatter>, o: &Operands, total: u64,
    deal: &impl Deal, count: impl Fn(u32) -> i64,
) -> Result {
    let red = &o.reduction()?;
    let whole = i64::try_from(total).map_err(|_| refuse_count(i64::MAX))?;
    let mine = deal.block(f.rank()).1;
    let (operand, result) = match is_in_place(o.send) {
        true => {
            let operand = Vector::new(o.recv, whole, o.datatype())?;
            (operand, operand.part(0, mine))
        }
        false => {
            let operand = Vector::new(o.send, whole, o.datatype())?;
            let result = Vector::new(o.recv, mine as i64, o.datatype())?;
            check_apart(f.channel(), Some(operand), result)?;
            (operand, result)
        }
    };
    let sends = |to: u32| Some((o.datatype(), count(to)));
    let receives = |_| sends(f.rank());
    compare(f, Arguments::new(&sends, &receives).op(&o.op)).await?;
    let how = choose::reduce_scatter(call, red.size(total, f.room()), f.size(), place(f));
    // SAFETY: VECTORS.
    f.channel().conclude(unsafe { run(f, how, red, operand, deal, result).await })
}

#[cold]
#[inline(never)]
fn refuse_count(count: i64) -> Error {
    let text = if count < 0 {
        "is negative"
    } else {
        "is too large: the blocks of all ranks together have more than 2^63 - 1 bytes"
    };
    Error::new(MPI_ERR_COUNT, format!("the count {count} {text}"))
}

/// Runs a reduce-scatter. The result may be the beginning of the operand.
///
/// # Safety
/// The operand is readable and the result writable.
pub(super) async unsafe fn run<'a, F: Fabric>(
    f: &F, how: choose::ReduceScatter, red: &'a Reduction<'a>, operand: Vector<'a>,
    deal: &impl Deal, result: Vector<'a>,
) -> Result {
    if operand.bytes() == 0 {
        return Ok(());
    }
    let (first, count) = deal.block(f.rank());
    let in_place = operand.ptr == result.ptr;
    let mut scratch = Scratch::new(f);
    // SAFETY: VECTORS; the scratch is as long as the data that is written to it.
    unsafe {
        match how {
            choose::ReduceScatter::Shared
                if red.layout.is_contiguous()
                    && let Some(buffers) = f.shared()? =>
            {
                f.apart(shared::reduce_scatter(f, buffers, red, operand, (first, result))).await
            }
            choose::ReduceScatter::Allreduce | choose::ReduceScatter::Shared => {
                let whole = scratch.elements(red.layout, operand.count)?;
                let how = choose::allreduce(red.size(operand.count, f.room()), f.size(), place(f));
                f.apart(allreduce::run(f, how, red, operand, whole)).await?;
                whole.part(first, count).copy_to(result)
            }
            choose::ReduceScatter::Ring if in_place => {
                let mine = scratch.elements(red.layout, count)?;
                f.apart(ring::reduce_scatter(f, red, operand.ptr, deal, mine.ptr)).await?;
                mine.copy_to(result)
            }
            choose::ReduceScatter::Ring => {
                f.apart(ring::reduce_scatter(f, red, operand.ptr, deal, result.ptr)).await
            }
        }
    }
}
