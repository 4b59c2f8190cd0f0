//! Collective calls through memory that all members map: each puts its data there once, and everybody reads it. Between
//! the steps the members meet, by short messages.
//!
//! **BUFFERS.** A member writes its own buffer before the others meet it there, and reads those of others, or folds the
//! part of them that falls to it, between two meetings. It uses its two buffers in turn: nobody comes to the one again
//! before all have met after reading the other.
//!
//! References: Graham and Shipman, MPI Support for Multi-core Architectures: Optimized Shared Memory Collectives (2008).
#![allow(unsafe_code)]

use super::fabric::Fabric;
use super::halving::Actors;
use super::local::Reduction;
use super::ring::{Deal, deal_evenly};
use super::vector::Vector;
use crate::consts::MPI_ERR_TRUNCATE;
use crate::error::{Error, Result};
use fastpath_protocol::buffer::Buffer;
use std::cell::Cell;
use std::ops::Range;

/// Bytes of one of a member's two buffers: large, since a meeting takes as long as the copy of many KiB.
pub(super) const BUFFER_BYTES: usize = 256 << 10;
/// Bytes of each operand that are combined at a time: those of all members stay in a first-level cache.
const PIECE_BYTES: u64 = 4 << 10;
/// Bytes that the parts of two members do not share.
const LINE_BYTES: u64 = 64;

/// The buffers of all members of a communicator, two of each, as this process reaches them.
pub struct SharedBuffers {
    /// The first buffer of each member; the second lies behind it.
    firsts: Box<[*mut u8]>,
    /// Bytes of a buffer.
    bytes: usize,
    /// Whether the second ones are next.
    second: Cell<bool>,
}

impl SharedBuffers {
    /// Of members whose two buffers of `bytes` bytes each lie one behind the other.
    pub(super) fn new(firsts: Box<[*mut u8]>, bytes: usize) -> SharedBuffers {
        SharedBuffers {
            firsts,
            bytes,
            second: Cell::new(false),
        }
    }

    /// The buffers that are next: all members ask as often.
    fn turn(&self) -> Turn<'_> {
        let second = self.second.replace(!self.second.get());
        Turn {
            firsts: &self.firsts,
            skip: if second { self.bytes } else { 0 },
        }
    }
}

/// One buffer of each member.
#[derive(Clone, Copy)]
struct Turn<'a> {
    firsts: &'a [*mut u8],
    skip: usize,
}

impl Turn<'_> {
    fn of(&self, rank: u32) -> *mut u8 {
        self.firsts[rank as usize].wrapping_add(self.skip)
    }
}

/// Returns when all members have come, with the same number of bytes before them.
async fn meet<F: Fabric>(f: &F, bytes: u64) -> Result {
    let mut word = bytes;
    let data = |word: &mut u64| Buffer::contiguous(std::ptr::from_mut(word).cast(), 8);
    // SAFETY: the words live until the messages have ended.
    unsafe {
        if f.rank() == 0 {
            for rank in 1..f.size() {
                let mut theirs = bytes.wrapping_add(1);
                f.recv(rank, data(&mut theirs)).await?;
                if theirs != bytes {
                    word = !bytes;
                }
            }
            for rank in 1..f.size() {
                f.send(rank, data(&mut word)).await?;
            }
        } else {
            f.send(0, data(&mut word)).await?;
            word = !bytes;
            f.recv(0, data(&mut word)).await?;
        }
    }
    match word == bytes {
        true => Ok(()),
        false => Err(disagree(bytes)),
    }
}

#[cold]
#[inline(never)]
fn disagree(bytes: u64) -> Error {
    let text =
        format!("another rank has not the {bytes} bytes of this one: counts or types differ");
    Error::new(MPI_ERR_TRUNCATE, text)
}

/// Each member combines its part of all operands, along the tree of [`Actors`]. The result is then in the buffer of the
/// last one, since an operation leaves it where the right operand was.
///
/// # Safety
/// The operand is readable and the result writable; they do not overlap, or are the same. Elements are contiguous, and
/// fit a buffer.
pub(super) async unsafe fn allreduce<F: Fabric>(
    f: &F,
    buffers: &SharedBuffers,
    red: &Reduction<'_>,
    operand: Vector<'_>,
    result: Vector<'_>,
) -> Result {
    let at_once = buffers.bytes as u64 / red.layout.size();
    let mut done = 0;
    while done < operand.count {
        let count = at_once.min(operand.count - done);
        let left = (operand.count - done) * red.layout.size();
        let turn = buffers.turn();
        // SAFETY: BUFFERS.
        unsafe {
            operand.part(done, count).pack(turn.of(f.rank()));
            meet(f, left).await?;
            combine(red, turn, f.size(), part(red, count, f.rank(), f.size()));
            meet(f, left).await?;
            result.part(done, count).unpack(turn.of(f.size() - 1));
        }
        done += count;
    }
    Ok(())
}

/// Which of `count` elements fall to a member: whole lines where elements fill them.
fn part(red: &Reduction<'_>, count: u64, rank: u32, ranks: u32) -> Range<u64> {
    let unit = (LINE_BYTES / red.layout.size()).max(1);
    let (first, units) = deal_evenly(count.div_ceil(unit), ranks).block(rank);
    (first * unit).min(count)..((first + units) * unit).min(count)
}

/// # Safety
/// BUFFERS: the range falls to this member.
unsafe fn combine(red: &Reduction<'_>, turn: Turn<'_>, ranks: u32, range: Range<u64>) {
    let actors = Actors::of(ranks);
    let piece = (PIECE_BYTES / red.layout.size()).max(1);
    let mut from = range.start;
    while from < range.end {
        let count = piece.min(range.end - from);
        let at = |rank: u32| red.at(turn.of(rank), 0).part(from, count);
        // SAFETY: the same contract; the operands lie apart.
        unsafe {
            for rank in (0..ranks).filter(|&rank| actors.is_paired(rank) && rank % 2 == 1) {
                red.fold(at(rank - 1), at(rank));
            }
            let mut mask = 1;
            while mask < actors.count {
                for left in (mask - 1..actors.count - mask).step_by(2 * mask as usize) {
                    red.fold(at(actors.rank(left)), at(actors.rank(left + mask)));
                }
                mask *= 2;
            }
        }
        from += count;
    }
}

/// Each member puts its block there, and takes those of all others; `own` is where the block comes from.
///
/// # Safety
/// `own` is readable, the blocks are writable; they do not overlap.
pub(super) async unsafe fn allgather<'a, F: Fabric>(
    f: &F,
    buffers: &SharedBuffers,
    own: Vector<'_>,
    block: &impl Fn(u32) -> Vector<'a>,
) -> Result {
    let longest = (0..f.size()).map(|r| block(r).bytes()).max().unwrap_or(0);
    let total = (0..f.size()).fold(0u64, |sum, r| sum.wrapping_add(block(r).bytes()));
    let mut done = 0;
    while done < longest {
        let turn = buffers.turn();
        let rest = |bytes: u64| (bytes.saturating_sub(done) as usize).min(buffers.bytes);
        // SAFETY: BUFFERS.
        unsafe {
            let n = rest(own.bytes());
            own.layout.pack_to(own.ptr, own.count, done, turn.of(f.rank()), n);
            meet(f, total.wrapping_sub(done)).await?;
            for rank in (1..f.size()).map(|k| (f.rank() + k) % f.size()) {
                let into = block(rank);
                let n = rest(into.bytes());
                into.layout.unpack_from(into.ptr, into.count, done, turn.of(rank), n);
            }
        }
        done += buffers.bytes as u64;
    }
    Ok(())
}
