//! The flattened list of a layout, and its construction.
//!
//! Entries are merged while they are added. Neighbours in memory become one piece, equal pieces at one distance become
//! a strided block, and equal loops at one distance become one loop.

use super::LayoutError;
use super::LayoutError::Overflow;
use std::sync::Arc;

/// Maximum number of entries of a list that is copied into the list of a new type. A longer list is shared. An indexed
/// type of a million structures therefore has a million entries, even if a structure has many pieces.
const INLINE_ENTRIES: usize = 1024;

/// Maximum number of entries of all repetitions of a list for which the repetitions are stored entry by entry instead
/// of as a loop. Pieces of stored repetitions can merge.
const UNROLL_ENTRIES: u64 = 16;

/// Maximum nesting of loops. Deeper loops are stored entry by entry. Each repeating level at least doubles the size, so
/// only shared lists without repetition could nest deeper.
const MAX_DEPTH: u32 = 96;

/// `count` pieces of `len` bytes, `stride` bytes apart, the first at byte `offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Start of the first piece, relative to the element.
    pub offset: i64,
    /// Bytes of a piece; never 0.
    pub len: u64,
    /// Distance between pieces; may be negative. 0 for one piece.
    pub stride: i64,
    /// Number of pieces; never 0.
    pub count: u64,
}

impl Block {
    pub(super) fn bytes(&self) -> u64 {
        self.len * self.count
    }
}

/// `count` copies of a list, `stride` bytes apart.
#[derive(Debug, Clone)]
pub(super) struct LayoutLoop {
    pub offset: i64,
    pub stride: i64,
    pub count: u64,
    pub body: Arc<BlockList>,
}

#[derive(Debug, Clone)]
pub(super) enum LayoutEntry {
    Block(Block),
    Loop(LayoutLoop),
}

impl LayoutEntry {
    fn bytes(&self) -> u64 {
        match self {
            LayoutEntry::Block(b) => b.bytes(),
            LayoutEntry::Loop(l) => l.body.size * l.count,
        }
    }

    fn shift(&mut self, by: i64) -> Result<(), LayoutError> {
        let offset = match self {
            LayoutEntry::Block(b) => &mut b.offset,
            LayoutEntry::Loop(l) => &mut l.offset,
        };
        *offset = offset.checked_add(by).ok_or(Overflow)?;
        Ok(())
    }
}

/// Entries in type-map order, with the packed position at which each starts.
#[derive(Debug)]
pub(super) struct BlockList {
    entries: Box<[LayoutEntry]>,
    starts: Box<[u64]>,
    size: u64,
    depth: u32,
    /// Number of entries of this list and of the lists that it contains, saturating. A shared list counts at each use.
    total: u64,
    /// `None` for an empty list, or if a piece starts before its predecessor.
    order: Option<PieceOrder>,
}

/// Order of pieces in which no piece starts before its predecessor.
#[derive(Debug, Clone, Copy)]
pub(super) struct PieceOrder {
    first: i64,
    last: i64,
    /// End of the highest piece.
    end: i64,
    /// Whether each piece starts at or behind the end of its predecessor.
    pub is_apart: bool,
}

impl PieceOrder {
    fn of_entry(entry: &LayoutEntry) -> Option<PieceOrder> {
        let (offset, one, stride, count) = match entry {
            LayoutEntry::Block(b) => {
                let one = PieceOrder {
                    first: 0,
                    last: 0,
                    end: i64::try_from(b.len).ok()?,
                    is_apart: true,
                };
                (b.offset, one, b.stride, b.count)
            }
            LayoutEntry::Loop(l) => (l.offset, l.body.order?, l.stride, l.count),
        };
        one.repeat(offset, stride, count)
    }

    /// Order of `count` copies, `stride` bytes apart, the first moved by `offset` bytes; `None` if they are out of
    /// order.
    fn repeat(self, offset: i64, stride: i64, count: u64) -> Option<PieceOrder> {
        let steps = i64::try_from(count.checked_sub(1)?).ok()?;
        if steps > 0 && stride < self.last.checked_sub(self.first)? {
            return None;
        }
        let to_last = stride.checked_mul(steps)?.checked_add(offset)?;
        Some(PieceOrder {
            first: self.first.checked_add(offset)?,
            last: self.last.checked_add(to_last)?,
            end: self.end.checked_add(to_last)?,
            is_apart: self.is_apart
                && (steps == 0 || stride >= self.end.checked_sub(self.first)?),
        })
    }

    fn then(self, next: PieceOrder) -> Option<PieceOrder> {
        (next.first >= self.last).then_some(PieceOrder {
            first: self.first,
            last: next.last,
            end: self.end.max(next.end),
            is_apart: self.is_apart && next.is_apart && next.first >= self.end,
        })
    }
}

impl BlockList {
    /// A list of `bytes` contiguous bytes, at most `i64::MAX`.
    pub fn dense(bytes: u64) -> Arc<BlockList> {
        let mut builder = ListBuilder::default();
        if bytes > 0 {
            builder.push_block(Block { offset: 0, len: bytes, stride: 0, count: 1 });
            builder.size = bytes;
        }
        builder.finish()
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the only piece of the list, if the list has exactly one.
    pub fn dense_piece(&self) -> Option<&Block> {
        match &*self.entries {
            [LayoutEntry::Block(b)] if b.count == 1 => Some(b),
            _ => None,
        }
    }

    pub fn as_slice(&self) -> &[LayoutEntry] {
        &self.entries
    }

    /// Returns the index and the start of the entry that holds byte `position` (below `size`) of the packed form.
    pub fn seek(&self, position: u64) -> (usize, u64) {
        let index = self.starts.partition_point(|start| *start <= position).saturating_sub(1);
        (index, self.starts.get(index).copied().unwrap_or(0))
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the order of the pieces, if none starts before its predecessor.
    pub fn order(&self) -> Option<PieceOrder> {
        self.order
    }

    /// `count` copies of this list, `stride` bytes apart.
    pub fn repeat(
        self: &Arc<BlockList>, count: u64, stride: i64,
    ) -> Result<Arc<BlockList>, LayoutError> {
        if count == 1 {
            return Ok(self.clone());
        }
        let mut builder = ListBuilder::default();
        builder.add(self, count, stride, 0)?;
        Ok(builder.finish())
    }

    /// Returns a single entry that equals `count` copies of the list, if there is one without a loop around the list.
    fn repeat_entry(&self, count: u64, stride: i64) -> Option<LayoutEntry> {
        let [entry] = &*self.entries else { return None };
        let mut entry = entry.clone();
        let (own_stride, own_count) = match &mut entry {
            LayoutEntry::Block(b) if b.count == 1 && i64::try_from(b.len) == Ok(stride) => {
                b.len = b.len.checked_mul(count)?;
                return Some(entry);
            }
            LayoutEntry::Block(b) => (&mut b.stride, &mut b.count),
            LayoutEntry::Loop(l) => (&mut l.stride, &mut l.count),
        };
        if *own_count == 1 {
            *own_stride = stride;
        } else if stride_end(*own_stride, *own_count) != Some(stride) {
            return None;
        }
        *own_count = own_count.checked_mul(count)?;
        Some(entry)
    }
}

/// Byte position of the piece that would follow the last one, relative to the first piece. `None` on overflow.
fn stride_end(stride: i64, count: u64) -> Option<i64> {
    i64::try_from(count).ok().and_then(|c| c.checked_mul(stride))
}

/// Builder of a list. It checks that sizes fit. Its callers check, by computing the layout's `Bounds`, that byte ranges
/// fit 64 bits.
#[derive(Debug, Default)]
pub(super) struct ListBuilder {
    entries: Vec<LayoutEntry>,
    size: u64,
}

impl ListBuilder {
    /// Adds `count` copies of `list`, `stride` apart, the first at `offset`.
    pub fn add(
        &mut self, list: &Arc<BlockList>, count: u64, stride: i64, offset: i64,
    ) -> Result<(), LayoutError> {
        if count == 0 || list.size == 0 {
            return Ok(());
        }
        let size = list.size.checked_mul(count).and_then(|bytes| bytes.checked_add(self.size));
        self.size = size.filter(|bytes| *bytes <= i64::MAX as u64).ok_or(Overflow)?;
        let entries = list.entries.len();
        let share =
            entries > 1 && self.entries.len() + entries > INLINE_ENTRIES && list.depth < MAX_DEPTH;
        if count == 1 && !share {
            return self.splice(list, offset);
        }
        if count > 1 {
            if let Some(mut entry) = list.repeat_entry(count, stride) {
                entry.shift(offset)?;
                self.push(entry);
                return Ok(());
            }
            if !share && entries > 1 && count.saturating_mul(entries as u64) <= UNROLL_ENTRIES {
                for i in 0..count as i64 {
                    let at = i
                        .checked_mul(stride)
                        .and_then(|d| d.checked_add(offset))
                        .ok_or(Overflow)?;
                    self.splice(list, at)?;
                }
                return Ok(());
            }
        }
        let stride = if count == 1 { 0 } else { stride };
        self.push(LayoutEntry::Loop(LayoutLoop { offset, stride, count, body: list.clone() }));
        Ok(())
    }

    fn splice(&mut self, list: &BlockList, offset: i64) -> Result<(), LayoutError> {
        for entry in &list.entries {
            let mut entry = entry.clone();
            entry.shift(offset)?;
            self.push(entry);
        }
        Ok(())
    }

    fn push(&mut self, entry: LayoutEntry) {
        match entry {
            LayoutEntry::Block(block) => self.push_block(block),
            LayoutEntry::Loop(next) => self.push_loop(next),
        }
    }

    fn push_block(&mut self, block: Block) {
        let Some(LayoutEntry::Block(last)) = self.entries.last_mut() else {
            self.entries.push(LayoutEntry::Block(block));
            return;
        };
        if block.count == 1 && adjoins(last, &block) {
            let len = last.len + block.len;
            if last.count == 1 {
                last.len = len;
                return;
            }
            // The last piece becomes longer than the others, so it leaves their strided block.
            let at = last.offset.wrapping_add(last.stride.wrapping_mul((last.count - 1) as i64));
            last.count -= 1;
            if last.count == 1 {
                last.stride = 0;
            }
            self.entries.push(LayoutEntry::Block(Block { offset: at, len, stride: 0, count: 1 }));
            return;
        }
        let own = (last.offset, last.stride, last.count);
        if last.len == block.len
            && let Some((stride, count)) = join_runs(own, (block.offset, block.stride, block.count))
        {
            (last.stride, last.count) = (stride, count);
            return;
        }
        self.entries.push(LayoutEntry::Block(block));
    }

    fn push_loop(&mut self, next: LayoutLoop) {
        if let Some(LayoutEntry::Loop(last)) = self.entries.last_mut()
            && Arc::ptr_eq(&last.body, &next.body)
            && let Some((stride, count)) = join_runs(
                (last.offset, last.stride, last.count),
                (next.offset, next.stride, next.count),
            )
        {
            (last.stride, last.count) = (stride, count);
            return;
        }
        self.entries.push(LayoutEntry::Loop(next));
    }

    pub fn finish(self) -> Arc<BlockList> {
        // A single loop of one pass is replaced by its body.
        if let [LayoutEntry::Loop(only)] = &*self.entries
            && only.count == 1
            && only.offset == 0
        {
            return only.body.clone();
        }
        let mut position = 0u64;
        let start = |e: &LayoutEntry| {
            let start = position;
            position += e.bytes();
            start
        };
        let starts = self.entries.iter().map(start).collect();
        let (mut depth, mut total) = (0, self.entries.len() as u64);
        for entry in &self.entries {
            if let LayoutEntry::Loop(l) = entry {
                depth = depth.max(1 + l.body.depth);
                total = total.saturating_add(l.body.total);
            }
        }
        let mut orders = self.entries.iter().map(PieceOrder::of_entry);
        let first = orders.next().flatten();
        let order = orders.try_fold(first, |all, next| Some(all?.then(next?)));
        Arc::new(BlockList {
            order: order.flatten(),
            entries: self.entries.into_boxed_slice(),
            starts,
            size: self.size,
            depth,
            total,
        })
    }
}

/// Returns whether `next` starts in memory where the last piece of `last` ends.
fn adjoins(last: &Block, next: &Block) -> bool {
    let steps = (last.count - 1) as i64;
    let end = last
        .stride
        .checked_mul(steps)
        .and_then(|d| d.checked_add(last.offset))
        .and_then(|d| d.checked_add_unsigned(last.len));
    end == Some(next.offset)
}

/// Joins two consecutive runs of (offset, stride, count) into one stride and count; `None` if no single stride fits.
fn join_runs(first: (i64, i64, u64), second: (i64, i64, u64)) -> Option<(i64, u64)> {
    let gap = second.0.checked_sub(first.0)?;
    let count = first.2.checked_add(second.2)?;
    let stride = match (first.2, second.2) {
        (1, 1) => gap,
        (1, _) if gap == second.1 => gap,
        (n, 1) if stride_end(first.1, n) == Some(gap) => first.1,
        (n, _) if first.1 == second.1 && stride_end(first.1, n) == Some(gap) => first.1,
        _ => return None,
    };
    Some((stride, count))
}
