#![allow(unsafe_code)]
//! Needs of a job: system calls, open files, processes. If a container or a limit denies one of them, the job does not
//! start and reports why.

use crate::signals::{InheritedSignals, raise_file_limit};
use fastpath_base::refusal::{ByteSize, describe_call, read_limit};
use fastpath_job::inspect::ProcessEnd;
use std::fmt::Write as _;
use std::io;

/// Descriptors of the launcher itself, including those of a starting rank and a reserve.
const OWN_FILES: u64 = 20;
/// Number of descriptors reserved for files that the launcher has inherited, if the limit can be raised this far.
const INHERITED_FILES: u64 = 108;

/// Checks that the calls which watch and end a job are allowed. A call denied later would leave the job running.
///
/// # Errors
/// The call, the cause, and the remedy.
pub fn check_calls() -> Result<(), String> {
    // SAFETY: the calls read numbers, poll for an ended child, and check whether a signal could be sent. A null status
    // is allowed, and the write has length 0.
    let answers = unsafe {
        let me = libc::getpid();
        [
            // If these two calls are denied, their results hold the errno.
            ("getpid", error_number(me)),
            ("getppid", error_number(libc::getppid())),
            // This process is not its own child, so that the call reaps nothing.
            ("wait4", errno_of(libc::waitpid(me, std::ptr::null_mut(), libc::WNOHANG) as isize)),
            ("kill", errno_of(libc::kill(me, 0) as isize)),
            ("write", errno_of(libc::write(2, [0u8].as_ptr().cast(), 0))),
        ]
    };
    match answers.iter().find(|(_, errno)| matches!(errno, &(libc::EPERM | libc::ENOSYS))) {
        None => Ok(()),
        Some((call, errno)) => {
            let why = describe_call(call, &io::Error::from_raw_os_error(*errno));
            Err(format!("mpiexec could not supervise its ranks: {why}"))
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

#[derive(Clone, Copy, Debug)]
pub struct Need {
    pub ranks: usize,
    /// Number of pipes and files of all ranks that the launcher has open at once.
    pub files: u64,
}

/// Raises the limit on open files to the job's need, and further if allowed.
pub fn limit_files(need: Need, inherited: &InheritedSignals) -> Result<(), String> {
    let files = need.files + OWN_FILES;
    let Some(limit) = inherited.files else {
        return Ok(());
    };
    // If the hard limit is between the need and the need with the reserve, raise the limit to the hard limit.
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
        "mpiexec needs {} open files for {ranks} ranks, and the limit of {limit} is enough for \
         {most} ranks; raise the limit with `ulimit -n`, or start fewer ranks",
        files + OWN_FILES
    )
}

/// Describes why a process of the job could not be created (`clone`).
pub fn describe_clone(cause: &io::Error) -> String {
    match cause.raw_os_error() {
        Some(libc::EAGAIN) => {
            let limit = read_limit(libc::RLIMIT_NPROC);
            let limit = limit.map_or(String::new(), |n| format!(" to {n} for this user"));
            format!(
                "{cause}; the number of processes is limited{limit}: raise `ulimit -u`, or \
                 pids.max of the control group"
            )
        }
        _ => describe_call("clone", cause),
    }
}

/// Describes why a call that creates descriptors for a job failed.
pub fn describe_files(call: &str, cause: &io::Error, need: Need) -> String {
    match cause.raw_os_error() {
        Some(libc::EMFILE) => format!("{call}: {cause}; {}", too_few_files(need)),
        _ => describe_call(call, cause),
    }
}

/// Describes each inherited limit that may have caused a rank's `end`. `early`: the rank ended before `MPI_Init`.
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
        // Exit code of a loader that cannot map a library.
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
            _ => ByteSize(limit).to_string(),
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
        assert!(text.contains("mpiexec needs 34 open files for 7 ranks"), "{text}");
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
