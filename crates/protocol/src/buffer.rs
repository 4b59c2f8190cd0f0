//! The memory of a message: where it lies and how it is laid out.

use crate::layout::Layout;
use std::sync::Arc;

/// A user's buffer: contiguous bytes, or elements of a layout.
#[derive(Debug, Clone)]
pub struct Buffer {
    /// Address of the first element's origin (`MPI_BOTTOM` is null, with absolute offsets in the layout).
    pub ptr: *mut u8,
    /// Data bytes in all.
    pub bytes: u64,
    /// How elements are laid out; `None` where the bytes are contiguous from `ptr`.
    pub layout: Option<Arc<Layout>>,
    /// Number of elements of `layout`.
    pub count: u64,
}

impl Buffer {
    /// `bytes` contiguous bytes at `ptr`.
    pub fn contiguous(ptr: *mut u8, bytes: u64) -> Self {
        Buffer { ptr, bytes, layout: None, count: 0 }
    }

    /// Whether it is known to be the same memory as another one: one piece at one address, or the same elements.
    pub fn is_same(&self, other: &Buffer) -> bool {
        let same_elements = match (&self.layout, &other.layout) {
            (None, None) => true,
            (Some(layout), Some(others)) => Arc::ptr_eq(layout, others),
            _ => false,
        };
        self.ptr == other.ptr && same_elements
    }

    /// No bytes at all.
    pub fn empty() -> Self {
        Buffer::contiguous(std::ptr::null_mut(), 0)
    }
}
