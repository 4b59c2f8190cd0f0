//! Regions that the layer above reaches by load and store itself, and the ranks that it wakes after it.
#![allow(unsafe_code)]

use super::error::RmaError;
use super::key::Described;
use super::resolve::{AccessPath, RemoteKey};
use crate::worker::Worker;

impl Worker {
    /// The region's first byte in this process, where it is reached by load and store: valid as long as the key is
    /// kept and its owner exposes the memory.
    ///
    /// # Errors
    /// As [`Worker::unpack_key`].
    pub fn region_address(&mut self, key: &mut RemoteKey) -> Result<Option<*mut u8>, RmaError> {
        if key.generation != self.rma.generation {
            self.resolve_key(key)?;
        }
        Ok((key.way == AccessPath::LoadStore).then_some(key.base))
    }

    /// The same of memory of [`Worker::allocate_memory`] of any rank of this host, even where operations go another way
    /// by the user's wish.
    ///
    /// # Errors
    /// As [`Worker::unpack_key`].
    pub fn map_region(&mut self, key: &mut RemoteKey) -> Result<Option<*mut u8>, RmaError> {
        if let Some(base) = self.region_address(key)? {
            return Ok(Some(base));
        }
        let shares = key.described.arena.is_some() && !self.is_elsewhere(key.peer);
        Ok((shares && self.map_key(key)).then_some(key.base))
    }

    /// Whether an own packed key names memory of [`Worker::allocate_memory`].
    pub fn is_shared_key(&self, bytes: &[u8]) -> bool {
        Described::unpack(bytes, self.rank).is_ok_and(|described| described.arena.is_some())
    }

    /// Whether `peer`, a rank of this host, needs no progress of this process for operations on memory that this
    /// process exposes, as far as is known. `is_shared`: whether all of it is of [`Worker::allocate_memory`].
    pub fn is_reached_alone(&mut self, peer: u32, is_shared: bool) -> bool {
        let maps = self.thresholds.direct != u64::MAX && self.shares_memory(peer);
        maps && (is_shared || self.endpoints[peer].lane.copies_directly())
    }

    /// Wakes a rank of this host that sleeps in a wait for a word that this process has just changed by an atomic
    /// operation.
    #[inline]
    pub fn wake_rank(&self, peer: u32) {
        if let Some(page) = self.job.rank_page(peer as usize) {
            page.wake(0);
        }
    }

    /// Tells whoever looks at the job that this process has taken, or given back, a lock that others wait for, of
    /// memory of `peer` in the window of a number.
    #[inline]
    pub fn note_window_lock(&self, window: u32, peer: u32, taken: bool) {
        self.job.own_page().note_window_lock(window, peer, taken);
    }

    /// Whether a rank is on another host.
    pub fn is_elsewhere(&self, peer: u32) -> bool {
        self.job.is_remote(peer as usize)
    }
}
