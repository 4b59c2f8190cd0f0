//! Memory for the length of one collective call: a few lines on the stack, or the heap.
#![allow(unsafe_code)]

use super::vector::Vector;
use crate::consts::MPI_ERR_NO_MEM;
use crate::error::{Error, Result};
use fastpath_protocol::layout::Layout;
use std::alloc;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Bytes that need no allocation.
pub(super) const NEAR_BYTES: u64 = 256;
/// Alignment of the memory in bytes.
const ALIGN: usize = 64;

#[repr(C, align(64))]
struct Near([MaybeUninit<u8>; NEAR_BYTES as usize]);

/// Memory for one purpose. The address that a method returns is good until the next call of one, and as long as the
/// object is neither moved nor dropped.
pub(super) struct Scratch {
    near: Near,
    far: Option<(*mut u8, alloc::Layout)>,
}

impl Scratch {
    /// No memory yet.
    #[inline]
    pub(super) fn new() -> Self {
        Scratch {
            near: Near([MaybeUninit::uninit(); NEAR_BYTES as usize]),
            far: None,
        }
    }

    /// `bytes` bytes without content, aligned for any type.
    #[inline]
    pub(super) fn room(&mut self, bytes: u64) -> Result<*mut u8> {
        if bytes <= NEAR_BYTES {
            return Ok(self.near.0.as_mut_ptr().cast());
        }
        self.allocate(bytes)
    }

    /// The origin of `count` elements.
    #[inline]
    pub(super) fn elements<'a>(
        &mut self,
        layout: &'a Arc<Layout>,
        count: u64,
    ) -> Result<Vector<'a>> {
        if layout.is_contiguous() {
            return Ok(Vector::at(self.room(layout.size() * count)?, count, layout));
        }
        let (low, bytes) = layout
            .span(count)
            .map_err(crate::datatype::TypeError::from)?;
        let base = self.room(bytes as u64)?;
        Ok(Vector::at(
            base.wrapping_offset(low.wrapping_neg() as isize),
            count,
            layout,
        ))
    }

    #[cold]
    #[inline(never)]
    fn allocate(&mut self, bytes: u64) -> Result<*mut u8> {
        self.release();
        let refuse = || {
            Error::new(
                MPI_ERR_NO_MEM,
                format!("no memory for {bytes} bytes that the call needs meanwhile"),
            )
        };
        let size = usize::try_from(bytes).map_err(|_| refuse())?;
        let layout = alloc::Layout::from_size_align(size, ALIGN).map_err(|_| refuse())?;
        // SAFETY: the size is above 0.
        let at = unsafe { alloc::alloc(layout) };
        if at.is_null() {
            return Err(refuse());
        }
        self.far = Some((at, layout));
        Ok(at)
    }

    fn release(&mut self) {
        if let Some((at, layout)) = self.far.take() {
            // SAFETY: allocated with this layout by `allocate`, and not yet freed.
            unsafe { alloc::dealloc(at, layout) };
        }
    }
}

impl Drop for Scratch {
    #[inline]
    fn drop(&mut self) {
        if self.far.is_some() {
            self.release();
        }
    }
}
