//! Spread of deaths between hosts. The launchers of a job inform each other, but another launcher may not, and a host
//! may be lost with its launcher. So each rank that detects a death, for instance by a broken connection, informs its
//! neighbours among all living ranks, as for revocations ([`super::revoke`]).

use super::revoke::find_neighbours;
use crate::process::Process;
use crate::process::failures;
use fastpath_protocol::Worker;
use fastpath_protocol::notices::NOTICE_MAX;

/// Kind of the notice that ranks have died. Its bytes are their world ranks.
pub(super) const DIED: u32 = 3;

/// Largest number of ranks in a notice.
const MOST: usize = NOTICE_MAX / size_of::<u32>();

/// Informs the neighbours of this process, if the job has several hosts. The deaths are known here already.
pub(super) fn spread(p: &Process, worker: &mut Worker, ranks: &[u32]) {
    if !worker.interfaces().has_outside() {
        return;
    }
    let dead = failures::list_dead(p);
    let living: Vec<u32> = (0..worker.present()).filter(|rank| !dead.contains(rank)).collect();
    let Some(own) = living.iter().position(|&rank| rank == worker.rank) else { return };
    for part in ranks.chunks(MOST) {
        let bytes: Vec<u8> = part.iter().flat_map(|rank| rank.to_le_bytes()).collect();
        for at in find_neighbours(living.len(), own) {
            // Without memory for a connection, other neighbours inform that rank.
            _ = worker.send_notice(living[at], DIED, 0, &bytes);
        }
    }
}

/// Records the deaths that another rank has reported. A rank of this host is dead only if the launcher says so.
pub(super) fn receive(p: &Process, worker: &mut Worker, bytes: &[u8]) {
    if !failures::is_on() {
        return;
    }
    let (ranks, _) = bytes.as_chunks();
    let ranks = ranks.iter().map(|rank| u32::from_le_bytes(*rank));
    let segment = worker.job.segment();
    let is_elsewhere =
        |&rank: &u32| (rank as usize) < segment.present() && segment.place(rank as usize).is_none();
    let ranks: Vec<u32> = ranks.filter(is_elsewhere).collect();
    ranks.iter().for_each(|&rank| segment.mark_dead(rank as usize));
    failures::note_deaths(p, worker, &ranks);
}
