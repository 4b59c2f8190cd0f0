//! The end of a job: after a fatal error, and at `MPI_Abort`.
#![allow(unsafe_code)]

use crate::process::Process;
use std::io::Write;

/// Ends the job: writes `report` to standard error in one piece, leaves what C's streams still hold,
/// and ends the process with `code`, which the launcher takes as the end of the job.
pub fn abort_job(p: &Process, code: i32, report: &str) -> ! {
    // Only the first abort of a job is told to people; the others are its consequences.
    let first = p.engine().is_none_or(|engine| engine.job.record_abort(code, report));
    let told_by_launcher = p.engine().is_some_and(|engine| engine.job.launcher().is_some());
    if first && !told_by_launcher {
        // Nobody is left to tell when this fails.
        let _ = std::io::stderr().write_all(report.as_bytes());
    }
    // Not `exit`: handlers that the program registered could call MPI again and wait for ever.
    // SAFETY: flushing all streams has no precondition.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    // SAFETY: ends the process.
    unsafe { libc::_exit(fastpath_bootstrap::job::exit_code(code)) }
}
