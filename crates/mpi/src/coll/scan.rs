//! Scan and Exscan: prefix reductions, always in rank order. VECTORS is defined in `coll.rs`.
#![allow(unsafe_code)]

use super::agreement::{Arguments, compare};
use super::arguments::{Collective, Operands};
use super::fabric::{CallFabric, Fabric, place};
use super::local::Reduction;
use super::scratch::Scratch;
use super::vector::Vector;
use super::{choose, lines};
use crate::common::error::Result;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prefix {
    Inclusive,
    /// Combines the operands of the ranks before this rank. The result of rank 0 is not changed.
    Exclusive,
}

/// Arguments of `MPI_Scan`.
pub struct Scan {
    /// Operands and operation.
    pub operands: Operands,
    /// Number of elements.
    pub count: i64,
}

impl Collective for Scan {
    async unsafe fn run<C: CallFabric>(&self, f: &C) -> Result {
        // SAFETY: VECTORS: the buffers are those of the call.
        unsafe { prefix(f, Prefix::Inclusive, &self.operands, self.count).await }
    }

    fn calls_back(&self) -> bool {
        self.operands.calls_back()
    }
}

/// Arguments of `MPI_Exscan`.
pub struct Exscan {
    /// Operands and operation.
    pub operands: Operands,
    /// Number of elements.
    pub count: i64,
}

impl Collective for Exscan {
    async unsafe fn run<C: CallFabric>(&self, f: &C) -> Result {
        // SAFETY: VECTORS: the buffers are those of the call.
        unsafe { prefix(f, Prefix::Exclusive, &self.operands, self.count).await }
    }

    fn calls_back(&self) -> bool {
        self.operands.calls_back()
    }
}

/// Executes a scan or exscan. Safety: see [`Collective::run`].
async unsafe fn prefix<C: CallFabric>(f: &C, prefix: Prefix, o: &Operands, count: i64) -> Result {
    let call = match prefix {
        Prefix::Inclusive => &choose::SCAN,
        Prefix::Exclusive => &choose::EXSCAN,
    };
    let red = &o.reduction()?;
    let (operand, result) = o.vectors(f.channel(), count)?;
    let data = |_| Some((o.datatype(), count));
    compare(f, Arguments::new(&data, &data).op(&o.op)).await?;
    let how = choose::scan(call, red.size(operand.count, f.room()), f.size(), place(f));
    // SAFETY: VECTORS.
    f.channel().conclude(unsafe { run(f, how, prefix, red, operand, result).await })
}

/// Runs a scan. The operand may be the result.
///
/// # Safety
/// The operand is readable and the result writable. They do not overlap, or are the same.
pub(super) async unsafe fn run<'a, F: Fabric>(
    f: &F, how: choose::Scan, prefix: Prefix, red: &'a Reduction<'a>, operand: Vector<'a>,
    result: Vector<'a>,
) -> Result {
    if operand.bytes() == 0 {
        return Ok(());
    }
    // SAFETY: VECTORS.
    unsafe {
        match how {
            choose::Scan::Chain => chain(f, prefix, red, operand, result).await,
            choose::Scan::Lines
                if red.layout.is_contiguous()
                    && let Some(lines) = f.lines()? =>
            {
                f.apart(lines::scan(f, &lines, prefix, red, operand, result)).await
            }
            choose::Scan::Doubling | choose::Scan::Lines => {
                doubling(f, prefix, red, operand, result).await
            }
        }
    }
}

/// Each rank waits only once, for the prefix from the rank before it. Every rank therefore needs a processor only once.
///
/// # Safety
/// See [`run`].
async unsafe fn chain<'a, F: Fabric>(
    f: &F, prefix: Prefix, red: &'a Reduction<'a>, operand: Vector<'a>, result: Vector<'a>,
) -> Result {
    let (rank, is_last) = (f.rank(), f.rank() + 1 == f.size());
    let (mut before, mut through) = (Scratch::new(f), Scratch::new(f));
    let before = before.elements(red.layout, operand.count)?;
    // Prefix including this rank: the result of a scan, and the operand for the next rank.
    let through = match prefix {
        Prefix::Inclusive => result,
        Prefix::Exclusive if is_last => before,
        Prefix::Exclusive => through.elements(red.layout, operand.count)?,
    };
    // SAFETY: VECTORS; the scratches are as long as the operand.
    unsafe {
        if rank > 0 {
            f.recv(rank - 1, before.buffer()).await?;
        }
        if prefix == Prefix::Inclusive || !is_last {
            operand.copy_to(through)?;
            if rank > 0 {
                red.fold(before, through);
            }
        }
        if !is_last {
            f.send(rank + 1, through.buffer()).await?;
        }
        if prefix == Prefix::Exclusive && rank > 0 {
            before.copy_to(result)?;
        }
    }
    Ok(())
}

/// Recursive doubling: in step k partners exchange the reductions of their blocks of 2^k ranks. The upper rank combines
/// the lower block's reduction, as the left operand, with its own prefix.
///
/// # Safety
/// See [`run`].
async unsafe fn doubling<'a, F: Fabric>(
    f: &F, prefix: Prefix, red: &'a Reduction<'a>, operand: Vector<'a>, result: Vector<'a>,
) -> Result {
    let (rank, ranks) = (f.rank(), f.size());
    let (mut a, mut b) = (Scratch::new(f), Scratch::new(f));
    let mut block = a.elements(red.layout, operand.count)?;
    let mut other = b.elements(red.layout, operand.count)?;
    // SAFETY: VECTORS; the scratches are as long as the operand.
    unsafe {
        operand.copy_to(block)?;
        let mut has_prefix = prefix == Prefix::Inclusive;
        if has_prefix {
            operand.copy_to(result)?;
        }
        let mut mask = 1;
        while mask < ranks {
            let partner = rank ^ mask;
            if partner < ranks {
                f.exchange(partner, block.buffer(), partner, other.buffer()).await?;
                if partner > rank {
                    red.fold(block, other);
                    std::mem::swap(&mut block, &mut other);
                } else {
                    if has_prefix {
                        red.fold(other, result);
                    } else {
                        other.copy_to(result)?;
                        has_prefix = true;
                    }
                    red.fold(other, block);
                }
            }
            mask *= 2;
        }
    }
    Ok(())
}
