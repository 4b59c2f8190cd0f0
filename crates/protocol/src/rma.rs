//! One-sided operations: put, get and atomics on memory that its owner has exposed.
//!
//! The owner exposes memory ([`Worker::expose_memory`]) and gives the packed key to whom it wants. Who unpacks it
//! ([`Worker::unpack_key`]) gets a [`RemoteKey`] in which lane and way are decided once; every operation compares one
//! number, checks its bounds and goes that way:
//!
//! | way | where | done at the peer |
//! |---|---|---|
//! | load-store | memory of the arena of a rank of this host; own memory | when the call returns |
//! | kernel | any memory of a rank of this host (CMA); a few bytes by its owner, while that is inside MPI ([`ask`]) | when the call returns |
//! | adapter | registered memory, by a reliable connection: short, bcopy or zcopy by size | at a flush |
//! | messages | anything else: active messages, which the owner carries out when it makes progress | at a flush |
//!
//! What is nonblocking becomes an entry of a queue only where there is no room, or where there is more of it than one
//! operation carries ([`Counters::queued`]). A flush completes all that was posted to a peer; atomics are carried out
//! by a processor, whatever the lane (`docs/decisions/0015-atomics-are-done-by-processors.md`).
#![allow(unsafe_code)]

mod ask;
mod atomic;
mod blocking;
mod error;
mod flush;
mod handle;
mod key;
mod locked;
mod message;
mod numbered;
mod post;
mod queue;
mod reached;
mod region;
mod resolve;

pub use ask::{ASK_MOST, Ask, Asking, ChangeFunction, SLOT_BYTES, SLOT_HEAD, SLOTS_BYTES, Slots};
pub use atomic::add_masked;
pub use error::RmaError;
pub use fastpath_transport::remote::copy_mapped;
pub use key::{KEY_WORDS, PACKED_BYTES, PackedKey, key_of_words, words_of_key};
pub use locked::{ANSWER_HEAD, ANSWER_MOST, HeldWord};
pub use region::{Exposed, RegionId};
pub use resolve::{AccessPath, Reach, RemoteKey};

#[allow(unused_imports)] // for the links above
use crate::worker::Worker;
use message::Landing;
use numbered::Numbered;
use queue::Peer;
use region::Region;
use std::collections::BTreeMap;

/// Events of one-sided operations; nothing on the shortest ways is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Keys resolved.
    pub resolved: u64,
    /// Operations, or rests of some, that waited in a queue.
    pub queued: u64,
    /// Operations of peers carried out here.
    pub served: u64,
    /// Polls of the wire-up interface by flushes, for nothing (`FASTPATH_DISABLE=wireup-gate`).
    pub idle_wireup_polls: u64,
}

/// Whether the operation's buffer may be used again.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// It may; of a get, the bytes are there.
    Done,
    /// Not before a flush.
    Pending,
}

/// Everything that a worker keeps for one-sided operations.
pub struct Rma {
    /// Changes whenever a lane does; keys that were resolved under another number are resolved again.
    pub(crate) generation: u32,
    /// Whether keys stay resolved (`FASTPATH_DISABLE=resolve-once`).
    pub resolves_once: bool,
    /// Whether the wire-up interface is left alone while nothing connects (`FASTPATH_DISABLE=wireup-gate`).
    pub gates_wireup: bool,
    /// Peers with something under way that their lanes do not know of.
    pub(crate) busy: u32,
    /// Peers with a queue.
    pub(crate) queues: u32,
    /// Whether gets have been posted to adapters since the last flush of everything.
    pub(crate) reads: bool,
    /// By rank, those alone that messages go to or come from.
    peers: BTreeMap<u32, Peer>,
    /// Memory that this process exposes.
    regions: Numbered<Region>,
    /// The key of this process's slots, once they are exposed.
    slots: Option<PackedKey>,
    /// Where answers belong, by token.
    landings: Numbered<Landing>,
    /// Makes the changes that peers ask for.
    pub change: ChangeFunction,
    /// Events so far.
    pub counters: Counters,
}

/// Where the layer above knows of none.
unsafe fn no_change(_: u64, _: *mut u8, _: *mut u8, _: usize) -> bool {
    false
}

impl Rma {
    /// Peers with a queue.
    pub(crate) fn waiting_peers(&self) -> Vec<u32> {
        let waiting = self.peers.iter().filter(|(_, state)| state.queued);
        waiting.map(|(&peer, _)| peer).collect()
    }
}

impl Default for Rma {
    fn default() -> Self {
        Rma {
            generation: 1,
            resolves_once: true,
            gates_wireup: true,
            busy: 0,
            queues: 0,
            reads: false,
            peers: BTreeMap::new(),
            regions: Numbered::default(),
            slots: None,
            landings: Numbered::default(),
            change: no_change,
            counters: Counters::default(),
        }
    }
}
