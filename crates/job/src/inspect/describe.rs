//! Sentences that describe the activity of ranks, and proved deadlocks.

use super::facts::{Activity, Facts, look_at_ranks};
use super::verdict::{Verdict, judge};
use super::{Member, ProcessEnd};
use fastpath_segment::{
    AwaitedRanks, OF_WINDOW, RankPhase, Segment, UnexpectedMessage, UnexpectedSnapshot, WaitNote,
};
use std::fmt::Write as _;
use std::time::Duration;

/// Time between two observations. It is several ticks of the kernel's accounting, so a thread that runs all the time
/// has used at least one.
const BETWEEN_POLLS: Duration = Duration::from_millis(50);
const NAMED_MOST: usize = 8;

/// Finds a deadlock by a second observation of the ranks. The first observation, `before`, was complete at `now_ns`.
pub fn find_verdict(
    members: &[Member], segment: &Segment, before: &[Facts], now_ns: u64,
) -> Option<Verdict> {
    // The second observation takes time. Skip it if nothing would be proved even if all ranks were unchanged and each
    // napping rank had polled without success.
    let mut again = before.to_vec();
    for facts in &mut again {
        facts.naps = facts.naps.map(|_| facts.naps_then.wrapping_add(2));
    }
    judge(before, &again, now_ns)?;
    std::thread::park_timeout(BETWEEN_POLLS);
    judge(before, &look_at_ranks(members, segment), now_ns)
}

/// Describes a rank's activity. Waiting threads have their own lines, which begin with four blanks.
pub fn describe_rank(member: &Member, facts: &Facts, now_ns: u64) -> String {
    if let Some(end) = member.end {
        return describe_end(end);
    }
    let stopped = match facts.activity {
        Activity::Stopped => Some(format!(
            "is stopped by a signal (SIGSTOP, SIGTSTP): `kill -CONT {}` resumes it",
            facts.pid
        )),
        Activity::Traced => Some("is stopped by a debugger".to_owned()),
        _ => None,
    };
    let waits = describe_waits(facts, now_ns);
    let mut doing = describe_doing(facts, stopped, waits);
    if facts.unexpected.count != 0 {
        let _ = write!(doing, "; {}", describe_unexpected(&facts.unexpected));
    }
    match &facts.locks {
        Some(locks) => format!("{doing}; the rank holds {locks}"),
        None => doing,
    }
}

fn describe_doing(facts: &Facts, stopped: Option<String>, waits: Option<String>) -> String {
    match (stopped, waits) {
        (Some(stopped), Some(waits)) => format!("{stopped}; the rank {waits}"),
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) => match facts.phase {
            RankPhase::Launched => "has not called MPI_Init".into(),
            RankPhase::Attached => "is in MPI_Init".into(),
            RankPhase::Initialized => match facts.activity {
                Activity::Asleep { .. } => "sleeps, but waits for no message".into(),
                _ => "runs, or polls for a message".into(),
            },
            RankPhase::Silent | RankPhase::Settled => "is in MPI_Finalize".into(),
            RankPhase::Finalized => "has called MPI_Finalize".into(),
        },
    }
}

/// Describes the wait of a rank, or of each of its threads, one a line; `None` if no thread has written a wait note.
fn describe_waits(facts: &Facts, now_ns: u64) -> Option<String> {
    let first = facts.notes.first()?;
    if !first.multiple || matches!(facts.activity, Activity::Asleep { threads: 1, .. }) {
        return Some(format!("waits in {}", describe_note(first, now_ns)));
    }
    let mut text = match facts.notes.len() + facts.unnoted as usize {
        1 => "has a thread that waits:".to_owned(),
        threads => format!("has {threads} threads that wait:"),
    };
    for (name, note) in facts.names.iter().zip(&facts.notes) {
        let _ = write!(text, "\n    {name} in {}", describe_note(note, now_ns));
    }
    if let more @ 1.. = facts.unnoted {
        let _ = write!(text, "\n    and {more} more");
    }
    for name in &facts.beside {
        let _ = write!(text, "\n    {name} runs");
    }
    Some(text)
}

/// Describes the unexpected queue of a waiting rank, which often has the message under another tag or communicator.
fn describe_unexpected(unexpected: &UnexpectedSnapshot) -> String {
    let UnexpectedSnapshot { count, is_partial, first } = unexpected;
    let describe = |message: &UnexpectedMessage| {
        let UnexpectedMessage { source, tag, bytes } = message;
        format!("from rank {source}, tag {tag}, {}", count_bytes(*bytes))
    };
    let named: Vec<String> = first.iter().map(describe).collect();
    let named = named.join("; ");
    let least = if *is_partial { "at least " } else { "" };
    match (count, count.saturating_sub(first.len() as u64)) {
        (1, _) => format!("the rank has {least}1 unexpected message ({named})"),
        (_, 0) => format!("the rank has {least}{count} unexpected messages ({named})"),
        (_, more) => {
            format!("the rank has {least}{count} unexpected messages ({named}; and {more} more)")
        }
    }
}

fn count_bytes(bytes: u64) -> String {
    match bytes {
        1 => "1 byte".to_owned(),
        _ => format!("{bytes} bytes"),
    }
}

/// Describes the end of a process.
pub fn describe_end(end: ProcessEnd) -> String {
    match end {
        ProcessEnd::Exit(code) => format!("has exited with code {code}"),
        ProcessEnd::Signal(signal, _) => format!("was ended by {}", describe_signal(signal)),
        ProcessEnd::Unknown => "has ended".to_owned(),
        ProcessEnd::Elsewhere => {
            "is on another host or in another job; to see this rank, run `fastpath ps` on the \
             rank's host"
                .to_owned()
        }
    }
}

/// Describes a wait: call, peer, tag, communicator or window, bytes, and duration.
pub fn describe_note(note: &WaitNote, now_ns: u64) -> String {
    let mut text = name_call(note).to_owned();
    if note.peer >= 0 {
        let _ = write!(text, ", peer {}", note.peer);
        // The peer is a rank of the communicator. All other ranks in the report are ranks of the job.
        if let [rank] = *note.awaited.named()
            && rank as i32 != note.peer
            && !note.awaited.is_for_lock()
        {
            let _ = write!(text, " (rank {rank} of the job)");
        }
    } else if !note.comm.is_empty() && !note.awaited.is_for_lock() {
        text.push_str(", any peer");
    } else if note.comm.is_empty() && !note.awaited.named().is_empty() {
        let _ = write!(text, ", {}", name_awaited(&note.awaited));
    }
    if note.tag >= 0 {
        let _ = write!(text, ", tag {}", note.tag);
    }
    match note.comm.strip_prefix(OF_WINDOW) {
        Some(window) => _ = write!(text, ", window {window}"),
        None if note.comm.is_empty() => {}
        None => _ = write!(text, ", communicator {}", note.comm),
    }
    if note.awaited.is_for_lock() {
        text.push_str(&describe_lock(note));
    }
    let _ = write!(text, ", {}", count_bytes(note.bytes));
    let _ = write!(text, ", for {}", describe_wait(note, now_ns));
    text
}

/// Describes an awaited lock: the rank whose memory it protects, and its holder.
fn describe_lock(note: &WaitNote) -> String {
    match (note.peer < 0, note.awaited.named()) {
        (false, [rank]) => format!(", for a lock on the peer's memory that rank {rank} holds"),
        (false, _) => ", for a lock on the peer's memory".to_owned(),
        (true, [rank]) => format!(", until rank {rank} ends its MPI_Win_lock_all epoch"),
        (true, _) => ", until no rank has an open MPI_Win_lock_all epoch".to_owned(),
    }
}

fn name_call(note: &WaitNote) -> &str {
    match note.call.is_empty() {
        true => "an MPI call",
        false => &note.call,
    }
}

fn describe_wait(note: &WaitNote, now_ns: u64) -> String {
    let ns = now_ns.saturating_sub(note.since_ns);
    match ns < 1_000_000_000 {
        true => format!("{} ms", ns / 1_000_000),
        false => format!("{:.1} s", ns as f64 / 1e9),
    }
}

/// Returns the ranks for which any thread of a rank waits.
fn awaited_by(facts: &Facts) -> AwaitedRanks {
    let mut awaited = AwaitedRanks::UNKNOWN;
    facts.notes.iter().for_each(|note| awaited.add(note.awaited));
    awaited
}

fn name_awaited(awaited: &AwaitedRanks) -> String {
    let ranks: Vec<String> = awaited.named().iter().map(u32::to_string).collect();
    match &ranks[..] {
        [] => "any rank".to_owned(),
        [rank] => format!("rank {rank}"),
        _ => format!("any of ranks {}", ranks.join(", ")),
    }
}

/// Returns the sentence of a verdict.
pub fn describe_verdict(
    verdict: &Verdict, members: &[Member], facts: &[Facts], now_ns: u64,
) -> String {
    match verdict {
        Verdict::Cycle(cycle) => {
            if let [rank] = cycle[..] {
                let hop = describe_hop(&facts[rank], now_ns);
                return format!("deadlock: rank {rank} waits for itself{hop}");
            }
            let mut text = format!("deadlock: rank {}", cycle[0]);
            for (at, &rank) in cycle.iter().enumerate().take(NAMED_MOST) {
                let next = cycle[(at + 1) % cycle.len()];
                let waits = format!("waits for rank {next}{}", describe_hop(&facts[rank], now_ns));
                let _ = match at {
                    0 => write!(text, " {waits}"),
                    _ => write!(text, ", which {waits}"),
                };
            }
            if let Some(more @ 1..) = cycle.len().checked_sub(NAMED_MOST) {
                let _ = write!(text, ", and so on over {more} more ranks to rank {}", cycle[0]);
            }
            text
        }
        Verdict::Left(rank) => {
            let waits = describe_step(*rank, facts, now_ns);
            let gone = match awaited_by(&facts[*rank]).named() {
                &[peer] => describe_leave(members, peer as usize),
                _ => "and all other ranks have finalized MPI or ended".to_owned(),
            };
            format!("this wait cannot end: {waits}, {gone}")
        }
        Verdict::Knot(knot) => {
            let steps = knot.iter().take(NAMED_MOST);
            let steps: Vec<String> = steps.map(|&r| describe_step(r, facts, now_ns)).collect();
            let mut text = format!(
                "deadlock of {} ranks, each waiting for another of them: {}",
                knot.len(),
                steps.join("; ")
            );
            if let Some(more @ 1..) = knot.len().checked_sub(NAMED_MOST) {
                let _ = write!(text, "; and {more} more ranks");
            }
            text
        }
    }
}

/// Describes for which rank and in which call a rank waits.
fn describe_step(rank: usize, facts: &[Facts], now_ns: u64) -> String {
    let awaited = name_awaited(&awaited_by(&facts[rank]));
    let hop = describe_hop(&facts[rank], now_ns);
    format!("rank {rank} waits for {awaited}{hop}")
}

fn describe_hop(facts: &Facts, now_ns: u64) -> String {
    let several = facts.notes.len() > 1;
    let hops = facts.notes.iter().enumerate().map(|(at, note)| {
        let mut text = match facts.names.get(at) {
            Some(name) if several => format!("{name} in {}", name_call(note)),
            _ => name_call(note).to_owned(),
        };
        if note.tag >= 0 {
            let _ = write!(text, ", tag {}", note.tag);
        }
        let _ = write!(text, ", {}", describe_wait(note, now_ns));
        text
    });
    match facts.notes.is_empty() {
        true => String::new(),
        false => format!(" ({})", hops.collect::<Vec<_>>().join("; ")),
    }
}

fn describe_leave(members: &[Member], rank: usize) -> String {
    match members.get(rank).and_then(|member| member.end) {
        Some(end) => format!("which {}", describe_end(end)),
        None => "which has called MPI_Finalize".to_owned(),
    }
}

/// Returns name and meaning of a signal, as in "SIGSEGV (Segmentation fault)".
pub fn describe_signal(signal: i32) -> String {
    let (name, meaning) = match signal {
        libc::SIGHUP => ("SIGHUP", "hangup"),
        libc::SIGINT => ("SIGINT", "interrupt"),
        libc::SIGQUIT => ("SIGQUIT", "quit"),
        libc::SIGILL => ("SIGILL", "illegal instruction"),
        libc::SIGTRAP => ("SIGTRAP", "trap"),
        libc::SIGABRT => ("SIGABRT", "abort"),
        libc::SIGBUS => ("SIGBUS", "bus error"),
        libc::SIGFPE => ("SIGFPE", "arithmetic error"),
        libc::SIGKILL => ("SIGKILL", "killed, by a user or because memory ran out"),
        libc::SIGUSR1 => ("SIGUSR1", "user signal 1"),
        libc::SIGSEGV => ("SIGSEGV", "segmentation fault"),
        libc::SIGUSR2 => ("SIGUSR2", "user signal 2"),
        libc::SIGPIPE => ("SIGPIPE", "its output has no reader"),
        libc::SIGALRM => ("SIGALRM", "alarm"),
        libc::SIGTERM => ("SIGTERM", "terminated"),
        libc::SIGXCPU => ("SIGXCPU", "limit of processor time"),
        libc::SIGXFSZ => ("SIGXFSZ", "limit of file size"),
        libc::SIGSYS => ("SIGSYS", "forbidden system call"),
        _ => return format!("signal {signal}"),
    };
    format!("signal {signal}, {name} ({meaning})")
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const MEMBERS: [Member; 2] = [Member { pid: 0, end: None }; 2];

    fn note(call: &str, awaited: &[u32]) -> WaitNote {
        WaitNote {
            call: call.to_owned(),
            peer: -1,
            tag: 7,
            comm: String::new(),
            bytes: 8,
            since_ns: 1_000_000_000,
            awaited: AwaitedRanks::of(awaited),
            multiple: false,
            thread: 0,
            sequence: 2,
        }
    }

    fn facts(activity: Activity, note: Option<WaitNote>) -> Facts {
        Facts {
            pid: 77,
            phase: RankPhase::Initialized,
            has_left: false,
            activity,
            is_settled: false,
            naps: None,
            naps_then: 0,
            names: note.iter().map(|_| "thread \"main\"".to_owned()).collect(),
            notes: note.into_iter().collect(),
            beside: Vec::new(),
            unnoted: 0,
            locks: None,
            unexpected: UnexpectedSnapshot::default(),
        }
    }

    fn waiting(awaited: &[u32]) -> Facts {
        facts(Activity::Unknown, Some(note("MPI_Recv", awaited)))
    }

    #[test]
    fn signals__have_names() {
        assert!(describe_signal(11).contains("SIGSEGV"));
        assert_eq!(describe_signal(40), "signal 40");
    }

    #[test]
    fn rank__says_what_is_known_of_it() {
        let describe = |facts: &Facts| describe_rank(&MEMBERS[0], facts, 3_500_000_000);
        let stopped = "is stopped by a signal (SIGSTOP, SIGTSTP): `kill -CONT 77` resumes it";
        assert_eq!(describe(&facts(Activity::Stopped, None)), stopped);
        let locks = |peer| {
            let mut note = note("MPI_Win_lock", &[]);
            (note.peer, note.tag, note.comm) = (peer, -1, "of the window ledger".to_owned());
            note.awaited = AwaitedRanks::holding(&[0]);
            describe(&facts(Activity::Unknown, Some(note)))
        };
        let lock = "waits in MPI_Win_lock, peer 1, window ledger, for a lock on the peer's \
                    memory that rank 0 holds, 8 bytes, for 2.5 s";
        assert_eq!(locks(1), lock);
        let lock = "waits in MPI_Win_lock, window ledger, until rank 0 ends its MPI_Win_lock_all \
                    epoch, 8 bytes, for 2.5 s";
        assert_eq!(locks(-1), lock);
        let waits = "waits in MPI_Recv, rank 4, tag 7, 8 bytes, for 2.5 s";
        assert_eq!(describe(&waiting(&[4])), waits);
        let mut both = waiting(&[4]);
        let message =
            |source| UnexpectedMessage { source, tag: 9, bytes: 7 - 6 * u64::from(source) };
        both.unexpected =
            UnexpectedSnapshot { count: 1, is_partial: false, first: vec![message(1)] };
        let one = "the rank has 1 unexpected message (from rank 1, tag 9, 1 byte)";
        assert_eq!(describe(&both), format!("{waits}; {one}"));
        let first = vec![message(0), message(1)];
        both.unexpected = UnexpectedSnapshot { count: 9, is_partial: true, first };
        let nine = "the rank has at least 9 unexpected messages (from rank 0, tag 9, 7 bytes; from \
                    rank 1, tag 9, 1 byte; and 7 more)";
        assert_eq!(describe(&both), format!("{waits}; {nine}"));
        both.unexpected = UnexpectedSnapshot::default();
        both.activity = Activity::Stopped;
        assert_eq!(describe(&both), format!("{stopped}; the rank {waits}"));
        both.activity = Activity::Traced;
        assert_eq!(describe(&both), format!("is stopped by a debugger; the rank {waits}"));
        let runs = "runs, or polls for a message";
        assert_eq!(describe(&facts(Activity::Running, None)), runs);
        let (threads, ticks) = (1, 0);
        let asleep = facts(Activity::Asleep { threads, ticks }, None);
        assert_eq!(describe(&asleep), "sleeps, but waits for no message");
        // Only one of several threads waits, and has written the note.
        let mut several = waiting(&[4]);
        several.notes[0].multiple = true;
        let line = "\n    thread \"main\" in MPI_Recv, rank 4, tag 7, 8 bytes, for 2.5 s";
        assert_eq!(describe(&several), format!("has a thread that waits:{line}"));
        let mut crowd = several.clone();
        crowd.notes.push(note("MPI_Send", &[3]));
        crowd.names.push("thread 9".to_owned());
        crowd.unnoted = 2;
        let other = line.replace("\"main\"", "9").replace("Recv, rank 4", "Send, rank 3");
        assert_eq!(
            describe(&crowd),
            format!("has 4 threads that wait:{line}{other}\n    and 2 more")
        );
        several.activity = Activity::Asleep { threads, ticks };
        assert_eq!(describe(&several), waits);
    }

    #[test]
    fn note__says_whom_and_how_long() {
        let mut one = note("", &[3]);
        one.peer = 1;
        one.comm = "halo".to_owned();
        let text = describe_note(&one, 1_012_345_678);
        let peer = "an MPI call, peer 1 (rank 3 of the job), tag 7, communicator halo";
        assert_eq!(text, format!("{peer}, 8 bytes, for 12 ms"));
        one.awaited = AwaitedRanks::of(&[1]);
        assert!(describe_note(&one, 0).contains("peer 1, tag 7"));
        assert!(describe_note(&one, 0).ends_with("for 0 ms"));
        one.peer = -1;
        assert!(describe_note(&one, 0).contains("an MPI call, any peer, tag 7"));
        one.comm.clear();
        one.awaited = AwaitedRanks::of(&[1, 2]);
        assert!(describe_note(&one, 0).contains("an MPI call, any of ranks 1, 2, tag 7"));
        one.awaited = AwaitedRanks::UNKNOWN;
        assert!(describe_note(&one, 0).contains("an MPI call, tag 7"));
    }

    #[test]
    fn verdict__names_who_waits_for_whom() {
        let say = |verdict: &Verdict, facts: &[Facts]| {
            describe_verdict(verdict, &MEMBERS, facts, 13_000_000_000)
        };
        let hop = "(MPI_Recv, tag 7, 12.0 s)";
        assert_eq!(
            say(&Verdict::Cycle(vec![0, 1]), &[waiting(&[1]), waiting(&[0])]),
            format!("deadlock: rank 0 waits for rank 1 {hop}, which waits for rank 0 {hop}")
        );
        assert_eq!(
            say(&Verdict::Cycle(vec![1]), &[waiting(&[1]), waiting(&[1])]),
            format!("deadlock: rank 1 waits for itself {hop}")
        );
        let ring: Vec<Facts> = (0..20).map(|rank| waiting(&[(rank + 1) % 20])).collect();
        let text = say(&Verdict::Cycle((0..20).collect()), &ring);
        assert!(text.contains(", which waits for rank 8 "), "{text}");
        assert!(text.ends_with(", and so on over 12 more ranks to rank 0"), "{text}");
        assert_eq!(
            say(&Verdict::Left(0), &[waiting(&[1]), facts(Activity::Running, None)]),
            format!(
                "this wait cannot end: rank 0 waits for rank 1 {hop}, which has called MPI_Finalize"
            )
        );
        let any = facts(Activity::Unknown, Some(note("MPI_Probe", &[1, 2])));
        assert_eq!(
            say(&Verdict::Knot(vec![0, 1]), &[any.clone(), waiting(&[0])]),
            format!(
                "deadlock of 2 ranks, each waiting for another of them: rank 0 waits for any of \
                 ranks 1, 2 (MPI_Probe, tag 7, 12.0 s); rank 1 waits for rank 0 {hop}"
            )
        );
        let mut both = waiting(&[1]);
        both.notes.push(note("MPI_Wait", &[1]));
        both.names.push("thread 9".to_owned());
        assert_eq!(
            say(&Verdict::Cycle(vec![0, 1]), &[both, waiting(&[0])]),
            format!(
                "deadlock: rank 0 waits for rank 1 (thread \"main\" in MPI_Recv, tag 7, 12.0 s; \
                 thread 9 in MPI_Wait, tag 7, 12.0 s), which waits for rank 0 {hop}"
            )
        );
        let text = say(&Verdict::Left(0), &[any]);
        assert!(text.ends_with(", and all other ranks have finalized MPI or ended"), "{text}");
        let text = say(&Verdict::Knot((0..20).collect()), &ring);
        assert!(text.ends_with("; and 12 more ranks"), "{text}");
    }
}
