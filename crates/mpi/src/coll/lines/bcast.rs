//! Broadcasts through shared lines and, if they are long, shared buffers. VECTORS is defined in `coll.rs`.
#![allow(unsafe_code)]

use super::super::fabric::Fabric;
use super::super::shared::{SharedBuffers, disagree};
use super::super::vector::Vector;
use super::{Lines, no_lines};
use crate::coll_choice::line_plan::{MAX_ROUNDS, Readers, STEP_BYTES, TREE_STEPS};
use crate::common::error::Result;
use crate::objects::shared_lines::{LINE_BYTES, sequence_of};
use fastpath_base::copy::copy;
use std::cell::Cell;

/// Minimum bytes of a piece of a long broadcast. A synchronization takes as long as the copy of a few KiB.
const PIECE_BYTES: usize = 8 << 10;

/// Broadcast through the shared buffers of members, for any number of bytes. A member copies from its parent's buffer
/// into its own, for its children, and from there into its memory, in pieces. So all members copy at the same time.
///
/// `first` is the first call of lines.
///
/// # Safety
/// The data is readable at the root and writable elsewhere.
pub(in super::super) async unsafe fn bcast_long<F: Fabric, L: Lines>(
    f: &F, buffers: &SharedBuffers, first: L, begin: impl Fn() -> Result<Option<L>>,
    data: Vector<'_>, root: u32,
) -> Result {
    let bytes = data.bytes() as usize;
    let mut number = sequence_of(first.number());
    let (mut first, mut done) = (Some(first), 0);
    let (total, is_unequal) = (bytes as u64, Cell::new(false));
    while done < bytes {
        let len = (bytes - done).min(buffers.bytes);
        let lines = match first.take() {
            Some(lines) => lines,
            None => begin()?.ok_or_else(no_lines)?,
        };
        let turn = buffers.turn_of(number);
        number += 1;
        let branching = lines.plan().branching(root);
        if !branching.children.is_empty()
            && let Some(before) = turn.note_reading(lines.number())
        {
            lines.wait_for_end(before).await?;
        }
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

/// Broadcast of up to [`CALL_BYTES`](crate::coll_choice::line_plan::CALL_BYTES) bytes.
///
/// # Safety
/// The data is readable at the root and writable elsewhere.
pub(in super::super) async unsafe fn bcast<L: Lines>(
    lines: &L, data: Vector<'_>, root: u32,
) -> Result {
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
