//! Small operations on memory that the kernel alone reaches, carried out by its owner while that is inside MPI: puts,
//! gets, and changes that the layer above makes.
//!
//! A message there and a flag back take a fraction of a call of the kernel. So the origin writes what it wants into a
//! slot of memory that both map, tells the owner by a message without bytes, and waits for a moment. Where the owner
//! has not begun by then it computes: the origin takes the slot back, and the kernel copies. So nothing depends on the
//! owner's progress. After a wait in vain the next operations do not wait, twice as many each time.
//!
//! | state of a slot | what comes next, and by whom |
//! |---|---|
//! | `FREE` | `HELD`, by any origin |
//! | `HELD` | `POSTED` or `FREE`, by the origin that has it |
//! | `POSTED` | `SERVING`, by the owner; `HELD`, by the origin that takes it back |
//! | `SERVING` | `DONE` or `REFUSED`, by the owner |
//! | `DONE`, `REFUSED` | `FREE`, by the origin |
//!
//! The word of the state also counts how often the slot was held. The message names that number, so that one that comes
//! too late finds nothing, and what is asked for first is carried out first.
#![allow(unsafe_code)]

use super::error::RmaError::{self, PeerGone, Withdrawn};
use super::key::PackedKey;
use super::resolve::{AccessPath, RemoteKey};
use crate::wire;
use crate::worker::Worker;
use fastpath_base::clock;
use fastpath_base::copy::copy;
use fastpath_base::sync::{AtomicU32, AtomicU64, Ordering};
use fastpath_bootstrap::segment::{STATE_AWAKE, SegmentError};
use fastpath_transport::{Header, Post};
use std::cell::UnsafeCell;

const FREE: u32 = 0;
const HELD: u32 = 1;
const POSTED: u32 = 2;
const SERVING: u32 = 3;
const DONE: u32 = 4;
const REFUSED: u32 = 5;
/// The state's part of the word; the rest counts.
const STATE: u32 = 7;
/// What a use more adds.
const USE: u32 = 8;
/// Slots begin at multiples of this in their region.
const LINE: u32 = 64;
/// The count's part of a message, below the slot's place in lines.
const NAMED: u32 = (1 << 12) - 1;

/// Which use of a slot a word is of, as a message says it.
fn use_of(word: u32) -> u32 {
    (word / USE) & NAMED
}

/// The same use in another state.
fn in_state(word: u32, state: u32) -> u32 {
    word & !STATE | state
}

/// Most bytes in a slot: longer operations go in pieces.
pub const ASK_MOST: usize = 4096;
/// Most bytes of a put or a get: of more one copy by the kernel is shorter than two.
const MOVE_MOST: usize = 4096;
/// Most bytes of a change, for which the kernel would have to copy twice.
const CHANGE_MOST: usize = 1 << 17;
/// Pieces that are under way at the same time.
const AHEAD: usize = 2;
/// Slots of one owner, which origins share by their ranks.
const SLOTS: usize = 4;
/// Bytes that an owner gives for its slots; their first [`SLOT_HEAD`] of each [`SLOT_BYTES`] must be 0 at first.
pub const SLOTS_BYTES: usize = SLOTS * SLOT_BYTES;
/// Bytes of a slot.
pub const SLOT_BYTES: usize = size_of::<Slot>();
/// Bytes of a slot before its data.
pub const SLOT_HEAD: usize = 32;

/// In [`Slot::asked`], beside the number of bytes: a put, or a change.
const PUT: u32 = 1 << 31;
const CHANGE: u32 = 1 << 30;

/// How long an origin waits for the owner to begin, in nanoseconds: less than a call of the kernel takes.
const WAIT_NS: u64 = 1_000;
/// Polls of the slot between two of other messages, and rounds of both between two readings of the clock.
const POLLS: u32 = 8;
const ROUNDS: u32 = 8;
/// Operations in a row that find the owner asleep before it is woken, for those that follow; twice as many each time.
const ASLEEP_FIRST: u32 = 8;
const ASLEEP_MOST: u32 = 1024;
/// Waits in vain that are counted: the next 2^this operations less one do not wait.
const VAIN_MOST: u32 = 10;

/// An operation that an origin asks the owner for.
#[repr(C, align(64))]
struct Slot {
    /// A state, and how often the slot was held.
    word: AtomicU32,
    /// Bytes of the owner's memory, and [`PUT`] or [`CHANGE`].
    asked: AtomicU32,
    /// What change.
    change: AtomicU64,
    region: AtomicU64,
    offset: AtomicU64,
    data: UnsafeCell<[u8; ASK_MOST]>,
}

const _: () = assert!(std::mem::offset_of!(Slot, data) == SLOT_HEAD);

impl Slot {
    fn data(&self) -> *mut u8 {
        self.data.get().cast()
    }

    /// Takes a slot that is free; the word then.
    fn hold(&self) -> Option<u32> {
        let free = self.word.load(Ordering::Relaxed);
        if free & STATE != FREE {
            return None;
        }
        let held = in_state(free.wrapping_add(USE), HELD);
        // ORDERING: acquire: the origin that has left it has taken its bytes; partner: `leave`.
        let (seen, failed) = (Ordering::Acquire, Ordering::Relaxed);
        let taken = self.word.compare_exchange(free, held, seen, failed);
        taken.is_ok().then_some(held)
    }

    /// Begins what a message with the number of a use asks for; the word then. None where that was taken back.
    fn begin(&self, named: u32) -> Option<u32> {
        let posted = self.word.load(Ordering::Relaxed);
        if posted & STATE != POSTED || use_of(posted) != named {
            return None;
        }
        let serving = in_state(posted, SERVING);
        // ORDERING: acquire: the owner sees all of the slot; partner: the release in `post`.
        let (seen, failed) = (Ordering::Acquire, Ordering::Relaxed);
        let begun = self.word.compare_exchange(posted, serving, seen, failed);
        begun.is_ok().then_some(serving)
    }

    /// The slot's holder asks the owner.
    fn post(&self, held: u32) {
        // ORDERING: release: partner: the acquire in `begin`.
        self.word.store(in_state(held, POSTED), Ordering::Release);
    }

    /// The owner has ended.
    fn end(&self, serving: u32, state: u32) {
        // ORDERING: release: partner: the acquire in `await_end`.
        self.word.store(in_state(serving, state), Ordering::Release);
    }

    /// Takes back what the owner has not begun, and leaves the slot; false where it has begun.
    fn take_back(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        let (posted, held) = (in_state(word, POSTED), in_state(word, HELD));
        let relaxed = Ordering::Relaxed;
        let taken = self.word.compare_exchange(posted, held, relaxed, relaxed);
        if taken.is_ok() {
            self.leave();
        }
        taken.is_ok()
    }

    /// The slot is for the next origin.
    fn leave(&self) {
        let word = self.word.load(Ordering::Relaxed);
        // ORDERING: release: partner: the acquire in `hold`.
        self.word.store(in_state(word, FREE), Ordering::Release);
    }
}

/// Applies a peer's change that only the upper layer understands to `len` bytes at `memory`, with [`ASK_MOST`] bytes at
/// `data`, which also take the answer. Returns false if `change` is unknown. Other processes may write to both at the
/// same time.
pub type ChangeFunction =
    unsafe fn(change: u64, data: *mut u8, memory: *mut u8, len: usize) -> bool;

/// What the owner is to do with its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Take the bytes that are given.
    Put,
    /// Answer with its bytes.
    Get,
    /// Make this change ([`ChangeFunction`]).
    Change(u64),
}

/// An operation that an owner is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Asking {
    /// What it is.
    pub ask: Ask,
    /// Where in the region.
    pub offset: u64,
    /// Bytes there.
    pub len: usize,
    /// Bytes that go with it.
    pub given: (*const u8, usize),
    /// Where the answer goes, and how many bytes it has.
    pub taken: (*mut u8, usize),
}

/// The slots of an owner, as an origin uses them.
#[derive(Debug, Clone, Copy)]
pub struct Slots {
    first: *const Slot,
    /// Their region at the owner, and where they begin in it.
    region: u64,
    offset: u32,
}

impl Slots {
    /// Which slot an origin uses for a piece of an operation.
    fn index(&self, rank: u32, piece: usize) -> usize {
        (rank as usize + piece) % SLOTS
    }

    fn slot(&self, rank: u32, piece: usize) -> &'static Slot {
        // SAFETY: one of the slots, which are mapped while the key that they were found with is there: the callers'
        // contract.
        unsafe { &*self.first.add(self.index(rank, piece)) }
    }
}

/// Whether it was worth while to ask an owner.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Asked {
    /// Waits in vain since the last that was not.
    vain: u32,
    /// Operations that do not wait.
    skip: u32,
    /// Operations that have found the owner asleep since it was last woken, and how often it was.
    asleep: u32,
    woken: u32,
    /// The kernel has written to the region: an owner would be killed by a put to memory that is read-only.
    pub is_writable: bool,
}

impl Asked {
    fn note(&mut self, served: bool) {
        self.vain = match served {
            true => 0,
            false => (self.vain + 1).min(VAIN_MOST),
        };
        self.skip = (1 << self.vain) - 1;
        if served {
            self.woken = 0;
        }
    }

    /// The owner sleeps, and so it is inside MPI; whether it is to be woken now, since there are many operations.
    fn note_asleep(&mut self) -> bool {
        (self.vain, self.skip) = (0, 0);
        self.asleep += 1;
        let wakes = self.asleep >= (ASLEEP_FIRST << self.woken).min(ASLEEP_MOST);
        if wakes {
            (self.asleep, self.woken) = (0, (self.woken + 1).min(VAIN_MOST));
        }
        wakes
    }

    /// Whether the next operation is one to wait with.
    fn is_due(&mut self) -> bool {
        let due = self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
        due
    }
}

impl Worker {
    /// The key of the slots by which peers request small operations of this process. All windows share them: they are
    /// made by the first call, and stay.
    ///
    /// # Errors
    /// Too little memory.
    pub fn expose_slots(&mut self) -> Result<PackedKey, SegmentError> {
        if let Some(key) = self.rma.slots {
            return Ok(key);
        }
        let memory = self.allocate_memory(SLOTS_BYTES, align_of::<Slot>())?.as_ptr();
        // SAFETY: just taken, and never given back. Only the head of a slot must be zero.
        let exposed = unsafe {
            for slot in (0..SLOTS_BYTES).step_by(SLOT_BYTES) {
                memory.add(slot).write_bytes(0, SLOT_HEAD);
            }
            self.expose_memory(memory, SLOTS_BYTES)
        };
        self.rma.slots = Some(exposed.key);
        Ok(exposed.key)
    }

    /// The slots that begin at `offset` of a region, which its owner has made for them; none where they are not mapped
    /// or not all inside.
    pub fn find_slots(&self, key: &RemoteKey, offset: u32) -> Option<Slots> {
        let first = key.base.wrapping_add(offset as usize);
        let fits = key.way == AccessPath::LoadStore
            && key.peer != self.rank
            && key.holds(offset.into(), SLOTS_BYTES)
            && offset.is_multiple_of(LINE)
            && offset / LINE + (SLOTS_BYTES as u32) / LINE <= u32::MAX / (NAMED + 1)
            && first.addr().is_multiple_of(align_of::<Slot>());
        fits.then_some(Slots {
            first: first.cast_const().cast(),
            region: key.described.region,
            offset,
        })
    }

    /// A small operation, or its beginning, carried out by the owner: how many bytes of its memory are dealt with. The
    /// rest is as it was; 0 where the owner is not to be asked.
    ///
    /// # Errors
    /// `OutOfBounds`; `Withdrawn` where the owner does not expose the bytes or does not understand the change;
    /// `PeerGone`.
    ///
    /// # Safety
    /// What is given is readable and what is taken writable for as many bytes: of an operation of more than
    /// [`ASK_MOST`] bytes none or as many as it has. The slots are mapped: the key that they were found with is still
    /// there.
    pub unsafe fn ask_owner(
        &mut self, key: &mut RemoteKey, slots: &Slots, asking: &Asking,
    ) -> Result<usize, RmaError> {
        self.admit(key, asking.offset, asking.len)?;
        let most = match asking.ask {
            Ask::Change(_) => CHANGE_MOST,
            Ask::Put | Ask::Get => MOVE_MOST,
        };
        let fits = key.way == AccessPath::Kernel && (1..=most).contains(&asking.len);
        let writes = asking.ask != Ask::Get;
        if !fits || (writes && !key.asked.is_writable) || !self.may_ask(key, slots) {
            return Ok(0);
        }
        let pieces = asking.len.div_ceil(ASK_MOST);
        let (mut posted, mut done, mut begun) = (0, 0, true);
        while done < pieces {
            while begun && posted < pieces.min(done + AHEAD) {
                // SAFETY: `post_piece` asks for what this function's contract says of memory and slots.
                if !unsafe { self.post_piece(key, slots, asking, posted) } {
                    break;
                }
                posted += 1;
            }
            if posted == done {
                break;
            }
            let slot = slots.slot(self.rank, done);
            if begun && !self.await_owner(slot, key.peer) {
                // The last is taken back first: the owner begins with the first.
                begun = false;
                while posted > done && slots.slot(self.rank, posted - 1).take_back() {
                    posted -= 1;
                }
                continue;
            }
            // SAFETY: `end_piece` asks for what this function's contract says of memory and slots.
            if !unsafe { self.end_piece(slot, key.peer, asking, done)? } {
                for later in done + 1..posted {
                    let slot = slots.slot(self.rank, later);
                    if !slot.take_back() {
                        self.await_end(slot, key.peer)?;
                        slot.leave();
                    }
                }
                return Err(Withdrawn);
            }
            done += 1;
        }
        // Where nothing could be posted, nothing is known of the owner.
        if done != 0 || !begun {
            key.asked.note(begun);
        }
        Ok((done * ASK_MOST).min(asking.len))
    }

    /// Whether it is worth while to ask the owner now.
    fn may_ask(&mut self, key: &mut RemoteKey, slots: &Slots) -> bool {
        let peer = key.peer;
        let page = self.job.rank_page(peer as usize);
        let awake = page.is_some_and(|page| page.state.load(Ordering::Relaxed) == STATE_AWAKE);
        if (awake && !key.asked.is_due()) || self.is_crowded() || self.connect(peer).is_err() {
            return false;
        }
        if !awake && key.asked.note_asleep() {
            // Only to wake the owner: the message names a use of the slot that is long over.
            let old = slots.slot(0, 0).word.load(Ordering::Relaxed);
            _ = self.tell_owner(peer, slots, 0, use_of(old) ^ (NAMED / 2 + 1));
        }
        awake
    }

    /// Asks for a piece of an operation; false where its slot or the way to the owner is not free.
    ///
    /// # Safety
    /// As [`Worker::ask_owner`].
    unsafe fn post_piece(
        &mut self, key: &RemoteKey, slots: &Slots, asking: &Asking, piece: usize,
    ) -> bool {
        let slot = slots.slot(self.rank, piece);
        let Some(held) = slot.hold() else {
            return false;
        };
        let (kind, change) = match asking.ask {
            Ask::Put => (PUT, 0),
            Ask::Get => (0, 0),
            Ask::Change(change) => (CHANGE, change),
        };
        let start = piece * ASK_MOST;
        let len = (asking.len - start).min(ASK_MOST);
        slot.asked.store(len as u32 | kind, Ordering::Relaxed);
        slot.change.store(change, Ordering::Relaxed);
        let region = key.described.region;
        slot.region.store(region, Ordering::Relaxed);
        slot.offset.store(asking.offset + start as u64, Ordering::Relaxed);
        let given = (asking.given.1 - start.min(asking.given.1)).min(ASK_MOST);
        if given != 0 {
            let from = asking.given.0.wrapping_add(start);
            // SAFETY: the slot is this process's now and has room for a piece; what is given is readable for as many
            // bytes, by this function's contract.
            unsafe { copy(slot.data(), from, given) };
        }
        slot.post(held);
        let index = slots.index(self.rank, piece);
        self.tell_owner(key.peer, slots, index, use_of(held)) || !slot.take_back()
    }

    /// Ends a piece that the owner has begun; whether it has carried it out.
    ///
    /// # Safety
    /// As [`Worker::ask_owner`].
    unsafe fn end_piece(
        &mut self, slot: &Slot, peer: u32, asking: &Asking, piece: usize,
    ) -> Result<bool, RmaError> {
        let done = self.await_end(slot, peer)?;
        let start = piece * ASK_MOST;
        let taken = (asking.taken.1 - start.min(asking.taken.1)).min(ASK_MOST);
        if done && taken != 0 {
            // SAFETY: what is taken is writable for as many bytes, by this function's contract; the slot has as many.
            unsafe { copy(asking.taken.0.wrapping_add(start), slot.data(), taken) };
        }
        slot.leave();
        Ok(done)
    }

    /// Waits until the owner, which has begun and has a few bytes to copy, has ended; whether it has done what it was
    /// asked for. A piece that it has not begun, though it has a later one, comes next.
    fn await_end(&mut self, slot: &Slot, peer: u32) -> Result<bool, RmaError> {
        loop {
            // ORDERING: acquire: its bytes are there; partner: the release in `Slot::end`.
            match slot.word.load(Ordering::Acquire) & STATE {
                POSTED | SERVING if self.peer_has_left(peer) => return Err(PeerGone),
                POSTED => _ = self.progress_peer(peer),
                SERVING => {}
                state => return Ok(state == DONE),
            }
        }
    }

    /// Tells the owner of a slot, and wakes it if it sleeps; false where there is no room for a message.
    fn tell_owner(&mut self, peer: u32, slots: &Slots, index: usize, named: u32) -> bool {
        let line = (slots.offset + (index * SLOT_BYTES) as u32) / LINE;
        let header = Header::new(wire::REMOTE_ASK, line * (NAMED + 1) + named, slots.region);
        let post = self.endpoints[peer].post_signal(header);
        !matches!(post, Post::NoResource | Post::PeerGone)
    }

    /// Waits for a moment; whether the owner has begun. What comes meanwhile is handled: the owner may ask this process
    /// too.
    fn await_owner(&mut self, slot: &Slot, peer: u32) -> bool {
        let mut until = None;
        loop {
            for _ in 0..ROUNDS {
                for _ in 0..POLLS {
                    if slot.word.load(Ordering::Relaxed) & STATE != POSTED {
                        return true;
                    }
                }
                self.progress_peer(peer);
            }
            let now = clock::now_ns();
            if *until.get_or_insert(now + WAIT_NS) <= now {
                return false;
            }
            self.progress();
        }
    }

    /// A peer has asked this process for an operation, or has taken it back since.
    pub(super) fn serve_ask(&mut self, header: Header) -> Option<()> {
        let regions = &self.rma.regions;
        let (line, named) = (header.imm / (NAMED + 1), header.imm & NAMED);
        let offset = u64::from(line) * u64::from(LINE);
        let Some(at) = regions.locate(header.key, offset, SLOT_BYTES as u64) else {
            return Some(()); // the slots have gone meanwhile
        };
        if !at.addr().is_multiple_of(align_of::<Slot>()) {
            return None;
        }
        // SAFETY: inside exposed memory, aligned; every field is atomic or of raw bytes, which others may write.
        let slot = unsafe { &*at.cast_const().cast::<Slot>() };
        let Some(serving) = slot.begin(named) else {
            return Some(());
        };
        // Read once: the peer may still write them.
        let asked = slot.asked.load(Ordering::Relaxed);
        let len = (asked & !(PUT | CHANGE)) as usize;
        let change = slot.change.load(Ordering::Relaxed);
        let place = (slot.region.load(Ordering::Relaxed), slot.offset.load(Ordering::Relaxed));
        let found = match len <= ASK_MOST {
            true if asked & (PUT | CHANGE) == 0 => regions.locate(place.0, place.1, len as u64),
            true => regions.locate_to_write(place.0, place.1, len as u64),
            false => None,
        };
        let data = slot.data();
        let done = found.is_some_and(|memory| {
            // SAFETY: inside exposed memory, which is there by its owner's promise, and of the slot's bytes.
            unsafe {
                match asked & (PUT | CHANGE) {
                    0 => copy(data, memory, len),
                    PUT => copy(memory, data, len),
                    _ => return (self.rma.change)(change, data, memory, len),
                }
            }
            true
        });
        self.rma.counters.served += 1;
        slot.end(serving, if done { DONE } else { REFUSED });
        Some(())
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn waits__in_vain_make_the_next_operations_not_wait_twice_as_many_each_time() {
        let mut asked = Asked::default();
        let mut skipped = Vec::new();
        for _ in 0..12 {
            let mut count = 0;
            while !asked.is_due() {
                count += 1;
            }
            skipped.push(count);
            asked.note(false);
        }
        assert_eq!(skipped, [0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 1023, 1023]);
        asked.note(true);
        assert!(asked.is_due() && asked.is_due());
    }

    #[test]
    fn slot__is_begun_by_the_message_of_its_own_use_alone() {
        let slot = Slot {
            word: AtomicU32::new(0),
            asked: AtomicU32::new(0),
            change: AtomicU64::new(0),
            region: AtomicU64::new(0),
            offset: AtomicU64::new(0),
            data: UnsafeCell::new([0; ASK_MOST]),
        };
        let first = slot.hold().unwrap();
        assert!(slot.hold().is_none() && slot.begin(use_of(first)).is_none());
        slot.post(first);
        assert!(slot.take_back() && !slot.take_back());
        let second = slot.hold().unwrap();
        slot.post(second);
        assert!(slot.begin(use_of(first)).is_none());
        let serving = slot.begin(use_of(second)).unwrap();
        assert!(!slot.take_back() && slot.begin(use_of(second)).is_none());
        slot.end(serving, DONE);
        assert!(!slot.take_back() && slot.hold().is_none());
        slot.leave();
        assert!(slot.hold().is_some());
    }

    #[test]
    fn owner__that_sleeps_is_woken_for_many_operations_and_less_often_where_it_does_not_help() {
        let mut asked = Asked::default();
        let wakes = |asked: &mut Asked| 1 + (0..).take_while(|_| !asked.note_asleep()).count();
        let counts: Vec<usize> = (0..9).map(|_| wakes(&mut asked)).collect();
        assert_eq!(counts, [8, 16, 32, 64, 128, 256, 512, 1024, 1024]);
        asked.note(true);
        assert_eq!(wakes(&mut asked), 8);
    }
}
