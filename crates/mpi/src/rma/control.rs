//! The words by which the ranks of a window synchronise: each rank has some in memory that every other reaches, by load
//! and store within a host and by the atomic operations of the layer below elsewhere.
//!
//! | byte | word |
//! |---|---|
//! | 0 | the lock of `MPI_Win_lock` ([`super::lock_word`]) |
//! | 64 | the lock of accumulates: 0 or 1 |
//! | 128 | who has the first alone: its rank plus 1, as far as known, and whether it only keeps it ([`super::kept_lock`]) |
//! | 136 | how many that wait for that lock, to share it, hold other locks of the window |
//! | 144 | of the first rank on each host: who is in `MPI_Win_lock_all` without locks ([`super::lock_all`]) |
//! | 192 | for each ticket of the lock, modulo their number, the rank of who waits with it plus 1 |
//! | behind, from a multiple of 64 on | for each rank, how many epochs it has posted for this one |
//! | the same | for each rank, how many epochs by its `MPI_Win_start` have ended here |
#![allow(unsafe_code)]

use super::error;
use super::kept_lock::Owner;
use super::lock_word::{ADMIT, ASK, BOUNDARIES, LockWord, Ticket, leaving};
use super::window::Window;
use crate::common::error::Result;
use crate::process::Process;
use fastpath_base::clock;
use fastpath_base::copy::copy;
use fastpath_base::sync::{AtomicU64, Ordering};
use fastpath_bootstrap::segment::Awaited;
use fastpath_protocol::Worker;
use fastpath_protocol::rma::{ANSWER_HEAD, ANSWER_MOST, Asking, HeldWord, RemoteKey, add_masked};
use fastpath_protocol::waiting::{Note, spin, try_briefly};
use std::ptr;

/// The lock of a window.
pub(super) const LOCK: u64 = 0;
/// The exclusive owner. In a line of its own: all that wait poll the lock's line, and each store into it costs them all
/// a miss.
pub(super) const OWNER: u64 = 128;
/// How many wait to share it that hold other locks.
pub(super) const PRESSED: u64 = 136;
/// Who is in `MPI_Win_lock_all` without locks.
pub(super) const SHARERS: u64 = 144;
/// The lock of accumulates.
pub(super) const ACCUMULATE: u64 = 64;
const QUEUE: u64 = 192;

/// How long a rank that asks for a word elsewhere pauses before it asks again, in nanoseconds: at first and at most.
const FIRST_PAUSE_NS: u64 = 1_000;
const LAST_PAUSE_NS: u64 = 200_000;
/// Bytes that processors pass to each other at once.
const LINE: u64 = 64;
/// Polls of a count before other work is looked for: about a microsecond.
const COUNT_POLLS: u32 = 1024;

/// Tickets that can wait at the same time.
fn tickets(ranks: u32) -> u64 {
    u64::from(ranks).next_power_of_two()
}

/// Where a ticket's holder writes its rank.
pub(super) fn queue_at(ranks: u32, ticket: u64) -> u64 {
    QUEUE + 8 * (ticket & (tickets(ranks) - 1))
}

/// Where a rank counts the epochs that it has posted: only it changes this word.
pub(super) fn posts_of(ranks: u32, rank: u32) -> u64 {
    (QUEUE + 8 * tickets(ranks)).next_multiple_of(LINE) + 8 * u64::from(rank)
}

/// Where a rank counts the epochs that it has ended: only it changes this word. No line has both counts: the first
/// store into a line that is polled would have to be followed by another fetch of it.
pub(super) fn ends_of(ranks: u32, rank: u32) -> u64 {
    posts_of(ranks, ranks).next_multiple_of(LINE) + 8 * u64::from(rank)
}

/// Bytes of one rank's words.
pub(super) fn bytes(ranks: u32) -> usize {
    ends_of(ranks, ranks) as usize
}

/// The words of one rank.
pub(super) struct Control {
    key: RemoteKey,
    /// In this process; null where they are reached by operations of the layer below.
    words: *mut u8,
}

impl Control {
    pub fn new(key: RemoteKey, words: *mut u8) -> Self {
        Control { key, words }
    }

    /// A word's address; null if it is not mapped in this process.
    #[inline]
    pub fn word(&self, at: u64) -> *const AtomicU64 {
        match self.words.is_null() {
            true => ptr::null(),
            false => self.words.wrapping_add(at as usize).cast_const().cast(),
        }
    }

    /// A word in this process.
    #[inline]
    pub fn near(&self, at: u64) -> Option<&'static AtomicU64> {
        // SAFETY: words are aligned and inside the memory, which stays mapped while the window lives, and no longer are
        // they used. Every access to them is atomic.
        unsafe { self.word(at).as_ref() }
    }
}

/// A window's words of one rank, as this process uses them.
#[derive(Clone, Copy)]
pub(super) struct Words<'a> {
    pub p: &'a Process,
    pub window: &'a Window,
    pub rank: u32,
    control: *mut Control,
}

impl<'a> Words<'a> {
    /// Those of a rank.
    #[inline]
    pub fn of(p: &'a Process, window: &'a Window, rank: u32) -> Result<Self> {
        let reached = window.reach(p, rank)?;
        Ok(Words {
            p,
            window,
            rank,
            // SAFETY: lives as long as the window.
            control: unsafe { &raw mut (*reached).control },
        })
    }

    /// A word in this process, if it is there.
    #[inline]
    pub fn near(&self, at: u64) -> Option<&'static AtomicU64> {
        // SAFETY: lives as long as the window.
        unsafe { (*self.control).near(at) }
    }

    /// The word of the lock's owner as this rank uses it, if it is in this process.
    #[inline]
    pub fn owner(&self) -> Option<Owner<'static>> {
        let rank = self.window.rank;
        self.near(OWNER).map(|word| Owner { word, rank })
    }

    /// Adds to a word; what was there.
    #[inline]
    pub fn add(&self, at: u64, value: u64) -> Result<u64> {
        match self.near(at) {
            // ORDERING: what was written to the window before is there for who reads the word; the partners are the
            // loads and the same operations of the ranks that synchronise.
            Some(word) => Ok(word.fetch_add(value, Ordering::AcqRel)),
            None => self.far(|worker, key, found| {
                // SAFETY: `found` lives until the operation has ended.
                unsafe { worker.fetch_add_nbi(key, at, value, found) }.map(drop)
            }),
        }
    }

    /// Counts one more in a word that only this rank changes, and that says `count` then. Ranks of this host that wait
    /// for it are woken.
    #[inline]
    pub fn count(&self, at: u64, count: u64) -> Result {
        let Some(word) = self.near(at) else {
            return self.add(at, 1).map(drop);
        };
        // ORDERING: as in `add`.
        word.store(count, Ordering::Release);
        // SAFETY: the worker lives while MPI runs, and this call holds the lock.
        unsafe { (*self.p.worker()?).wake_rank(self.window.world(self.rank)) };
        Ok(())
    }

    /// Replaces a word if it is as expected; what was there.
    #[inline]
    pub fn swap(&self, at: u64, expected: u64, value: u64) -> Result<u64> {
        match self.near(at) {
            Some(word) => {
                // ORDERING: as in `add`.
                let (done, seen) = (Ordering::AcqRel, Ordering::Acquire);
                match word.compare_exchange(expected, value, done, seen) {
                    Ok(found) | Err(found) => Ok(found),
                }
            }
            None => self.far(|worker, key, found| {
                // SAFETY: as in `add`.
                unsafe { worker.compare_swap_nbi(key, at, expected, value, found) }.map(drop)
            }),
        }
    }

    /// What a word says.
    #[inline]
    pub fn load(&self, at: u64) -> Result<u64> {
        match self.near(at) {
            // ORDERING: as in `add`.
            Some(word) => Ok(word.load(Ordering::Acquire)),
            None => self.add(at, 0),
        }
    }

    /// Asks for the lock: the ticket, and whether this process is in already.
    #[inline]
    pub fn request_lock(&self, exclusive: bool) -> Result<(Ticket, bool)> {
        if let Some(word) = self.near(LOCK) {
            let mut seen = word.load(Ordering::Relaxed);
            loop {
                let (new, ticket, granted) = LockWord(seen).request(exclusive);
                // ORDERING: as in `add`.
                let (done, failed) = (Ordering::AcqRel, Ordering::Relaxed);
                match word.compare_exchange(seen, new.0, done, failed) {
                    Ok(_) => return Ok((ticket, granted)),
                    Err(found) => seen = found,
                }
            }
        }
        // Nobody who takes the lock again and again can keep this from its turn: an addition does not fail.
        let (ticket, granted) = self.add_to_lock(ASK)?.asked(exclusive);
        if granted && !exclusive {
            self.add_to_lock(ADMIT)?;
        }
        Ok((ticket, granted))
    }

    /// Lets the reader behind this one, which has waited, try; the word then.
    pub fn admit_to_lock(&self) -> Result<LockWord> {
        self.add_to_lock(ADMIT).map(LockWord::admit)
    }

    /// Leaves the lock; the word then.
    #[inline]
    pub fn leave_lock(&self, exclusive: bool) -> Result<LockWord> {
        let before = self.add_to_lock(leaving(exclusive))?;
        Ok(before.release(exclusive))
    }

    /// Adds to counters of the lock; what was there before.
    #[inline]
    fn add_to_lock(&self, add: u64) -> Result<LockWord> {
        match self.near(LOCK) {
            Some(word) => {
                let sum = |word| Some(add_masked(word, add, BOUNDARIES));
                // ORDERING: as in `add`.
                let (done, seen) = (Ordering::AcqRel, Ordering::Relaxed);
                match word.fetch_update(done, seen, sum) {
                    Ok(found) | Err(found) => Ok(LockWord(found)),
                }
            }
            None => {
                let before = self.far(|worker, key, found| {
                    // SAFETY: as in `add`.
                    unsafe { worker.fetch_add_masked_nbi(key, LOCK, add, BOUNDARIES, found) }
                        .map(drop)
                });
                before.map(LockWord)
            }
        }
    }

    /// An operation of the layer below, from its beginning to its end.
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
        // has returned. No reference is held across it.
        let done = unsafe {
            start(&mut *worker, &mut (*self.control).key, &raw mut *found)
                .and_then(|()| Worker::flush(worker, world))
        };
        done.map_err(|e| error::explain(self.window, self.rank, e))?;
        Ok(*found)
    }

    /// Asks the rank to change its memory itself, under its lock of accumulates; false where nothing was changed.
    ///
    /// # Safety
    /// As [`Target::ask`](super::target::Target::ask), for the key that the target was found with.
    #[cold]
    #[inline(never)]
    pub unsafe fn change(&self, memory: *mut RemoteKey, asking: &Asking) -> Result<bool> {
        let worker = self.p.worker()?;
        let mut answer = Box::new([0_u8; ANSWER_MOST]);
        let world = self.window.world(self.rank);
        // SAFETY: as in `far`; what is given and taken is the caller's promise, and an answer has no more bytes.
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
            // SAFETY: what is taken is writable for as many bytes, by this function's contract.
            unsafe { copy(to, answer[ANSWER_HEAD..].as_ptr(), len) };
        }
        Ok(made)
    }

    /// The note of a wait for this rank's words.
    pub fn note(&self, awaited: Awaited) -> Note {
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

    /// The other ranks of the window, any of which may hold a lock.
    pub fn others(&self) -> Awaited {
        let worlds = (0..).zip(self.window.group.world_ranks());
        let others = worlds.filter(|&(rank, _)| rank != self.window.rank);
        let others: Vec<u32> = others.map(|(_, &world)| world).collect();
        Awaited::holding(&others)
    }

    /// Waits until a word says at least `wanted`, which `rank` brings about by [`Words::count`].
    #[inline]
    pub fn await_count(&self, at: u64, rank: u32, wanted: u64) -> Result {
        let world = self.window.world(rank);
        match self.near(at) {
            Some(word) if self.spin(word, world, wanted)? => Ok(()),
            _ => {
                let by = (rank as i32, Awaited::of(&[world]));
                self.await_word(at, by, |count| count >= wanted)
            }
        }
    }

    /// Polls nothing but the word for a while, as long as nothing else is to be done.
    #[inline]
    fn spin(&self, word: &AtomicU64, world: u32, wanted: u64) -> Result<bool> {
        let worker = self.p.worker()?;
        // SAFETY: the worker lives while MPI runs, and this call holds the lock; no reference outlives a statement.
        let watches = unsafe { (*worker).wait.directed && (*worker).may_watch_ring(world) };
        let polls = if watches { COUNT_POLLS } else { 1 };
        // ORDERING: as in `add`.
        let poll = |_| (word.load(Ordering::Acquire) >= wanted).then_some(());
        // SAFETY: as above.
        let is_needed = || unsafe { (*worker).wants_attention(world) };
        Ok(spin(polls, poll, is_needed).is_some())
    }

    /// Waits until a word says what `done` wants, which `peer`, a rank or negative, or who is awaited brings about.
    #[cold]
    #[inline(never)]
    pub fn await_word(
        &self, at: u64, (peer, awaited): (i32, Awaited), done: impl Fn(u64) -> bool,
    ) -> Result {
        let note = Note { peer, ..self.note(awaited) };
        self.await_noted(at, &note, done)
    }

    /// Waits until a word says what `done` wants: that no rank is in `MPI_Win_lock_all`. A rank that changes it wakes
    /// no other, so this rank polls from time to time.
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
        // SAFETY: the worker lives while MPI runs; no reference to it is held here.
        unsafe {
            // ORDERING: acquire: what was written to the window before the word is there (as in `add`).
            Worker::wait_until(worker, None, note, |_| done(word.load(Ordering::Acquire)));
        }
        Ok(())
    }

    /// The same where only the layer below reaches the word: asks again and again, with pauses that grow.
    fn poll_far(&self, at: u64, note: &Note, done: impl Fn(u64) -> bool) -> Result {
        let worker = self.p.worker()?;
        // Nobody wakes who only asks.
        let note = Note { naps: true, ..*note };
        let mut pause_ns = FIRST_PAUSE_NS;
        while !done(self.load(at)?) {
            let until = clock::now_ns() + pause_ns;
            // SAFETY: as in `await_word`.
            unsafe { Worker::wait_until(worker, None, &note, |_| clock::now_ns() >= until) };
            pause_ns = (pause_ns * 2).min(LAST_PAUSE_NS);
        }
        Ok(())
    }

    /// Takes the lock of accumulates. It is held for a moment only.
    #[inline]
    pub fn lock_accumulates(&self) -> Result {
        if let Some(word) = self.near(ACCUMULATE) {
            // ORDERING: acquire: the partner is the release in `unlock_accumulates`, here or in another rank.
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
                // ORDERING: as in `lock_accumulates`.
                let (done, seen) = (Ordering::Acquire, Ordering::Relaxed);
                word.load(Ordering::Relaxed) == 0 && word.compare_exchange(0, 1, done, seen).is_ok()
            };
            if try_briefly(try_it) {
                return Ok(());
            }
            let note = Note { naps: true, ..self.note(Awaited::UNKNOWN) };
            // A wait may ask once more after it was told that it is over.
            let mut taken = false;
            // SAFETY: as in `await_word`.
            unsafe {
                Worker::wait_until(self.p.worker()?, None, &note, |_| {
                    taken = taken || try_it();
                    taken
                });
            }
            return Ok(());
        }
        while self.swap(ACCUMULATE, 0, 1)? != 0 {
            self.poll_far(ACCUMULATE, &self.note(Awaited::UNKNOWN), |word| word == 0)?;
        }
        Ok(())
    }

    /// Gives it back: what was written by operations of the layer below must be there.
    #[inline]
    pub fn unlock_accumulates(&self) -> Result {
        match self.near(ACCUMULATE) {
            Some(word) => {
                // ORDERING: release: the partner is the acquire in `lock_accumulates`.
                word.store(0, Ordering::Release);
                Ok(())
            }
            None => self.swap(ACCUMULATE, 1, 0).map(drop),
        }
    }
}
