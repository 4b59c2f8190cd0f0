//! The one place atomics come from, so that the model checker can stand in for the processor.
//!
//! Built with the feature `loom` every name here is loom's; otherwise it is the core library's.

#[cfg(not(feature = "loom"))]
pub use core::{
    hint::spin_loop,
    sync::atomic::{
        AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64,
        AtomicUsize, Ordering, compiler_fence, fence,
    },
};

#[cfg(feature = "loom")]
pub use loom::{
    hint::spin_loop,
    sync::atomic::{
        AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64,
        AtomicUsize, Ordering, fence,
    },
};

/// For a static, or for memory that is a trace: loom's atomics cannot be made there. Not part of what loom explores.
pub use core::sync::atomic::{
    AtomicBool as StaticBool, AtomicPtr as StaticPtr, AtomicU32 as StaticU32,
    AtomicU64 as StaticU64, AtomicUsize as StaticUsize, Ordering as StaticOrdering,
};

/// Loom has no compiler fence: it explores the orders of a full one instead.
#[cfg(feature = "loom")]
pub use loom::sync::atomic::fence as compiler_fence;

/// Runs a model with every order of its threads' steps, up to so many switches from a thread that could go on, or as
/// many as `LOOM_MAX_PREEMPTIONS` says.
#[cfg(feature = "loom")]
pub fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    if builder.preemption_bound.is_none() {
        builder.preemption_bound = Some(preemptions);
    }
    builder.check(model);
}

/// Stands beside plain memory that is handed from thread to thread, so that the model checker finds
/// accesses that nothing orders. Otherwise it is nothing.
#[derive(Debug, Default)]
pub struct Watch(#[cfg(feature = "loom")] loom::cell::UnsafeCell<()>);

impl Watch {
    /// The memory is written.
    #[inline(always)] // as the plain access it stands for: see the bench of `am_short_known`
    pub fn note_write(&self) {
        #[cfg(feature = "loom")]
        self.0.with_mut(|_| ());
    }

    /// The memory is read.
    #[inline(always)] // as `note_write`, see the bench there
    pub fn note_read(&self) {
        #[cfg(feature = "loom")]
        self.0.with(|_| ());
    }
}

/// A value on a cache line of its own, so that writing it disturbs no neighbour.
///
/// 64 bytes is the line of every processor this library runs on; the adjacent-line prefetcher
/// makes 128 worth asking for between a producer's and a consumer's words, which callers that
/// care lay out themselves.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct CacheLine<T>(pub T);

impl<T> core::ops::Deref for CacheLine<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> core::ops::DerefMut for CacheLine<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn cache_line__holds_a_line() {
        assert_eq!(size_of::<CacheLine<u8>>(), 64);
        assert_eq!(align_of::<CacheLine<u64>>(), 64);
    }
}
