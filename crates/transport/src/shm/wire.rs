//! What lies in shared memory: the region of one ordered pair of ranks.
//!
//! ```text
//!  0        64         1216                      17600          20480 (page aligned)
//!  +--------+----------+-------------------------+--------------+-------------------------+
//!  | Control| recalls  | 256 slots of 64 bytes   | cooperative copies | data: 1 MiB             |
//!  +--------+----------+-------------------------+--------------+-------------------------+
//!
//!  slot, one cache line:
//!   0      2   3    4        8              16                               64
//!  +------+---+----+--------+--------------+---------------------------------+
//!  | stamp| id|len | imm    | key          | payload, or {offset, length, ..}  |
//!  +------+---+----+--------+--------------+---------------------------------+
//!   `------- word0 --------' `--- word1 --'
//! ```
//!
//! `word0` is published last, by one release store. `stamp` tells a fresh slot from the one that lay
//! there a lap ago, so that the consumer never writes to a slot. A payload of up to 48 bytes lies in
//! the slot; a longer one lies in the data area, and the slot says where. A reply may
//! lie in the area of the other direction (`recycle`).
//!
//! A region is backed with memory as far as it is used (`grow`): the first page when a pair connects, a page of slots
//! when the ring comes to it for the first time, the data area in steps. Of few ranks the launcher has filled a part
//! with zeros before.

use super::recall::Recalls;
use fastpath_base::sync::{AtomicU32, AtomicU64, Watch};
#[cfg(not(feature = "loom"))]
use fastpath_bootstrap::segment::{PAIR_AHEAD_BYTES, PAIR_BYTES};
use std::cell::UnsafeCell;

/// Slots of a ring; the model checker goes round one of two.
pub const SLOTS: u32 = if cfg!(feature = "loom") { 2 } else { 256 };
/// Index mask of a ring.
pub const SLOT_MASK: u32 = SLOTS - 1;
/// Payload bytes that fit a slot.
pub const SLOT_PAYLOAD: usize = 48;
/// Value of `len` that says: the payload lies in the data area.
pub const LEN_IN_DATA: u8 = 0xff;
/// Bytes of the data area.
pub const DATA_BYTES: u32 = 1024 * 1024;
/// Bytes of the data area that are backed with memory at its first message; each later step is [`DATA_STEP`] times as
/// large.
pub const DATA_BYTES_FIRST: u32 = 4 * 1024;
/// How much larger the data area becomes at a step.
pub const DATA_STEP: u32 = 4;
/// The same from [`DATA_BYTES_STREAM`] on.
pub const DATA_STEP_STREAM: u32 = 2;
/// Bytes that it has at least when it carries a stream, a message of many parts.
pub const DATA_BYTES_STREAM: u32 = 64 * 1024;
/// Beyond that the area grows by one byte for each `data_price` bytes sent: the larger it is, the less growth helps.
pub const fn data_price(size: u32) -> u32 {
    match size / (16 * 1024) {
        price if price < DATA_PRICE_MAX => price,
        _ => DATA_PRICE_MAX,
    }
}
/// The most that [`data_price`] asks for.
pub const DATA_PRICE_MAX: u32 = 16;
/// Bytes that it grows by then at least: each time takes two calls of the system.
pub const DATA_PART: u32 = 32 * 1024;
/// Largest payload of one message in the data area.
pub const DATA_MESSAGE_MAX: usize = 32 * 1024;

/// A cache line that carries a message.
#[repr(C, align(64))]
pub struct Slot {
    /// Lap, id, length and immediate data; written last.
    pub word0: AtomicU64,
    /// The key.
    pub word1: AtomicU64,
    /// Payload, or a [`DataRef`].
    pub payload: UnsafeCell<[u8; SLOT_PAYLOAD]>,
    /// Of the payload.
    pub watch: Watch,
}

/// Where a longer payload lies in the data area. Few words, since what is stored for a message waits behind its lines.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DataRef {
    /// Offset in the data area in bytes, in 32 bits; length in bytes and the header's `aux`, in 16 bits each.
    place: u64,
    /// Position up to which the sender has taken what its receiver has sent.
    pub taken: u32,
}

impl DataRef {
    /// Of these parts.
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

    /// The header's.
    #[inline]
    pub fn aux(&self) -> u16 {
        (self.place >> 48) as u16
    }
}

/// Bit of [`DataRef::offset`]: the payload lies in the data area of the other direction (`recycle`).
pub const RECYCLED: u32 = 1 << 31;

/// What the two sides tell each other rarely.
#[repr(C, align(64))]
pub struct Control {
    /// Position up to which the consumer gives back slots and data; written by the consumer.
    pub head: AtomicU32,
    /// Set by a producer that sleeps until there is room; read by the consumer as it writes `head`.
    pub producer_waits: AtomicU32,
    /// Bytes of the data area in use; written by the producer.
    pub data_size: AtomicU32,
    /// Position up to which the consumer has taken messages, whether it gives back their room or not (`recycle`).
    pub taken: AtomicU32,
    /// How often `head` has come round; written by the producer, for those who look from outside.
    pub laps: AtomicU32,
    _pad: [u8; 44],
}

/// Cooperative copies that can be under way in one direction.
pub const COOPERATIVE_COPIES: usize = 32;

/// How many pieces of one message the two sides have claimed: the receiver from the front, the sender
/// from the back, until they meet.
#[repr(C, align(64))]
pub struct CooperativeCopy {
    /// Pieces claimed by either side.
    pub claimed: AtomicU32,
    _pad: [u8; 60],
}

/// The region of one ordered pair.
#[repr(C)]
pub struct PairRegion {
    /// Credits.
    pub control: Control,
    /// Messages that the sender takes back.
    pub recalls: Recalls,
    /// The ring.
    pub slots: [Slot; SLOTS as usize],
    /// Messages that both sides copy at once.
    pub cooperative: [CooperativeCopy; COOPERATIVE_COPIES],
    _pad: [u8; PAGE - 64 - COOPERATIVE_COPIES * 64 - size_of::<Recalls>()],
    /// Payloads that do not fit a slot.
    pub data: UnsafeCell<[u8; DATA_BYTES as usize]>,
}

#[cfg(not(feature = "loom"))]
const _: () = {
    assert!(size_of::<Slot>() == 64);
    assert!(size_of::<Control>() == 64);
    assert!(size_of::<DataRef>() == 16 && DATA_MESSAGE_MAX <= u16::MAX as usize);
    assert!(std::mem::offset_of!(Slot, payload) == 16);
    assert!(std::mem::offset_of!(PairRegion, data) % 4096 == 0);
    assert!(size_of::<PairRegion>() <= PAIR_BYTES);
    assert!(data_price(DATA_BYTES_STREAM) > 0);
    // An area of twice its length takes a message wherever it would begin.
    assert!(PAIR_AHEAD_BYTES == HEAD_BYTES + 2 * 64 * 1024);
    assert!(slots_within(1) == 44 && slots_within(HEAD_PAGES - 1) < SLOTS);
    // The longest message finds room wherever it would begin, and half of them are told of in time (`DATA_OWED_MIN`).
    assert!(DATA_BYTES_STREAM as usize >= 2 * DATA_MESSAGE_MAX && DATA_BYTES.is_power_of_two());
};

/// Bytes of a pair's region before the data area.
pub const HEAD_BYTES: usize = std::mem::offset_of!(PairRegion, data);
/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Pages of a region before the data area.
pub const HEAD_PAGES: u32 = HEAD_BYTES.div_ceil(PAGE) as u32;

/// Slots that can be filled while only the first `pages` pages are backed: the consumer looks at the one behind them.
pub const fn slots_within(pages: u32) -> u32 {
    if pages >= HEAD_PAGES {
        return SLOTS;
    }
    let bytes = (pages as usize * PAGE).saturating_sub(std::mem::offset_of!(PairRegion, slots));
    (bytes / size_of::<Slot>()).saturating_sub(1) as u32
}

/// What says that a slot holds the message of `position`: the position itself, changed so that it is never a fresh
/// page's 0 while the ring is filled for the first time.
#[inline]
pub fn stamp(position: u32) -> u16 {
    position as u16 ^ 0x8000
}

/// Packs `word0`.
#[inline]
pub fn encode_word0(position: u32, id: u8, len: u8, imm: u32) -> u64 {
    stamp(position) as u64 | (id as u64) << 16 | (len as u64) << 24 | (imm as u64) << 32
}
