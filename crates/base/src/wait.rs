#![allow(unsafe_code)]
//! Ways to wait for another process: futexes on shared words, yielding, and the fence that a sleeper issues on behalf
//! of all other processes.
//!
//! The protocol between a rank that is about to sleep and its peers is Dekker's, with the expensive half at the
//! sleeper:
//!
//! ```text
//! sleeper                         sender
//! state = SLEEPING                publish the message
//! fence_others()                  (compiler order only)
//! look once more for messages     if state == SLEEPING: wake
//! futex_wait(state, SLEEPING)
//! ```
//!
//! `membarrier(2)` makes every running thread of a registered process pass a full fence. Either the sleeper then sees
//! the message, or the sender sees `SLEEPING`. If [`fence_others`] returns false, the sender must issue a full fence
//! between its two steps.

use crate::sync::{AtomicU32, Ordering, StaticU32};
use std::time::Duration;

/// Cause of the end of a [`futex_wait`]. After any cause, check the awaited condition again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Woken by a peer, or spuriously.
    Woken,
    /// The word did not hold the expected value, so the thread did not sleep.
    Changed,
    /// The timeout expired.
    TimedOut,
    /// A signal interrupted the sleep.
    Interrupted,
}

/// Sleeps in the kernel while `word` holds `expected`, for at most `timeout` (`None`: no limit). The word may be in
/// memory shared between processes.
#[cfg(not(feature = "loom"))]
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Wake {
    let limit = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs().min(i64::MAX as u64) as libc::time_t,
        tv_nsec: t.subsec_nanos() as libc::c_long,
    });
    let limit_ptr = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the word is a live, aligned u32; the timespec outlives the call. Without FUTEX_PRIVATE_FLAG the kernel
    // finds the word by its page, so processes may share it.
    let rc = unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, limit_ptr)
    };
    if rc == 0 {
        return Wake::Woken;
    }
    match errno() {
        libc::EAGAIN => Wake::Changed,
        libc::ETIMEDOUT => Wake::TimedOut,
        libc::EINTR => Wake::Interrupted,
        libc::EPERM | libc::ENOSYS => nap_slow(timeout),
        _ => Wake::Woken,
    }
}

/// Sleeps for a short time, if a sandbox refuses the futex. The sleep is short because no wake-up can end it.
#[cfg(not(feature = "loom"))]
#[cold]
#[inline(never)]
fn nap_slow(timeout: Option<Duration>) -> Wake {
    const NAP_MS: u128 = 1;
    let limit = timeout.map_or(NAP_MS, |t| t.as_millis().min(NAP_MS));
    // SAFETY: a poll of 0 descriptors does not use the null pointer.
    unsafe { libc::poll(std::ptr::null_mut(), 0, limit as libc::c_int) };
    Wake::TimedOut
}

/// Wakes at most `count` sleepers of `word`. Returns the number woken.
#[cfg(not(feature = "loom"))]
pub fn futex_wake(word: &AtomicU32, count: u32) -> usize {
    let count = count.min(i32::MAX as u32);
    // SAFETY: the word is a live, aligned u32; the kernel only uses its address.
    let rc = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, count) };
    usize::try_from(rc).unwrap_or(0)
}

#[cfg(feature = "loom")]
pub use model::{futex_wait, futex_wake};

/// The kernel's sleepers for the model checker: one queue for all words. Only a wake-up ends a sleep, so a missing
/// wake-up shows as a deadlock.
#[cfg(feature = "loom")]
mod model {
    use super::{AtomicU32, Duration, Ordering, Wake};
    use loom::sync::{Condvar, Mutex};

    loom::lazy_static! {
        static ref SLEEPERS: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
    }

    /// Sleeps as in the kernel: the word is read under the lock that a waker takes.
    pub fn futex_wait(word: &AtomicU32, expected: u32, _: Option<Duration>) -> Wake {
        let queue = SLEEPERS.0.lock().unwrap();
        // ORDERING: the kernel reads the word's latest value; partner is any store.
        if word.fetch_or(0, Ordering::AcqRel) != expected {
            return Wake::Changed;
        }
        drop(SLEEPERS.1.wait(queue));
        Wake::Woken
    }

    /// Wakes all sleepers. For sleepers of other words the wake-up is spurious.
    pub fn futex_wake(_: &AtomicU32, _: u32) -> usize {
        let queue = SLEEPERS.0.lock().unwrap();
        SLEEPERS.1.notify_all();
        drop(queue);
        1
    }
}

/// Yields the processor to another ready thread.
#[inline]
pub fn yield_now() {
    // SAFETY: sched_yield has no arguments and cannot fail on Linux.
    unsafe { libc::sched_yield() };
}

const UNKNOWN: u32 = 0;
const READY: u32 = 1;
const MISSING: u32 = 2;

/// A kind of expedited membarrier. Kinds differ in the threads that they fence.
struct Membarrier {
    state: StaticU32,
    register: libc::c_int,
    fence: libc::c_int,
}

/// Membarrier that fences every registered process of this machine, including this one.
static EVERYBODY: Membarrier = Membarrier {
    state: StaticU32::new(UNKNOWN),
    register: libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED,
    fence: libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED,
};

/// Membarrier for threads of this process only. If all of them share one processor, it interrupts no processor.
static OWN_THREADS: Membarrier = Membarrier {
    state: StaticU32::new(UNKNOWN),
    register: libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED,
    fence: libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED,
};

impl Membarrier {
    #[inline]
    fn is_ready(&self) -> bool {
        match self.state.load(Ordering::Relaxed) {
            READY => true,
            MISSING => false,
            _ => self.register_once(),
        }
    }

    #[cold]
    fn register_once(&self) -> bool {
        let offered = membarrier(libc::MEMBARRIER_CMD_QUERY);
        let need = i64::from(self.register | self.fence);
        let ready = offered > 0 && offered & need == need && membarrier(self.register) == 0;
        let state = if ready { READY } else { MISSING };
        self.state.store(state, Ordering::Relaxed);
        ready
    }

    #[inline]
    fn fence(&self) -> bool {
        if !cfg!(feature = "loom") && self.is_ready() && membarrier(self.fence) == 0 {
            return true;
        }
        // ORDERING: the sleeper's half of the Dekker pair; partner is the sender's own full fence between publishing
        // and reading the state word.
        crate::sync::fence(Ordering::SeqCst);
        // The model's senders fence by themselves (`sync::compiler_fence`).
        cfg!(feature = "loom")
    }
}

/// Registers this process for the fences of other processes ([`fence_others`]), by one system call. Every sending
/// process must call this before its first message. Returns false if the kernel lacks the expedited membarrier or a
/// sandbox forbids it. The process must then fence after publishing.
pub fn register_membarrier() -> bool {
    EVERYBODY.is_ready()
}

/// Makes this thread and every running thread of every registered process of this machine pass a full memory fence.
/// Returns false if the kernel cannot do this; then only this thread is fenced.
#[inline]
pub fn fence_others() -> bool {
    EVERYBODY.fence()
}

/// Registers this process for [`fence_own_threads`]; see [`register_membarrier`].
pub fn register_own_membarrier() -> bool {
    OWN_THREADS.is_ready()
}

/// Disables [`fence_own_threads`], as if the kernel refused it. Call this function before any lock has a bias.
pub fn refuse_own_membarrier() {
    OWN_THREADS.state.store(MISSING, Ordering::Relaxed);
}

/// Makes every running thread of this process pass a full memory fence; see [`fence_others`].
#[inline]
pub fn fence_own_threads() -> bool {
    OWN_THREADS.fence()
}

fn membarrier(command: libc::c_int) -> i64 {
    // SAFETY: membarrier takes integers and no pointer.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
}

#[cfg(not(feature = "loom"))]
fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn futex_wait__returns_at_once_when_the_word_differs() {
        let word = AtomicU32::new(1);
        assert_eq!(futex_wait(&word, 0, None), Wake::Changed);
    }

    #[test]
    fn futex_wait__times_out() {
        let word = AtomicU32::new(0);
        assert_eq!(futex_wait(&word, 0, Some(Duration::from_millis(1))), Wake::TimedOut);
    }

    #[test]
    fn futex_wake__without_waiter__returns_zero() {
        assert_eq!(futex_wake(&AtomicU32::new(0), 1), 0);
    }

    #[test]
    fn futex_wake__ends_a_wait() {
        let word = Arc::new(AtomicU32::new(0));
        let sleeper = {
            let word = word.clone();
            std::thread::spawn(move || {
                while word.load(Ordering::Acquire) == 0 {
                    futex_wait(&word, 0, None);
                }
            })
        };
        // ORDERING: pairs with the sleeper's acquire load.
        word.store(1, Ordering::Release);
        futex_wake(&word, u32::MAX);
        sleeper.join().unwrap();
    }

    #[test]
    fn membarrier__answer_does_not_change() {
        let first = register_membarrier();
        assert_eq!(register_membarrier(), first);
        assert_eq!(fence_others(), first);
        let own = register_own_membarrier();
        assert_eq!(register_own_membarrier(), own);
        assert_eq!(fence_own_threads(), own);
    }
}
