//! The end of a job: after a fatal error, and at `MPI_Abort`.
#![allow(unsafe_code)]

use super::report;
use crate::common::consts::{
    MPI_ERR_IN_STATUS, MPI_ERR_INTERN, MPI_ERR_NO_MEM, MPI_ERR_OTHER, MPI_ERR_PROC_ABORTED,
};
use crate::objects::comm::Comm;
use crate::process::{ForkedChild, Process};
use fastpath_base::tell;
use fastpath_bootstrap::engine;
use fastpath_bootstrap::job::exit_code;
use std::time::{Duration, Instant};

/// How long a rank waits for the launcher to end it. The launcher needs a second for ranks that do not
/// follow its first signal.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long the news of a death may take to the launcher.
const NEWS: Duration = Duration::from_millis(250);

/// `MPI_Abort`: ends the job, whatever the communicator, as the standard allows. What there is to say is
/// said once, by the launcher if there is one.
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

/// Ends the job after an error that is fatal: writes `report` to standard error in one piece. Of all
/// ranks that do so at the same time the first writes its whole report, the others one line. An
/// error after the failure of another rank is most likely its consequence: the launcher says what
/// failed first, and ends this rank before it says more.
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

/// Whether a peer's end can cause an error of this class: its memory can be found gone before the launcher knows of it.
/// A wrong call needs no peer, and is reported at once; what a call of several requests reports may be either.
fn may_follow_a_death(class: i32) -> bool {
    matches!(
        class,
        MPI_ERR_OTHER | MPI_ERR_INTERN | MPI_ERR_IN_STATUS | MPI_ERR_PROC_ABORTED | MPI_ERR_NO_MEM
    )
}

/// Waits until `done`, at most for `limit`.
fn wait_until(limit: Duration, done: impl Fn() -> bool) {
    let since = Instant::now();
    while !done() && since.elapsed() < limit {
        // SAFETY: an empty set of descriptors; ten milliseconds, or less where a signal comes.
        unsafe { libc::poll(std::ptr::null_mut(), 0, 10) };
    }
}

/// Leaves what C's streams still hold, and ends the process.
fn end_process(code: i32) -> ! {
    // Not `exit`: handlers that the program registered could call MPI again and wait for ever.
    // SAFETY: flushing all streams has no precondition.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    // The job goes on without a forked child.
    if ForkedChild::find().is_none() {
        engine::abort_job(exit_code(code));
    }
    // SAFETY: ends the process.
    unsafe { libc::_exit(exit_code(code)) }
}
