//! Scan and exscan through shared lines. VECTORS is defined in `coll.rs`.
#![allow(unsafe_code)]

use super::super::fabric::Fabric;
use super::super::local::Reduction;
use super::super::scan::Prefix;
use super::super::scratch::Scratch;
use super::super::vector::Vector;
use super::Lines;
use crate::coll_choice::line_plan::Readers;
use crate::common::error::Result;

/// Recursive doubling, in the order of operands of the scan by messages: in step k, ranks whose numbers differ in bit k
/// read each other's reduction of a block of 2^k ranks.
///
/// # Safety
/// The operand is readable and the result writable. They do not overlap, or are the same. Elements are contiguous, and
/// fit a step.
pub(in super::super) async unsafe fn scan<'a, F: Fabric, L: Lines>(
    f: &F, lines: &L, prefix: Prefix, red: &'a Reduction<'a>, operand: Vector<'a>,
    result: Vector<'a>,
) -> Result {
    let (rank, ranks, bytes) = (f.rank(), f.size(), operand.bytes() as usize);
    let mut scratch = Scratch::new(f);
    let blocks = scratch.elements(red.layout, 2 * operand.count)?;
    let mut block = blocks.part(0, operand.count);
    let mut other = blocks.part(operand.count, operand.count);
    let mut has_prefix = prefix == Prefix::Inclusive;
    let mut combined = Ok(());
    // SAFETY: VECTORS; the scratch is twice as long as the operand, and lines hold as many bytes as the operand.
    unsafe {
        operand.copy_to(block)?;
        if has_prefix {
            operand.copy_to(result)?;
        }
        for bit in 0..ranks.next_power_of_two().ilog2() {
            let partner = rank ^ (1 << bit);
            if partner >= ranks {
                continue;
            }
            lines.publish(bit, bytes, |to| block.pack(to), Readers::Twin(bit)).await?;
            let take = |_, at: *const u8| {
                let theirs = red.at(at, operand.count);
                if partner > rank {
                    combined = theirs.copy_to(other);
                    red.fold(block, other);
                    std::mem::swap(&mut block, &mut other);
                } else {
                    match has_prefix {
                        true => red.fold(theirs, result),
                        false => combined = theirs.copy_to(result),
                    }
                    has_prefix = true;
                    red.fold(theirs, block);
                }
            };
            lines.collect(&[partner], bit, |_| bytes, take).await?;
            lines.note_began(partner);
        }
    }
    combined
}
