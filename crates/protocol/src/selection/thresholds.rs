//! Sizes from which the protocols change: the decision as the message path reads it.

use crate::worker::{EAGER_LIMIT, EARLY_LIMIT};
use fastpath_transport::Lane;

/// Two registrations, each a system call that pins pages, take about as long as two copies of so many bytes. Not
/// measured on the machine at hand.
const FETCH_FROM: u64 = EARLY_LIMIT + 1;

/// Bytes that go without being asked for over a lane that takes messages from where they lie, where the user's
/// variables say no other number. To ask costs two short messages in the middle of a long one: 20 to 27 us between two
/// virtual hosts, where a short one takes 6 (docs/performance.md), and more where hosts are farther apart. Not to ask
/// costs a copy where nobody waits yet: of so many bytes about as long.
pub(crate) const BULK_EARLY: u64 = 256 * 1024;

/// Sizes from which the protocols change, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// Messages up to this size are sent whole without asking.
    pub eager: u64,
    /// The same over a lane on which one message is faster than several, up to that lane's limit
    /// ([`Lane::max_single`]).
    pub max_single: u64,
    /// Bytes of a longer message that travel without being asked for: its RTS carries the
    /// first `fragment` of them, the others follow at once. At most [`EARLY_LIMIT`].
    pub first: u64,
    /// Bytes of each part of a message that goes in several.
    pub fragment: u64,
    /// Size from which both sides make a single copy, if they can; none of who learns, which begins in the ring.
    pub single_copy: u64,
    /// The same where ranks share processors: what counts is the work of both sides together.
    pub crowded_copy: u64,
    /// Size from which the receiver fetches the message by an adapter, where one leads to the sender. Above
    /// [`EARLY_LIMIT`].
    pub fetch: u64,
    /// Size from which a message is moved by load and store, where either side's memory is shared.
    pub direct: u64,
    /// Size from which both sides take part in moving a message by load and store.
    pub cooperative: u64,
    /// Smallest piece of such a copy (below, a call of the kernel costs more than its copy).
    pub piece_min: u64,
    /// Largest one, so that neither side waits long for the other's last.
    pub piece_max: u64,
    /// Whether both sides copy at the same time; else each part waits until the one before it was taken.
    pub pipelined: bool,
}

impl Thresholds {
    /// Bytes that go as one over a lane where that does better than several; 0 on other lanes.
    #[inline]
    fn as_one(&self, lane: &Lane) -> u64 {
        self.max_single.min(lane.max_single() as u64)
    }

    /// Messages up to this size are sent whole over a lane, without asking.
    #[inline]
    pub fn max_single_on(&self, lane: &Lane) -> u64 {
        self.eager.max(self.as_one(lane))
    }

    /// Bytes of a longer message that go over a lane without being asked for.
    #[inline]
    pub fn early_on(&self, lane: &Lane) -> u64 {
        self.early(lane.has_bulk())
    }

    /// The same; `bulk`: whether the lane takes messages from where they lie.
    pub(crate) fn early(&self, bulk: bool) -> u64 {
        match self.first {
            EARLY_LIMIT if bulk => BULK_EARLY,
            first => first,
        }
    }

    /// Size from which copies without the ring serve memory that both sides reach by load and store, or do not.
    pub fn copy_from(&self, shared: bool) -> u64 {
        match shared {
            true => self.direct,
            false => self.single_copy,
        }
    }

    /// How parts and fragments follow each other.
    pub(crate) fn stream(&self) -> &'static str {
        match self.pipelined {
            true => "both sides copy at once",
            false => "one after the other",
        }
    }

    /// Bytes of one fragment over a lane.
    #[inline]
    pub fn fragment_on(&self, lane: &Lane) -> u64 {
        self.fragment.max(self.as_one(lane))
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
