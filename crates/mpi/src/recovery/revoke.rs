//! `MPIX_Comm_revoke`: every living member learns that the communicator is revoked.
//!
//! The notice spreads over the circulant graph of the living members: each member that learns of the revocation passes
//! it on, once, to the members at the distances 1, 2, 4, ... before and after it (Bosilca and others, "Failure
//! detection and propagation in HPC systems", SC 2016). After each further death the members repeat it to their new
//! neighbours.
//! Neighbours at distance 1 form a ring of the living, so that each of them gets the notice.
#![allow(unsafe_code)]

use super::agreement::list_members;
use crate::common::error::Result;
use crate::objects::comm::Comm;
use crate::process::Process;
use crate::process::failures;
use fastpath_protocol::Worker;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Kind of the notice that a communicator was revoked. Its number is the context, and it has no bytes.
pub(super) const REVOKED: u32 = 1;

/// Revokes a communicator. Not collective.
pub fn revoke(p: &Process, comm: &Rc<Comm>) -> Result {
    // SAFETY: the worker lives while MPI runs, and no other reference to it exists.
    let worker = unsafe { &mut *p.worker()? };
    if failures::revoke_here(p, worker, comm) {
        spread(p, worker, comm);
    }
    Ok(())
}

/// Handles the notice of a member.
pub(super) fn receive(p: &Process, worker: &mut Worker, comm: &Rc<Comm>, sender: u32) {
    let is_member = list_members(p, comm).contains(&sender);
    if is_member && failures::revoke_here(p, worker, comm) {
        spread(p, worker, comm);
    }
}

/// Repeats the notices of all revoked communicators, after a death.
pub(super) fn repeat(p: &Process, worker: &mut Worker) {
    for comm in failures::list_revoked(p) {
        spread(p, worker, &comm);
    }
}

fn spread(p: &Process, worker: &mut Worker, comm: &Comm) {
    let failed = failures::list_dead(p);
    let me = comm.my_world_rank();
    let mut living = list_members(p, comm);
    living.retain(|rank| !failed.contains(rank));
    let Some(own) = living.iter().position(|&rank| rank == me) else { return };
    for at in find_neighbours(living.len(), own) {
        // A member for which there is no memory gets the notice from its other neighbours.
        _ = worker.send_notice(living[at], REVOKED, comm.context.to_wire(), &[]);
    }
}

/// Returns the neighbours of member `own` of `count` in the circulant graph.
pub(super) fn find_neighbours(count: usize, own: usize) -> BTreeSet<usize> {
    let distances = std::iter::successors(Some(1), |distance| Some(distance * 2));
    let distances = distances.take_while(|&distance| distance < count);
    distances.flat_map(|d| [(own + d) % count, (own + count - d) % count]).collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn neighbours__are_mutual_few_and_reach_all() {
        assert!(find_neighbours(1, 0).is_empty());
        for count in 2..70_usize {
            let all: Vec<_> = (0..count).map(|own| find_neighbours(count, own)).collect();
            let mut reached = BTreeSet::from([0]);
            let mut rounds = 0;
            while reached.len() < count {
                let next: Vec<usize> = reached.iter().flat_map(|&m| all[m].clone()).collect();
                reached.extend(next);
                rounds += 1;
            }
            let log = count.next_power_of_two().ilog2();
            assert!(rounds <= log, "{count}: {rounds}");
            for (own, neighbours) in all.iter().enumerate() {
                assert!(!neighbours.contains(&own) && neighbours.len() <= 2 * log as usize);
                assert!(neighbours.iter().all(|&other| all[other].contains(&own)));
            }
        }
    }
}
