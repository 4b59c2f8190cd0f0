//! Memory for the state of outstanding calls. Blocks are reused, because for some sizes a general allocator takes
//! longer than the call itself.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::pin::Pin;
use std::ptr::NonNull;

/// Granularity of block sizes, in bytes.
const STEP: usize = 256;
/// Number of block sizes for which free blocks are kept.
const SIZES: usize = 16;
/// Maximum number of free blocks that are kept of each size.
const KEPT: usize = 64;
const ALIGN: usize = 64;

#[derive(Default)]
pub(crate) struct Spare([Cell<Vec<NonNull<u8>>>; SIZES]);

impl Spare {
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
        // SAFETY: the layout has at least `STEP` bytes.
        NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
    }

    /// Frees all spare blocks of an exiting process.
    pub(crate) fn drop_all(&self) {
        for (size, list) in (1..).zip(&self.0) {
            for at in list.take() {
                if let Ok(layout) = Layout::from_size_align(size * STEP, ALIGN) {
                    // SAFETY: `give` has stored the block in the list of its layout.
                    unsafe { dealloc(at.as_ptr(), layout) };
                }
            }
        }
    }

    fn give(&self, at: NonNull<u8>, layout: Layout) {
        let Some(list) = self.list(layout) else {
            // SAFETY: the block comes from `take`, with this layout.
            return unsafe { dealloc(at.as_ptr(), layout) };
        };
        let mut blocks = list.take();
        match blocks.len() < KEPT {
            true => blocks.push(at),
            // SAFETY: the block comes from `take`, with this layout.
            false => unsafe { dealloc(at.as_ptr(), layout) },
        }
        list.set(blocks);
    }
}

/// Memory for one state machine. The state machine never moves.
pub(crate) struct FutureBlock<F> {
    at: NonNull<F>,
    is_full: bool,
    spare: &'static Spare,
}

impl<F> FutureBlock<F> {
    const LAYOUT: Layout = {
        assert!(align_of::<F>() <= ALIGN);
        let bytes = size_of::<F>().div_ceil(STEP) * STEP;
        match Layout::from_size_align(if bytes == 0 { STEP } else { bytes }, ALIGN) {
            Ok(layout) => layout,
            Err(_) => panic!("too large"),
        }
    };

    pub(crate) fn new(spare: &'static Spare) -> Self {
        FutureBlock { at: spare.take(Self::LAYOUT).cast(), is_full: false, spare }
    }

    #[inline]
    pub(crate) fn fill(&mut self, make: impl FnOnce() -> F) {
        self.clear();
        // SAFETY: the block has the size and alignment of an `F`, and `clear` has emptied it.
        unsafe { self.at.write(make()) };
        self.is_full = true;
    }

    #[inline]
    pub(crate) fn get(&mut self) -> Option<Pin<&mut F>> {
        // SAFETY: `fill` has made the state machine, which stays in the block until `clear` drops it.
        self.is_full.then(|| unsafe { Pin::new_unchecked(self.at.as_mut()) })
    }

    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_full) {
            // SAFETY: `is_full` was set by `fill`, which made the state machine.
            unsafe { self.at.drop_in_place() };
        }
    }
}

impl<F> Drop for FutureBlock<F> {
    fn drop(&mut self) {
        self.clear();
        self.spare.give(self.at.cast(), Self::LAYOUT);
    }
}
