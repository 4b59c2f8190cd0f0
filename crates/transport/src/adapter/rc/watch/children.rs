//! Descriptors that a forked child must replace by others. While any process has a userfaultfd open, the kernel delays
//! each reported change until the report is read, even if that process never reads. A child of a bare `clone` without
//! `execve` runs no `fork` handler, so it is not covered.
#![allow(unsafe_code)]

use super::userfault::replace;
use fastpath_base::fd::FileIdentity;
use fastpath_base::sync::{StaticOrdering as Ordering, StaticU64};
use std::os::fd::RawFd;
use std::sync::OnceLock;

const MOST: usize = 64;
const CLAIMED: u64 = u64::MAX;

/// Descriptor that a child replaces. All fields are atomic words, because a `fork` handler reads them.
struct ChildFd {
    /// Two descriptors: a child replaces the first by the second. 0 if the entry is free.
    pair: StaticU64,
    /// Identity of the first descriptor. Every userfaultfd has its own inode.
    identity: [StaticU64; 2],
}

static PLACES: [ChildFd; MOST] =
    [const { ChildFd { pair: StaticU64::new(0), identity: [const { StaticU64::new(0) }; 2] } };
        MOST];
static IS_TOLD: OnceLock<bool> = OnceLock::new();

pub(super) struct ClosedInChild(&'static ChildFd);

impl ClosedInChild {
    /// Makes children replace `fd` by `other`. `None` without a free entry, if `fd` is closed, or without `fork`
    /// handlers.
    pub(super) fn new(fd: RawFd, other: RawFd) -> Option<Self> {
        // SAFETY: the handler makes only calls that a child may make, and exists as long as the process.
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
        // ORDERING: publishes the identity; partner: the swap in a child.
        place.pair.store((fd as u64) << 32 | other as u64, Ordering::Release);
        Some(ClosedInChild(place))
    }
}

impl Drop for ClosedInChild {
    fn drop(&mut self) {
        self.0.pair.store(0, Ordering::Relaxed);
    }
}

unsafe extern "C" fn leave() {
    for place in &PLACES {
        // Clear the pair: in a grandchild the numbers may belong to other files. ORDERING: acquires the identity;
        // partner: the parent's store of the pair.
        let pair = place.pair.swap(0, Ordering::Acquire);
        if pair == 0 || pair == CLAIMED {
            continue;
        }
        let number = (pair >> 32) as RawFd;
        let identity = place.identity.each_ref().map(|word| word.load(Ordering::Relaxed));
        // The program may have closed the descriptor and opened another file with its number.
        if FileIdentity::of(number).is_some_and(|found| found.words() == identity) {
            replace(number, pair as u32 as RawFd);
        }
    }
}
