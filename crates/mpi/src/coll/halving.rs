//! Allreduce by recursive halving and doubling (Rabenseifner): reduce-scatter in log2 steps, each with half the bytes
//! of the one before, and the way back. For operations that commute.
#![allow(unsafe_code)]

use super::fabric::{Fabric, trade};
use super::local::Reduction;
use super::scratch::Scratch;
use super::vector::Vector;
use crate::error::Result;

/// Elements `start..end`.
#[derive(Debug, Clone, Copy)]
struct Range {
    start: u64,
    end: u64,
}

impl Range {
    /// The half that the partner on the upper side has not, and the other: (lower, upper).
    fn split(self) -> (Range, Range) {
        let middle = self.start + (self.end - self.start) / 2;
        (
            Range {
                start: self.start,
                end: middle,
            },
            Range {
                start: middle,
                end: self.end,
            },
        )
    }

    fn of<'a>(self, vector: Vector<'a>) -> Vector<'a> {
        vector.part(self.start, self.end - self.start)
    }
}

/// The largest power of two of ranks. Of the ranks beyond it, each acts through its neighbour: the first few pairs
/// count as one, in which the odd rank acts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Actors {
    /// Number of actors, a power of two.
    pub(super) count: u32,
    /// Number of pairs.
    pairs: u32,
}

impl Actors {
    #[inline]
    pub(super) fn of(ranks: u32) -> Actors {
        let count = 1 << ranks.ilog2();
        Actors {
            count,
            pairs: ranks - count,
        }
    }

    /// Whether the rank is one of a pair; its other half differs in the last bit.
    #[inline]
    pub(super) fn is_paired(self, rank: u32) -> bool {
        rank < 2 * self.pairs
    }

    /// The number of an actor. Actors are in the order of ranks.
    #[inline]
    pub(super) fn number(self, rank: u32) -> u32 {
        if self.is_paired(rank) {
            rank / 2
        } else {
            rank - self.pairs
        }
    }

    /// The rank of an actor.
    #[inline]
    pub(super) fn rank(self, number: u32) -> u32 {
        if number < self.pairs {
            2 * number + 1
        } else {
            number + self.pairs
        }
    }
}

/// `send` is none where the operand lies in `recv`.
///
/// # Safety
/// `send` is readable and `recv` writable for `count` elements; they do not overlap.
pub(super) async unsafe fn allreduce<F: Fabric>(
    f: &F,
    red: &Reduction<'_>,
    send: Option<*const u8>,
    recv: *mut u8,
    count: u64,
) -> Result {
    let (rank, actors) = (f.rank(), Actors::of(f.size()));
    let result = red.at(recv, count);
    // SAFETY: the same contract.
    unsafe {
        if !actors.is_paired(rank) {
            return allreduce_actors(f, red, actors, send, result).await;
        }
        let operand = red.at(send.unwrap_or(recv), count);
        if rank % 2 == 0 {
            f.send(rank + 1, operand.buffer()).await?;
            return f.recv(rank + 1, result.buffer()).await;
        }
        let mut scratch = Scratch::new(f);
        if send.is_some() {
            f.recv(rank - 1, result.buffer()).await?;
            red.fold(operand, result);
        } else {
            let theirs = scratch.elements(red.layout, count)?;
            f.recv(rank - 1, theirs.buffer()).await?;
            red.fold(theirs, result);
        }
        drop(scratch);
        allreduce_actors(f, red, actors, None, result).await?;
        f.send(rank - 1, result.buffer()).await
    }
}

/// What actor `me` had of `count` elements before the step in which it gave those away that `mask` says.
fn range_before(me: u32, mask: u32, actors: Actors, count: u64) -> Range {
    let mut range = Range {
        start: 0,
        end: count,
    };
    let mut step = actors.count / 2;
    while step > mask {
        let (lower, upper) = range.split();
        range = if me & step == 0 { lower } else { upper };
        step /= 2;
    }
    range
}

/// # Safety
/// As [`allreduce`], on an actor; what arrives goes into scratch memory, or, in the first step of a call that is not in
/// place, to where the result will be.
async unsafe fn allreduce_actors<F: Fabric>(
    f: &F,
    red: &Reduction<'_>,
    actors: Actors,
    mut send: Option<*const u8>,
    result: Vector<'_>,
) -> Result {
    let (me, count) = (actors.number(f.rank()), result.count);
    let mut scratch = Scratch::new(f);
    let longest = count.div_ceil(if send.is_some() { 4 } else { 2 }) + 1;
    let incoming = scratch.elements(red.layout, longest)?;
    let mut range = Range {
        start: 0,
        end: count,
    };
    // A rank that has noticed an error goes on: the others count on it, and notice it as well.
    let mut outcome = Ok(());
    let mut mask = actors.count / 2;
    while mask > 0 {
        let partner = actors.rank(me ^ mask);
        let (lower, upper) = range.split();
        let (keep, give) = if me & mask == 0 {
            (lower, upper)
        } else {
            (upper, lower)
        };
        // SAFETY: by contract: what is given, what is kept and what arrives do not overlap.
        unsafe {
            if let Some(send) = send.take() {
                let operand = red.at(send, count);
                match trade(f, partner, give.of(operand), partner, keep.of(result)).await {
                    Ok(()) => red.fold(keep.of(operand), keep.of(result)),
                    failed => outcome = outcome.and(failed),
                }
            } else {
                let into = incoming.part(0, keep.end - keep.start);
                match trade(f, partner, give.of(result), partner, into).await {
                    Ok(()) => red.fold(into, keep.of(result)),
                    failed => outcome = outcome.and(failed),
                }
            }
        }
        range = keep;
        mask /= 2;
    }
    mask = 1;
    while mask < actors.count {
        let partner = actors.rank(me ^ mask);
        let (lower, upper) = range_before(me, mask, actors, count).split();
        let (have, miss) = if me & mask == 0 {
            (lower, upper)
        } else {
            (upper, lower)
        };
        // SAFETY: two halves of a part of the result.
        let traded = unsafe { trade(f, partner, have.of(result), partner, miss.of(result)).await };
        outcome = outcome.and(traded);
        mask *= 2;
    }
    outcome
}
