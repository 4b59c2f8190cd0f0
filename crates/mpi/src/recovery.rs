//! Recovery after failures (ULFM): revocation, agreement and shrinking of communicators
//! (docs/decisions/0098). [`crate::process::failures`] detects failures.
#![allow(unsafe_code)]

mod agreement;
mod deaths;
mod notices;
mod operation;
mod revoke;
mod shrink;

pub use agreement::agree;
pub(crate) use agreement::is_needed;
pub use operation::{start_agree, start_shrink};
pub use revoke::revoke;
pub use shrink::shrink;

use crate::common::error::Result;
use crate::objects::comm::Comm;
use crate::objects::group::Group;
use crate::process::Process;
use crate::process::failures::{self, FailureHooks};
use fastpath_base::sync::Ordering;
use fastpath_protocol::Worker;
use std::ffi::c_int;
use std::ptr;

/// Lets this process take part in agreements and revocations, and survive the deaths of others if the job `tolerates`
/// failures. Called by initialisation, before the first communicator is made. `after_deaths` is called after
/// communicators have become broken.
pub(crate) fn start(p: &Process, worker: &mut Worker, tolerates: bool, after_deaths: fn(&Process)) {
    notices::set_after_deaths(p, after_deaths);
    let hooks = FailureHooks {
        on_deaths: notices::report_deaths,
        on_comm: notices::deliver,
        on_disconnect: agreement::drop_of_comm,
    };
    failures::start(p, hooks, tolerates);
    worker.hooks.on_notice = Some(notices::receive);
    if !tolerates {
        return;
    }
    worker.hooks.seeks_ends = true;
    worker.hooks.on_ends = Some(notices::note_ends);
    p.environment.tolerates_failures.set(1);
    worker.job.header().tolerates_failures.store(1, Ordering::Relaxed);
    if worker.job.header().launcher.load(Ordering::Relaxed) == 0 {
        ignore_user_signal();
    }
}

/// Keeps SIGUSR1 from ending this process, unless the program handles that signal. Hydra sends it to the other ranks
/// after a rank has ended.
fn ignore_user_signal() {
    extern "C" fn ignore(_: c_int) {}
    // SAFETY: both structures are valid, and the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let is_default = libc::sigaction(libc::SIGUSR1, ptr::null(), &mut action) == 0
            && action.sa_sigaction == libc::SIG_DFL;
        if is_default {
            action.sa_sigaction = ignore as extern "C" fn(c_int) as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(libc::SIGUSR1, &action, ptr::null_mut());
        }
    }
}

/// Drops the state of an exiting process.
pub(crate) fn drop_all(p: &Process) {
    notices::drop_all(p);
}

/// Looks for failures once, for a call that reports them.
fn look(p: &Process) -> Result {
    if failures::is_on() {
        // SAFETY: the worker lives while MPI runs, and no other reference to it exists.
        let worker = unsafe { &mut *p.worker()? };
        worker.progress();
        failures::note_failures(p, worker);
    }
    Ok(())
}

fn group_of(comm: &Comm, ranks: Vec<u32>) -> Group {
    Group::new(ranks, comm.my_world_rank())
}

/// `MPIX_Comm_get_failed`: the members of both groups that have died, in the order in which this process detected them.
pub fn get_failed(p: &Process, comm: &Comm) -> Result<Group> {
    look(p)?;
    Ok(group_of(comm, comm.faults.failed().clone()))
}

/// `MPIX_Comm_ack_failed`: acknowledges the first `count` members that [`get_failed`] returns. Returns the number of
/// acknowledged members, which never shrinks.
pub fn acknowledge(p: &Process, comm: &Comm, count: usize) -> Result<usize> {
    look(p)?;
    Ok(comm.faults.acknowledge(count))
}

/// `MPIX_Comm_failure_get_acked`: the acknowledged members.
pub fn get_acknowledged(comm: &Comm) -> Group {
    group_of(comm, comm.faults.acknowledged())
}

/// `MPIX_Comm_is_revoked`.
pub fn is_revoked(p: &Process, comm: &Comm) -> Result<bool> {
    look(p)?;
    Ok(comm.faults.revoked.get())
}
