//! SIGBUS at stores into a mapped file: the kernel sends this signal if another process has shortened the file.
//!
//! While bytes are stored, a handler watches the mapped range. It replaces a lost page by a private page of zeros, so
//! that the store completes, and counts the loss for [`MappingGuard::has_lost`]. Any other SIGBUS belongs to the
//! program. The handler then restores the program's action, and the failed instruction runs again.
#![allow(unsafe_code)]

use fastpath_base::sync::{StaticOrdering as Ordering, StaticU32, StaticUsize};
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

static START: StaticUsize = StaticUsize::new(0);
static END: StaticUsize = StaticUsize::new(0);
static PAGE: StaticUsize = StaticUsize::new(4096);
static LOST: StaticU32 = StaticU32::new(0);
static WATCHED: StaticU32 = StaticU32::new(0);

struct PreviousAction(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: only the thread that has set WATCHED writes the action, before it installs the handler that reads the action.
unsafe impl Sync for PreviousAction {}

static FORMER: PreviousAction = PreviousAction(UnsafeCell::new(MaybeUninit::uninit()));

/// A watched range of memory. The thread that began the watch must drop it.
pub(crate) struct MappingGuard {
    /// Whether the thread had SIGBUS blocked. The kernel kills the process if a thread that blocks SIGBUS raises it.
    held: bool,
}

/// Unblocks SIGBUS for this thread, or blocks it with `SIG_BLOCK`. Returns whether SIGBUS was blocked before.
fn set_held(how: c_int) -> bool {
    // SAFETY: signal sets are plain data, filled before they are used.
    unsafe {
        let (mut own, mut old) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&mut own);
        libc::sigaddset(&mut own, libc::SIGBUS);
        libc::pthread_sigmask(how, &own, &mut old);
        libc::sigismember(&old, libc::SIGBUS) == 1
    }
}

impl MappingGuard {
    /// Watches `len` bytes at `at`, both multiples of `page`. Returns none while another thread watches a range.
    pub(crate) fn watch(at: usize, len: usize, page: usize) -> Option<MappingGuard> {
        // ORDERING: acquire, pairs with the release in `drop`: the previous watcher's writes to FORMER come before
        // ours.
        WATCHED.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).ok()?;
        START.store(at, Ordering::Relaxed);
        END.store(at.saturating_add(len), Ordering::Relaxed);
        PAGE.store(page, Ordering::Relaxed);
        LOST.store(0, Ordering::Relaxed);
        // SAFETY: WATCHED makes this thread the only writer, the structures live, and all zeros is a valid `sigaction`.
        let is_set = unsafe {
            let former = FORMER.0.get().cast::<libc::sigaction>();
            let mut new: libc::sigaction = std::mem::zeroed();
            let action: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = replace_page;
            new.sa_sigaction = action as usize;
            new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGBUS, std::ptr::null(), former) == 0
                && libc::sigaction(libc::SIGBUS, &new, std::ptr::null_mut()) == 0
        };
        let guard = MappingGuard { held: set_held(libc::SIG_UNBLOCK) };
        is_set.then_some(guard)
    }

    pub(crate) fn has_lost(&self) -> bool {
        LOST.load(Ordering::Relaxed) > 0
    }
}

impl Drop for MappingGuard {
    fn drop(&mut self) {
        END.store(0, Ordering::Relaxed);
        if self.held {
            set_held(libc::SIG_BLOCK);
        }
        // SAFETY: the structures live, and `watch` filled FORMER before it installed the handler.
        unsafe {
            let mut now: libc::sigaction = std::mem::zeroed();
            let action: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = replace_page;
            if libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut now) == 0
                && now.sa_sigaction == action as usize
            {
                libc::sigaction(libc::SIGBUS, FORMER.0.get().cast(), std::ptr::null_mut());
            }
        }
        // ORDERING: release, pairs with the acquire in `watch`.
        WATCHED.store(0, Ordering::Release);
    }
}

extern "C" fn replace_page(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes a `siginfo_t` that is valid while the handler runs.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    let (start, end) = (START.load(Ordering::Relaxed), END.load(Ordering::Relaxed));
    if code > 0 && (start..end).contains(&address) {
        let page = PAGE.load(Ordering::Relaxed);
        // SAFETY: the page belongs to the watched mapping and has lost its file page, so it holds no data to overwrite.
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
    // SAFETY: `watch` fills FORMER before it installs the handler. A signal sent by a process is raised again.
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

    /// Waits until no other range is watched, because other tests of this process map files too.
    fn watch(at: usize, len: usize, page: usize) -> MappingGuard {
        loop {
            match MappingGuard::watch(at, len, page) {
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
        // SAFETY: only this test uses the file and its mapping.
        unsafe {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let fd = file.as_raw_fd();
            let at = libc::mmap(std::ptr::null_mut(), 2 * PAGE, rights, libc::MAP_SHARED, fd, 0);
            assert!(at != libc::MAP_FAILED);
            let at = at.cast::<u8>();
            // The guard works in a thread that blocks all signals.
            assert!(!set_held(libc::SIG_BLOCK));
            let guard = watch(at as usize, 2 * PAGE, PAGE);
            assert!(MappingGuard::watch(at as usize, PAGE, PAGE).is_none());
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
