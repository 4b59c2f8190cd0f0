//! The process's one lock at `MPI_THREAD_MULTIPLE`; below that level it does nothing.
//!
//! Recursive, because a user's callback (an operation, an attribute copy, an error handler) may call
//! MPI again. A thread that waits for a message gives it up between two looks ([`Lock::breathe`]).
#![allow(unsafe_code)]

use fastpath_base::sync::{AtomicU8, AtomicU32, AtomicUsize, Ordering};
use fastpath_base::wait;
use std::cell::UnsafeCell;

/// Threads need the lock.
const LOCKS: u8 = 1;
/// Calls are recorded (`fastpath_base::trace`).
const RECORDS: u8 = 2;

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// A recursive lock that can be switched on once, before threads exist.
pub struct Lock {
    /// What the way into a call has to do, so that one comparison says that it is nothing.
    gate: AtomicU8,
    word: AtomicU32,
    owner: AtomicUsize,
    depth: UnsafeCell<u32>,
}

// SAFETY: `depth` is touched by the holder of `word` alone.
unsafe impl Sync for Lock {}

impl Default for Lock {
    fn default() -> Self {
        Self::new()
    }
}

/// A number that differs between living threads and is never 0.
#[inline]
pub fn thread_token() -> usize {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::pthread_self() as usize }
}

impl Lock {
    /// A lock that does nothing until [`Lock::enable`].
    pub const fn new() -> Self {
        Lock {
            gate: AtomicU8::new(0),
            word: AtomicU32::new(FREE),
            owner: AtomicUsize::new(0),
            depth: UnsafeCell::new(0),
        }
    }

    /// Makes the lock real. Called while the process has one thread in MPI.
    pub fn enable(&self) {
        self.gate.fetch_or(LOCKS, Ordering::Relaxed);
    }

    /// Whether the lock is real, that is, the level is `MPI_THREAD_MULTIPLE`.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        self.gate.load(Ordering::Relaxed) & LOCKS != 0
    }

    /// Has calls recorded.
    pub fn record_calls(&self) {
        self.gate.fetch_or(RECORDS, Ordering::Relaxed);
    }

    /// Whether there is neither a lock to take nor a call to record.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.gate.load(Ordering::Relaxed) == 0
    }

    /// Takes the lock; nests.
    pub fn acquire(&self) {
        if !self.is_enabled() {
            return;
        }
        let me = thread_token();
        if self.owner.load(Ordering::Relaxed) != me {
            self.acquire_word();
            self.owner.store(me, Ordering::Relaxed);
        }
        // SAFETY: this thread holds the word.
        unsafe { *self.depth.get() += 1 };
    }

    /// Gives up one level of nesting.
    pub fn release(&self) {
        if !self.is_enabled() {
            return;
        }
        if self.owner.load(Ordering::Relaxed) != thread_token() {
            return; // the lock was switched on between acquire and release
        }
        // SAFETY: this thread holds the word.
        let depth = unsafe { &mut *self.depth.get() };
        *depth -= 1;
        if *depth == 0 {
            self.owner.store(0, Ordering::Relaxed);
            self.release_word();
        }
    }

    /// Lets other threads in for a moment, at every nesting level, while `pause` runs.
    pub fn breathe<R>(&self, pause: impl FnOnce() -> R) -> R {
        if !self.is_enabled() || self.owner.load(Ordering::Relaxed) != thread_token() {
            return pause();
        }
        // SAFETY: this thread holds the word.
        let depth = unsafe { std::mem::replace(&mut *self.depth.get(), 0) };
        self.owner.store(0, Ordering::Relaxed);
        self.release_word();
        let result = pause();
        self.acquire_word();
        self.owner.store(thread_token(), Ordering::Relaxed);
        // SAFETY: this thread holds the word again.
        unsafe { *self.depth.get() = depth };
        result
    }

    /// Whether another thread sleeps on the lock.
    pub fn is_contended(&self) -> bool {
        self.word.load(Ordering::Relaxed) == CONTENDED
    }

    fn acquire_word(&self) {
        // ORDERING: acquire pairs with the release in `release_word`.
        if self
            .word
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
        {
            return;
        }
        // ORDERING: acquire pairs with the release in `release_word`.
        while self.word.swap(CONTENDED, Ordering::Acquire) != FREE {
            wait::futex_wait(&self.word, CONTENDED, None);
        }
    }

    fn release_word(&self) {
        // ORDERING: release pairs with the acquires in `acquire_word`.
        if self.word.swap(FREE, Ordering::Release) == CONTENDED {
            wait::futex_wake(&self.word, 1);
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn lock__excludes_and_nests() {
        struct Shared(Lock, UnsafeCell<u64>);
        // SAFETY: the counter is touched under the lock alone.
        unsafe impl Sync for Shared {}
        // SAFETY: as above.
        unsafe impl Send for Shared {}
        let shared = Arc::new(Shared(Lock::new(), UnsafeCell::new(0)));
        shared.0.enable();
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let shared = shared.clone();
                std::thread::spawn(move || {
                    for _ in 0..10_000 {
                        shared.0.acquire();
                        shared.0.acquire();
                        // SAFETY: under the lock.
                        unsafe { *shared.1.get() += 1 };
                        shared.0.breathe(|| ());
                        shared.0.release();
                        shared.0.release();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        // SAFETY: all threads have ended.
        assert_eq!(unsafe { *shared.1.get() }, 40_000);
    }
}
