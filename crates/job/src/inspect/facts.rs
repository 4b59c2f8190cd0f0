//! State of ranks, observed from outside: pages in the job's memory, and processes in `/proc`.

use super::{Member, ProcessEnd};
use fastpath_base::sync::Ordering;
use fastpath_base::tell::escape;
use fastpath_segment::{RankPage, RankPhase, Segment, UnexpectedSnapshot, WaitNote, WindowLocks};
use std::fs;

/// Largest number of ancestors between a rank's own process and the process that the launcher started for the rank.
const PARENTS_MOST: usize = 32;
/// Shortest wait that can be judged a deadlock, in nanoseconds.
pub(super) const LEAST_NS: u64 = 1_000_000_000;

/// Activity of a process, as reported by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Unknown: the process has ended, or cannot be read.
    Unknown,
    /// Stopped by a signal.
    Stopped,
    /// A thread is stopped by a debugger.
    Traced,
    /// A thread runs, is ready to run, or waits for a disk.
    Running,
    /// All threads sleep.
    Asleep {
        /// Number of threads, without the library's own.
        threads: usize,
        /// User and system time of all threads, in ticks.
        ticks: u64,
    },
}

impl Activity {
    /// Subtracts the library's `own` threads from the number of sleeping threads. The result counts the threads that
    /// could make an MPI call, which the library's threads do not while they sleep. It is at least 1, because the
    /// process's first thread never belongs to the library.
    fn without(self, own: usize) -> Activity {
        match self {
            Activity::Asleep { threads, ticks } if threads > 1 => {
                let threads = threads.saturating_sub(own).max(1);
                Activity::Asleep { threads, ticks }
            }
            other => other,
        }
    }
}

/// Observed state of a rank.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Process that called MPI, or that the launcher started.
    pub pid: libc::pid_t,
    /// Phase of the rank in MPI.
    pub phase: RankPhase,
    /// Whether the rank sends no more messages: its process has ended, or it has finalized MPI.
    pub has_left: bool,
    /// Activity of the process.
    pub activity: Activity,
    /// Whether the waiting threads sleep in MPI until a peer wakes one of them, and have found nothing to take
    /// (docs/decisions/0019-when-a-deadlock-is-proved.md).
    pub is_settled: bool,
    /// Number of sleeps with a time limit that ended without work. The number is read before the thread's note. `None`
    /// if the number would prove nothing: the rank has no or several waiting threads, or it uses an adapter or the
    /// network.
    pub naps: Option<u32>,
    /// Value of `naps` after all ranks had been observed.
    pub naps_then: u32,
    /// Wait notes of the threads.
    pub notes: Vec<WaitNote>,
    /// Names of the threads of `notes`, if the thread level allows several to wait.
    pub names: Vec<String>,
    /// Names of the other running threads, if they can be distinguished.
    pub beside: Vec<String>,
    /// Number of threads that wait without a note, because there are too many.
    pub unnoted: u32,
    /// Window locks that the rank holds; `None` if it holds none.
    pub locks: Option<WindowLocks>,
    /// Unexpected messages at the start of the wait.
    pub unexpected: UnexpectedSnapshot,
}

impl Facts {
    /// Returns whether only the waiting threads could make an MPI call, and none of them is stopped.
    pub fn only_waits(&self) -> bool {
        let multiple = self.notes.iter().any(|note| note.multiple);
        match self.activity {
            Activity::Asleep { threads, .. } => threads == self.notes.len() || !multiple,
            Activity::Running => !multiple,
            Activity::Unknown | Activity::Stopped | Activity::Traced => false,
        }
    }

    /// Returns whether the rank waits, and every wait has lasted long enough to be judged.
    pub fn has_waited_long(&self, now_ns: u64) -> bool {
        let lasted = |note: &WaitNote| now_ns.saturating_sub(note.since_ns) >= LEAST_NS;
        !self.notes.is_empty() && self.notes.iter().all(lasted)
    }
}

/// Observes all ranks, one after the other.
pub fn look_at_ranks(members: &[Member], segment: &Segment) -> Vec<Facts> {
    let look = |(number, member)| look_at_rank(member, segment.page(number));
    let mut all: Vec<Facts> = members.iter().enumerate().map(look).collect();
    for (number, facts) in all.iter_mut().enumerate() {
        let page = segment.page(number);
        facts.naps_then = page.map_or(0, |page| page.naps.load(Ordering::Relaxed));
    }
    all
}

fn look_at_rank(rank: &Member, page: Option<&RankPage>) -> Facts {
    let phase = page.map_or(RankPhase::Launched, RankPage::phase);
    let mut facts = Facts {
        pid: rank.pid,
        phase,
        has_left: rank.end.is_some_and(|end| end != ProcessEnd::Elsewhere)
            || phase == RankPhase::Finalized,
        activity: Activity::Unknown,
        is_settled: false,
        naps: None,
        naps_then: 0,
        notes: Vec::new(),
        names: Vec::new(),
        beside: Vec::new(),
        unnoted: 0,
        locks: page.and_then(RankPage::window_locks),
        unexpected: UnexpectedSnapshot::default(),
    };
    if rank.end.is_some() {
        return facts;
    }
    // Read the sleep before the notes: if the rank wakes and sleeps again in between, its note differs from the note of
    // the other observation.
    if let Some(page) = page {
        let by_adapter = page.by_adapter.load(Ordering::Relaxed) != 0;
        let sleepers = page.sleepers() as usize;
        let naps = page.naps.load(Ordering::Relaxed);
        facts.notes = page.wait_notes();
        facts.unnoted = page.unnoted();
        let is_one = facts.notes.len() == 1 && facts.unnoted == 0 && !by_adapter;
        facts.naps = is_one.then_some(naps);
        facts.is_settled = sleepers != 0 && sleepers == facts.notes.len() && !by_adapter;
    }
    let owner = page.map_or(0, |page| page.owner_pid.load(Ordering::Relaxed));
    if let Some(pid) = find_process(rank.pid, owner as libc::pid_t) {
        facts.pid = pid;
        let threads = read_threads(pid);
        facts.activity = judge_threads(threads.iter().map(|(_, stat)| stat));
        if let Some(page) = page {
            let helpers = page.helpers.load(Ordering::Relaxed) as usize;
            let own = helpers.saturating_add(usize::from(page.call.is_answered()));
            facts.activity = facts.activity.without(own);
            // The rank may have begun to wait since the first read. A thread writes its note before it sleeps.
            if facts.notes.is_empty() {
                facts.notes = page.wait_notes();
            }
            // If the library has threads of its own, they cannot be distinguished from the program's threads.
            if own == 0 {
                facts.beside = name_beside(&facts, &threads, owner);
            }
        }
    }
    // The rank writes its unexpected messages together with a note.
    if let Some(page) = page.filter(|_| !facts.notes.is_empty()) {
        facts.unexpected = page.unexpected();
    }
    let name = |note: &WaitNote| name_thread(facts.pid, owner, note.thread);
    facts.names = facts.notes.iter().map(name).collect();
    facts
}

/// Names the threads other than the waiting ones. Below `MPI_THREAD_MULTIPLE` a note does not name its thread.
fn name_beside(facts: &Facts, threads: &[(u32, Stat)], owner: u32) -> Vec<String> {
    if !facts.notes.iter().any(|note| note.multiple) {
        return Vec::new();
    }
    let waits = |thread| facts.notes.iter().any(|note| note.thread == thread);
    let beside = threads.iter().filter(|(_, stat)| stat.state == 'R');
    let beside = beside.filter(|&&(thread, _)| !waits(thread));
    beside.map(|&(thread, _)| name_thread(facts.pid, owner, thread)).collect()
}

/// Names a thread: "main", or its number with the name that the program has set. `owner` and `thread` are numbers as
/// the rank sees them, and `pid` is the process as seen here.
pub fn name_thread(pid: libc::pid_t, owner: u32, thread: u32) -> String {
    if thread == owner || thread == 0 {
        return "thread \"main\"".to_owned();
    }
    let read = |path: String| fs::read_to_string(path).ok();
    let given = read(format!("/proc/{pid}/task/{thread}/comm"))
        .filter(|name| Some(name) != read(format!("/proc/{pid}/comm")).as_ref());
    match given {
        Some(name) => {
            format!("thread {thread} \"{}\"", escape(name.trim_end()))
        }
        None => format!("thread {thread}"),
    }
}

/// Returns the process of a rank: `owner`, from the rank's page, if that process descends from the started process.
/// Otherwise returns `None`, because `owner` is a number of another process namespace.
fn find_process(started: libc::pid_t, owner: libc::pid_t) -> Option<libc::pid_t> {
    if started <= 0 || owner == 0 || owner == started {
        return (started > 0).then_some(started);
    }
    let mut pid = owner;
    for _ in 0..PARENTS_MOST {
        pid = parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?.parent;
        if pid == started {
            return Some(owner);
        }
    }
    None
}

/// Returns the threads of a process, by their numbers; empty if they cannot be read.
fn read_threads(pid: libc::pid_t) -> Vec<(u32, Stat)> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let read = |task: fs::DirEntry| {
        let stat = parse_stat(&fs::read_to_string(task.path().join("stat")).ok()?)?;
        Some((task.file_name().to_str()?.parse().ok()?, stat))
    };
    tasks.flatten().filter_map(read).collect()
}

fn judge_threads<'a>(stats: impl Iterator<Item = &'a Stat>) -> Activity {
    let (mut threads, mut ticks, mut runs) = (0, 0_u64, false);
    for stat in stats {
        match stat.state {
            'Z' | 'X' | 'x' => continue,
            'T' => return Activity::Stopped,
            't' => return Activity::Traced,
            'S' | 'I' => {}
            _ => runs = true,
        }
        threads += 1;
        ticks = ticks.saturating_add(stat.ticks);
    }
    match (threads, runs) {
        (0, _) => Activity::Unknown,
        (_, true) => Activity::Running,
        (_, false) => Activity::Asleep { threads, ticks },
    }
}

/// A line of `/proc/PID/stat` or `/proc/PID/task/TID/stat` (proc_pid_stat(5)).
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    parent: libc::pid_t,
    ticks: u64,
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The preceding name may have blanks and parentheses.
    let (_, rest) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        ticks: number(11)?.saturating_add(number(12)?),
    })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use fastpath_segment::{AwaitedRanks, STATE_AWAKE, STATE_SLEEPING, WaitNoteRef};

    fn stat(state: char, ticks: u64) -> Stat {
        Stat { state, parent: 1, ticks }
    }

    #[test]
    fn rank__is_settled_while_its_threads_sleep_for_good_and_no_adapter_brings_anything() {
        let segment = Segment::create(1, 1).unwrap();
        let page = segment.page(0).unwrap();
        let ranks = [Member { pid: 0, end: None }];
        let is_settled = || look_at_ranks(&ranks, &segment)[0].is_settled;
        assert!(!is_settled());
        page.state.store(STATE_SLEEPING, Ordering::Relaxed);
        assert!(!is_settled(), "it may not have had its last look");
        page.set_asleep(1);
        assert!(!is_settled(), "it does not say what it waits for");
        let note = |thread| WaitNoteRef {
            call: "MPI_Recv",
            peer: 0,
            tag: 0,
            comm: "",
            bytes: 0,
            since_ns: 1,
            awaited: AwaitedRanks::of(&[0]),
            multiple: true,
            thread,
        };
        page.note_waiting(0, note(1));
        assert!(is_settled());
        page.set_asleep(2);
        assert!(!is_settled(), "the note is of one of two threads");
        page.note_waiting(2, note(2));
        assert!(is_settled());
        page.set_asleep(1);
        assert!(!is_settled(), "one of two that wait is awake");
        page.clear_waiting(0);
        assert!(is_settled());
        page.by_adapter.store(1, Ordering::Relaxed);
        assert!(!is_settled(), "a lost datagram comes again");
        page.by_adapter.store(0, Ordering::Relaxed);
        page.state.store(STATE_AWAKE, Ordering::Relaxed);
        assert!(!is_settled(), "it was woken and has not run yet");
        page.set_phase(RankPhase::Finalized);
        assert!(look_at_ranks(&ranks, &segment)[0].has_left);
    }

    #[test]
    fn rank__of_another_host_has_not_left() {
        let segment = Segment::create(2, 1).unwrap();
        let page = segment.page(1).unwrap();
        page.elsewhere.store(1, Ordering::Relaxed);
        let members = crate::inspect::find_members(&segment);
        assert_eq!(members[1].end, Some(ProcessEnd::Elsewhere));
        let facts = look_at_ranks(&members, &segment);
        assert!(!facts[1].has_left && facts[1].activity == Activity::Unknown);
    }

    #[test]
    fn thread__is_called_by_its_number_and_its_name() {
        let own = std::process::id();
        let pid = own as libc::pid_t;
        assert_eq!(name_thread(pid, own, own), "thread \"main\"");
        assert_eq!(name_thread(pid, own, 1), "thread 1", "no thread of it");
        let named = std::thread::Builder::new().name("a\u{7}b".to_owned());
        let look = move || {
            let thread = fastpath_base::topology::thread_number();
            assert_eq!(name_thread(pid, own, thread), format!(r#"thread {thread} "a\u{{7}}b""#));
        };
        named.spawn(look).unwrap().join().unwrap();
    }

    #[test]
    fn stat__is_read_whatever_the_program_is_called() {
        let text = "12 (a) R (b) S 7 12 12 0 -1 4194560 90 0 0 0 31 11 0 0 20 0 1 0 5 6 7 8";
        let expected = Stat { state: 'S', parent: 7, ticks: 42 };
        assert_eq!(parse_stat(text), Some(expected));
        for text in ["", "12 (a", "12 (a) ", "12 (a) S", "12 (a) S x 1 1 1"] {
            assert_eq!(parse_stat(text), None, "{text}");
        }
    }

    #[test]
    fn threads__make_one_activity() {
        let judge = |stats: &[(char, u64)]| {
            let stats: Vec<Stat> = stats.iter().map(|&(s, t)| stat(s, t)).collect();
            judge_threads(stats.iter())
        };
        let asleep = |threads, ticks| Activity::Asleep { threads, ticks };
        assert_eq!(judge(&[('S', 3)]), asleep(1, 3));
        assert_eq!(asleep(3, 3).without(2), asleep(1, 3));
        assert_eq!(asleep(2, 3).without(1), asleep(1, 3));
        assert_eq!(asleep(1, 3).without(1), asleep(1, 3));
        assert_eq!(Activity::Running.without(1), Activity::Running);
        assert_eq!(judge(&[('S', 3), ('Z', 9), ('S', 4)]), asleep(2, 7));
        assert_eq!(judge(&[('S', 3), ('R', 4)]), Activity::Running);
        assert_eq!(judge(&[('D', 3)]), Activity::Running);
        assert_eq!(judge(&[('T', 3), ('T', 4)]), Activity::Stopped);
        assert_eq!(judge(&[('S', 3), ('t', 4)]), Activity::Traced);
        assert_eq!(judge(&[]), Activity::Unknown);
        assert_eq!(judge(&[('Z', 1)]), Activity::Unknown);
    }

    #[test]
    fn rank__only_waits_where_no_other_thread_may_call_mpi() {
        let segment = Segment::create(1, 1).unwrap();
        let wait = |multiple| WaitNoteRef {
            call: "MPI_Recv",
            peer: 0,
            tag: 0,
            comm: "",
            bytes: 0,
            since_ns: 5,
            awaited: AwaitedRanks::of(&[0]),
            multiple,
            thread: 1,
        };
        let asleep = |threads| Activity::Asleep { threads, ticks: 0 };
        let cases = [
            (false, Activity::Running, true),
            (false, asleep(2), true),
            (true, asleep(1), true),
            (true, asleep(2), false),
            (true, Activity::Running, false),
            (false, Activity::Stopped, false),
            (false, Activity::Traced, false),
            (false, Activity::Unknown, false),
        ];
        for (multiple, activity, expected) in cases {
            segment.page(0).unwrap().note_waiting(0, wait(multiple));
            let members = [Member { pid: 0, end: None }];
            let mut facts = look_at_ranks(&members, &segment).remove(0);
            facts.activity = activity;
            assert_eq!(facts.only_waits(), expected, "{multiple} {activity:?}");
            assert!(
                !facts.has_waited_long(5 + LEAST_NS - 1) && facts.has_waited_long(5 + LEAST_NS)
            );
            facts.notes.clear();
            assert!(!facts.has_waited_long(5 + LEAST_NS));
        }
    }

    #[test]
    fn process__is_one_that_descends_from_the_one_that_was_started() {
        let own = std::process::id() as libc::pid_t;
        let parent = std::os::unix::process::parent_id() as libc::pid_t;
        assert_eq!(find_process(own, own), Some(own));
        assert_eq!(find_process(own, 0), Some(own));
        assert_eq!(find_process(parent, own), Some(own));
        assert_eq!(find_process(own, parent), None);
        assert_eq!(find_process(own, 1), None);
        assert_eq!(find_process(0, own), None);
        // This thread runs during the observation.
        let threads = read_threads(own);
        let stats = threads.iter().map(|(_, stat)| stat);
        assert_eq!(judge_threads(stats), Activity::Running);
        assert!(read_threads(0).is_empty());
    }
}
