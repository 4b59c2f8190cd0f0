#![allow(unsafe_code)]
//! Attachment of a process started by our launcher: it finds the memory of its job and claims its rank.

use super::error::BootstrapError;
use crate::detect::ancestors::is_ancestor;
use crate::identity::Identity;
use fastpath_base::sync::Ordering;
use fastpath_base::wait::futex_wait;
use fastpath_segment::{RankPage, RankPhase, Segment, SegmentError};
use std::fs::OpenOptions;
use std::os::fd::{FromRawFd, OwnedFd};

impl Identity {
    /// Opens the segment by the inherited descriptor. If an intermediate program has closed or reused the descriptor,
    /// the function opens the segment through the launcher's table of open files.
    pub(super) fn open_segment(&self) -> Result<Segment, BootstrapError> {
        let inherited = self.copy_inherited().map(|file| Segment::attach(file, self.job_id));
        match inherited {
            Some(Ok(segment)) => {
                self.close_inherited_on_exec();
                return Ok(segment);
            }
            None | Some(Err(SegmentError::Foreign(_))) => {}
            Some(Err(e)) => return Err(e.into()),
        }
        let found = self.open_from_launcher().map_err(|cause| {
            BootstrapError::NoSegment(format!(
                "descriptor {} is not the job's memory, and mpiexec's copy, /proc/{}/fd/{}, cannot \
                 be opened: {cause}",
                self.fd, self.launcher, self.fd
            ))
        })?;
        match Segment::attach(found, self.job_id) {
            Err(SegmentError::Foreign(why)) => Err(BootstrapError::NoSegment(why)),
            other => Ok(other?),
        }
    }

    /// Copies the inherited descriptor; the copy closes on exec.
    fn copy_inherited(&self) -> Option<OwnedFd> {
        // The lowest number is 3, not `fd`: an intermediate program may have lowered the file limit below `fd`.
        // SAFETY: plain fcntl, which fails on a closed descriptor.
        let copy = unsafe { libc::fcntl(self.fd, libc::F_DUPFD_CLOEXEC, 3) };
        // SAFETY: the copy is new and has no other owner.
        (copy >= 0).then(|| unsafe { OwnedFd::from_raw_fd(copy) })
    }

    fn close_inherited_on_exec(&self) {
        // SAFETY: plain fcntl on an open descriptor, which was found to refer to the job's memory.
        unsafe { libc::fcntl(self.fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }

    pub(super) fn open_from_launcher(&self) -> std::io::Result<OwnedFd> {
        let path = format!("/proc/{}/fd/{}", self.launcher, self.fd);
        OpenOptions::new().read(true).write(true).open(path).map(OwnedFd::from)
    }
}

/// Waits while the launcher holds the ranks for a debugger.
pub(super) fn await_release(segment: &Segment) {
    let word = &segment.header().is_held;
    // ORDERING: acquire, partner is the release of the launcher. No other data is passed.
    while word.load(Ordering::Acquire) != 0 {
        futex_wait(word, 1, None);
    }
}

/// Outcome of [`claim_rank`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// This process has the rank.
    Ours,
    /// An ancestor of this process has the rank.
    Ancestor,
    /// Another process, with this number, has or had the rank.
    Taken(u32),
}

/// Claims the rank for this process, unless it is taken.
pub(super) fn claim_rank(page: &RankPage) -> Claim {
    let me = std::process::id();
    // ORDERING: relaxed; the claimants share nothing else yet.
    match page.owner_pid.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => Claim::Ours,
        // The process attached before, did not initialize MPI, and replaced itself by exec.
        Err(owner) if owner == me && page.phase() < RankPhase::Initialized => Claim::Ours,
        Err(owner) if owner != me && is_ancestor(owner, me) => Claim::Ancestor,
        Err(owner) => Claim::Taken(owner),
    }
}
