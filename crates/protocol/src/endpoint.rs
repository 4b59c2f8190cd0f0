//! Endpoint: one peer in the protocol layer.
#![allow(unsafe_code)]

use crate::learning::PeerLearning;
use crate::wire;
use fastpath_transport::{Header, Lane, Post};
use std::collections::VecDeque;

/// Number of polls of a named peer's ring before a receive becomes a request. For other lanes, see [`Lane::polls`].
///
/// [`Lane::polls`]: fastpath_transport::Lane::polls
pub const SPIN_POLLS: u32 = 4096;

pub(crate) enum PendingPost {
    Start(u32),
    Control(Header, [u8; wire::CONTROL_MAX], u8),
    Notice(Box<PendingNotice>),
}

/// Notice that waits for space at its peer.
pub(crate) struct PendingNotice {
    pub header: Header,
    pub bytes: Vec<u8>,
}

/// Destination of the eager bytes of the message that a peer has announced last.
#[derive(Clone, Copy)]
pub(crate) struct EagerTarget {
    /// Bytes still to come; 0 if none are expected.
    pub left: u32,
    /// Whether `id` is the token of a stored message, and not a receive request.
    pub stored: bool,
    pub id: u32,
}

impl EagerTarget {
    /// Value of `id` for a stored message that was withdrawn: its bytes are dropped.
    pub const NOWHERE: u32 = u32::MAX;

    pub fn of_request(left: u32, id: u32) -> Self {
        let stored = false;
        EagerTarget { left, stored, id }
    }

    pub fn of_stored(left: u32, id: u32) -> Self {
        let stored = true;
        EagerTarget { left, stored, id }
    }
}

/// One peer. All bits zero is a valid endpoint to a peer that has not been used.
#[repr(C)]
pub struct Endpoint {
    pub(crate) lane: Lane,
    /// Nonzero while queued messages must leave before any other message. Immediate sends are then disabled.
    pub(crate) blocked: u32,
    /// Whether the peer has declined single copies.
    pub(crate) declines: bool,
    #[allow(clippy::box_collection)] // an endpoint stays small
    pub(crate) pending: Option<Box<VecDeque<PendingPost>>>,
    pub(crate) early: EagerTarget,
    /// Protocol choices for longer messages; `None` before the first such message.
    pub(crate) learnt: Option<Box<PeerLearning>>,
}

// The worker has one endpoint for each rank of the job, so an endpoint must stay small.
const _: () = assert!(size_of::<Endpoint>() <= 192);

/// Result of an immediate receive.
#[derive(Debug, Clone, Copy)]
pub struct ImmediateReceive {
    /// Tag of the message.
    pub tag: i32,
    /// Length of the message in bytes.
    pub len: usize,
}

impl Endpoint {
    /// Wakes the peer after [`Post::Wake`]. Returns `Done` or `PeerGone`.
    #[cold]
    pub fn wake(&mut self) -> Post {
        self.lane.wake()
    }

    #[inline]
    pub(crate) fn post_bcopy(
        &mut self, header: Header, len: usize, pack: impl FnOnce(*mut u8),
    ) -> Post {
        match self.lane.am_bcopy(header, len, pack) {
            Post::Wake => self.lane.wake(),
            post => post,
        }
    }

    /// Posts the next bytes, at most `left`, of a message whose destination at the receiver is known. Returns the
    /// number of bytes. If `data` is given and the lane can send in place, the bytes are sent from `data`. Otherwise
    /// `pack` writes up to `piece` bytes into a buffer.
    ///
    /// # Safety
    /// `data` is readable for `left` bytes.
    pub(crate) unsafe fn post_next(
        &mut self, header: Header, (left, piece): (u64, u64), data: Option<*const u8>,
        pack: impl FnOnce(*mut u8, usize),
    ) -> (Post, u64) {
        // SAFETY: `data` is readable for `left` bytes, by this function's contract.
        let bulk = data.and_then(|data| unsafe { self.lane.am_bulk(header, data, left as usize) });
        if let Some((post, gone)) = bulk {
            return (post, gone as u64);
        }
        let len = piece.min(left) as usize;
        (self.post_bcopy(header, len, |to| pack(to, len)), len as u64)
    }

    /// Posts a message that fits a slot, and wakes the peer if it sleeps.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes, at most [`crate::wire::SHORT_LIMIT`].
    pub(crate) unsafe fn post_short(
        &mut self, header: Header, data: *const u8, len: usize,
    ) -> Post {
        // SAFETY: `data` is readable for `len` bytes, by this function's contract, and `len` is at most a slot's.
        match unsafe { self.lane.am_short(header, data, len) } {
            Post::Wake => self.lane.wake(),
            post => post,
        }
    }

    pub(crate) fn post_signal(&mut self, header: Header) -> Post {
        // SAFETY: the payload is empty.
        unsafe { self.post_short(header, std::ptr::dangling(), 0) }
    }

    /// Returns whether the peer is on this host and reached without an adapter.
    #[inline]
    pub fn is_same_host(&self) -> bool {
        self.lane.is_same_host()
    }

    /// Returns whether anything has arrived from the peer. Costs one load.
    #[inline]
    pub fn has_arrival(&mut self) -> bool {
        self.lane.has_arrival()
    }

    /// Returns the number of polls before a receive from this peer becomes a request.
    #[inline]
    pub fn spin_polls(&self) -> u32 {
        self.lane.polls(SPIN_POLLS)
    }

    /// See [`Lane::expect_more`].
    #[inline]
    pub fn expect_more(&mut self) {
        self.lane.expect_more();
    }

    /// See [`Lane::begin_wait`].
    #[inline]
    pub fn begin_wait(&mut self) -> bool {
        self.lane.begin_wait()
    }

    /// See [`Lane::warm`].
    #[inline]
    pub fn warm(&mut self) -> bool {
        self.lane.warm()
    }
}
