//! The end of jobs whose collective calls can never complete: ranks that pass different lengths may choose different
//! algorithms and wait for each other (`docs/decisions/0082-collective-calls-that-never-end.md`).

use crate::ranks::Ranks;
use fastpath_base::clock::now_ns;
use fastpath_job::inspect::describe::find_verdict;
use fastpath_job::inspect::facts::look_at_ranks;
use fastpath_job::inspect::verdict::Verdict;
use fastpath_segment::{RankPage, Segment, WaitNote};
use std::time::{Duration, Instant};

/// Exit code of a job whose collective calls can never complete: `MPI_ERR_OTHER`.
pub const DEADLOCK_CODE: i32 = 16;
/// Time between two checks while fewer than two ranks wait. Otherwise it doubles after each check.
const CHECK_PAUSE: Duration = Duration::from_secs(5);
/// Longest time between two checks.
const CHECK_PAUSE_MAX: Duration = Duration::from_secs(320);
/// Shortest wait in a collective call that is examined, in nanoseconds.
const WAIT_MIN_NS: u64 = 10_000_000_000;

/// Collective calls, in lower case, without `MPI_`, `neighbor_`, the `I` of nonblocking calls, `_init` and `_c`.
const COLLECTIVES: &[&str] = &[
    "allgather",
    "allgatherv",
    "allreduce",
    "alltoall",
    "alltoallv",
    "alltoallw",
    "barrier",
    "bcast",
    "exscan",
    "gather",
    "gatherv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_block",
    "scan",
    "scatter",
    "scatterv",
];

/// Periodic check for ranks of this host that wait for each other in collective calls.
#[derive(Debug)]
pub struct DeadlockWatch {
    pub check_at: Instant,
    pause: Duration,
}

impl DeadlockWatch {
    pub fn new() -> DeadlockWatch {
        DeadlockWatch { check_at: Instant::now() + CHECK_PAUSE, pause: CHECK_PAUSE }
    }

    /// Whether collective calls are proved never to complete.
    pub fn check(&mut self, ranks: &Ranks, segment: &Segment) -> bool {
        let pages = segment.node_ranks().filter_map(|rank| segment.page(rank));
        let now = now_ns();
        let waits = |page: &RankPage| page.wait_notes().iter().any(|note| is_examined(note, now));
        // Read only pages while fewer than two ranks wait: the checks below read files of each rank.
        let is_suspect = pages.filter(|page| waits(page)).take(2).count() == 2;
        self.pause = match is_suspect {
            true => (2 * self.pause).min(CHECK_PAUSE_MAX),
            false => CHECK_PAUSE,
        };
        let is_proved = is_suspect && has_cycle(ranks, segment);
        self.check_at = Instant::now() + self.pause;
        is_proved
    }
}

/// Whether ranks are proved to wait for each other, each in a collective call.
fn has_cycle(ranks: &Ranks, segment: &Segment) -> bool {
    let members = ranks.members();
    let facts = look_at_ranks(&members, segment);
    let now = now_ns();
    match find_verdict(&members, segment, &facts, now) {
        Some(Verdict::Cycle(stuck) | Verdict::Knot(stuck)) => {
            stuck.iter().all(|&rank| facts[rank].notes.iter().all(|note| is_examined(note, now)))
        }
        Some(Verdict::Left(_)) | None => false,
    }
}

/// Whether `note` describes a collective call that has waited for at least [`WAIT_MIN_NS`].
fn is_examined(note: &WaitNote, now_ns: u64) -> bool {
    now_ns.saturating_sub(note.since_ns) >= WAIT_MIN_NS && is_collective(&note.call)
}

/// Whether a wait, such as `MPI_Barrier` or `MPI_Wait for MPI_Ibcast`, is for a collective call.
fn is_collective(call: &str) -> bool {
    let name = call.rsplit(' ').next().and_then(|name| name.strip_prefix("MPI_"));
    let name = name.unwrap_or_default().to_ascii_lowercase();
    let name = name.trim_end_matches("_c").trim_end_matches("_init");
    let blocking = name.strip_prefix('i').unwrap_or(name);
    COLLECTIVES.contains(&blocking.trim_start_matches("neighbor_"))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn collective_calls__are_known_in_each_form() {
        for call in [
            "MPI_Barrier",
            "MPI_Wait for MPI_Ibcast",
            "MPI_Wait for MPI_Ineighbor_alltoall",
            "MPI_Allreduce_c",
            "MPI_Wait for MPI_Ibcast_c",
            "MPI_Start for MPI_Bcast_init_c",
        ] {
            assert!(is_collective(call), "{call}");
        }
        for call in
            ["MPI_Recv", "MPI_Wait", "MPI_Wait for MPI_Irecv", "MPI_Comm_dup", "", "barrier"]
        {
            assert!(!is_collective(call), "{call}");
        }
    }
}
