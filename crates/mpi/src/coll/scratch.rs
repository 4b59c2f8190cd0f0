//! Memory for the length of one collective call: a few lines beside its variables, or the heap.
#![allow(unsafe_code)]

use super::fabric::Fabric;
use super::vector::Vector;
use crate::common::consts::MPI_ERR_NO_MEM;
use crate::common::error::{Error, Result};
use fastpath_protocol::layout::Layout;
use std::alloc;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

/// Alignment of the memory in bytes.
const ALIGN: usize = 64;

/// Bytes that need no allocation, on the stack.
#[repr(C, align(64))]
pub struct OnStack([MaybeUninit<u8>; 256]);

/// A few bytes in the state of an outstanding call.
#[repr(C, align(16))]
pub struct InState([MaybeUninit<u8>; 64]);

/// Bytes that lie where the algorithm keeps its variables, aligned for any type.
pub trait NearMemory {
    /// How many bytes there are.
    const BYTES: u64;
    /// Bytes without content.
    fn new() -> Self;
    /// Their address.
    fn at(&mut self) -> *mut u8;
}

macro_rules! impl_near {
    ($($near:ident: $bytes:literal),*) => {$(
        impl NearMemory for $near {
            const BYTES: u64 = $bytes;

            #[inline]
            fn new() -> Self {
                $near([MaybeUninit::uninit(); $bytes])
            }

            #[inline]
            fn at(&mut self) -> *mut u8 {
                self.0.as_mut_ptr().cast()
            }
        }
    )*};
}

impl_near!(OnStack: 256, InState: 64);

/// Memory for one purpose. The address that a method returns is good until the next call of one, and as long as the
/// object is neither moved nor dropped.
pub(super) struct Scratch<'f, F: Fabric> {
    fabric: &'f F,
    near: F::Near,
    far: Option<(NonNull<u8>, alloc::Layout)>,
}

impl<'f, F: Fabric> Scratch<'f, F> {
    /// No memory yet.
    #[inline]
    pub(super) fn new(fabric: &'f F) -> Self {
        Scratch { fabric, near: F::Near::new(), far: None }
    }

    /// `bytes` bytes without content, aligned for any type.
    #[inline]
    pub(super) fn room(&mut self, bytes: u64) -> Result<*mut u8> {
        if bytes <= F::Near::BYTES {
            return Ok(self.near.at());
        }
        self.allocate(bytes)
    }

    /// The origin of `count` elements.
    #[inline]
    pub(super) fn elements<'a>(
        &mut self, layout: &'a Arc<Layout>, count: u64,
    ) -> Result<Vector<'a>> {
        if layout.is_contiguous() {
            return Ok(Vector::at(self.room(layout.size() * count)?, count, layout));
        }
        let (low, bytes) = layout.span(count).map_err(crate::objects::datatype::TypeError::from)?;
        let base = self.room(bytes as u64)?;
        Ok(Vector::at(base.wrapping_offset(low.wrapping_neg() as isize), count, layout))
    }

    #[cold]
    #[inline(never)]
    fn allocate(&mut self, bytes: u64) -> Result<*mut u8> {
        self.release();
        let refuse = || {
            Error::new(
                MPI_ERR_NO_MEM,
                format!("out of memory: the call needs {bytes} bytes of temporary space"),
            )
        };
        let size = usize::try_from(bytes).map_err(|_| refuse())?;
        let layout = alloc::Layout::from_size_align(size, ALIGN).map_err(|_| refuse())?;
        // SAFETY: the size is above 0.
        let at = NonNull::new(unsafe { self.fabric.allocate(layout) }).ok_or_else(refuse)?;
        self.far = Some((at, layout));
        Ok(at.as_ptr())
    }

    fn release(&mut self) {
        if let Some((at, layout)) = self.far.take() {
            // SAFETY: allocated with this layout by `allocate`, and not yet released.
            unsafe { self.fabric.release(at, layout) };
        }
    }
}

impl<F: Fabric> Drop for Scratch<'_, F> {
    #[inline]
    fn drop(&mut self) {
        if self.far.is_some() {
            self.release();
        }
    }
}
