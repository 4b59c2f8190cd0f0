//! Memory that this process exposes.
#![allow(unsafe_code)]

use crate::rma::error::RmaError;
use crate::rma::key::UnpackedKey;
use crate::rma::region::{ExposedMemory, Region, RegionId};
use crate::worker::Worker;
use fastpath_base::layout::ByteStream;
use std::cell::Cell;
use std::sync::Arc;

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
            stream: None,
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

    /// Exposes `len` bytes at `address`, which the processor cannot touch and `stream` moves. All ranks, this one
    /// included, reach them by messages only, and the owner performs the operations. Atomic operations are refused.
    pub fn expose_stream(
        &mut self, address: *mut u8, len: usize, stream: Arc<dyn ByteStream>,
    ) -> ExposedMemory {
        let id = RegionId(self.rma.regions.insert(Region {
            base: address,
            len: len as u64,
            is_writable: Cell::new(Some(true)),
            stream: Some(stream),
            _registration: None,
        }));
        let described = UnpackedKey {
            owner: self.rank,
            region: id.0,
            len: len as u64,
            address: address.addr() as u64,
            arena: None,
            process: None,
            adapter: None,
        };
        ExposedMemory { id, key: described.pack() }
    }

    /// Returns whether a packed key of this process names memory of [`Worker::expose_stream`].
    pub fn is_stream_key(&self, bytes: &[u8]) -> bool {
        UnpackedKey::unpack(bytes, self.rank).is_ok_and(|described| {
            self.rma.regions.find(described.region).is_some_and(|region| region.stream.is_some())
        })
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

    /// Returns the address of a region of this process; `None` if the processor cannot touch it.
    pub(crate) fn locate_own(&self, described: &UnpackedKey) -> Result<Option<*mut u8>, RmaError> {
        let regions = &self.rma.regions;
        let found = regions.locate(described.region, 0, described.len);
        found.map(|bytes| bytes.address()).ok_or(RmaError::Withdrawn)
    }
}
