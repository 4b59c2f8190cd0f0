#![allow(unsafe_code)]
//! The processes of the ranks: which run, which have ended and how.

use crate::signals::signal_group;
use crate::worlds::{find_ended, find_known};
use fastpath_base::sync::Ordering;
use fastpath_bootstrap::inspect::{Member, ProcessEnd};
use fastpath_bootstrap::segment::{FailureKind, Phase, Segment, WaitNote};
use std::collections::HashMap;

/// One rank's process.
#[derive(Debug)]
pub struct Rank {
    /// Process and process group; 0 before it was started.
    pub pid: libc::pid_t,
    /// How it ended; None while it runs.
    pub end: Option<ProcessEnd>,
    /// What it was waiting for when it ended.
    pub last_notes: Vec<WaitNote>,
    /// What it runs.
    pub program: String,
    /// Its end is no failure: it was started and is not wanted after all, or is ended because another one has failed.
    is_given_up: bool,
    /// Its process group is empty: the number may be another one's by now.
    group_gone: bool,
}

impl Rank {
    fn new(program: String) -> Rank {
        Rank {
            pid: 0,
            end: None,
            last_notes: Vec::new(),
            program,
            is_given_up: false,
            group_gone: false,
        }
    }

    fn signal(&self, signal: i32) {
        if !self.group_gone {
            signal_group(self.pid, signal);
        }
    }
}

/// What the failure of a rank ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureScope {
    /// The job.
    Job,
    /// The worlds that may be connected with its own; the job where no other goes on.
    Worlds,
    /// The ranks of this node of those worlds that are known here to be connected: the first agent knows more.
    NodeWorlds,
}

/// A rank's failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The rank.
    pub rank: usize,
    /// How.
    pub kind: FailureKind,
    /// Signal or exit code or abort code.
    pub code: i32,
    /// Message of the abort.
    pub message: String,
    /// The ranks that it ends; None: the job.
    pub ended: Option<Vec<usize>>,
}

/// All ranks of the job.
#[derive(Debug)]
pub struct Ranks {
    list: Vec<Rank>,
    by_pid: HashMap<libc::pid_t, usize>,
    running: usize,
}

impl Ranks {
    /// None started yet; `programs` has what each rank runs.
    pub fn new(programs: impl IntoIterator<Item = String>) -> Ranks {
        Ranks {
            list: programs.into_iter().map(Rank::new).collect(),
            by_pid: HashMap::new(),
            running: 0,
        }
    }

    /// Further ranks, none started yet.
    pub fn add(&mut self, programs: impl IntoIterator<Item = String>) {
        self.list.extend(programs.into_iter().map(Rank::new));
    }

    /// Further ranks that run in other jobs.
    pub fn add_foreign(&mut self, ranks: usize, program: &str) {
        let foreign = || Rank {
            end: Some(ProcessEnd::Elsewhere),
            group_gone: true,
            ..Rank::new(program.to_owned())
        };
        self.list.extend(std::iter::repeat_with(foreign).take(ranks));
    }

    /// Ends the ranks from `first` on, some of which could not be started: ranks that know of them find them dead.
    pub fn give_up(&mut self, first: usize, segment: &Segment) {
        for (number, rank) in self.list.iter_mut().enumerate().skip(first) {
            rank.is_given_up = true;
            match rank.pid {
                0 => {
                    rank.end = Some(ProcessEnd::Unknown);
                    rank.group_gone = true;
                    segment.mark_dead(number);
                }
                _ => rank.signal(libc::SIGKILL),
            }
        }
    }

    /// A rank's process was started.
    pub fn started(&mut self, rank: usize, pid: libc::pid_t) {
        self.list[rank].pid = pid;
        self.by_pid.insert(pid, rank);
        self.running += 1;
    }

    /// Them as an observer sees them.
    pub fn members(&self) -> Vec<Member> {
        let member = |rank: &Rank| Member { pid: rank.pid, end: rank.end };
        self.list.iter().map(member).collect()
    }

    /// All of them.
    pub fn list(&self) -> &[Rank] {
        &self.list
    }

    /// How many still run.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Takes the ends of all processes that have ended, notes the first failure of the job, marks their pages and wakes
    /// those who sleep. Returns the ranks, and those failures among them that do not follow from another one: an abort
    /// before all else, then a signal, then the lowest rank. `other` gets the ends of children that are no ranks.
    pub fn reap(
        &mut self, segment: &Segment, scope: FailureScope,
        mut other: impl FnMut(libc::pid_t, ProcessEnd),
    ) -> (Vec<usize>, Vec<Failure>) {
        let mut ended = Vec::new();
        loop {
            let mut status = 0;
            // SAFETY: the status is writable.
            let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
            if pid <= 0 {
                break;
            }
            let end = read_status(status);
            let Some(rank) = self.by_pid.remove(&pid) else {
                other(pid, end);
                continue;
            };
            self.running -= 1;
            self.list[rank].end = Some(end);
            self.list[rank].last_notes = segment.page(rank).map_or(Vec::new(), |p| p.wait_notes());
            ended.push(rank);
        }
        self.forget_groups(segment);
        let failures = ended.iter().filter_map(|&r| self.judge(r, segment)).collect();
        // Before anybody can see who is dead: what happens to others because of it is no failure of theirs.
        let failures = self.note_failures(failures, segment, scope);
        for &rank in &ended {
            segment.mark_dead(rank);
        }
        if !ended.is_empty() {
            segment.signal_ends(&ended);
            segment.wake_all();
        }
        (ended, failures)
    }

    /// Notes whom each failure ends; returns those that do not follow from another one.
    fn note_failures(
        &mut self, mut failures: Vec<Failure>, segment: &Segment, scope: FailureScope,
    ) -> Vec<Failure> {
        let mut first = Vec::new();
        let abort = &segment.header().abort;
        while !failures.is_empty() {
            let by_abort = abort.load().map(|(rank, code, message)| {
                let kind = FailureKind::Abort;
                Failure { rank, kind, code, message, ended: None }
            });
            // What a rank says that is being ended does not count.
            let is_late = |f: &Failure| self.list.get(f.rank).is_none_or(|r| r.is_given_up);
            if by_abort.as_ref().is_some_and(is_late) {
                abort.clear();
                continue;
            }
            let Some(mut failure) = by_abort.or_else(|| pick_first(&failures)) else {
                break;
            };
            failure.ended = match scope {
                FailureScope::Job => None,
                FailureScope::Worlds => find_ended(failure.rank, segment, |r| self.goes_on(r)),
                FailureScope::NodeWorlds => find_known(failure.rank, segment),
            };
            let Some(ended) = &failure.ended else {
                let Failure { kind, rank, code, .. } = failure;
                segment.header().failure.record(kind, rank, code);
                first.push(failure);
                break;
            };
            self.mark_ended(ended, segment);
            failures.retain(|f| !ended.contains(&f.rank));
            first.push(failure);
        }
        // The next one that aborts, of another world, is to be heard.
        let is_given_up = |rank: usize| self.list.get(rank).is_some_and(|r| r.is_given_up);
        if scope != FailureScope::Job && abort.load().is_some_and(|(rank, ..)| is_given_up(rank)) {
            abort.clear();
        }
        first
    }

    /// Ranks of this node that are ended because one has failed: what becomes of them is no failure.
    pub fn mark_ended(&mut self, ended: &[usize], segment: &Segment) {
        for &rank in ended {
            self.list[rank].is_given_up = true;
            if let Some(page) = segment.page(rank) {
                page.is_ended.store(1, Ordering::Relaxed);
            }
        }
    }

    /// Whether a rank runs and is not being ended.
    pub fn goes_on(&self, rank: usize) -> bool {
        let rank = self.list.get(rank);
        rank.is_some_and(|r| r.pid != 0 && r.end.is_none() && !r.is_given_up)
    }

    /// Whether no process of a rank is left that could use its memory.
    pub fn has_ended(&self, rank: usize, segment: &Segment) -> bool {
        let is_over = |r: &Rank| r.end.is_some() && r.group_gone;
        let owner = segment.page(rank).map_or(0, |page| page.owner_pid.load(Ordering::Relaxed));
        self.list.get(rank).is_some_and(|r| {
            // A descendant of the process that was started may have become the rank, and have left its group.
            is_over(r)
                && (owner == 0
                    || owner as libc::pid_t == r.pid
                    || !is_process(owner as libc::pid_t))
        })
    }

    /// Notes which groups of ended ranks are empty. Members that outlive their rank are children of the launcher by
    /// adoption, so it comes here when the last of them ends.
    fn forget_groups(&mut self, segment: &Segment) {
        for (number, rank) in self.list.iter_mut().enumerate() {
            if rank.end.is_some() && !rank.group_gone && !signal_group(rank.pid, 0) {
                rank.group_gone = true;
                if let Some(page) = segment.page(number) {
                    page.launched_pid.store(0, Ordering::Relaxed);
                }
            }
        }
    }

    /// Was the end of this rank a failure?
    fn judge(&self, rank: usize, segment: &Segment) -> Option<Failure> {
        let phase = segment.page(rank).map_or(Phase::Launched, |p| p.phase());
        let failure =
            |kind, code| Some(Failure { rank, kind, code, message: String::new(), ended: None });
        match self.list[rank].end? {
            _ if self.list[rank].is_given_up => None,
            ProcessEnd::Signal(signal, _) => failure(FailureKind::Signal, signal),
            ProcessEnd::Exit(0) if (Phase::Initialized..Phase::Finalized).contains(&phase) => {
                failure(FailureKind::NoFinalize, 0)
            }
            ProcessEnd::Exit(0) | ProcessEnd::Unknown | ProcessEnd::Elsewhere => None,
            ProcessEnd::Exit(code) => failure(FailureKind::Exit, code),
        }
    }

    /// Sends a signal to the groups of all ranks, ended ones too: what they have started may
    /// still run.
    pub fn signal_all(&self, signal: i32) {
        self.signal(None, signal);
    }

    /// As [`Ranks::signal_all`], to some of them where they are given.
    pub fn signal(&self, some: Option<&[usize]>, signal: i32) {
        match some {
            None => self.list.iter().for_each(|rank| rank.signal(signal)),
            Some(some) => some.iter().for_each(|&rank| self.list[rank].signal(signal)),
        }
    }

    /// Whether a rank's end is not awaited: another one has failed, and it is ended with that.
    pub fn is_given_up(&self, rank: usize) -> bool {
        self.list.get(rank).is_some_and(|rank| rank.is_given_up)
    }

    /// Kills what is left in the ranks' groups, and forgets them.
    pub fn kill_groups(&mut self, segment: &Segment) {
        self.signal_all(libc::SIGKILL);
        for rank in 0..self.list.len() {
            if let Some(page) = segment.page(rank) {
                page.launched_pid.store(0, Ordering::Relaxed);
            }
        }
    }
}

/// Kills every child of the launcher but `spared`: what has left its rank's group, and was
/// adopted when its own parent ended.
pub fn kill_adopted(spared: &[libc::pid_t]) {
    // Each round may bring children of those that were killed in the one before.
    for _ in 0..200 {
        let mut strangers = list_children();
        strangers.retain(|pid| !spared.contains(pid));
        if strangers.is_empty() {
            return;
        }
        for &pid in &strangers {
            // SAFETY: a plain call on a child of ours, which keeps its number until it is waited
            // for below.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        for pid in strangers {
            await_end(pid, 2);
            // SAFETY: a plain call; no status is asked for.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) };
        }
    }
}

/// Returns when a child has ended, or after `limit_ms` milliseconds.
fn await_end(pid: libc::pid_t, limit_ms: i32) {
    // SAFETY: the call takes integers and gives a descriptor, or -1 (Linux before 5.3), which poll
    // ignores; the array has the one entry that is stated.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0) as i32;
        let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        libc::poll(&mut entry, 1, limit_ms);
        if fd >= 0 {
            libc::close(fd);
        }
    }
}

/// Whether there is a process of that number, of this user or another one.
fn is_process(pid: libc::pid_t) -> bool {
    // SAFETY: a plain call; signal 0 is none.
    let answer = unsafe { libc::kill(pid, 0) };
    answer == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

fn pick_first(failures: &[Failure]) -> Option<Failure> {
    let by_signal = |f: &&Failure| f.kind == FailureKind::Signal;
    let first = failures.iter().find(by_signal).or_else(|| failures.iter().min_by_key(|f| f.rank));
    first.cloned()
}

fn read_status(status: i32) -> ProcessEnd {
    if libc::WIFSIGNALED(status) {
        ProcessEnd::Signal(libc::WTERMSIG(status), libc::WCOREDUMP(status))
    } else {
        ProcessEnd::Exit(libc::WEXITSTATUS(status))
    }
}

/// Children of this thread, adopted ones too; empty where the kernel does not tell.
pub fn list_children() -> Vec<libc::pid_t> {
    let text = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    text.split_whitespace().filter_map(|w| w.parse().ok()).collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// Two ranks that have spawned one, and then another one, all of which run unconnected.
    fn job() -> (Ranks, Segment) {
        let segment = Segment::create(4, 1).unwrap();
        let mut ranks = Ranks::new(["a", "a", "b", "c"].map(String::from));
        for (rank, world) in [0, 0, 2, 3].into_iter().enumerate() {
            segment.page(rank).unwrap().world_first.store(world, Ordering::Relaxed);
            ranks.started(rank, libc::pid_t::MAX);
        }
        (ranks, segment)
    }

    fn failure(rank: usize) -> Failure {
        let kind = FailureKind::Exit;
        Failure { rank, kind, code: 5, message: String::new(), ended: None }
    }

    fn note(ranks: &mut Ranks, segment: &Segment, failed: &[usize]) -> Vec<(usize, FailureKind)> {
        let failures = failed.iter().map(|&rank| failure(rank)).collect();
        let noted = ranks.note_failures(failures, segment, FailureScope::Worlds);
        noted.into_iter().map(|f| (f.rank, f.kind)).collect()
    }

    #[test]
    fn failures__of_unconnected_worlds_count_for_each_and_end_the_job_at_last() {
        let (mut ranks, segment) = job();
        let exit = |rank| (rank, FailureKind::Exit);
        assert_eq!(note(&mut ranks, &segment, &[0, 1, 2]), [exit(0), exit(2)]);
        let is_ended = |rank: usize| segment.page(rank).unwrap().is_ended.load(Ordering::Relaxed);
        assert_eq!([0, 1, 2, 3].map(is_ended), [1, 1, 1, 0]);
        assert!(segment.header().failure.load().is_none());
        assert_eq!(note(&mut ranks, &segment, &[3]), [exit(3)]);
        assert_eq!(segment.header().failure.load(), Some((FailureKind::Exit, 3, 5)));
    }

    #[test]
    fn abort__is_that_of_its_world_alone_and_of_no_use_once_that_is_ended() {
        let (mut ranks, segment) = job();
        let abort = |rank| (rank, FailureKind::Abort);
        assert!(segment.header().abort.record(2, 9, "why"));
        assert_eq!(note(&mut ranks, &segment, &[0]), [abort(2), (0, FailureKind::Exit)]);
        // Of a rank that is being ended already.
        assert!(segment.header().abort.record(1, 9, "late"));
        assert_eq!(note(&mut ranks, &segment, &[3]), [(3, FailureKind::Exit)]);
        assert!(segment.header().abort.record(3, 9, "next"));
    }

    #[test]
    fn failure__ends_no_job_of_which_others_hosts_have_ranks() {
        let (mut ranks, segment) = job();
        let scope = FailureScope::NodeWorlds;
        for (failed, ended) in [(3, vec![3]), (0, vec![0, 1]), (2, vec![2])] {
            let noted = ranks.note_failures(vec![failure(failed)], &segment, scope);
            assert_eq!(noted, [Failure { ended: Some(ended), ..failure(failed) }]);
        }
        assert!(segment.header().failure.load().is_none());
    }

    #[test]
    fn failure__ends_the_job_where_worlds_are_not_told_apart() {
        let (mut ranks, segment) = job();
        let noted = ranks.note_failures(vec![failure(0), failure(2)], &segment, FailureScope::Job);
        assert_eq!(noted, [failure(0)]);
        assert!(!ranks.is_given_up(0));
    }
}
