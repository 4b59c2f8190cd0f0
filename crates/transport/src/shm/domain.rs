//! Memory domain: the node segment as the transport uses it.
#![allow(unsafe_code)]

use super::wire::PairRegion;
use fastpath_base::exit;
use fastpath_base::sync::{AtomicU32, AtomicU64, Ordering};
use fastpath_job::Job;
use fastpath_segment::{RankPage, SegmentError, has_left};

/// This transport's part of the node segment.
pub struct Domain {
    /// Job, which lives as long as the process.
    pub job: &'static Job,
    /// This process's rank.
    pub me: u32,
    /// Two random words by which peers verify that they reach this process's memory. Peers store the address as a
    /// number, so this reference shows leak checkers that the words are in use.
    witness: &'static [u64; 2],
    pub(super) streams: &'static AtomicU32,
}

fn make_witness(job_id: u64, rank: u32) -> [u64; 2] {
    [
        fastpath_base::clock::now_ns().wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ job_id,
        job_id.rotate_left(32) ^ u64::from(std::process::id()) ^ (u64::from(rank) << 32),
    ]
}

impl Domain {
    /// Creates the domain of a job, and publishes its witness.
    pub fn new(job: &'static Job) -> Self {
        let me = job.rank() as u32;
        let domain = Domain {
            job,
            me,
            witness: exit::store(make_witness(job.job_id(), me)),
            streams: exit::store(AtomicU32::new(0)),
        };
        domain.publish_witness();
        domain
    }

    /// Region for messages from `from` to `to`; null if either rank has no place in the segment. The region is mapped,
    /// but has memory only where [`Domain::back_pair`] was called.
    pub fn pair(&self, from: u32, to: u32) -> *const PairRegion {
        self.job
            .pair_region(from as usize, to as usize)
            .map_or(std::ptr::null(), |at| at.as_ptr().cast())
    }

    /// Backs `len` bytes from `start` of the region from this rank to `to` with memory.
    pub fn back_pair(&self, to: u32, start: usize, len: usize) -> Result<(), SegmentError> {
        let segment = self.job.segment();
        if !segment.reaches(to as usize) {
            return Err(SegmentError::Ranks(to as usize + 1));
        }
        segment.back_in_pair((self.me as usize, to as usize), start, len)
    }

    /// Bytes, from the start of the region from this rank to `to`, that the launcher backed before the ranks started.
    pub fn bytes_ahead(&self, to: u32) -> usize {
        self.job.segment().bytes_ahead((self.me as usize, to as usize))
    }

    fn publish_witness(&self) {
        let words = self.witness;
        let page = self.page(self.me);
        for (shared, own) in page.witness.iter().zip(words) {
            shared.store(*own, Ordering::Relaxed);
        }
        // ORDERING: release pairs with the acquire in `cma`: a reader of the address sees the words.
        page.witness_address.store(words.as_ptr().expose_provenance() as u64, Ordering::Release);
    }

    /// Offset of a rank's arena in the segment; `None` if the rank has no arena in it.
    pub fn arena_start(&self, rank: u32) -> Option<u64> {
        self.job.arena(rank as usize).map(|range| range.start)
    }

    /// Bytes of a rank's arena.
    pub fn arena_bytes(&self) -> u64 {
        self.job.segment().layout().arena_bytes()
    }

    /// State word of a rank: awake, asleep, finished or dead.
    pub fn state_word(&self, rank: u32) -> &'static AtomicU32 {
        &self.page(rank).state
    }

    /// Whether a rank has finished or died. If so, all stores before its end are visible.
    pub fn has_left(&self, rank: u32) -> bool {
        // ORDERING: acquire pairs with the release of a rank that leaves the job (`Job::set_phase`), and of the
        // launcher that marks it dead.
        has_left(self.state_word(rank).load(Ordering::Acquire))
    }

    /// Wakes a rank if one of its threads sleeps.
    pub fn wake(&self, rank: u32) {
        self.page(rank).wake();
    }

    /// Sets this rank's bit among the ranks with a ring to `rank`. Returns false if `rank` has lost its place.
    pub fn announce_ring(&self, rank: u32) -> bool {
        self.job.segment().announce_ring(self.me as usize, rank as usize)
    }

    /// See [`Segment::release_pair`](fastpath_segment::Segment::release_pair).
    pub fn release_pair(&self, left: u32) -> bool {
        self.job.segment().release_pair(self.me as usize, left as usize)
    }

    /// Word `index` of the bitmap of places whose ranks have opened a ring to `rank`.
    pub fn incoming_word(&self, rank: u32, index: usize) -> &'static AtomicU64 {
        match self.job.incoming_bitmap(rank as usize).and_then(|words| words.get(index)) {
            Some(word) => word,
            None => unreachable!("rank {rank} is not of this job"),
        }
    }

    /// Number of changes of `rank`'s bitmap of [`Domain::incoming_word`].
    pub fn incoming_generation(&self, rank: u32) -> &'static AtomicU32 {
        &self.page(rank).incoming_generation
    }

    /// Page of a rank of this job.
    pub fn page(&self, rank: u32) -> &'static RankPage {
        match self.job.rank_page(rank as usize) {
            Some(page) => page,
            None => unreachable!("rank {rank} is not of this job"),
        }
    }
}
