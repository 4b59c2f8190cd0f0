//! The lock of the process's first worker and of all else in MPI, at `MPI_THREAD_MULTIPLE` or with a progress thread;
//! otherwise it does nothing.
//!
//! Recursive, because a user's callback (an operation, an attribute copy, an error handler) may call MPI again. It is
//! biased to the thread that makes the calls (`fastpath_base::biased`). A thread that waits for a message gives it up
//! ([`Lock::release_lock`]) where another one wants it, and before it sleeps. Further workers have locks of their own
//! ([`crate::common::places`]).
#![allow(unsafe_code)]

use fastpath_base::biased::Biased;
pub use fastpath_base::biased::{BY_WORD, FIRST_SEAT, SECOND_SEAT};
use fastpath_base::sync::{AtomicU8, Ordering};

/// Threads need the lock.
const LOCKS: u8 = 1;
/// Calls are recorded (`fastpath_base::trace`).
const RECORDS: u8 = 2;
/// Calls that the level forbids are looked for (`check/threads.rs`).
const WATCHES: u8 = 4;

/// A recursive lock that can be switched on once, before threads exist.
pub struct Lock {
    /// What the way into a call has to do, so that one comparison says that it is nothing.
    gate: AtomicU8,
    biased: Biased,
}

impl Default for Lock {
    fn default() -> Self {
        Self::new()
    }
}

/// A number that differs between living threads and is never 0; one instruction where the processor has one for it. A
/// thread that begins may get the number of one that has ended: [`AtExit`] takes the bias from that one.
#[inline(always)] // `fastpath bench instructions` counts MPI_Send at MPI_THREAD_MULTIPLE
pub fn thread_token() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let token: usize;
        // SAFETY: the thread control block begins with its own address (System V ABI, ELF handling for thread-local
        // storage), in whatever library this is.
        unsafe {
            core::arch::asm!("mov {}, fs:0", out(reg) token, options(nostack, preserves_flags,
                pure, readonly));
        }
        token
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: no arguments, cannot fail.
    unsafe {
        libc::pthread_self() as usize
    }
}

/// Takes the bias from a thread that ends.
struct AtExit;

impl Drop for AtExit {
    fn drop(&mut self) {
        LOCK.biased.forget(thread_token());
    }
}

thread_local!(static AT_EXIT: AtExit = const { AtExit });

/// Sees to it that the calling thread gives up the bias when it ends; false where it is ending already.
fn may_bias() -> bool {
    AT_EXIT.try_with(|_| ()).is_ok()
}

impl Lock {
    /// A lock that does nothing until [`Lock::enable`].
    pub const fn new() -> Self {
        Lock { gate: AtomicU8::new(0), biased: Biased::new(may_bias) }
    }

    /// Makes the lock real, biased to the calling thread. Called while the process has one thread in MPI.
    pub fn enable(&self) {
        self.gate.fetch_or(LOCKS, Ordering::Relaxed);
        self.biased.favour(thread_token());
    }

    /// Whether the lock is real: the level is `MPI_THREAD_MULTIPLE`, or there is a progress thread.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        self.gate.load(Ordering::Relaxed) & LOCKS != 0
    }

    /// Switches the lock off in a forked child, whose only thread cannot wait for a thread of the parent.
    pub(crate) fn abandon(&self) {
        self.gate.store(0, Ordering::Relaxed);
    }

    /// Has calls recorded.
    pub fn record_calls(&self) {
        self.gate.fetch_or(RECORDS, Ordering::Relaxed);
    }

    /// Whether calls are recorded.
    #[inline]
    pub fn records(&self) -> bool {
        self.gate.load(Ordering::Relaxed) & RECORDS != 0
    }

    /// Has calls looked for that the level forbids.
    pub fn watch_threads(&self) {
        self.gate.fetch_or(WATCHES, Ordering::Relaxed);
    }

    /// Whether they are looked for.
    #[inline]
    pub fn watches(&self) -> bool {
        self.gate.load(Ordering::Relaxed) & WATCHES != 0
    }

    /// Whether there is neither a lock to take nor a call to record or to look at.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.gate.load(Ordering::Relaxed) == 0
    }

    /// Takes the lock; nests.
    pub fn acquire(&self) {
        if self.is_enabled() {
            self.biased.acquire(thread_token());
        }
    }

    /// Gives up one level of nesting; nothing where the lock was switched on since it was taken.
    pub fn release(&self) {
        if self.is_enabled() {
            self.biased.release(thread_token());
        }
    }

    /// Lets other threads in for a moment, at every nesting level, while `pause` runs.
    pub fn release_lock<R>(&self, pause: impl FnOnce() -> R) -> R {
        match self.is_enabled() {
            true => self.biased.release_lock(thread_token(), pause),
            false => pause(),
        }
    }

    /// Runs `serve` inside, on a thread that serves the program's own: one of these has the bias again afterwards. The
    /// lock is real, and the calling thread does not hold it.
    pub fn borrow<R>(&self, serve: impl FnOnce() -> R) -> R {
        self.biased.borrow(thread_token());
        let result = serve();
        self.biased.give_back();
        result
    }

    /// Whether another thread tries to get in.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.biased.is_wanted()
    }

    /// The lock itself, for code that treats it like the locks of further workers.
    pub(crate) fn biased(&self) -> &Biased {
        &self.biased
    }

    /// How often the bias was revoked, and how often a thread found the lock taken by another.
    pub fn counts(&self) -> (u32, u32) {
        self.biased.counts()
    }
}

static LOCK: Lock = Lock::new();

/// The lock of the first worker and of all else in MPI.
#[inline(always)] // `fastpath bench instructions` counts MPI_Send at MPI_THREAD_MULTIPLE
pub(crate) fn first() -> &'static Lock {
    &LOCK
}

/// Whether the process's lock is real ([`Lock::is_enabled`]).
pub fn is_enabled() -> bool {
    LOCK.is_enabled()
}

/// Whether the bias is the calling thread's, with that seat.
#[inline(always)] // `fastpath bench instructions` counts MPI_Send at MPI_THREAD_MULTIPLE
pub fn favours<const SEAT: u8>() -> bool {
    LOCK.biased.favours::<SEAT>(thread_token())
}

/// The seat that the bias was given with last, or [`BY_WORD`]: below 3.
#[inline(always)] // `fastpath bench instructions` counts MPI_Send at MPI_THREAD_MULTIPLE
pub fn last_seat() -> usize {
    LOCK.biased.last_seat()
}

/// Enters by the bias, which was the calling thread's, with that seat, or by the word. Left by [`leave`]. If it returns
/// false, [`back_out`] is due.
#[inline(always)] // as `favours`
#[must_use]
pub fn step_in<const SEAT: u8>() -> bool {
    LOCK.biased.step_in::<SEAT>(thread_token())
}

/// Takes back an unsuccessful [`step_in`].
#[cold]
#[inline(never)]
pub fn back_out<const SEAT: u8>() {
    LOCK.biased.back_out::<SEAT>();
}

/// Leaves what [`step_in`] has entered; returns whether [`wake`] is due.
#[inline(always)] // `fastpath bench instructions` counts MPI_Send at MPI_THREAD_MULTIPLE
#[must_use]
pub fn leave<const SEAT: u8>() -> bool {
    LOCK.biased.leave::<SEAT>(thread_token())
}

/// Wakes the thread that has revoked the bias, or one that sleeps for the word.
#[cold]
#[inline(never)]
pub fn wake<const SEAT: u8>() {
    LOCK.biased.wake_others::<SEAT>();
}

/// Leaves what [`step_in`] has entered, where no call has to be a jump.
#[inline]
pub fn leave_surely<const SEAT: u8>() {
    if leave::<SEAT>() {
        wake::<SEAT>();
    }
}

/// Does `short` with the lock taken; false without having done it where threads need no lock.
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
