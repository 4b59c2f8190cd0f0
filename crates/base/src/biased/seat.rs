//! The word by which a biased thread shows that it is inside.

use crate::sync::{AtomicU32, AtomicUsize, Ordering};
use crate::wait;

#[repr(C)]
pub(super) struct Seat {
    /// Nesting depth of the entries that `insider` made by its bias.
    pub(super) inside: AtomicU32,
    /// Only thread that may write `inside`: the last thread that got the bias with this seat. It stays the only writer
    /// until it has seen that its bias is gone, or ends. A thread that is stopped between the two checks of
    /// `Biased::try_enter` may write at any later time.
    pub(super) insider: AtomicUsize,
}

macro_rules! make {
    () => {
        Seat { inside: AtomicU32::new(0), insider: AtomicUsize::new(0) }
    };
}

impl Seat {
    #[cfg(not(feature = "loom"))]
    pub(super) const fn new() -> Self {
        make!()
    }

    /// Creates a free seat. Not a constant, because the model's atomics are not.
    #[cfg(feature = "loom")]
    pub(super) fn new() -> Self {
        make!()
    }

    #[inline(always)] // see `Biased::favours`
    pub(super) fn step(&self, by: i32) {
        // ORDERING: release. At an entry it publishes the earlier store of `insider`; partner is the acquire in
        // `Biased::seat_of`. At an exit it publishes what was done inside; partner is the acquire in
        // `Biased::drive_out`.
        let release = Ordering::Release;
        if cfg!(feature = "loom") {
            // The model's futex reads the word by a read-modify-write, which a plain store would not be ordered with.
            self.inside.fetch_add(by as u32, release);
        } else {
            let depth = self.inside.load(Ordering::Relaxed);
            self.inside.store(depth.wrapping_add_signed(by), release);
        }
    }

    pub(super) fn wake_revoker(&self) {
        wait::futex_wake(&self.inside, 1);
    }
}
