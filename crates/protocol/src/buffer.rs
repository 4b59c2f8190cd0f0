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
        Buffer {
            ptr,
            bytes,
            layout: None,
            count: 0,
        }
    }

    /// No bytes at all.
    pub fn empty() -> Self {
        Buffer::contiguous(std::ptr::null_mut(), 0)
    }
}
