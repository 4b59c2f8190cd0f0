//! Immediate path of `MPI_Win_lock` and `MPI_Win_unlock`. The path serves only a rank that load and store reach and
//! that was locked before. A call takes the ordinary path if the lock is not granted at once, or if another rank waits
//! for the lock.
#![allow(unsafe_code)]

use super::control::{ACCUMULATE, LOCK, OWNER};
use super::counts::RmaCounter;
use super::epoch::HeldLock;
use super::hot;
use super::lock_word::LockWord;
use super::window::Window;
use crate::common::consts::*;
use crate::objects::hot::{OPEN, hidden_worker, worker};
use fastpath_base::sync::{AtomicU64, Ordering};

struct LockTarget {
    window: &'static Window,
    rank: u32,
    lock: &'static AtomicU64,
    owner: &'static AtomicU64,
}

#[inline(always)] // `fastpath bench instructions` counts MPI_Win_lock
fn find<const WAY: u8>(rank: i32, win: usize) -> Option<LockTarget> {
    let window = hot::lockable::<WAY>(win)?;
    let word = window.locks.get(rank as u32 as usize)?.get();
    if word.is_null() {
        return None;
    }
    let at = |byte: u64| {
        let word = word.cast::<u8>().wrapping_add(byte as usize);
        let word = word.wrapping_sub(ACCUMULATE as usize);
        // SAFETY: the words of a rank are one piece of memory, which stays mapped while the window lives. Each word is
        // aligned, and every access to it is atomic.
        unsafe { &*word.cast::<AtomicU64>() }
    };
    Some(LockTarget { window, rank: rank as u32, lock: at(LOCK), owner: at(OWNER) })
}

impl LockTarget {
    /// Changes the word of the lock from `seen`, unless another rank has changed it.
    #[inline(always)] // see `find`
    fn change(&self, seen: LockWord, to: LockWord) -> bool {
        // ORDERING: acquire and release, pairs with this operation of the rank that takes the lock next. That rank sees
        // earlier writes to the window.
        let (done, failed) = (Ordering::AcqRel, Ordering::Relaxed);
        let changed = self.lock.compare_exchange(seen.0, to.0, done, failed);
        changed.is_ok()
    }
}

/// Records for job reports that a lock is taken or released.
#[inline(always)] // see `find`
pub(super) fn note<const WAY: u8>(window: &Window, rank: u32, taken: bool) {
    let worker = match WAY {
        OPEN => worker(),
        _ => hidden_worker(),
    };
    // SAFETY: the worker lives while the hot table has a window, and this call is the only one inside MPI.
    unsafe { (*worker).note_window_lock(window.number(), window.world(rank), taken) };
}

/// `MPI_Win_lock`. Returns false, without effect, if the immediate path does not apply.
#[inline]
pub fn try_lock<const WAY: u8>(kind: i32, rank: i32, assertion: i32, win: usize) -> bool {
    let Some(found) = find::<WAY>(rank, win).filter(|_| assertion == 0) else {
        return false;
    };
    let held = match kind {
        // The first exclusive lock must be announced to all hosts. The immediate path makes no announcement.
        MPI_LOCK_EXCLUSIVE if found.window.announced.get() => HeldLock::Exclusive,
        MPI_LOCK_SHARED => HeldLock::Shared,
        _ => return false,
    };
    let Ok(mut epoch) = found.window.epoch.try_borrow_mut() else {
        return false;
    };
    if epoch.is_fenced() || epoch.may_lock(Some(found.rank)).is_err() {
        return false;
    }
    let seen = LockWord(found.lock.load(Ordering::Relaxed));
    let exclusive = held == HeldLock::Exclusive;
    let (asked, _, granted) = seen.request(exclusive);
    if !granted || !found.change(seen, asked) {
        return false;
    }
    if exclusive {
        let me = u64::from(found.window.rank) + 1;
        found.owner.store(me, Ordering::Relaxed);
    }
    note::<WAY>(found.window, found.rank, true);
    epoch.lock(found.rank, held);
    found.window.counts.add(RmaCounter::Locks);
    found.window.show_again(found.rank);
    true
}

/// `MPI_Win_unlock`. Returns false if the immediate path does not apply.
#[inline]
pub fn try_unlock<const WAY: u8>(rank: i32, win: usize) -> bool {
    let Some(found) = find::<WAY>(rank, win) else {
        return false;
    };
    let Ok(mut epoch) = found.window.epoch.try_borrow_mut() else {
        return false;
    };
    let exclusive = match epoch.may_unlock(found.rank) {
        Ok(HeldLock::Exclusive) => true,
        Ok(HeldLock::Shared) => false,
        _ => return false,
    };
    let seen = LockWord(found.lock.load(Ordering::Relaxed));
    let after = seen.release(exclusive);
    if found.window.is_pending(found.rank) || after.first_waiting().is_some() {
        return false;
    }
    if exclusive {
        found.owner.store(0, Ordering::Relaxed);
    }
    if !found.change(seen, after) {
        return false;
    }
    note::<WAY>(found.window, found.rank, false);
    found.window.close(found.rank);
    epoch.unlock(found.rank);
    true
}
