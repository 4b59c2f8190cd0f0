#![allow(unsafe_code)]
//! The ranks of a job: pages, regions and arenas of those with a place here, and table entries of the others.

use crate::error::SegmentError;
use crate::file::create_file;
use crate::layout::{
    AHEAD_BYTES, CARD_BYTES, ENTRY_BYTES, MAX_JOB_RANKS, MAX_RANKS, PAGE_BYTES, PAIR_AHEAD_BYTES,
    PAIR_BYTES, SegmentLayout, numbers_for,
};
use crate::memory::Segment;
use crate::network_card::NetworkCard;
use crate::page::{RankPage, STATE_ABSENT, STATE_DEAD};
use crate::table::{Common, RankEntry, RankLocation, join_card, split_card};
use fastpath_base::sync::{AtomicU64, Ordering};
use fastpath_base::wait::yield_now;
use std::ops::Range;
use std::ptr::NonNull;

/// Location of a rank of another node.
#[derive(Clone, Copy, Debug)]
pub struct RemoteRank<'a> {
    /// Number of the host.
    pub host: u32,
    /// Network address ([`NetworkCard`]).
    pub card: &'a [u8],
}

/// First host number for ranks of other jobs. Even on one host they count as remote, because two jobs share no memory.
pub const FIRST_FOREIGN_HOST: u32 = 1 << 30;

/// Number of ranks that a job may get beyond the ranks with which it begins.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpareRanks {
    /// Spawned ranks, on any node.
    pub ranks: usize,
    /// Ranks of other jobs, which have no place in this memory.
    pub foreign: usize,
}

impl Segment {
    /// Makes one node's memory for a job of `ranks` ranks, with places for the ranks in `here` and for spare ranks. All
    /// other ranks are recorded as being on other nodes.
    ///
    /// # Errors
    /// [`Segment::create`] fails, or `here` is not in ascending order.
    pub fn create_for_node(
        here: &[usize], ranks: usize, spare: SpareRanks, job_id: u64,
    ) -> Result<Segment, SegmentError> {
        let in_order = here.windows(2).all(|two| two[0] < two[1]);
        if !in_order || here.last().is_none_or(|&last| last >= ranks) {
            return Err(SegmentError::Ranks(ranks));
        }
        let is_whole = here.len() == ranks;
        let mut segment = Segment::create_as_spare_fits(spare.ranks + spare.foreign, |room| {
            // `room` is either the whole number of spare ranks or 0.
            let [more, foreign] = [spare.ranks, spare.foreign].map(|wanted| wanted.min(room));
            let places = here.len().saturating_add(more).min(MAX_RANKS.max(here.len()));
            let all = ranks.saturating_add(numbers_for(more)).saturating_add(foreign);
            let all = all.min(MAX_JOB_RANKS.max(ranks));
            let layout = match all == here.len() {
                true => SegmentLayout::new(all),
                false => SegmentLayout::of_node(places, all),
            };
            let (file, layout) = create_file(layout.ok_or(SegmentError::Ranks(all))?)?;
            Segment::begin(file, layout, here.len(), job_id)
        })?;
        if segment.layout.has_others() {
            segment.back_table(0..ranks)?;
            (0..ranks).for_each(|rank| segment.set_place(rank, RankLocation::Elsewhere));
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

    /// Makes the pages that represent ranks of other nodes. No rank writes these pages later.
    pub(crate) fn begin_others(&self) -> Result<(), SegmentError> {
        for (at, state) in
            [(RankLocation::Elsewhere, STATE_ABSENT), (RankLocation::Gone, STATE_DEAD)]
        {
            let page = self.begin_page(at)?;
            page.elsewhere.store(1, Ordering::Relaxed);
            page.set_left(state);
        }
        Ok(())
    }

    /// Backs and returns the page that represents all ranks whose location is `at`.
    pub(crate) fn begin_page(&self, at: RankLocation) -> Result<&RankPage, SegmentError> {
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

    /// Returns the table entry of a rank; `None` without a table, or beyond its end.
    pub(crate) fn entry(&self, rank: usize) -> Option<&RankEntry> {
        if !self.layout.has_others() || rank >= self.layout.job_ranks() {
            return None;
        }
        let at = self.layout.table_offset() + rank * ENTRY_BYTES;
        // SAFETY: the entry is inside the mapping. It is backed if the rank is present, otherwise a hole of the file,
        // which reads as zeros. Every field is an atomic.
        Some(unsafe { self.front.base.byte_add(at).cast::<RankEntry>().as_ref() })
    }

    pub(crate) fn set_place(&self, rank: usize, at: RankLocation) {
        if let Some(entry) = self.entry(rank) {
            entry.set_place(at);
        }
    }

    /// Assigns a free place to a rank.
    fn settle(&self, rank: usize, place: usize) {
        if let Some(page) = self.page_at(RankLocation::Here(place)) {
            page.rank.store(rank as u32, Ordering::Relaxed);
        }
        self.set_place(rank, RankLocation::Here(place));
    }

    /// Returns the location of a rank whose number may differ from its place.
    #[cold]
    #[inline(never)]
    fn look_up(&self, rank: usize) -> RankLocation {
        match self.entry(rank).map(RankEntry::place) {
            Some(RankLocation::Here(place)) if place >= self.layout.ranks() => {
                RankLocation::Unknown
            }
            Some(at) => at,
            None => RankLocation::Unknown,
        }
    }

    /// Returns a rank's place in this memory; `None` if it is on another node or does not exist.
    #[inline]
    pub fn place(&self, rank: usize) -> Option<usize> {
        if rank < self.ordered {
            return Some(rank);
        }
        match self.look_up(rank) {
            RankLocation::Here(place) => Some(place),
            _ => None,
        }
    }

    /// Returns the rank at a place of this memory; `None` if the place is free.
    pub fn rank_at(&self, place: usize) -> Option<usize> {
        if place < self.ordered {
            return Some(place);
        }
        let page = self.page_at(RankLocation::Here(place))?;
        let rank = page.rank.load(Ordering::Relaxed) as usize;
        // The rank number on the page is checked against the table, because the content of pages is not trusted.
        (self.look_up(rank) == RankLocation::Here(place)).then_some(rank)
    }

    /// Returns the number of places taken so far; places of ended ranks count. The taken places are the leading ones.
    #[inline]
    pub fn here(&self) -> usize {
        if !self.layout.has_others() {
            return self.present();
        }
        // ORDERING: acquire pairs with the release in `add_ranks`.
        let here = self.header().here.load(Ordering::Acquire) as usize;
        here.min(self.layout.ranks())
    }

    /// Returns the ranks with a place in this memory, ordered by place.
    pub fn node_ranks(&self) -> impl Iterator<Item = usize> {
        (0..self.here()).filter_map(|place| self.rank_at(place))
    }

    /// Returns the number of present ranks, on all nodes. It only grows, up to [`Segment::capacity`].
    #[inline]
    pub fn present(&self) -> usize {
        // ORDERING: acquire pairs with the release in `add_ranks_at`: a process that sees a rank sees the initial
        // content of its page.
        let present = self.header().present.load(Ordering::Acquire) as usize;
        present.min(self.capacity())
    }

    /// Returns the largest number of ranks of the job.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.layout.job_ranks()
    }

    /// Adds ranks of another job without a launcher; any rank of the node may call it. See [`Segment::add_ranks`].
    pub fn add_foreign(&self, ranks: &[RemoteRank<'_>]) -> Result<usize, SegmentError> {
        let adding = &self.header().adding;
        let me = std::process::id();
        // ORDERING: acquire pairs with the release below: ranks added by another process are visible.
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
    /// The segment has no space for that many ranks, or memory is short.
    pub fn add_ranks<'a>(
        &self, ranks: usize, elsewhere: impl Fn(usize) -> Option<RemoteRank<'a>>,
        prepare: impl Fn(usize, &RankPage),
    ) -> Result<usize, SegmentError> {
        self.add_ranks_at(ranks, &[], elsewhere, prepare)
    }

    /// Adds `ranks` ranks. Ranks of this node get the places `free` ([`Segment::reuse_places`]), then new places.
    /// `elsewhere` returns the location of a rank of another node. The pages of new ranks of this node are backed, and
    /// `prepare` fills each page before its rank becomes visible. Returns the first new rank. Only the launcher and
    /// [`Segment::add_foreign`] call it.
    ///
    /// # Errors
    /// The segment has no space for that many ranks, or no memory for their pages.
    pub fn add_ranks_at<'a>(
        &self, ranks: usize, free: &[usize], elsewhere: impl Fn(usize) -> Option<RemoteRank<'a>>,
        prepare: impl Fn(usize, &RankPage),
    ) -> Result<usize, SegmentError> {
        let (first, here) = (self.present(), self.here());
        let end = first + ranks;
        let others = (first..end).filter(|&rank| elsewhere(rank).is_some());
        let new = match self.layout.has_others() {
            true => ranks - others.count(),
            // Without ranks elsewhere, every new rank has a place here.
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
                self.set_place(rank, RankLocation::Elsewhere);
                self.tell(rank, told)?;
                continue;
            }
            let place = places.next().unwrap_or(self.layout.ranks());
            self.settle(rank, place);
            if let Some(page) = self.page_at(RankLocation::Here(place)) {
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

    /// Records the location of a rank of another node. The creator of the memory calls it.
    ///
    /// # Errors
    /// No memory for another card.
    pub fn tell(&self, rank: usize, told: RemoteRank<'_>) -> Result<(), SegmentError> {
        if let Some(entry) = self.entry(rank) {
            entry.set_host(told.host);
        }
        self.learn_card(rank, told.card)
    }

    /// Records a rank's network address ([`NetworkCard`]), on its page or, for a rank of another node, in the table. An
    /// invalid card is ignored. The common part of a node's cards is stored once if the cards are recorded one after
    /// the other.
    ///
    /// # Errors
    /// No memory for another card.
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
        // Cards of spawned ranks often repeat a few hosts, so earlier cards are searched too.
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
        // SAFETY: the card is inside the mapping. It is backed if it was written, otherwise a hole of the file, which
        // reads as zeros. Every field is an atomic.
        Some(unsafe { self.front.base.byte_add(at).cast::<Common>().as_ref() })
    }

    fn common(&self, number: usize) -> Option<Vec<u8>> {
        self.common_at(number)?.load()
    }

    /// Returns a rank's network address ([`NetworkCard`]); `None` until the address is known.
    pub fn network(&self, rank: usize) -> Option<Vec<u8>> {
        if self.place(rank).is_some() {
            return self.page(rank)?.network.load();
        }
        let (card, port) = self.entry(rank)?.card()?;
        join_card(self.common(card)?, port)
    }

    /// Returns the number of a rank's host.
    pub fn host(&self, rank: usize) -> u32 {
        if self.place(rank).is_some() {
            let page = self.page(rank);
            return page.map_or(0, |page| page.host.load(Ordering::Relaxed));
        }
        self.entry(rank).map_or(0, RankEntry::host)
    }

    /// Returns whether a rank runs on another node, so that it has no page of its own here.
    pub fn is_elsewhere(&self, rank: usize) -> bool {
        self.page(rank).is_none_or(|page| page.elsewhere.load(Ordering::Relaxed) != 0)
    }

    /// Returns whether a rank is of another job.
    pub fn is_foreign(&self, rank: usize) -> bool {
        self.host(rank) >= FIRST_FOREIGN_HOST
    }

    /// Returns the host name of a rank on another node.
    pub fn other_host(&self, rank: usize) -> Option<String> {
        if rank >= self.present() || !self.is_elsewhere(rank) {
            return None;
        }
        let card = self.network(rank).as_deref().and_then(NetworkCard::decode);
        Some(card.map_or_else(|| "whose name is not known".to_owned(), |card| card.host))
    }

    /// Returns the page of a rank; `None` beyond the last one. The page may have no memory unless the rank is below
    /// [`Segment::present`]. One page represents all ranks of other nodes.
    #[inline]
    pub fn page(&self, rank: usize) -> Option<&RankPage> {
        if rank < self.ordered {
            return self.page_at(RankLocation::Here(rank));
        }
        match self.look_up(rank) {
            RankLocation::Unknown => None,
            at => self.page_at(at),
        }
    }

    #[inline]
    pub(crate) fn page_at(&self, at: RankLocation) -> Option<&RankPage> {
        let ranks = self.layout.ranks();
        let index = match at {
            RankLocation::Here(place) if place < ranks => place,
            RankLocation::Elsewhere if self.layout.has_others() => ranks,
            RankLocation::Gone if self.layout.has_others() => ranks + 1,
            RankLocation::Ended if self.layout.has_others() => ranks + 2,
            RankLocation::Died if self.layout.has_others() => ranks + 3,
            _ => return None,
        };
        let at = self.layout.page_offset(index);
        // SAFETY: the page is inside the mapping, and backed if the rank is present. Every field is an atomic.
        Some(unsafe { self.front.base.byte_add(at).cast::<RankPage>().as_ref() })
    }

    /// Marks a rank of another node as given up. Returns false if the rank is on this node.
    pub(crate) fn give_up_elsewhere(&self, rank: usize) -> bool {
        let is_other = self.layout.has_others() && self.place(rank).is_none();
        if is_other && self.look_up(rank) == RankLocation::Elsewhere {
            self.set_place(rank, RankLocation::Gone);
        }
        is_other
    }

    /// Returns the bitmap of the ranks that have opened a ring to `rank`. A sender's bit is at its place. `None` if
    /// `rank` has no place.
    pub fn incoming_bitmap(&self, rank: usize) -> Option<&[AtomicU64]> {
        let at = self.layout.bitmap_offset(self.place(rank)?);
        // SAFETY: the row is inside the mapping, backed and aligned to a cache line, and consists of atomics.
        Some(unsafe {
            let words = self.front.base.byte_add(at).cast::<AtomicU64>();
            std::slice::from_raw_parts(words.as_ptr(), self.layout.bitmap_words())
        })
    }

    /// Returns whether a rank is on another node, or the regions of its pairs have addresses here. If address space is
    /// short, the regions of a rank that was added later may have none.
    pub fn reaches(&self, rank: usize) -> bool {
        match self.place(rank) {
            Some(place) => place < self.reach,
            None => rank < self.capacity(),
        }
    }

    /// Returns the first byte of the region that `src` fills and `dst` empties, [`PAIR_BYTES`] long; `None` if either
    /// rank has no place here. The region must be backed ([`Segment::back_pair`]) before use.
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
        // SAFETY: the regions of both ranks are mapped, so the offset is inside the mapping.
        Some(unsafe { self.front.base.byte_add(at) })
    }

    /// Returns the offset of the region that `src` fills and `dst` empties; `None` if either has no place here.
    pub fn pair_offset(&self, src: usize, dst: usize) -> Option<u64> {
        let (src, dst) = (self.place(src)?, self.place(dst)?);
        Some(self.layout.pair_offset(src, dst))
    }

    /// Backs the whole region of a pair.
    ///
    /// # Errors
    /// The pair does not exist, or memory is short.
    pub fn back_pair(&self, src: usize, dst: usize) -> Result<(), SegmentError> {
        self.back_in_pair((src, dst), 0, PAIR_BYTES)
    }

    /// Backs `len` bytes from `start` on of the region of a pair.
    ///
    /// # Errors
    /// The pair does not exist, or memory is short.
    pub fn back_in_pair(
        &self, (src, dst): (usize, usize), start: usize, len: usize,
    ) -> Result<(), SegmentError> {
        let offset = self.pair_offset(src, dst);
        let offset = offset.ok_or(SegmentError::Ranks(src.max(dst) + 1))?;
        match start + len <= self.bytes_ahead((src, dst)) {
            true => Ok(()),
            false => self.ensure_backed(offset + start as u64, len as u64),
        }
    }

    /// Returns how many bytes at the start of a pair's region were backed, with zeros, before the ranks started.
    pub fn bytes_ahead(&self, (src, dst): (usize, usize)) -> usize {
        let ahead = self.header().ahead.load(Ordering::Relaxed) as usize;
        let began = |rank| self.place(rank).is_some_and(|place| place < ahead);
        match src != dst && began(src) && began(dst) {
            true => PAIR_AHEAD_BYTES,
            false => 0,
        }
    }

    /// Backs the beginning of each pair's region if the node has few ranks, so that first long messages need not wait
    /// for memory. A failure is ignored, because the rank that needs the memory reports it. The creator calls this
    /// function before any other process has the segment.
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

    /// Returns the offsets of a rank's arena; `None` if the rank has no place here. [`Segment::ensure_backed`] backs
    /// pieces of it, and [`Segment::map_range`] maps them.
    pub fn arena(&self, rank: usize) -> Option<Range<u64>> {
        let start = self.layout.arena_offset(self.place(rank)?);
        Some(start..start + self.layout.arena_bytes())
    }

    /// Returns the offset of a rank's trace; `None` if the rank has no place here.
    pub fn trace_offset(&self, rank: usize) -> Option<u64> {
        self.place(rank).map(|place| self.layout.trace_offset(place))
    }
}

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests;
