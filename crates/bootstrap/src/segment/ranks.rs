#![allow(unsafe_code)]
//! The ranks of a job, by their numbers in it: pages, regions and arenas of those that have a place in this memory, and
//! what is known of the others.

use super::error::SegmentError;
use super::file::create_file;
use super::layout::{
    AHEAD_BYTES, CARD_BYTES, ENTRY_BYTES, Layout, MAX_JOB_RANKS, MAX_RANKS, PAGE_BYTES,
    PAIR_AHEAD_BYTES, PAIR_BYTES, numbers_for,
};
use super::memory::Segment;
use super::page::{RankPage, STATE_ABSENT, STATE_DEAD};
use super::table::{At, Common, Entry, join_card, split_card};
use crate::network::NetworkCard;
use fastpath_base::sync::{AtomicU64, Ordering};
use fastpath_base::wait::yield_now;
use std::ops::Range;
use std::ptr::NonNull;

/// Where a rank of another node runs.
#[derive(Clone, Copy, Debug)]
pub struct Elsewhere<'a> {
    /// Number of its host.
    pub host: u32,
    /// How it is reached ([`NetworkCard`]).
    pub card: &'a [u8],
}

/// Numbers of hosts from here on are those of other jobs' ranks: two jobs share no memory, whichever hosts they run on.
pub const FIRST_FOREIGN_HOST: u32 = 1 << 30;

/// How many ranks more a job has room for than it begins with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spare {
    /// Those that are spawned, on any node.
    pub ranks: usize,
    /// Those of other jobs, which have no place in this memory.
    pub foreign: usize,
}

impl Segment {
    /// Makes one node's memory of a job with `ranks` ranks, of which those in `here` have a place in it, with room for
    /// more. The others are only known to be elsewhere.
    ///
    /// # Errors
    /// As [`Segment::create`]; or `here` is not in order.
    pub fn create_for_node(
        here: &[usize], ranks: usize, spare: Spare, job_id: u64,
    ) -> Result<Segment, SegmentError> {
        let in_order = here.windows(2).all(|two| two[0] < two[1]);
        if !in_order || here.last().is_none_or(|&last| last >= ranks) {
            return Err(SegmentError::Ranks(ranks));
        }
        let is_whole = here.len() == ranks;
        let mut segment = Segment::create_as_spare_fits(spare.ranks + spare.foreign, |room| {
            // All or nothing.
            let [more, foreign] = [spare.ranks, spare.foreign].map(|wanted| wanted.min(room));
            let places = here.len().saturating_add(more).min(MAX_RANKS.max(here.len()));
            let all = ranks.saturating_add(numbers_for(more)).saturating_add(foreign);
            let all = all.min(MAX_JOB_RANKS.max(ranks));
            let layout = match all == here.len() {
                true => Layout::new(all),
                false => Layout::of_node(places, all),
            };
            let (file, layout) = create_file(layout.ok_or(SegmentError::Ranks(all))?)?;
            Segment::begin(file, layout, here.len(), job_id)
        })?;
        if segment.layout.has_others() {
            segment.back_table(0..ranks)?;
            (0..ranks).for_each(|rank| segment.set_place(rank, At::Elsewhere));
            for (place, &rank) in here.iter().enumerate() {
                segment.settle(rank, place);
            }
            if is_whole {
                segment.ordered = ranks;
                segment.header().ordered.store(ranks as u32, Ordering::Relaxed);
            }
        }
        segment.header().present.store(ranks as u32, Ordering::Relaxed);
        Ok(segment)
    }

    /// Makes the pages that stand for ranks of other nodes. They are not written any more.
    pub(super) fn begin_others(&self) -> Result<(), SegmentError> {
        for (at, state) in [(At::Elsewhere, STATE_ABSENT), (At::Gone, STATE_DEAD)] {
            let page = self.begin_page(at)?;
            page.elsewhere.store(1, Ordering::Relaxed);
            page.set_left(state);
        }
        Ok(())
    }

    /// The page that stands for all ranks which are there, with memory behind it.
    pub(super) fn begin_page(&self, at: At) -> Result<&RankPage, SegmentError> {
        let none = SegmentError::Ranks(self.layout.ranks());
        let page = self.page_at(at).ok_or(none)?;
        let offset = std::ptr::from_ref(page).addr() - self.front.base.addr().get();
        self.ensure_backed(offset as u64, PAGE_BYTES as u64)?;
        Ok(page)
    }

    fn back_table(&self, ranks: Range<usize>) -> Result<(), SegmentError> {
        let at = (self.layout.table_offset() + ranks.start * ENTRY_BYTES) as u64;
        self.ensure_backed(at, (ranks.len() * ENTRY_BYTES) as u64)
    }

    /// The entry of a rank of the job; None where there is no table, or beyond its end.
    pub(super) fn entry(&self, rank: usize) -> Option<&Entry> {
        if !self.layout.has_others() || rank >= self.layout.job_ranks() {
            return None;
        }
        let at = self.layout.table_offset() + rank * ENTRY_BYTES;
        // SAFETY: inside the mapping, and backed where the rank is there (else it is a hole of the file, which reads as
        // zeros); every field is an atomic.
        Some(unsafe { self.front.base.byte_add(at).cast::<Entry>().as_ref() })
    }

    pub(super) fn set_place(&self, rank: usize, at: At) {
        if let Some(entry) = self.entry(rank) {
            entry.set_place(at);
        }
    }

    /// Gives a rank a free place.
    fn settle(&self, rank: usize, place: usize) {
        if let Some(page) = self.page_at(At::Here(place)) {
            page.rank.store(rank as u32, Ordering::Relaxed);
        }
        self.set_place(rank, At::Here(place));
    }

    /// Where a rank is whose number may be another one than its place.
    #[cold]
    #[inline(never)]
    fn look_up(&self, rank: usize) -> At {
        match self.entry(rank).map(Entry::place) {
            Some(At::Here(place)) if place >= self.layout.ranks() => At::Unknown,
            Some(at) => at,
            None => At::Unknown,
        }
    }

    /// The place of a rank in this memory; None where it has none: it is on another node, or there is no such rank.
    #[inline]
    pub fn place(&self, rank: usize) -> Option<usize> {
        if rank < self.ordered {
            return Some(rank);
        }
        match self.look_up(rank) {
            At::Here(place) => Some(place),
            _ => None,
        }
    }

    /// The rank at a place of this memory; None if the place is free.
    pub fn rank_at(&self, place: usize) -> Option<usize> {
        if place < self.ordered {
            return Some(place);
        }
        let page = self.page_at(At::Here(place))?;
        let rank = page.rank.load(Ordering::Relaxed) as usize;
        // What pages say is not trusted.
        (self.look_up(rank) == At::Here(place)).then_some(rank)
    }

    /// How many places of this memory are taken: the ranks of this node.
    #[inline]
    pub fn here(&self) -> usize {
        if !self.layout.has_others() {
            return self.present();
        }
        // ORDERING: acquire pairs with the release in `add_ranks`.
        let here = self.header().here.load(Ordering::Acquire) as usize;
        here.min(self.layout.ranks())
    }

    /// The ranks that have a place in this memory, by their places.
    pub fn node_ranks(&self) -> impl Iterator<Item = usize> {
        (0..self.here()).filter_map(|place| self.rank_at(place))
    }

    /// Number of ranks that are there so far, on all nodes. It grows, to [`Segment::capacity`] at most.
    #[inline]
    pub fn present(&self) -> usize {
        // ORDERING: acquire pairs with the release in `add_ranks`: who sees a rank sees what its page began with.
        let present = self.header().present.load(Ordering::Acquire) as usize;
        present.min(self.capacity())
    }

    /// Most ranks that the job can have.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.layout.job_ranks()
    }

    /// As [`Segment::add_ranks`], of ranks of another job, where there is no launcher: any rank of the node may call
    /// it.
    ///
    /// # Errors
    /// As there.
    pub fn add_foreign(&self, ranks: &[Elsewhere<'_>]) -> Result<usize, SegmentError> {
        let adding = &self.header().adding;
        let me = std::process::id();
        // ORDERING: acquire pairs with the release below: the ranks that another process has added are seen.
        while adding.compare_exchange_weak(0, me, Ordering::Acquire, Ordering::Relaxed).is_err() {
            yield_now();
        }
        let first = self.present();
        let elsewhere = |rank: usize| ranks.get(rank - first).copied();
        let added = self.add_ranks(ranks.len(), elsewhere, |_, _| {});
        // ORDERING: release pairs with the acquire above.
        adding.store(0, Ordering::Release);
        added
    }

    /// Adds ranks at unused places. See [`Segment::add_ranks_at`].
    ///
    /// # Errors
    /// There is no room for so many ranks, or no memory.
    pub fn add_ranks<'a>(
        &self, ranks: usize, elsewhere: impl Fn(usize) -> Option<Elsewhere<'a>>,
        prepare: impl Fn(usize, &RankPage),
    ) -> Result<usize, SegmentError> {
        self.add_ranks_at(ranks, &[], elsewhere, prepare)
    }

    /// Makes room for further ranks: those of this node get the places `free` ([`Segment::reuse_places`]), then new
    /// ones. `elsewhere` returns, for a rank of another node, where it runs. The pages of the
    /// other ranks get memory, and `prepare` fills each before the rank becomes visible. Returns the first. Only the
    /// launcher calls it.
    ///
    /// # Errors
    /// The segment has no room for that many, or there is no memory for their pages.
    pub fn add_ranks_at<'a>(
        &self, ranks: usize, free: &[usize], elsewhere: impl Fn(usize) -> Option<Elsewhere<'a>>,
        prepare: impl Fn(usize, &RankPage),
    ) -> Result<usize, SegmentError> {
        let (first, here) = (self.present(), self.here());
        let end = first + ranks;
        let others = (first..end).filter(|&rank| elsewhere(rank).is_some());
        let new = match self.layout.has_others() {
            true => ranks - others.count(),
            // All of them have a place here.
            false => ranks,
        };
        let fresh = new.saturating_sub(free.len());
        if end > self.capacity() || here + fresh > self.layout.ranks() {
            return Err(SegmentError::Ranks(end));
        }
        self.back_front(here..here + fresh)?;
        free.iter().try_for_each(|&place| self.back_front(place..place + 1))?;
        if self.layout.has_others() {
            self.back_table(first..end)?;
        }
        let mut places = free.iter().copied().chain(here..);
        for rank in first..end {
            if let Some(told) = elsewhere(rank).filter(|_| self.layout.has_others()) {
                self.set_place(rank, At::Elsewhere);
                self.tell(rank, told)?;
                continue;
            }
            let place = places.next().unwrap_or(self.layout.ranks());
            self.settle(rank, place);
            if let Some(page) = self.page_at(At::Here(place)) {
                prepare(rank, page);
            }
        }
        if self.layout.has_others() {
            // ORDERING: publishes the places; partner is the acquire load in `here`.
            self.header().here.store((here + fresh) as u32, Ordering::Release);
        }
        // ORDERING: publishes pages and entries; partner is the acquire load in `present`.
        self.header().present.store(end as u32, Ordering::Release);
        Ok(first)
    }

    /// Notes where a rank of another node runs. The creator of the memory calls it.
    ///
    /// # Errors
    /// No memory for a further card.
    pub fn tell(&self, rank: usize, told: Elsewhere<'_>) -> Result<(), SegmentError> {
        if let Some(entry) = self.entry(rank) {
            entry.set_host(told.host);
        }
        self.learn_card(rank, told.card)
    }

    /// Notes how a rank is reached ([`NetworkCard`]): on its page, or, for a rank of another node, in the table; an
    /// invalid card is ignored. What the ranks of a node have in common is kept once if their cards come one after the
    /// other.
    ///
    /// # Errors
    /// No memory for a further card.
    pub fn learn_card(&self, rank: usize, card: &[u8]) -> Result<(), SegmentError> {
        let Some((common, port)) = split_card(card) else {
            return Ok(());
        };
        if self.place(rank).is_some() {
            if let Some(page) = self.page(rank) {
                page.network.store(card);
            }
            return Ok(());
        }
        let Some(entry) = self.entry(rank) else {
            return Ok(());
        };
        let cards = &self.header().cards;
        let last = (cards.load(Ordering::Relaxed) as usize).checked_sub(1);
        let has_it = |&card: &usize| self.common(card).as_ref() == Some(&common);
        // Spawned ranks come to few hosts, again and again.
        let earlier = || match rank < self.present() {
            true => None,
            false => (0..cards.load(Ordering::Relaxed) as usize).find(has_it),
        };
        if let Some(known) = last.filter(has_it).or_else(earlier) {
            entry.set_card(known, port);
            return Ok(());
        }
        let next = cards.fetch_add(1, Ordering::Relaxed) as usize;
        let at = self.layout.cards_offset() + next * CARD_BYTES;
        let Some(place) = self.common_at(next) else {
            return Err(SegmentError::Ranks(next));
        };
        self.ensure_backed(at as u64, CARD_BYTES as u64)?;
        place.store(&common);
        entry.set_card(next, port);
        Ok(())
    }

    fn common_at(&self, number: usize) -> Option<&Common> {
        let all = self.layout.has_others() && number < self.layout.job_ranks();
        let used = self.header().cards.load(Ordering::Relaxed) as usize;
        if !all || number >= used {
            return None;
        }
        let at = self.layout.cards_offset() + number * CARD_BYTES;
        // SAFETY: inside the mapping, and backed where it is written (else a hole of the file, which reads as zeros);
        // every field is an atomic.
        Some(unsafe { self.front.base.byte_add(at).cast::<Common>().as_ref() })
    }

    fn common(&self, number: usize) -> Option<Vec<u8>> {
        self.common_at(number)?.load()
    }

    /// How a rank is reached ([`NetworkCard`]); None until that is known.
    pub fn network(&self, rank: usize) -> Option<Vec<u8>> {
        if self.place(rank).is_some() {
            return self.page(rank)?.network.load();
        }
        let (card, port) = self.entry(rank)?.card()?;
        join_card(self.common(card)?, port)
    }

    /// Number of the host that a rank counts as being on.
    pub fn host(&self, rank: usize) -> u32 {
        if self.place(rank).is_some() {
            let page = self.page(rank);
            return page.map_or(0, |page| page.host.load(Ordering::Relaxed));
        }
        self.entry(rank).map_or(0, Entry::host)
    }

    /// Whether a rank runs on another node, so that it has no page of its own here.
    pub fn is_elsewhere(&self, rank: usize) -> bool {
        self.page(rank).is_none_or(|page| page.elsewhere.load(Ordering::Relaxed) != 0)
    }

    /// Whether a rank is of another job.
    pub fn is_foreign(&self, rank: usize) -> bool {
        self.host(rank) >= FIRST_FOREIGN_HOST
    }

    /// Name of the host of a rank that is on another node.
    pub fn other_host(&self, rank: usize) -> Option<String> {
        if rank >= self.present() || !self.is_elsewhere(rank) {
            return None;
        }
        let card = self.network(rank).as_deref().and_then(NetworkCard::decode);
        Some(card.map_or_else(|| "whose name is not known".to_owned(), |card| card.host))
    }

    /// The page of a rank; None beyond the last. It may have no memory unless the rank is below [`Segment::present`].
    /// One page stands for all ranks of other nodes.
    #[inline]
    pub fn page(&self, rank: usize) -> Option<&RankPage> {
        if rank < self.ordered {
            return self.page_at(At::Here(rank));
        }
        match self.look_up(rank) {
            At::Unknown => None,
            at => self.page_at(at),
        }
    }

    #[inline]
    pub(super) fn page_at(&self, at: At) -> Option<&RankPage> {
        let ranks = self.layout.ranks();
        let index = match at {
            At::Here(place) if place < ranks => place,
            At::Elsewhere if self.layout.has_others() => ranks,
            At::Gone if self.layout.has_others() => ranks + 1,
            At::Ended if self.layout.has_others() => ranks + 2,
            At::Died if self.layout.has_others() => ranks + 3,
            _ => return None,
        };
        let at = self.layout.page_offset(index);
        // SAFETY: inside the mapping, and backed where the rank is there; every field is an atomic.
        Some(unsafe { self.front.base.byte_add(at).cast::<RankPage>().as_ref() })
    }

    /// Notes of a rank of another node that it is not wanted any more; false where it is on this one.
    pub(super) fn give_up_elsewhere(&self, rank: usize) -> bool {
        let is_other = self.layout.has_others() && self.place(rank).is_none();
        if is_other && self.look_up(rank) == At::Elsewhere {
            self.set_place(rank, At::Gone);
        }
        is_other
    }

    /// The bits that senders set for `rank`, one for each sender, at its place; None where the rank has none.
    pub fn incoming_bitmap(&self, rank: usize) -> Option<&[AtomicU64]> {
        self.worker_bitmap(0, rank)
    }

    /// The same for the worker number `which` of that rank; None also where there is no room for such workers.
    pub fn worker_bitmap(&self, which: usize, rank: usize) -> Option<&[AtomicU64]> {
        let place = self.place(rank)?;
        if which > self.layout.further() {
            return None;
        }
        let at = self.layout.worker_bitmap_offset(which, place);
        // SAFETY: inside the mapping, backed, aligned to a cache line; atomics only.
        Some(unsafe {
            let words = self.front.base.byte_add(at).cast::<AtomicU64>();
            std::slice::from_raw_parts(words.as_ptr(), self.layout.bitmap_words())
        })
    }

    /// Whether there are addresses for the regions of a rank's pairs, or it is on another node: of one that comes later
    /// to this one there may be none, where address space is short.
    pub fn reaches(&self, rank: usize) -> bool {
        match self.place(rank) {
            Some(place) => place < self.reach,
            None => rank < self.capacity(),
        }
    }

    /// First byte of the region that `src` fills and `dst` empties, [`PAIR_BYTES`] long; None
    /// when either has no place here. It must be backed ([`Segment::back_pair`]) before it is touched.
    pub fn pair_region(&self, src: usize, dst: usize) -> Option<NonNull<u8>> {
        let (src, dst) = (self.place(src)?, self.place(dst)?);
        let last = src.max(dst);
        if last >= self.reach {
            return None;
        }
        if last >= self.mapped.load(Ordering::Relaxed) {
            let there = self.here().clamp(last + 1, self.reach);
            self.map_pairs(there).ok()?;
        }
        let at = self.layout.pair_offset(src, dst) as usize;
        // SAFETY: both among the ranks whose regions are mapped, so the offset is inside the mapping.
        Some(unsafe { self.front.base.byte_add(at) })
    }

    /// Offset of the region by which the workers number `which` of two ranks reach each other; None when either has no
    /// place here.
    pub fn pair_offset(&self, which: usize, src: usize, dst: usize) -> Option<u64> {
        let (src, dst) = (self.place(src)?, self.place(dst)?);
        Some(self.layout.worker_pair_offset(which, src, dst))
    }

    /// Has the whole region of a pair backed by memory.
    ///
    /// # Errors
    /// No such pair; too little memory.
    pub fn back_pair(&self, src: usize, dst: usize) -> Result<(), SegmentError> {
        self.back_in_pair(0, (src, dst), 0, PAIR_BYTES)
    }

    /// Has `len` bytes from `start` on backed of the region by which the workers number `which` of two ranks reach each
    /// other.
    ///
    /// # Errors
    /// No such pair; too little memory.
    pub fn back_in_pair(
        &self, which: usize, (src, dst): (usize, usize), start: usize, len: usize,
    ) -> Result<(), SegmentError> {
        let offset = self.pair_offset(which, src, dst);
        let offset = offset.ok_or(SegmentError::Ranks(src.max(dst) + 1))?;
        match start + len <= self.bytes_ahead(which, (src, dst)) {
            true => Ok(()),
            false => self.ensure_backed(offset + start as u64, len as u64),
        }
    }

    /// How many bytes from the beginning of such a region on have had memory, full of zeros, since before the ranks
    /// started.
    pub fn bytes_ahead(&self, which: usize, (src, dst): (usize, usize)) -> usize {
        let ahead = self.header().ahead.load(Ordering::Relaxed) as usize;
        let began = |rank| self.place(rank).is_some_and(|place| place < ahead);
        match which == 0 && src != dst && began(src) && began(dst) {
            true => PAIR_AHEAD_BYTES,
            false => 0,
        }
    }

    /// Has memory behind the beginning of the region of each pair of the ranks that are there, where they are few:
    /// their first long messages need not wait for it. What cannot be had is left to those who will need it. Whoever
    /// makes the memory calls it before any other process has it.
    pub fn back_pairs_ahead(&self) {
        let ranks = self.here();
        let pairs = || (0..ranks).flat_map(|src| (0..ranks).map(move |dst| (src, dst)));
        let pairs = || pairs().filter(|(src, dst)| src != dst);
        if ranks <= 1 || pairs().count() * PAIR_AHEAD_BYTES > AHEAD_BYTES {
            return;
        }
        let back =
            |(src, dst)| self.fill_with_zeros(self.layout.pair_offset(src, dst), PAIR_AHEAD_BYTES);
        if pairs().all(|pair| back(pair).is_ok()) {
            self.header().ahead.store(ranks as u32, Ordering::Relaxed);
        }
    }

    /// Offsets of the arena of a rank; None where it has no place here. Pieces of it are backed with
    /// [`Segment::ensure_backed`] and mapped with [`Segment::map_range`].
    pub fn arena(&self, rank: usize) -> Option<Range<u64>> {
        let start = self.layout.arena_offset(self.place(rank)?);
        Some(start..start + self.layout.arena_bytes())
    }

    /// Offset of a rank's trace; None where it has no place here.
    pub fn trace_offset(&self, rank: usize) -> Option<u64> {
        self.place(rank).map(|place| self.layout.trace_offset(place))
    }
}

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests;
