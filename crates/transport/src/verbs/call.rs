//! Calls into the library: converts results, and lets tests make each step fail.

use super::error::{VerbsCall, VerbsError};
use libc::c_int;
use std::ptr::NonNull;

fn last_errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

pub(super) fn make<T>(
    step: VerbsCall, device: &str, call: impl FnOnce() -> *mut T,
) -> Result<NonNull<T>, VerbsError> {
    if let Some(errno) = fault::strike(step) {
        return Err(VerbsError::call(step, device, errno));
    }
    match NonNull::new(call()) {
        Some(made) => {
            fault::count(1);
            Ok(made)
        }
        None => Err(VerbsError::call(step, device, last_errno())),
    }
}

/// Makes a call that returns 0, an error number, or -1 with `errno`.
pub(super) fn check(
    step: VerbsCall, device: &str, call: impl FnOnce() -> c_int,
) -> Result<(), VerbsError> {
    if let Some(errno) = fault::strike(step) {
        return Err(VerbsError::call(step, device, errno));
    }
    match call() {
        0 => Ok(()),
        errno if errno > 0 => Err(VerbsError::call(step, device, errno)),
        _ => Err(VerbsError::call(step, device, last_errno())),
    }
}

/// Handles the result of a destroying call. A failure is ignored: the kernel frees all when the process ends.
pub(super) fn unmake(answer: c_int) {
    if answer == 0 {
        fault::count(-1);
    }
}

#[cfg(test)]
pub(crate) mod fault {
    use super::{VerbsCall, VerbsError};
    use std::cell::{Cell, RefCell};

    thread_local! {
        static STRUCK: RefCell<Option<(VerbsCall, u32, i32)>> = const { RefCell::new(None) };
        static ENDED: Cell<Option<(VerbsCall, i32)>> = const { Cell::new(None) };
        static ALIVE: Cell<i64> = const { Cell::new(0) };
        static SEEN: RefCell<Vec<VerbsCall>> = const { RefCell::new(Vec::new()) };
    }

    /// Makes one call of `step` in this thread fail with `errno`, after `after` successful calls of this step.
    pub fn arm(step: VerbsCall, after: u32, errno: i32) {
        STRUCK.set(Some((step, after, errno)));
    }

    /// Makes every call of `step` in this thread fail, until [`disarm`].
    pub fn end(step: VerbsCall, errno: i32) {
        ENDED.set(Some((step, errno)));
    }

    /// Cancels pending failures; returns whether any was pending.
    pub fn disarm() -> bool {
        ENDED.set(None);
        STRUCK.take().is_some()
    }

    /// Takes the steps since the last call, in order.
    pub fn take_seen() -> Vec<VerbsCall> {
        SEEN.take()
    }

    /// Number of live objects of this thread.
    pub fn alive() -> i64 {
        ALIVE.get()
    }

    /// Calls `make` once without failures: the call must run the `wanted` steps. Then calls `make` once for each of the
    /// steps and makes that step fail (`EBUSY`). `check` inspects each error. No object may be left.
    pub fn fail_each_step<T>(
        wanted: &[VerbsCall], mut make: impl FnMut() -> Result<T, VerbsError>,
        check: impl Fn(VerbsCall, VerbsError),
    ) {
        let base = alive();
        take_seen();
        drop(make().unwrap());
        assert_eq!(alive(), base);
        let steps = take_seen();
        for wanted in wanted {
            assert!(steps.contains(wanted), "{wanted:?} is not among the steps");
        }
        for (at, &step) in steps.iter().enumerate() {
            let earlier = steps[..at].iter().filter(|&&s| s == step).count() as u32;
            if step == VerbsCall::QueryGid && earlier > 3 {
                continue; // a GID table may have a thousand rows
            }
            arm(step, earlier, libc::EBUSY);
            match make() {
                Err(error) => check(step, error),
                // An empty row of the GID table is not an error.
                Ok(_) => assert_eq!(step, VerbsCall::QueryGid, "step {at} made no error"),
            }
            assert!(!disarm(), "step {at}, {step:?}, was not struck");
            assert_eq!(alive(), base, "a failure of {step:?} leaves something");
        }
    }

    pub(super) fn strike(step: VerbsCall) -> Option<i32> {
        SEEN.with_borrow_mut(|seen| seen.push(step));
        if let Some((_, errno)) = ENDED.get().filter(|ended| ended.0 == step) {
            return Some(errno);
        }
        STRUCK.with_borrow_mut(|struck| match struck {
            Some((wanted, 0, errno)) if *wanted == step => {
                let errno = *errno;
                *struck = None;
                Some(errno)
            }
            Some((wanted, after, _)) if *wanted == step => {
                *after -= 1;
                None
            }
            _ => None,
        })
    }

    pub(super) fn count(change: i64) {
        ALIVE.set(ALIVE.get() + change);
    }
}

#[cfg(not(test))]
mod fault {
    #[inline]
    pub(super) fn strike(_: super::VerbsCall) -> Option<i32> {
        None
    }

    #[inline]
    pub(super) fn count(_: i64) {}
}
