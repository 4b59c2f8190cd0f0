//! Descriptors that a child of the process must not keep: the kernel would wait for reports to be read as long as
//! anybody has one, be it a child that does not know of it. (A child by a bare `clone` that goes on without `execve` is
//! not seen.)
#![allow(unsafe_code)]

use super::userfault::replace;
use fastpath_base::fd::FileIdentity;
use fastpath_base::sync::{StaticOrdering as Ordering, StaticU64};
use std::os::fd::RawFd;
use std::sync::OnceLock;

/// Largest number of watches in a process.
const MOST: usize = 64;
/// Value of [`ChildFd::pair`] while a thread fills the place.
const CLAIMED: u64 = u64::MAX;

/// A descriptor that a child replaces. Words alone, because a handler of `fork` reads them.
struct ChildFd {
    /// Two descriptors, of which the second takes the place of the first in a child; 0 for none.
    pair: StaticU64,
    /// Identity of the first one. Every userfaultfd has an inode of its own.
    identity: [StaticU64; 2],
}

static PLACES: [ChildFd; MOST] =
    [const { ChildFd { pair: StaticU64::new(0), identity: [const { StaticU64::new(0) }; 2] } };
        MOST];
static IS_TOLD: OnceLock<bool> = OnceLock::new();

/// One of the places, free again when it is dropped.
pub(super) struct ClosedInChild(&'static ChildFd);

impl ClosedInChild {
    /// In a child, `other` takes the place of `fd`. `None` if all places are taken, if `fd` is closed, or if handlers
    /// of `fork` cannot be registered.
    pub(super) fn new(fd: RawFd, other: RawFd) -> Option<Self> {
        // SAFETY: the function does what may be done in a child, and is there as long as the process.
        let tell = || unsafe { libc::pthread_atfork(None, None, Some(leave)) } == 0;
        if !*IS_TOLD.get_or_init(tell) {
            return None;
        }
        let identity = FileIdentity::of(fd)?.words();
        let claim = |place: &&ChildFd| {
            let (done, missed) = (Ordering::Relaxed, Ordering::Relaxed);
            place.pair.compare_exchange(0, CLAIMED, done, missed).is_ok()
        };
        let place = PLACES.iter().find(claim)?;
        for (word, value) in place.identity.iter().zip(identity) {
            word.store(value, Ordering::Relaxed);
        }
        // ORDERING: partner: the swap in a child, which is to find the identity.
        place.pair.store((fd as u64) << 32 | other as u64, Ordering::Release);
        Some(ClosedInChild(place))
    }
}

impl Drop for ClosedInChild {
    fn drop(&mut self) {
        self.0.pair.store(0, Ordering::Relaxed);
    }
}

/// Runs in a child, after `fork`.
unsafe extern "C" fn leave() {
    for place in &PLACES {
        // Once: a child of this child has given the numbers to files of its own.
        // ORDERING: partner: the store of the pair in the parent.
        let pair = place.pair.swap(0, Ordering::Acquire);
        if pair == 0 || pair == CLAIMED {
            continue;
        }
        let number = (pair >> 32) as RawFd;
        let identity = place.identity.each_ref().map(|word| word.load(Ordering::Relaxed));
        // The program may have closed it and opened a file of its own.
        if FileIdentity::of(number).is_some_and(|found| found.words() == identity) {
            replace(number, pair as u32 as RawFd);
        }
    }
}
