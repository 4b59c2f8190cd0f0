//! End of a job after a fatal error, and by `MPI_Abort`.
#![allow(unsafe_code)]

use super::report;
use crate::common::consts::{
    MPI_ERR_IN_STATUS, MPI_ERR_INTERN, MPI_ERR_NO_MEM, MPI_ERR_OTHER, MPI_ERR_PROC_ABORTED,
};
use crate::objects::comm::Comm;
use crate::process::{ForkedChild, Process};
use fastpath_base::tell;
use fastpath_job::engine;
use fastpath_job::exit_code;
use std::time::{Duration, Instant};

/// Time that a rank waits for the launcher to end it. The launcher takes a second if the rank ignores the first signal.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time within which the launcher detects a rank's death.
const NEWS: Duration = Duration::from_millis(250);

/// `MPI_Abort`: ends the job for every communicator, as the standard allows. The launcher, if any, prints the report.
pub fn abort_by_program(p: &Process, comm: Option<&Comm>, code: i32) -> ! {
    let job = p.engine().map(|engine| engine.job);
    if let Some(job) = job {
        job.record_abort(code, &report::summarize_abort(p, comm));
    }
    if job.is_none_or(|job| job.launcher().is_none()) {
        tell::lines(&report::describe_abort(p, comm, code));
    }
    end_process(code)
}

/// Ends the job after a fatal error: writes `report` to standard error in one piece. If several ranks fail at the same
/// time, the first writes its whole report, and the others write one line. An error after the failure of another rank
/// is most likely a consequence of that failure. This rank then waits for the launcher, which reports the first failure
/// and ends this rank before this rank prints more.
pub fn abort_after_error(p: &Process, code: i32, report: &str) -> ! {
    let job = p.engine().map(|engine| engine.job);
    if let Some(job) = job.filter(|job| job.is_watched()) {
        if may_follow_a_death(p.codes.class(code)) {
            wait_until(NEWS, || job.has_failed());
        }
        if job.has_failed() {
            wait_until(TIMEOUT, || false);
        }
    }
    let is_first = job.is_none_or(|job| job.record_abort(code, ""));
    if is_first {
        tell::lines(report);
    } else {
        let headline = report.lines().next().unwrap_or_default();
        tell::lines(&format!("{headline}, after the failure of another rank\n"));
    }
    end_process(code)
}

/// Returns whether a peer's death can cause an error of this class: the peer's memory may disappear before the launcher
/// detects the death. The error of a wrong call does not depend on peers, and is reported at once. The error of a call
/// of several requests may have either cause.
fn may_follow_a_death(class: i32) -> bool {
    matches!(
        class,
        MPI_ERR_OTHER | MPI_ERR_INTERN | MPI_ERR_IN_STATUS | MPI_ERR_PROC_ABORTED | MPI_ERR_NO_MEM
    )
}

fn wait_until(limit: Duration, done: impl Fn() -> bool) {
    let since = Instant::now();
    while !done() && since.elapsed() < limit {
        // SAFETY: the set of descriptors is empty. The call takes ten milliseconds, or less if a signal comes.
        unsafe { libc::poll(std::ptr::null_mut(), 0, 10) };
    }
}

/// Ends this process without ending the job: in a job that tolerates failures, the other ranks see a death. Writes
/// `report` to standard error.
pub(crate) fn end_this_process(report: &str) -> ! {
    tell::lines(report);
    // SAFETY: neither call has a precondition.
    unsafe {
        libc::fflush(std::ptr::null_mut());
        libc::_exit(1)
    }
}

fn end_process(code: i32) -> ! {
    // `exit` is avoided: handlers that the program registered could call MPI again and wait forever.
    // SAFETY: flushing all streams has no precondition.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    // A forked child does not end the job.
    if ForkedChild::find().is_none() {
        engine::abort_job(exit_code(code));
    }
    // SAFETY: `_exit` has no precondition.
    unsafe { libc::_exit(exit_code(code)) }
}
