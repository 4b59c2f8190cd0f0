//! Failure reports: the first failed rank, and what all ranks were doing.

use crate::ranks::{Failure, Ranks};
use crate::screen::{find_columns, wrap};
use fastpath_base::sync::Ordering;
use fastpath_job::inspect;
use fastpath_job::inspect::ProcessEnd;
use fastpath_job::inspect::describe::{describe_note, describe_signal};
use fastpath_job::inspect::facts::name_thread;
use fastpath_segment::{FailureKind, RankPage, Segment};
use std::fmt::Write as _;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

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

/// Reports the cause if ranks wait for each other or for one rank, and what each rank is doing.
pub fn describe_ranks(ranks: &Ranks, segment: &Segment) -> String {
    let text = inspect::report::describe_ranks(&ranks.members(), segment, find_place);
    let columns = find_columns();
    text.lines().map(|line| wrap(&format!("mpiexec: {line}"), columns)).collect()
}

/// Longest time that the launcher waits for `fastpath` to find the place of a process.
const PLACE_LIMIT: Duration = Duration::from_secs(2);

/// Describes where a process is in its program, as `fastpath ps --why` does. The tool does the work, because the
/// launcher has no code that reads symbols and debug information.
fn find_place(pid: i32) -> String {
    let tool = std::env::current_exe().map(|own| own.with_file_name("fastpath"));
    let place = tool
        .ok()
        .and_then(|tool| read_within(Command::new(tool).args(["ps", "--place", &pid.to_string()])));
    place.unwrap_or_else(|| "does not wait in MPI".to_owned())
}

/// Runs a command and returns the line that it prints; `None` if it fails or exceeds [`PLACE_LIMIT`].
fn read_within(command: &mut Command) -> Option<String> {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = quiet.spawn().ok()?;
    let mut output = child.stdout.take()?;
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        _ = output.read_to_string(&mut text);
        _ = send.send(text);
    });
    let text = receive.recv_timeout(PLACE_LIMIT);
    // A child that has closed its output ends by itself.
    if text.is_err() {
        child.kill().ok()?;
    }
    let status = child.wait().ok()?;
    let text = text.ok().filter(|_| status.success())?;
    Some(text.trim_end().to_owned()).filter(|text| !text.is_empty())
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
    fn command__that_takes_too_long_or_fails_has_no_text() {
        let read = |script: &str| read_within(Command::new("sh").args(["-c", script]));
        assert_eq!(read("echo is in main"), Some("is in main".to_owned()));
        assert_eq!(read("echo is in main; exit 1"), None);
        assert_eq!(read("exec sleep 60"), None);
        assert_eq!(read_within(&mut Command::new("/proc/none/fastpath")), None);
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
