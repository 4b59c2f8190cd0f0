//! Memory of every rank: its endpoint, and the matcher's lists next to it. The immediate path finds the lists by the
//! endpoint's address. Only ranks in use take memory.
#![allow(unsafe_code)]

use crate::endpoint::Endpoint;
use crate::request::{ReceiveLink, Request};
use crate::unexpected::MessageList;
use fastpath_base::memory;
use fastpath_job::Job;
use std::io;
use std::mem::offset_of;
use std::ops::{Index, IndexMut};

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PostedList {
    pub first: *mut Request,
    /// Location of the next receive's link: the `next` field of the last receive, or `first` if the list is empty.
    pub end: ReceiveLink,
}

/// Lists of a peer. All bits zero are empty lists.
#[repr(C)]
pub(crate) struct PeerLists {
    pub posted: PostedList,
    pub unexpected: MessageList,
    /// Number of entries in both lists. If 0, a receive may read the peer's next arrival directly.
    pub busy: u32,
    /// Place of the posted receives' index in `Matcher::indexes`, plus one; 0 without an index.
    pub index: u32,
}

const _: () = assert!(size_of::<PeerLists>() == 32);
// A `ReceiveLink` counts from `first` but is added to the address of `PeerLists`, so the two addresses must be equal.
const _: () = assert!(offset_of!(PeerLists, posted) == 0 && offset_of!(PostedList, first) == 0);

/// One rank. All bits zero is a rank that has not been used.
#[repr(C, align(64))]
pub(crate) struct Peer {
    pub lists: PeerLists,
    pub endpoint: Endpoint,
}

// There is one `Peer` for each rank of the job, so a `Peer` must stay small.
const _: () = assert!(size_of::<Peer>() == 256);

impl Peer {
    /// Returns the address of the lists beside an endpoint in a `Peer`.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Recv
    pub fn lists_beside(endpoint: *const Endpoint) -> *const PeerLists {
        let peer: *const Peer = endpoint.wrapping_byte_sub(offset_of!(Peer, endpoint)).cast();
        peer.wrapping_byte_add(offset_of!(Peer, lists)).cast()
    }
}

pub(crate) struct Peers {
    first: *mut Peer,
    count: u32,
}

impl Peers {
    /// Reserves memory for `count` ranks. Pages that are never touched cost no memory.
    ///
    /// # Errors
    /// The address space is used up.
    pub fn reserve(count: u32) -> io::Result<Self> {
        Ok(Peers { first: memory::reserve(bytes_of(count))?.cast(), count })
    }

    #[inline]
    pub fn first(&self) -> *mut Peer {
        self.first
    }

    #[inline]
    pub fn count(&self) -> u32 {
        self.count
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        // SAFETY: `reserve` made the reservation, and its owner no longer uses it.
        unsafe { memory::release(self.first.cast(), bytes_of(self.count)) };
    }
}

fn bytes_of(count: u32) -> usize {
    (count as usize + 1) * size_of::<Peer>()
}

/// Endpoints of a worker to all ranks that its job has or may get, indexed by world rank.
pub(crate) struct Endpoints {
    peers: Peers,
    job: &'static Job,
}

impl Endpoints {
    /// Reserves the endpoints of a job. Pages that are never touched cost no memory.
    ///
    /// # Errors
    /// The address space is used up.
    pub fn of_job(job: &'static Job) -> io::Result<Self> {
        Ok(Endpoints { peers: Peers::reserve(job.capacity() as u32)?, job })
    }

    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Returns the address of an endpoint. Dereference it only while no reference to an endpoint lives.
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
        // SAFETY: ranks are checked on input, so the endpoint is inside the reservation; no `&mut` to it lives.
        unsafe { &*self.at(peer) }
    }
}

impl IndexMut<u32> for Endpoints {
    #[inline]
    fn index_mut(&mut self, peer: u32) -> &mut Endpoint {
        // SAFETY: the place is inside the reservation, where every endpoint is valid, and `self` is borrowed mutably.
        unsafe { &mut *self.at(peer) }
    }
}

impl Drop for Endpoints {
    fn drop(&mut self) {
        for peer in 0..self.job.present() as u32 {
            // SAFETY: every endpoint of the reservation is valid, and none is used after its worker.
            unsafe { self.at(peer).drop_in_place() };
        }
    }
}
