//! The interfaces of a process, and the choice of a lane for each peer.

use crate::lane::Lane;
use crate::loopback::LoopbackEndpoint;
use crate::shm::{Domain, Iface, ShmEndpoint};
use fastpath_bootstrap::job::Job;
use fastpath_bootstrap::segment::SegmentError;

/// Every interface that this process has opened.
pub struct Interfaces {
    domain: &'static Domain,
    shm: Iface,
}

impl Interfaces {
    /// Opens what the job allows.
    pub fn open(job: &'static Job) -> Self {
        let domain: &'static Domain = Box::leak(Box::new(Domain::new(job)));
        Interfaces { domain, shm: Iface::new(domain) }
    }

    /// A lane for `peer`, open in neither direction where directions are opened one by one.
    pub fn make_lane(&self, peer: u32) -> Lane {
        if peer == self.domain.me {
            return Lane::Loopback(Box::new(LoopbackEndpoint::new()));
        }
        Lane::Shm(ShmEndpoint::new(self.domain, peer))
    }

    /// Opens a lane for sending.
    pub fn connect(&self, lane: &mut Lane) -> Result<(), SegmentError> {
        match lane {
            Lane::Shm(endpoint) => endpoint.connect(),
            Lane::Loopback(_) | Lane::Unconnected => Ok(()),
        }
    }

    /// Wakes `peer` if it sleeps.
    pub fn rouse(&self, peer: u32) {
        crate::shm::iface::rouse(self.domain.state_word(peer));
    }

    /// Whether a peer has connected to this process since the last [`Interfaces::accept`].
    #[inline]
    pub fn has_news(&self) -> bool {
        self.shm.has_news()
    }

    /// Calls `found` with each peer that has newly connected to this process.
    pub fn accept(&mut self, found: impl FnMut(u32)) {
        self.shm.accept(found);
    }
}

impl Lane {
    /// Opens the lane for receiving, after its peer has connected.
    pub fn open_receive(&mut self) {
        if let Lane::Shm(endpoint) = self {
            endpoint.accept();
        }
    }

    /// Tells the peer what has been taken, if it does not know.
    #[inline]
    pub fn return_credits(&mut self) {
        if let Lane::Shm(endpoint) = self
            && endpoint.rx.owes_credits()
        {
            endpoint.rx.publish_head();
        }
    }

    /// Asks the peer for a wake-up when it has made room; to be called before a sender sleeps.
    pub fn await_room(&mut self) {
        if let Lane::Shm(endpoint) = self {
            endpoint.await_room();
        }
    }

    /// Whether all that was sent has been taken by the peer.
    pub fn is_drained(&mut self) -> bool {
        match self {
            Lane::Shm(endpoint) => endpoint.tx.is_drained(),
            Lane::Loopback(_) | Lane::Unconnected => true,
        }
    }

    /// Key of this process's memory for the peer (see [`crate::Remote`]).
    pub fn memory_key(&self) -> u64 {
        std::process::id() as u64
    }
}
