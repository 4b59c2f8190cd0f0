//! The end of a job: after a fatal error, and at `MPI_Abort`.
#![allow(unsafe_code)]

use super::report;
use crate::comm::Comm;
use crate::process::Process;
use fastpath_bootstrap::job::exit_code;
use std::io::Write;

/// `MPI_Abort`: ends the job, whatever the communicator, as the standard allows.
pub fn abort_by_program(p: &Process, comm: Option<&Comm>, code: i32) -> ! {
    abort_job(p, code, "", &report::describe_abort(p, comm, code))
}

/// Ends the job: leaves `summary` to the launcher, writes `report` to standard error in one piece, leaves what C's
/// streams still hold, and ends the process with `code`. Of all ranks that do so at the same time the
/// first writes its whole report, the others its first line.
pub fn abort_job(p: &Process, code: i32, summary: &str, report: &str) -> ! {
    let headline = report.split_inclusive('\n').next().unwrap_or_default();
    let is_first = p
        .engine()
        .is_none_or(|engine| engine.job.record_abort(code, summary));
    let text = if is_first { report } else { headline };
    // Nobody is left to tell when this fails.
    let _ = std::io::stderr().write_all(text.as_bytes());
    // Not `exit`: handlers that the program registered could call MPI again and wait for ever.
    // SAFETY: flushing all streams has no precondition.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    // SAFETY: ends the process.
    unsafe { libc::_exit(exit_code(code)) }
}
