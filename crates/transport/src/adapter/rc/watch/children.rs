//! Descriptors that a child of the process must not keep: the kernel would wait for reports to be read as long as
//! anybody has one, be it a child that does not know of it. (A child by a bare `clone` that goes on without `execve` is
//! not seen.)
#![allow(unsafe_code)]

use super::userfault::replace;
use fastpath_base::fd::FileIdentity;
use fastpath_base::sync::{StaticOrdering as Ordering, StaticU64};
use std::os::fd::RawFd;
use std::sync::OnceLock;

/// Watches of a process at most.
const MOST: usize = 64;

/// Two descriptors each, or 0: the second takes the place of the first in a child.
static HELD: [StaticU64; MOST] = [const { StaticU64::new(0) }; MOST];
static IS_TOLD: OnceLock<bool> = OnceLock::new();
/// What a first descriptor leads to, as far as the kernel tells such files apart.
static KIND: OnceLock<FileIdentity> = OnceLock::new();

/// One of them, until it is dropped.
pub(super) struct ClosedInChild(&'static StaticU64);

impl ClosedInChild {
    /// A child has `other` in place of `fd`. `None` where there are too many, or nobody can be told of children.
    pub(super) fn new(fd: RawFd, other: RawFd) -> Option<Self> {
        // SAFETY: the function does what may be done in a child, and is there as long as the process.
        let tell = || unsafe { libc::pthread_atfork(None, None, Some(leave)) } == 0;
        let told = *IS_TOLD.get_or_init(tell);
        FileIdentity::of(fd).map(|kind| KIND.get_or_init(|| kind));
        let pair = (fd as u64) << 32 | other as u64;
        let take = |place: &&StaticU64| {
            let (done, missed) = (Ordering::Relaxed, Ordering::Relaxed);
            place.compare_exchange(0, pair, done, missed).is_ok()
        };
        told.then(|| HELD.iter().find(take).map(ClosedInChild)).flatten()
    }
}

impl Drop for ClosedInChild {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// In a child.
unsafe extern "C" fn leave() {
    for place in &HELD {
        // Once: a child of this child has given the numbers to files of its own.
        let pair = place.swap(0, Ordering::Relaxed);
        let number = (pair >> 32) as RawFd;
        // The program may have closed it and opened a file of its own.
        if pair != 0 && FileIdentity::of(number).as_ref() == KIND.get() {
            replace(number, pair as u32 as RawFd);
        }
    }
}
