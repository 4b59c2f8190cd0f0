//! Release of this process's resources for spawned ranks that have ended. Their places in the job's memory can then be
//! reused (docs/decisions/0087).
#![allow(unsafe_code)]

use crate::objects::comm::Comm;
use crate::p2p::request;
use crate::process::{self, Process, failures};
use fastpath_job::Job;
use fastpath_protocol::Worker;

/// Releases ended ranks that are in no communicator of this process. Returns at once if the job has spawned no rank.
pub(crate) fn release(p: &Process) {
    let (Some(engine), Ok(worker)) = (p.engine(), p.worker()) else {
        return;
    };
    if engine.job.present() > engine.job.began_with() {
        request::release_unused(p);
        // SAFETY: the worker lives while MPI runs, and the caller is inside MPI.
        release_in(p, engine.job, unsafe { &mut *worker });
    }
}

/// Releases ended ranks, as the worker's hook [`Hooks::on_ends`](fastpath_protocol::worker::hooks::Hooks::on_ends).
pub(crate) fn release_after_ends(worker: &mut Worker) {
    // SAFETY: the hook runs inside MPI, so this thread holds the lock or is the only one.
    release_in(unsafe { process::get_unlocked() }, worker.job, worker);
}

fn release_in(p: &Process, job: &Job, worker: &mut Worker) {
    let mut departed = worker.departed();
    // Operations with a dead rank fail with or without its ring, so communicators that contain it need no ring.
    let is_dead = |worker: &Worker, rank| failures::is_on() && worker.has_died(rank);
    departed.retain(|&rank| is_dead(worker, rank) || !is_known(p, job, rank));
    if !departed.is_empty() {
        worker.release_departed(&departed);
    }
}

/// Returns whether a rank is in a communicator of this process. Communicators of windows, files and requests count too.
fn is_known(p: &Process, job: &Job, rank: u32) -> bool {
    let has = |comm: &Comm| {
        let mut groups = [Some(&comm.group), comm.remote_group.as_ref()].into_iter().flatten();
        groups.any(|group| group.world_ranks().contains(&rank))
    };
    let handles = p.comms.handles();
    let mut comms = handles.into_iter().filter_map(|handle| p.comms.get(handle));
    job.world().contains(&(rank as usize)) || comms.any(|comm| has(&comm)) || p.freed_comms.any(has)
}
