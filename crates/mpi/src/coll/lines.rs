//! Collective calls through cache lines that the members share. Each member writes its own lines, and the others read
//! them. A line has a sequence number and, next to it, the data of a short call, so that one transfer brings both. The
//! numbers only grow, so nothing is reset, and no atomic read-modify-write is needed. VECTORS is defined in `coll.rs`.
//!
//! The schedule (`coll_choice::line_plan`) follows the topology. A member in a broadcast reads the line of its parent,
//! and publishes the data again for its own children. In a barrier or allreduce, each member reads the lines of a few
//! partners in each of a few rounds.
//!
//! References: Jain et al., Framework for Scalable Intra-Node Collective Operations Using Shared Memory (2018);
//! Katevenis et al., A framework for hierarchical single-copy MPI collectives on multicore nodes (2022).
#![allow(unsafe_code)]

pub(crate) mod mapped;
pub(crate) mod member;

use super::fabric::Fabric;
use super::local::Reduction;
use super::scratch::Scratch;
use super::shared::{SharedBuffers, disagree};
use super::vector::Vector;
use crate::coll_choice::line_plan::{
    LinePlan, MAX_ROUNDS, MAX_VALUES, Readers, STEP_BYTES, TREE_STEPS,
};
use crate::coll_choice::tree::Branch;
use crate::common::consts::MPI_ERR_INTERN;
use crate::common::error::{Error, Result};
use crate::objects::shared_lines::LINE_BYTES;
use fastpath_base::copy::copy;
use std::cell::Cell;
use std::mem::MaybeUninit;

/// Minimum bytes of a piece of a long broadcast. A synchronization takes as long as the copy of a few KiB.
const PIECE_BYTES: usize = 8 << 10;

/// Shared lines of the members of one call.
pub trait Lines {
    /// Returns the schedule of this member.
    fn plan(&self) -> &LinePlan;

    /// Returns the number of the call.
    fn number(&self) -> u64;

    /// Waits until all other members have ended a call.
    fn wait_for_end(&self, call: u64) -> impl Future<Output = Result>;

    /// Publishes `bytes` bytes, which `fill` writes, as this member's data of a step. The data stays until all
    /// `readers` have ended the call. Waits until the readers of the memory's earlier data have ended that call.
    ///
    /// # Safety
    /// `fill` writes at most `bytes` bytes. `bytes` is at most [`STEP_BYTES`].
    unsafe fn publish(
        &self, step: u32, bytes: usize, fill: impl FnOnce(*mut u8), readers: Readers,
    ) -> impl Future<Output = Result>;

    /// Waits until each of the members `from` has published its data of a step. Calls `take` once for each, in any
    /// order, with the index in `from` and the address of the data, which is valid until the call ends. `bytes` returns
    /// the length for an index. Errors: a member has left. An unexpected length is an error at the end of the call.
    fn collect(
        &self, from: &[u32], step: u32, bytes: impl Fn(usize) -> usize,
        take: impl FnMut(usize, *const u8),
    ) -> impl Future<Output = Result>;

    /// Records that this member has data of all members in this call, so that all have ended earlier calls.
    fn note_all_began(&self);

    /// Records a copy of `bytes` bytes from a member's shared memory, or from own memory. Simulated lines take time for
    /// it.
    #[inline]
    fn note_copy(&self, _from: u32, _bytes: usize) {}

    /// Prepares the lines of the next broadcast. A member that others wait for calls this after it has published.
    fn look_ahead(&self);
}

/// Lines of a fabric that has none.
pub enum NoLines {}

impl Lines for NoLines {
    fn plan(&self) -> &LinePlan {
        match *self {}
    }

    fn number(&self) -> u64 {
        match *self {}
    }

    async fn wait_for_end(&self, _: u64) -> Result {
        match *self {}
    }

    async unsafe fn publish(
        &self, _: u32, _: usize, _: impl FnOnce(*mut u8), _: Readers,
    ) -> Result {
        match *self {}
    }

    async fn collect(
        &self, _: &[u32], _: u32, _: impl Fn(usize) -> usize, _: impl FnMut(usize, *const u8),
    ) -> Result {
        match *self {}
    }

    fn note_all_began(&self) {
        match *self {}
    }

    fn look_ahead(&self) {
        match *self {}
    }
}

/// Barrier: an exchange without data.
pub(super) async fn barrier<L: Lines>(lines: &L) -> Result {
    for (step, round) in (0..).zip(lines.plan().any_order()) {
        // SAFETY: the data has no bytes.
        unsafe { lines.publish(step, 0, |_| {}, Readers::AnyOrder(step)).await? };
        lines.collect(&round.partners, step, |_| 0, |_, _| {}).await?;
    }
    lines.note_all_began();
    Ok(())
}

/// Broadcast through the shared buffers of members, for any number of bytes. A member copies from its parent's buffer
/// into its own, for its children, and from there into its memory, in pieces. So all members copy at the same time.
///
/// # Safety
/// The data is readable at the root and writable elsewhere.
pub(super) async unsafe fn bcast_long<F: Fabric>(
    f: &F, buffers: &SharedBuffers, data: Vector<'_>, root: u32,
) -> Result {
    let bytes = data.bytes() as usize;
    if buffers.last_call.get().is_none()
        && let Some(lines) = f.lines()?
    {
        // Members may still read buffers after a synchronization by messages.
        barrier(&lines).await?;
    }
    buffers.has_readers.set(true);
    let (mut before, mut done) = ([buffers.last_call.get(); 2], 0);
    let (total, is_unequal) = (bytes as u64, Cell::new(false));
    while done < bytes {
        let len = (bytes - done).min(buffers.bytes);
        let Some(lines) = f.lines()? else {
            return Err(no_lines());
        };
        let turn = buffers.turn();
        let branching = lines.plan().branching(root);
        if !branching.children.is_empty()
            && let Some(call) = before[0]
        {
            lines.wait_for_end(call).await?;
        }
        before = [before[1], Some(lines.number())];
        buffers.last_call.set(before[1]);
        let piece = PIECE_BYTES.max(len.div_ceil(MAX_ROUNDS).next_multiple_of(64));
        for (step, at) in (0..).zip((0..len).step_by(piece)) {
            let (first, len) = (done + at, piece.min(len - at));
            let own = turn.of(f.rank()).wrapping_add(at);
            let (mut source, mut from) = (own, f.rank());
            // SAFETY: VECTORS; no member reads the own buffer, and the parent's has the piece until this call ends.
            unsafe {
                if let Some(parent) = branching.parent {
                    let compare = |_, at: *const u8| {
                        if at.cast::<u64>().read_unaligned() != total {
                            is_unequal.set(true);
                        }
                    };
                    lines.collect(&[parent], step, |_| size_of::<u64>(), compare).await?;
                    (source, from) = (turn.of(parent).wrapping_add(at), parent);
                } else {
                    data.layout.pack_to(data.ptr, data.count, first as u64, own, len);
                    lines.note_copy(f.rank(), len);
                }
                if !branching.children.is_empty() {
                    if branching.parent.is_some() {
                        copy(own, source, len);
                        lines.note_copy(from, len);
                        (source, from) = (own, f.rank());
                    }
                    let fill = |to: *mut u8| to.cast::<u64>().write_unaligned(total);
                    lines.publish(step, size_of::<u64>(), fill, Readers::Children(root)).await?;
                }
                if branching.parent.is_some() {
                    data.layout.unpack_from(data.ptr, data.count, first as u64, source, len);
                    lines.note_copy(from, len);
                }
            }
        }
        done += len;
    }
    if is_unequal.get() { Err(disagree(total)) } else { Ok(()) }
}

#[cold]
fn no_lines() -> Error {
    Error::new(MPI_ERR_INTERN, "shared lines were lost during a call")
}

/// Broadcast of up to [`CALL_BYTES`](crate::coll_choice::line_plan::CALL_BYTES) bytes.
///
/// # Safety
/// The data is readable at the root and writable elsewhere.
pub(super) async unsafe fn bcast<L: Lines>(lines: &L, data: Vector<'_>, root: u32) -> Result {
    let bytes = data.bytes() as usize;
    let branching = lines.plan().branching(root);
    if bytes > LINE_BYTES {
        // SAFETY: VECTORS.
        return unsafe { bcast_steps(lines, data, root).await };
    }
    let source = Cell::new(std::ptr::null());
    if let Some(parent) = branching.parent {
        lines.collect(&[parent], branching.step, |_| bytes, |_, at| source.set(at)).await?;
    }
    let source = source.get();
    // SAFETY: VECTORS; the source stays valid until the call ends.
    unsafe {
        let fill = |to: *mut u8| match branching.parent {
            None => data.pack(to),
            Some(_) => std::ptr::copy_nonoverlapping(source, to, bytes),
        };
        for step in 0..TREE_STEPS as u32 {
            if !branching.children_of(step).is_empty() {
                lines.publish(step, bytes, fill, Readers::ChildrenOf(root, step)).await?;
            }
        }
        if branching.parent.is_some() {
            data.unpack(source);
        }
    }
    if !branching.children.is_empty() {
        lines.look_ahead();
    }
    Ok(())
}

/// Broadcast of data that does not fit a line, in as many steps as it needs. A member stores a step only once, for all
/// its children.
///
/// # Safety
/// See [`bcast`].
async unsafe fn bcast_steps<L: Lines>(lines: &L, data: Vector<'_>, root: u32) -> Result {
    let bytes = data.bytes() as usize;
    let branching = lines.plan().branching(root);
    let source = Cell::new(std::ptr::null());
    for (step, first) in (0..).zip((0..bytes).step_by(STEP_BYTES)) {
        let len = STEP_BYTES.min(bytes - first);
        if let Some(parent) = branching.parent {
            lines.collect(&[parent], step, |_| len, |_, at| source.set(at)).await?;
        }
        let from = source.get();
        // SAFETY: VECTORS; the source stays valid until the call ends.
        unsafe {
            let fill = |to: *mut u8| match branching.parent {
                None => _ = data.layout.pack_to(data.ptr, data.count, first as u64, to, len),
                Some(_) => copy(to, from, len),
            };
            if !branching.children.is_empty() {
                lines.publish(step, len, fill, Readers::Children(root)).await?;
            }
            if branching.parent.is_some() {
                data.layout.unpack_from(data.ptr, data.count, first as u64, from, len);
            }
        }
    }
    Ok(())
}

/// Combines words of all members in any order. `combine` must be associative and commutative. Equal on all members.
pub(super) async fn exchange_words<const WORDS: usize, L: Lines>(
    lines: &L, words: &mut [u64; WORDS], combine: impl Fn(&mut [u64; WORDS], [u64; WORDS]),
) -> Result {
    let bytes = size_of_val(words);
    for (step, round) in (0..).zip(lines.plan().any_order()) {
        let own = *words;
        // SAFETY: the words fit a step, and `fill` writes them.
        let fill = |to: *mut u8| unsafe { to.cast::<[u64; WORDS]>().write_unaligned(own) };
        // SAFETY: see above.
        unsafe { lines.publish(step, bytes, fill, Readers::AnyOrder(step)).await? };
        // SAFETY: the data has the words of a member.
        let read = |at: *const u8| unsafe { at.cast::<[u64; WORDS]>().read_unaligned() };
        lines.collect(&round.partners, step, |_| bytes, |_, at| combine(words, read(at))).await?;
    }
    lines.note_all_began();
    Ok(())
}

/// Returns whether an allgather of blocks of `bytes` bytes fits the steps.
pub(super) fn fits_allgather<L: Lines>(lines: &L, bytes: u64) -> bool {
    bytes.saturating_mul(lines.plan().most_held()) <= STEP_BYTES as u64
}

/// Allgather for which [`fits_allgather`] is true. The block of `bytes` bytes of rank r is r times `bytes` after `all`.
///
/// # Safety
/// The memory of all blocks is writable, and this rank's block is filled.
pub(super) async unsafe fn allgather<L: Lines>(lines: &L, all: *mut u8, bytes: usize) -> Result {
    let at = |rank: u32| all.wrapping_add(rank as usize * bytes);
    // SAFETY: VECTORS.
    unsafe {
        for (step, round) in (0..).zip(lines.plan().in_order()) {
            let held = round.length as usize * bytes;
            let fill = |to: *mut u8| copy(to, at(round.first_of(round.own)), held);
            lines.publish(step, held, fill, Readers::InOrder(step)).await?;
            let into = |partner: usize| at(round.first_of(round.member(partner)));
            let take = |partner: usize, from: *const u8| copy(into(partner), from, held);
            lines.collect(&round.partners, step, |_| held, take).await?;
        }
    }
    lines.note_all_began();
    Ok(())
}

/// Returns whether the elements are contiguous, and `bytes` bytes of them fit the steps of every member.
pub(super) fn fits_allreduce<L: Lines>(lines: &L, red: &Reduction<'_>, bytes: u64) -> bool {
    let values = if red.has_free_order() { 1 } else { lines.plan().most_values() };
    red.layout.is_contiguous() && bytes.saturating_mul(values) <= STEP_BYTES as u64
}

/// Allreduce for which [`fits_allreduce`] is true. Operands are combined along the tree of [`Actors`], or in any order
/// if that is allowed.
///
/// # Safety
/// The operand is readable and the result writable. They do not overlap, or are the same. Elements are contiguous.
///
/// [`Actors`]: crate::coll_choice::tree::Actors
pub(super) async unsafe fn allreduce<'a, F: Fabric, L: Lines>(
    f: &F, lines: &L, red: &'a Reduction<'a>, operand: Vector<'a>, result: Vector<'a>,
) -> Result {
    // SAFETY: VECTORS.
    unsafe {
        match red.has_free_order() {
            true => allreduce_in_any_order(lines, red, operand, result).await,
            false => allreduce_in_order(f, lines, red, operand, result).await,
        }?;
    }
    lines.note_all_began();
    Ok(())
}

/// Safety: see [`allreduce`].
async unsafe fn allreduce_in_any_order<'a, L: Lines>(
    lines: &L, red: &'a Reduction<'a>, operand: Vector<'a>, result: Vector<'a>,
) -> Result {
    let bytes = result.bytes() as usize;
    // SAFETY: VECTORS; the lines hold as many bytes as the result.
    unsafe {
        if operand.ptr != result.ptr {
            operand.copy_to(result)?;
        }
        for (step, round) in (0..).zip(lines.plan().any_order()) {
            let fill = |to: *mut u8| copy(to, result.ptr, bytes);
            lines.publish(step, bytes, fill, Readers::AnyOrder(step)).await?;
            let take = |_, at: *const u8| red.fold(red.at(at, result.count), result);
            lines.collect(&round.partners, step, |_| bytes, take).await?;
        }
    }
    Ok(())
}

/// Values of branches, in rank order.
struct HeldValues {
    values: [MaybeUninit<(Branch, *mut u8)>; MAX_VALUES],
    len: usize,
}

impl HeldValues {
    fn new() -> Self {
        HeldValues { values: [const { MaybeUninit::uninit() }; MAX_VALUES], len: 0 }
    }

    fn get(&self, index: usize) -> (Branch, *mut u8) {
        assert!(index < self.len);
        // SAFETY: `push` has written the first `len` values.
        unsafe { self.values[index].assume_init() }
    }

    fn push(&mut self, branch: Branch, at: *mut u8) {
        self.values[self.len].write((branch, at));
        self.len += 1;
    }

    /// Adds the value of the next branch, and combines two halves of a branch when both are there. An operation stores
    /// its result in the right operand.
    ///
    /// # Safety
    /// All values are writable, have `elements` elements, and do not overlap.
    unsafe fn add(&mut self, red: &Reduction<'_>, elements: u64, branch: Branch, at: *mut u8) {
        let mut upper = branch;
        while let Some(last) = self.len.checked_sub(1)
            && let (lower, left) = self.get(last)
            && lower.continues(upper)
        {
            // SAFETY: VECTORS.
            unsafe { red.fold(red.at(left, elements), red.at(at, elements)) };
            upper = lower.twice();
            self.len = last;
        }
        self.push(upper, at);
    }

    /// Copies the values to adjacent memory. Safety: it has room for them.
    unsafe fn copy_to(&self, to: *mut u8, bytes: usize) {
        for index in 0..self.len {
            // SAFETY: there is room, by this function's contract.
            unsafe { copy(to.wrapping_add(index * bytes), self.get(index).1, bytes) };
        }
    }
}

/// Safety: see [`allreduce`].
async unsafe fn allreduce_in_order<'a, F: Fabric, L: Lines>(
    f: &F, lines: &L, red: &'a Reduction<'a>, operand: Vector<'a>, result: Vector<'a>,
) -> Result {
    let rounds = lines.plan().in_order();
    let (bytes, elements) = (result.bytes() as usize, result.count);
    let most = rounds.iter().map(|round| round.branches.len()).max().unwrap_or(1);
    let mut scratch = Scratch::new(f);
    // Values move between the two halves of the memory from round to round.
    let memory = scratch.room(2 * (most * bytes) as u64)?;
    let halves = [memory, memory.wrapping_add(most * bytes)];
    let mut held = HeldValues::new();
    if let Some(first) = rounds.first() {
        held.push(first.branches[first.starts[first.own]], operand.ptr);
    }
    // SAFETY: VECTORS; each half has room for the values of a round.
    unsafe {
        for (step, round) in (0..).zip(rounds) {
            let fill = |to: *mut u8| held.copy_to(to, bytes);
            lines.publish(step, held.len * bytes, fill, Readers::InOrder(step)).await?;
            let half = halves[step as usize % 2];
            held.copy_to(half.wrapping_add(round.starts[round.own] * bytes), bytes);
            let length = |partner: usize| round.values_of(round.member(partner)).len() * bytes;
            let take = |partner: usize, from: *const u8| {
                let first = round.starts[round.member(partner)] * bytes;
                copy(half.wrapping_add(first), from, length(partner));
            };
            lines.collect(&round.partners, step, length, take).await?;
            held.len = 0;
            for (index, &branch) in round.branches.iter().enumerate() {
                held.add(red, elements, branch, half.wrapping_add(index * bytes));
            }
        }
        let value = if rounds.is_empty() { operand.ptr } else { held.get(0).1 };
        red.at(value, elements).copy_to(result)
    }
}
