//! Ring reduce-scatter: each block passes through all ranks, and each rank adds its operand. All ranks but the last
//! send each byte of a block once; all but the first combine it once. The operation must commute; the number of ranks
//! is arbitrary. VECTORS is defined in `coll.rs`.
#![allow(unsafe_code)]

use super::fabric::{Fabric, trade};
use super::local::Reduction;
use super::scratch::Scratch;
use super::vector::Vector;
use crate::common::error::Result;

/// Distribution of a vector over the ranks.
pub(super) trait Deal {
    /// Returns the first element and the number of elements of a rank's block.
    fn block(&self, rank: u32) -> (u64, u64);
}

impl<T: Fn(u32) -> (u64, u64)> Deal for T {
    fn block(&self, rank: u32) -> (u64, u64) {
        self(rank)
    }
}

/// Distributes `count` elements as evenly as possible, in rank order.
pub(super) fn deal_evenly(count: u64, ranks: u32) -> impl Fn(u32) -> (u64, u64) + Copy {
    let (share, more) = (count / ranks as u64, count % ranks as u64);
    move |rank: u32| {
        let rank = rank as u64;
        (rank * share + rank.min(more), share + (rank < more) as u64)
    }
}

/// Reduces the vectors at `send` of all ranks. This rank's block goes to `result`, which may be in `send`.
///
/// Each block starts at the rank after the one that keeps it. Received blocks go to two buffers in turn, the last to
/// `result`.
///
/// # Safety
/// `send` is readable for all blocks, and `result` writable for this rank's.
pub(super) async unsafe fn reduce_scatter<F: Fabric>(
    f: &F, red: &Reduction<'_>, send: *const u8, deal: &impl Deal, result: *mut u8,
) -> Result {
    let (rank, ranks) = (f.rank(), f.size());
    let (next, previous) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
    let own = |rank: u32| {
        let (first, count) = deal.block(rank);
        red.at(send, 0).part(first, count)
    };
    let longest = (0..ranks).map(|r| deal.block(r).1).max().unwrap_or(0);
    let (mut a, mut b) = (Scratch::new(f), Scratch::new(f));
    let places = [a.elements(red.layout, longest)?, b.elements(red.layout, longest)?];
    let mine = own(rank);
    let in_place = mine.ptr == result;
    let mut out = own(previous);
    for step in 0..ranks - 1 {
        let index = (rank + 2 * ranks - step - 2) % ranks;
        let operand = own(index);
        let last = step == ranks - 2;
        let place =
            if last && !in_place { red.at(result, mine.count) } else { places[step as usize % 2] };
        let into = place.part(0, operand.count);
        // SAFETY: VECTORS; the data to send is in `send` or in the other buffer.
        unsafe {
            trade(f, next, out, previous, into).await?;
            red.fold(operand, into);
            if last && in_place {
                into.copy_to(mine)?;
            }
        }
        out = into;
    }
    if ranks == 1 {
        // SAFETY: VECTORS.
        unsafe { mine.copy_to(Vector { ptr: result, ..mine })? };
    }
    Ok(())
}
