//! What the launcher says: who failed first, what everybody was doing.

use crate::args::JobSpec;
use crate::ranks::{End, Failure, Rank, Ranks};
use crate::signals::describe_signal;
use fastpath_base::sync::Ordering;
use fastpath_bootstrap::segment::{FailureKind, Phase, Segment, WaitNote};
use std::fmt::Write as _;

/// Says who failed first, how, and in which call.
pub fn describe_failure(
    failure: &Failure,
    ranks: &Ranks,
    spec: &JobSpec,
    segment: &Segment,
    host: &str,
    now_ns: u64,
) -> String {
    let mut text = String::from("mpiexec: rank ");
    let rank = ranks.list().get(failure.rank);
    let _ = write!(text, "{} on {host}", failure.rank);
    if let Some(rank) = rank {
        let program = spec.apps.get(rank.app).and_then(|a| a.argv.first());
        let program = program.map(|p| p.display().to_string()).unwrap_or_default();
        let _ = write!(text, " (process {}, {program})", rank.pid);
    }
    let core = matches!(rank.and_then(|r| r.end), Some(End::Signal(_, true)));
    let _ = match failure.kind {
        FailureKind::Signal => write!(
            text,
            " was ended by {}{}",
            describe_signal(failure.code),
            if core { ", core file written" } else { "" }
        ),
        FailureKind::Exit => write!(text, " left with exit code {}", failure.code),
        FailureKind::NoFinalize => {
            write!(
                text,
                " left with exit code 0 but without calling MPI_Finalize"
            )
        }
        FailureKind::Abort => write!(text, " aborted the job with code {}", failure.code),
    };
    if failure.kind != FailureKind::Abort
        && let Some(note) = rank.and_then(|r| r.last_note.as_ref())
    {
        let _ = write!(text, ", while waiting in {}", describe_note(note, now_ns));
    }
    text.push('\n');
    let said = segment
        .page(failure.rank)
        .map(|p| p.message.load())
        .unwrap_or_default();
    for message in [&failure.message, &said] {
        for line in message.lines().filter(|l| !l.trim().is_empty()) {
            let _ = writeln!(text, "mpiexec:   {line}");
        }
    }
    text
}

/// Says what each rank is doing, after the time of the job was up.
pub fn describe_ranks(ranks: &Ranks, segment: &Segment, now_ns: u64) -> String {
    let mut text = String::new();
    let (mut running, mut waiting, mut by_adapter) = (0, 0, false);
    for (number, rank) in ranks.list().iter().enumerate() {
        let doing = describe_rank(number, rank, segment, now_ns);
        if rank.end.is_none() {
            running += 1;
            let page = segment.page(number);
            waiting += usize::from(page.and_then(|p| p.wait_note()).is_some());
            by_adapter |= page.is_some_and(|p| p.by_adapter.load(Ordering::Relaxed) != 0);
        }
        let _ = writeln!(
            text,
            "mpiexec:   rank {number} (process {}) {doing}",
            rank.pid
        );
    }
    if running > 0 && running == waiting {
        let unless = match by_adapter {
            true => ", unless an adapter still sends again what the network has lost",
            false => "",
        };
        let _ = writeln!(
            text,
            "mpiexec: every rank that is left waits for a message: this looks like a deadlock{unless}"
        );
    }
    text
}

fn describe_rank(number: usize, rank: &Rank, segment: &Segment, now_ns: u64) -> String {
    match rank.end {
        Some(End::Exit(code)) => return format!("has left with exit code {code}"),
        Some(End::Signal(signal, _)) => {
            return format!("was ended by {}", describe_signal(signal));
        }
        None => {}
    }
    let Some(page) = segment.page(number) else {
        return "is unknown".into();
    };
    if let Some(note) = page.wait_note() {
        return format!("waits in {}", describe_note(&note, now_ns));
    }
    match page.phase() {
        Phase::Launched => "runs and has not called MPI_Init".into(),
        Phase::Attached => "is in MPI_Init".into(),
        Phase::Initialized => "runs, or looks for a message without sleeping".into(),
        Phase::Finalized => "runs after MPI_Finalize".into(),
    }
}

fn describe_note(note: &WaitNote, now_ns: u64) -> String {
    let mut text = if note.call.is_empty() {
        "an MPI call".to_owned()
    } else {
        note.call.clone()
    };
    if note.peer >= 0 {
        let _ = write!(text, ", peer {}", note.peer);
    } else {
        text.push_str(", any peer");
    }
    if note.tag >= 0 {
        let _ = write!(text, ", tag {}", note.tag);
    }
    if !note.comm.is_empty() {
        let _ = write!(text, ", communicator {}", note.comm);
    }
    let _ = write!(text, ", {} bytes", note.bytes);
    let seconds = now_ns.saturating_sub(note.since_ns) as f64 / 1e9;
    let _ = write!(text, ", for {seconds:.1} s");
    text
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::args::App;
    use fastpath_bootstrap::segment::{Awaited, WaitNoteRef};

    fn job() -> (Ranks, JobSpec, Segment) {
        let app = App {
            ranks: 2,
            argv: vec!["prog".into()],
            ..App::default()
        };
        let spec = JobSpec {
            apps: vec![app],
            ..JobSpec::default()
        };
        (Ranks::new(&[0, 0]), spec, Segment::create(2, 1).unwrap())
    }

    fn note(call: &str) -> WaitNoteRef<'_> {
        WaitNoteRef {
            call,
            peer: 1,
            tag: 7,
            comm: "halo",
            bytes: 8,
            since_ns: 1_000_000_000,
            awaited: Awaited::of(&[1]),
            multiple: false,
        }
    }

    #[test]
    fn failure__names_rank_host_signal_and_message() {
        let (ranks, spec, segment) = job();
        let failure = Failure {
            rank: 1,
            kind: FailureKind::Signal,
            code: 11,
            message: "why\n".into(),
        };
        let text = describe_failure(&failure, &ranks, &spec, &segment, "node7", 0);
        assert!(text.contains("rank 1 on node7"), "{text}");
        assert!(text.contains("SIGSEGV") && text.contains("prog"), "{text}");
        assert!(text.ends_with("mpiexec:   why\n"), "{text}");
    }

    #[test]
    fn ranks__that_all_wait_are_called_a_deadlock() {
        let (ranks, _, segment) = job();
        segment.page(0).unwrap().note_waiting(note("MPI_Recv"));
        let text = describe_ranks(&ranks, &segment, 3_500_000_000);
        assert!(text.contains("waits in MPI_Recv, peer 1, tag 7"), "{text}");
        assert!(
            text.contains("communicator halo, 8 bytes, for 2.5 s"),
            "{text}"
        );
        assert!(
            text.contains("has not called MPI_Init") && !text.contains("deadlock"),
            "{text}"
        );
        segment.page(1).unwrap().note_waiting(note("MPI_Barrier"));
        assert!(describe_ranks(&ranks, &segment, 0).ends_with("like a deadlock\n"));
        // Over a network a message may be late though nobody is awake.
        let page = segment.page(1).unwrap();
        page.by_adapter.store(1, Ordering::Relaxed);
        assert!(describe_ranks(&ranks, &segment, 0).contains("deadlock, unless an adapter"));
    }
}
