//! The hot path: one store publishes a message, one load sees it.
//!
//! [`Tx`] belongs to the producer and [`Rx`] to the consumer of one ring; each is private memory and
//! shares only the [`PairRegion`]. Positions count slots from the start and wrap at 2^32.
#![allow(unsafe_code)]

use super::idle::Ahead;
use super::recycle::{Kept, Own};
use super::wire::*;
use crate::contract::{Arrival, Header, Post};
use fastpath_base::copy::copy_small;
use fastpath_base::hint::{demote, prefetch_for_write};
use fastpath_base::sync::{AtomicU32, Ordering, compiler_fence};
use fastpath_bootstrap::segment::Wakes;
use std::cell::UnsafeCell;
use std::ptr;

/// How many slots ahead the producer asks for lines.
const SLOTS_AHEAD: u32 = 3;
/// How many bytes of a payload are pushed towards a reader that waits.
const DEMOTED_BYTES: usize = 512;
/// Bytes of the data area that a consumer that never waits keeps to itself before it says that it has taken them, while
/// the area is as large as the longest message makes it: what is left still holds that message in parts. Of a larger
/// area it keeps a share.
pub(super) const DATA_OWED_MIN: u32 = DATA_MESSAGE_MAX as u32 / 8 * 7;
const DATA_OWED_SHARE: u32 = 4;

/// The producer's end.
#[repr(C)]
pub struct Tx {
    /// Null until connected.
    pub(super) pair: *const PairRegion,
    /// Next position to write.
    pub(super) tail: u32,
    /// Position that must not be reached: all before it are free. Equal to `tail` when full, when
    /// not connected and when sends are held back, so that one comparison covers all three.
    pub(super) limit: u32,
    /// The peer's state word: anything but awake needs a closer look after a publish.
    pub(super) peer_state: *const AtomicU32,
    /// Next data position, modulo 2^32.
    pub(super) data_tail: u32,
    /// Data position up to which everything has been consumed.
    pub(super) data_head: u32,
    /// Bytes of the data area in use, a power of two; 0 until its first message.
    pub(super) data_size: u32,
    /// The peer's world rank.
    pub(super) peer: u32,
    /// What is needed less often; null until connected.
    pub(super) in_data: *mut DataQueue,
    /// Where more memory comes from.
    pub(super) domain: *const super::domain::Domain,
    /// Bytes of the data area taken since this side last waited; see `idle`.
    pub(super) recent: u32,
    /// How many of the bytes after `data_tail` have been asked for since.
    pub(super) warmed: u32,
}

/// What a producer knows besides.
pub(super) struct DataQueue {
    /// The messages in the data area that may not have been taken yet, oldest first, are those from `first` to `next`.
    pub first: u32,
    pub next: u32,
    /// Positions of both rings when a wait last began after something had been sent; see `idle`.
    pub mark: (u32, u32),
    /// What is done so that the next message goes faster.
    pub ahead: Ahead,
    /// How far the consumer has said that it has come.
    pub said: u32,
    /// Pages of the region before the data area that are backed with memory; see `grow`.
    pub head_pages: u32,
    /// Bytes behind the data area that have memory already; see `grow`.
    pub made: u32,
    /// The data position from which on what is sent counts for more memory.
    pub earned_at: u32,
    /// Whether a message could not be sent for want of memory.
    pub starved: bool,
    /// What this side keeps of the peer's data area; see `recycle`.
    pub kept: Kept,
    /// The positions between which the peer has given back bytes by its last replies.
    pub back_start: u32,
    pub back_end: u32,
    /// Whether messages lie in the data area in another order than they were sent in; see `grow`.
    pub disordered: bool,
    /// Which ring position holds the message that ends at which data position; null while there is no data area.
    pub entries: *mut [(u32, u32); SLOTS as usize],
}

/// The consumer's end.
#[repr(C)]
pub struct Rx {
    /// An empty ring until the peer has connected.
    pub(super) pair: *const PairRegion,
    /// Next position to read.
    pub(super) head: u32,
    /// `head` as the producer may know it.
    pub(super) published: u32,
    /// Bytes of data messages taken since `head` was published.
    pub(super) data_taken: u32,
    /// Such bytes that the producer is told of at once.
    pub(super) owed_max: u32,
    /// Where the message that `look` showed last lies in a data area; of length 0 where it does not.
    pub(super) shown: Shown,
    /// How far the peer had come when it sent that.
    pub(super) taken: u32,
    /// Which of the ranks' workers the ring belongs to.
    pub(super) place: u16,
    /// The words by which the producer is woken.
    pub(super) producer: *const Wakes,
}

/// A place in a data area.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shown {
    pub offset: u32,
    pub len: u32,
}

impl Tx {
    /// Whether a slot is free as far as the producer knows.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.tail != self.limit
    }

    /// Whether the data area cannot grow any more, or there is none yet.
    #[inline]
    pub fn has_whole_area(&self) -> bool {
        self.data_size == DATA_BYTES || self.pair.is_null()
    }

    /// See [`crate::contract::Endpoint::am_short`].
    ///
    /// # Safety
    /// `data` is readable for `len` bytes, and `len` is at most [`SLOT_PAYLOAD`].
    #[inline]
    pub unsafe fn am_short(&mut self, header: Header, data: *const u8, len: usize) -> Post {
        if !self.has_room() && !self.refresh_credits() {
            return Post::NoResource;
        }
        // SAFETY: `data` is readable for `len` bytes, and these fit a slot, by this function's contract.
        unsafe { self.am_short_known(header, data, len) }
    }

    /// As [`Tx::am_short`], with the room that the producer knows of: no call, no second cache line.
    /// Always inlined: `fastpath bench instructions` counts MPI_Send.
    ///
    /// # Safety
    /// As [`Tx::am_short`].
    #[inline(always)]
    pub unsafe fn am_short_known(&mut self, header: Header, data: *const u8, len: usize) -> Post {
        if !self.has_room() {
            return Post::NoResource;
        }
        debug_assert!(len <= SLOT_PAYLOAD);
        // SAFETY: `pair` is mapped (there is room, so the ring is connected); this producer owns the
        // slot at `tail` until it publishes; the caller vouches for `data`.
        unsafe {
            let slot = &(*self.pair).slots[(self.tail & SLOT_MASK) as usize];
            slot.watch.note_write();
            copy_small(slot.payload.get().cast(), data, len);
            self.publish(slot, header, len as u8)
        }
    }

    /// See [`crate::contract::Endpoint::am_bcopy`]; `len` is at most [`DATA_MESSAGE_MAX`]. `taken` is how far this side
    /// has come with what the peer sends.
    #[inline]
    pub fn am_bcopy(
        &mut self, header: Header, len: usize, taken: &u32, pack: impl FnOnce(*mut u8),
    ) -> Post {
        if !self.has_room() && !self.refresh_credits() {
            return Post::NoResource;
        }
        // SAFETY: as in `am_short`; `allot_data` returns an offset with `len` bytes behind it that no
        // unread message occupies.
        unsafe {
            let slot = &(*self.pair).slots[(self.tail & SLOT_MASK) as usize];
            slot.watch.note_write();
            if len <= SLOT_PAYLOAD {
                pack(slot.payload.get().cast());
                return self.publish(slot, header, len as u8);
            }
            // The first one since this side waited: its reader waits for it.
            let is_first = self.warmed != 0 || self.recent == 0;
            // Little is held across the copy: what is stored on the stack waits behind the message's lines.
            let offset = match (*self.in_data).kept.has_room(len as u32) {
                true => (*self.in_data).kept.lend(len as u32, self.tail),
                false => match self.allot_data(len as u32) {
                    Some(offset) => offset,
                    None => return Post::NoResource,
                },
            };
            let pair = match offset & RECYCLED {
                0 => self.pair,
                _ => (*self.in_data).kept.area,
            };
            let at = (*pair).data.get().cast::<u8>();
            let at = at.add((offset & !RECYCLED) as usize);
            pack(at);
            let queue = &mut *self.in_data;
            if len <= queue.ahead.demoted_max as usize && is_first {
                demote(at, len.min(DEMOTED_BYTES));
            }
            let place = DataRef::new(offset, len as u16, header.aux, *taken);
            slot.payload.get().cast::<DataRef>().write(place);
            if offset & RECYCLED == 0 {
                (*queue.entries)[(queue.next & SLOT_MASK) as usize] = (self.tail, self.data_tail);
                queue.next = queue.next.wrapping_add(1);
            }
            self.publish(slot, header, LEN_IN_DATA)
        }
    }

    /// Writes the header, the last word last, and looks whether the peer sleeps.
    #[inline(always)] // see `am_short_known`
    unsafe fn publish(&mut self, slot: &Slot, header: Header, len: u8) -> Post {
        slot.word1.store(header.key, Ordering::Relaxed);
        let word0 = encode_word0(self.tail, header.id, len, header.imm);
        // ORDERING: release pairs with the acquire in `Rx::look`: who sees the stamp sees key and payload.
        slot.word0.store(word0, Ordering::Release);
        self.tail = self.tail.wrapping_add(1);
        // ORDERING: the load stays behind the store; partner is the fence that a sleeper runs for everyone.
        compiler_fence(Ordering::SeqCst);
        // SAFETY: the state word lies in the mapped node segment.
        // A plain load suffices: a peer runs an expedited membarrier between announcing its sleep
        // and its last look (see `fastpath_base::wait`).
        if unsafe { (*self.peer_state).load(Ordering::Relaxed) } != 0 {
            return Post::Wake;
        }
        Post::Done
    }

    /// Prefetches the line of a slot ahead, for a stream of messages. A single message is faster without, since the
    /// prefetch would compete with it.
    #[inline]
    pub fn expect_more(&self) {
        let slot = self.tail.wrapping_add(SLOTS_AHEAD) & SLOT_MASK;
        // SAFETY: an address inside the pair, which is not read.
        prefetch_for_write(unsafe { &raw const (*self.pair).slots[slot as usize] }.cast());
    }

    /// Whether `messages` messages of up to `bytes` bytes in the data area would all find room now.
    pub fn has_room_for(&mut self, messages: u32, bytes: u32) -> bool {
        // One more for what is skipped where the area wraps.
        let need = (messages + 1).saturating_mul((bytes + 63) & !63);
        let fits = |tx: &Tx| {
            let used = tx.data_tail.wrapping_sub(tx.data_head);
            tx.limit.wrapping_sub(tx.tail) >= messages && tx.data_size.saturating_sub(used) >= need
        };
        fits(self)
            || (self.refresh_credits() && fits(self))
            || (self.grow_for(messages, need) && fits(self))
    }

    /// Finds `len` contiguous free bytes in the data area and takes them.
    #[inline]
    fn allot_data(&mut self, len: u32) -> Option<u32> {
        if let Some(offset) = self.allot_known(len) {
            return Some(offset);
        }
        self.allot_data_slow(len)
    }

    #[inline]
    pub(super) fn allot_known(&mut self, len: u32) -> Option<u32> {
        let len = (len + 63) & !63;
        let mut start = self.data_tail;
        let mut offset = start & self.data_size.wrapping_sub(1);
        if offset + len > self.data_size {
            start = start.wrapping_add(self.data_size - offset);
            offset = 0;
        }
        let end = start.wrapping_add(len);
        if end.wrapping_sub(self.data_head) > self.data_size {
            return None;
        }
        self.data_tail = end;
        if self.warmed != 0 {
            (self.warmed, self.recent) = (0, 0);
        }
        self.recent = self.recent.saturating_add(len);
        Some(offset)
    }

    /// Whether everything sent has been taken, as far as the consumer has said so.
    pub fn is_drained(&self) -> bool {
        // ORDERING: acquire pairs with the release in `Rx::publish_to`: who sees it sees what the consumer did before.
        // SAFETY: mapped for the life of the job where it is not null.
        unsafe { self.pair.as_ref() }
            .is_none_or(|pair| pair.control.taken.load(Ordering::Acquire) == self.tail)
    }
}

/// The start of a ring in which nothing ever arrives, for endpoints whose peer has not connected.
#[repr(C, align(64))]
struct EmptyRing(UnsafeCell<[u8; std::mem::offset_of!(PairRegion, slots) + size_of::<Slot>()]>);

// SAFETY: never written: a consumer writes to its pair only after it has taken something.
unsafe impl Sync for EmptyRing {}

static EMPTY_RING: EmptyRing =
    EmptyRing(UnsafeCell::new([0; std::mem::offset_of!(PairRegion, slots) + size_of::<Slot>()]));

/// A pair of which the first slot can be looked at.
pub(super) fn empty_pair() -> *const PairRegion {
    EMPTY_RING.0.get().cast()
}

impl Rx {
    /// The next arrival if its payload lies in the slot and its id is `id`, left where it is: no call, one cache line.
    /// Always inlined: `fastpath bench instructions` counts MPI_Recv.
    #[inline(always)]
    pub fn look_short(&mut self, id: u8) -> Option<Arrival<'_>> {
        // SAFETY: as in `look`.
        let slot = unsafe { &(*self.pair).slots[(self.head & SLOT_MASK) as usize] };
        // ORDERING: acquire pairs with the release in `Tx::publish`.
        let word0 = slot.word0.load(Ordering::Acquire);
        // Where stamp and id are the right ones nothing is left of them, and the length comes to stand alone: one
        // comparison for all three.
        let wanted = encode_word0(self.head, id, 0, 0) as u32;
        let len = (word0 as u32 ^ wanted).rotate_left(8) as usize;
        if len > SLOT_PAYLOAD {
            return None;
        }
        let key = slot.word1.load(Ordering::Relaxed);
        let header = Header::new(id, (word0 >> 32) as u32, key);
        Some(Arrival::new(header, slot.payload.get().cast(), len))
    }

    /// The next arrival if its payload lies in the data area and its id is `id`, left where it is.
    #[inline]
    pub(super) fn look_long(&mut self, id: u8, own: Own) -> Option<Arrival<'_>> {
        // SAFETY: as in `look`.
        let slot = unsafe { &(*self.pair).slots[(self.head & SLOT_MASK) as usize] };
        // ORDERING: acquire pairs with the release in `Tx::publish`.
        let word0 = slot.word0.load(Ordering::Acquire);
        if word0 as u32 != encode_word0(self.head, id, LEN_IN_DATA, 0) as u32 {
            return None;
        }
        let key = slot.word1.load(Ordering::Relaxed);
        self.look_data(Header::new(id, (word0 >> 32) as u32, key), slot, own)
    }

    /// Consumes what lies in the slot; says whether the producer is to be told.
    #[inline(always)] // see `look_short`
    #[must_use]
    pub fn advance(&mut self) -> bool {
        self.note_taken();
        self.head = self.head.wrapping_add(1);
        self.head.wrapping_sub(self.published) >= SLOTS / 4
    }

    /// The next arrival, left where it is; `own` is the data area of the other direction.
    #[inline]
    pub(super) fn look(&mut self, own: Own) -> Option<Arrival<'_>> {
        // SAFETY: `pair` is mapped for the life of the job, or the static empty one.
        let slot = unsafe { &(*self.pair).slots[(self.head & SLOT_MASK) as usize] };
        // ORDERING: acquire pairs with the release in `Tx::publish`.
        let word0 = slot.word0.load(Ordering::Acquire);
        if word0 as u16 != stamp(self.head) {
            return None;
        }
        let header = Header::new(
            (word0 >> 16) as u8,
            (word0 >> 32) as u32,
            slot.word1.load(Ordering::Relaxed),
        );
        let len = (word0 >> 24) as u8;
        if len as usize <= SLOT_PAYLOAD {
            self.shown.len = 0;
            return Some(Arrival::new(header, slot.payload.get().cast(), len as usize));
        }
        self.look_data(header, slot, own)
    }

    #[inline(never)] // so that a look that finds nothing stays short where it is inlined
    fn look_data(&mut self, header: Header, slot: *const Slot, own: Own) -> Option<Arrival<'_>> {
        // SAFETY: the slot is mapped; the reference is read once and its copy is checked.
        let place = unsafe { ptr::read_volatile((*slot).payload.get().cast::<DataRef>()) };
        let (offset, len) = (place.offset() & !RECYCLED, place.bytes() as u32);
        let (pair, size) = match place.offset() == offset {
            true => (self.pair, DATA_BYTES),
            false => (own.pair, own.size),
        };
        // No area has size 0.
        if offset + len > size || len as usize > DATA_MESSAGE_MAX || size == 0 {
            return self.look_nonsense();
        }
        self.shown = Shown { offset: place.offset(), len };
        self.taken = place.taken;
        let aux = place.aux();
        let header = Header { aux, ..header };
        // SAFETY: inside the data area, as just checked.
        let data = unsafe { (*pair).data.get().cast::<u8>().add(offset as usize) };
        Some(Arrival::new(header, data, len as usize))
    }

    /// Whether there is an arrival. One load.
    #[inline]
    pub fn has_arrival(&self) -> bool {
        // SAFETY: as in `look`.
        let slot = unsafe { &(*self.pair).slots[(self.head & SLOT_MASK) as usize] };
        slot.word0.load(Ordering::Relaxed) as u16 == stamp(self.head)
    }

    /// The payload of the slot at `head` is read no more.
    #[inline(always)] // it is nothing but for the model checker; see `look_short`
    fn note_taken(&self) {
        // SAFETY: as in `look`.
        unsafe { (*self.pair).slots[(self.head & SLOT_MASK) as usize].watch.note_read() };
    }

    /// Tells the producer that everything before the position `upto` has been taken.
    pub(super) fn publish_to(&mut self, upto: u32) {
        // SAFETY: mapped: something was taken.
        let control = unsafe { &(*self.pair).control };
        if self.data_taken != 0 {
            self.data_taken = 0;
            let size = control.data_size.load(Ordering::Relaxed).min(DATA_BYTES);
            self.owed_max = (size / DATA_OWED_SHARE).max(DATA_OWED_MIN);
        }
        // ORDERING: release pairs with the acquire in `ShmEndpoint::publish_head`.
        control.taken.store(self.head, Ordering::Release);
        if self.published != upto {
            self.published = upto;
            // ORDERING: release pairs with the acquire in `Tx::refresh_credits`.
            control.head.store(upto, Ordering::Release);
        }
        // ORDERING: the load stays behind the store; partner is the fence of a producer that is about to sleep.
        compiler_fence(Ordering::SeqCst);
        if control.producer_waits.load(Ordering::Relaxed) != 0 {
            // SAFETY: on the producer's page, mapped for the life of the job.
            let producer = unsafe { &*self.producer };
            super::iface::wake_producer(control, producer, self.place as usize);
        }
    }

    /// Whether something taken has not been told to the producer.
    #[inline]
    pub fn owes_credits(&self) -> bool {
        self.head != self.published
    }
}
