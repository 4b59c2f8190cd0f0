//! Failure reports: the first failed rank, and what all ranks were doing.

use crate::ranks::{Failure, Ranks};
use fastpath_base::sync::Ordering;
use fastpath_job::inspect;
use fastpath_job::inspect::ProcessEnd;
use fastpath_job::inspect::describe::{describe_note, describe_signal};
use fastpath_job::inspect::facts::name_thread;
use fastpath_segment::{FailureKind, RankPage, Segment};
use std::fmt::Write as _;

pub fn describe_failure(
    failure: &Failure, ranks: &Ranks, segment: &Segment, host: &str, now_ns: u64,
) -> String {
    let mut text = String::from("mpiexec: rank ");
    let rank = ranks.list().get(failure.rank);
    let _ = write!(text, "{} on {host}", failure.rank);
    if let Some(rank) = rank {
        let _ = write!(text, " (process {}, {})", rank.pid, rank.program);
    }
    let said = segment.page(failure.rank).map(|p| p.message.load_lines()).unwrap_or_default();
    let core = matches!(rank.and_then(|r| r.end), Some(ProcessEnd::Signal(_, true)));
    let _ = match failure.kind {
        FailureKind::Signal => write!(
            text,
            " was ended by {}{}",
            describe_signal(failure.code),
            if core { ", core file written" } else { "" }
        ),
        FailureKind::Exit => write!(text, " exited with code {}", failure.code),
        // The diagnostics of the rank follow below.
        FailureKind::NoFinalize if !said.is_empty() => {
            write!(text, " exited with code 0 before finalizing MPI")
        }
        FailureKind::NoFinalize => {
            write!(text, " exited with code 0 before calling MPI_Finalize")
        }
        FailureKind::Gone => write!(text, " has ended without calling MPI_Finalize"),
        FailureKind::Abort => write!(text, " aborted the job with code {}", failure.code),
    };
    if failure.kind != FailureKind::Abort
        && let Some(rank) = rank
    {
        let page = segment.page(failure.rank);
        let owner = page.map_or(0, |page| page.owner_pid.load(Ordering::Relaxed));
        for (at, note) in rank.last_notes.iter().enumerate() {
            // The process is gone, and with it the names of its threads.
            let who = match (note.multiple, at) {
                (false, _) => "while waiting".to_owned(),
                (true, 0) => format!("while {} waited", name_thread(0, owner, note.thread)),
                (true, _) => name_thread(0, owner, note.thread),
            };
            let _ = write!(text, ", {who} in {}", describe_note(note, now_ns));
        }
        if let Some(locks) = page.and_then(RankPage::window_locks) {
            let _ = write!(text, ", while it held {locks}");
        }
    }
    text.push('\n');
    for message in [&failure.message, &said] {
        for line in message.lines().filter(|l| !l.trim().is_empty()) {
            let _ = writeln!(text, "mpiexec:   {line}");
        }
    }
    text
}

/// Reports what each rank is doing, and the cause if ranks provably wait forever.
pub fn describe_ranks(ranks: &Ranks, segment: &Segment) -> String {
    let text = inspect::describe::describe_ranks(&ranks.members(), segment);
    text.lines().map(|line| format!("mpiexec: {line}\n")).collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn job() -> (Ranks, Segment) {
        let programs = ["prog", "prog"].map(String::from);
        (Ranks::new(programs), Segment::create(2, 1).unwrap())
    }

    #[test]
    fn failure__names_rank_host_signal_and_message() {
        let (ranks, segment) = job();
        let failure = Failure {
            rank: 1,
            kind: FailureKind::Signal,
            code: 11,
            message: "why\n".into(),
            ended: None,
        };
        let text = describe_failure(&failure, &ranks, &segment, "node7", 0);
        assert!(text.contains("rank 1 on node7"), "{text}");
        assert!(text.contains("SIGSEGV") && text.contains("prog"), "{text}");
        assert!(text.ends_with("mpiexec:   why\n"), "{text}");
    }
}
