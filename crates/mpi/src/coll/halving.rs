//! Allreduce by recursive halving and doubling (Rabenseifner): reduce-scatter in log2 steps, each with half the bytes
//! of the one before, and the way back. For a power of two of ranks and operations that commute.
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

/// `send` is none where the operand lies in `recv`.
///
/// # Safety
/// `send` is readable and `recv` writable for `count` elements; they do not overlap.
pub(super) unsafe fn allreduce<F: Fabric>(
    f: &F,
    red: Reduction<'_>,
    send: Option<*const u8>,
    recv: *mut u8,
    count: u64,
) -> Result {
    let (rank, ranks) = (f.rank(), f.size());
    let result = red.at(recv, count);
    let mut scratch = Scratch::new();
    // What arrives goes into scratch memory, or, in the first step of a call that is not in place, to where the
    // result will be.
    let incoming = match send {
        Some(_) => scratch.elements(red.layout, count.div_ceil(2).div_ceil(2))?,
        None => scratch.elements(red.layout, count.div_ceil(2))?,
    };
    let mut range = Range {
        start: 0,
        end: count,
    };
    let mut kept = [range; 32];
    let mut steps = 0;
    let mut mask = ranks / 2;
    let mut source = send;
    while mask > 0 {
        let partner = rank ^ mask;
        let (lower, upper) = range.split();
        let (keep, give) = if rank & mask == 0 {
            (lower, upper)
        } else {
            (upper, lower)
        };
        // SAFETY: by contract: what is given, what is kept and what arrives do not overlap.
        unsafe {
            match source.take() {
                Some(send) => {
                    let operand = red.at(send, count);
                    trade(f, partner, give.of(operand), partner, keep.of(result))?;
                    red.fold(keep.of(operand), keep.of(result));
                }
                None => {
                    let into = incoming.part(0, keep.end - keep.start);
                    trade(f, partner, give.of(result), partner, into)?;
                    red.fold(into, keep.of(result));
                }
            }
        }
        kept[steps] = range;
        steps += 1;
        range = keep;
        mask /= 2;
    }
    mask = 1;
    while steps > 0 {
        steps -= 1;
        let (lower, upper) = kept[steps].split();
        let (have, miss) = if rank & mask == 0 {
            (lower, upper)
        } else {
            (upper, lower)
        };
        // SAFETY: two halves of a part of the result.
        unsafe {
            trade(
                f,
                rank ^ mask,
                have.of(result),
                rank ^ mask,
                miss.of(result),
            )?
        };
        mask *= 2;
    }
    Ok(())
}
