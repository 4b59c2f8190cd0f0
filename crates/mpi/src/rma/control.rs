//! Control words, by which the ranks of a window synchronise. Each rank has control words in memory that every other
//! rank reaches: by load and store within a host, elsewhere by the protocol layer's atomic operations.
//!
//! | byte | word |
//! |---|---|
//! | 0 | the lock of `MPI_Win_lock` ([`super::lock_word`]) |
//! | 64 | the accumulate lock: 0 or 1 |
//! | 128 | exclusive owner of the lock at byte 0, as far as known: its rank plus 1, and whether it only keeps the lock ([`super::kept_lock`]) |
//! | 136 | number of ranks that hold other locks of the window while they wait to share this lock |
//! | 144 | on the first rank of each host: ranks in `MPI_Win_lock_all` without locks ([`super::lock_all`]) |
//! | 192 | for each lock ticket, modulo their number: rank of the waiting holder plus 1 |
//! | then, from a multiple of 64 on | for each rank: number of epochs it has posted for this rank |
//! | then, from a multiple of 64 on | for each rank: number of its `MPI_Win_start` epochs that have ended here |
#![allow(unsafe_code)]

use super::error;
use super::kept_lock::Owner;
use super::lock_word::{ADMIT, ASK, BOUNDARIES, LockWord, Ticket, leaving};
use super::window::Window;
use crate::common::error::Result;
use crate::process::Process;
use crate::process::failures::describe_deaths;
use fastpath_base::clock;
use fastpath_base::copy::copy;
use fastpath_base::sync::{AtomicU64, Ordering};
use fastpath_protocol::Worker;
use fastpath_protocol::rma::{
    ANSWER_HEAD, ANSWER_MOST, HeldWord, RemoteKey, TargetRequest, add_masked,
};
use fastpath_protocol::waiting::{Note, spin, try_briefly};
use fastpath_segment::AwaitedRanks;
use std::ptr;

pub(super) const LOCK: u64 = 0;
/// Offset of the exclusive owner's word. The word has a cache line of its own. Waiting ranks poll the cache line of the
/// lock, and each store into that line costs each waiting rank a cache miss.
pub(super) const OWNER: u64 = 128;
/// Offset of the number of ranks that hold other locks of the window while they wait to share this lock.
pub(super) const PRESSED: u64 = 136;
/// Offset of the number of ranks in `MPI_Win_lock_all` without locks.
pub(super) const SHARERS: u64 = 144;
pub(super) const ACCUMULATE: u64 = 64;
const QUEUE: u64 = 192;

/// Shortest and longest pause, in nanoseconds, between two reads of a remote word.
const FIRST_PAUSE_NS: u64 = 1_000;
const LAST_PAUSE_NS: u64 = 200_000;
const LINE: u64 = 64;
/// Number of polls of a count before a wait that also makes progress. The polls take about a microsecond.
const COUNT_POLLS: u32 = 1024;

fn tickets(ranks: u32) -> u64 {
    u64::from(ranks).next_power_of_two()
}

/// Offset of the word in which a ticket's holder writes its rank.
pub(super) fn queue_at(ranks: u32, ticket: u64) -> u64 {
    QUEUE + 8 * (ticket & (tickets(ranks) - 1))
}

/// Offset of the count of epochs that `rank` has posted. Only `rank` changes this word.
pub(super) fn posts_of(ranks: u32, rank: u32) -> u64 {
    (QUEUE + 8 * tickets(ranks)).next_multiple_of(LINE) + 8 * u64::from(rank)
}

/// Offset of the count of epochs that `rank` has ended. Only `rank` changes this word. Counts of posted and of ended
/// epochs share no cache line: a store to one count would cost a rank that polls the other a cache miss.
pub(super) fn ends_of(ranks: u32, rank: u32) -> u64 {
    posts_of(ranks, ranks).next_multiple_of(LINE) + 8 * u64::from(rank)
}

pub(super) fn bytes(ranks: u32) -> usize {
    ends_of(ranks, ranks) as usize
}

pub(super) struct WindowControl {
    key: RemoteKey,
    /// Address of the words in this process, or null if only the protocol layer reaches the words.
    words: *mut u8,
}

impl WindowControl {
    pub fn new(key: RemoteKey, words: *mut u8) -> Self {
        WindowControl { key, words }
    }

    /// Returns the address of a word, or null if it is not mapped in this process.
    #[inline]
    pub fn word(&self, at: u64) -> *const AtomicU64 {
        match self.words.is_null() {
            true => ptr::null(),
            false => self.words.wrapping_add(at as usize).cast_const().cast(),
        }
    }

    #[inline]
    pub fn near(&self, at: u64) -> Option<&'static AtomicU64> {
        // SAFETY: words are aligned and inside memory that stays mapped while the window lives, and are not used
        // longer. Every access to them is atomic.
        unsafe { self.word(at).as_ref() }
    }
}

/// Operations of this process on the control words of one rank of a window.
#[derive(Clone, Copy)]
pub(super) struct Words<'a> {
    pub p: &'a Process,
    pub window: &'a Window,
    pub rank: u32,
    control: *mut WindowControl,
}

impl<'a> Words<'a> {
    #[inline]
    pub fn of(p: &'a Process, window: &'a Window, rank: u32) -> Result<Self> {
        let reached = window.reach(p, rank)?;
        Ok(Words {
            p,
            window,
            rank,
            // SAFETY: the reached part lives as long as the window.
            control: unsafe { &raw mut (*reached).control },
        })
    }

    #[inline]
    pub fn near(&self, at: u64) -> Option<&'static AtomicU64> {
        // SAFETY: the reached part lives as long as the window.
        unsafe { (*self.control).near(at) }
    }

    /// Returns the owner word of the lock for use by this rank; `None` if it is not mapped in this process.
    #[inline]
    pub fn owner(&self) -> Option<Owner<'static>> {
        let rank = self.window.rank;
        self.near(OWNER).map(|word| Owner { word, rank })
    }

    /// Adds to a word. Returns its previous value.
    #[inline]
    pub fn add(&self, at: u64, value: u64) -> Result<u64> {
        match self.near(at) {
            // ORDERING: earlier writes to the window are visible to a rank that reads the word. The partners are the
            // loads and read-modify-write operations of the ranks that synchronise.
            Some(word) => Ok(word.fetch_add(value, Ordering::AcqRel)),
            None => self.far(|worker, key, found| {
                // SAFETY: `found` lives until the operation has ended.
                unsafe { worker.fetch_add_nbi(key, at, value, found) }.map(drop)
            }),
        }
    }

    /// Sets a word that only this rank changes to `count`, one more than before. Wakes waiting ranks of this host.
    #[inline]
    pub fn count(&self, at: u64, count: u64) -> Result {
        let Some(word) = self.near(at) else {
            return self.add(at, 1).map(drop);
        };
        // ORDERING: release, pairs with the acquire loads of the ranks that wait for the count.
        word.store(count, Ordering::Release);
        // SAFETY: the worker lives while MPI runs, and this call holds the lock.
        unsafe { (*self.p.worker()?).wake_rank(self.window.world(self.rank)) };
        Ok(())
    }

    /// Replaces a word if it holds `expected`. Returns its previous value.
    #[inline]
    pub fn swap(&self, at: u64, expected: u64, value: u64) -> Result<u64> {
        match self.near(at) {
            Some(word) => {
                // ORDERING: acquire and release, pairs with other ranks' changes and loads of this word.
                let (done, seen) = (Ordering::AcqRel, Ordering::Acquire);
                match word.compare_exchange(expected, value, done, seen) {
                    Ok(found) | Err(found) => Ok(found),
                }
            }
            None => self.far(|worker, key, found| {
                // SAFETY: `found` lives until the operation has ended.
                unsafe { worker.compare_swap_nbi(key, at, expected, value, found) }.map(drop)
            }),
        }
    }

    #[inline]
    pub fn load(&self, at: u64) -> Result<u64> {
        match self.near(at) {
            // ORDERING: acquire, pairs with the release in `add`, `count` and `swap` of the rank that changed the word.
            Some(word) => Ok(word.load(Ordering::Acquire)),
            None => self.add(at, 0),
        }
    }

    /// Requests the lock. Returns the ticket, and whether the lock is granted at once.
    #[inline]
    pub fn request_lock(&self, exclusive: bool) -> Result<(Ticket, bool)> {
        if let Some(word) = self.near(LOCK) {
            let mut seen = word.load(Ordering::Relaxed);
            loop {
                let (new, ticket, granted) = LockWord(seen).request(exclusive);
                // ORDERING: acquire and release, pairs with other ranks' changes and loads of this word.
                let (done, failed) = (Ordering::AcqRel, Ordering::Relaxed);
                match word.compare_exchange(seen, new.0, done, failed) {
                    Ok(_) => return Ok((ticket, granted)),
                    Err(found) => seen = found,
                }
            }
        }
        // An addition never fails, so ranks that take the lock repeatedly cannot starve this one.
        let (ticket, granted) = self.add_to_lock(ASK)?.asked(exclusive);
        if granted && !exclusive {
            self.add_to_lock(ADMIT)?;
        }
        Ok((ticket, granted))
    }

    /// Admits the reader that waits next after this one. Returns the word after the change.
    pub fn admit_to_lock(&self) -> Result<LockWord> {
        self.add_to_lock(ADMIT).map(LockWord::admit)
    }

    /// Releases the lock. Returns the word after the change.
    #[inline]
    pub fn leave_lock(&self, exclusive: bool) -> Result<LockWord> {
        let before = self.add_to_lock(leaving(exclusive))?;
        Ok(before.release(exclusive))
    }

    /// Adds to counters of the lock. Returns the previous word.
    #[inline]
    fn add_to_lock(&self, add: u64) -> Result<LockWord> {
        match self.near(LOCK) {
            Some(word) => {
                let sum = |word| Some(add_masked(word, add, BOUNDARIES));
                // ORDERING: acquire and release, pairs with other ranks' changes and loads of this word.
                let (done, seen) = (Ordering::AcqRel, Ordering::Relaxed);
                match word.fetch_update(done, seen, sum) {
                    Ok(found) | Err(found) => Ok(LockWord(found)),
                }
            }
            None => {
                let before = self.far(|worker, key, found| {
                    // SAFETY: `found` lives until the operation has ended.
                    unsafe { worker.fetch_add_masked_nbi(key, LOCK, add, BOUNDARIES, found) }
                        .map(drop)
                });
                before.map(LockWord)
            }
        }
    }

    /// Performs an operation of the protocol layer and waits for its end.
    #[cold]
    #[inline(never)]
    fn far(
        &self,
        start: impl FnOnce(
            &mut Worker,
            &mut RemoteKey,
            *mut u64,
        ) -> core::result::Result<(), fastpath_protocol::rma::RmaError>,
    ) -> Result<u64> {
        let worker = self.p.worker()?;
        let mut found = Box::new(0);
        let world = self.window.world(self.rank);
        // SAFETY: the worker lives while MPI runs, the control words as long as the window, and `found` until the flush
        // has returned. No reference is held across the flush.
        let done = unsafe {
            start(&mut *worker, &mut (*self.control).key, &raw mut *found)
                .and_then(|()| Worker::flush(worker, world))
        };
        done.map_err(|e| error::explain(self.window, self.rank, e))?;
        Ok(*found)
    }

    /// Requests that the rank change its memory under its own accumulate lock. Returns false if nothing was changed.
    /// Safety: see [`RmaTarget::ask`](super::target::RmaTarget::ask), for the key with which the target was found.
    #[cold]
    #[inline(never)]
    pub unsafe fn change(&self, memory: *mut RemoteKey, asking: &TargetRequest) -> Result<bool> {
        let worker = self.p.worker()?;
        let mut answer = Box::new([0_u8; ANSWER_MOST]);
        let world = self.window.world(self.rank);
        // SAFETY: the worker lives while MPI runs, the control words as long as the window, and `answer` until the
        // flush has returned. A reply fits `answer`. The caller guarantees `asking`'s buffers.
        let done = unsafe {
            let lock = HeldWord { key: &(*self.control).key, offset: ACCUMULATE };
            let asked = (*worker).change_nbi(&mut *memory, &lock, asking, answer.as_mut_ptr());
            match asked {
                Ok(true) => {
                    Worker::flush(worker, world).map(|()| answer[..ANSWER_HEAD] != [0; ANSWER_HEAD])
                }
                other => other,
            }
        };
        let made = done.map_err(|e| error::explain(self.window, self.rank, e))?;
        let (to, len) = asking.taken;
        if made && len != 0 {
            // SAFETY: `to` is writable for `len` bytes, by this function's contract.
            unsafe { copy(to, answer[ANSWER_HEAD..].as_ptr(), len) };
        }
        Ok(made)
    }

    pub fn note(&self, awaited: AwaitedRanks) -> Note {
        Note {
            call: self.p.call.get(),
            peer: self.rank as i32,
            tag: -1,
            comm: self.window.comm.handle.get(),
            bytes: 0,
            awaited,
            naps: !self.window.is_local,
        }
    }

    /// Returns the other ranks of the window, any of which may hold a lock.
    pub fn others(&self) -> AwaitedRanks {
        let worlds = (0..).zip(self.window.group.world_ranks());
        let others = worlds.filter(|&(rank, _)| rank != self.window.rank);
        let others: Vec<u32> = others.map(|(_, &world)| world).collect();
        AwaitedRanks::holding(&others)
    }

    /// Waits until a word is at least `wanted`. `rank` raises the word by [`Words::count`].
    #[inline]
    pub fn await_count(&self, at: u64, rank: u32, wanted: u64) -> Result {
        let world = self.window.world(rank);
        match self.near(at) {
            Some(word) if self.spin(word, world, wanted)? => Ok(()),
            _ => {
                let by = (rank as i32, AwaitedRanks::of(&[world]));
                self.await_word(at, by, |count| count >= wanted)
            }
        }
    }

    /// Polls only the word, for a bounded time and while no other work is pending.
    #[inline]
    fn spin(&self, word: &AtomicU64, world: u32, wanted: u64) -> Result<bool> {
        let worker = self.p.worker()?;
        // SAFETY: the worker lives while MPI runs, and this call holds the lock. No reference outlives a statement.
        let watches = unsafe { (*worker).wait.directed && (*worker).may_watch_ring(world) };
        let polls = if watches { COUNT_POLLS } else { 1 };
        // ORDERING: acquire, pairs with the release in `count`.
        let poll = |_| (word.load(Ordering::Acquire) >= wanted).then_some(());
        // SAFETY: the worker lives while MPI runs, and this call holds the lock.
        let is_needed = || unsafe { (*worker).wants_attention(world) };
        Ok(spin(polls, poll, is_needed).is_some())
    }

    /// Waits until `done` accepts the word at `at`. Rank `peer` changes the word, or if `peer` is negative, the ranks
    /// `awaited`.
    #[cold]
    #[inline(never)]
    pub fn await_word(
        &self, at: u64, (peer, awaited): (i32, AwaitedRanks), done: impl Fn(u64) -> bool,
    ) -> Result {
        let note = Note { peer, ..self.note(awaited) };
        self.await_noted(at, &note, done)
    }

    /// Waits until `done` accepts a word whose changes wake no rank: the count of ranks in `MPI_Win_lock_all`. So this
    /// rank sleeps only for limited times, and polls the word between them.
    #[cold]
    #[inline(never)]
    pub fn poll_word(&self, at: u64, done: impl Fn(u64) -> bool) -> Result {
        let note = Note { naps: true, peer: -1, ..self.note(self.others()) };
        self.await_noted(at, &note, done)
    }

    fn await_noted(&self, at: u64, note: &Note, done: impl Fn(u64) -> bool) -> Result {
        let Some(word) = self.near(at) else {
            return self.poll_far(at, note, done);
        };
        let worker = self.p.worker()?;
        let mut is_done = false;
        // SAFETY: the worker lives while MPI runs, and no reference to it is held here.
        unsafe {
            // ORDERING: acquire, pairs with the release in `add` and `count`: earlier writes to the window are visible.
            Worker::wait_until(worker, None, note, |_| {
                is_done = done(word.load(Ordering::Acquire));
                is_done || self.is_broken()
            });
        }
        match is_done {
            true => Ok(()),
            false => Err(describe_deaths(&self.window.comm)),
        }
    }

    /// Returns whether a rank of the window has died, which may hold a lock or never change an awaited word.
    fn is_broken(&self) -> bool {
        self.window.comm.faults.is_broken()
    }

    /// Waits until `done` accepts a remote word. Reads the word repeatedly, with growing pauses.
    fn poll_far(&self, at: u64, note: &Note, done: impl Fn(u64) -> bool) -> Result {
        let worker = self.p.worker()?;
        // No rank wakes this rank when the remote word changes, so sleeps have a time limit.
        let note = Note { naps: true, ..*note };
        let mut pause_ns = FIRST_PAUSE_NS;
        while !done(self.load(at)?) {
            if self.is_broken() {
                return Err(describe_deaths(&self.window.comm));
            }
            let until = clock::now_ns() + pause_ns;
            // SAFETY: the worker lives while MPI runs, and no reference to it is held here.
            unsafe { Worker::wait_until(worker, None, &note, |_| clock::now_ns() >= until) };
            pause_ns = (pause_ns * 2).min(LAST_PAUSE_NS);
        }
        Ok(())
    }

    /// Takes the accumulate lock, which ranks hold only briefly.
    #[inline]
    pub fn lock_accumulates(&self) -> Result {
        if let Some(word) = self.near(ACCUMULATE) {
            // ORDERING: acquire, pairs with the release in `unlock_accumulates`, here or in another rank.
            let (done, seen) = (Ordering::Acquire, Ordering::Relaxed);
            if word.compare_exchange(0, 1, done, seen).is_ok() {
                return Ok(());
            }
        }
        self.lock_accumulates_slow()
    }

    #[cold]
    #[inline(never)]
    fn lock_accumulates_slow(&self) -> Result {
        if let Some(word) = self.near(ACCUMULATE) {
            let try_it = || {
                // ORDERING: acquire, pairs with the release in `unlock_accumulates`, here or in another rank.
                let (done, seen) = (Ordering::Acquire, Ordering::Relaxed);
                word.load(Ordering::Relaxed) == 0 && word.compare_exchange(0, 1, done, seen).is_ok()
            };
            if try_briefly(try_it) {
                return Ok(());
            }
            let note = Note { naps: true, ..self.note(AwaitedRanks::UNKNOWN) };
            // `taken` stores the result, because another attempt after a successful one would fail.
            let mut taken = false;
            // SAFETY: the worker lives while MPI runs, and no reference to it is held here.
            unsafe {
                Worker::wait_until(self.p.worker()?, None, &note, |_| {
                    taken = taken || try_it();
                    taken || self.is_broken()
                });
            }
            return match taken {
                true => Ok(()),
                false => Err(describe_deaths(&self.window.comm)),
            };
        }
        while self.swap(ACCUMULATE, 0, 1)? != 0 {
            self.poll_far(ACCUMULATE, &self.note(AwaitedRanks::UNKNOWN), |word| word == 0)?;
        }
        Ok(())
    }

    /// Releases the accumulate lock. Writes by operations of the protocol layer must have completed.
    #[inline]
    pub fn unlock_accumulates(&self) -> Result {
        match self.near(ACCUMULATE) {
            Some(word) => {
                // ORDERING: release, pairs with the acquire in `lock_accumulates`.
                word.store(0, Ordering::Release);
                Ok(())
            }
            None => self.swap(ACCUMULATE, 1, 0).map(drop),
        }
    }
}
