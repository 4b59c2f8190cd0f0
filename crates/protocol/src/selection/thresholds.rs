//! Thresholds: the message sizes at which the protocols change.

use crate::wire::{EAGER_LIMIT, EARLY_LIMIT, RTS_HEADER, SYNC_HEADER};
use fastpath_transport::Lane;

/// Message size, in bytes, from which a receiver reads messages through an adapter. Two registrations, each a system
/// call that pins pages, take about as long as two copies of this size. Not measured on this machine.
const FETCH_FROM: u64 = EARLY_LIMIT + 1;

/// Maximum number of eager bytes over a lane that sends directly from the user's memory, unless the user sets a limit.
/// A handshake adds two short messages to a long one. It takes 20 to 27 us between two virtual hosts, where a short
/// message takes 6 us (docs/performance.md), and more between distant hosts. Without the handshake, an unexpected
/// message costs a copy, which at this size takes about as long.
pub(crate) const BULK_EARLY: u64 = 256 * 1024;

/// Smallest piece that `FASTPATH_PIPELINE_CHUNK` can request, in bytes.
pub const FRAGMENT_MIN: u64 = 256;
/// Largest piece, in bytes. With the header of an RTS it fits a transport buffer, in whole cache lines.
pub const FRAGMENT_MAX: u64 = (EAGER_LIMIT - RTS_HEADER) as u64 / 64 * 64;
/// Largest message in one buffer, in bytes. It leaves space for the header of a synchronous message.
pub const WHOLE_MAX: u64 = (EAGER_LIMIT - SYNC_HEADER) as u64 / 64 * 64;

/// Sizes at which the protocols change, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// Largest eager message in one buffer.
    pub eager: u64,
    /// Largest eager message in one buffer, on a lane that prefers one buffer to several ([`Lane::max_single`]).
    pub max_single: u64,
    /// Eager bytes of a longer message, at most [`EARLY_LIMIT`]: `fragment` bytes in the RTS, the others right after
    /// it.
    pub first: u64,
    /// Bytes of each part, if a message is sent in several parts.
    pub fragment: u64,
    /// Size from which both sides make a single copy. `u64::MAX` while learning, which starts with the ring.
    pub single_copy: u64,
    /// Size from which single copies are made if ranks share processors, by the total work of both sides.
    pub crowded_copy: u64,
    /// Size, above [`EARLY_LIMIT`], from which the receiver reads the message by an adapter, if one reaches the sender.
    pub fetch: u64,
    /// Size from which a message is moved by load and store, if the memory of either side is shared.
    pub direct: u64,
    /// Size from which both sides move a message by load and store.
    pub cooperative: u64,
    /// Smallest piece of a cooperative copy. A smaller piece would spend too much of its time in its system call.
    pub piece_min: u64,
    /// Largest piece of a cooperative copy, so that neither side waits long for the other's last piece.
    pub piece_max: u64,
    /// Whether both sides copy at the same time. Otherwise each part is sent only after the previous part was taken.
    pub pipelined: bool,
}

/// How the first bytes of a message are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendProtocol {
    /// Eager, in one buffer.
    Whole,
    /// Eager, in several buffers.
    Fragments,
    /// Announced by an RTS.
    Announced,
}

/// Sizes for a lane, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneSizes {
    /// Largest eager message in one buffer.
    pub whole: u64,
    /// Largest eager message, in one buffer or several.
    pub eager: u64,
    /// Payload of each buffer, if a message needs several.
    pub part: u64,
    /// Eager bytes of a longer message.
    pub early: u64,
}

impl LaneSizes {
    /// Returns the protocol of an untimed message. Only an `immediate` message is eager in several buffers.
    #[inline]
    pub fn protocol(&self, bytes: u64, immediate: bool) -> SendProtocol {
        match bytes <= self.whole {
            true => SendProtocol::Whole,
            false if immediate => SendProtocol::Fragments,
            false => SendProtocol::Announced,
        }
    }
}

impl Thresholds {
    /// Returns the sizes of messages over a lane.
    #[inline]
    pub fn sizes_on(&self, lane: &Lane) -> LaneSizes {
        self.sizes(lane.max_single() as u64, lane.has_bulk())
    }

    /// Returns the sizes for a lane with this [`Lane::max_single`]. `bulk`: whether it sends from the user's memory.
    #[inline]
    pub(crate) fn sizes(&self, max_single: u64, bulk: bool) -> LaneSizes {
        // `max_single` is 0 on a lane on which one message is no faster than several.
        let as_one = self.max_single.min(max_single);
        LaneSizes {
            whole: self.eager.max(as_one),
            eager: self.first,
            part: self.fragment.max(as_one),
            early: match self.first {
                EARLY_LIMIT if bulk => BULK_EARLY,
                first => first,
            },
        }
    }

    /// Returns the size from which messages are copied without the ring; if `shared`, by load and store.
    pub fn copy_from(&self, shared: bool) -> u64 {
        match shared {
            true => self.direct,
            false => self.single_copy,
        }
    }

    pub(crate) fn stream(&self) -> &'static str {
        match self.pipelined {
            true => "sender and receiver copy at the same time",
            false => "sender and receiver copy one after the other",
        }
    }
}

impl Default for Thresholds {
    fn default() -> Self {
        Thresholds {
            eager: 16 * 1024,
            max_single: EAGER_LIMIT as u64,
            first: EARLY_LIMIT,
            fragment: 16 * 1024,
            single_copy: u64::MAX,
            crowded_copy: EARLY_LIMIT + 1,
            fetch: FETCH_FROM,
            direct: EARLY_LIMIT + 1,
            cooperative: EARLY_LIMIT + 1,
            piece_min: 16 * 1024,
            piece_max: 256 * 1024,
            pipelined: true,
        }
    }
}
