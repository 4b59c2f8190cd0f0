//! Offsets in the segment, in bytes.

use fastpath_base::trace::AREA_BYTES;

/// Bytes of the header, and of each rank's page.
pub const PAGE_BYTES: usize = 4096;

/// Bytes of the region of one sender and one receiver.
pub const PAIR_BYTES: usize = 1088 * 1024;

/// Bytes at the start of each pair region that are backed before the ranks start. They hold everything before the data
/// area, and a first message of 64 KiB. Nothing is backed if all pairs of a node need more than [`AHEAD_BYTES`].
pub const PAIR_AHEAD_BYTES: usize = 148 * 1024;

/// Limit, in bytes, of the memory backed before the ranks start, for all pairs of a node together.
pub const AHEAD_BYTES: usize = 1 << 20;

/// Address range of one rank's arena (`MPI_Alloc_mem`), in bytes, if file sizes are unlimited. Only used parts take
/// memory.
pub const ARENA_BYTES: u64 = 1 << 40;

/// Maximum number of ranks of one node. With this number, the regions of all pairs still fit a process's address space.
pub const MAX_RANKS: usize = 8192;

/// Maximum number of ranks of a job. It is the number of leaders that a communicator's context can encode
/// (`Context::from_leader` in `protocol`). A match key can encode more sources.
pub const MAX_JOB_RANKS: usize = 1 << 20;

/// Size of a table entry, in bytes. In a job on several nodes, each node has an entry for each rank of the job.
pub const ENTRY_BYTES: usize = 16;

/// Size, in bytes, of the card of addresses that all ranks of another node share.
pub const CARD_BYTES: usize = 200;

/// Number of pages that represent ranks without a place in this memory: see `table::RankLocation`.
const OTHER_PAGES: usize = 4;

/// Number of rank numbers reserved for `places` places of spawned ranks. There are more numbers than places, because
/// places are reused and rank numbers are not.
pub const fn numbers_for(places: usize) -> usize {
    match places {
        0 => 0,
        1..128 => 128 * 256,
        _ => places.saturating_mul(256),
    }
}

const AREA_ALIGN: u64 = 2 << 20;

/// Offsets in a memory file for a given number of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentLayout {
    ranks: usize,
    /// Number of ranks of the whole job; 0 if all of them have a place here.
    job: usize,
    /// Length of one arena, in bytes: a power of two, and a multiple of [`AREA_ALIGN`].
    arena_bytes: u64,
}

impl SegmentLayout {
    /// Makes the layout for `ranks` ranks; `None` if that is 0 or above [`MAX_RANKS`].
    pub const fn new(ranks: usize) -> Option<SegmentLayout> {
        if ranks == 0 || ranks > MAX_RANKS {
            None
        } else {
            Some(SegmentLayout { ranks, job: 0, arena_bytes: ARENA_BYTES })
        }
    }

    /// Makes the layout of one node with `ranks` places, of a job of at most `job` ranks. `None` if there are too many,
    /// or fewer in the job than on the node.
    pub const fn of_node(ranks: usize, job: usize) -> Option<SegmentLayout> {
        match SegmentLayout::new(ranks) {
            Some(layout) if ranks <= job && job <= MAX_JOB_RANKS => {
                Some(SegmentLayout { job, ..layout })
            }
            _ => None,
        }
    }

    /// Returns the layout with arenas of half the size; `None` if they have the smallest size.
    pub const fn smaller(self) -> Option<SegmentLayout> {
        match self.arena_bytes {
            AREA_ALIGN => None,
            bytes => Some(SegmentLayout { arena_bytes: bytes / 2, ..self }),
        }
    }

    /// Returns the layout whose file has `bytes` bytes, for `ranks` places in a job of at most `job` ranks. If `job` is
    /// 0, all ranks of the job have a place. `None` if no layout has that length.
    pub fn of_length(ranks: usize, job: usize, bytes: u64) -> Option<SegmentLayout> {
        let largest = match job {
            0 => SegmentLayout::new(ranks)?,
            job => SegmentLayout::of_node(ranks, job)?,
        };
        std::iter::successors(Some(largest), |layout| layout.smaller())
            .find(|layout| layout.total_bytes() == bytes)
    }

    /// Number of places. A rank with a place has a page here, and a region for each other place. If the job has only
    /// this memory, a rank's place is its number.
    pub const fn ranks(self) -> usize {
        self.ranks
    }

    /// Returns whether the job has ranks in other memories.
    pub const fn has_others(self) -> bool {
        self.job != 0
    }

    /// Largest number of ranks of the whole job.
    pub const fn job_ranks(self) -> usize {
        match self.job {
            0 => self.ranks,
            job => job,
        }
    }

    const fn pages(self) -> usize {
        match self.job {
            0 => self.ranks,
            _ => self.ranks + OTHER_PAGES,
        }
    }

    /// Offset of the table of all ranks of the job, [`ENTRY_BYTES`] each; empty if all ranks have a place here.
    pub const fn table_offset(self) -> usize {
        self.bitmap_offset(self.ranks)
    }

    /// Offset of the common cards of other nodes' ranks, [`CARD_BYTES`] each, at most one per rank.
    pub const fn cards_offset(self) -> usize {
        (self.table_offset() + self.job * ENTRY_BYTES).next_multiple_of(PAGE_BYTES)
    }

    /// Offset of a page; `rank` is below [`SegmentLayout::ranks`].
    pub const fn page_offset(self, rank: usize) -> usize {
        PAGE_BYTES * (1 + rank)
    }

    /// Number of words of a bitmap row that hold bits of ranks. The rest of the row is padding.
    pub const fn bitmap_words(self) -> usize {
        self.ranks.div_ceil(64)
    }

    /// Length of a bitmap row, in bytes: a multiple of a cache line.
    pub const fn bitmap_stride(self) -> usize {
        self.bitmap_words().div_ceil(8) * 64
    }

    /// Offset of the row of bits that senders set for `rank`.
    pub const fn bitmap_offset(self, rank: usize) -> usize {
        self.page_offset(self.pages()) + rank * self.bitmap_stride()
    }

    /// End of the header, pages, bitmaps, table and cards, in bytes. The creator backs the parts of the present ranks.
    pub const fn front_bytes(self) -> usize {
        (self.cards_offset() + self.job * CARD_BYTES).next_multiple_of(PAGE_BYTES)
    }

    /// Offset of the first pair region.
    pub const fn pair_area_offset(self) -> u64 {
        (self.front_bytes() as u64).next_multiple_of(AREA_ALIGN)
    }

    /// Offset of the region that `src` fills and `dst` empties, both below [`SegmentLayout::ranks`]. Both directions of
    /// a pair are adjacent, and so are all pairs of a rank with lower ranks. One page of a page table thus maps both
    /// directions and several pairs.
    pub const fn pair_offset(self, src: usize, dst: usize) -> u64 {
        let (low, high) = if src < dst { (src, dst) } else { (dst, src) };
        let index = high * (high + 1) + 2 * low + (src > dst) as usize;
        self.pair_area_offset() + index as u64 * PAIR_BYTES as u64
    }

    /// End of the part that each rank maps as a whole.
    pub const fn mapped_bytes(self) -> u64 {
        self.mapped_bytes_of(self.ranks)
    }

    /// End of the mapped part if only the pairs of the first `ranks` ranks are mapped.
    pub const fn mapped_bytes_of(self, ranks: usize) -> u64 {
        self.pair_area_offset() + (ranks * (ranks + 1)) as u64 * PAIR_BYTES as u64
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
            let mut next = SegmentLayout::new(ranks);
            let mut sizes = 0;
            while let Some(layout) = next {
                let bytes = layout.total_bytes();
                assert_eq!(SegmentLayout::of_length(ranks, 0, bytes), Some(layout));
                assert_eq!(SegmentLayout::of_length(ranks, 0, bytes + PAGE_BYTES as u64), None);
                next = layout.smaller();
                sizes += 1;
            }
            assert_eq!(sizes, (ARENA_BYTES / AREA_ALIGN).ilog2() + 1);
        }
        assert_eq!(SegmentLayout::of_length(0, 0, 0), None);
        let part = SegmentLayout::of_node(4, 1 << 17).unwrap();
        let bytes = part.total_bytes();
        assert_eq!(SegmentLayout::of_length(4, 1 << 17, bytes), Some(part));
        assert_eq!(SegmentLayout::of_length(4, 0, bytes), None);
    }

    #[test]
    fn part__has_room_for_its_ranks_and_words_for_all_of_the_job() {
        let whole = SegmentLayout::new(4).unwrap();
        for job in [4, 100_000, MAX_JOB_RANKS] {
            let part = SegmentLayout::of_node(4, job).unwrap();
            assert_eq!((part.ranks(), part.job_ranks()), (4, job));
            assert_eq!(part.bitmap_offset(0), part.page_offset(4 + OTHER_PAGES));
            assert_eq!(part.table_offset() % 64, 0);
            assert!(part.cards_offset() >= part.table_offset() + job * ENTRY_BYTES);
            assert!(part.front_bytes() >= part.cards_offset() + job * CARD_BYTES);
            // The part from the pair regions on is as large as in a layout for four ranks alone.
            let rest = |l: SegmentLayout| l.total_bytes() - l.pair_area_offset();
            assert_eq!(rest(part), rest(whole));
        }
        assert!(SegmentLayout::of_node(4, 3).is_none() && SegmentLayout::of_node(0, 3).is_none());
        assert!(SegmentLayout::of_node(4, MAX_JOB_RANKS + 1).is_none());
    }

    #[test]
    fn layout__areas_follow_each_other_without_overlap() {
        for ranks in [1, 2, 3, 63, 64, 65, 1000, MAX_RANKS] {
            let l = SegmentLayout::new(ranks).unwrap();
            assert_eq!(l.page_offset(0), PAGE_BYTES);
            assert_eq!(l.bitmap_offset(0), l.page_offset(ranks - 1) + PAGE_BYTES);
            assert!(l.bitmap_stride() >= ranks.div_ceil(64) * 8);
            assert!(l.front_bytes() as u64 <= l.pair_area_offset());
            assert_eq!(l.pair_offset(0, 0), l.pair_area_offset());
            // The pair of a rank with itself has one region, not two.
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
            let l = SegmentLayout::new(ranks).unwrap();
            let last = l.pair_offset(ranks - 1, ranks - 1) + 2 * PAIR_BYTES as u64;
            assert_eq!(SegmentLayout::new(100).unwrap().mapped_bytes_of(ranks) - last, {
                SegmentLayout::new(100).unwrap().pair_area_offset() - l.pair_area_offset()
            });
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
        let l = SegmentLayout::new(65).unwrap();
        assert_eq!(l.bitmap_offset(3) % 64, 0);
        assert_eq!(l.pair_offset(3, 4) % PAGE_BYTES as u64, 0);
        assert_eq!(l.arena_offset(64) % AREA_ALIGN, 0);
    }

    #[test]
    fn layout__refuses_none_and_too_many() {
        assert!(SegmentLayout::new(0).is_none());
        assert!(SegmentLayout::new(MAX_RANKS + 1).is_none());
    }
}
