//! Memory for the state of outstanding calls. It is kept when a call has ended, since another one follows: an allocator
//! for all sizes takes longer for some of these than the call.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::pin::Pin;
use std::ptr::NonNull;

/// Bytes by which the sizes of blocks differ.
const STEP: usize = 256;
/// Sizes that are kept.
const SIZES: usize = 8;
/// Blocks of a size that are kept.
const KEPT: usize = 64;
/// Alignment of a block in bytes.
const ALIGN: usize = 64;

/// Blocks that are not in use.
#[derive(Default)]
pub(crate) struct Spare([Cell<Vec<NonNull<u8>>>; SIZES]);

impl Spare {
    /// None.
    pub(crate) const fn new() -> Self {
        Spare([const { Cell::new(Vec::new()) }; SIZES])
    }

    fn list(&self, layout: Layout) -> Option<&Cell<Vec<NonNull<u8>>>> {
        self.0.get(layout.size() / STEP - 1)
    }

    fn take(&self, layout: Layout) -> NonNull<u8> {
        if let Some(list) = self.list(layout) {
            let mut blocks = list.take();
            let block = blocks.pop();
            list.set(blocks);
            if let Some(at) = block {
                return at;
            }
        }
        // SAFETY: a step at least.
        NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
    }

    fn give(&self, at: NonNull<u8>, layout: Layout) {
        let Some(list) = self.list(layout) else {
            // SAFETY: from `take`, with this layout.
            return unsafe { dealloc(at.as_ptr(), layout) };
        };
        let mut blocks = list.take();
        match blocks.len() < KEPT {
            true => blocks.push(at),
            // SAFETY: from `take`, with this layout.
            false => unsafe { dealloc(at.as_ptr(), layout) },
        }
        list.set(blocks);
    }
}

/// A place for a state machine, which never moves.
pub(crate) struct Block<F> {
    at: NonNull<F>,
    is_full: bool,
    spare: &'static Spare,
}

impl<F> Block<F> {
    const LAYOUT: Layout = {
        assert!(align_of::<F>() <= ALIGN);
        let bytes = size_of::<F>().div_ceil(STEP) * STEP;
        match Layout::from_size_align(if bytes == 0 { STEP } else { bytes }, ALIGN) {
            Ok(layout) => layout,
            Err(_) => panic!("too large"),
        }
    };

    /// An empty one.
    pub(crate) fn new(spare: &'static Spare) -> Self {
        Block { at: spare.take(Self::LAYOUT).cast(), is_full: false, spare }
    }

    /// Makes one there.
    #[inline]
    pub(crate) fn fill(&mut self, make: impl FnOnce() -> F) {
        self.clear();
        // SAFETY: the block has room for it, and holds none.
        unsafe { self.at.write(make()) };
        self.is_full = true;
    }

    /// What is there.
    #[inline]
    pub(crate) fn get(&mut self) -> Option<Pin<&mut F>> {
        // SAFETY: `fill` has made it, and it stays there until `clear` drops it.
        self.is_full.then(|| unsafe { Pin::new_unchecked(self.at.as_mut()) })
    }

    /// Whether there is one.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Drops what is there.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_full) {
            // SAFETY: `fill` has made it.
            unsafe { self.at.drop_in_place() };
        }
    }
}

impl<F> Drop for Block<F> {
    fn drop(&mut self) {
        self.clear();
        self.spare.give(self.at.cast(), Self::LAYOUT);
    }
}
