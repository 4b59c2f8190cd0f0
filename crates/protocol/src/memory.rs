//! Memory that peers can access directly, for the layer above to allocate.

use crate::wire::EARLY_LIMIT;
use crate::worker::Worker;
use fastpath_segment::SegmentError;
use std::ptr::NonNull;

pub use fastpath_transport::remote::{MAX_ALIGN, MIN_ALIGN};

impl Worker {
    /// Allocates `bytes` bytes, possibly 0, that peers can read and write directly. `align`, a power of two of at most
    /// [`MAX_ALIGN`], is the alignment of the address.
    ///
    /// # Errors
    /// Too little memory (the error states needed and available bytes), or the kernel refuses a mapping.
    pub fn allocate_memory(
        &mut self, bytes: usize, align: usize,
    ) -> Result<NonNull<u8>, SegmentError> {
        let memory = self.interfaces.arena.allocate(bytes, align)?;
        // Shorter messages are never read in place, so they need no shared memory.
        if bytes as u64 > EARLY_LIMIT {
            let start = memory.addr().get();
            self.interfaces.declare_memory(start..start + bytes);
        }
        Ok(memory)
    }

    /// Reserves memory like [`Worker::allocate_memory`], all zero, but each page takes memory only when it is touched.
    /// Used for windows of which the program may use only a small part.
    pub fn reserve_memory(
        &mut self, bytes: usize, align: usize,
    ) -> Result<NonNull<u8>, SegmentError> {
        self.interfaces.arena.reserve(bytes, align)
    }

    /// Frees memory allocated or reserved here. Returns false for any other `address`.
    pub fn free_memory(&mut self, address: usize) -> bool {
        self.interfaces.forget_memory(address);
        self.interfaces.arena.free(address)
    }
}
