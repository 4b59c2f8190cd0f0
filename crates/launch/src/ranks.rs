#![allow(unsafe_code)]
//! Processes of the ranks: which of them run, and how the others have ended.

use crate::signals::{is_of_other_session, is_stoppable, signal_group};
use crate::worlds::{find_ended, find_known};
use fastpath_base::sync::Ordering;
use fastpath_job::inspect::{Member, ProcessEnd};
use fastpath_segment::{FailureKind, RankPhase, Segment, WaitNote};
use std::collections::HashMap;

#[derive(Debug)]
pub struct RankProcess {
    /// Number of the process and of its process group; 0 until the rank is started.
    pub pid: libc::pid_t,
    /// How the process ended; None while it runs.
    pub end: Option<ProcessEnd>,
    /// Wait notes of the rank's threads, read at the end of the rank.
    pub last_notes: Vec<WaitNote>,
    pub program: String,
    /// Whether the end of the rank is no failure: its spawn was given up, or it is ended because of another failure.
    is_given_up: bool,
    /// Whether the process group is empty. If so, the kernel may have reused the group's number.
    group_gone: bool,
}

impl RankProcess {
    fn new(program: String) -> RankProcess {
        RankProcess {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureScope {
    Job,
    /// The failure ends the worlds that may be connected with the failed world, or the job if no other world continues.
    Worlds,
    /// The failure ends ranks of this node in worlds that this node knows to be connected. The first agent decides
    /// about the other worlds.
    NodeWorlds,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub rank: usize,
    pub kind: FailureKind,
    pub code: i32,
    pub message: String,
    pub ended: Option<Vec<usize>>,
}

#[derive(Debug)]
pub struct Ranks {
    list: Vec<RankProcess>,
    by_pid: HashMap<libc::pid_t, usize>,
    running: usize,
    /// Whether other ranks continue after the death of a rank (`FASTPATH_FT`).
    tolerates_failures: bool,
}

impl Ranks {
    pub fn new(programs: impl IntoIterator<Item = String>) -> Ranks {
        Ranks {
            list: programs.into_iter().map(RankProcess::new).collect(),
            by_pid: HashMap::new(),
            running: 0,
            tolerates_failures: false,
        }
    }

    /// Sets whether the death of a rank ends only this rank. `MPI_Abort` still ends the job.
    pub fn tolerate_failures(&mut self, tolerates: bool) {
        self.tolerates_failures = tolerates;
    }

    pub fn tolerates_failures(&self) -> bool {
        self.tolerates_failures
    }

    pub fn add(&mut self, programs: impl IntoIterator<Item = String>) {
        self.list.extend(programs.into_iter().map(RankProcess::new));
    }

    pub fn add_foreign(&mut self, ranks: usize, program: &str) {
        let foreign = || RankProcess {
            end: Some(ProcessEnd::Elsewhere),
            group_gone: true,
            ..RankProcess::new(program.to_owned())
        };
        self.list.extend(std::iter::repeat_with(foreign).take(ranks));
    }

    /// Ends the ranks from `first` on, because some of them could not be started. Running ranks find these ranks marked
    /// as dead.
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

    pub fn started(&mut self, rank: usize, pid: libc::pid_t) {
        self.list[rank].pid = pid;
        self.by_pid.insert(pid, rank);
        self.running += 1;
    }

    pub fn members(&self) -> Vec<Member> {
        let member = |rank: &RankProcess| Member { pid: rank.pid, end: rank.end };
        self.list.iter().map(member).collect()
    }

    pub fn list(&self) -> &[RankProcess] {
        &self.list
    }

    pub fn running(&self) -> usize {
        self.running
    }

    /// Reaps all ended processes, records the first failure of the job, marks the pages of ended ranks and wakes
    /// sleepers. Returns the ended ranks, and their failures that are not consequences of another failure: an abort
    /// first, then a signal, then the lowest rank. `other` gets the ends of children that are not ranks.
    pub fn reap(
        &mut self, segment: &Segment, scope: FailureScope,
        mut other: impl FnMut(libc::pid_t, ProcessEnd),
    ) -> (Vec<usize>, Vec<Failure>) {
        let mut ended = Vec::new();
        loop {
            let mut status = 0;
            // SAFETY: the status is writable and outlives the call.
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
        ended.iter().for_each(|&rank| self.note_absence(rank, segment));
        let failures = ended.iter().filter_map(|&r| self.judge(r, segment)).collect();
        // Note the failures before other ranks can see which ranks are dead: a rank that then fails as a consequence
        // has no failure of its own.
        let failures = self.note_failures(failures, segment, scope);
        for &rank in &ended {
            segment.mark_dead(rank);
        }
        if !ended.is_empty() {
            match self.tolerates_failures {
                true => segment.signal_ends_to_all(),
                false => segment.signal_ends(&ended),
            }
            segment.wake_all();
        }
        (ended, failures)
    }

    /// Records the ranks that each failure ends. Returns the failures that are not consequences of another failure.
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
            // An abort of a rank that is being ended does not count.
            let is_late = |f: &Failure| self.list.get(f.rank).is_none_or(|r| r.is_given_up);
            if by_abort.as_ref().is_some_and(is_late) {
                abort.clear();
                continue;
            }
            let Some(mut failure) = by_abort.or_else(|| pick_first(&failures)) else {
                break;
            };
            let ends_itself = self.tolerates_failures && failure.kind != FailureKind::Abort;
            failure.ended = match scope {
                _ if ends_itself => Some(vec![failure.rank]),
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
        // Clear the abort of a rank that is being ended. Otherwise a later abort in another world could not be
        // recorded, because the job has only one abort record.
        let is_given_up = |rank: usize| self.list.get(rank).is_some_and(|r| r.is_given_up);
        if scope != FailureScope::Job && abort.load().is_some_and(|(rank, ..)| is_given_up(rank)) {
            abort.clear();
        }
        first
    }

    /// Marks ranks of this node that are ended because of a failure. Their ends are not failures.
    pub fn mark_ended(&mut self, ended: &[usize], segment: &Segment) {
        for &rank in ended {
            self.list[rank].is_given_up = true;
            if let Some(page) = segment.page(rank) {
                page.is_ended.store(1, Ordering::Relaxed);
            }
        }
    }

    pub fn goes_on(&self, rank: usize) -> bool {
        let rank = self.list.get(rank);
        rank.is_some_and(|r| r.pid != 0 && r.end.is_none() && !r.is_given_up)
    }

    /// Whether no process of a rank is left that could use its memory.
    pub fn has_ended(&self, rank: usize, segment: &Segment) -> bool {
        let is_over = |r: &RankProcess| r.end.is_some() && r.group_gone;
        let owner = segment.page(rank).map_or(0, |page| page.owner_pid.load(Ordering::Relaxed));
        self.list.get(rank).is_some_and(|r| {
            // The rank may be a descendant of the started process, and have left that process's group.
            is_over(r)
                && (owner == 0
                    || owner as libc::pid_t == r.pid
                    || !is_process(owner as libc::pid_t))
        })
    }

    /// Records which groups of ended ranks are empty. The launcher adopts members that outlive their rank, and so calls
    /// this function again after the last of them has ended.
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

    /// Records program and process of a spawned rank in the rank's page, if the rank exited with code 0 before it
    /// called `MPI_Init`. Waiting parents read there that the rank will never join.
    fn note_absence(&self, rank: usize, segment: &Segment) {
        let RankProcess { pid, end, program, .. } = &self.list[rank];
        let Some(page) = segment.page(rank) else { return };
        let is_spawned = page.parent.load(Ordering::Relaxed) != 0;
        if is_spawned && *end == Some(ProcessEnd::Exit(0)) && page.phase() < RankPhase::Initialized
        {
            let end = "exited with code 0 before it called MPI_Init";
            page.message.store(&format!("{program}, process {pid}, {end}"));
        }
    }

    /// Returns the failure of an ended rank; None if its end was no failure.
    fn judge(&self, rank: usize, segment: &Segment) -> Option<Failure> {
        let phase = segment.page(rank).map_or(RankPhase::Launched, |p| p.phase());
        let failure =
            |kind, code| Some(Failure { rank, kind, code, message: String::new(), ended: None });
        match self.list[rank].end? {
            _ if self.list[rank].is_given_up => None,
            ProcessEnd::Signal(signal, _) => failure(FailureKind::Signal, signal),
            ProcessEnd::Exit(0)
                if (RankPhase::Initialized..RankPhase::Finalized).contains(&phase) =>
            {
                failure(FailureKind::NoFinalize, 0)
            }
            ProcessEnd::Exit(0) | ProcessEnd::Unknown | ProcessEnd::Elsewhere => None,
            ProcessEnd::Exit(code) => failure(FailureKind::Exit, code),
        }
    }

    /// Sends a signal to the groups of all ranks, also of ended ones: processes that they started may still run.
    pub fn signal_all(&self, signal: i32) {
        self.signal(None, signal);
    }

    /// Sends SIGTSTP to all ranks. Ranks outside of the launcher's session also get SIGSTOP, unless they handle, ignore
    /// or block SIGTSTP: the kernel drops SIGTSTP for a group without a member whose parent is in another group of the
    /// session.
    pub fn stop_all(&self) {
        self.signal_all(libc::SIGTSTP);
        let running = self.list.iter().filter(|rank| rank.pid != 0 && rank.end.is_none());
        let dropped =
            running.filter(|rank| is_of_other_session(rank.pid) && is_stoppable(rank.pid));
        dropped.for_each(|rank| rank.signal(libc::SIGSTOP));
    }

    /// Sends a signal to the groups of `some` ranks, or of all if None.
    pub fn signal(&self, some: Option<&[usize]>, signal: i32) {
        match some {
            None => self.list.iter().for_each(|rank| rank.signal(signal)),
            Some(some) => some.iter().for_each(|&rank| self.list[rank].signal(signal)),
        }
    }

    /// Whether the rank is being ended because of another rank's failure.
    pub fn is_given_up(&self, rank: usize) -> bool {
        self.list.get(rank).is_some_and(|rank| rank.is_given_up)
    }

    /// Kills the remaining members of the ranks' groups, and forgets the groups.
    pub fn kill_groups(&mut self, segment: &Segment) {
        self.signal_all(libc::SIGKILL);
        for rank in 0..self.list.len() {
            if let Some(page) = segment.page(rank) {
                page.launched_pid.store(0, Ordering::Relaxed);
            }
        }
    }
}

/// Kills every child of the launcher but `spared`: processes that left their rank's group before their parent ended,
/// and the leader of the job's session.
pub fn kill_adopted(spared: &[libc::pid_t]) {
    // The kernel's list may lack children while others end, so only the second empty list in a row counts.
    let mut was_empty = false;
    // Each round may adopt children of processes that were killed in the preceding round.
    for _ in 0..200 {
        let mut strangers = list_children();
        strangers.retain(|pid| !spared.contains(pid));
        if std::mem::replace(&mut was_empty, strangers.is_empty()) && was_empty {
            return;
        }
        for &pid in &strangers {
            // SAFETY: kill takes no pointers. The target is a child, which keeps its number until it is waited for
            // below.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        for pid in strangers {
            await_end(pid, 2);
            // SAFETY: a null status is allowed.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) };
        }
    }
}

/// Waits until a child has ended, for at most `limit_ms` milliseconds.
fn await_end(pid: libc::pid_t, limit_ms: i32) {
    // SAFETY: pidfd_open takes integers and returns a descriptor, or -1 (Linux before 5.3), which poll ignores. The
    // array has the one entry that is passed.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0) as i32;
        let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        libc::poll(&mut entry, 1, limit_ms);
        if fd >= 0 {
            libc::close(fd);
        }
    }
}

/// Whether a process of that number exists, of any user.
fn is_process(pid: libc::pid_t) -> bool {
    // SAFETY: kill takes no pointers, and signal 0 is not delivered.
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

/// Lists the children of this thread, including adopted ones; empty if the kernel does not report them.
pub fn list_children() -> Vec<libc::pid_t> {
    read_children("/proc/thread-self/children")
}

/// Lists the children of the thread whose file `children` in `/proc` is `path`; empty if the kernel does not report
/// them.
pub fn read_children(path: &str) -> Vec<libc::pid_t> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|w| w.parse().ok()).collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// A world of two ranks that spawned one rank, and then another one; the worlds are not connected.
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
