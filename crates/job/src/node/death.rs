//! Handling of a rank that ended without finalizing MPI: one report on its node, and a request to end the job.

use crate::engine::Aborter;
use crate::poll::wait_a_second;
use fastpath_base::fd::LostFd;
use fastpath_base::sync::Ordering;
use fastpath_base::{tell, topology};
use fastpath_segment::{FailureKind, JobHeader, RankPage, RankPhase, Segment};

/// This process's rank, in the memory of its node.
#[derive(Clone, Copy, Debug)]
pub struct OwnRank {
    pub segment: &'static Segment,
    pub rank: usize,
}

impl OwnRank {
    pub fn page(&self) -> &'static RankPage {
        self.segment.page(self.rank).expect("own rank was checked when the job was attached")
    }

    pub fn header(&self) -> &'static JobHeader {
        self.segment.header()
    }
}

/// Returns the exit code for an MPI abort code: its low eight bits, or 1 if those are 0.
pub fn exit_code(abort_code: i32) -> i32 {
    match abort_code & 0xff {
        0 => 1,
        code => code,
    }
}

/// Reports that the end of a rank can no longer be detected, because its connection was lost.
#[cold]
pub fn note_lost(own: OwnRank, lost: LostFd) {
    let rank = own.rank;
    tell!("fastpath: rank {rank}: {lost}; this rank can no longer detect that those ranks end");
}

/// Reports the death of a rank of this node, once on the node, and ends the job.
pub fn tell_death(own: OwnRank, aborter: &Aborter, rank: usize) {
    let Some(page) = own.segment.page(rank) else {
        return;
    };
    // The rank has finalized MPI, so its end is no failure, although it ended before it sent its last message.
    if page.phase() == RankPhase::Finalized {
        return;
    }
    let header = own.header();
    let aborted = header.abort.load();
    let status = page.exit_status.load(Ordering::Relaxed);
    let code = match (&aborted, status.checked_sub(1)) {
        (Some((_, code, _)), _) => exit_code(*code),
        (None, Some(status)) => exit_code(status as i32),
        (None, None) => 1,
    };
    if aborted.is_none() && header.tolerates_failures.load(Ordering::Relaxed) != 0 {
        return survive_death(own, page, rank, status.checked_sub(1));
    }
    // Record the failure before other ranks can see the death, because failures that this death causes must not be
    // recorded as the first failure.
    let kind = match status {
        0 => FailureKind::Gone,
        1 => FailureKind::NoFinalize,
        _ => FailureKind::Exit,
    };
    let is_first = header.failure.record(kind, rank, code);
    if is_first && aborted.is_none() {
        tell::lines(&describe_death(own, rank, status.checked_sub(1)));
    }
    own.segment.mark_dead(rank);
    if !is_first || aborted.is_some() {
        // Give the earlier request to the engine time to end the job, because PRRTE sometimes hung after several
        // requests. An aborting rank has sent such a request itself.
        own.segment.wake_all();
        wait_a_second();
    }
    end_job(own, aborter, code);
}

/// Reports the death of a rank of this node, once on the node, in a job that tolerates failures.
fn survive_death(own: OwnRank, page: &RankPage, rank: usize, status: Option<u32>) {
    if page.is_ended.swap(1, Ordering::Relaxed) == 0 {
        let text = describe_death(own, rank, status);
        tell::lines(&(text + "fastpath:   the other ranks continue (FASTPATH_FT=1)\n"));
    }
    own.segment.mark_dead(rank);
    own.segment.signal_ends_to_all();
    own.segment.wake_all();
}

/// Wakes all ranks of this node, so that they check which rank has died, and requests the engine to end the job.
pub fn end_job(own: OwnRank, aborter: &Aborter, code: i32) {
    own.segment.wake_all();
    aborter.abort(code);
}

fn describe_death(own: OwnRank, rank: usize, status: Option<u32>) -> String {
    let page = own.segment.page(rank);
    let process = page.map_or(0, |page| page.owner_pid.load(Ordering::Relaxed));
    let said = page.map(|page| page.message.load_lines()).unwrap_or_default();
    let how = match status {
        // The rank's own message follows.
        Some(0) if !said.is_empty() => "exited with code 0 before finalizing MPI".to_owned(),
        Some(0) => "exited with code 0 before calling MPI_Finalize".to_owned(),
        Some(code) => format!("exited with code {code}"),
        None => "has ended without calling MPI_Finalize".to_owned(),
    };
    let host = topology::host_name();
    let mut text = format!("fastpath: rank {rank} on {host} (process {process}) {how}\n");
    for line in said.lines().filter(|line| !line.trim().is_empty()) {
        text += &format!("fastpath:   {line}\n");
    }
    text
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn exit_code__is_never_success() {
        assert_eq!([exit_code(0), exit_code(7), exit_code(256), exit_code(-1)], [1, 7, 1, 255]);
    }
}
