//! Memory of a message.

use crate::layout::Layout;
use std::sync::Arc;

/// User's buffer: contiguous bytes, or elements of a layout.
#[derive(Debug, Clone)]
pub struct Buffer {
    /// Address of the first element's origin (`MPI_BOTTOM` is null, with absolute offsets in the layout).
    pub ptr: *mut u8,
    /// Length of the data in bytes.
    pub bytes: u64,
    /// Layout of the elements; `None` for contiguous bytes from `ptr`.
    pub layout: Option<Arc<Layout>>,
    /// Number of elements of `layout`.
    pub count: u64,
}

impl Buffer {
    /// Returns a buffer of `bytes` contiguous bytes at `ptr`.
    pub fn contiguous(ptr: *mut u8, bytes: u64) -> Self {
        Buffer { ptr, bytes, layout: None, count: 0 }
    }

    /// Returns whether both buffers have the same address and layout, so that they are the same memory.
    pub fn is_same(&self, other: &Buffer) -> bool {
        let same_elements = match (&self.layout, &other.layout) {
            (None, None) => true,
            (Some(layout), Some(others)) => Arc::ptr_eq(layout, others),
            _ => false,
        };
        self.ptr == other.ptr && same_elements
    }

    /// Returns an empty buffer.
    pub fn empty() -> Self {
        Buffer::contiguous(std::ptr::null_mut(), 0)
    }
}
