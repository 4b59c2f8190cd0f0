//! Collective calls through memory that all members map. Each member stores its data once, and all others read it.
//! Shared lines or, if ranks share processors, short messages synchronize the members between the steps. VECTORS is
//! defined in `coll.rs`.
//!
//! **BUFFERS.** A member writes its own buffer before a synchronization. Until the next synchronization, it reads the
//! buffers of others or combines its part of them. Each member uses its two buffers in turn. A member writes a buffer
//! again only after all members have read it. If messages synchronize the members, the synchronization that follows the
//! write of the other buffer tells so. If lines do, the member waits for the end of the last call in which others read
//! the buffer. A communicator that has lines always uses them. Its calls take turns by their numbers, which agree even
//! after a member has refused a call.
//!
//! Reference: Graham and Shipman, MPI Support for Multi-core Architectures: Optimized Shared Memory Collectives (2008).
#![allow(unsafe_code)]

pub(crate) mod mapped;

use super::choose::JobProcessors;
use super::fabric::Fabric;
use super::halving::Actors;
use super::lines::{self, Lines};
use super::local::Reduction;
use super::ring::{Deal, deal_evenly};
use super::vector::Vector;
use crate::coll_choice::line_plan::Readers;
use crate::common::consts::MPI_ERR_TRUNCATE;
use crate::common::error::{Error, Result, SAME_ON_ALL_RANKS};
pub(super) use crate::objects::shared_buffers::SharedBuffers;
use crate::objects::shared_buffers::{BufferTurn, CallSize};
use crate::objects::shared_lines::sequence_of;
use fastpath_base::clock;
use fastpath_base::copy::{CopyLoop, copy_with};
use fastpath_protocol::buffer::Buffer;
use std::ops::Range;

/// Number of bytes of each operand combined at a time. Pieces of this size of all members fit a first-level cache.
const PIECE_BYTES: u64 = 4 << 10;
/// Granularity of the members' parts, in bytes: a cache line.
const LINE_BYTES: u64 = 64;

/// Number of bytes that stands for members with different numbers.
const UNEQUAL: u64 = u64::MAX;

struct SharedRun<'f, F> {
    f: &'f F,
    buffers: &'f SharedBuffers,
    which: CallSize,
    /// Nanoseconds of this member's copies and arithmetic since its last report to rank 0.
    busy_ns: u64,
    is_first: bool,
    /// Number of the collective call and of the next piece, added, if lines synchronize the members.
    next_turn: Option<u64>,
}

impl<'f, F: Fabric> SharedRun<'f, F> {
    fn new(f: &'f F, buffers: &'f SharedBuffers, which: CallSize) -> Self {
        SharedRun { f, buffers, which, busy_ns: 0, is_first: true, next_turn: None }
    }

    /// Begins a call of lines, if they synchronize the members.
    fn lines(&self) -> Result<Option<impl Lines + use<'f, F>>> {
        let f = self.f;
        match f.may_line() && (f.room() == JobProcessors::Own || f.has_lines()) {
            true => f.lines(),
            false => Ok(None),
        }
    }

    /// Begins the next piece. Returns its buffers, of which the own one is free, and its first call of lines.
    async fn next_piece(&mut self) -> Result<(BufferTurn<'f>, Option<impl Lines + use<'f, F>>)> {
        let lines = self.lines()?;
        let turn = match &lines {
            None => self.buffers.turn(),
            Some(lines) => {
                let number = self.next_turn.unwrap_or_else(|| sequence_of(lines.number()));
                self.next_turn = Some(number + 1);
                let turn = self.buffers.turn_of(number);
                if let Some(before) = turn.note_reading(lines.number()) {
                    lines.wait_for_end(before, Readers::All).await?;
                }
                turn
            }
        };
        Ok((turn, lines))
    }

    fn time(&mut self, work: impl FnOnce()) {
        let began_ns = clock::now_ns();
        work();
        self.busy_ns += clock::now_ns().saturating_sub(began_ns);
    }

    /// Returns the loop by which this call copies into a buffer.
    fn copy_loop(&self) -> CopyLoop {
        self.buffers.learnt.copy_loop(self.which)
    }

    /// Returns the work time since the last synchronization, and at the first one that since the previous call.
    fn take_times(&mut self) -> (u64, u64) {
        let is_first = std::mem::take(&mut self.is_first);
        let before_ns = if is_first { self.buffers.learnt.take_rest() } else { 0 };
        (std::mem::take(&mut self.busy_ns), before_ns)
    }

    /// Synchronizes all members. The caller keeps the call of lines while it reads the buffers of others. `bytes` must
    /// be equal on all members.
    async fn meet<L: Lines>(&mut self, lines: &Option<L>, bytes: u64) -> Result {
        match lines {
            Some(lines) => self.meet_by_lines(lines, bytes).await,
            None => self.meet_by_messages(bytes).await,
        }
    }

    /// Synchronizes all members through lines. All receive the work times, and the loop that rank 0 has chosen before.
    async fn meet_by_lines<L: Lines>(&mut self, lines: &L, bytes: u64) -> Result {
        let (busy_ns, before_ns) = self.take_times();
        let learnt = &self.buffers.learnt;
        let mut words = [bytes, busy_ns, before_ns, learnt.take_pending()];
        lines::exchange_words(lines, &mut words, |own, theirs| {
            own[0] = if own[0] == theirs[0] { own[0] } else { UNEQUAL };
            for (own, theirs) in own[1..].iter_mut().zip(&theirs[1..]) {
                *own = own.saturating_add(*theirs);
            }
        })
        .await?;
        if self.f.rank() == 0 {
            learnt.set_pending(learnt.note(self.which, words[1], words[2]));
        }
        learnt.follow(words[3]);
        match words[0] == bytes {
            true => Ok(()),
            false => Err(disagree(bytes)),
        }
    }

    /// Synchronizes all members by messages. Rank 0 receives their work times, and sends the copy loop for the next
    /// call. `bytes` must be equal on all members.
    async fn meet_by_messages(&mut self, bytes: u64) -> Result {
        let (busy_ns, before_ns) = self.take_times();
        let (f, learnt) = (self.f, &self.buffers.learnt);
        let mut words = [bytes, busy_ns, before_ns];
        let data = |words: &mut [u64; 3]| Buffer::contiguous(words.as_mut_ptr().cast(), 24);
        // SAFETY: `words` outlives the messages.
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

    /// Stores the work time that this call has not reported. The next call reports it.
    fn end(self) {
        self.buffers.learnt.keep_rest(self.busy_ns);
    }
}

/// Records copies of `bytes` bytes from the buffer of each of the members, for simulated lines.
#[inline]
fn note_copies<L: Lines>(
    lines: &Option<L>, members: impl IntoIterator<Item = u32>, bytes: impl TryInto<usize> + Copy,
) {
    if let Some(lines) = lines {
        members.into_iter().for_each(|from| lines.note_copy(from, bytes.try_into().unwrap_or(0)));
    }
}

/// Copies `len` bytes of a block, from byte `done` on, into a buffer.
///
/// # Safety
/// The block is readable, and the buffer has room for `len` bytes.
unsafe fn put(by: CopyLoop, data: Vector<'_>, done: u64, buffer: *mut u8, len: usize) {
    // SAFETY: VECTORS; the buffer has `len` bytes.
    unsafe {
        match data.dense() {
            Some(from) => copy_with(by, buffer, from.wrapping_add(done as usize), len),
            None => _ = data.layout.pack_to(data.ptr, data.count, done, buffer, len),
        }
    }
}

/// Copies `len` bytes from a buffer into a block, from byte `done` on.
///
/// # Safety
/// The block is writable, and the buffer has `len` bytes.
unsafe fn take(buffer: *const u8, data: Vector<'_>, done: u64, len: usize) {
    // SAFETY: VECTORS; the buffer has `len` bytes.
    unsafe { _ = data.layout.unpack_from(data.ptr, data.count, done, buffer, len) };
}

#[cold]
#[inline(never)]
pub(super) fn disagree(bytes: u64) -> Error {
    let text = format!(
        "this rank passes {bytes} bytes, but another rank passes a different number of bytes: the \
         counts or datatypes of the two ranks differ"
    );
    Error::new(MPI_ERR_TRUNCATE, text).with_advice(Some(SAME_ON_ALL_RANKS))
}

/// Each member combines its part of all operands, along the tree of [`Actors`]. An operation stores its result in the
/// right operand, so the result is in the last member's buffer. Members with a `result` copy it from there: all in an
/// allreduce, the root in a reduce.
///
/// # Safety
/// The operand is readable and the result writable. They are equal or do not overlap. Elements are contiguous, and fit
/// a buffer.
pub(super) async unsafe fn reduce<F: Fabric>(
    f: &F, buffers: &SharedBuffers, red: &Reduction<'_>, operand: Vector<'_>,
    result: Option<Vector<'_>>,
) -> Result {
    let size = red.layout.size();
    let (bytes, at_once) = (operand.bytes(), buffers.bytes as u64 / size * size);
    let mut run = SharedRun::new(f, buffers, CallSize::allreduce(bytes));
    let mut done = 0;
    while done < bytes {
        let len = at_once.min(bytes - done);
        let (turn, lines) = run.next_piece().await?;
        // SAFETY: BUFFERS.
        unsafe {
            let by = run.copy_loop();
            run.time(|| put(by, operand, done, turn.of(f.rank()), len as usize));
            note_copies(&lines, [f.rank()], len);
            run.meet(&lines, bytes - done).await?;
            let mine = part(red, len / size, f.rank(), f.size());
            note_copies(&lines, 0..f.size(), (mine.end - mine.start) * size);
            run.time(|| combine(red, turn, f.size(), mine));
            drop(lines);
            let lines = run.lines()?;
            if let Some(lines) = &lines {
                turn.note_reading(lines.number());
            }
            run.meet(&lines, bytes - done).await?;
            if let Some(result) = result {
                run.time(|| take(turn.of(f.size() - 1), result, done, len as usize));
                note_copies(&lines, 0..f.size(), len / u64::from(f.size()));
            }
            drop(lines);
        }
        done += len;
    }
    run.end();
    Ok(())
}

/// Each member combines its block of all operands, in the order of the other algorithms: along the tree of [`Actors`],
/// or around the ring from the next member on. `own` is the first element of this member's block, and its result.
///
/// # Safety
/// The operand is readable and the result writable. The result may be the beginning of the operand. Elements are
/// contiguous, and fit a buffer.
pub(super) async unsafe fn reduce_scatter<F: Fabric>(
    f: &F, buffers: &SharedBuffers, red: &Reduction<'_>, operand: Vector<'_>,
    (first, result): (u64, Vector<'_>),
) -> Result {
    let (size, ranks) = (red.layout.size(), f.size());
    let (count, at_once) = (operand.count, buffers.bytes as u64 / size);
    let along_tree = red.size(count, f.room()).scatters_along_tree();
    let mut run = SharedRun::new(f, buffers, CallSize::allreduce(operand.bytes()));
    let mut done = 0;
    while done < count {
        let len = at_once.min(count - done);
        let (turn, lines) = run.next_piece().await?;
        // Elements of the piece in this member's block.
        let start = first.clamp(done, done + len) - done;
        let end = (first + result.count).clamp(done, done + len) - done;
        // SAFETY: BUFFERS. A result is at most as far from its beginning as its operand, so that it overwrites no
        // operand that is not in a buffer.
        unsafe {
            let by = run.copy_loop();
            let own = turn.of(f.rank());
            run.time(|| put(by, operand, done * size, own, (len * size) as usize));
            run.meet(&lines, (count - done) * size).await?;
            run.time(|| {
                if start < end {
                    let into = result.part(done + start - first, end - start);
                    match along_tree {
                        true => {
                            combine(red, turn, ranks, start..end);
                            let last = red.at(turn.of(ranks - 1), 0).part(start, end - start);
                            take(last.ptr, into, 0, into.bytes() as usize);
                        }
                        false => combine_in_ring(red, turn, (f.rank(), ranks), start, into),
                    }
                }
            });
            drop(lines);
        }
        done += len;
    }
    run.end();
    Ok(())
}

/// Combines all operands of this member's elements from `start` on, first that of the next member, last the own one.
/// Safety: see BUFFERS. The result is writable.
unsafe fn combine_in_ring(
    red: &Reduction<'_>, turn: BufferTurn<'_>, (rank, ranks): (u32, u32), start: u64,
    result: Vector<'_>,
) {
    let piece = (PIECE_BYTES / red.layout.size()).max(1);
    let mut done = 0;
    while done < result.count {
        let into = result.part(done, piece.min(result.count - done));
        let of = |rank: u32| red.at(turn.of(rank), 0).part(start + done, into.count);
        // SAFETY: BUFFERS; the result is in no buffer.
        unsafe {
            take(of((rank + 1) % ranks).ptr, into, 0, into.bytes() as usize);
            (2..=ranks).for_each(|k| red.fold(of((rank + k) % ranks), into));
        }
        done += into.count;
    }
}

/// Returns a member's part of `count` elements. Parts are whole cache lines if elements fill them.
fn part(red: &Reduction<'_>, count: u64, rank: u32, ranks: u32) -> Range<u64> {
    let unit = (LINE_BYTES / red.layout.size()).max(1);
    let (first, units) = deal_evenly(count.div_ceil(unit), ranks).block(rank);
    (first * unit).min(count)..((first + units) * unit).min(count)
}

/// Combines all operands of a range. Safety: see BUFFERS. The range must be this member's part.
unsafe fn combine(red: &Reduction<'_>, turn: BufferTurn<'_>, ranks: u32, range: Range<u64>) {
    let actors = Actors::of(ranks);
    let piece = (PIECE_BYTES / red.layout.size()).max(1);
    let mut from = range.start;
    while from < range.end {
        let count = piece.min(range.end - from);
        let at = |rank: u32| red.at(turn.of(rank), 0).part(from, count);
        // SAFETY: BUFFERS; the operands do not overlap.
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

/// Each member stores its block, and copies the blocks of all others. `own` is the source of this rank's block.
///
/// # Safety
/// `own` is readable, the blocks are writable, and they do not overlap.
pub(super) async unsafe fn allgather<'a, F: Fabric>(
    f: &F, buffers: &SharedBuffers, own: Vector<'_>, block: &impl Fn(u32) -> Vector<'a>,
) -> Result {
    let longest = (0..f.size()).map(|r| block(r).bytes()).max().unwrap_or(0);
    let total = (0..f.size()).fold(0u64, |sum, r| sum.wrapping_add(block(r).bytes()));
    let size = CallSize::allgather(total / u64::from(f.size()));
    let mut run = SharedRun::new(f, buffers, size);
    let mut done = 0;
    while done < longest {
        let (turn, lines) = run.next_piece().await?;
        let rest = |bytes: u64| (bytes.saturating_sub(done) as usize).min(buffers.bytes);
        // SAFETY: BUFFERS.
        unsafe {
            let by = run.copy_loop();
            run.time(|| put(by, own, done, turn.of(f.rank()), rest(own.bytes())));
            run.meet(&lines, total.wrapping_sub(done)).await?;
            run.time(|| {
                for rank in (1..f.size()).map(|k| (f.rank() + k) % f.size()) {
                    let into = block(rank);
                    take(turn.of(rank), into, done, rest(into.bytes()));
                }
            });
            drop(lines);
        }
        done += buffers.bytes as u64;
    }
    run.end();
    Ok(())
}

/// Each member stores its blocks for all others, and copies those for itself. `out` and `into` may be the same blocks.
/// This rank's block to itself does not move.
///
/// # Safety
/// Blocks of `out` are readable and those of `into` writable. All have one length.
pub(super) async unsafe fn alltoall<'a, 'b, F: Fabric>(
    f: &F, buffers: &SharedBuffers, out: &impl Fn(u32) -> Vector<'a>,
    into: &impl Fn(u32) -> Vector<'b>,
) -> Result {
    let (ranks, bytes) = (f.size(), into(f.rank()).bytes());
    let fits = buffers.bytes / ranks as usize;
    // Whole lines, so that no line has data for two members.
    let at_once = if fits < 64 { fits.max(1) } else { fits & !63 };
    let mut run = SharedRun::new(f, buffers, CallSize::alltoall(bytes));
    let mut done = 0;
    while done < bytes {
        let (turn, lines) = run.next_piece().await?;
        let len = at_once.min((bytes - done) as usize);
        let stride = len.next_multiple_of(64).min(at_once);
        let others = || (1..ranks).map(|k| (f.rank() + k) % ranks);
        let place = |of: u32, to: u32| turn.of(of).wrapping_add(to as usize * stride);
        // SAFETY: BUFFERS; the places of `ranks` pieces fit a buffer.
        unsafe {
            let by = run.copy_loop();
            run.time(|| others().for_each(|to| put(by, out(to), done, place(f.rank(), to), len)));
            note_copies(&lines, [f.rank()], len * (ranks as usize - 1));
            run.meet(&lines, bytes - done).await?;
            run.time(|| others().for_each(|of| take(place(of, f.rank()), into(of), done, len)));
            note_copies(&lines, others(), len);
            drop(lines);
        }
        done += len as u64;
    }
    run.end();
    Ok(())
}
