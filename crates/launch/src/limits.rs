#![allow(unsafe_code)]
//! What a job needs of the system: calls, open files, processes. Where a container or a limit refuses one of them, the
//! job does not start and says why.

use crate::signals::{Inherited, raise_file_limit};
use fastpath_base::refusal::{Bytes, describe_call, read_limit};
use fastpath_bootstrap::inspect::ProcessEnd;
use std::fmt::Write as _;
use std::io;

/// Descriptors of the launcher itself, those of a rank that starts among them, with some to spare.
const OWN_FILES: u64 = 20;
/// Descriptors for those that the launcher has inherited, where the limit can be raised so far.
const INHERITED_FILES: u64 = 108;

/// Looks whether the calls by which a job is watched and ended are allowed. Refused later, they would leave it running.
///
/// # Errors
/// The call, the cause, and what to do.
pub fn check_calls() -> Result<(), String> {
    // SAFETY: plain calls: they ask for numbers, for a child that has ended and whether a signal could be sent, and
    // write nothing.
    let answers = unsafe {
        let me = libc::getpid();
        [
            // These two have no errno: they return it.
            ("getpid", error_number(me)),
            ("getppid", error_number(libc::getppid())),
            ("wait4", errno_of(libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) as isize)),
            ("kill", errno_of(libc::kill(me, 0) as isize)),
            ("write", errno_of(libc::write(2, [0u8].as_ptr().cast(), 0))),
        ]
    };
    match answers.iter().find(|(_, errno)| matches!(errno, &(libc::EPERM | libc::ENOSYS))) {
        None => Ok(()),
        Some((call, errno)) => {
            let why = describe_call(call, &io::Error::from_raw_os_error(*errno));
            Err(format!("the job could not be watched: {why}"))
        }
    }
}

fn error_number(rc: libc::pid_t) -> i32 {
    rc.checked_neg().unwrap_or(0).max(0)
}

fn errno_of(rc: isize) -> i32 {
    match rc {
        -1 => io::Error::last_os_error().raw_os_error().unwrap_or(0),
        _ => 0,
    }
}

/// What a job needs of the launcher.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// Ranks.
    pub ranks: usize,
    /// Pipes and files for all of them that are open at once.
    pub files: u64,
}

/// Raises the limit on open files as far as the job needs it, and somewhat beyond where that is allowed.
///
/// # Errors
/// It is too low, and may not be raised.
pub fn limit_files(need: Need, inherited: &Inherited) -> Result<(), String> {
    let files = need.files + OWN_FILES;
    let Some(limit) = inherited.files else {
        return Ok(());
    };
    // As far as the hard limit where it lies between the two.
    let far = (files + INHERITED_FILES).min(limit.rlim_max.max(files));
    let enough = [files + INHERITED_FILES, far].map(|files| raise_file_limit(limit, files));
    match enough.contains(&true) {
        true => Ok(()),
        false => Err(too_few_files(need)),
    }
}

fn too_few_files(need: Need) -> String {
    let Need { ranks, files } = need;
    let limit = read_limit(libc::RLIMIT_NOFILE).unwrap_or(0);
    let most = limit.saturating_sub(OWN_FILES) * ranks as u64 / files.max(1);
    format!(
        "{ranks} ranks need {} open files in the launcher, allowed are {limit} (`ulimit -n`), \
         enough for {most} ranks",
        files + OWN_FILES
    )
}

/// Says why a process of the job could not be made (`clone`).
pub fn describe_clone(cause: &io::Error) -> String {
    match cause.raw_os_error() {
        Some(libc::EAGAIN) => {
            let limit = read_limit(libc::RLIMIT_NPROC);
            let limit = limit.map_or(String::new(), |n| format!(" to {n} for this user"));
            format!(
                "{cause}; the number of processes is limited{limit} (`ulimit -u`, or the control \
                 group's pids.max)"
            )
        }
        _ => describe_call("clone", cause),
    }
}

/// Says why a call failed that makes descriptors for a job.
pub fn describe_files(call: &str, cause: &io::Error, need: Need) -> String {
    match cause.raw_os_error() {
        Some(libc::EMFILE) => format!("{call}: {cause}; {}", too_few_files(need)),
        _ => describe_call(call, cause),
    }
}

/// A line on each limit that may have ended a rank so, as the launcher has handed it on; `early`: before `MPI_Init`.
pub fn describe_limits(end: Option<ProcessEnd>, early: bool) -> String {
    let memory =
        [(libc::RLIMIT_AS, "address space", "-v"), (libc::RLIMIT_DATA, "private memory", "-d")];
    let suspects: &[_] = match end {
        Some(ProcessEnd::Signal(libc::SIGKILL | libc::SIGXCPU, _)) => {
            &[(libc::RLIMIT_CPU, "processor time", "-t")]
        }
        Some(ProcessEnd::Signal(libc::SIGXFSZ, _)) => {
            &[(libc::RLIMIT_FSIZE, "size of files", "-f")]
        }
        Some(ProcessEnd::Signal(libc::SIGABRT, _)) => &memory,
        // The code of a loader that cannot map a library.
        Some(ProcessEnd::Exit(127)) if early => &memory,
        _ => &[],
    };
    let mut text = String::new();
    for &(resource, what, option) in suspects {
        let Some(limit) = read_limit(resource) else {
            continue;
        };
        let amount = match resource {
            libc::RLIMIT_CPU => format!("{limit} s"),
            _ => Bytes(limit).to_string(),
        };
        let _ = writeln!(
            text,
            "mpiexec:   the {what} of a process is limited to {amount} (`ulimit {option}`)"
        );
    }
    text
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn calls__are_allowed_here() {
        assert_eq!(check_calls(), Ok(()));
    }

    #[test]
    fn files__that_are_missing_are_counted() {
        let need = Need { ranks: 7, files: 14 };
        let text = describe_files("pipe2", &io::Error::from_raw_os_error(libc::EMFILE), need);
        assert!(text.contains("7 ranks need 34 open files"), "{text}");
        let limit = read_limit(libc::RLIMIT_NOFILE).unwrap_or(0);
        let most = limit.saturating_sub(OWN_FILES) / 2;
        assert!(text.contains(&format!("enough for {most} ranks")), "{text}");
    }

    #[test]
    fn limits__are_told_of_where_they_can_be_the_cause() {
        let expected = match read_limit(libc::RLIMIT_CPU) {
            Some(limit) => format!("limited to {limit} s (`ulimit -t`)"),
            None => String::new(),
        };
        let told = describe_limits(Some(ProcessEnd::Signal(libc::SIGXCPU, false)), false);
        assert!(told.contains(&expected) && told.is_empty() == expected.is_empty());
        assert_eq!(describe_limits(Some(ProcessEnd::Exit(127)), false), "");
        assert_eq!(describe_limits(Some(ProcessEnd::Signal(libc::SIGSEGV, false)), true), "");
    }

    #[test]
    fn processes__that_are_refused_are_explained_by_the_cause() {
        let text = |errno| describe_clone(&io::Error::from_raw_os_error(errno));
        assert!(text(libc::EAGAIN).contains("ulimit -u"));
        assert!(text(libc::EPERM).contains("clone") && text(libc::EPERM).contains("seccomp"));
    }
}
