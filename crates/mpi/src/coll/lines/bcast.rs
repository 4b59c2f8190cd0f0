//! Broadcasts through shared lines and, if they are long, shared buffers. VECTORS is defined in `coll.rs`.
#![allow(unsafe_code)]

use super::super::fabric::Fabric;
use super::super::shared::{SharedBuffers, disagree};
use super::super::vector::Vector;
use super::{Lines, no_lines};
use crate::coll_choice::line_plan::{LinePlan, MAX_ROUNDS, Readers, STEP_BYTES, TREE_STEPS};
use crate::common::error::Result;
use crate::objects::shared_buffers::BufferTurn;
use crate::objects::shared_lines::{LINE_BYTES, sequence_of};
use fastpath_base::copy::copy;
use std::cell::Cell;

/// Minimum bytes of a piece of a long broadcast. A synchronization takes as long as the copy of a few KiB.
const PIECE_BYTES: usize = 8 << 10;

/// Pieces of a long broadcast. A part is one call of lines, and has as many pieces as fit a buffer.
struct PieceLayout {
    bytes: usize,
    of_a_part: usize,
    piece: usize,
}

impl PieceLayout {
    fn new(bytes: usize, buffer: usize) -> PieceLayout {
        let of_a_part = bytes.min(buffer);
        let piece = PIECE_BYTES.max(of_a_part.div_ceil(MAX_ROUNDS).next_multiple_of(64));
        PieceLayout { bytes, of_a_part, piece }
    }

    /// Returns the number of pieces of a part, except the last.
    fn steps(&self) -> usize {
        self.of_a_part.div_ceil(self.piece)
    }

    fn count(&self) -> usize {
        let rest = self.bytes % self.of_a_part;
        self.bytes / self.of_a_part * self.steps() + rest.div_ceil(self.piece)
    }

    /// Returns the part and the step of a piece.
    fn position(&self, index: usize) -> (usize, usize) {
        (index / self.steps(), index % self.steps())
    }

    /// Returns the first byte of a piece in the data and in a buffer, and its length.
    fn range(&self, index: usize) -> (usize, usize, usize) {
        let (part, step) = self.position(index);
        let (start, at) = (part * self.of_a_part, step * self.piece);
        (start + at, at, self.piece.min(self.of_a_part.min(self.bytes - start) - at))
    }
}

/// Long broadcast of one member.
struct LongBcast<'c, L, B> {
    buffers: &'c SharedBuffers,
    data: Vector<'c>,
    root: u32,
    pieces: PieceLayout,
    begin: B,
    /// Sequence of the first part.
    number: u64,
    /// Calls of the parts under way, by part modulo 2.
    calls: [Option<L>; 2],
    /// Last part for which this member wrote its buffer, by part modulo 2.
    written: [Option<usize>; 2],
    is_unequal: bool,
}

impl<L: Lines, B: Fn() -> Result<Option<L>>> LongBcast<'_, L, B> {
    fn call(&self, part: usize) -> Result<&L> {
        self.calls[part % 2].as_ref().ok_or_else(no_lines)
    }

    fn turn(&self, part: usize) -> BufferTurn<'_> {
        self.buffers.turn_of(self.number + part as u64)
    }

    fn has_children(&self, plan: &LinePlan, index: usize) -> bool {
        let mut has_children = false;
        plan.each_reader(self.readers(index), |_| has_children = true);
        has_children
    }

    fn readers(&self, index: usize) -> Readers {
        Readers::OfPiece(self.root, index as u32)
    }

    /// Waits until this member's buffer of a part is free.
    async fn free_buffer(&mut self, part: usize) -> Result {
        let written = self.written[part % 2].replace(part);
        if written == Some(part) {
            return Ok(());
        }
        let lines = self.call(part)?;
        let Some(before) = self.turn(part).note_reading(lines.number()) else { return Ok(()) };
        let Some(written) = written else {
            return lines.wait_for_end(before, Readers::All).await;
        };
        for step in 0..self.pieces.steps() {
            let index = written * self.pieces.steps() + step;
            lines.wait_for_end(before, self.readers(index)).await?;
        }
        Ok(())
    }

    /// Waits for a piece in the buffer of another member.
    async fn wait_for(&mut self, parent: u32, index: usize) -> Result {
        let ((part, step), total) = (self.pieces.position(index), self.pieces.bytes as u64);
        let is_unequal = Cell::new(false);
        // SAFETY: the data of a step has a word.
        let compare = |_, at: *const u8| unsafe {
            is_unequal.set(at.cast::<u64>().read_unaligned() != total);
        };
        let lines = self.call(part)?;
        lines.collect(&[parent], step as u32, |_| size_of::<u64>(), compare).await?;
        self.is_unequal |= is_unequal.get();
        Ok(())
    }

    /// Stores a piece in this member's buffer for the children, from the data or from the buffer of `parent`.
    ///
    /// # Safety
    /// The data is readable at the root.
    async unsafe fn store(&mut self, rank: u32, parent: Option<u32>, index: usize) -> Result {
        let ((part, step), total) = (self.pieces.position(index), self.pieces.bytes as u64);
        self.free_buffer(part).await?;
        if let Some(parent) = parent {
            self.wait_for(parent, index).await?;
        }
        let ((first, at, len), turn) = (self.pieces.range(index), self.turn(part));
        let own = turn.of(rank).wrapping_add(at);
        let lines = self.call(part)?;
        // SAFETY: VECTORS; no member reads the own buffer, and the parent's has the piece until this call ends.
        unsafe {
            match parent {
                Some(parent) => copy(own, turn.of(parent).wrapping_add(at), len),
                None => {
                    let data = self.data;
                    _ = data.layout.pack_to(data.ptr, data.count, first as u64, own, len);
                }
            }
            lines.note_copy(parent.unwrap_or(rank), len);
            let fill = |to: *mut u8| to.cast::<u64>().write_unaligned(total);
            lines.publish(step as u32, size_of::<u64>(), fill, self.readers(index)).await
        }
    }

    /// Copies a piece from the buffer of a member, which has the piece, into the data.
    ///
    /// # Safety
    /// The data is writable.
    unsafe fn take(&self, from: u32, index: usize) -> Result {
        let (part, data) = (self.pieces.position(index).0, self.data);
        let (first, at, len) = self.pieces.range(index);
        let source = self.turn(part).of(from).wrapping_add(at);
        // SAFETY: VECTORS; the buffer has the piece until this call ends.
        unsafe { data.layout.unpack_from(data.ptr, data.count, first as u64, source, len) };
        self.call(part)?.note_copy(from, len);
        Ok(())
    }

    /// Moves all pieces. In each turn of the loop, a leader stores a later piece than it takes. So the members of its
    /// group need not wait for its copy.
    ///
    /// # Safety
    /// The data is readable at the root and writable elsewhere.
    async unsafe fn run(&mut self, rank: u32) -> Result {
        let (count, steps) = (self.pieces.count(), self.pieces.steps());
        let depth = self.call(0)?.plan().piece_depth();
        // A leader that is a whole part ahead would wait for members that wait for it.
        let depth = if steps < depth as usize { 0 } else { depth };
        for turn in 0..count + depth as usize {
            if turn > 0 && turn < count && turn % steps == 0 {
                let (part, lines) = (turn / steps, (self.begin)()?.ok_or_else(no_lines)?);
                self.calls[part % 2] = Some(lines);
            }
            for distance in 0..=depth {
                let Some(index) =
                    turn.checked_sub(distance as usize).filter(|&index| index < count)
                else {
                    continue;
                };
                let plan = self.call(self.pieces.position(index).0)?.plan();
                let source = plan.piece_source(self.root, index as u32);
                let (parent, own_distance) = match source {
                    None => (None, 0),
                    Some((source, distance)) => (Some(source.parent), distance.min(depth)),
                };
                let stores = self.has_children(plan, index);
                // SAFETY: VECTORS.
                unsafe {
                    if stores && own_distance == distance {
                        self.store(rank, parent, index).await?;
                    }
                    if let Some(parent) = parent
                        && distance == depth
                    {
                        if !stores {
                            self.wait_for(parent, index).await?;
                        }
                        self.take(if stores { rank } else { parent }, index)?;
                    }
                }
                let (part, step) = self.pieces.position(index);
                if distance == depth && (step + 1 == steps || index + 1 == count) {
                    self.calls[part % 2] = None;
                }
            }
        }
        Ok(())
    }
}

/// Broadcast through the shared buffers of members, for any number of bytes, in pieces. The root and the leaders of a
/// piece store it in their buffers, from which the others copy it into their memory.
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
    if bytes == 0 {
        return Ok(());
    }
    let mut bcast = LongBcast {
        buffers,
        data,
        root,
        pieces: PieceLayout::new(bytes, buffers.bytes),
        begin,
        number: sequence_of(first.number()),
        calls: [Some(first), None],
        written: [None; 2],
        is_unequal: false,
    };
    // SAFETY: VECTORS.
    unsafe { bcast.run(f.rank()).await? };
    if bcast.is_unequal { Err(disagree(bytes as u64)) } else { Ok(()) }
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
