//! End of a job in which a rank runs out of memory. The report names the call, the bytes, the largest user of memory
//! and the settings that limit it.
#![allow(unsafe_code)]

use crate::check::caller::CallFrames;
use crate::common::consts::MPI_ERR_NO_MEM;
use crate::common::error::Error;
use crate::process::errhandler::{abort, report};
use crate::process::{self, Process};
use fastpath_base::heap::set_handler;
use fastpath_base::refusal::{ByteSize, read_limit};
use fastpath_base::tell::count;
use fastpath_base::topology::available_memory;

/// Makes a failed allocation of the library end the job with a report.
pub fn install() {
    set_handler(end_job);
}

#[cold]
fn end_job(bytes: usize) -> ! {
    // SAFETY: the process ends, and this code reads only counters of it.
    let p = unsafe { process::get_unlocked() };
    let call = CallFrames::find(None).map_or("an MPI call", |call| call.name());
    let limits = list_limits();
    let mut cause = format!("no memory for {bytes} bytes: {}", describe_limits(&limits));
    let (mut raise, mut instead) = ("raise this limit", "use fewer ranks on this host");
    if limits.is_empty() {
        (raise, instead) = (instead, "use a host with more memory");
    }
    let mut advice = format!("{raise}, or {instead}");
    if let Some((messages, held)) = unexpected_usage(p).filter(|&(messages, _)| messages != 0) {
        cause += &format!(
            "; {} of {} in total are stored in this rank",
            count(messages, "unexpected message"),
            ByteSize(held)
        );
        advice = format!(
            "post the receives earlier, lower FASTPATH_UNEXPECTED_MAX (limit for the bytes of a \
             rank's unexpected messages), or {raise}"
        );
    }
    let error = Error::new(MPI_ERR_NO_MEM, cause).with_advice(Some(advice));
    let text = report::describe(p, call, &error, None);
    abort::abort_after_error(p, MPI_ERR_NO_MEM, &text)
}

fn unexpected_usage(p: &Process) -> Option<(u64, u64)> {
    // SAFETY: the worker lives as long as the engine, and only two counters are read.
    p.engine().map(|engine| unsafe { (*engine.worker()).unexpected_usage() })
}

/// Describes the memory limits that are set for this process.
fn list_limits() -> Vec<String> {
    let limits = [
        (libc::RLIMIT_AS, "address space", "ulimit -v"),
        (libc::RLIMIT_DATA, "private memory", "ulimit -d"),
    ];
    let limits = limits.into_iter().filter_map(|(resource, what, command)| {
        let limit = ByteSize(read_limit(resource)?);
        Some(format!("the {what} of this process is limited to {limit} (`{command}`)"))
    });
    limits.collect()
}

fn describe_limits(limits: &[String]) -> String {
    match limits.is_empty() {
        true => format!("the system has {} left", ByteSize(available_memory())),
        false => limits.join(", "),
    }
}
