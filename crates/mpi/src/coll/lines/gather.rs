//! Gather through shared lines, and scatter through the root's shared buffer. VECTORS is defined in `coll.rs`.
#![allow(unsafe_code)]

use super::super::fabric::Fabric;
use super::super::scratch::Scratch;
use super::super::shared::{SharedBuffers, disagree};
use super::super::vector::Vector;
use super::{Lines, bcast, no_lines};
use crate::coll_choice::line_plan::{CALL_BYTES, MAX_RADIX, Readers, STEP_BYTES};
use crate::common::error::Result;
use crate::objects::shared_lines::sequence_of;
use fastpath_base::copy::copy;

/// Returns whether a gather of blocks of `bytes` bytes fits the steps of every member.
pub(in super::super) fn fits_gather<L: Lines>(lines: &L, bytes: u64, root: u32) -> bool {
    bytes.saturating_mul(lines.plan().collecting(root).most) <= CALL_BYTES as u64
}

/// Gather for which [`fits_gather`] is true, in the rounds of a barrier. A member publishes its block and those of
/// its children. Only the root passes `block`; its own block is in place. `bytes` is the length of a block.
///
/// # Safety
/// `own` is readable and the blocks are writable.
pub(in super::super) async unsafe fn gather<'a, F: Fabric, L: Lines>(
    f: &F, lines: &L, own: Option<Vector<'_>>, block: Option<impl Fn(u32) -> Vector<'a>>,
    bytes: usize, root: u32,
) -> Result {
    let plan = lines.plan().collecting(root);
    let held = plan.ranks.len() * bytes;
    let mut scratch = Scratch::new(f);
    let is_leaf = plan.children.is_empty();
    let memory = match is_leaf || block.is_some() {
        true => std::ptr::null_mut(),
        false => scratch.room(held as u64)?,
    };
    // SAFETY: VECTORS; the scratch has room for the data of all ranks of the plan.
    unsafe {
        if let Some(own) = own.filter(|_| !memory.is_null()) {
            own.pack(memory);
        }
        // Stores data that lies `at` bytes after the first byte of the plan's ranks.
        let store = |mut at: usize, mut from: *const u8, mut len: usize| {
            let Some(block) = &block else {
                return copy(memory.wrapping_add(at), from, len);
            };
            while len > 0 {
                let (into, first) = (block(plan.ranks[at / bytes]), at % bytes);
                let part = len.min(bytes - first);
                into.layout.unpack_from(into.ptr, into.count, first as u64, from, part);
                (at, from, len) = (at + part, from.wrapping_add(part), len - part);
            }
        };
        let length = |child: usize| (plan.starts[child + 1] - plan.starts[child]) * bytes;
        let step_bytes =
            |whole: usize, step: usize| STEP_BYTES.min(whole.saturating_sub(step * STEP_BYTES));
        for first in (0..plan.children.len()).step_by(MAX_RADIX as usize) {
            let last = (first + MAX_RADIX as usize).min(plan.children.len());
            let longest = (first..last).map(length).max().unwrap_or(0);
            if longest <= STEP_BYTES {
                let take = |index: usize, from: *const u8| {
                    let child = first + index;
                    store(plan.starts[child] * bytes, from, length(child));
                };
                let children = &plan.children[first..last];
                lines.collect(children, 0, |index| length(first + index), take).await?;
                continue;
            }
            for step in 0..longest.div_ceil(STEP_BYTES) {
                let has_step = |&child: &usize| length(child) > step * STEP_BYTES;
                let children: Vec<usize> = (first..last).filter(has_step).collect();
                let ranks: Vec<u32> = children.iter().map(|&child| plan.children[child]).collect();
                let expected = |index: usize| step_bytes(length(children[index]), step);
                let take = |index: usize, from: *const u8| {
                    let at = plan.starts[children[index]] * bytes + step * STEP_BYTES;
                    store(at, from, expected(index));
                };
                lines.collect(&ranks, step as u32, expected, take).await?;
            }
        }
        if f.rank() == root {
            return Ok(());
        }
        for step in 0..held.div_ceil(STEP_BYTES) {
            let (at, len) = (step * STEP_BYTES, step_bytes(held, step));
            let fill = |to: *mut u8| match own.filter(|_| is_leaf) {
                Some(own) => _ = own.layout.pack_to(own.ptr, own.count, at as u64, to, len),
                None => copy(to, memory.wrapping_add(at), len),
            };
            lines.publish(step as u32, len, fill, Readers::Parent(root)).await?;
        }
    }
    Ok(())
}

/// Scatter: the root stores the blocks in its shared buffer, and publishes their length along the tree of a broadcast.
/// Each other member copies its block. Only the root passes `block`; its own block is in place. `first` is the first
/// call of lines, and `begin` begins the next.
///
/// # Safety
/// The blocks are readable and `own` is writable. All have `bytes` bytes.
pub(in super::super) async unsafe fn scatter<'a, F: Fabric, L: Lines>(
    f: &F, buffers: &SharedBuffers, first: L, begin: impl Fn() -> Result<Option<L>>,
    block: Option<impl Fn(u32) -> Vector<'a>>, own: Option<Vector<'_>>, (bytes, root): (u64, u32),
) -> Result {
    let (ranks, rank) = (f.size(), f.rank());
    let fits = buffers.bytes / ranks as usize;
    // Whole lines, so that a member reads few lines.
    let at_once = if fits < 64 { fits.max(1) } else { fits & !63 };
    let (mut number, mut first, mut done) = (sequence_of(first.number()), Some(first), 0);
    let mut is_equal = true;
    while done < bytes {
        let lines = match first.take() {
            Some(lines) => lines,
            None => begin()?.ok_or_else(no_lines)?,
        };
        let turn = buffers.turn_of(number);
        number += 1;
        let len = at_once.min((bytes - done) as usize);
        let place = |to: u32| turn.of(root).wrapping_add(to as usize * len);
        let mut total = bytes;
        // SAFETY: VECTORS; the places of `ranks` pieces fit a buffer, and all members have read its earlier data.
        unsafe {
            if let Some(block) = &block {
                if let Some(before) = turn.note_reading(lines.number()) {
                    lines.wait_for_end(before, Readers::All).await?;
                }
                for to in (0..ranks).filter(|&to| to != root) {
                    let out = block(to);
                    out.layout.pack_to(out.ptr, out.count, done, place(to), len);
                }
                lines.note_copy(rank, len * (ranks as usize - 1));
            }
            bcast(&lines, Vector::raw((&raw mut total).cast(), 8), root).await?;
            is_equal &= total == bytes;
            if let Some(own) = own.filter(|_| rank != root) {
                own.layout.unpack_from(own.ptr, own.count, done, place(rank), len);
                lines.note_copy(root, len);
            }
        }
        done += len as u64;
    }
    if is_equal { Ok(()) } else { Err(disagree(bytes)) }
}
