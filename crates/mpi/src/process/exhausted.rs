//! The end of a job of which a rank has no memory left: the report names the call, the bytes, what holds memory and the
//! settings that bound it.
#![allow(unsafe_code)]

use crate::check::caller::Call;
use crate::common::consts::MPI_ERR_NO_MEM;
use crate::common::error::Error;
use crate::process::errhandler::{abort, report};
use crate::process::{self, Process};
use fastpath_base::heap::set_handler;
use fastpath_base::refusal::{Bytes, read_limit};
use fastpath_base::topology::available_memory;

/// Has an allocation of the library that fails end the job with a report.
pub fn install() {
    set_handler(end_job);
}

#[cold]
fn end_job(bytes: usize) -> ! {
    // SAFETY: the process ends; what is read of it are counters.
    let p = unsafe { process::get_unlocked() };
    let call = Call::find(None).map_or("an MPI call", |call| call.name());
    let mut cause = format!("no memory for {bytes} bytes: {}", describe_limits());
    let mut advice = "raise the limit, or use fewer ranks";
    if let Some((messages, held)) = unexpected_usage(p).filter(|&(messages, _)| messages != 0) {
        cause += &format!(
            "; {messages} unexpected messages of {} in all, which no receive has asked for, are \
             kept in this rank's memory",
            Bytes(held)
        );
        advice = "post the receives earlier, lower FASTPATH_UNEXPECTED_MAX, which bounds the \
                  memory of unexpected messages (a wait that needs messages behind them takes \
                  more), or raise the limit";
    }
    let error = Error::new(MPI_ERR_NO_MEM, cause).with_advice(Some(advice));
    let text = report::describe(p, call, &error, None);
    abort::abort_after_error(p, MPI_ERR_NO_MEM, &text)
}

/// Unexpected messages of the first worker, and the bytes that they take.
fn unexpected_usage(p: &Process) -> Option<(u64, u64)> {
    // SAFETY: the worker lives as long as the engine; two counters are read.
    p.engine().map(|engine| unsafe { (*engine.worker()).unexpected_usage() })
}

/// What limits the memory of this process.
fn describe_limits() -> String {
    let limits = [
        (libc::RLIMIT_AS, "address space", "ulimit -v"),
        (libc::RLIMIT_DATA, "private memory", "ulimit -d"),
    ];
    let limits = limits.into_iter().filter_map(|(resource, what, command)| {
        let limit = Bytes(read_limit(resource)?);
        Some(format!("the {what} of this process is limited to {limit} (`{command}`)"))
    });
    let limits: Vec<String> = limits.collect();
    match limits.is_empty() {
        true => format!("the system has {} left", Bytes(available_memory())),
        false => limits.join(", "),
    }
}
