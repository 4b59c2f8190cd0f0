//! Where things lie in the segment: constants and offset functions, all in bytes.

use fastpath_base::trace::AREA_BYTES;

/// Bytes of the header and of each rank's page.
pub const PAGE_BYTES: usize = 4096;

/// Bytes of the region that one sender and one receiver share.
pub const PAIR_BYTES: usize = 1088 * 1024;

/// Bytes of such a region that have memory before the ranks start, where all pairs of a node together have no more than
/// [`AHEAD_BYTES`]: what lies before the data of messages, and the room that a first message of 64 KiB asks for.
pub const PAIR_AHEAD_BYTES: usize = 148 * 1024;

/// See [`PAIR_AHEAD_BYTES`].
pub const AHEAD_BYTES: usize = 1 << 20;

/// Address range of one rank's arena (`MPI_Alloc_mem`) where the length of files is not limited; memory is taken only
/// for what is used.
pub const ARENA_BYTES: u64 = 1 << 40;

/// Most ranks of one node: the regions of all pairs fit the address space of a process.
pub const MAX_RANKS: usize = 8192;

/// Most ranks of a job: a communicator's context has room for that many leaders (`Context::from_leader` in `protocol`),
/// and a match key for more sources.
pub const MAX_JOB_RANKS: usize = 1 << 20;

/// Bytes that a job on several nodes has for each of its ranks on each of them, beside a page for those that are there.
pub const ENTRY_BYTES: usize = 16;

/// Bytes of the addresses that ranks of another node have in common.
pub const CARD_BYTES: usize = 200;

/// Pages that stand for ranks without a place in this memory: see `table::At`.
const OTHER_PAGES: usize = 4;

/// Rank numbers that a job has for `places` places of spawned ranks: places are reused, numbers are not.
pub const fn numbers_for(places: usize) -> usize {
    match places {
        0 => 0,
        1..128 => 128 * 256,
        _ => places.saturating_mul(256),
    }
}

/// Workers that a rank may have beside its first one (`MPI_THREAD_MULTIPLE`).
pub const FURTHER: usize = 7;

/// Most ranks with address space for the pair regions of further workers.
const FURTHER_RANKS: usize = 1024;

/// Alignment of the big areas: a large page.
const AREA_ALIGN: u64 = 2 << 20;

/// The offsets of a memory file with a given number of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    ranks: usize,
    /// Ranks of the whole job; 0 where it has no others.
    job: usize,
    /// A power of two, a multiple of [`AREA_ALIGN`].
    arena_bytes: u64,
    /// Further workers of each rank that there is room for: [`FURTHER`] or none.
    further: usize,
}

impl Layout {
    /// None when the number of ranks is 0 or above [`MAX_RANKS`].
    pub const fn new(ranks: usize) -> Option<Layout> {
        if ranks == 0 || ranks > MAX_RANKS {
            None
        } else {
            Some(Layout {
                ranks,
                job: 0,
                arena_bytes: ARENA_BYTES,
                further: if ranks <= FURTHER_RANKS { FURTHER } else { 0 },
            })
        }
    }

    /// The layout of one node's memory: it has room for `ranks` ranks of a job that may have `job` ranks in all. None
    /// when there are too many, or fewer in the job than on the node.
    pub const fn of_node(ranks: usize, job: usize) -> Option<Layout> {
        match Layout::new(ranks) {
            Some(layout) if ranks <= job && job <= MAX_JOB_RANKS => Some(Layout { job, ..layout }),
            _ => None,
        }
    }

    /// The next smaller one: with arenas of half the size or, when they are as small as they can be, without room for
    /// further workers.
    pub const fn smaller(self) -> Option<Layout> {
        if self.arena_bytes != AREA_ALIGN {
            return Some(Layout { arena_bytes: self.arena_bytes / 2, ..self });
        }
        match self.further {
            0 => None,
            _ => Some(Layout { further: 0, ..self }),
        }
    }

    /// The layout of a file of `bytes` bytes, for `ranks` ranks of a job of `job`, or for the whole job if that is 0;
    /// None if no layout has that length.
    pub fn of_length(ranks: usize, job: usize, bytes: u64) -> Option<Layout> {
        let largest = match job {
            0 => Layout::new(ranks)?,
            job => Layout::of_node(ranks, job)?,
        };
        std::iter::successors(Some(largest), |layout| layout.smaller())
            .find(|layout| layout.total_bytes() == bytes)
    }

    /// Number of ranks that have a place in this memory: a page, and regions with each other. A rank is counted here by
    /// its place, which is its number in the job where the job has no other memory.
    pub const fn ranks(self) -> usize {
        self.ranks
    }

    /// Whether the job has ranks in other memories.
    pub const fn has_others(self) -> bool {
        self.job != 0
    }

    /// Number of ranks that the whole job can have.
    pub const fn job_ranks(self) -> usize {
        match self.job {
            0 => self.ranks,
            job => job,
        }
    }

    /// Number of pages: those of the ranks, then those that stand for ranks without a place.
    const fn pages(self) -> usize {
        match self.job {
            0 => self.ranks,
            _ => self.ranks + OTHER_PAGES,
        }
    }

    /// Offset of the table of all ranks of the job, [`ENTRY_BYTES`] each; nothing is there where it has no others.
    pub const fn table_offset(self) -> usize {
        self.worker_bitmap_offset(self.further + 1, 0)
    }

    /// Offset of what ranks of other nodes have in common, [`CARD_BYTES`] each, at most as many as there are ranks.
    pub const fn cards_offset(self) -> usize {
        (self.table_offset() + self.job * ENTRY_BYTES).next_multiple_of(PAGE_BYTES)
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
        self.page_offset(self.pages()) + rank * self.bitmap_stride()
    }

    /// Further workers of each rank that there is room for.
    pub const fn further(self) -> usize {
        self.further
    }

    /// Offset of the row of bits for a worker of `rank`, which is at `place`: 0, its first one, or from 1 to
    /// [`Layout::further`].
    pub const fn worker_bitmap_offset(self, place: usize, rank: usize) -> usize {
        self.bitmap_offset(place * self.ranks + rank)
    }

    /// End of what every rank may use from the first moment: header, pages, bitmaps and the table. The creator has it
    /// backed as far as ranks are there.
    pub const fn front_bytes(self) -> usize {
        (self.cards_offset() + self.job * CARD_BYTES).next_multiple_of(PAGE_BYTES)
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
        self.mapped_bytes_of(self.ranks)
    }

    /// The same where the pairs of the first `ranks` ranks are enough.
    pub const fn mapped_bytes_of(self, ranks: usize) -> u64 {
        self.pair_area_offset() + (ranks * (ranks + 1)) as u64 * PAIR_BYTES as u64
    }

    /// Bytes of the regions of all pairs.
    const fn pair_area_bytes(self) -> u64 {
        (self.ranks * (self.ranks + 1)) as u64 * PAIR_BYTES as u64
    }

    /// Offset of the pair regions of further workers, which who has such workers maps.
    pub const fn further_offset(self) -> u64 {
        self.mapped_bytes().next_multiple_of(AREA_ALIGN)
    }

    /// Bytes of all of them.
    pub const fn further_bytes(self) -> u64 {
        self.further as u64 * self.pair_area_bytes()
    }

    /// Offset of the region by which the workers at `place` of two ranks reach each other: as
    /// [`Layout::pair_offset`], which it is for place 0.
    pub const fn worker_pair_offset(self, place: usize, src: usize, dst: usize) -> u64 {
        let first = self.pair_offset(src, dst);
        if place == 0 {
            return first;
        }
        let areas = (place - 1) as u64 * self.pair_area_bytes();
        self.further_offset() + areas + first - self.pair_area_offset()
    }

    /// Address range of one rank's arena.
    pub const fn arena_bytes(self) -> u64 {
        self.arena_bytes
    }

    /// Offset of a rank's arena.
    pub const fn arena_offset(self, rank: usize) -> u64 {
        (self.further_offset() + self.further_bytes()).next_multiple_of(AREA_ALIGN)
            + rank as u64 * self.arena_bytes
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
                let bytes = layout.total_bytes();
                assert_eq!(Layout::of_length(ranks, 0, bytes), Some(layout));
                assert_eq!(Layout::of_length(ranks, 0, bytes + PAGE_BYTES as u64), None);
                next = layout.smaller();
                sizes += 1;
            }
            assert_eq!(sizes, (ARENA_BYTES / AREA_ALIGN).ilog2() + 2);
        }
        assert_eq!(Layout::of_length(0, 0, 0), None);
        let part = Layout::of_node(4, 1 << 17).unwrap();
        let bytes = part.total_bytes();
        assert_eq!(Layout::of_length(4, 1 << 17, bytes), Some(part));
        assert_eq!(Layout::of_length(4, 0, bytes), None);
    }

    #[test]
    fn part__has_room_for_its_ranks_and_words_for_all_of_the_job() {
        let whole = Layout::new(4).unwrap();
        for job in [4, 100_000, MAX_JOB_RANKS] {
            let part = Layout::of_node(4, job).unwrap();
            assert_eq!((part.ranks(), part.job_ranks()), (4, job));
            assert_eq!(part.bitmap_offset(0), part.page_offset(4 + OTHER_PAGES));
            assert_eq!(part.table_offset() % 64, 0);
            assert!(part.cards_offset() >= part.table_offset() + job * ENTRY_BYTES);
            assert!(part.front_bytes() >= part.cards_offset() + job * CARD_BYTES);
            // The rest is as large as for four ranks alone.
            let rest = |l: Layout| l.total_bytes() - l.pair_area_offset();
            assert_eq!(rest(part), rest(whole));
        }
        assert!(Layout::of_node(4, 3).is_none() && Layout::of_node(0, 3).is_none());
        assert!(Layout::of_node(4, MAX_JOB_RANKS + 1).is_none());
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
            assert_eq!(l.further(), if ranks > FURTHER_RANKS { 0 } else { FURTHER });
            assert!(l.arena_offset(0) >= l.further_offset() + l.further_bytes());
            assert!(l.further_offset() >= l.mapped_bytes());
            assert_eq!(l.trace_offset(0), l.arena_offset(ranks - 1) + ARENA_BYTES);
            assert_eq!(l.total_bytes(), l.trace_offset(ranks - 1) + AREA_BYTES);
            assert!(l.total_bytes() < i64::MAX as u64);
        }
    }

    #[test]
    fn pairs__lie_side_by_side_and_nowhere_twice() {
        for ranks in [1, 2, 7, 64] {
            let l = Layout::new(ranks).unwrap();
            let last = l.pair_offset(ranks - 1, ranks - 1) + 2 * PAIR_BYTES as u64;
            assert_eq!(Layout::new(100).unwrap().mapped_bytes_of(ranks) - last, {
                Layout::new(100).unwrap().pair_area_offset() - l.pair_area_offset()
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
    fn pairs_of_further_workers__lie_behind_the_first_ones() {
        let l = Layout::new(3).unwrap();
        assert_eq!(l.worker_pair_offset(0, 2, 1), l.pair_offset(2, 1));
        assert_eq!(l.worker_pair_offset(1, 0, 0), l.further_offset());
        let last = l.worker_pair_offset(FURTHER, 2, 2) + 2 * PAIR_BYTES as u64;
        assert_eq!(last, l.further_offset() + l.further_bytes());
        assert_eq!(l.worker_bitmap_offset(0, 2), l.bitmap_offset(2));
        let after = l.worker_bitmap_offset(FURTHER, 2) + l.bitmap_stride();
        assert!(after <= l.front_bytes());
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
