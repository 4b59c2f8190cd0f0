//! The memory domain: the node segment as the transport uses it.
#![allow(unsafe_code)]

use super::wire::PairRegion;
use fastpath_base::sync::{AtomicU32, AtomicU64, Ordering};
use fastpath_bootstrap::job::Job;
use fastpath_bootstrap::segment::{RankPage, SegmentError, has_left};
use std::ptr::NonNull;

/// The part of the node segment that belongs to this transport.
#[derive(Clone, Copy)]
pub struct Domain {
    /// The job; lives as long as the process.
    pub job: &'static Job,
    /// This process's rank.
    pub me: u32,
    /// Which of the ranks' workers it is for: 0, the first, or a further one.
    pub place: u32,
    /// Where the regions of further workers are mapped; none for the first one.
    further: Option<NonNull<u8>>,
    /// Two random words by which peers recognise this process's memory. Peers have their address as a number, so that a
    /// leak checker finds them here alone.
    witness: &'static [u64; 2],
    /// To how many peers this process sends streams; see `grow`.
    pub(super) streams: &'static AtomicU32,
}

/// Two words that no other process has at one address.
fn make_witness(job_id: u64, rank: u32) -> [u64; 2] {
    [
        fastpath_base::clock::now_ns().wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ job_id,
        job_id.rotate_left(32) ^ u64::from(std::process::id()) ^ (u64::from(rank) << 32),
    ]
}

impl Domain {
    /// The domain of a job.
    pub fn new(job: &'static Job) -> Self {
        let me = job.rank() as u32;
        let domain = Domain {
            job,
            me,
            place: 0,
            further: None,
            witness: Box::leak(Box::new(make_witness(job.job_id(), me))),
            streams: Box::leak(Box::new(AtomicU32::new(0))),
        };
        domain.publish_witness();
        domain
    }

    /// The same for further workers of the job's ranks, whose regions have been mapped at `area`
    /// ([`Layout::further_offset`](fastpath_bootstrap::segment::Layout::further_offset)) for the life of the process.
    pub fn further(&self, place: u32, area: NonNull<u8>) -> Self {
        Domain { place, further: Some(area), ..*self }
    }

    /// The region that carries messages from `from` to `to`; null where either has no place here. Mapped, but backed
    /// with memory only as far as [`Domain::back_pair`] made it.
    pub fn pair(&self, from: u32, to: u32) -> *const PairRegion {
        if let Some(area) = self.further {
            let segment = self.job.segment();
            let at = segment.pair_offset(self.place as usize, from as usize, to as usize);
            let Some(at) = at else {
                return std::ptr::null();
            };
            let skip = (at - segment.layout().further_offset()) as usize;
            // SAFETY: the area holds the regions of all pairs of ranks at all places, of which the place is one.
            return unsafe { area.byte_add(skip) }.as_ptr().cast();
        }
        self.job
            .pair_region(from as usize, to as usize)
            .map_or(std::ptr::null(), |at| at.as_ptr().cast())
    }

    /// Backs `len` bytes from `start` on of the region from this rank to `to` with memory.
    pub fn back_pair(&self, to: u32, start: usize, len: usize) -> Result<(), SegmentError> {
        let segment = self.job.segment();
        if !segment.reaches(to as usize) {
            return Err(SegmentError::Ranks(to as usize + 1));
        }
        segment.back_in_pair(self.place as usize, (self.me as usize, to as usize), start, len)
    }

    /// How many bytes of that region have had memory since before the ranks started.
    pub fn bytes_ahead(&self, to: u32) -> usize {
        self.job.segment().bytes_ahead(self.place as usize, (self.me as usize, to as usize))
    }

    /// Publishes on the rank's page where the witness is and what it is, so that peers can make sure whose memory they
    /// reach (see `cma`).
    fn publish_witness(&self) {
        let words = self.witness;
        let page = self.page(self.me);
        for (shared, own) in page.witness.iter().zip(words) {
            shared.store(*own, Ordering::Relaxed);
        }
        // ORDERING: release pairs with the acquire in `cma`: the words are there.
        page.witness_address.store(words.as_ptr().expose_provenance() as u64, Ordering::Release);
    }

    /// Offset of a rank's arena in the segment; None where it has none there.
    pub fn arena_start(&self, rank: u32) -> Option<u64> {
        self.job.arena(rank as usize).map(|range| range.start)
    }

    /// Bytes of a rank's arena.
    pub fn arena_bytes(&self) -> u64 {
        self.job.segment().layout().arena_bytes()
    }

    /// The word that says whether a rank is awake, asleep, finished or dead.
    pub fn state_word(&self, rank: u32) -> &'static AtomicU32 {
        self.page(rank).state_of(self.place as usize)
    }

    /// Whether a rank has finished or died. What it sent and took before can be seen after an answer of yes.
    pub fn has_left(&self, rank: u32) -> bool {
        // ORDERING: acquire pairs with the release of a rank that leaves the job (`Job::set_phase`), and of the
        // launcher that marks it dead.
        has_left(self.state_word(rank).load(Ordering::Acquire))
    }

    /// Wakes a rank if a thread of it sleeps in such a worker, or looks for it.
    pub fn wake(&self, rank: u32) {
        self.page(rank).wake(self.place as usize);
    }

    /// Sets the bit of this rank in the bitmap of those that have opened a ring to `rank`. Returns false if
    /// `rank` has ended and lost its place.
    pub fn announce_ring(&self, rank: u32) -> bool {
        let (which, me) = (self.place as usize, self.me as usize);
        self.job.segment().announce_ring(which, me, rank as usize)
    }

    /// See [`Segment::release_pair`](fastpath_bootstrap::segment::Segment::release_pair).
    pub fn release_pair(&self, left: u32) -> bool {
        let (which, me) = (self.place as usize, self.me as usize);
        self.job.segment().release_pair(which, me, left as usize)
    }

    /// Word `index` of the bitmap of ranks that have opened a ring to `rank`, each at its place.
    pub fn incoming_word(&self, rank: u32, index: usize) -> &'static AtomicU64 {
        match self
            .job
            .worker_bitmap(self.place as usize, rank as usize)
            .and_then(|words| words.get(index))
        {
            Some(word) => word,
            None => unreachable!("rank {rank} is not of this job"),
        }
    }

    /// How often `rank`'s bitmap has changed.
    pub fn incoming_generation(&self, rank: u32) -> &'static AtomicU32 {
        &self.page(rank).incoming_generation
    }

    /// The page of a rank of this job.
    pub fn page(&self, rank: u32) -> &'static RankPage {
        match self.job.rank_page(rank as usize) {
            Some(page) => page,
            None => unreachable!("rank {rank} is not of this job"),
        }
    }
}
