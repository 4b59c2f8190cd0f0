//! Binomial tree. A relative rank counts from the root. Its lowest set bit is the distance to its parent, and the
//! maximum size of its subtree, whose ranks are consecutive. VECTORS is defined in `coll.rs`.
#![allow(unsafe_code)]

use super::fabric::Fabric;
use super::vector::Vector;
use crate::common::error::Result;
use std::ops::Range;

pub(super) fn relative(rank: u32, root: u32, ranks: u32) -> u32 {
    (rank + ranks - root) % ranks
}

pub(super) fn absolute(relative: u32, root: u32, ranks: u32) -> u32 {
    (relative + root) % ranks
}

/// Returns the distance of a relative rank to its parent. For the root, returns the number of ranks rounded up to a
/// power of two. A rank's children are at all smaller powers of two.
fn parent_distance(relative: u32, ranks: u32) -> u32 {
    if relative == 0 { ranks.next_power_of_two() } else { 1 << relative.trailing_zeros() }
}

pub(super) fn subtree_ranks(relative: u32, ranks: u32) -> u32 {
    parent_distance(relative, ranks).min(ranks - relative)
}

/// Passes data from the root to all ranks. Each rank receives the part of its subtree from its parent, and sends each
/// child that child's part, the largest subtree first. `part` maps relative ranks to a part; `None` means no message.
///
/// # Safety
/// The parts are readable at the root and writable elsewhere. The parts of two children do not overlap.
#[inline]
pub(super) async unsafe fn pass_down<'a, F: Fabric>(
    f: &F, root: u32, part: impl Fn(Range<u32>) -> Option<Vector<'a>>,
) -> Result {
    let ranks = f.size();
    let me = relative(f.rank(), root, ranks);
    let of = |rank: u32| part(rank..rank + subtree_ranks(rank, ranks));
    let mut distance = parent_distance(me, ranks);
    // SAFETY: VECTORS.
    unsafe {
        if me != 0
            && let Some(mine) = of(me)
        {
            f.recv(absolute(me - distance, root, ranks), mine.buffer()).await?;
        }
        while distance > 1 {
            distance /= 2;
            if me + distance < ranks
                && let Some(theirs) = of(me + distance)
            {
                f.send(absolute(me + distance, root, ranks), theirs.buffer()).await?;
            }
        }
    }
    Ok(())
}

/// Passes data from all ranks to the root. Each rank receives the parts of its children's subtrees, the smallest first.
/// It then sends the part of its own subtree to its parent. `part` maps relative ranks to a part.
///
/// # Safety
/// The rank's part is readable, and those of its children are writable.
pub(super) async unsafe fn pass_up<'a, F: Fabric>(
    f: &F, root: u32, part: impl Fn(Range<u32>) -> Vector<'a>,
) -> Result {
    let ranks = f.size();
    let me = relative(f.rank(), root, ranks);
    let of = |rank: u32| part(rank..rank + subtree_ranks(rank, ranks)).buffer();
    let parent = parent_distance(me, ranks);
    let mut distance = 1;
    // SAFETY: VECTORS.
    unsafe {
        while distance < parent && me + distance < ranks {
            f.recv(absolute(me + distance, root, ranks), of(me + distance)).await?;
            distance *= 2;
        }
        match me {
            0 => Ok(()),
            _ => f.send(absolute(me - parent, root, ranks), of(me)).await,
        }
    }
}

/// Returns a function that maps subtrees to their parts of packed memory. Packed blocks are adjacent, of `bytes` bytes
/// each, and the first is that of relative rank `first`.
pub(super) fn packed(
    at: *mut u8, bytes: u64, first: u32,
) -> impl Fn(Range<u32>) -> Vector<'static> {
    move |of| {
        let start = bytes * (of.start - first) as u64;
        Vector::raw(at.wrapping_add(start as usize), bytes * of.len() as u64)
    }
}
