#![allow(unsafe_code)]
//! How a process learns which rank it is, and how it takes that place.

use super::BootstrapError;
use crate::segment::{Phase, RankPage, Segment, SegmentError};
use fastpath_base::sync::Ordering;
use std::fmt;
use std::fs::OpenOptions;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// The variable in which the launcher identifies a rank.
pub const JOB_VARIABLE: &str = "FASTPATH_INTERNAL_JOB";

/// What the variable says, as `1,FD,RANK,LAUNCHER,JOB[,LISTENER...]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Descriptor of the segment, in the launcher and (unless closed on the way) in the rank.
    pub fd: RawFd,
    /// The rank.
    pub rank: usize,
    /// The launcher's process number.
    pub launcher: u32,
    /// The job's number.
    pub job_id: u64,
    /// Descriptors of the sockets that listen for this rank, where some were opened for it.
    pub listeners: Vec<RawFd>,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1,{},{},{},{:016x}", self.fd, self.rank, self.launcher, self.job_id)?;
        self.listeners.iter().try_for_each(|fd| write!(f, ",{fd}"))
    }
}

impl Identity {
    /// Reads the variable's text; None when it is malformed.
    pub fn parse(text: &str) -> Option<Identity> {
        let fields: Vec<&str> = text.split(',').collect();
        let ["1", fd, rank, launcher, job_id, ref listeners @ ..] = fields[..] else {
            return None;
        };
        let read_fd = |text: &str| text.parse().ok().filter(|&fd: &RawFd| fd >= 0);
        Some(Identity {
            fd: read_fd(fd)?,
            listeners: listeners.iter().map(|text| read_fd(text)).collect::<Option<_>>()?,
            rank: rank.parse().ok()?,
            launcher: launcher.parse().ok().filter(|&pid| pid > 0)?,
            job_id: u64::from_str_radix(job_id, 16).ok()?,
        })
    }

    /// The segment, by the inherited descriptor or, where a program on the way has closed or
    /// reused that, by the launcher's table of open files.
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
                "descriptor {} is not the job's, and /proc/{}/fd/{} gives: {cause}",
                self.fd, self.launcher, self.fd
            ))
        })?;
        match Segment::attach(found, self.job_id) {
            Err(SegmentError::Foreign(why)) => Err(BootstrapError::NoSegment(why)),
            other => Ok(other?),
        }
    }

    /// A copy of the inherited descriptor that closes on exec.
    fn copy_inherited(&self) -> Option<OwnedFd> {
        // Not by its own number as the least: a program on the way may have lowered the limit on open files below it.
        // SAFETY: plain fcntl; on a descriptor that is not open it fails.
        let copy = unsafe { libc::fcntl(self.fd, libc::F_DUPFD_CLOEXEC, 3) };
        // SAFETY: the copy is new and nobody else's.
        (copy >= 0).then(|| unsafe { OwnedFd::from_raw_fd(copy) })
    }

    /// A child of this rank is not to hold the job's memory.
    fn close_inherited_on_exec(&self) {
        // SAFETY: plain fcntl on an open descriptor, which was found to be the job's memory.
        unsafe { libc::fcntl(self.fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }

    pub(super) fn open_from_launcher(&self) -> std::io::Result<OwnedFd> {
        let path = format!("/proc/{}/fd/{}", self.launcher, self.fd);
        OpenOptions::new().read(true).write(true).open(path).map(OwnedFd::from)
    }
}

/// Outcome of [`claim_rank`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// The rank is this process.
    Ours,
    /// A process that this one descends from has it.
    Ancestor,
    /// Some other process has it, or had it.
    Taken(u32),
}

/// Takes the rank for this process, unless it is taken.
pub(super) fn claim_rank(page: &RankPage) -> Claim {
    let me = std::process::id();
    // ORDERING: relaxed; the claim is between processes that share nothing else yet.
    match page.owner_pid.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => Claim::Ours,
        // The process attached before, without going further, and replaced itself by exec.
        Err(owner) if owner == me && page.phase() < Phase::Initialized => Claim::Ours,
        Err(owner) if owner != me && is_ancestor(owner, me) => Claim::Ancestor,
        Err(owner) => Claim::Taken(owner),
    }
}

/// Is `ancestor` among the parents of `process`?
pub(super) fn is_ancestor(ancestor: u32, process: u32) -> bool {
    let mut current = process;
    for _ in 0..1000 {
        let Some(parent) = parent_of(current) else {
            return false;
        };
        if parent == ancestor {
            return true;
        }
        if parent == 0 {
            return false;
        }
        current = parent;
    }
    false
}

pub(super) fn parent_of(process: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may hold anything, so count from the last one.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// A number that identifies a job.
pub fn random_job_id() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: the buffer is writable for its length.
    let got =
        unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), libc::GRND_NONBLOCK) };
    if got == 8 {
        return u64::from_ne_bytes(bytes);
    }
    // Early in boot only: unique on this machine, if not secret.
    fastpath_base::clock::now_ns() ^ (u64::from(std::process::id()) << 40)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn identity__round_trips() {
        let id = Identity { fd: 57, rank: 3, launcher: 1234, job_id: 0xabc, listeners: Vec::new() };
        assert_eq!(Identity::parse(&id.to_string()).as_ref(), Some(&id));
        let heard = Identity { listeners: vec![9, 12], ..id };
        assert_eq!(Identity::parse(&heard.to_string()), Some(heard));
    }

    #[test]
    fn identity__refuses_malformed_text() {
        for text in [
            "",
            "1",
            "2,3,0,1,0",
            "1,-1,0,1,0",
            "1,3,-1,1,0",
            "1,3,0,0,0",
            "1,3,0,1,xyz",
            "1,3,0,1,0,-1",
            "1,3,0,1,0,",
            "1,3,0,1,0,0,a",
            "1,99999999999,0,1,0",
        ] {
            assert_eq!(Identity::parse(text), None, "{text}");
        }
    }

    #[test]
    fn ancestors__are_found() {
        let me = std::process::id();
        assert!(is_ancestor(parent_of(me).unwrap(), me));
        assert!(!is_ancestor(me, me));
    }

    #[test]
    fn job_ids__differ() {
        assert_ne!(random_job_id(), random_job_id());
    }

    #[test]
    fn fuzz__identity_is_understood_or_refused() {
        let corpus: &[&[u8]] = &[
            b"1,57,3,1234,0000000000000abc",
            b"1,0,0,1,0",
            b"1,3,2,1234,abc,12",
            b"2,57,3,1234,abc",
        ];
        crate::mutate::run(corpus, |input| {
            let Some(id) = Identity::parse(&String::from_utf8_lossy(input)) else {
                return;
            };
            assert!(id.fd >= 0 && id.launcher > 0);
            assert_eq!(Identity::parse(&id.to_string()), Some(id));
        });
    }
}
