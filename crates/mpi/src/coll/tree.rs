//! The binomial tree: ranks are counted from the root, the lowest bit of a rank so counted says how far away its parent
//! is, and its subtree are the ranks from it on that are not as far.
#![allow(unsafe_code)]

use super::fabric::Fabric;
use super::vector::Vector;
use crate::common::error::Result;
use std::ops::Range;

/// The rank counted from the root.
pub(super) fn relative(rank: u32, root: u32, ranks: u32) -> u32 {
    (rank + ranks - root) % ranks
}

/// The inverse of [`relative`].
pub(super) fn absolute(relative: u32, root: u32, ranks: u32) -> u32 {
    (relative + root) % ranks
}

/// Distance of a (relative) rank to its parent; for the root the smallest power of two that is not below the number of
/// ranks. Its children are at the powers of two below.
fn parent_distance(relative: u32, ranks: u32) -> u32 {
    if relative == 0 { ranks.next_power_of_two() } else { 1 << relative.trailing_zeros() }
}

/// Number of ranks in the subtree of a (relative) rank.
pub(super) fn subtree_ranks(relative: u32, ranks: u32) -> u32 {
    parent_distance(relative, ranks).min(ranks - relative)
}

/// From the root to all: each rank receives from its parent what `part` says of its subtree, the (relative) ranks
/// from..to, and sends each child what is that one's, the largest subtree first. None is no message.
///
/// # Safety
/// The parts are readable at the root and writable elsewhere. Those of two children do not overlap.
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

/// From all to the root: each rank receives from each child what `part` says of that one's subtree, the (relative)
/// ranks from..to, the smallest first, and sends its parent what is its own.
///
/// # Safety
/// The rank's part is readable, those of its children are writable.
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

/// The parts of a subtree whose blocks, of `bytes` bytes each, lie one behind the other from that of `first` on.
pub(super) fn packed(
    at: *mut u8, bytes: u64, first: u32,
) -> impl Fn(Range<u32>) -> Vector<'static> {
    move |of| {
        let start = bytes * (of.start - first) as u64;
        Vector::raw(at.wrapping_add(start as usize), bytes * of.len() as u64)
    }
}
