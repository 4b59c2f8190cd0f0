#![allow(unsafe_code)]
//! Identities of ranks: the one that a launcher gives to its rank, and the one that is valid in all jobs.

use std::fmt;
use std::os::fd::RawFd;

/// Variable by which the launcher tells a process which rank it is.
pub const JOB_VARIABLE: &str = "FASTPATH_INTERNAL_JOB";

/// Content of the variable: `1,FD,RANK,LAUNCHER,JOB[,LISTENER...]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Descriptor of the segment in the launcher. The rank has it too, unless an intermediate process closed it.
    pub fd: RawFd,
    /// The rank.
    pub rank: usize,
    /// The launcher's process number.
    pub launcher: u32,
    /// The job's number.
    pub job_id: u64,
    /// Descriptors of this rank's listening sockets, if any were opened.
    pub listeners: Vec<RawFd>,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1,{},{},{},{:016x}", self.fd, self.rank, self.launcher, self.job_id)?;
        self.listeners.iter().try_for_each(|fd| write!(f, ",{fd}"))
    }
}

impl Identity {
    /// Parses the variable's text; `None` if it is malformed.
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
}

/// Identity of a rank that is valid in all jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// Number of the job that the rank belongs to.
    pub job: u64,
    /// Number of the rank in that job.
    pub rank: u32,
}

/// Returns a random number that identifies a job.
pub fn random_job_id() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: the buffer is writable for its length.
    let got =
        unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), libc::GRND_NONBLOCK) };
    if got == 8 {
        return u64::from_ne_bytes(bytes);
    }
    // Reached only early in boot. The number is unique on this machine, but not secret.
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
