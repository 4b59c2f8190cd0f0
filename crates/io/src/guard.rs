//! What happens to a store into a mapped file where somebody has shortened the file: the kernel sends SIGBUS.
//!
//! While bytes are stored, a handler watches the range. A page that is gone is replaced by one of zeros that belongs to
//! nobody, so that the store ends, and whoever stored learns of it. Any other SIGBUS is the program's own: its action
//! is put back, and the instruction that failed runs again.
#![allow(unsafe_code)]

use fastpath_base::sync::{StaticOrdering as Ordering, StaticU32, StaticUsize};
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

static START: StaticUsize = StaticUsize::new(0);
static END: StaticUsize = StaticUsize::new(0);
static PAGE: StaticUsize = StaticUsize::new(4096);
/// Pages that were gone.
static LOST: StaticU32 = StaticU32::new(0);
/// 1 while a range is watched.
static WATCHED: StaticU32 = StaticU32::new(0);

/// The action that the program has for the signal.
struct Former(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: written by the thread that has set WATCHED, before the handler is there that reads it.
unsafe impl Sync for Former {}

static FORMER: Former = Former(UnsafeCell::new(MaybeUninit::uninit()));

/// A range of memory that is watched until this is dropped, by the same thread.
pub(crate) struct Guard {
    /// Whether the thread held the signal back: the kernel ends a process for that.
    held: bool,
}

/// Lets the signal through to this thread or, with `SIG_BLOCK`, holds it back; whether it was held back.
fn set_held(how: c_int) -> bool {
    // SAFETY: sets of signals are plain data, filled before they are used.
    unsafe {
        let (mut own, mut old) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&mut own);
        libc::sigaddset(&mut own, libc::SIGBUS);
        libc::pthread_sigmask(how, &own, &mut old);
        libc::sigismember(&old, libc::SIGBUS) == 1
    }
}

impl Guard {
    /// Watches `len` bytes at `at`, both multiples of `page`; none where another range is watched, by another thread.
    pub(crate) fn watch(at: usize, len: usize, page: usize) -> Option<Guard> {
        // ORDERING: acquire, with the release in `drop`: what that thread wrote to FORMER comes before what this does.
        WATCHED.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).ok()?;
        START.store(at, Ordering::Relaxed);
        END.store(at.saturating_add(len), Ordering::Relaxed);
        PAGE.store(page, Ordering::Relaxed);
        LOST.store(0, Ordering::Relaxed);
        // SAFETY: WATCHED makes this thread the only one here; the structures live, and zeros are valid ones.
        let is_set = unsafe {
            let former = FORMER.0.get().cast::<libc::sigaction>();
            let mut new: libc::sigaction = std::mem::zeroed();
            let action: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = replace_page;
            new.sa_sigaction = action as usize;
            new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGBUS, std::ptr::null(), former) == 0
                && libc::sigaction(libc::SIGBUS, &new, std::ptr::null_mut()) == 0
        };
        let guard = Guard { held: set_held(libc::SIG_UNBLOCK) };
        is_set.then_some(guard)
    }

    /// Whether a page of the range was gone when it was touched.
    pub(crate) fn has_lost(&self) -> bool {
        LOST.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        END.store(0, Ordering::Relaxed);
        if self.held {
            set_held(libc::SIG_BLOCK);
        }
        // SAFETY: the structures live; `watch` has filled FORMER where the handler is there.
        unsafe {
            let mut now: libc::sigaction = std::mem::zeroed();
            let action: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = replace_page;
            if libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut now) == 0
                && now.sa_sigaction == action as usize
            {
                libc::sigaction(libc::SIGBUS, FORMER.0.get().cast(), std::ptr::null_mut());
            }
        }
        // ORDERING: release, with the acquire in `watch`.
        WATCHED.store(0, Ordering::Release);
    }
}

/// The handler.
extern "C" fn replace_page(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel's, valid for the length of the handler.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    let (start, end) = (START.load(Ordering::Relaxed), END.load(Ordering::Relaxed));
    if code > 0 && (start..end).contains(&address) {
        let page = PAGE.load(Ordering::Relaxed);
        // SAFETY: a page of the mapping that the guard watches, which nobody can use any more.
        let at = unsafe {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            let place = (address / page * page) as *mut c_void;
            libc::mmap(place, page, rights, flags, -1, 0)
        };
        if at != libc::MAP_FAILED {
            LOST.fetch_add(1, Ordering::Relaxed);
            return;
        }
    }
    // SAFETY: the handler is there, so FORMER is filled. A signal that somebody sent does not come again by itself.
    unsafe {
        libc::sigaction(signal, FORMER.0.get().cast(), std::ptr::null_mut());
        if code <= 0 {
            libc::raise(signal);
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// Other tests of this process map files, too.
    fn watch(at: usize, len: usize, page: usize) -> Guard {
        loop {
            match Guard::watch(at, len, page) {
                Some(guard) => return guard,
                None => std::thread::yield_now(),
            }
        }
    }

    #[test]
    fn guard__replaces_a_page_that_was_cut_off() {
        const PAGE: usize = 4096;
        let path = std::env::temp_dir().join(format!("guard-{}", std::process::id()));
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        std::fs::remove_file(&path).unwrap();
        file.set_len(2 * PAGE as u64).unwrap();
        use std::os::fd::AsRawFd;
        // SAFETY: a mapping of an open file, which nobody else uses.
        unsafe {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let fd = file.as_raw_fd();
            let at = libc::mmap(std::ptr::null_mut(), 2 * PAGE, rights, libc::MAP_SHARED, fd, 0);
            assert!(at != libc::MAP_FAILED);
            let at = at.cast::<u8>();
            // A thread that holds all signals back is none the worse for it.
            assert!(!set_held(libc::SIG_BLOCK));
            let guard = watch(at as usize, 2 * PAGE, PAGE);
            assert!(Guard::watch(at as usize, PAGE, PAGE).is_none());
            at.add(PAGE).write_volatile(1);
            assert!(!guard.has_lost());
            file.set_len(10).unwrap();
            at.write_volatile(7);
            assert!(!guard.has_lost());
            at.add(PAGE + 9).write_volatile(1);
            assert!(guard.has_lost());
            assert_eq!(at.add(PAGE + 9).read_volatile(), 1);
            drop(guard);
            assert!(set_held(libc::SIG_UNBLOCK));
            libc::munmap(at.cast(), 2 * PAGE);
        }
        assert_eq!(file.metadata().unwrap().len(), 10);
        drop(watch(0, 0, PAGE));
    }
}
