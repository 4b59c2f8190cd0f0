//! Where things lie in the segment: constants and offset functions, all in bytes.

use fastpath_base::trace::AREA_BYTES;

/// Bytes of the header and of each rank's page.
pub const PAGE_BYTES: usize = 4096;

/// Bytes of the region that one sender and one receiver share.
pub const PAIR_BYTES: usize = 1088 * 1024;

/// Address range of one rank's arena (`MPI_Alloc_mem`) where the length of files is not limited; memory is taken only
/// for what is used.
pub const ARENA_BYTES: u64 = 1 << 40;

/// Most ranks a segment is laid out for: the regions of all pairs fit the address space of a process.
pub const MAX_RANKS: usize = 8192;

/// Alignment of the two big areas: a large page.
const AREA_ALIGN: u64 = 2 << 20;

/// The offsets of a job with a given number of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    ranks: usize,
    /// A power of two, a multiple of [`AREA_ALIGN`].
    arena_bytes: u64,
}

impl Layout {
    /// None when the number of ranks is 0 or above [`MAX_RANKS`].
    pub const fn new(ranks: usize) -> Option<Layout> {
        if ranks == 0 || ranks > MAX_RANKS {
            None
        } else {
            Some(Layout {
                ranks,
                arena_bytes: ARENA_BYTES,
            })
        }
    }

    /// The same with arenas of half the size; None when they are as small as they can be.
    pub const fn with_smaller_arenas(self) -> Option<Layout> {
        if self.arena_bytes == AREA_ALIGN {
            return None;
        }
        Some(Layout {
            ranks: self.ranks,
            arena_bytes: self.arena_bytes / 2,
        })
    }

    /// The layout of a file with so many bytes; None when no size of the arenas gives that length.
    pub fn of_length(ranks: usize, bytes: u64) -> Option<Layout> {
        let largest = Layout::new(ranks)?;
        std::iter::successors(Some(largest), |layout| layout.with_smaller_arenas())
            .find(|layout| layout.total_bytes() == bytes)
    }

    /// Number of ranks.
    pub const fn ranks(self) -> usize {
        self.ranks
    }

    /// Offset of a rank's page. `rank` below [`Layout::ranks`].
    pub const fn page_offset(self, rank: usize) -> usize {
        PAGE_BYTES * (1 + rank)
    }

    /// Words of one row of the incoming bitmaps that hold a bit of some rank.
    pub const fn bitmap_words(self) -> usize {
        self.ranks.div_ceil(64)
    }

    /// Bytes from one row to the next: whole cache lines.
    pub const fn bitmap_stride(self) -> usize {
        self.bitmap_words().div_ceil(8) * 64
    }

    /// Offset of the row of bits that senders set for `rank`.
    pub const fn bitmap_offset(self, rank: usize) -> usize {
        self.page_offset(self.ranks) + rank * self.bitmap_stride()
    }

    /// End of what every rank uses from the first moment: header, pages and bitmaps. The
    /// creator has all of it backed.
    pub const fn front_bytes(self) -> usize {
        self.bitmap_offset(self.ranks).next_multiple_of(PAGE_BYTES)
    }

    /// Offset of the first pair region.
    pub const fn pair_area_offset(self) -> u64 {
        (self.front_bytes() as u64).next_multiple_of(AREA_ALIGN)
    }

    /// Offset of the region that `src` fills and `dst` empties. Both below [`Layout::ranks`]. The two directions of a
    /// pair lie side by side, and so do the pairs of a rank with those below it: one page of a page table serves both
    /// directions, and several pairs.
    pub const fn pair_offset(self, src: usize, dst: usize) -> u64 {
        let (low, high) = if src < dst { (src, dst) } else { (dst, src) };
        let index = high * (high + 1) + 2 * low + (src > dst) as usize;
        self.pair_area_offset() + index as u64 * PAIR_BYTES as u64
    }

    /// End of the part that each rank maps as a whole.
    pub const fn mapped_bytes(self) -> u64 {
        self.pair_area_offset() + (self.ranks * (self.ranks + 1)) as u64 * PAIR_BYTES as u64
    }

    /// Address range of one rank's arena.
    pub const fn arena_bytes(self) -> u64 {
        self.arena_bytes
    }

    /// Offset of a rank's arena.
    pub const fn arena_offset(self, rank: usize) -> u64 {
        self.mapped_bytes().next_multiple_of(AREA_ALIGN) + rank as u64 * self.arena_bytes
    }

    /// Offset of a rank's trace (`fastpath_base::trace`).
    pub const fn trace_offset(self, rank: usize) -> u64 {
        self.arena_offset(self.ranks) + rank as u64 * AREA_BYTES
    }

    /// Length of the file.
    pub const fn total_bytes(self) -> u64 {
        self.trace_offset(self.ranks)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn layout__is_found_by_the_length_of_the_file() {
        for ranks in [1, 4, 100] {
            let mut next = Layout::new(ranks);
            let mut sizes = 0;
            while let Some(layout) = next {
                assert_eq!(Layout::of_length(ranks, layout.total_bytes()), Some(layout));
                assert_eq!(
                    Layout::of_length(ranks, layout.total_bytes() + PAGE_BYTES as u64),
                    None
                );
                next = layout.with_smaller_arenas();
                sizes += 1;
            }
            assert_eq!(sizes, (ARENA_BYTES / AREA_ALIGN).ilog2() + 1);
        }
        assert_eq!(Layout::of_length(0, 0), None);
    }

    #[test]
    fn layout__areas_follow_each_other_without_overlap() {
        for ranks in [1, 2, 3, 63, 64, 65, 1000, MAX_RANKS] {
            let l = Layout::new(ranks).unwrap();
            assert_eq!(l.page_offset(0), PAGE_BYTES);
            assert_eq!(l.bitmap_offset(0), l.page_offset(ranks - 1) + PAGE_BYTES);
            assert!(l.bitmap_stride() >= ranks.div_ceil(64) * 8);
            assert!(l.front_bytes() as u64 <= l.pair_area_offset());
            assert_eq!(l.pair_offset(0, 0), l.pair_area_offset());
            // A rank has no second direction to itself.
            assert_eq!(
                l.mapped_bytes(),
                l.pair_offset(ranks - 1, ranks - 1) + 2 * PAIR_BYTES as u64
            );
            assert!(l.arena_offset(0) >= l.mapped_bytes());
            assert_eq!(l.trace_offset(0), l.arena_offset(ranks - 1) + ARENA_BYTES);
            assert_eq!(l.total_bytes(), l.trace_offset(ranks - 1) + AREA_BYTES);
            assert!(l.total_bytes() < i64::MAX as u64);
        }
    }

    #[test]
    fn pairs__lie_side_by_side_and_nowhere_twice() {
        for ranks in [1, 2, 7, 64] {
            let l = Layout::new(ranks).unwrap();
            let offset = |src, dst| (l.pair_offset(src, dst) - l.pair_area_offset()) as usize;
            let mut seen = vec![false; ranks * (ranks + 1)];
            for (src, dst) in (0..ranks).flat_map(|src| (0..ranks).map(move |dst| (src, dst))) {
                let index = offset(src, dst) / PAIR_BYTES;
                assert!(offset(src, dst).is_multiple_of(PAIR_BYTES));
                assert!(!std::mem::replace(&mut seen[index], true));
                assert!(src == dst || offset(dst, src) / PAIR_BYTES == index ^ 1);
            }
        }
    }

    #[test]
    fn layout__is_aligned() {
        let l = Layout::new(65).unwrap();
        assert_eq!(l.bitmap_offset(3) % 64, 0);
        assert_eq!(l.pair_offset(3, 4) % PAGE_BYTES as u64, 0);
        assert_eq!(l.arena_offset(64) % AREA_ALIGN, 0);
    }

    #[test]
    fn layout__refuses_none_and_too_many() {
        assert!(Layout::new(0).is_none());
        assert!(Layout::new(MAX_RANKS + 1).is_none());
    }
}
