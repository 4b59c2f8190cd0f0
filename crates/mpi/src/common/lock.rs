//! Process-wide lock of MPI. It is enabled at `MPI_THREAD_MULTIPLE` or with a progress thread, and otherwise does
//! nothing.
//!
//! The lock is recursive, because a user's callback (operation, attribute copy, error handler) may call MPI. It is
//! biased to the thread that makes the calls (`fastpath_base::biased`). A thread that waits for a message releases it
//! ([`Lock::release_lock`]) if another thread requests it, and before it sleeps.
#![allow(unsafe_code)]

use fastpath_base::biased::Biased;
pub use fastpath_base::biased::{BY_WORD, FIRST_SEAT, SECOND_SEAT};
use fastpath_base::sync::{AtomicU8, Ordering};

/// Bit of [`Lock::gate`]: calls take the lock.
const LOCKS: u8 = 1;
/// Bit of [`Lock::gate`]: calls are recorded (`fastpath_base::trace`).
const RECORDS: u8 = 2;
/// Bit of [`Lock::gate`]: calls are checked against the thread level (`check/threads.rs`).
const WATCHES: u8 = 4;

/// Recursive lock that can be enabled once, before threads exist.
pub struct Lock {
    /// Reasons for work at the entry of a call, one bit each. A single comparison with 0 shows that there is no work.
    gate: AtomicU8,
    biased: Biased,
}

impl Default for Lock {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns a token of the calling thread: never 0, and different for all living threads. On x86-64 this is one
/// instruction. A new thread may get the token of an ended one, whose bias [`AtExit`] has removed.
#[inline(always)] // `fastpath bench instructions` counts MPI_Send at MPI_THREAD_MULTIPLE
pub fn thread_token() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let token: usize;
        // SAFETY: the thread control block begins with its own address (System V ABI, ELF thread-local storage).
        unsafe {
            core::arch::asm!("mov {}, fs:0", out(reg) token, options(nostack, preserves_flags,
                pure, readonly));
        }
        token
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: `pthread_self` has no arguments and cannot fail.
    unsafe {
        libc::pthread_self() as usize
    }
}

/// Thread-local guard that removes the bias of a thread when it ends.
struct AtExit;

impl Drop for AtExit {
    fn drop(&mut self) {
        LOCK.biased.forget(thread_token());
    }
}

thread_local!(static AT_EXIT: AtExit = const { AtExit });

/// Registers the calling thread for [`AtExit`]. Returns false if the thread is already ending.
fn may_bias() -> bool {
    AT_EXIT.try_with(|_| ()).is_ok()
}

impl Lock {
    /// Makes a lock that does nothing before [`Lock::enable`].
    pub const fn new() -> Self {
        Lock { gate: AtomicU8::new(0), biased: Biased::new(may_bias) }
    }

    /// Enables the lock, biased to the calling thread. Only one thread may be in MPI at that time.
    pub fn enable(&self) {
        self.gate.fetch_or(LOCKS, Ordering::Relaxed);
        self.biased.favour(thread_token());
    }

    /// Returns whether the lock is enabled: the level is `MPI_THREAD_MULTIPLE`, or there is a progress thread.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        self.gate.load(Ordering::Relaxed) & LOCKS != 0
    }

    /// Disables the lock in a forked child, whose only thread cannot wait for threads of the parent.
    pub(crate) fn abandon(&self) {
        self.gate.store(0, Ordering::Relaxed);
    }

    /// Enables the recording of calls.
    pub fn record_calls(&self) {
        self.gate.fetch_or(RECORDS, Ordering::Relaxed);
    }

    /// Returns whether calls are recorded.
    #[inline]
    pub fn records(&self) -> bool {
        self.gate.load(Ordering::Relaxed) & RECORDS != 0
    }

    /// Enables the detection of calls that the thread level forbids.
    pub fn watch_threads(&self) {
        self.gate.fetch_or(WATCHES, Ordering::Relaxed);
    }

    /// Returns whether forbidden calls are detected.
    #[inline]
    pub fn watches(&self) -> bool {
        self.gate.load(Ordering::Relaxed) & WATCHES != 0
    }

    /// Returns whether a call needs neither the lock nor recording nor checks.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.gate.load(Ordering::Relaxed) == 0
    }

    /// Takes the lock. A thread may take it several times, and must release it as often.
    pub fn acquire(&self) {
        if self.is_enabled() {
            self.biased.acquire(thread_token());
        }
    }

    /// Releases one level of nesting. Does nothing if the lock was enabled after [`Lock::acquire`].
    pub fn release(&self) {
        if self.is_enabled() {
            self.biased.release(thread_token());
        }
    }

    /// Releases all nesting levels of the lock while `pause` runs, and takes them again afterwards.
    pub fn release_lock<R>(&self, pause: impl FnOnce() -> R) -> R {
        match self.is_enabled() {
            true => self.biased.release_lock(thread_token(), pause),
            false => pause(),
        }
    }

    /// Runs `serve` under the lock on a progress thread, then returns the bias to a thread of the program. The lock
    /// must be enabled, and the calling thread must not hold it.
    pub fn borrow<R>(&self, serve: impl FnOnce() -> R) -> R {
        self.biased.borrow(thread_token());
        let result = serve();
        self.biased.give_back();
        result
    }

    /// Returns whether another thread waits for the lock.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.biased.is_wanted()
    }

    /// Returns how often the bias was revoked, and how often a thread found the lock taken by another.
    pub fn counts(&self) -> (u32, u32) {
        self.biased.counts()
    }
}

static LOCK: Lock = Lock::new();

/// Returns the process-wide lock of MPI.
#[inline(always)] // `fastpath bench instructions` counts MPI_Send at MPI_THREAD_MULTIPLE
pub(crate) fn get() -> &'static Lock {
    &LOCK
}

/// Returns whether the process's lock is enabled ([`Lock::is_enabled`]).
pub fn is_enabled() -> bool {
    LOCK.is_enabled()
}

/// Returns whether the calling thread has the bias with seat `SEAT` (`fastpath_base::biased`).
#[inline(always)] // `fastpath bench instructions` counts MPI_Send at MPI_THREAD_MULTIPLE
pub fn favours<const SEAT: u8>() -> bool {
    LOCK.biased.favours::<SEAT>(thread_token())
}

/// Returns the seat by which the bias was last taken, or [`BY_WORD`]. The value is below 3.
#[inline(always)] // `fastpath bench instructions` counts MPI_Send at MPI_THREAD_MULTIPLE
pub fn last_seat() -> usize {
    LOCK.biased.last_seat()
}

/// Enters by the bias, with a seat `SEAT` that the calling thread had, or by the lock word if `SEAT` is [`BY_WORD`]. If
/// this returns true, the caller must later call [`leave`]; if false, [`back_out`] at once.
#[inline(always)] // `fastpath bench instructions` counts MPI_Send at MPI_THREAD_MULTIPLE
#[must_use]
pub fn step_in<const SEAT: u8>() -> bool {
    LOCK.biased.step_in::<SEAT>(thread_token())
}

/// Undoes a [`step_in`] that has returned false.
#[cold]
#[inline(never)]
pub fn back_out<const SEAT: u8>() {
    LOCK.biased.back_out::<SEAT>();
}

/// Leaves after [`step_in`]. Returns whether the caller must call [`wake`].
#[inline(always)] // `fastpath bench instructions` counts MPI_Send at MPI_THREAD_MULTIPLE
#[must_use]
pub fn leave<const SEAT: u8>() -> bool {
    LOCK.biased.leave::<SEAT>(thread_token())
}

/// Wakes the thread that has revoked the bias, or one that sleeps on the lock word.
#[cold]
#[inline(never)]
pub fn wake<const SEAT: u8>() {
    LOCK.biased.wake_others::<SEAT>();
}

/// Leaves after [`step_in`], and wakes other threads if needed. For callers that need no tail call.
#[inline]
pub fn leave_surely<const SEAT: u8>() {
    if leave::<SEAT>() {
        wake::<SEAT>();
    }
}

/// Runs `short` under the lock. Returns false, without running it, if the lock is not enabled.
#[inline]
pub fn with_lock(short: impl FnOnce() -> bool) -> bool {
    if !LOCK.is_enabled() {
        return false;
    }
    LOCK.acquire();
    let done = short();
    LOCK.release();
    done
}
