//! Memory that peers can reach directly, for the layer above to give out.

use crate::worker::{EARLY_LIMIT, Worker};
use fastpath_bootstrap::segment::SegmentError;
use std::ptr::NonNull;

pub use fastpath_transport::remote::{MAX_ALIGN, MIN_ALIGN};

impl Worker {
    /// Takes memory that peers can read and write directly: `bytes` (0 too) at a multiple of `align`,
    /// a power of two of at most [`MAX_ALIGN`].
    ///
    /// # Errors
    /// Too little memory: needed and available are stated. Or the kernel refuses a mapping.
    pub fn allocate_memory(
        &mut self, bytes: usize, align: usize,
    ) -> Result<NonNull<u8>, SegmentError> {
        let memory = self.interfaces.arena.allocate(bytes, align)?;
        // Shorter messages are never fetched from where they lie.
        if bytes as u64 > EARLY_LIMIT {
            let start = memory.addr().get();
            self.interfaces.declare_memory(start..start + bytes);
        }
        Ok(memory)
    }

    /// As [`Worker::allocate_memory`], of pages that get memory as they are touched: for windows, of which a program
    /// may use little.
    ///
    /// # Errors
    /// As there.
    pub fn reserve_memory(
        &mut self, bytes: usize, align: usize,
    ) -> Result<NonNull<u8>, SegmentError> {
        self.interfaces.arena.reserve(bytes, align)
    }

    /// Gives back what [`Worker::allocate_memory`] or [`Worker::reserve_memory`] gave; false where `address` is nothing
    /// of it.
    pub fn free_memory(&mut self, address: usize) -> bool {
        self.interfaces.forget_memory(address);
        self.interfaces.arena.free(address)
    }
}
