//! The endpoint: one peer as the protocol layer sees it, and the immediate path.
#![allow(unsafe_code)]

use crate::learning::Learnt;
use crate::peers::{Peer, Peers};
use crate::waiting::SPIN_POLLS;
use crate::wire;
use fastpath_bootstrap::job::Job;
use fastpath_transport::{Header, Lane, Post};
use std::collections::VecDeque;
use std::io;
use std::mem::offset_of;
use std::ops::{Index, IndexMut};

/// A message that waits for room: what is left to do with it.
pub(crate) enum Pending {
    /// An eager message or RTS of a request.
    Start(u32),
    /// A control message.
    Control(Header, [u8; wire::CONTROL_MAX], u8),
}

/// Where the eager bytes of the message that a peer announced last belong.
#[derive(Clone, Copy)]
pub(crate) struct Early {
    /// Bytes still to come; 0 where there is no such message.
    pub left: u32,
    /// Whether `id` is a stored message's token; else it is a receive request.
    pub stored: bool,
    /// Where they go.
    pub id: u32,
}

impl Early {
    /// `id` of a stored message that was taken back: its bytes belong nowhere.
    pub const NOWHERE: u32 = u32::MAX;

    /// Bytes for a receive.
    pub fn of_request(left: u32, id: u32) -> Self {
        let stored = false;
        Early { left, stored, id }
    }

    /// Bytes of a message that nobody has asked for.
    pub fn of_stored(left: u32, id: u32) -> Self {
        let stored = true;
        Early { left, stored, id }
    }
}

/// One peer. All bits zero is a valid endpoint to a peer that has not been talked to.
#[repr(C)]
pub struct Endpoint {
    /// How bytes get there.
    pub(crate) lane: Lane,
    /// Not 0 while something must go before the next message: immediate sends are off.
    pub(crate) blocked: u32,
    /// Whether the peer has declined to fetch a message by a single copy.
    pub(crate) declines: bool,
    /// What waits for room, in order.
    #[allow(clippy::box_collection)] // an endpoint stays small
    pub(crate) pending: Option<Box<VecDeque<Pending>>>,
    /// The announced message whose bytes come without being asked for.
    pub(crate) early: Early,
    /// Which way longer messages go; none before the first one.
    pub(crate) learnt: Option<Box<Learnt>>,
}

// An endpoint per rank of the job: it must stay small.
const _: () = assert!(size_of::<Endpoint>() <= 192);

/// A worker's endpoints to all ranks that its job has or may come to have, by world rank.
pub(crate) struct Endpoints {
    peers: Peers,
    job: &'static Job,
}

impl Endpoints {
    /// Those of a job. Untouched pages of the reservation cost no memory.
    ///
    /// # Errors
    /// There is no address space for them.
    pub fn of_job(job: &'static Job) -> io::Result<Self> {
        Ok(Endpoints { peers: Peers::reserve(job.capacity() as u32)?, job })
    }

    /// Where they lie.
    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Where one lies: for who keeps it, and goes there while nothing of the worker is borrowed.
    pub fn address(&self, peer: u32) -> *mut Endpoint {
        assert!(peer < self.peers.count());
        self.at(peer)
    }

    #[inline]
    fn at(&self, peer: u32) -> *mut Endpoint {
        debug_assert!(peer < self.peers.count());
        let peer = self.peers.first().wrapping_add(peer as usize);
        peer.wrapping_byte_add(offset_of!(Peer, endpoint)).cast()
    }
}

impl Index<u32> for Endpoints {
    type Output = Endpoint;

    #[inline]
    fn index(&self, peer: u32) -> &Endpoint {
        // SAFETY: ranks are checked where they come in, so that it is inside the reservation, where every endpoint is
        // valid; what holds an address makes no reference beside this one (`Endpoints::address`).
        unsafe { &*self.at(peer) }
    }
}

impl IndexMut<u32> for Endpoints {
    #[inline]
    fn index_mut(&mut self, peer: u32) -> &mut Endpoint {
        // SAFETY: as in `index`; `self` is borrowed for as long.
        unsafe { &mut *self.at(peer) }
    }
}

impl Drop for Endpoints {
    fn drop(&mut self) {
        for peer in 0..self.job.present() as u32 {
            // SAFETY: every endpoint of the reservation is valid, and none is used beyond its worker.
            unsafe { self.at(peer).drop_in_place() };
        }
    }
}

/// What an immediate receive took.
#[derive(Debug, Clone, Copy)]
pub struct Taken {
    /// The message's tag.
    pub tag: i32,
    /// Its length in bytes.
    pub len: usize,
}

impl Endpoint {
    /// Wakes the peer after [`Post::Wake`]: `Done`, or `PeerGone`.
    #[cold]
    pub fn wake(&mut self) -> Post {
        self.lane.wake()
    }

    /// Posts a message of up to one buffer and wakes the peer if it sleeps.
    #[inline]
    pub(crate) fn post_bcopy(
        &mut self, header: Header, len: usize, pack: impl FnOnce(*mut u8),
    ) -> Post {
        match self.lane.am_bcopy(header, len, pack) {
            Post::Wake => self.lane.wake(),
            post => post,
        }
    }

    /// Posts the next bytes of a message whose receiver has a place for them, `left` at most; how many have gone. They
    /// go from where they lie if that is in a row, at `data`, and the lane does so; else in one buffer of up to `piece`
    /// bytes, which `pack` writes.
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

    /// Posts a message that fits a slot and wakes the peer if it sleeps.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes, at most [`crate::worker::SHORT_LIMIT`].
    pub(crate) unsafe fn post_short(
        &mut self, header: Header, data: *const u8, len: usize,
    ) -> Post {
        // SAFETY: `data` is readable for `len` bytes, by this function's contract, and `len` is at most a slot's.
        match unsafe { self.lane.am_short(header, data, len) } {
            Post::Wake => self.lane.wake(),
            post => post,
        }
    }

    /// Posts a message without bytes and wakes the peer if it sleeps.
    pub(crate) fn post_signal(&mut self, header: Header) -> Post {
        // SAFETY: no bytes.
        unsafe { self.post_short(header, std::ptr::dangling(), 0) }
    }

    /// Whether the peer is on this host, and reached without an adapter.
    #[inline]
    pub fn is_same_host(&self) -> bool {
        self.lane.is_same_host()
    }

    /// Whether anything has arrived from the peer. One load.
    #[inline]
    pub fn has_arrival(&mut self) -> bool {
        self.lane.has_arrival()
    }

    /// Looks before a receive from this peer becomes a request.
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
