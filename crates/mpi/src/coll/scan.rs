//! Scan and Exscan: prefix reductions, always in the order of ranks.
#![allow(unsafe_code)]

use super::agreement::{Arguments, compare};
use super::arguments::{Collective, Operands};
use super::choose;
use super::fabric::{Call, Fabric};
use super::local::Reduction;
use super::scratch::Scratch;
use super::vector::Vector;
use crate::common::error::Result;

/// What a prefix covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prefix {
    /// The ranks up to and with this one.
    Inclusive,
    /// The ranks before this one; rank 0's result is not changed.
    Exclusive,
}

/// `MPI_Scan`
pub struct Scan {
    /// What is combined, and how.
    pub operands: Operands,
    /// Number of elements.
    pub count: i64,
}

impl Collective for Scan {
    async unsafe fn run<C: Call>(&self, f: &C) -> Result {
        // SAFETY: VECTORS, those of the call.
        unsafe { prefix(f, Prefix::Inclusive, &self.operands, self.count).await }
    }

    fn calls_back(&self) -> bool {
        self.operands.calls_back()
    }
}

/// `MPI_Exscan`
pub struct Exscan {
    /// What is combined, and how.
    pub operands: Operands,
    /// Number of elements.
    pub count: i64,
}

impl Collective for Exscan {
    async unsafe fn run<C: Call>(&self, f: &C) -> Result {
        // SAFETY: VECTORS, those of the call.
        unsafe { prefix(f, Prefix::Exclusive, &self.operands, self.count).await }
    }

    fn calls_back(&self) -> bool {
        self.operands.calls_back()
    }
}

/// # Safety
/// As [`Collective::run`].
async unsafe fn prefix<C: Call>(f: &C, prefix: Prefix, o: &Operands, count: i64) -> Result {
    let call = match prefix {
        Prefix::Inclusive => &choose::SCAN,
        Prefix::Exclusive => &choose::EXSCAN,
    };
    let red = &o.reduction()?;
    let (operand, result) = o.vectors(f.channel(), count)?;
    let data = |_| Some((o.datatype(), count));
    compare(f, Arguments::new(&data, &data).op(&o.op)).await?;
    let how = choose::scan(call, operand.bytes(), f.size(), f.room());
    // SAFETY: VECTORS.
    f.channel().conclude(unsafe { run(f, how, prefix, red, operand, result).await })
}

/// The operand may be the result.
///
/// # Safety
/// The operand is readable, the result writable; they do not overlap, or are the same.
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
            choose::Scan::Doubling => doubling(f, prefix, red, operand, result).await,
        }
    }
}

/// Each rank waits for the one before it: every rank is scheduled once.
///
/// # Safety
/// As [`run`].
async unsafe fn chain<'a, F: Fabric>(
    f: &F, prefix: Prefix, red: &'a Reduction<'a>, operand: Vector<'a>, result: Vector<'a>,
) -> Result {
    let (rank, is_last) = (f.rank(), f.rank() + 1 == f.size());
    let (mut before, mut through) = (Scratch::new(f), Scratch::new(f));
    let before = before.elements(red.layout, operand.count)?;
    // With this rank's operand: the result of a scan, and what the next rank needs.
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

/// Recursive doubling: in step k ranks exchange the reduction of their block of 2^k ranks; the upper one adds the block
/// below to the left of its prefix.
///
/// # Safety
/// As [`run`].
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
