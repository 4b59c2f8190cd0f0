//! Hot path: one store publishes a message, one load detects it.
//!
//! [`Tx`] belongs to the producer of a ring and [`Rx`] to its consumer. Both are private memory and share only the
//! [`PairRegion`]. Positions count slots from the start and wrap at 2^32.
//!
//! **MAPPED.** `Rx::pair` is a region mapped as long as the job, or the static empty ring. `Tx::pair` is null until
//! connected, then mapped as long as the job.
#![allow(unsafe_code)]

use super::data_area::{DataSpan, LocalDataArea, RecycledSpace};
use super::ring_tuning::RingTuning;
use super::wire::*;
use crate::contract::{Arrival, Header, Post};
use fastpath_base::copy::copy_small;
use fastpath_base::hint::{demote, prefetch_for_write};
use fastpath_base::sync::{AtomicU32, Ordering, compiler_fence};
use fastpath_segment::Wakes;
use std::cell::UnsafeCell;
use std::ptr;

/// In a stream, the slot this many slots ahead of the tail is prefetched.
const SLOTS_AHEAD: u32 = 3;
/// Maximum number of payload bytes that are moved to a shared cache level for a waiting reader.
const DEMOTED_BYTES: usize = 512;
/// A consumer that does not wait returns data bytes when it has taken this many. The rest of the smallest area of a
/// stream then still has room for the longest message. In a larger area, the limit is a share of the area.
pub(super) const DATA_OWED_MIN: u32 = DATA_MESSAGE_MAX as u32 / 8 * 7;
const DATA_OWED_SHARE: u32 = 4;

/// Producer's end of a ring.
#[repr(C)]
pub struct Tx {
    pub(super) pair: *const PairRegion,
    pub(super) tail: u32,
    /// First position that must not be used yet; slots before it are free. It equals `tail` in three cases, which one
    /// comparison covers: the ring is full, not connected, or sends are held back.
    pub(super) limit: u32,
    /// The peer's state word, checked after each publish. Any value except awake takes the slow path.
    pub(super) peer_state: *const AtomicU32,
    /// Next data position, modulo 2^32.
    pub(super) data_tail: u32,
    /// Data position before which all messages have been consumed.
    pub(super) data_head: u32,
    /// Bytes of the data area in use, a power of two; 0 until its first message.
    pub(super) data_size: u32,
    pub(super) peer: u32,
    /// Cold producer state; null until connected.
    pub(super) in_data: *mut DataQueue,
    pub(super) domain: *const super::domain::Domain,
    /// Data bytes sent since this side's last wait; see `idle`.
    pub(super) recent: u32,
    /// Bytes after `data_tail` that were prefetched since the last wait.
    pub(super) warmed: u32,
}

/// Producer state that the immediate path does not use.
pub(super) struct DataQueue {
    /// Entries `first` to `next` are messages in the data area that may not have been taken yet, oldest first.
    pub first: u32,
    pub next: u32,
    /// Positions of both rings at the start of the last wait that followed a send; see `idle`.
    pub mark: (u32, u32),
    pub tuning: RingTuning,
    /// Last consumer position that the producer has read.
    pub said: u32,
    /// Pages of the region before the data area that are backed with memory; see `grow`.
    pub head_pages: u32,
    /// Bytes after the data area in use that are already backed; see `grow`.
    pub made: u32,
    /// Data position from which on sent bytes count when `grow` decides whether to back more memory.
    pub earned_at: u32,
    /// Whether the last refused message lacked memory.
    pub starved: bool,
    /// Bytes of the peer's data area that this side reuses; see `recycle`.
    pub kept: RecycledSpace,
    /// Start of the bytes that the peer's last replies have returned; `back_end` is their end.
    pub back_start: u32,
    pub back_end: u32,
    /// Whether messages lie in the data area in another order than they were sent; see `grow`.
    pub disordered: bool,
    /// Ring position and end data position of each message in the data area; null without a data area.
    pub entries: *mut [(u32, u32); SLOTS as usize],
}

/// Consumer's end of a ring.
#[repr(C)]
pub struct Rx {
    /// The empty ring until the peer has connected.
    pub(super) pair: *const PairRegion,
    pub(super) head: u32,
    /// Value of `head` that the producer can read.
    pub(super) published: u32,
    /// Number of bytes taken from the data area since `head` was last published.
    pub(super) data_taken: u32,
    /// Value of `data_taken` at which `head` is published immediately.
    pub(super) owed_max: u32,
    /// Span of the last message that `look` returned, in a data area; length 0 if its payload is in the slot.
    pub(super) shown: DataSpan,
    /// Consumer position that the peer sent with the message of `shown`.
    pub(super) taken: u32,
    pub(super) producer: *const Wakes,
}

impl Tx {
    /// Whether a slot is free as far as the producer knows.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.tail != self.limit
    }

    /// Whether the data area has its full size, or the ring is not connected.
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
        // SAFETY: `data` is readable for `len` bytes, which fit a slot, by this function's contract.
        unsafe { self.am_short_known(header, data, len) }
    }

    /// Sends like [`Tx::am_short`], but only if room is known: no call, no second cache line. Always inlined: `fastpath
    /// bench instructions` counts MPI_Send.
    ///
    /// # Safety
    /// See [`Tx::am_short`].
    #[inline(always)]
    pub unsafe fn am_short_known(&mut self, header: Header, data: *const u8, len: usize) -> Post {
        if !self.has_room() {
            return Post::NoResource;
        }
        debug_assert!(len <= SLOT_PAYLOAD);
        // SAFETY: MAPPED: there is room, so the ring is connected. The producer owns the slot at `tail` until it
        // publishes it, and `data` is readable by this function's contract.
        unsafe {
            let slot = &(*self.pair).slots[(self.tail & SLOT_MASK) as usize];
            slot.watch.note_write();
            copy_small(slot.payload.get().cast(), data, len);
            self.publish(slot, header, len as u8)
        }
    }

    /// See [`crate::contract::Endpoint::am_bcopy`]. `len` is at most [`DATA_MESSAGE_MAX`]; `taken`: own consumer
    /// position.
    #[inline]
    pub fn am_bcopy(
        &mut self, header: Header, len: usize, taken: &u32, pack: impl FnOnce(*mut u8),
    ) -> Post {
        if !self.has_room() && !self.refresh_credits() {
            return Post::NoResource;
        }
        // SAFETY: MAPPED: there is room, so the ring is connected. `allot_data` returns an offset at which no unread
        // message occupies the next `len` bytes.
        unsafe {
            let slot = &(*self.pair).slots[(self.tail & SLOT_MASK) as usize];
            slot.watch.note_write();
            if len <= SLOT_PAYLOAD {
                pack(slot.payload.get().cast());
                return self.publish(slot, header, len as u8);
            }
            // The first message since this side's last wait: its reader is probably waiting for it.
            let is_first = self.warmed != 0 || self.recent == 0;
            // Keep few values live across the copy: spills to the stack would wait behind the message's stores.
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
            if len <= queue.tuning.demoted_max as usize && is_first {
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

    #[inline(always)] // see `am_short_known`
    unsafe fn publish(&mut self, slot: &Slot, header: Header, len: u8) -> Post {
        slot.word1.store(header.key, Ordering::Relaxed);
        let word0 = encode_word0(self.tail, header.id, len, header.imm);
        // ORDERING: release pairs with the acquire in `Rx::look`: a reader of the stamp sees key and payload.
        slot.word0.store(word0, Ordering::Release);
        self.tail = self.tail.wrapping_add(1);
        // ORDERING: the load stays behind the store; partner is the fence of a sleeper (`fence_others`).
        compiler_fence(Ordering::SeqCst);
        // SAFETY: the state word is in the mapped node segment. A plain load suffices, because a peer runs an expedited
        // membarrier between the announcement of its sleep and its last poll (see `fastpath_base::wait`).
        if unsafe { (*self.peer_state).load(Ordering::Relaxed) } != 0 {
            return Post::Wake;
        }
        Post::Done
    }

    /// Prefetches the cache line of a later slot, for streams. With a single message, the prefetch would compete with
    /// the message.
    #[inline]
    pub fn expect_more(&self) {
        let slot = self.tail.wrapping_add(SLOTS_AHEAD) & SLOT_MASK;
        // SAFETY: the address is inside the pair's region, and is not read.
        prefetch_for_write(unsafe { &raw const (*self.pair).slots[slot as usize] }.cast());
    }

    /// Whether there is room now for `messages` messages of up to `bytes` bytes in the data area.
    pub fn has_room_for(&mut self, messages: u32, bytes: u32) -> bool {
        // Count one more message, because bytes are skipped where the area wraps.
        let need = (messages + 1).saturating_mul((bytes + 63) & !63);
        let fits = |tx: &Tx| {
            let used = tx.data_tail.wrapping_sub(tx.data_head);
            tx.limit.wrapping_sub(tx.tail) >= messages && tx.data_size.saturating_sub(used) >= need
        };
        fits(self)
            || (self.refresh_credits() && fits(self))
            || (self.grow_for(messages, need) && fits(self))
    }

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

    /// Whether the consumer has published that it has taken everything sent.
    pub fn is_drained(&self) -> bool {
        // ORDERING: acquire pairs with the release in `Rx::publish_to`, so that the consumer's earlier stores are
        // visible. SAFETY: MAPPED: the region is mapped for the life of the job if `pair` is not null.
        unsafe { self.pair.as_ref() }
            .is_none_or(|pair| pair.control.taken.load(Ordering::Acquire) == self.tail)
    }
}

/// Start of a ring that is always empty, for endpoints whose peer has not connected.
#[repr(C, align(64))]
struct EmptyRing(UnsafeCell<[u8; std::mem::offset_of!(PairRegion, slots) + size_of::<Slot>()]>);

// SAFETY: this memory is never written: a consumer writes to its pair only after it has taken a message.
unsafe impl Sync for EmptyRing {}

static EMPTY_RING: EmptyRing =
    EmptyRing(UnsafeCell::new([0; std::mem::offset_of!(PairRegion, slots) + size_of::<Slot>()]));

pub(super) fn empty_pair() -> *const PairRegion {
    EMPTY_RING.0.get().cast()
}

impl Rx {
    /// Next arrival, not taken, if its payload is in the slot and its id is `id`: no call, one cache line. Always
    /// inlined: `fastpath bench instructions` counts MPI_Recv.
    #[inline(always)]
    pub fn look_short(&mut self, id: u8) -> Option<Arrival<'_>> {
        // SAFETY: MAPPED: the region or the empty ring is mapped for the life of the job.
        let slot = unsafe { &(*self.pair).slots[(self.head & SLOT_MASK) as usize] };
        // ORDERING: acquire pairs with the release in `Tx::publish`.
        let word0 = slot.word0.load(Ordering::Acquire);
        // If stamp and id match, XOR clears them and leaves the length: one comparison tests all three.
        let wanted = encode_word0(self.head, id, 0, 0) as u32;
        let len = (word0 as u32 ^ wanted).rotate_left(8) as usize;
        if len > SLOT_PAYLOAD {
            return None;
        }
        let key = slot.word1.load(Ordering::Relaxed);
        let header = Header::new(id, (word0 >> 32) as u32, key);
        Some(Arrival::new(header, slot.payload.get().cast(), len))
    }

    #[inline]
    pub(super) fn look_long(&mut self, id: u8, own: LocalDataArea) -> Option<Arrival<'_>> {
        // SAFETY: MAPPED: the region or the empty ring is mapped for the life of the job.
        let slot = unsafe { &(*self.pair).slots[(self.head & SLOT_MASK) as usize] };
        // ORDERING: acquire pairs with the release in `Tx::publish`.
        let word0 = slot.word0.load(Ordering::Acquire);
        if word0 as u32 != encode_word0(self.head, id, LEN_IN_DATA, 0) as u32 {
            return None;
        }
        let key = slot.word1.load(Ordering::Relaxed);
        self.look_data(Header::new(id, (word0 >> 32) as u32, key), slot, own)
    }

    /// Takes the message in the slot; returns whether `head` must be published.
    #[inline(always)] // see `look_short`
    #[must_use]
    pub fn advance(&mut self) -> bool {
        self.note_taken();
        self.head = self.head.wrapping_add(1);
        self.head.wrapping_sub(self.published) >= SLOTS / 4
    }

    #[inline]
    pub(super) fn look(&mut self, own: LocalDataArea) -> Option<Arrival<'_>> {
        // SAFETY: MAPPED: the region or the empty ring is mapped for the life of the job.
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

    #[inline(never)] // keeps the inlined part short, for looks that find nothing
    fn look_data(
        &mut self, header: Header, slot: *const Slot, own: LocalDataArea,
    ) -> Option<Arrival<'_>> {
        // SAFETY: MAPPED: the slot is mapped; the reference is read once, and its copy is checked.
        let place = unsafe { ptr::read_volatile((*slot).payload.get().cast::<DataRef>()) };
        let (offset, len) = (place.offset() & !RECYCLED, place.bytes() as u32);
        let (pair, size) = match place.offset() == offset {
            true => (self.pair, DATA_BYTES),
            false => (own.pair, own.size),
        };
        // Size 0 means that this side has no data area, so nothing can be in it.
        if offset + len > size || len as usize > DATA_MESSAGE_MAX || size == 0 {
            return self.look_nonsense();
        }
        self.shown = DataSpan { offset: place.offset(), len };
        self.taken = place.taken;
        let aux = place.aux();
        let header = Header { aux, ..header };
        // SAFETY: offset and length were checked to lie inside the data area.
        let data = unsafe { (*pair).data.get().cast::<u8>().add(offset as usize) };
        Some(Arrival::new(header, data, len as usize))
    }

    /// Whether there is an arrival. Costs one load.
    #[inline]
    pub fn has_arrival(&self) -> bool {
        // SAFETY: MAPPED: the region or the empty ring is mapped for the life of the job.
        let slot = unsafe { &(*self.pair).slots[(self.head & SLOT_MASK) as usize] };
        slot.word0.load(Ordering::Relaxed) as u16 == stamp(self.head)
    }

    #[inline(always)] // empty except for the model checker; see `look_short` for the bench
    fn note_taken(&self) {
        // SAFETY: MAPPED: the region or the empty ring is mapped for the life of the job.
        unsafe { (*self.pair).slots[(self.head & SLOT_MASK) as usize].watch.note_read() };
    }

    /// Publishes that everything before position `upto` may be reused.
    pub(super) fn publish_to(&mut self, upto: u32) {
        // SAFETY: MAPPED: a message was taken, so this is not the empty ring.
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
        // ORDERING: the load stays behind the store; partner is the fence of a producer that goes to sleep.
        compiler_fence(Ordering::SeqCst);
        if control.producer_waits.load(Ordering::Relaxed) != 0 {
            // SAFETY: the words lie on the producer's page, mapped for the life of the job.
            let producer = unsafe { &*self.producer };
            super::iface::wake_producer(control, producer);
        }
    }

    /// Whether a taken message has not been published.
    #[inline]
    pub fn owes_credits(&self) -> bool {
        self.head != self.published
    }
}
