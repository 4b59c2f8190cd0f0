//! Allreduce through shared lines. VECTORS is defined in `coll.rs`.
#![allow(unsafe_code)]

use super::super::fabric::Fabric;
use super::super::local::Reduction;
use super::super::scratch::Scratch;
use super::super::vector::Vector;
use super::Lines;
use crate::coll_choice::line_plan::{MAX_VALUES, Readers, STEP_BYTES};
use crate::coll_choice::tree::Branch;
use crate::common::error::Result;
use fastpath_base::copy::copy;
use std::mem::MaybeUninit;

/// Returns whether the elements are contiguous, and `bytes` bytes of them fit the steps of every member.
pub(in super::super) fn fits_allreduce<L: Lines>(
    lines: &L, red: &Reduction<'_>, bytes: u64,
) -> bool {
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
pub(in super::super) async unsafe fn allreduce<'a, F: Fabric, L: Lines>(
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
