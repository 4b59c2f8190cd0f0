//! The word of a lock. It is the ordinary lock that the bias bypasses, and the whole lock if no thread gets a bias.

use super::{Biased, NO_THREAD, count};
use crate::race_detector;
use crate::sync::Ordering;
use crate::wait;

pub(super) const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, with at least one sleeper.
pub(super) const CONTENDED: u32 = 2;
/// Reserved for one of the sleepers.
const HANDED: u32 = 3;

/// Maximum number of times that a sleeper is woken and finds the lock taken again. The next release hands it the lock.
pub const PASSES: u32 = if cfg!(feature = "loom") { 1 } else { 8 };
/// Number of yields before a thread sleeps for the lock.
pub(super) const YIELDS: u32 = if cfg!(feature = "loom") { 0 } else { 8 };

impl Biased {
    /// Enters by the word if no thread gets a bias. Returns false if any thread is inside, including this one.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Send_unbiased
    pub(super) fn enter_by_word(&self, me: usize) -> bool {
        let entered = self.try_take_word();
        if entered {
            // Store the owner, because calls made inside may nest.
            self.owner.store(me, Ordering::Relaxed);
            self.depth.store(1, Ordering::Relaxed);
        }
        entered
    }

    /// Leaves the word. Returns false if a thread sleeps for it. The caller must then call [`Biased::release_word`].
    #[inline(always)] // see `enter_by_word`
    pub(super) fn leave_by_word(&self) -> bool {
        self.owner.store(NO_THREAD, Ordering::Relaxed);
        // ORDERING: release pairs with the acquires in `try_take_word` and `sleep_for_word`.
        self.word.compare_exchange(HELD, FREE, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn try_take_word(&self) -> bool {
        // ORDERING: acquire pairs with the releases in `release_word` and `leave_by_word`.
        self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes the word, waiting for it. [`Biased::enter_by_word`] tells a race detector nothing: with one, no call takes
    /// the immediate path.
    pub(super) fn take_word(&self) {
        if !self.try_take_word() {
            self.wait_for_word();
        }
        race_detector::note_acquire(&self.word);
    }

    fn wait_for_word(&self) {
        self.wanted.fetch_add(1, Ordering::Relaxed);
        let yielded = (0..YIELDS).any(|_| {
            wait::yield_now();
            self.try_take_word()
        });
        if !yielded {
            self.sleep_for_word();
            self.passed.store(0, Ordering::Relaxed);
        }
        self.wanted.fetch_sub(1, Ordering::Relaxed);
        count(&self.contended);
    }

    fn sleep_for_word(&self) {
        let mut slept = false;
        loop {
            if !slept && self.word.load(Ordering::Relaxed) == HANDED {
                wait::futex_wait(&self.word, HANDED, None);
            } else {
                // ORDERING: acquire pairs with the releases in `release_word` and `leave_by_word`.
                let found = self.word.swap(CONTENDED, Ordering::Acquire);
                if found == FREE || found == HANDED {
                    return;
                }
                wait::futex_wait(&self.word, CONTENDED, None);
            }
            slept = true;
        }
    }

    pub(super) fn release_word(&self) {
        race_detector::note_release(&self.word);
        if self.word.load(Ordering::Relaxed) == CONTENDED {
            let passed = self.passed.load(Ordering::Relaxed) + 1;
            self.passed.store(passed, Ordering::Relaxed);
            if passed > PASSES {
                // A thread still sleeps: if this holder had slept and set `CONTENDED` itself, `passed` would be 0.
                // ORDERING: release pairs with the acquire in `sleep_for_word`. A swap, because the model does not
                // order a plain store with the futex's read of the word.
                self.word.swap(HANDED, Ordering::Release);
                wait::futex_wake(&self.word, 1);
                return;
            }
        }
        // ORDERING: release pairs with the acquires in `try_take_word` and `sleep_for_word`.
        if self.word.swap(FREE, Ordering::Release) == CONTENDED {
            wait::futex_wake(&self.word, 1);
        }
    }
}
