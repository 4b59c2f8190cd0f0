//! Reduce and allreduce by recursive halving and doubling (Rabenseifner): a reduce-scatter in log2 steps, each with
//! half the bytes of the previous step, then the reverse. Only for operations that commute.
//!
//! The first steps, with the longest messages, are between neighbours. So operands are combined along the tree of
//! [`Actors`], and long messages stay within a host if its ranks are consecutive. VECTORS is defined in `coll.rs`.
#![allow(unsafe_code)]

pub(super) use crate::coll_choice::tree::Actors;

use super::fabric::{Fabric, trade};
use super::local::Reduction;
use super::scratch::Scratch;
use super::vector::Vector;
use crate::common::error::Result;

#[derive(Debug, Clone, Copy)]
struct VectorRange {
    start: u64,
    end: u64,
}

impl VectorRange {
    fn split(self) -> (VectorRange, VectorRange) {
        let middle = self.start + (self.end - self.start) / 2;
        (
            VectorRange { start: self.start, end: middle },
            VectorRange { start: middle, end: self.end },
        )
    }

    fn of<'a>(self, vector: Vector<'a>) -> Vector<'a> {
        vector.part(self.start, self.end - self.start)
    }
}

/// Runs an allreduce. `send` is `None` if the operand is in `recv`.
///
/// # Safety
/// `send` is readable and `recv` writable for `count` elements. They do not overlap.
pub(super) async unsafe fn allreduce<F: Fabric>(
    f: &F, red: &Reduction<'_>, send: Option<*const u8>, recv: *mut u8, count: u64,
) -> Result {
    let (rank, actors) = (f.rank(), Actors::of(f.size()));
    let result = red.at(recv, count);
    // SAFETY: VECTORS.
    unsafe {
        if actors.is_paired(rank) && rank % 2 == 0 {
            let operand = red.at(send.unwrap_or(recv), count);
            f.send(rank + 1, operand.buffer()).await?;
            return f.recv(rank + 1, result.buffer()).await;
        }
        let halves = Halves::new(f, |number| actors.rank(number));
        let outcome = halves.scatter(red, send, result).await;
        let outcome = outcome.and(halves.gather(result).await);
        if actors.is_paired(rank) {
            outcome.and(f.send(rank - 1, result.buffer()).await)
        } else {
            outcome
        }
    }
}

/// Reduces to one rank. At other ranks, `recv` is scratch memory.
///
/// # Safety
/// See [`allreduce`].
pub(super) async unsafe fn reduce<F: Fabric>(
    f: &F, red: &Reduction<'_>, send: Option<*const u8>, recv: *mut u8, count: u64, root: u32,
) -> Result {
    let (rank, actors) = (f.rank(), Actors::of(f.size()));
    let result = red.at(recv, count);
    // SAFETY: VECTORS.
    unsafe {
        if rank != actors.rank_beside(root, actors.number(rank)) {
            let operand = red.at(send.unwrap_or(recv), count);
            return f.send(rank ^ 1, operand.buffer()).await;
        }
        let halves = Halves::new(f, |number| actors.rank_beside(root, number));
        let outcome = halves.scatter(red, send, result).await;
        outcome.and(halves.gather_at(result, actors.number(root)).await)
    }
}

struct Halves<'f, F, R> {
    fabric: &'f F,
    actors: Actors,
    me: u32,
    rank: R,
}

impl<'f, F: Fabric, R: Fn(u32) -> u32> Halves<'f, F, R> {
    fn new(fabric: &'f F, rank: R) -> Self {
        let actors = Actors::of(fabric.size());
        let me = actors.number(fabric.rank());
        Halves { fabric, actors, me, rank }
    }

    /// Returns the part of `count` elements that this actor has before the step of `mask`.
    fn range_before(&self, mask: u32, count: u64) -> VectorRange {
        let mut range = VectorRange { start: 0, end: count };
        let mut step = 1;
        while step < mask {
            range = self.split(range, step).0;
            step *= 2;
        }
        range
    }

    /// Splits a range in a step into the half that this actor keeps and the half that it sends.
    fn split(&self, range: VectorRange, mask: u32) -> (VectorRange, VectorRange) {
        let (lower, upper) = range.split();
        if self.me & mask == 0 { (lower, upper) } else { (upper, lower) }
    }

    /// Reduces this actor's part of the vector. An actor for a pair of ranks first adds the operand of the other rank.
    /// If the call is not in place, the first received data goes to the result. All other received data goes to scratch
    /// memory.
    ///
    /// # Safety
    /// See [`allreduce`].
    async unsafe fn scatter(
        &self, red: &Reduction<'_>, mut send: Option<*const u8>, result: Vector<'_>,
    ) -> Result {
        let (f, count) = (self.fabric, result.count);
        let mut scratch = Scratch::new(f);
        // A rank continues after an error: other ranks wait for it, and they detect the error themselves.
        let mut outcome = Ok(());
        let other = f.rank() ^ 1;
        // SAFETY: VECTORS; the sent, the kept and the received range do not overlap.
        unsafe {
            if self.actors.is_paired(f.rank()) {
                if let Some(send) = send.take() {
                    f.recv(other, result.buffer()).await?;
                    red.fold(red.at(send, count), result);
                } else {
                    let theirs = scratch.elements(red.layout, count)?;
                    f.recv(other, theirs.buffer()).await?;
                    red.fold(theirs, result);
                }
            }
            let longest = count.div_ceil(if send.is_some() { 4 } else { 2 }) + 1;
            let incoming = scratch.elements(red.layout, longest)?;
            let mut range = self.range_before(1, count);
            let mut mask = 1;
            while mask < self.actors.count {
                let partner = (self.rank)(self.me ^ mask);
                let (keep, give) = self.split(range, mask);
                let kept = keep.of(result);
                let (give, left, right) = match send.take() {
                    Some(send) => {
                        let operand = red.at(send, count);
                        (give.of(operand), keep.of(operand), kept)
                    }
                    None => (give.of(result), incoming.part(0, kept.count), kept),
                };
                let into = if left.ptr == incoming.ptr { left } else { right };
                match trade(f, partner, give, partner, into).await {
                    Ok(()) => red.fold(left, right),
                    failed => outcome = outcome.and(failed),
                }
                range = keep;
                mask *= 2;
            }
        }
        outcome
    }

    /// Sends this actor's part to all actors, so that every actor has all parts.
    ///
    /// # Safety
    /// The result is writable, and this actor's part is filled.
    async unsafe fn gather(&self, result: Vector<'_>) -> Result {
        let mut outcome = Ok(());
        let mut mask = self.actors.count / 2;
        while mask > 0 {
            let partner = (self.rank)(self.me ^ mask);
            let (have, miss) = self.split(self.range_before(mask, result.count), mask);
            // SAFETY: the ranges are two halves of a part of the result.
            let traded = unsafe {
                let (have, miss) = (have.of(result), miss.of(result));
                trade(self.fabric, partner, have, partner, miss).await
            };
            outcome = outcome.and(traded);
            mask /= 2;
        }
        outcome
    }

    /// Gathers all parts at the actor `root`, along a binomial tree.
    ///
    /// # Safety
    /// See [`Halves::gather`].
    async unsafe fn gather_at(&self, result: Vector<'_>, root: u32) -> Result {
        let mut outcome = Ok(());
        let mut mask = self.actors.count / 2;
        let nothing = Vector::raw(std::ptr::null(), 0);
        while mask > 0 {
            let partner = (self.rank)(self.me ^ mask);
            let (have, miss) = self.split(self.range_before(mask, result.count), mask);
            let gives = (self.me ^ root) & mask != 0;
            let (out, into) = match gives {
                true => (have.of(result), nothing),
                false => (nothing, miss.of(result)),
            };
            // SAFETY: the range is a part of the result.
            let traded = unsafe { trade(self.fabric, partner, out, partner, into).await };
            outcome = outcome.and(traded);
            if gives {
                break;
            }
            mask /= 2;
        }
        outcome
    }
}
