#![allow(unsafe_code)]
//! Reuse of the places of ended spawned ranks, for ranks spawned later (docs/decisions/0087).
//!
//! Rank numbers are never reused: a number always names one rank. A place is a page, rows of bits, pair regions, arena
//! and trace. Another rank gets the place once nothing can refer to it:
//!
//! - No process of the rank is left.
//! - No living rank of the node has a pair of rings in use with the ended rank. A bit of the incoming bitmaps marks a
//!   ring in use; the rank that opens the ring sets it. The surviving side clears the bits of both directions
//!   ([`Segment::release_pair`]) after it has dropped its lane.
//!
//! **RETIRE.** The launcher first changes the rank's table entry to name a page for ranks without a place. Then the
//! launcher reads the bits. A rank that opens a ring first sets its bit and then looks up the peer's entry
//! ([`Segment::announce_ring`]). The launcher and the rank each have a sequentially consistent fence between their two
//! steps. So the launcher sees the bit, or the rank sees that the peer has lost its place.

use crate::error::SegmentError;
use crate::layout::{PAGE_BYTES, PAIR_BYTES};
use crate::memory::Segment;
use crate::page::{RankPhase, STATE_DEAD, STATE_FINALIZED};
use crate::table::{RankEntry, RankLocation};
use fastpath_base::sync::{AtomicU64, Ordering, fence};
use fastpath_base::trace::AREA_BYTES;

/// Numbers of places for spawned ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaceCounts {
    /// Places that a rank can get now.
    pub free: usize,
    /// Places of running ranks.
    pub running: usize,
    /// Places of ended ranks to which another rank may still refer.
    pub held: usize,
}

impl PlaceCounts {
    /// Returns the number of all places for spawned ranks.
    pub fn all(self) -> usize {
        self.free + self.running + self.held
    }
}

struct PlaceSet(Vec<u64>);

impl PlaceSet {
    fn has(&self, place: usize) -> bool {
        self.0[place / 64] & 1 << (place % 64) != 0
    }

    fn add(&mut self, place: usize) {
        self.0[place / 64] |= 1 << (place % 64);
    }
}

impl Segment {
    /// Returns whether the place of a rank can be reused after the rank's end. This holds for spawned ranks only.
    pub fn has_reusable_place(&self, rank: usize) -> bool {
        rank >= self.ordered && self.place(rank).is_some_and(|place| place >= self.kept_places())
    }

    /// Returns whether a rank has ended and lost its place.
    pub fn has_lost_place(&self, rank: usize) -> bool {
        let at = self.entry(rank).map(RankEntry::place);
        matches!(at, Some(RankLocation::Ended | RankLocation::Died))
    }

    fn kept_places(&self) -> usize {
        let kept = self.header().kept_places.load(Ordering::Relaxed) as usize;
        kept.min(self.layout.ranks())
    }

    /// Returns whether the job reuses places. This requires that rank numbers do not depend on places, and that no
    /// connection of an adapter refers to a page.
    fn reuses_places(&self) -> bool {
        self.layout.has_others() && !self.is_pinned()
    }

    /// Returns whether ranks of this host use an adapter, whose connections refer to pages for the life of a process.
    pub fn is_pinned(&self) -> bool {
        self.header().is_pinned.load(Ordering::Relaxed) != 0
    }

    /// Counts the places for spawned ranks. `has_ended` returns whether no process of a rank is left.
    pub fn count_places(&self, has_ended: impl Fn(usize) -> bool) -> PlaceCounts {
        let ended = self.list_ended(has_ended);
        let held = self.list_held(&ended);
        let fresh = self.layout.ranks() - ended.len();
        let mut counts = PlaceCounts { free: fresh, ..PlaceCounts::default() };
        for (place, &has_ended) in ended.iter().enumerate().skip(self.kept_places()) {
            match has_ended {
                false => counts.running += 1,
                true if !self.reuses_places() || held.has(place) => counts.held += 1,
                true => counts.free += 1,
            }
        }
        counts
    }

    /// Takes up to `count` reusable places from ended ranks. Only the launcher calls it; see [`Segment::count_places`].
    pub fn reuse_places(&self, count: usize, has_ended: impl Fn(usize) -> bool) -> Vec<usize> {
        if count == 0 || !self.reuses_places() {
            return Vec::new();
        }
        let ended = self.list_ended(has_ended);
        let held = self.list_held(&ended);
        let places = self.kept_places()..ended.len();
        let free = places.filter(|&place| ended[place] && !held.has(place));
        free.filter(|&place| self.retire(place, &ended)).take(count).collect()
    }

    /// Returns, for each place taken so far, whether it is without a living rank: it has no rank, or no process of its
    /// rank is left. Callers use the length of the result, because [`Segment::here`] may change at any time.
    fn list_ended(&self, has_ended: impl Fn(usize) -> bool) -> Vec<bool> {
        let is_ended = |place: usize| self.rank_at(place).is_none_or(&has_ended);
        (0..self.here()).map(is_ended).collect()
    }

    fn row(&self, place: usize) -> &[AtomicU64] {
        let at = self.layout.bitmap_offset(place);
        // SAFETY: the row, of atomics, is in the mapping, aligned, and backed since a rank had the place.
        unsafe {
            let words = self.front.base.byte_add(at).cast::<AtomicU64>();
            std::slice::from_raw_parts(words.as_ptr(), self.layout.bitmap_words())
        }
    }

    /// Returns whether two places have a ring in use, in either direction.
    fn is_pair_used(&self, one: usize, two: usize) -> bool {
        // ORDERING: acquire pairs with the release in `release_pair`: the survivor has stopped using the pair's memory.
        let has = |of: usize, bit: usize| {
            self.row(of)[bit / 64].load(Ordering::Acquire) & 1 << (bit % 64) != 0
        };
        has(one, two) || has(two, one)
    }

    /// Returns the places of ended ranks to which a living rank may refer. Compares whole words, because a rank that
    /// waits for a place calls this every few milliseconds.
    fn list_held(&self, ended: &[bool]) -> PlaceSet {
        let words = self.layout.bitmap_words();
        let (mut living, mut held) = (PlaceSet(vec![0; words]), PlaceSet(vec![0; words]));
        (0..ended.len()).filter(|&place| !ended[place]).for_each(|place| living.add(place));
        for (place, &has_ended) in ended.iter().enumerate() {
            // ORDERING: acquire pairs with the release in `release_pair`, as in `is_pair_used`.
            let mut row = self.row(place).iter().map(|word| word.load(Ordering::Acquire));
            if !has_ended {
                held.0.iter_mut().zip(row).for_each(|(held, word)| *held |= word);
            } else if living.0.iter().any(|living| row.next().unwrap_or(0) & living != 0) {
                held.add(place);
            }
        }
        held
    }

    /// Returns whether a living rank may refer to the place of an ended one.
    fn is_held(&self, place: usize, ended: &[bool]) -> bool {
        let mut living = (0..ended.len()).filter(|&other| !ended[other]);
        living.any(|other| self.is_pair_used(place, other))
    }

    /// Signals the ranks that have rings with ended spawned ranks. They release the rings in their next call.
    pub fn signal_ends(&self, ended: &[usize]) {
        // ORDERING: release: a rank that sees the signal below also sees the new count (`Iface::accept`).
        self.header().events.fetch_add(1, Ordering::Release);
        let spawned = ended.iter().filter(|&&rank| self.has_reusable_place(rank));
        for page in spawned.flat_map(|&rank| self.holders(rank)).filter_map(|rank| self.page(rank))
        {
            // ORDERING: partner is the acquire in `Iface::accept`.
            page.incoming_generation.fetch_add(1, Ordering::Release);
        }
    }

    /// Signals all ranks of this node that a rank has ended. A job that continues after deaths calls it instead of
    /// [`Segment::signal_ends`], because a death concerns each communicator of the dead rank.
    pub fn signal_ends_to_all(&self) {
        // ORDERING: release: a rank that sees the signal below also sees the new count (`Iface::accept`).
        self.header().events.fetch_add(1, Ordering::Release);
        for page in self.node_ranks().filter_map(|rank| self.page(rank)) {
            // ORDERING: partner is the acquire in `Iface::accept`.
            page.incoming_generation.fetch_add(1, Ordering::Release);
        }
    }

    /// Returns the ranks that may refer to a rank's place.
    fn holders(&self, rank: usize) -> impl Iterator<Item = usize> {
        let place = self.place(rank);
        self.node_ranks().filter(move |&other| {
            let both = place.zip(self.place(other)).filter(|_| other != rank);
            both.is_some_and(|(one, two)| self.is_pair_used(one, two))
        })
    }

    /// Takes a place from an ended rank and clears its memory. Returns false if a living rank has begun to refer to the
    /// place, or the memory cannot be freed.
    fn retire(&self, place: usize, ended: &[bool]) -> bool {
        let Some(rank) = self.rank_at(place) else {
            return self.clear_place(place).is_ok();
        };
        let (Some(entry), Some(page)) = (self.entry(rank), self.page_at(RankLocation::Here(place)))
        else {
            return false;
        };
        let (at, state, phase) = match page.phase() {
            RankPhase::Finalized => (RankLocation::Ended, STATE_FINALIZED, RankPhase::Finalized),
            _ => (RankLocation::Died, STATE_DEAD, RankPhase::Initialized),
        };
        let Ok(common) = self.begin_page(at) else {
            return false;
        };
        common.set_phase(phase);
        common.set_left(state);
        entry.set_host(page.host.load(Ordering::Relaxed));
        entry.set_place(at);
        // ORDERING: RETIRE; partner is the fence in `announce_ring`.
        fence(Ordering::SeqCst);
        let is_free = !self.is_held(place, ended) && self.clear_place(place).is_ok();
        if !is_free {
            self.set_place(rank, RankLocation::Here(place));
        }
        is_free
    }

    fn clear_place(&self, place: usize) -> Result<(), SegmentError> {
        let layout = self.layout;
        for other in 0..self.here() {
            if self.is_pair_used(place, other) {
                self.give_back_pair(place, other)?;
            }
            self.row(other)[place / 64].fetch_and(!(1 << (place % 64)), Ordering::Relaxed);
        }
        self.row(place).iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.give_back(layout.arena_offset(place), layout.arena_bytes())?;
        self.give_back(layout.trace_offset(place), AREA_BYTES)?;
        // The page reads as zeros afterwards, as it did for the first rank at this place.
        self.give_back(layout.page_offset(place) as u64, PAGE_BYTES as u64)
    }

    /// Frees the memory of both directions of a pair, which are adjacent.
    fn give_back_pair(&self, one: usize, two: usize) -> Result<(), SegmentError> {
        let offset = |from, to| self.layout.pair_offset(from, to);
        self.give_back(offset(one, two).min(offset(two, one)), 2 * PAIR_BYTES as u64)
    }

    /// Marks a ring as open: sets the bit of `me` in the row of `peer`. Returns false if the peer has lost its place.
    pub fn announce_ring(&self, me: usize, peer: usize) -> bool {
        let (Some(own), Some(place)) = (self.place(me), self.place(peer)) else {
            return false;
        };
        let (word, bit) = (&self.row(place)[own / 64], 1 << (own % 64));
        // ORDERING: release pairs with the acquire in the transport's `Iface::accept`: the region is backed.
        word.fetch_or(bit, Ordering::Release);
        // ORDERING: RETIRE; partner is the fence in `retire`.
        fence(Ordering::SeqCst);
        if self.place(peer) == Some(place) {
            return true;
        }
        // If another rank already has the place, that rank may see the bit for a moment, and finds an empty ring.
        word.fetch_and(!bit, Ordering::Relaxed);
        false
    }

    /// Frees the memory of the pair of rank `me`, which is this process, and rank `left`. This process must no longer
    /// use that memory. Returns false if rank `left` has no place, or the kernel keeps the memory. If the kernel keeps
    /// the memory, the bits of the pair stay set, and so the place stays held.
    pub fn release_pair(&self, me: usize, left: usize) -> bool {
        let (Some(own), Some(place)) = (self.place(me), self.place(left)) else {
            return false;
        };
        if self.give_back_pair(own, place).is_err() {
            return false;
        }
        for (of, bit) in [(own, place), (place, own)] {
            // ORDERING: release pairs with the acquires in `is_pair_used` and `list_held`.
            self.row(of)[bit / 64].fetch_and(!(1 << (bit % 64)), Ordering::Release);
        }
        true
    }
}

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::{RankPage, SpareRanks};
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    /// A job of two ranks with space for two spawned ones.
    fn job() -> (Segment, Segment) {
        let spare = SpareRanks { ranks: 2, foreign: 0 };
        let a = Segment::create_for_node(&[0, 1], 2, spare, 7).unwrap();
        let b = Segment::attach(a.file().unwrap().try_clone_to_owned().unwrap(), 7).unwrap();
        (a, b)
    }

    fn nothing(_: usize, _: &RankPage) {}

    fn add(segment: &Segment, ranks: usize, free: &[usize]) -> Result<usize, SegmentError> {
        segment.add_ranks_at(ranks, free, |_| None, nothing)
    }

    #[test]
    fn place__of_an_ended_rank_is_reused_and_its_number_is_not() {
        let (a, b) = job();
        let ended = RefCell::new(BTreeSet::new());
        let has_ended = |rank: usize| ended.borrow().contains(&rank);
        assert_eq!(add(&a, 2, &[]).unwrap(), 2);
        assert!(add(&a, 1, &[]).is_err() && a.reuse_places(1, has_ended).is_empty());
        a.page(2).unwrap().set_phase(RankPhase::Finalized);
        a.page(2).unwrap().host.store(9, Ordering::Relaxed);
        a.page(3).unwrap().exit_status.store(5, Ordering::Relaxed);
        for rank in [2, 3] {
            ended.borrow_mut().insert(rank);
            let counts = PlaceCounts { free: rank - 1, running: 3 - rank, held: 0 };
            assert_eq!(a.count_places(has_ended), counts);
        }
        let free = a.reuse_places(2, has_ended);
        assert_eq!((&free[..], add(&a, 2, &free).unwrap()), (&[2, 3][..], 4));
        assert_eq!((b.present(), b.here()), (6, 4));
        assert_eq!([4, 5].map(|rank| b.place(rank)), [Some(2), Some(3)]);
        assert_eq!(b.node_ranks().collect::<Vec<_>>(), [0, 1, 4, 5]);
        assert_eq!(b.page(5).unwrap().exit_status.load(Ordering::Relaxed), 0);
        // The old rank numbers keep their states.
        let state = |rank: usize| b.page(rank).unwrap().state.load(Ordering::Relaxed);
        assert_eq!([2, 3, 4].map(state), [STATE_FINALIZED, STATE_DEAD, 0]);
        assert_eq!((b.host(2), b.is_elsewhere(2)), (9, false));
        for rank in [2, 3] {
            assert!(b.place(rank).is_none() && b.arena(rank).is_none());
            assert!(b.pair_region(rank, 0).is_none() && b.back_pair(0, rank).is_err());
            assert!(!b.announce_ring(0, rank) && !b.has_reusable_place(rank));
            assert!(b.has_lost_place(rank) && !b.has_lost_place(rank + 2));
            assert!(!b.release_pair(0, rank));
        }
    }

    #[test]
    fn place__with_a_ring_of_a_living_rank_is_held_until_that_is_released() {
        let (a, b) = job();
        add(&a, 2, &[]).unwrap();
        let has_ended = |rank: usize| rank == 2;
        for (from, to) in [(0, 2), (2, 1)] {
            assert!(b.announce_ring(from, to));
            let living = from.min(to).min(1);
            assert_eq!(a.holders(2).collect::<Vec<_>>(), [living]);
            assert_eq!(a.count_places(has_ended).held, 1);
            assert!(a.reuse_places(1, has_ended).is_empty());
            assert!(b.release_pair(living, 2));
            assert_eq!(a.count_places(has_ended).free, 1);
        }
        // An ended rank does not hold another rank's place.
        assert!(b.announce_ring(3, 2));
        assert_eq!(a.reuse_places(1, |rank| rank >= 2), [2]);
    }

    #[test]
    fn place__when_reused__is_zeroed() {
        let (a, b) = job();
        let before = a.used_bytes().unwrap();
        add(&a, 2, &[]).unwrap();
        let new = a.used_bytes().unwrap();
        b.back_pair(2, 3).unwrap();
        assert!(b.announce_ring(2, 3) && b.announce_ring(2, 0));
        b.back_pair(2, 0).unwrap();
        let arena = b.arena(2).unwrap().start;
        b.ensure_backed(arena, 1 << 20).unwrap();
        assert!(b.release_pair(0, 2));
        let free = a.reuse_places(2, |rank| rank >= 2);
        add(&a, 2, &free).unwrap();
        assert!(new > before);
        // One more page represents all dead ranks.
        assert_eq!(a.used_bytes().unwrap(), new + PAGE_BYTES as u64);
        for rank in [0, 1, 4, 5] {
            let row = a.incoming_bitmap(rank).unwrap();
            assert_eq!(row[0].load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn here__raised_meanwhile__is_not_read_twice() {
        let (a, _) = job();
        add(&a, 1, &[]).unwrap();
        let has_ended = |_: usize| {
            a.header().here.store(4, Ordering::Relaxed);
            true
        };
        let lower = || a.header().here.store(3, Ordering::Relaxed);
        assert_eq!(a.count_places(has_ended), PlaceCounts { free: 2, running: 0, held: 0 });
        lower();
        assert_eq!(a.reuse_places(9, has_ended), [2]);
        lower();
    }

    #[test]
    fn held_places__by_words__are_those_by_pairs() {
        let spare = SpareRanks { ranks: 198, foreign: 0 };
        let a = Segment::create_for_node(&[0, 1], 2, spare, 7).unwrap();
        add(&a, 198, &[]).unwrap();
        let has_ended = |rank: usize| rank % 3 == 2;
        // (2, 64), (130, 5) and (66, 128) are rings between an ended and a living rank of another bitmap word. (65,
        // 197) is a ring of two ended ranks, (12, 13) one of two living ranks.
        for (from, to) in [(2, 64), (130, 5), (65, 197), (66, 128), (12, 13)] {
            assert!(a.announce_ring(from, to));
        }
        let ended: Vec<bool> = (0..200).map(has_ended).collect();
        let held = a.list_held(&ended);
        for place in (0..200).filter(|&place| ended[place]) {
            assert_eq!(held.has(place), a.is_held(place, &ended), "place {place}");
        }
        assert_eq!(a.count_places(has_ended).held, 3);
    }

    #[test]
    fn places__of_the_first_ranks_and_of_pinned_jobs_are_kept() {
        let (a, _) = job();
        add(&a, 1, &[]).unwrap();
        assert_eq!(a.reuse_places(9, |_| true), [2]);
        a.header().is_pinned.store(1, Ordering::Relaxed);
        assert!(a.reuse_places(9, |_| true).is_empty());
        assert_eq!(a.count_places(|_| true), PlaceCounts { free: 1, running: 0, held: 1 });
        assert_eq!(a.count_places(|_| true).all(), 2);
    }
}
