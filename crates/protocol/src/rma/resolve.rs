//! What a key is resolved to: lane and way, decided once and kept with it.

use super::ask::Asked;
use super::error::RmaError;
use super::key::Described;
use crate::request::Fault;
use crate::worker::Worker;
use fastpath_transport::remote::MappedMemory;
use fastpath_transport::{Lane, Remote};

/// How a region is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessPath {
    /// By load and store.
    LoadStore,
    /// By the kernel's copy between processes, or what stands for it.
    Kernel,
    /// By an adapter.
    Adapter,
    /// By active messages, which the owner carries out.
    Messages,
}

impl AccessPath {
    /// As reports call it.
    pub fn name(self) -> &'static str {
        match self {
            AccessPath::LoadStore => "load-store",
            AccessPath::Kernel => "kernel",
            AccessPath::Adapter => "adapter",
            AccessPath::Messages => "messages",
        }
    }

    /// What it does, for reports.
    pub fn how(self) -> &'static str {
        match self {
            AccessPath::LoadStore => "this processor reads and writes the memory where it lies",
            AccessPath::Kernel => "the kernel copies between the processes",
            AccessPath::Adapter => "the adapter reads and writes the owner's memory",
            AccessPath::Messages => {
                "the owner carries them out when it makes progress, with FASTPATH_PROGRESS=thread \
                 also while it computes"
            }
        }
    }
}

/// By what a region can be reached, besides messages.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reach {
    /// Its pages lie in this process too.
    pub shared: bool,
    /// The lane's adapter reaches it.
    pub adapter: bool,
    /// The kernel copies from and to it.
    pub kernel: bool,
}

impl Reach {
    /// The way that is taken.
    pub fn way(self) -> AccessPath {
        match self {
            Reach { shared: true, .. } => AccessPath::LoadStore,
            Reach { adapter: true, .. } => AccessPath::Adapter,
            Reach { kernel: true, .. } => AccessPath::Kernel,
            _ => AccessPath::Messages,
        }
    }
}

/// A region of a peer, ready to be reached.
pub struct RemoteKey {
    /// Number of the worker's lanes that it was resolved under; another one says: not resolved.
    pub(super) generation: u32,
    pub(super) way: AccessPath,
    /// The region's first byte in this process, by load and store.
    pub(super) base: *mut u8,
    /// Bytes of the region.
    pub(super) len: u64,
    pub(super) peer: u32,
    pub(super) described: Described,
    mapped: Option<MappedMemory>,
    /// The kernel has refused.
    pub(super) refused: bool,
    pub(super) asked: Asked,
}

impl RemoteKey {
    /// The region's owner, by its rank in the world.
    pub fn peer(&self) -> u32 {
        self.peer
    }

    /// Bytes of the region.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the region has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How the region is reached, as decided last.
    pub fn way(&self) -> AccessPath {
        self.way
    }

    /// Where `len` bytes at `offset` are for the transport of the way.
    #[inline]
    pub(super) fn remote(&self, offset: u64) -> Remote {
        let key = match self.way {
            AccessPath::Adapter => self.described.adapter,
            _ => self.described.process,
        };
        Remote { addr: self.described.address + offset, rkey: key.unwrap_or(0) }
    }

    /// Whether all of the bytes are inside the region.
    #[inline]
    pub(super) fn holds(&self, offset: u64, len: usize) -> bool {
        offset <= self.len && len as u64 <= self.len - offset
    }

    #[cold]
    pub(super) fn outside(&self, offset: u64, len: usize) -> RmaError {
        RmaError::OutOfBounds { offset, len: len as u64, size: self.len }
    }
}

/// How a region is reached over a lane.
pub(super) fn choose_way(
    lane: &Lane, described: &Described, direct: bool, refused: bool,
) -> AccessPath {
    Reach {
        shared: direct && described.arena.is_some() && lane.can_load_store(),
        adapter: lane.posts_remote() && described.adapter.is_some(),
        kernel: lane.copies_directly() && described.process.is_some() && !refused,
    }
    .way()
}

impl Worker {
    /// The region that `bytes`, a key made by `peer`, name: lane and way are decided now, and again only when a lane of
    /// this worker has changed.
    ///
    /// # Errors
    /// `BadKey`, where they are no key of this peer's. What a hostile owner may say beyond that leads to its own
    /// memory alone.
    pub fn unpack_key(&mut self, peer: u32, bytes: &[u8]) -> Result<RemoteKey, RmaError> {
        if peer >= self.present() {
            return Err(RmaError::BadKey("its owner is no rank of this job"));
        }
        // A rank of another job names itself as its own job does.
        let owner = self.job.origin(peer as usize).rank;
        let described = Described::unpack(bytes, owner)?;
        let mut key = RemoteKey {
            generation: self.rma.generation.wrapping_sub(1),
            way: AccessPath::Messages,
            base: std::ptr::null_mut(),
            len: described.len,
            peer,
            described,
            mapped: None,
            refused: false,
            asked: Asked::default(),
        };
        self.resolve_key(&mut key)?;
        Ok(key)
    }

    /// Decides lane and way of a key.
    #[cold]
    #[inline(never)]
    pub(super) fn resolve_key(&mut self, key: &mut RemoteKey) -> Result<(), RmaError> {
        self.rma.counters.resolved += 1;
        let (peer, described) = (key.peer, key.described);
        if peer == self.rank {
            key.base = self.locate_own(&described)?;
            key.way = AccessPath::LoadStore;
        } else {
            self.hold_lane(peer).map_err(|fault| match fault {
                Fault::NoMemory => RmaError::NoMemory,
                _ => RmaError::PeerGone,
            })?;
            let direct = self.thresholds.direct != u64::MAX;
            let lane = &self.endpoints[peer].lane;
            key.way = choose_way(lane, &described, direct, key.refused);
            if key.way == AccessPath::LoadStore && !self.map_key(key) {
                key.way = choose_way(&self.endpoints[peer].lane, &described, false, key.refused);
            }
            if matches!(key.way, AccessPath::Adapter | AccessPath::Messages) {
                self.connect(peer).map_err(|_| RmaError::NoMemory)?;
            }
        }
        key.generation = match self.rma.resolves_once {
            true => self.rma.generation,
            false => self.rma.generation.wrapping_sub(1),
        };
        Ok(())
    }

    /// Whether memory of [`Worker::allocate_memory`] is reached by load and store between this rank and `peer`.
    pub fn shares_memory(&mut self, peer: u32) -> bool {
        self.hold_lane(peer).is_ok() && self.endpoints[peer].lane.can_load_store()
    }

    /// How a put or a get of so many bytes goes: the way, or, where an adapter chooses by size, its method.
    pub fn name_method(&self, key: &RemoteKey, puts: bool, bytes: usize) -> &'static str {
        let lane = &self.endpoints[key.peer].lane;
        let method = match (key.way, puts) {
            (AccessPath::Adapter, true) => lane.put_method(bytes),
            (AccessPath::Adapter, false) => lane.get_method(bytes),
            _ => None,
        };
        method.map_or_else(|| key.way.name(), |method| method.name())
    }

    /// Maps the region, unless it is; false where that is not possible.
    pub(super) fn map_key(&self, key: &mut RemoteKey) -> bool {
        if key.mapped.is_none() {
            let at = key.described.arena.unwrap_or(0);
            let mapped = self.interfaces.map_memory(key.peer, at, key.len as usize);
            key.mapped = mapped.ok();
        }
        match &key.mapped {
            Some(mapped) => {
                key.base = mapped.base();
                true
            }
            None => false,
        }
    }

    /// A lane has been made, or replaced by another: whatever was decided by it is decided again.
    pub(crate) fn note_lane_change(&mut self) {
        self.rma.generation = self.rma.generation.wrapping_add(1);
    }
}
