//! Format of shared memory: the region of one ordered pair of ranks.
//!
//! ```text
//!  0        64         1216                      17600                20480 (page aligned)
//!  +--------+----------+-------------------------+--------------------+-------------------------+
//!  | control| recalls  | 256 slots of 64 bytes   | cooperative copies | data: 1 MiB             |
//!  +--------+----------+-------------------------+--------------------+-------------------------+
//!
//!  slot, one cache line:
//!   0      2   3    4        8              16                               64
//!  +------+---+----+--------+--------------+---------------------------------+
//!  | stamp| id|len | imm    | key          | payload, or {offset, length, ..}  |
//!  +------+---+----+--------+--------------+---------------------------------+
//!   `------- word0 --------' `--- word1 --'
//! ```
//!
//! `word0` is published last, by one release store. `stamp` distinguishes a fresh slot from a slot of the previous lap,
//! so the consumer never writes to a slot. A payload of up to 48 bytes is in the slot. A longer payload is in the data
//! area, and the slot has its offset and length. A reply may be in the area of the other direction (`recycle`).
//!
//! A region is backed with memory when it is used (`grow`): the first page when a pair connects, other pages of slots
//! when the ring first reaches them, the data area in steps. For few ranks, the launcher has zeroed a part beforehand.

use super::recall::Recalls;
use fastpath_base::sync::{AtomicU32, AtomicU64, RaceCheck};
#[cfg(not(feature = "loom"))]
use fastpath_segment::{PAIR_AHEAD_BYTES, PAIR_BYTES};
use std::cell::UnsafeCell;

/// Slots of a ring; two for the model checker.
pub const SLOTS: u32 = if cfg!(feature = "loom") { 2 } else { 256 };
/// Index mask of a ring.
pub const SLOT_MASK: u32 = SLOTS - 1;
/// Payload bytes that fit a slot.
pub const SLOT_PAYLOAD: usize = 48;
/// Value of `len` for a payload in the data area.
pub const LEN_IN_DATA: u8 = 0xff;
/// Size of the data area, in bytes.
pub const DATA_BYTES: u32 = 1024 * 1024;
/// Bytes of the data area that are backed at its first message. Each later step enlarges it [`DATA_STEP`] times.
pub const DATA_BYTES_FIRST: u32 = 4 * 1024;
/// Growth factor of the data area.
pub const DATA_STEP: u32 = 4;
/// Growth factor of the data area from [`DATA_BYTES_STREAM`] on.
pub const DATA_STEP_STREAM: u32 = 2;
/// Smallest data area, in bytes, for a stream (a message of many parts).
pub const DATA_BYTES_STREAM: u32 = 64 * 1024;
/// Bytes that must be sent for each byte of growth beyond [`DATA_BYTES_STREAM`]. A larger area gains less from growth.
pub const fn data_price(size: u32) -> u32 {
    match size / (16 * 1024) {
        price if price < DATA_PRICE_MAX => price,
        _ => DATA_PRICE_MAX,
    }
}
/// Largest result of [`data_price`].
pub const DATA_PRICE_MAX: u32 = 16;
/// Smallest growth beyond [`DATA_BYTES_STREAM`], in bytes. Each growth takes two system calls.
pub const DATA_PART: u32 = 32 * 1024;
/// Largest payload of one message in the data area, in bytes.
pub const DATA_MESSAGE_MAX: usize = 32 * 1024;

/// Cache line that carries a message.
#[repr(C, align(64))]
pub struct Slot {
    /// Stamp, id, length and immediate data; written last.
    pub word0: AtomicU64,
    /// Match key.
    pub word1: AtomicU64,
    /// Payload, or a [`DataRef`].
    pub payload: UnsafeCell<[u8; SLOT_PAYLOAD]>,
    /// Access check of the payload by the model checker.
    pub watch: RaceCheck,
}

/// Reference to a payload in the data area. It has few words, because their stores wait behind the stores of the
/// payload.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DataRef {
    /// Offset in the data area, 32 bits; length in bytes and the header's `aux`, 16 bits each.
    place: u64,
    /// Consumer position of the message's sender in the other direction's ring.
    pub taken: u32,
}

impl DataRef {
    /// Packs a reference.
    #[inline]
    pub fn new(offset: u32, len: u16, aux: u16, taken: u32) -> DataRef {
        let place = offset as u64 | (len as u64) << 32 | (aux as u64) << 48;
        DataRef { place, taken }
    }

    /// Offset in the data area, in bytes.
    #[inline]
    pub fn offset(&self) -> u32 {
        self.place as u32
    }

    /// Length in bytes.
    #[inline]
    pub fn bytes(&self) -> u16 {
        (self.place >> 32) as u16
    }

    /// The header's `aux`.
    #[inline]
    pub fn aux(&self) -> u16 {
        (self.place >> 48) as u16
    }
}

/// Bit of [`DataRef::offset`]: the payload is in the data area of the other direction (`recycle`).
pub const RECYCLED: u32 = 1 << 31;

/// State of a ring that changes rarely.
#[repr(C, align(64))]
pub struct RingControl {
    /// Position before which the consumer has returned slots and data. Written by the consumer.
    pub head: AtomicU32,
    /// Set by a producer that sleeps until there is room. The consumer reads it after it writes `head`.
    pub producer_waits: AtomicU32,
    /// Bytes of the data area in use. Written by the producer.
    pub data_size: AtomicU32,
    /// Position before which the consumer has taken messages, returned or not (`recycle`).
    pub taken: AtomicU32,
    /// Number of times that `head` has wrapped. Written by the producer, for tools that inspect the job.
    pub laps: AtomicU32,
    _pad: [u8; 44],
}

/// Maximum number of concurrent cooperative copies of one direction.
pub const COOPERATIVE_COPIES: usize = 32;

/// State of a message that both sides copy, from opposite ends.
#[repr(C, align(64))]
pub struct CooperativeCopy {
    /// Number of pieces claimed by both sides together.
    pub claimed: AtomicU32,
    _pad: [u8; 60],
}

/// Region of one ordered pair.
#[repr(C)]
pub struct PairRegion {
    /// Credits.
    pub control: RingControl,
    /// Recalls of messages by the sender.
    pub recalls: Recalls,
    /// Slots of the ring.
    pub slots: [Slot; SLOTS as usize],
    /// Messages that both sides copy.
    pub cooperative: [CooperativeCopy; COOPERATIVE_COPIES],
    _pad: [u8; PAGE - 64 - COOPERATIVE_COPIES * 64 - size_of::<Recalls>()],
    /// Payloads that exceed a slot.
    pub data: UnsafeCell<[u8; DATA_BYTES as usize]>,
}

#[cfg(not(feature = "loom"))]
const _: () = {
    assert!(size_of::<Slot>() == 64);
    assert!(size_of::<RingControl>() == 64);
    assert!(size_of::<DataRef>() == 16 && DATA_MESSAGE_MAX <= u16::MAX as usize);
    assert!(std::mem::offset_of!(Slot, payload) == 16);
    assert!(std::mem::offset_of!(PairRegion, data) % 4096 == 0);
    assert!(size_of::<PairRegion>() <= PAIR_BYTES);
    assert!(data_price(DATA_BYTES_STREAM) > 0);
    // An area of twice the longest message has room for such a message at any offset.
    assert!(PAIR_AHEAD_BYTES == HEAD_BYTES + 2 * 64 * 1024);
    assert!(slots_within(1) == 44 && slots_within(HEAD_PAGES - 1) < SLOTS);
    // The smallest area of a stream has room for two messages of the greatest length, as `DATA_OWED_MIN` requires.
    assert!(DATA_BYTES_STREAM as usize >= 2 * DATA_MESSAGE_MAX && DATA_BYTES.is_power_of_two());
};

/// Bytes of a pair's region before the data area.
pub const HEAD_BYTES: usize = std::mem::offset_of!(PairRegion, data);
/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Pages of a region before the data area.
pub const HEAD_PAGES: u32 = HEAD_BYTES.div_ceil(PAGE) as u32;

/// Number of slots that may be filled while `pages` pages are backed. The consumer also reads the slot after these.
pub const fn slots_within(pages: u32) -> u32 {
    if pages >= HEAD_PAGES {
        return SLOTS;
    }
    let bytes = (pages as usize * PAGE).saturating_sub(std::mem::offset_of!(PairRegion, slots));
    (bytes / size_of::<Slot>()).saturating_sub(1) as u32
}

/// Stamp of a slot that holds the message at `position`. In the first lap it differs from 0, the content of a fresh
/// page.
#[inline]
pub fn stamp(position: u32) -> u16 {
    position as u16 ^ 0x8000
}

/// Packs `word0`.
#[inline]
pub fn encode_word0(position: u32, id: u8, len: u8, imm: u32) -> u64 {
    stamp(position) as u64 | (id as u64) << 16 | (len as u64) << 24 | (imm as u64) << 32
}
