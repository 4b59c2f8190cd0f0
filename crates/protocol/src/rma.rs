//! State of one-sided operations: keys, regions and messages. `one_sided` has the operations.
#![allow(unsafe_code)]

pub(crate) mod ask;
pub(crate) mod atomic;
pub(crate) mod blocks;
pub(crate) mod error;
pub(crate) mod key;
pub(crate) mod locked;
pub(crate) mod message;
pub(crate) mod numbered;
pub(crate) mod queue;
pub(crate) mod region;
pub(crate) mod resolve;

pub use ask::{
    ASK_MOST, Ask, ChangeFunction, SLOT_BYTES, SLOT_HEAD, SLOTS_BYTES, Slots, TargetRequest,
};
pub use atomic::add_masked;
pub use blocks::{BLOCK_MAX, BLOCKS_MAX};
pub use error::RmaError;
pub use fastpath_transport::RemoteBlock;
pub use fastpath_transport::remote::copy_mapped;
pub use key::{KEY_WORDS, PACKED_BYTES, PackedKey, key_of_words, words_of_key};
pub use locked::{ANSWER_HEAD, ANSWER_MOST, HeldWord};
pub use region::{ExposedMemory, RegionId};
pub use resolve::{AccessPath, Reach, RemoteKey};

use message::ReplyTarget;
use numbered::NumberedList;
use queue::RmaPeer;
use region::Region;
use std::collections::BTreeMap;

/// Counters of one-sided operations. The fastest paths count nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RmaCounters {
    /// Keys resolved.
    pub resolved: u64,
    /// Operations, or parts of them, that waited in a queue.
    pub queued: u64,
    /// Operations of peers performed here.
    pub served: u64,
    /// Polls of the wire-up interface by flushes that found no event (`FASTPATH_DISABLE=wireup-gate`).
    pub idle_wireup_polls: u64,
}

/// State of an operation's local buffer.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferState {
    /// The buffer may be reused; the bytes of a get have arrived.
    Done,
    /// The buffer is in use until a flush.
    Pending,
}

/// State of a worker's one-sided operations.
pub struct Rma {
    /// Number that changes with every change of a lane. A key resolved under another number is resolved again.
    pub(crate) generation: u32,
    /// Whether keys stay resolved between operations; false with `FASTPATH_DISABLE=resolve-once`.
    pub resolves_once: bool,
    /// Whether flushes skip the wire-up interface while no peer is connecting; false with
    /// `FASTPATH_DISABLE=wireup-gate`.
    pub gates_wireup: bool,
    pub(crate) busy: u32,
    pub(crate) queues: u32,
    /// Whether gets were posted to adapters since the last flush of all peers.
    pub(crate) reads: bool,
    /// State of peers that are reached by messages only, by rank.
    pub(crate) peers: BTreeMap<u32, RmaPeer>,
    pub(crate) regions: NumberedList<Region>,
    pub(crate) slots: Option<PackedKey>,
    pub(crate) landings: NumberedList<ReplyTarget>,
    /// Performs the changes that peers request.
    pub change: ChangeFunction,
    /// Event counters.
    pub counters: RmaCounters,
}

unsafe fn no_change(_: u64, _: *mut u8, _: *mut u8, _: usize) -> bool {
    false
}

impl Rma {
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
            regions: NumberedList::default(),
            slots: None,
            landings: NumberedList::default(),
            change: no_change,
            counters: RmaCounters::default(),
        }
    }
}
