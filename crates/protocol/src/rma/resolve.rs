//! Keys of peers' memory, resolved to a lane and an access path.

use super::ask::AskBackoff;
use super::error::RmaError;
use super::key::UnpackedKey;
use fastpath_transport::remote::MappedMemory;
use fastpath_transport::{Lane, Remote};

/// Access path to a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessPath {
    /// Load and store.
    LoadStore,
    /// Copy between processes by the kernel, or a simulation of it.
    Kernel,
    /// Operations of an adapter.
    Adapter,
    /// Active messages, which the owner handles.
    Messages,
}

impl AccessPath {
    /// Returns the name for reports.
    pub fn name(self) -> &'static str {
        match self {
            AccessPath::LoadStore => "load-store",
            AccessPath::Kernel => "kernel",
            AccessPath::Adapter => "adapter",
            AccessPath::Messages => "messages",
        }
    }

    /// Returns the description for reports.
    pub fn how(self) -> &'static str {
        match self {
            AccessPath::LoadStore => {
                "the origin's processor reads and writes the target's memory directly"
            }
            AccessPath::Kernel => "the kernel copies between the processes",
            AccessPath::Adapter => "the adapter reads and writes the target's memory",
            AccessPath::Messages => {
                "the target performs the operations inside its MPI calls or, with \
                 FASTPATH_PROGRESS=thread, in its progress thread"
            }
        }
    }
}

/// Access paths to a region, besides messages.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reach {
    /// Whether the region's pages are mapped in this process.
    pub shared: bool,
    /// Whether the lane's adapter reaches the region.
    pub adapter: bool,
    /// Whether the kernel copies from and to the region.
    pub kernel: bool,
}

impl Reach {
    /// Returns the preferred access path.
    pub fn way(self) -> AccessPath {
        match self {
            Reach { shared: true, .. } => AccessPath::LoadStore,
            Reach { adapter: true, .. } => AccessPath::Adapter,
            Reach { kernel: true, .. } => AccessPath::Kernel,
            _ => AccessPath::Messages,
        }
    }
}

/// Key of a peer's region, ready for operations.
pub struct RemoteKey {
    /// Value of `Rma::generation` when the key was resolved. If it has changed, the key must be resolved again.
    pub(crate) generation: u32,
    pub(crate) way: AccessPath,
    pub(crate) base: *mut u8,
    pub(crate) len: u64,
    pub(crate) peer: u32,
    pub(crate) described: UnpackedKey,
    pub(crate) mapped: Option<MappedMemory>,
    pub(crate) refused: bool,
    pub(crate) asked: AskBackoff,
}

impl RemoteKey {
    /// Returns the world rank of the region's owner.
    pub fn peer(&self) -> u32 {
        self.peer
    }

    /// Returns the size of the region in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether the region has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the access path that was chosen last.
    pub fn way(&self) -> AccessPath {
        self.way
    }

    #[inline]
    pub(crate) fn remote(&self, offset: u64) -> Remote {
        let key = match self.way {
            AccessPath::Adapter => self.described.adapter,
            _ => self.described.process,
        };
        Remote { addr: self.described.address + offset, rkey: key.unwrap_or(0) }
    }

    #[inline]
    pub(crate) fn holds(&self, offset: u64, len: usize) -> bool {
        offset <= self.len && len as u64 <= self.len - offset
    }

    #[cold]
    pub(crate) fn outside(&self, offset: u64, len: usize) -> RmaError {
        RmaError::OutOfBounds { offset, len: len as u64, size: self.len }
    }
}

pub(crate) fn choose_way(
    lane: &Lane, described: &UnpackedKey, direct: bool, refused: bool,
) -> AccessPath {
    Reach {
        shared: direct && described.arena.is_some() && lane.can_load_store(),
        adapter: lane.posts_remote() && described.adapter.is_some(),
        kernel: lane.copies_directly() && described.process.is_some() && !refused,
    }
    .way()
}
