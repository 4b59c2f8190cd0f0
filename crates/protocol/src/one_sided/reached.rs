//! Regions that the layer above accesses by load and store, and the ranks that it wakes afterwards.
#![allow(unsafe_code)]

use crate::rma::error::RmaError;
use crate::rma::key::UnpackedKey;
use crate::rma::resolve::{AccessPath, RemoteKey};
use crate::worker::Worker;

impl Worker {
    /// Returns the region's address in this process if the access path is load and store. The address is valid while
    /// the key lives and the owner exposes the memory.
    pub fn region_address(&mut self, key: &mut RemoteKey) -> Result<Option<*mut u8>, RmaError> {
        if key.generation != self.rma.generation {
            self.resolve_key(key)?;
        }
        Ok((key.way == AccessPath::LoadStore).then_some(key.base))
    }

    /// Maps memory of [`Worker::allocate_memory`] of a rank of this host, and returns its address. Does so even if
    /// settings select another access path for operations.
    pub fn map_region(&mut self, key: &mut RemoteKey) -> Result<Option<*mut u8>, RmaError> {
        if let Some(base) = self.region_address(key)? {
            return Ok(Some(base));
        }
        let shares = key.described.arena.is_some() && !self.is_elsewhere(key.peer);
        Ok((shares && self.map_key(key)).then_some(key.base))
    }

    /// Returns whether a packed key of this process names memory of [`Worker::allocate_memory`].
    pub fn is_shared_key(&self, bytes: &[u8]) -> bool {
        UnpackedKey::unpack(bytes, self.rank).is_ok_and(|described| described.arena.is_some())
    }

    /// Returns whether operations of `peer`, a rank of this host, on this process's exposed memory are known to need no
    /// progress here. `is_shared`: whether all of the memory is from [`Worker::allocate_memory`].
    pub fn is_reached_alone(&mut self, peer: u32, is_shared: bool) -> bool {
        let maps = self.planner.thresholds.direct != u64::MAX && self.shares_memory(peer);
        maps && (is_shared || self.endpoints[peer].lane.copies_directly())
    }

    /// Wakes a rank of this host that sleeps until a word changes. Call it after an atomic change of the word.
    #[inline]
    pub fn wake_rank(&self, peer: u32) {
        if let Some(page) = self.job.rank_page(peer as usize) {
            page.wake();
        }
    }

    /// Publishes for tools that this process has taken or released a contended lock of window `window`.
    #[inline]
    pub fn note_window_lock(&self, window: u32, peer: u32, taken: bool) {
        self.job.own_page().note_window_lock(window, peer, taken);
    }

    /// Returns whether a rank is on another host.
    pub fn is_elsewhere(&self, peer: u32) -> bool {
        self.job.is_remote(peer as usize)
    }
}
