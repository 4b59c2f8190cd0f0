//! Epochs of a window (MPI 5.0, section 12.5): which synchronisation calls may follow which, and whether an access is
//! inside one. Knows nothing of processes or memory.

use std::rc::Rc;

/// A lock that this process has on a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum HeldLock {
    /// None.
    #[default]
    None,
    /// `MPI_LOCK_SHARED`.
    Shared,
    /// `MPI_LOCK_EXCLUSIVE`.
    Exclusive,
    /// Either with `MPI_MODE_NOCHECK`: nothing was taken.
    Unchecked,
}

/// What keeps others from locking exclusively what this process accesses since `MPI_Win_lock_all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Nothing: `MPI_MODE_NOCHECK`.
    Unchecked,
    /// It is counted among those whom all wait for that lock exclusively.
    Counted,
    /// A shared lock of every rank.
    Locks,
}

/// The access epoch that is open.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Access {
    None,
    /// Since a fence: to every rank.
    Fence,
    /// Since `MPI_Win_start`: to these ranks.
    Start(Rc<[u32]>),
    /// To ranks that are locked, one by one.
    Locks,
    /// Since `MPI_Win_lock_all`: to every rank.
    LockAll(Sharing),
}

/// Why a call does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// No epoch gives access to that rank.
    NoAccess,
    /// An operation with a request needs an epoch of a passive target.
    NotPassive,
    /// There is an epoch by `MPI_Win_start`, but not to that rank.
    NotStarted,
    /// A lock on that rank is held already.
    LockedAlready,
    /// No lock on that rank is held.
    NotLocked,
    /// `MPI_Win_lock_all` was not called.
    NotLockedAll,
    /// `MPI_Win_start` was not called.
    NoStart,
    /// `MPI_Win_post` was not called.
    NoPost,
    /// An epoch by `MPI_Win_lock` is open.
    InLock,
    /// An epoch by `MPI_Win_lock_all` is open.
    InLockAll,
    /// An epoch by `MPI_Win_start` is open.
    InStart,
    /// An epoch by `MPI_Win_post` is open.
    InPost,
}

impl Refusal {
    /// In words: what is wrong, and what to do.
    pub fn explain(self) -> (&'static str, &'static str) {
        match self {
            Refusal::NoAccess => (
                "no epoch gives access to this rank",
                "call MPI_Win_lock, MPI_Win_lock_all, MPI_Win_start or MPI_Win_fence first",
            ),
            Refusal::NotPassive => (
                "an operation with a request needs an epoch by MPI_Win_lock or MPI_Win_lock_all",
                "call one of those first, or use the operation without a request",
            ),
            Refusal::NotStarted => (
                "the rank is not in the group that MPI_Win_start was given",
                "add the rank to that group",
            ),
            Refusal::LockedAlready => (
                "this process holds a lock on this rank already",
                "call MPI_Win_unlock before the next MPI_Win_lock",
            ),
            Refusal::NotLocked => (
                "this process holds no lock on this rank",
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
    /// By rank.
    held: Box<[HeldLock]>,
    /// How many are not [`HeldLock::None`], and [`Epoch::null_holds`].
    holds: u32,
    /// Locks of `MPI_PROC_NULL`.
    null_holds: u32,
    /// The ranks that may access this one since `MPI_Win_post`.
    posted: Option<Rc<[u32]>>,
}

impl Epoch {
    /// Of a window of `ranks` ranks, with no epoch open.
    pub fn new(ranks: u32) -> Self {
        Epoch {
            access: Access::None,
            held: vec![HeldLock::None; ranks as usize].into(),
            holds: 0,
            null_holds: 0,
            posted: None,
        }
    }

    /// Whether the open access epoch is that of a fence.
    pub fn is_fenced(&self) -> bool {
        self.access == Access::Fence
    }

    /// The ranks on which locks are held.
    pub fn locked(&self) -> Vec<u32> {
        let held = self.held.iter().zip(0..);
        held.filter(|(held, _)| **held != HeldLock::None).map(|(_, rank)| rank).collect()
    }

    /// Whether a lock of any rank is held.
    pub fn holds_any(&self) -> bool {
        self.holds != self.null_holds
    }

    /// Whether locks are held that others may wait for: not only with `MPI_MODE_NOCHECK`.
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

    /// Whether a fence may be called.
    pub fn may_fence(&self) -> Result<(), Refusal> {
        self.refuse_access()?;
        match self.posted {
            Some(_) => Err(Refusal::InPost),
            None => Ok(()),
        }
    }

    /// A fence has been passed; with `more`, accesses may follow. Says whether every rank may be accessed before and
    /// after alike.
    pub fn fence(&mut self, more: bool) -> bool {
        let before = self.access == Access::Fence;
        self.access = if more { Access::Fence } else { Access::None };
        before && more
    }

    /// Whether a lock on one rank, or on all if none is given, may be requested.
    pub fn may_lock(&self, rank: Option<u32>) -> Result<(), Refusal> {
        match (&self.access, rank) {
            (Access::Locks, Some(rank)) => match self.held[rank as usize] {
                HeldLock::None => Ok(()),
                _ => Err(Refusal::LockedAlready),
            },
            _ => self.refuse_access(),
        }
    }

    /// A lock on one rank has been taken.
    #[inline]
    pub fn lock(&mut self, rank: u32, held: HeldLock) {
        self.access = Access::Locks;
        self.held[rank as usize] = held;
        self.holds += 1;
    }

    /// Whether `MPI_PROC_NULL` may be locked. Such locks nest, because both neighbors of a rank may be `MPI_PROC_NULL`.
    pub fn may_lock_null(&self) -> Result<(), Refusal> {
        match self.access {
            Access::Locks => Ok(()),
            _ => self.refuse_access(),
        }
    }

    /// A lock on `MPI_PROC_NULL` has been taken.
    pub fn lock_null(&mut self) {
        self.access = Access::Locks;
        self.null_holds += 1;
        self.holds += 1;
    }

    /// Gives a lock on `MPI_PROC_NULL` back.
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

    /// A shared lock has been taken for the epoch to all ranks that is to begin.
    pub fn note_shared(&mut self, rank: u32) {
        self.held[rank as usize] = HeldLock::Shared;
        self.holds += 1;
    }

    /// An epoch to all ranks has begun.
    pub fn lock_all(&mut self, sharing: Sharing) {
        self.access = Access::LockAll(sharing);
    }

    /// The lock that ends with `MPI_Win_unlock`.
    #[inline]
    pub fn may_unlock(&self, rank: u32) -> Result<HeldLock, Refusal> {
        match (&self.access, self.held[rank as usize]) {
            (Access::LockAll(_), _) => Err(Refusal::InLockAll),
            (_, HeldLock::None) => Err(Refusal::NotLocked),
            (_, held) => Ok(held),
        }
    }

    /// The lock is given back.
    #[inline]
    pub fn unlock(&mut self, rank: u32) {
        self.held[rank as usize] = HeldLock::None;
        self.release_hold();
    }

    /// What `MPI_Win_lock_all` has taken.
    pub fn may_unlock_all(&self) -> Result<Sharing, Refusal> {
        match self.access {
            Access::LockAll(sharing) => Ok(sharing),
            _ => Err(Refusal::NotLockedAll),
        }
    }

    /// The epoch to all ranks has ended.
    pub fn unlock_all(&mut self) {
        if self.holds != 0 {
            self.held.fill(HeldLock::None);
        }
        (self.holds, self.access) = (0, Access::None);
    }

    /// Whether `MPI_Win_start` may be called.
    pub fn may_start(&self) -> Result<(), Refusal> {
        self.refuse_access()
    }

    /// An epoch to these ranks, which ascend, has begun.
    pub fn start(&mut self, ranks: Rc<[u32]>) {
        self.access = Access::Start(ranks);
    }

    /// The ranks of the epoch that `MPI_Win_complete` ends.
    pub fn may_complete(&self) -> Result<Rc<[u32]>, Refusal> {
        match &self.access {
            Access::Start(ranks) => Ok(Rc::clone(ranks)),
            _ => Err(Refusal::NoStart),
        }
    }

    /// It has ended.
    pub fn complete(&mut self) {
        self.access = Access::None;
    }

    /// Whether `MPI_Win_post` may be called.
    pub fn may_post(&self) -> Result<(), Refusal> {
        match self.posted {
            Some(_) => Err(Refusal::InPost),
            None => Ok(()),
        }
    }

    /// These ranks may access this one.
    pub fn post(&mut self, ranks: Rc<[u32]>) {
        self.posted = Some(ranks);
    }

    /// The ranks that the exposure epoch waits for.
    pub fn posted(&self) -> Result<Rc<[u32]>, Refusal> {
        self.posted.clone().ok_or(Refusal::NoPost)
    }

    /// The exposure epoch has ended.
    pub fn end_post(&mut self) {
        self.posted = None;
    }

    /// Whether a rank may be accessed.
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

    /// Whether operations with a request may be called, where any access is open (MPI 5.0, section 12.3.5).
    pub fn may_request(&self) -> Result<(), Refusal> {
        match self.access {
            Access::Fence | Access::Start(_) => Err(Refusal::NotPassive),
            _ => Ok(()),
        }
    }

    /// Whether a flush of one rank, or of all, may be called: only inside an epoch of a passive target.
    pub fn may_flush(&self, rank: Option<u32>) -> Result<(), Refusal> {
        match (&self.access, rank) {
            (Access::LockAll(_), _) | (Access::Locks, None) => Ok(()),
            (Access::Locks, Some(rank)) if self.held[rank as usize] != HeldLock::None => Ok(()),
            _ => Err(Refusal::NotLocked),
        }
    }

    /// Whether the window may be freed.
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
        // Both sides of an exchange.
        assert_eq!((epoch.may_start(), epoch.may_lock(Some(0))), (Ok(()), Ok(())));
        epoch.end_post();
        assert_eq!((epoch.posted(), epoch.may_fence()), (Err(Refusal::NoPost), Ok(())));
        // A fence that no access follows opens nothing that a lock would have to end.
        epoch.fence(true);
        assert_eq!((epoch.may_lock(Some(1)), epoch.may_start()), (Ok(()), Ok(())));
    }
}
