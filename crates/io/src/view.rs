//! Views (MPI 5.0, section 14.3): the bytes of a file that a process accesses, in order.
//!
//! A view is a displacement and a layout that repeats without end. It is never expanded: setting a view of any number
//! of blocks is free, and an access walks only the blocks that it touches.

use crate::runs::{RunList, StridedRun};
use fastpath_base::layout::Layout;
use std::ops::Range;
use std::sync::Arc;

/// A view of a file. Positions count its bytes from 0, and [`View::offset_of`] maps them to offsets in the file.
#[derive(Debug, Clone)]
pub struct View {
    displacement: i64,
    filetype: Arc<Layout>,
}

/// Bytes of an access that are walked to estimate its mean piece size.
const SAMPLE: u64 = 1 << 14;

/// Bytes of a view in the first walk for runs. Each further walk covers twice as many.
const WALK: u64 = 1 << 16;

/// A number that is never reached. As repetitions of the filetype in a walk it means no limit. As the smallest number
/// of pieces that form a run it means that no pieces do.
const ENDLESS: u64 = u64::MAX;

impl View {
    /// Returns a view that starts at byte `displacement` of the file and repeats `filetype`.
    pub fn new(displacement: i64, filetype: Arc<Layout>) -> View {
        View { displacement, filetype }
    }

    /// Returns the bytes of the view in one repetition. With 0, the view selects nothing.
    pub fn size(&self) -> u64 {
        self.filetype.size()
    }

    /// Returns the start of the view in the file, in bytes.
    pub fn displacement(&self) -> i64 {
        self.displacement
    }

    /// Returns whether bytes `from..from + len` of the view lie within a file, whose offsets have 63 bits.
    pub fn can_reach(&self, from: u64, len: u64) -> bool {
        if len == 0 {
            return true;
        }
        if self.size() == 0 {
            return false;
        }
        let Some(last) = from.checked_add(len - 1) else {
            return false;
        };
        let layout = &self.filetype;
        let high = i128::from(last / self.size()) * i128::from(layout.extent())
            + i128::from(layout.true_lb())
            + i128::from(layout.true_extent())
            + i128::from(self.displacement);
        (0..=i128::from(i64::MAX)).contains(&high) && last <= i64::MAX as u64
    }

    /// Returns the offset in the file of byte `position` of the view, or none if no file can reach it.
    pub fn offset_of(&self, position: u64) -> Option<i64> {
        if !self.can_reach(position, 1) {
            return None;
        }
        let mut offset = 0;
        self.filetype.for_each_run(ENDLESS, position, 1, |run| offset = run.offset);
        offset.checked_add(self.displacement)
    }

    /// Returns the offset of byte `position` if the view has no gaps, so that every access is one piece.
    pub fn dense_offset(&self, position: u64) -> Option<i64> {
        let dense = self.filetype.is_contiguous() && self.size() > 0;
        dense.then(|| self.displacement.wrapping_add_unsigned(position))
    }

    /// Returns the bytes of the view before byte `offset` of the file. Blocks must ascend, as MPI requires.
    pub fn bytes_before(&self, offset: i64) -> u64 {
        let (size, extent) = (self.size(), self.filetype.extent());
        let first = self.displacement.saturating_add(self.filetype.true_lb());
        if size == 0 || extent <= 0 || offset <= first {
            return 0;
        }
        let whole = ((offset - first) / extent) as u64;
        let Some(start) = whole.checked_mul(size) else {
            return i64::MAX as u64;
        };
        if i64::try_from(size) == Ok(extent) && self.filetype.is_contiguous() {
            return (offset - first) as u64;
        }
        let (mut low, mut high) = (0, size);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.offset_of(start + middle) {
                Some(at) if at < offset => low = middle + 1,
                _ => high = middle,
            }
        }
        start + low
    }

    /// Returns whether offsets ascend with positions. A range of the file is then one range of the view.
    pub fn is_ascending(&self) -> bool {
        let layout = &self.filetype;
        layout.is_ascending() && layout.extent() >= layout.true_extent()
    }

    /// Returns the positions in `within`, of an ascending view, that lie in `window` of the file.
    pub fn positions_in(&self, window: &Range<i64>, within: Range<u64>) -> Range<u64> {
        let place = |offset| self.bytes_before(offset).clamp(within.start, within.end);
        match window.is_empty() {
            true => within.start..within.start,
            false => place(window.start)..place(window.end),
        }
    }

    /// Returns the mean bytes of a piece, estimated from the first pieces. It is `len` if the bytes are one piece.
    pub fn piece_bytes(&self, from: u64, len: u64) -> u64 {
        if self.dense_offset(from).is_some() {
            return len;
        }
        let (sample, mut pieces) = (len.min(SAMPLE), 0);
        self.for_each_piece(from, sample, |_, _| pieces += 1);
        match pieces {
            1 => len,
            pieces => sample / pieces.max(1),
        }
    }

    /// Returns at most `most` runs of an ascending view from byte `from`, and their bytes: up to `len`.
    pub fn runs(&self, from: u64, len: u64, most: usize) -> (Vec<StridedRun>, u64) {
        let mut list = RunList::new(most);
        let (mut done, mut step) = (0, WALK);
        while done < len && !list.is_full() {
            let now = step.min(len - done);
            self.filetype.for_each_run(ENDLESS, from + done, now, |run| {
                list.add(StridedRun {
                    offset: run.offset.wrapping_add(self.displacement),
                    len: run.len,
                    stride: run.stride,
                    count: run.count,
                })
            });
            done += now;
            step = step.saturating_mul(2);
        }
        (list.runs, list.bytes)
    }

    /// Visits the pieces of the file that hold bytes `from..from + len` of the view, in order, as offset and bytes.
    /// Adjacent pieces are merged. The view must reach the range.
    pub fn for_each_piece(&self, from: u64, len: u64, mut visit: impl FnMut(i64, u64)) {
        self.for_each_part(from, len, ENDLESS, |run| visit(run.offset, run.len));
    }

    /// Visits parts like [`View::for_each_piece`]: at least `regular` pieces at even distances, with gaps, are one run.
    pub(crate) fn for_each_part(
        &self, from: u64, len: u64, regular: u64, mut visit: impl FnMut(StridedRun),
    ) {
        let one = |(offset, len)| StridedRun { offset, len, stride: 0, count: 1 };
        let mut open: Option<(i64, u64)> = None;
        self.filetype.for_each_run(ENDLESS, from, len, |run| {
            let mut at = run.offset.wrapping_add(self.displacement);
            if run.count >= regular && run.stride > run.len as i64 {
                if let Some(piece) = open.take() {
                    visit(one(piece));
                }
                visit(StridedRun {
                    offset: at,
                    len: run.len,
                    stride: run.stride,
                    count: run.count,
                });
                return;
            }
            for _ in 0..run.count {
                match &mut open {
                    Some((start, bytes)) if start.wrapping_add_unsigned(*bytes) == at => {
                        *bytes += run.len;
                    }
                    _ => {
                        if let Some(piece) = open.replace((at, run.len)) {
                            visit(one(piece));
                        }
                    }
                }
                at = at.wrapping_add(run.stride);
            }
        });
        if let Some(piece) = open {
            visit(one(piece));
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Blocks of `len` bytes with `gap` bytes between them, `count` times, and `tail` further bytes of extent.
    fn strided(displacement: i64, len: u64, gap: u64, count: u64, tail: u64) -> View {
        let block = Layout::contiguous(len).unwrap();
        let places = (0..count).map(|i| (i * (len + gap)) as i64);
        let layout = Layout::indexed(&block, 1, places).unwrap();
        let extent = count * (len + gap) + tail;
        View::new(displacement, Arc::new(layout.resized(0, extent as i64).unwrap()))
    }

    #[test]
    fn view__of_a_thousand_million_blocks_is_walked_where_it_is_used() {
        let eight = Layout::contiguous(8).unwrap().resized(0, 32).unwrap();
        let view = View::new(5, Arc::new(eight.repeat(1_000_000_000).unwrap()));
        let mut pieces = vec![];
        view.for_each_piece(8 * 999_999_999, 12, |at, len| pieces.push((at, len)));
        let end = 5 + 32 * 999_999_999;
        assert_eq!(pieces, [(end, 8), (end + 32, 4)]);
        assert_eq!(view.bytes_before(end + 3), 8 * 999_999_999 + 3);
    }

    #[test]
    fn view__ends_where_offsets_do() {
        let byte = Layout::contiguous(1).unwrap();
        let view = View::new(i64::MAX - 3, Arc::new(byte));
        assert!(view.can_reach(0, 3) && !view.can_reach(0, 4) && view.can_reach(9, 0));
        assert_eq!(view.offset_of(2), Some(i64::MAX - 1));
        assert_eq!(view.offset_of(3), None);
        let empty = View::new(0, Arc::new(Layout::empty()));
        assert!(!empty.can_reach(0, 1));
        assert_eq!(empty.bytes_before(100), 0);
    }

    proptest! {
        #[test]
        fn view__agrees_with_a_list_of_all_its_bytes(
            displacement in 0i64..20, len in 1u64..6, gap in 0u64..5, count in 1u64..5, tail in 0u64..4,
            from in 0u64..60, bytes in 0u64..40,
        ) {
            let view = strided(displacement, len, gap, count, tail);
            let tile = (count * (len + gap) + tail) as i64;
            let all: Vec<i64> = (0..120i64)
                .flat_map(|t| (0..count as i64).flat_map(move |b| (0..len as i64).map(move |i|
                    displacement + t * tile + b * (len + gap) as i64 + i)))
                .collect();
            let mut walked = vec![];
            let mut last = i64::MIN;
            view.for_each_piece(from, bytes, |at, n| {
                assert!(at > last, "pieces are apart");
                last = at + n as i64;
                walked.extend(at..at + n as i64);
            });
            prop_assert_eq!(&walked[..], &all[from as usize..(from + bytes) as usize]);
            for (position, &at) in all.iter().enumerate().take(100) {
                prop_assert_eq!(view.offset_of(position as u64), Some(at));
            }
            for offset in 0..60 {
                let before = all.iter().filter(|&&at| at < offset).count() as u64;
                prop_assert_eq!(view.bytes_before(offset), before);
            }
            prop_assert!(view.is_ascending());
            let (runs, covered) = view.runs(from, bytes, 3);
            let listed: Vec<i64> = runs
                .iter()
                .flat_map(|run| (0..run.count as i64).map(move |i| run.offset + i * run.stride))
                .zip(runs.iter().flat_map(|run| vec![run.len as i64; run.count as usize]))
                .flat_map(|(at, len)| at..at + len)
                .collect();
            prop_assert!(runs.len() == 3 || covered == bytes);
            prop_assert_eq!(&listed[..], &walked[..covered as usize]);
            for window in [0..30, 17..25, 5..5, 40..90] {
                let inside = view.positions_in(&window, from..from + bytes);
                let there: Vec<i64> = walked.iter().copied().filter(|at| window.contains(at)).collect();
                let named = inside.start as usize..inside.end as usize;
                prop_assert_eq!(&all[named], &there[..]);
            }
        }
    }
}
