//! Spans of messages in a pair's data areas, and bytes of the peer's area that this side lends to replies (`recycle`).

use super::wire::{PairRegion, RECYCLED};
use std::ptr;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DataSpan {
    pub offset: u32,
    pub len: u32,
}

/// Rounds a length up to whole cache lines; messages in the data area occupy whole lines.
#[inline]
pub(super) const fn whole_lines(len: u32) -> u32 {
    (len + 63) & !63
}

/// Bytes of the peer's data area that this consumer has taken and not returned. It may write replies there (lend them).
#[derive(Debug)]
pub(super) struct RecycledSpace {
    pub area: *const PairRegion,
    /// Offsets in the area: `start` and `end` of these bytes, and `next`, the first byte not lent to a reply.
    start: u32,
    next: u32,
    pub end: u32,
    /// Position of the first message that used these bytes.
    pub from: u32,
    /// Position, in the other direction's ring, of the last reply in these bytes.
    last: u32,
    /// Number of polls without an arrival since a message was last taken.
    pub quiet: u32,
}

impl RecycledSpace {
    pub const NOTHING: RecycledSpace =
        RecycledSpace { area: ptr::null(), start: 0, next: 0, end: 0, from: 0, last: 0, quiet: 0 };

    #[inline]
    pub fn is_lent(&self) -> bool {
        self.next != self.start
    }

    /// Whether a peer that took all messages before `taken` has taken all replies in these bytes. A wrong value harms
    /// only the peer.
    #[inline]
    pub fn is_returned(&self, taken: u32) -> bool {
        taken.wrapping_sub(self.last) as i32 > 0
    }

    #[inline]
    pub fn keep(&mut self, area: *const PairRegion, (offset, len): (u32, u32), position: u32) {
        self.quiet = 0;
        if self.end != 0 && offset == self.end && !self.is_lent() {
            self.end = offset + whole_lines(len);
            return;
        }
        (self.area, self.from) = (area, position);
        (self.start, self.next, self.end) = (offset, offset, offset + whole_lines(len));
    }

    #[inline]
    pub fn has_room(&self, len: u32) -> bool {
        self.end - self.next >= len
    }

    #[inline(never)]
    pub fn lend(&mut self, len: u32, position: u32) -> u32 {
        let offset = self.next;
        self.next += whole_lines(len);
        self.last = position;
        offset | RECYCLED
    }
}

/// Data area of this side's own ring, where the peer may have written a reply (`recycle`).
#[derive(Clone, Copy)]
pub(super) struct LocalDataArea {
    pub pair: *const PairRegion,
    pub size: u32,
}

impl LocalDataArea {
    #[cfg(test)]
    pub const NOTHING: LocalDataArea = LocalDataArea { pair: ptr::null(), size: 0 };
}
