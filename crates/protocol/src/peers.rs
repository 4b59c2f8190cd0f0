//! What a worker has of every rank: its endpoint, and beside it the lists of its receives and messages. The immediate
//! path finds the lists by the endpoint's address, and memory is used only for ranks that are talked to.
#![allow(unsafe_code)]

use crate::endpoint::Endpoint;
use crate::matching::PeerLists;
use fastpath_base::memory;
use std::io;
use std::mem::offset_of;

/// One rank. All bits zero is one that has not been talked to.
#[repr(C, align(64))]
pub(crate) struct Peer {
    /// What the matcher has of it.
    pub lists: PeerLists,
    /// How it is reached.
    pub endpoint: Endpoint,
}

// One for each rank of the job: it must stay small.
const _: () = assert!(size_of::<Peer>() == 256);

impl Peer {
    /// Where the lists lie beside an endpoint in a `Peer`.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Recv
    pub fn lists_beside(endpoint: *const Endpoint) -> *const PeerLists {
        let peer: *const Peer = endpoint.wrapping_byte_sub(offset_of!(Peer, endpoint)).cast();
        peer.wrapping_byte_add(offset_of!(Peer, lists)).cast()
    }
}

/// A reservation for ranks, and one `Peer` more behind them, which has lists alone.
pub(crate) struct Peers {
    first: *mut Peer,
    count: u32,
}

impl Peers {
    /// For `count` ranks. Pages that nobody writes to cost no memory.
    ///
    /// # Errors
    /// There is no address space for them.
    pub fn reserve(count: u32) -> io::Result<Self> {
        Ok(Peers { first: memory::reserve(bytes_of(count))?.cast(), count })
    }

    /// The first one.
    #[inline]
    pub fn first(&self) -> *mut Peer {
        self.first
    }

    /// Ranks.
    #[inline]
    pub fn count(&self) -> u32 {
        self.count
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        // SAFETY: the reservation of `reserve`, whose owner uses it no longer.
        unsafe { memory::release(self.first.cast(), bytes_of(self.count)) };
    }
}

fn bytes_of(count: u32) -> usize {
    (count as usize + 1) * size_of::<Peer>()
}
