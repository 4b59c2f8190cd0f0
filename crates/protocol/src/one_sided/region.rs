//! Memory that this process exposes.
#![allow(unsafe_code)]

use crate::rma::error::RmaError;
use crate::rma::key::UnpackedKey;
use crate::rma::region::{ExposedMemory, Region, RegionId};
use crate::worker::Worker;
use std::cell::Cell;

impl Worker {
    /// Exposes `len` bytes at `address` to every rank with the key, for any access until [`Worker::withdraw_memory`].
    /// Ranks of this host reach memory of [`Worker::allocate_memory`] by load and store.
    ///
    /// # Safety
    /// The memory stays mapped until it is withdrawn, and this process treats it as memory that others change.
    pub unsafe fn expose_memory(&mut self, address: *mut u8, len: usize) -> ExposedMemory {
        let at = address.expose_provenance();
        let arena = self.interfaces.locate_shared(at, len);
        // SAFETY: the memory stays mapped until it is withdrawn, by this function's contract.
        let registration = unsafe { self.interfaces.register_memory(address, len) };
        let adapter = registration.as_ref().map(|r| u64::from(r.rkey()));
        let id = RegionId(self.rma.regions.insert(Region {
            base: address,
            len: len as u64,
            is_writable: Cell::new(arena.map(|_| true)),
            _registration: registration,
        }));
        let described = UnpackedKey {
            owner: self.rank,
            region: id.0,
            len: len as u64,
            address: at as u64,
            arena,
            process: Some(u64::from(std::process::id())),
            adapter,
        };
        ExposedMemory { id, key: described.pack() }
    }

    /// Ends the exposure of memory; returns false if it was not exposed. Ranks that still have its key get
    /// [`RmaError::Withdrawn`] or, over an adapter, lose the connection. Ranks that load and store must stop by
    /// agreement with the owner.
    pub fn withdraw_memory(&mut self, id: RegionId) -> bool {
        let removed = self.rma.regions.remove_if(id.0, |_| true).is_some();
        if removed {
            self.interfaces.release_registrations();
        }
        removed
    }

    pub(crate) fn locate_own(&self, described: &UnpackedKey) -> Result<*mut u8, RmaError> {
        let regions = &self.rma.regions;
        let found = regions.locate(described.region, 0, described.len);
        found.ok_or(RmaError::Withdrawn)
    }
}
