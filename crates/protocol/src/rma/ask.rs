//! Small operations on memory that the kernel alone reaches, carried out by its owner while that is inside MPI: puts,
//! gets, and changes that the layer above makes.
//!
//! A message there and a flag back take a fraction of a call of the kernel. So the origin writes what it wants into a
//! slot of memory that both map, tells the owner by a message without bytes, and waits for a moment. Where the owner has
//! not begun by then it computes: the origin takes the slot back, and the kernel copies. So nothing depends on the
//! owner's progress. After a wait in vain the next operations do not wait, twice as many each time.
//!
//! | state of a slot | what comes next, and by whom |
//! |---|---|
//! | `FREE` | `HELD`, by any origin |
//! | `HELD` | `POSTED` or `FREE`, by the origin that has it |
//! | `POSTED` | `SERVING`, by the owner; `HELD`, by the origin that takes it back |
//! | `SERVING` | `DONE` or `REFUSED`, by the owner |
//! | `DONE`, `REFUSED` | `FREE`, by the origin |
#![allow(unsafe_code)]

use super::error::RmaError::{self, PeerGone, Withdrawn};
use super::resolve::{RemoteKey, Way};
use crate::wire;
use crate::worker::Worker;
use fastpath_base::clock;
use fastpath_base::copy::copy;
use fastpath_base::sync::{AtomicU32, AtomicU64, Ordering};
use fastpath_bootstrap::segment::STATE_AWAKE;
use fastpath_transport::{Header, Post};
use std::cell::UnsafeCell;

const FREE: u32 = 0;
const HELD: u32 = 1;
const POSTED: u32 = 2;
const SERVING: u32 = 3;
const DONE: u32 = 4;
const REFUSED: u32 = 5;

/// Most bytes of an operation.
pub const ASK_MOST: usize = 4096;
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
/// Looks at the slot between two at other messages, and rounds of both between two at the clock.
const LOOKS: u32 = 8;
const ROUNDS: u32 = 8;
/// Operations in a row that find the owner asleep before it is woken, for those that follow; twice as many each time.
const ASLEEP_FIRST: u32 = 8;
const ASLEEP_MOST: u32 = 1024;
/// Waits in vain that are counted: the next 2^this operations less one do not wait.
const VAIN_MOST: u32 = 10;

/// An operation that an origin asks the owner for.
#[repr(C, align(64))]
struct Slot {
    state: AtomicU32,
    /// Bytes of the owner's memory, and [`PUT`] or [`CHANGE`].
    asked: AtomicU32,
    /// What change.
    change: AtomicU64,
    region: AtomicU64,
    offset: AtomicU64,
    data: UnsafeCell<[u8; ASK_MOST]>,
}

const _: () = assert!(std::mem::offset_of!(Slot, data) == SLOT_HEAD);

/// Makes a change that a peer asks for, and that only the layer above understands: of `len` bytes at `memory`, with the
/// [`ASK_MOST`] bytes at `data`, where the answer goes too. False where it is none. Others may write to both meanwhile.
pub type Change = unsafe fn(change: u64, data: *mut u8, memory: *mut u8, len: usize) -> bool;

/// What the owner is to do with its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Take the bytes that are given.
    Put,
    /// Answer with its bytes.
    Get,
    /// Make this change ([`Change`]).
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
    /// The slots that begin at `offset` of a region, which its owner has made for them; none where they are not mapped
    /// or not all inside.
    pub fn find_slots(&self, key: &RemoteKey, offset: u32) -> Option<Slots> {
        let first = key.base.wrapping_add(offset as usize);
        let fits = key.way == Way::LoadStore
            && key.peer != self.rank
            && key.holds(offset.into(), SLOTS_BYTES)
            && first.addr().is_multiple_of(align_of::<Slot>());
        fits.then_some(Slots {
            first: first.cast_const().cast(),
            region: key.described.region,
            offset,
        })
    }

    /// A small operation, carried out by the owner when this returns true; else nothing was done.
    ///
    /// # Errors
    /// `OutOfBounds`; `Withdrawn` where the owner does not expose the bytes or does not understand the change;
    /// `PeerGone`.
    ///
    /// # Safety
    /// What is given is readable and what is taken writable for as many bytes, and the slots are mapped: the key that
    /// they were found with is still there.
    pub unsafe fn ask_owner(
        &mut self,
        key: &mut RemoteKey,
        slots: &Slots,
        asking: &Asking,
    ) -> Result<bool, RmaError> {
        self.admit(key, asking.offset, asking.len)?;
        let most = asking.len.max(asking.given.1).max(asking.taken.1);
        let fits = key.way == Way::Kernel && asking.len != 0 && most <= ASK_MOST;
        let writes = asking.ask != Ask::Get;
        if !fits || (writes && !key.asked.is_writable) {
            return Ok(false);
        }
        let peer = key.peer;
        let page = self.job.rank_page(peer as usize);
        let awake = page.is_some_and(|page| page.state.load(Ordering::Relaxed) == STATE_AWAKE);
        if (awake && !key.asked.is_due()) || self.is_crowded() || self.connect(peer).is_err() {
            return Ok(false);
        }
        if !awake {
            if key.asked.note_asleep() {
                // There is nothing to do in the slot: the message wakes the owner.
                _ = self.tell_owner(peer, slots, 0);
            }
            return Ok(false);
        }
        let index = self.rank as usize % SLOTS;
        // SAFETY: one of the slots, which are mapped.
        let slot = unsafe { &*slots.first.add(index) };
        // ORDERING: acquire: the origin that has left it free has taken its bytes; partner: `leave`.
        let (seen, failed) = (Ordering::Acquire, Ordering::Relaxed);
        if slot
            .state
            .compare_exchange(FREE, HELD, seen, failed)
            .is_err()
        {
            return Ok(false);
        }
        let (kind, change) = match asking.ask {
            Ask::Put => (PUT, 0),
            Ask::Get => (0, 0),
            Ask::Change(change) => (CHANGE, change),
        };
        slot.asked
            .store(asking.len as u32 | kind, Ordering::Relaxed);
        slot.change.store(change, Ordering::Relaxed);
        let region = key.described.region;
        slot.region.store(region, Ordering::Relaxed);
        slot.offset.store(asking.offset, Ordering::Relaxed);
        let data = slot.data.get().cast::<u8>();
        if asking.given.1 != 0 {
            // SAFETY: the slot is this process's now and has room; what is given by the caller.
            unsafe { copy(data, asking.given.0, asking.given.1) };
        }
        // ORDERING: release: the owner sees all of the slot; partner: `serve_ask`.
        slot.state.store(POSTED, Ordering::Release);
        let begun = self.tell_owner(peer, slots, index) && self.await_owner(slot, peer);
        let taken_back = |slot: &Slot| {
            let changed = slot.state.compare_exchange(POSTED, HELD, failed, failed);
            changed.is_ok()
        };
        key.asked.note(begun);
        if !begun && taken_back(slot) {
            leave(slot);
            return Ok(false);
        }
        // The owner has begun: it has a few bytes to copy.
        // ORDERING: acquire: its bytes are there; partner: the release in `serve_ask`.
        while slot.state.load(Ordering::Acquire) == SERVING {
            if self.peer_has_left(peer) {
                return Err(PeerGone);
            }
        }
        let done = slot.state.load(Ordering::Acquire) == DONE;
        if done && asking.taken.1 != 0 {
            // SAFETY: as above.
            unsafe { copy(asking.taken.0, data, asking.taken.1) };
        }
        leave(slot);
        if done { Ok(true) } else { Err(Withdrawn) }
    }

    /// Tells the owner of a slot, and wakes it if it sleeps; false where there is no room for a message.
    fn tell_owner(&mut self, peer: u32, slots: &Slots, index: usize) -> bool {
        let at = slots.offset + (index * SLOT_BYTES) as u32;
        let header = Header::new(wire::REMOTE_ASK, at, slots.region);
        let post = self.endpoint(peer).post_signal(header);
        !matches!(post, Post::NoResource | Post::PeerGone)
    }

    /// Waits for a moment; whether the owner has begun. What comes meanwhile is handled: the owner may ask this process.
    fn await_owner(&mut self, slot: &Slot, peer: u32) -> bool {
        let mut until = None;
        loop {
            for _ in 0..ROUNDS {
                for _ in 0..LOOKS {
                    if slot.state.load(Ordering::Relaxed) != POSTED {
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
        let Some(at) = regions.locate(header.key, header.imm.into(), SLOT_BYTES as u64) else {
            return Some(()); // the slots have gone meanwhile
        };
        if !at.addr().is_multiple_of(align_of::<Slot>()) {
            return None;
        }
        // SAFETY: inside exposed memory, aligned; every field is atomic or of raw bytes, which others may write.
        let slot = unsafe { &*at.cast_const().cast::<Slot>() };
        // ORDERING: acquire: partner: the release of `POSTED`.
        let (seen, failed) = (Ordering::Acquire, Ordering::Relaxed);
        if slot
            .state
            .compare_exchange(POSTED, SERVING, seen, failed)
            .is_err()
        {
            return Some(());
        }
        // Read once: the peer may still write them.
        let asked = slot.asked.load(Ordering::Relaxed);
        let len = (asked & !(PUT | CHANGE)) as usize;
        let change = slot.change.load(Ordering::Relaxed);
        let place = (
            slot.region.load(Ordering::Relaxed),
            slot.offset.load(Ordering::Relaxed),
        );
        let found = match len <= ASK_MOST {
            true => regions.locate(place.0, place.1, len as u64),
            false => None,
        };
        let data = slot.data.get().cast::<u8>();
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
        // ORDERING: release: partner: the acquire in `ask_owner`.
        let end = if done { DONE } else { REFUSED };
        slot.state.store(end, Ordering::Release);
        Some(())
    }
}

/// The slot is for the next origin.
fn leave(slot: &Slot) {
    // ORDERING: release: partner: the acquire of the next origin.
    slot.state.store(FREE, Ordering::Release);
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
    fn owner__that_sleeps_is_woken_for_many_operations_and_less_often_where_it_does_not_help() {
        let mut asked = Asked::default();
        let wakes = |asked: &mut Asked| 1 + (0..).take_while(|_| !asked.note_asleep()).count();
        let counts: Vec<usize> = (0..9).map(|_| wakes(&mut asked)).collect();
        assert_eq!(counts, [8, 16, 32, 64, 128, 256, 512, 1024, 1024]);
        asked.note(true);
        assert_eq!(wakes(&mut asked), 8);
    }
}
