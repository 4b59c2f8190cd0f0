//! Memory for the duration of one collective call: a few bytes next to its variables, or on the heap.
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

const ALIGN: usize = 64;

/// Memory on the stack.
#[repr(C, align(64))]
pub struct OnStack([MaybeUninit<u8>; 256]);

/// Memory in the state machine of an outstanding call.
#[repr(C, align(16))]
pub struct InState([MaybeUninit<u8>; 64]);

/// Memory beside the variables of an algorithm, aligned for any type.
pub trait NearMemory {
    /// Size in bytes.
    const BYTES: u64;
    /// Makes uninitialized memory.
    fn new() -> Self;
    /// Returns the address.
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

/// Memory that holds one piece of data at a time. The address that a method returns is valid until the next method
/// call, or until the object moves or drops.
pub(super) struct Scratch<'f, F: Fabric> {
    fabric: &'f F,
    near: F::Near,
    far: Option<(NonNull<u8>, alloc::Layout)>,
}

impl<'f, F: Fabric> Scratch<'f, F> {
    #[inline]
    pub(super) fn new(fabric: &'f F) -> Self {
        Scratch { fabric, near: F::Near::new(), far: None }
    }

    /// Returns `bytes` uninitialized bytes, aligned for any type.
    #[inline]
    pub(super) fn room(&mut self, bytes: u64) -> Result<*mut u8> {
        if bytes <= F::Near::BYTES {
            return Ok(self.near.at());
        }
        self.allocate(bytes)
    }

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
            // SAFETY: `allocate` has made the memory with this layout, and the memory was not released since.
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
