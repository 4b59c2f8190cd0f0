//! Atomics of the project: the core library's, or loom's with the feature `loom`.

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

/// Atomics for statics and trace memory, where loom's atomics cannot be constructed. Loom does not explore the orders
/// of these atomics.
pub use core::sync::atomic::{
    AtomicBool as StaticBool, AtomicPtr as StaticPtr, AtomicU32 as StaticU32,
    AtomicU64 as StaticU64, AtomicUsize as StaticUsize, Ordering as StaticOrdering,
};

/// Loom has no compiler fence, so it explores the orders of a full fence instead.
#[cfg(feature = "loom")]
pub use loom::sync::atomic::fence as compiler_fence;

/// Runs a model with every order of its threads' steps. Preemptions, switches from a thread that could continue, are
/// limited to `preemptions`, or to the number in `LOOM_MAX_PREEMPTIONS`.
#[cfg(feature = "loom")]
pub fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    if builder.preemption_bound.is_none() {
        builder.preemption_bound = Some(preemptions);
    }
    builder.check(model);
}

/// Marker by which the model checker finds unordered accesses to plain memory. Empty outside the model.
#[derive(Debug, Default)]
pub struct RaceCheck(#[cfg(feature = "loom")] loom::cell::UnsafeCell<()>);

impl RaceCheck {
    /// Notes a write of the memory.
    #[inline(always)] // see the benchmark of `am_short_known`
    pub fn note_write(&self) {
        #[cfg(feature = "loom")]
        self.0.with_mut(|_| ());
    }

    /// Notes a read of the memory.
    #[inline(always)] // see the benchmark of `note_write`
    pub fn note_read(&self) {
        #[cfg(feature = "loom")]
        self.0.with(|_| ());
    }
}

/// A value on its own cache line, so that writes to it disturb no neighbour.
///
/// A line is 64 bytes on every supported processor. The adjacent-line prefetcher makes 128 bytes between the words of a
/// producer and a consumer useful. Code that needs this distance lays the words out itself.
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
