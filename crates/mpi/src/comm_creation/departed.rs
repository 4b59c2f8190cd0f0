//! Releases what this process holds of spawned ranks that have ended, so that their places in the memory of the job can
//! be reused (docs/decisions/0087).
#![allow(unsafe_code)]

use crate::common::places;
use crate::objects::comm::Comm;
use crate::p2p::request;
use crate::process::{self, Process};
use fastpath_bootstrap::job::Job;
use fastpath_protocol::Worker;

/// Releases ranks that have ended and are in no communicator of this process. Returns at once if none was spawned.
pub(crate) fn release(p: &Process) {
    let (Some(engine), Ok(first)) = (p.engine(), p.worker()) else {
        return;
    };
    if engine.job.present() > engine.job.began_with() {
        request::release_unused(p);
        // SAFETY: the worker lives while MPI runs, and the caller is inside.
        release_in(p, engine.job, unsafe { &mut *first });
    }
}

/// See [`Worker::on_ends`]. Called inside the first worker.
pub(crate) fn release_after_ends(first: &mut Worker) {
    // SAFETY: the caller is inside MPI.
    release_in(unsafe { process::get_unlocked() }, first.job, first);
}

fn release_in(p: &Process, job: &Job, first: &mut Worker) {
    let release = |worker: &mut Worker| {
        let mut departed = worker.departed();
        departed.retain(|&rank| !is_known(p, job, rank));
        if !departed.is_empty() {
            worker.release_departed(&departed);
        }
    };
    release(first);
    for (place, worker) in p.workers().filter(|&(place, _)| place != 0) {
        let _within = places::within(place);
        // SAFETY: the worker lives while MPI runs, and this thread is inside.
        release(unsafe { &mut *worker });
    }
}

/// Whether a rank is in a communicator of this process, which may be one of a window, a file or a request.
fn is_known(p: &Process, job: &Job, rank: u32) -> bool {
    let has = |comm: &Comm| {
        let mut groups = [Some(&comm.group), comm.remote_group.as_ref()].into_iter().flatten();
        groups.any(|group| group.world_ranks().contains(&rank))
    };
    let handles = p.comms.handles();
    let mut comms = handles.into_iter().filter_map(|handle| p.comms.get(handle));
    job.world().contains(&(rank as usize)) || comms.any(|comm| has(&comm)) || p.freed_comms.any(has)
}
