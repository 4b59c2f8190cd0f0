//! Epochs of a window (MPI 5.0, section 12.5): the permitted order of synchronisation calls, and of accesses.

use std::rc::Rc;

/// Lock that this process holds on a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum HeldLock {
    #[default]
    None,
    Shared,
    Exclusive,
    /// A lock of either kind with `MPI_MODE_NOCHECK`: no lock was taken.
    Unchecked,
}

/// How `MPI_Win_lock_all` keeps other ranks from locking exclusively.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Nothing keeps other ranks from locking: `MPI_MODE_NOCHECK`.
    Unchecked,
    /// A count of sharers. Other ranks wait until the count is 0 before they lock exclusively.
    Counted,
    /// A shared lock on every rank.
    Locks,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Access {
    None,
    /// Access to every rank, opened by a fence.
    Fence,
    /// Access to the listed ranks, opened by `MPI_Win_start`.
    Start(Rc<[u32]>),
    /// Access to ranks locked one by one.
    Locks,
    /// Access to every rank, opened by `MPI_Win_lock_all`.
    LockAll(Sharing),
}

/// Reason why a call does not fit the epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    NoAccess,
    /// The operation has a request, and so needs a passive target epoch.
    NotPassive,
    /// The epoch by `MPI_Win_start` does not include the rank.
    NotStarted,
    LockedAlready,
    NotLocked,
    NotLockedAll,
    NoStart,
    NoPost,
    InLock,
    InLockAll,
    InStart,
    InPost,
}

impl Refusal {
    pub fn explain(self) -> (&'static str, &'static str) {
        match self {
            Refusal::NoAccess => (
                "no open epoch gives access to the target rank",
                "call MPI_Win_lock, MPI_Win_lock_all, MPI_Win_start or MPI_Win_fence first",
            ),
            Refusal::NotPassive => (
                "an operation with a request needs an epoch by MPI_Win_lock or MPI_Win_lock_all",
                "call MPI_Win_lock or MPI_Win_lock_all first, or use the operation without a \
                 request",
            ),
            Refusal::NotStarted => (
                "the target rank is not in the group that was passed to MPI_Win_start",
                "add the target rank to the group of MPI_Win_start",
            ),
            Refusal::LockedAlready => (
                "this process holds a lock on the target rank already",
                "call MPI_Win_unlock before the next MPI_Win_lock of that rank",
            ),
            Refusal::NotLocked => (
                "this process holds no lock on the target rank",
                "call MPI_Win_lock or MPI_Win_lock_all first",
            ),
            Refusal::NotLockedAll => (
                "no epoch by MPI_Win_lock_all is open",
                "call MPI_Win_lock_all first; a lock on one rank ends by MPI_Win_unlock",
            ),
            Refusal::NoStart => ("no epoch by MPI_Win_start is open", "call MPI_Win_start first"),
            Refusal::NoPost => ("no epoch by MPI_Win_post is open", "call MPI_Win_post first"),
            Refusal::InLock => {
                ("this process holds a lock on a rank of the window", "call MPI_Win_unlock first")
            }
            Refusal::InLockAll => {
                ("an epoch by MPI_Win_lock_all is open", "call MPI_Win_unlock_all first")
            }
            Refusal::InStart => {
                ("an epoch by MPI_Win_start is open", "call MPI_Win_complete first")
            }
            Refusal::InPost => (
                "an epoch by MPI_Win_post is open",
                "call MPI_Win_wait, or MPI_Win_test until it returns true",
            ),
        }
    }
}

/// The epochs of one process on one window.
#[derive(Debug)]
pub struct Epoch {
    access: Access,
    held: Box<[HeldLock]>,
    /// Number of locks held, including [`Epoch::null_holds`].
    holds: u32,
    /// Number of locks held on `MPI_PROC_NULL`; such locks nest.
    null_holds: u32,
    /// Ranks to which `MPI_Win_post` has given access to this rank; `None` without an exposure epoch.
    posted: Option<Rc<[u32]>>,
}

impl Epoch {
    pub fn new(ranks: u32) -> Self {
        Epoch {
            access: Access::None,
            held: vec![HeldLock::None; ranks as usize].into(),
            holds: 0,
            null_holds: 0,
            posted: None,
        }
    }

    pub fn is_fenced(&self) -> bool {
        self.access == Access::Fence
    }

    pub fn locked(&self) -> Vec<u32> {
        let held = self.held.iter().zip(0..);
        held.filter(|(held, _)| **held != HeldLock::None).map(|(_, rank)| rank).collect()
    }

    pub fn holds_any(&self) -> bool {
        self.holds != self.null_holds
    }

    /// Returns whether this rank holds locks that other ranks may wait for. A lock with `MPI_MODE_NOCHECK` is not such
    /// a lock, because nothing was locked.
    pub fn keeps_locks(&self) -> bool {
        self.held.iter().any(|held| matches!(held, HeldLock::Shared | HeldLock::Exclusive))
    }

    fn refuse_access(&self) -> Result<(), Refusal> {
        match self.access {
            Access::None | Access::Fence => Ok(()),
            Access::Start(_) => Err(Refusal::InStart),
            Access::Locks => Err(Refusal::InLock),
            Access::LockAll(_) => Err(Refusal::InLockAll),
        }
    }

    pub fn may_fence(&self) -> Result<(), Refusal> {
        self.refuse_access()?;
        match self.posted {
            Some(_) => Err(Refusal::InPost),
            None => Ok(()),
        }
    }

    /// Records a fence. With `more`, accesses may follow. Returns whether all ranks may be accessed before and after.
    pub fn fence(&mut self, more: bool) -> bool {
        let before = self.access == Access::Fence;
        self.access = if more { Access::Fence } else { Access::None };
        before && more
    }

    /// Checks that a lock on `rank`, or on all ranks if `rank` is `None`, may be requested.
    pub fn may_lock(&self, rank: Option<u32>) -> Result<(), Refusal> {
        match (&self.access, rank) {
            (Access::Locks, Some(rank)) => match self.held[rank as usize] {
                HeldLock::None => Ok(()),
                _ => Err(Refusal::LockedAlready),
            },
            _ => self.refuse_access(),
        }
    }

    #[inline]
    pub fn lock(&mut self, rank: u32, held: HeldLock) {
        self.access = Access::Locks;
        self.held[rank as usize] = held;
        self.holds += 1;
    }

    /// Checks that `MPI_PROC_NULL` may be locked. Such locks nest: both neighbors of a rank may be `MPI_PROC_NULL`.
    pub fn may_lock_null(&self) -> Result<(), Refusal> {
        match self.access {
            Access::Locks => Ok(()),
            _ => self.refuse_access(),
        }
    }

    pub fn lock_null(&mut self) {
        self.access = Access::Locks;
        self.null_holds += 1;
        self.holds += 1;
    }

    pub fn unlock_null(&mut self) -> Result<(), Refusal> {
        match (&self.access, self.null_holds) {
            (Access::LockAll(_), _) => return Err(Refusal::InLockAll),
            (_, 0) => return Err(Refusal::NotLocked),
            _ => self.null_holds -= 1,
        }
        self.release_hold();
        Ok(())
    }

    #[inline]
    fn release_hold(&mut self) {
        self.holds -= 1;
        if self.holds == 0 {
            self.access = Access::None;
        }
    }

    /// Records a shared lock taken for an epoch to all ranks that is about to begin.
    pub fn note_shared(&mut self, rank: u32) {
        self.held[rank as usize] = HeldLock::Shared;
        self.holds += 1;
    }

    pub fn lock_all(&mut self, sharing: Sharing) {
        self.access = Access::LockAll(sharing);
    }

    #[inline]
    pub fn may_unlock(&self, rank: u32) -> Result<HeldLock, Refusal> {
        match (&self.access, self.held[rank as usize]) {
            (Access::LockAll(_), _) => Err(Refusal::InLockAll),
            (_, HeldLock::None) => Err(Refusal::NotLocked),
            (_, held) => Ok(held),
        }
    }

    #[inline]
    pub fn unlock(&mut self, rank: u32) {
        self.held[rank as usize] = HeldLock::None;
        self.release_hold();
    }

    /// Returns how the open `MPI_Win_lock_all` epoch shares the window.
    pub fn may_unlock_all(&self) -> Result<Sharing, Refusal> {
        match self.access {
            Access::LockAll(sharing) => Ok(sharing),
            _ => Err(Refusal::NotLockedAll),
        }
    }

    pub fn unlock_all(&mut self) {
        if self.holds != 0 {
            self.held.fill(HeldLock::None);
        }
        (self.holds, self.access) = (0, Access::None);
    }

    pub fn may_start(&self) -> Result<(), Refusal> {
        self.refuse_access()
    }

    /// Records the beginning of an epoch to `ranks`, which are in ascending order.
    pub fn start(&mut self, ranks: Rc<[u32]>) {
        self.access = Access::Start(ranks);
    }

    /// Returns the ranks of the epoch that `MPI_Win_complete` ends.
    pub fn may_complete(&self) -> Result<Rc<[u32]>, Refusal> {
        match &self.access {
            Access::Start(ranks) => Ok(Rc::clone(ranks)),
            _ => Err(Refusal::NoStart),
        }
    }

    pub fn complete(&mut self) {
        self.access = Access::None;
    }

    pub fn may_post(&self) -> Result<(), Refusal> {
        match self.posted {
            Some(_) => Err(Refusal::InPost),
            None => Ok(()),
        }
    }

    pub fn post(&mut self, ranks: Rc<[u32]>) {
        self.posted = Some(ranks);
    }

    /// Returns the ranks that the exposure epoch waits for.
    pub fn posted(&self) -> Result<Rc<[u32]>, Refusal> {
        self.posted.clone().ok_or(Refusal::NoPost)
    }

    pub fn end_post(&mut self) {
        self.posted = None;
    }

    #[inline]
    pub fn permit(&self, rank: u32) -> Result<(), Refusal> {
        match &self.access {
            Access::Fence | Access::LockAll(_) => Ok(()),
            Access::Locks if self.held[rank as usize] != HeldLock::None => Ok(()),
            Access::Start(ranks) => match ranks.binary_search(&rank) {
                Ok(_) => Ok(()),
                Err(_) => Err(Refusal::NotStarted),
            },
            Access::None | Access::Locks => Err(Refusal::NoAccess),
        }
    }

    /// Checks that an epoch that permits an access also permits operations with a request (MPI 5.0, section 12.3.5).
    pub fn may_request(&self) -> Result<(), Refusal> {
        match self.access {
            Access::Fence | Access::Start(_) => Err(Refusal::NotPassive),
            _ => Ok(()),
        }
    }

    /// Checks that a passive target epoch permits a flush of `rank`, or of all ranks if `rank` is `None`.
    pub fn may_flush(&self, rank: Option<u32>) -> Result<(), Refusal> {
        match (&self.access, rank) {
            (Access::LockAll(_), _) | (Access::Locks, None) => Ok(()),
            (Access::Locks, Some(rank)) if self.held[rank as usize] != HeldLock::None => Ok(()),
            _ => Err(Refusal::NotLocked),
        }
    }

    pub fn may_free(&self) -> Result<(), Refusal> {
        self.may_fence()
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn access__needs_an_epoch_to_that_rank() {
        let mut epoch = Epoch::new(4);
        assert_eq!(epoch.permit(0), Err(Refusal::NoAccess));
        assert!(!epoch.fence(true));
        assert_eq!(epoch.permit(3), Ok(()));
        assert!(epoch.fence(true));
        assert!(!epoch.fence(false));
        assert_eq!(epoch.permit(3), Err(Refusal::NoAccess));
        epoch.start([1, 2].into());
        assert_eq!((epoch.permit(1), epoch.permit(2)), (Ok(()), Ok(())));
        assert_eq!(epoch.permit(0), Err(Refusal::NotStarted));
        assert_eq!(epoch.may_complete(), Ok([1, 2].into()));
        epoch.complete();
        assert_eq!(epoch.may_complete(), Err(Refusal::NoStart));
        epoch.lock(2, HeldLock::Exclusive);
        assert_eq!((epoch.permit(2), epoch.permit(1)), (Ok(()), Err(Refusal::NoAccess)));
    }

    #[test]
    fn locks__are_taken_once_for_each_rank() {
        let mut epoch = Epoch::new(3);
        assert_eq!(epoch.may_lock(Some(1)), Ok(()));
        epoch.lock(1, HeldLock::Shared);
        assert_eq!(epoch.may_lock(Some(1)), Err(Refusal::LockedAlready));
        assert_eq!(epoch.may_lock(Some(2)), Ok(()));
        assert_eq!(epoch.may_lock(None), Err(Refusal::InLock));
        epoch.lock(2, HeldLock::Unchecked);
        assert_eq!(epoch.may_unlock(0), Err(Refusal::NotLocked));
        assert_eq!(epoch.may_unlock(2), Ok(HeldLock::Unchecked));
        epoch.unlock(2);
        assert_eq!(
            (epoch.may_flush(Some(2)), epoch.may_flush(Some(1))),
            (Err(Refusal::NotLocked), Ok(()))
        );
        assert_eq!(epoch.may_free(), Err(Refusal::InLock));
        epoch.unlock(1);
        assert_eq!((epoch.may_free(), epoch.may_lock(None)), (Ok(()), Ok(())));
    }

    #[test]
    fn locks__of_null__nest_and_end_the_epoch_of_a_fence() {
        let mut epoch = Epoch::new(2);
        assert_eq!(epoch.unlock_null(), Err(Refusal::NotLocked));
        epoch.fence(true);
        assert_eq!(epoch.may_lock_null(), Ok(()));
        epoch.lock_null();
        assert_eq!((epoch.may_request(), epoch.permit(0)), (Ok(()), Err(Refusal::NoAccess)));
        assert_eq!((epoch.may_lock_null(), epoch.may_lock(Some(1))), (Ok(()), Ok(())));
        epoch.lock_null();
        assert!(!epoch.holds_any() && epoch.locked().is_empty() && !epoch.keeps_locks());
        epoch.lock(1, HeldLock::Shared);
        assert!(epoch.holds_any());
        assert_eq!((epoch.unlock_null(), epoch.unlock_null()), (Ok(()), Ok(())));
        assert_eq!(epoch.unlock_null(), Err(Refusal::NotLocked));
        assert_eq!(epoch.may_free(), Err(Refusal::InLock));
        epoch.unlock(1);
        assert_eq!(epoch.may_free(), Ok(()));
        epoch.lock_all(Sharing::Counted);
        assert_eq!(epoch.may_lock_null(), Err(Refusal::InLockAll));
        assert_eq!(epoch.unlock_null(), Err(Refusal::InLockAll));
    }

    #[test]
    fn lock_all__gives_access_to_every_rank() {
        let mut epoch = Epoch::new(3);
        epoch.lock_all(Sharing::Counted);
        assert_eq!((epoch.permit(0), epoch.permit(2)), (Ok(()), Ok(())));
        assert_eq!(epoch.may_lock(Some(0)), Err(Refusal::InLockAll));
        assert_eq!(epoch.may_unlock(2), Err(Refusal::InLockAll));
        assert_eq!(epoch.may_flush(Some(1)), Ok(()));
        assert_eq!(epoch.may_unlock_all(), Ok(Sharing::Counted));
        epoch.unlock_all();
        assert_eq!(epoch.may_unlock_all(), Err(Refusal::NotLockedAll));
        epoch.note_shared(0);
        epoch.note_shared(1);
        assert_eq!((epoch.locked(), epoch.holds_any()), (vec![0, 1], true));
        epoch.lock_all(Sharing::Locks);
        epoch.unlock_all();
        assert!(!epoch.holds_any());
    }

    #[test]
    fn calls__that_do_not_fit_are_refused() {
        let mut epoch = Epoch::new(2);
        assert_eq!(epoch.may_request(), Ok(()));
        epoch.start([1].into());
        assert_eq!(epoch.may_request(), Err(Refusal::NotPassive));
        assert_eq!(epoch.may_fence(), Err(Refusal::InStart));
        assert_eq!(epoch.may_start(), Err(Refusal::InStart));
        assert_eq!(epoch.may_lock(Some(1)), Err(Refusal::InStart));
        assert_eq!(epoch.may_flush(None), Err(Refusal::NotLocked));
        epoch.complete();
        epoch.post([0].into());
        assert_eq!(epoch.may_post(), Err(Refusal::InPost));
        assert_eq!(
            (epoch.may_fence(), epoch.may_free()),
            (Err(Refusal::InPost), Err(Refusal::InPost))
        );
        assert_eq!(epoch.posted(), Ok([0].into()));
        // A rank may have an exposure epoch and an access epoch open at the same time.
        assert_eq!((epoch.may_start(), epoch.may_lock(Some(0))), (Ok(()), Ok(())));
        epoch.end_post();
        assert_eq!((epoch.posted(), epoch.may_fence()), (Err(Refusal::NoPost), Ok(())));
        // A lock may follow a fence without a second fence, if no access followed the first.
        epoch.fence(true);
        assert_eq!((epoch.may_lock(Some(1)), epoch.may_start()), (Ok(()), Ok(())));
    }
}
