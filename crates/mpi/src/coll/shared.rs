//! Collective calls through memory that all members map: each puts its data there once, and everybody reads it. Between
//! the steps the members meet, by short messages.
//!
//! **BUFFERS.** A member writes its own buffer before the others meet it there, and reads those of others, or folds the
//! part of them that falls to it, between two meetings. It uses its two buffers in turn: no member uses one again
//! before all have met after reading the other.
//!
//! Reference: Graham and Shipman, MPI Support for Multi-core Architectures: Optimized Shared Memory Collectives (2008).
#![allow(unsafe_code)]

pub(crate) mod mapped;

use super::fabric::Fabric;
use super::halving::Actors;
use super::local::Reduction;
use super::ring::{Deal, deal_evenly};
use super::vector::Vector;
use crate::common::consts::MPI_ERR_TRUNCATE;
use crate::common::error::{Error, Result};
pub(super) use crate::objects::shared_buffers::SharedBuffers;
use crate::objects::shared_buffers::{Turn, Which};
use fastpath_base::clock;
use fastpath_base::copy::copy_with;
use fastpath_protocol::buffer::Buffer;
use std::ops::Range;

/// Bytes of each operand that are combined at a time: those of all members stay in a first-level cache.
const PIECE_BYTES: u64 = 4 << 10;
/// Bytes that the parts of two members do not share.
const LINE_BYTES: u64 = 64;

/// A call under way.
struct Run<'f, F> {
    f: &'f F,
    buffers: &'f SharedBuffers,
    which: Which,
    /// Time of this member's copies and arithmetic since it last reported it to the others.
    busy_ns: u64,
    is_first: bool,
}

impl<'f, F: Fabric> Run<'f, F> {
    fn new(f: &'f F, buffers: &'f SharedBuffers, which: Which) -> Self {
        Run { f, buffers, which, busy_ns: 0, is_first: true }
    }

    fn time(&mut self, work: impl FnOnce()) {
        let began_ns = clock::now_ns();
        work();
        self.busy_ns += clock::now_ns().saturating_sub(began_ns);
    }

    /// Puts bytes of a block, from `done` on, into a buffer.
    ///
    /// # Safety
    /// The block is readable, the buffer has room for `len` bytes.
    unsafe fn put(&mut self, data: Vector<'_>, done: u64, buffer: *mut u8, len: usize) {
        let by = self.buffers.learnt.copy_loop(self.which);
        // SAFETY: VECTORS; the buffer has `len` bytes.
        self.time(|| unsafe {
            match data.dense() {
                Some(from) => copy_with(by, buffer, from.wrapping_add(done as usize), len),
                None => {
                    data.layout.pack_to(data.ptr, data.count, done, buffer, len);
                }
            }
        });
    }

    /// Takes them out.
    ///
    /// # Safety
    /// The block is writable, the buffer has `len` bytes.
    unsafe fn take(&mut self, buffer: *const u8, data: Vector<'_>, done: u64, len: usize) {
        // SAFETY: VECTORS; the buffer has `len` bytes.
        self.time(|| unsafe {
            data.layout.unpack_from(data.ptr, data.count, done, buffer, len);
        });
    }

    /// Returns when all members have come, with the same number of bytes before them. Rank 0 hears what their work took
    /// and says by which loop they copy next.
    async fn meet(&mut self, bytes: u64) -> Result {
        let (f, learnt) = (self.f, &self.buffers.learnt);
        let before_ns = match std::mem::take(&mut self.is_first) {
            true => learnt.take_rest(),
            false => 0,
        };
        let mut words = [bytes, std::mem::take(&mut self.busy_ns), before_ns];
        let data = |words: &mut [u64; 3]| Buffer::contiguous(words.as_mut_ptr().cast(), 24);
        // SAFETY: the words live until the messages have ended.
        unsafe {
            if f.rank() == 0 {
                let mut told = bytes;
                for rank in 1..f.size() {
                    let mut theirs = [!bytes, 0, 0];
                    f.recv(rank, data(&mut theirs)).await?;
                    if theirs[0] != bytes {
                        told = !bytes;
                    }
                    words[1] = words[1].saturating_add(theirs[1]);
                    words[2] = words[2].saturating_add(theirs[2]);
                }
                words = [told, learnt.note(self.which, words[1], words[2]), 0];
                for rank in 1..f.size() {
                    f.send(rank, data(&mut words)).await?;
                }
            } else {
                f.send(0, data(&mut words)).await?;
                words = [!bytes, 0, 0];
                f.recv(0, data(&mut words)).await?;
            }
        }
        learnt.follow(words[1]);
        match words[0] == bytes {
            true => Ok(()),
            false => Err(disagree(bytes)),
        }
    }

    /// What is left to tell goes with the next call.
    fn end(self) {
        self.buffers.learnt.keep_rest(self.busy_ns);
    }
}

#[cold]
#[inline(never)]
fn disagree(bytes: u64) -> Error {
    let text =
        format!("another rank does not have the {bytes} bytes of this one: counts or types differ");
    Error::new(MPI_ERR_TRUNCATE, text)
}

/// Each member combines its part of all operands, along the tree of [`Actors`]. The result is then in the buffer of the
/// last one, since an operation leaves it where the right operand was.
///
/// # Safety
/// The operand is readable and the result writable; they do not overlap, or are the same. Elements are contiguous, and
/// fit a buffer.
pub(super) async unsafe fn allreduce<F: Fabric>(
    f: &F, buffers: &SharedBuffers, red: &Reduction<'_>, operand: Vector<'_>, result: Vector<'_>,
) -> Result {
    let size = red.layout.size();
    let (bytes, at_once) = (operand.bytes(), buffers.bytes as u64 / size * size);
    let mut run = Run::new(f, buffers, Which::allreduce(bytes));
    let mut done = 0;
    while done < bytes {
        let len = at_once.min(bytes - done);
        let turn = buffers.turn();
        // SAFETY: BUFFERS.
        unsafe {
            run.put(operand, done, turn.of(f.rank()), len as usize);
            run.meet(bytes - done).await?;
            let mine = part(red, len / size, f.rank(), f.size());
            run.time(|| combine(red, turn, f.size(), mine));
            run.meet(bytes - done).await?;
            run.take(turn.of(f.size() - 1), result, done, len as usize);
        }
        done += len;
    }
    run.end();
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
        // SAFETY: BUFFERS; the operands lie apart.
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
    f: &F, buffers: &SharedBuffers, own: Vector<'_>, block: &impl Fn(u32) -> Vector<'a>,
) -> Result {
    let longest = (0..f.size()).map(|r| block(r).bytes()).max().unwrap_or(0);
    let total = (0..f.size()).fold(0u64, |sum, r| sum.wrapping_add(block(r).bytes()));
    let mut run = Run::new(f, buffers, Which::allgather(total / u64::from(f.size())));
    let mut done = 0;
    while done < longest {
        let turn = buffers.turn();
        let rest = |bytes: u64| (bytes.saturating_sub(done) as usize).min(buffers.bytes);
        // SAFETY: BUFFERS.
        unsafe {
            run.put(own, done, turn.of(f.rank()), rest(own.bytes()));
            run.meet(total.wrapping_sub(done)).await?;
            for rank in (1..f.size()).map(|k| (f.rank() + k) % f.size()) {
                let into = block(rank);
                run.take(turn.of(rank), into, done, rest(into.bytes()));
            }
        }
        done += buffers.bytes as u64;
    }
    run.end();
    Ok(())
}
