//! Where a thread that has the bias of a lock says that it is inside.

use crate::sync::{AtomicU32, AtomicUsize, Ordering};
use crate::wait;

/// A word that one thread alone writes.
#[repr(C)]
pub(super) struct Seat {
    /// How deep `insider` is inside by its bias.
    pub(super) inside: AtomicU32,
    /// The only thread that may write `inside`: the last with this bias, until it has seen that its bias is gone, or
    /// ends. A thread that is stopped between the two looks of `Biased::try_enter` may write at any time later.
    pub(super) insider: AtomicUsize,
}

macro_rules! make {
    () => {
        Seat { inside: AtomicU32::new(0), insider: AtomicUsize::new(0) }
    };
}

impl Seat {
    /// Nobody's.
    #[cfg(not(feature = "loom"))]
    pub(super) const fn new() -> Self {
        make!()
    }

    /// As outside of the model, where it cannot be a constant.
    #[cfg(feature = "loom")]
    pub(super) fn new() -> Self {
        make!()
    }

    /// Goes so many levels in or out, by the bias.
    #[inline(always)] // as `Biased::favours`
    pub(super) fn step(&self, by: i32) {
        // ORDERING: inwards, after the store of `insider`, for the acquire in `Biased::seat_of`; outwards, what was
        // done inside is seen by whoever has revoked the bias, partner is the acquire in `Biased::drive_out`.
        let release = Ordering::Release;
        if cfg!(feature = "loom") {
            // The model takes the kernel's look at the word for a store, which it does not order with others of this
            // thread.
            self.inside.fetch_add(by as u32, release);
        } else {
            let depth = self.inside.load(Ordering::Relaxed);
            self.inside.store(depth.wrapping_add_signed(by), release);
        }
    }

    /// Wakes the thread that has revoked the bias; it looks whether it may go on.
    pub(super) fn wake_revoker(&self) {
        wait::futex_wake(&self.inside, 1);
    }
}
