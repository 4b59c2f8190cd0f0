//! Values that live until the library drops them at the exit of the process. The library reaches them by `'static`
//! references. Leak checkers find them through the list here, and find none after [`drop_all`].
#![allow(unsafe_code)]

use crate::sync::{StaticOrdering as Ordering, StaticPtr};
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

/// A stored value, and the function that drops it.
struct StoredValue {
    value: *mut (),
    drop: unsafe fn(*mut ()),
}

// SAFETY: the pointer is only passed to `drop`, by the thread that calls `drop_all`. By the contract of `drop_all`,
// that thread may drop the values of all threads.
unsafe impl Send for StoredValue {}

static STORED: Mutex<Vec<StoredValue>> = Mutex::new(Vec::new());

/// Stores a value until [`drop_all`].
pub fn store<T: 'static>(value: T) -> &'static T {
    // SAFETY: the value stays at this address until `drop_all`, whose contract ends the use of the reference.
    unsafe { &*store_mut(value) }
}

/// Stores a value until [`drop_all`], for a caller that changes the value.
pub fn store_mut<T: 'static>(value: T) -> *mut T {
    unsafe fn drop_box<T>(value: *mut ()) {
        // SAFETY: `store_mut` made the pointer from a box of this type, and `drop_all` calls this function once.
        drop(unsafe { Box::from_raw(value.cast::<T>()) });
    }
    let value = Box::into_raw(Box::new(value));
    add(StoredValue { value: value.cast(), drop: drop_box::<T> });
    value
}

fn add(stored: StoredValue) {
    STORED.lock().unwrap_or_else(PoisonError::into_inner).push(stored);
}

/// Drops all stored values, the last stored one first.
///
/// # Safety
/// No thread uses a stored value during this call or after it, and the calling thread may drop the values of other
/// threads.
pub unsafe fn drop_all() {
    let stored = std::mem::take(&mut *STORED.lock().unwrap_or_else(PoisonError::into_inner));
    for StoredValue { value, drop } in stored.into_iter().rev() {
        // SAFETY: `value` fits `drop`, and has no other user by the contract of this function.
        unsafe { drop(value) };
    }
}

/// Static value, made at first use and dropped by [`drop_all`]. A use after [`drop_all`] makes a new value.
pub struct LazyStatic<T: 'static> {
    value: StaticPtr<T>,
    make: fn() -> T,
}

impl<T: Send + Sync> LazyStatic<T> {
    /// Declares a value that `make` will make.
    pub const fn new(make: fn() -> T) -> Self {
        LazyStatic { value: StaticPtr::new(null_mut()), make }
    }

    /// Returns the value.
    #[inline]
    pub fn get(&'static self) -> &'static T {
        // ORDERING: acquire pairs with the release in `make_value`.
        let value = self.value.load(Ordering::Acquire);
        // SAFETY: the pointer is null, or that of a value that lives until `drop_all`.
        unsafe { value.as_ref() }.unwrap_or_else(|| self.make_value())
    }

    #[cold]
    #[inline(never)]
    fn make_value(&'static self) -> &'static T {
        unsafe fn drop_value<T: 'static>(cell: *mut ()) {
            // SAFETY: the pointer is that of a static cell. `make_value` has stored the address of a box in it, and
            // `drop_all` calls this function once for each such store.
            unsafe {
                let value =
                    (*cell.cast::<LazyStatic<T>>()).value.swap(null_mut(), Ordering::Relaxed);
                drop(Box::from_raw(value));
            }
        }
        let made = Box::into_raw(Box::new((self.make)()));
        // ORDERING: release pairs with the acquire in `get`. Acquire pairs with the release of another thread's call of
        // this function, which has made the value first.
        match self.value.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                add(StoredValue {
                    value: std::ptr::from_ref(self).cast_mut().cast(),
                    drop: drop_value::<T>,
                });
                // SAFETY: the value lives until `drop_all`.
                unsafe { &*made }
            }
            Err(other) => {
                // SAFETY: `made` was not published. The other value lives until `drop_all`.
                unsafe {
                    drop(Box::from_raw(made));
                    &*other
                }
            }
        }
    }
}
