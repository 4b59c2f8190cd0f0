//! The library's allocator: the system's allocator, with a report when memory runs out.
//!
//! In Rust, a failed allocation ends the process without naming the MPI call. [`Heap`] calls a handler
//! ([`set_handler`]), which reports a fatal error and does not return. The handler may allocate: its thread gets memory
//! from a reserve. [`may_fail`] is for allocations whose failure the caller handles.
#![allow(unsafe_code)]

use crate::sync::{StaticOrdering as Ordering, StaticUsize};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};

/// Size of the reserve for the thread that reports an allocation failure, in bytes.
const RESERVE_BYTES: usize = 256 << 10;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// A failure ends the job.
    Plain,
    /// A failure is returned.
    MayFail,
    /// The handler is running on this thread.
    Reports,
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Plain) };
}

static HANDLER: StaticUsize = StaticUsize::new(0);

#[repr(align(4096))]
struct Reserve(UnsafeCell<[u8; RESERVE_BYTES]>);

// SAFETY: `take_reserve` hands out parts that do not overlap (`USED`).
unsafe impl Sync for Reserve {}

static RESERVE: Reserve = Reserve(UnsafeCell::new([0; RESERVE_BYTES]));
static USED: StaticUsize = StaticUsize::new(0);

/// Reports that an allocation of `bytes` bytes failed, and does not return.
pub type Handler = fn(bytes: usize) -> !;

/// Sets the handler of the process.
pub fn set_handler(handler: Handler) {
    HANDLER.store(handler as usize, Ordering::Relaxed);
}

/// Calls `allocate`, which handles a failed allocation itself, for example by `try_reserve`.
pub fn may_fail<T>(allocate: impl FnOnce() -> T) -> T {
    let before = MODE.replace(Mode::MayFail);
    let done = allocate();
    MODE.set(before);
    done
}

/// The allocator. Only the shared library sets it as `#[global_allocator]`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Heap;

impl Heap {
    /// Handles a failed allocation. Returns memory of the reserve to the reporting thread, and null inside
    /// [`may_fail`]. Otherwise it does not return.
    #[cold]
    #[inline(never)]
    fn allocate_slow(layout: Layout) -> *mut u8 {
        // On an ending thread, the thread-local mode may be destroyed. A failed allocation then returns null.
        match MODE.try_with(Cell::get).unwrap_or(Mode::MayFail) {
            Mode::MayFail => std::ptr::null_mut(),
            Mode::Reports => take_reserve(layout),
            Mode::Plain => {
                MODE.set(Mode::Reports);
                match HANDLER.load(Ordering::Relaxed) {
                    0 => std::ptr::null_mut(),
                    // SAFETY: `set_handler` has stored a function of this type.
                    at => unsafe { std::mem::transmute::<usize, Handler>(at)(layout.size()) },
                }
            }
        }
    }
}

fn take_reserve(layout: Layout) -> *mut u8 {
    let take = |used: usize| {
        let end = used.next_multiple_of(layout.align().min(4096)).checked_add(layout.size())?;
        (layout.align() <= 4096 && end <= RESERVE_BYTES).then_some(end)
    };
    match USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
        // SAFETY: the part is inside the reserve, as `take` has checked.
        Ok(used) => unsafe {
            RESERVE.0.get().cast::<u8>().add(used.next_multiple_of(layout.align()))
        },
        Err(_) => std::ptr::null_mut(),
    }
}

fn is_of_reserve(at: *mut u8) -> bool {
    (at as usize).wrapping_sub(RESERVE.0.get() as usize) < RESERVE_BYTES
}

// SAFETY: the calls are those of the system's allocator, except that a failure may return a part of the reserve. Such a
// part has no other user, and is neither freed nor handed out again.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the contract of this function is that of `System.alloc`.
        let at = unsafe { System.alloc(layout) };
        match at.is_null() {
            true => Heap::allocate_slow(layout),
            false => at,
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the contract of this function is that of `System.alloc_zeroed`.
        let at = unsafe { System.alloc_zeroed(layout) };
        match at.is_null() {
            // Each part of the reserve is handed out once, and begins as zeros.
            true => Heap::allocate_slow(layout),
            false => at,
        }
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if !is_of_reserve(at) {
            // SAFETY: `at` is not in the reserve, so `System` allocated it; the rest is this function's contract.
            unsafe { System.dealloc(at, layout) };
        }
    }

    #[inline]
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if !is_of_reserve(at) {
            // SAFETY: `at` is not in the reserve, so `System` allocated it; the rest is this function's contract.
            let grown = unsafe { System.realloc(at, layout, bytes) };
            if !grown.is_null() {
                return grown;
            }
        }
        // SAFETY: the size is not 0, by this function's contract; only bytes that both blocks have are copied.
        unsafe {
            let grown =
                Heap::allocate_slow(Layout::from_size_align_unchecked(bytes, layout.align()));
            if !grown.is_null() {
                at.copy_to_nonoverlapping(grown, layout.size().min(bytes));
            }
            grown
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const TOO_MUCH: Layout = match Layout::from_size_align(isize::MAX as usize - 4095, 1) {
        Ok(layout) => layout,
        Err(_) => panic!(),
    };

    #[test]
    fn heap__failure_that_may_be__is_returned() {
        // SAFETY: the layout is not empty.
        assert!(may_fail(|| unsafe { Heap.alloc(TOO_MUCH) }).is_null());
        // SAFETY: the layout is not empty, and the memory is freed with the same layout.
        unsafe {
            let at = Heap.alloc(Layout::new::<u64>());
            assert!(!at.is_null() && !is_of_reserve(at));
            Heap.dealloc(at, Layout::new::<u64>());
        }
    }

    #[test]
    fn heap__thread_that_reports__is_served_from_the_reserve() {
        std::thread::spawn(|| {
            MODE.set(Mode::Reports);
            let small = Layout::from_size_align(100, 64).unwrap();
            let (one, two) = (Heap::allocate_slow(small), Heap::allocate_slow(small));
            assert!(is_of_reserve(one) && is_of_reserve(two));
            assert!((one as usize).is_multiple_of(64) && two as usize - one as usize >= 100);
            // SAFETY: `one` was allocated above with this layout.
            unsafe { Heap.dealloc(one, small) };
            assert!(Heap::allocate_slow(TOO_MUCH).is_null());
        })
        .join()
        .unwrap();
    }
}
