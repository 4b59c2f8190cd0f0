//! Progress thread (`FASTPATH_PROGRESS=thread`): makes progress on messages while the program computes.
//!
//! The thread sleeps until a peer's call wakes it (`fastpath_protocol::background`). The thread then borrows the lock,
//! whose bias stays with the program's thread, and makes progress until there is nothing to do.
#![allow(unsafe_code)]

use crate::common::lock::{self, Lock};
use fastpath_base::clock;
use fastpath_base::sync::Ordering;
use fastpath_base::thread::without_signals;
use fastpath_base::topology::{CpuSet, affinity, affinity_of, set_affinity};
use fastpath_base::wait;
use fastpath_job::Job;
use fastpath_protocol::Worker;
use fastpath_protocol::background::TurnEnd;
use fastpath_segment::{CallWord, RankPage, has_left};
use std::io;
use std::thread::{Builder, JoinHandle};

/// Thread name; the kernel keeps 15 bytes of it.
const NAME: &str = "fastpath-progr";
/// Stack size in bytes; the thread packs and unpacks datatypes.
const STACK_BYTES: usize = 1 << 18;
/// Maximum number of times that the thread yields to a thread that waits for the lock.
const YIELDS: u32 = 64;

/// Nanoseconds for which a thread with a dedicated processor polls after a turn. Waking it takes tens of microseconds.
const AWAKE_NS: u64 = 200_000;
/// Number of polls between two reads of the clock.
const POLLS_PER_CLOCK: u32 = 64;

/// Handle of the thread, which must end before the worker does.
pub(crate) struct ProgressThread {
    call: &'static CallWord,
    thread: JoinHandle<()>,
}

/// Guard of a call that stays inside MPI until its message has left. The guard starts before the call posts its
/// message, so that peers which answer early need not wake the progress thread. See [`Worker::attend`].
pub(crate) struct ProgressGuard(Option<*mut Worker>);

impl ProgressGuard {
    /// Begins the guard if there is a progress thread. `worker` is `None` if MPI does not run.
    #[inline]
    pub fn begin(worker: Option<*mut Worker>) -> Self {
        // SAFETY: the worker lives while MPI runs, and the caller is inside MPI.
        ProgressGuard(worker.filter(|&worker| unsafe {
            let runs = (*worker).background.runs;
            if runs {
                (*worker).attend();
            }
            runs
        }))
    }
}

impl Drop for ProgressGuard {
    fn drop(&mut self) {
        if let Some(worker) = self.0 {
            // SAFETY: the worker lives while MPI runs, and the caller is inside MPI.
            unsafe { (*worker).resume() };
        }
    }
}

/// Worker passed to the new thread, which uses it only under the lock.
struct ThreadWorker(*mut Worker);

// SAFETY: every user of a worker holds the lock, which is enabled if there is a progress thread.
unsafe impl Send for ThreadWorker {}

impl ProgressThread {
    /// Starts the thread for a worker, which lives until [`ProgressThread::end`]. The lock must be enabled. Fails if
    /// the process may have no more threads.
    pub fn start(job: &'static Job, worker: *mut Worker) -> io::Result<Self> {
        // SAFETY: the caller is so far the only thread that uses the worker.
        let call = unsafe {
            (*worker).background.runs = true;
            (*worker).own_call()
        };
        call.begin();
        let served = ThreadWorker(worker);
        let started = without_signals(|| {
            let builder = Builder::new().name(NAME.to_owned()).stack_size(STACK_BYTES);
            builder.spawn(move || serve(job, served, call))
        });
        match started {
            Ok(thread) => Ok(ProgressThread { call, thread }),
            Err(e) => {
                call.end();
                // SAFETY: the worker lives, and no other thread was started that could use it.
                unsafe { (*worker).background.runs = false };
                Err(e)
            }
        }
    }

    /// Ends the thread. The caller is inside MPI, and releases the lock meanwhile.
    pub fn end(self, lock: &Lock) {
        self.call.end();
        lock.release_lock(|| _ = self.thread.join());
    }
}

/// Binds the calling thread to processors to which no rank of this host is bound, if the launcher may use at least as
/// many of these as there are ranks. If there are fewer, the thread may also run on processors of other ranks, which
/// are idle while those ranks wait. The thread never runs on its own rank's processors, because the program computes
/// there and could not move away. Returns whether all ranks have published their process, and whether the thread has a
/// processor.
fn spread(job: &Job, own: &CpuSet) -> (bool, bool) {
    let pids: Vec<_> = pages_here(job).map(|page| page.owner_pid.load(Ordering::Relaxed)).collect();
    let processors_of = |pid: u32| affinity_of(pid as libc::pid_t).filter(|_| pid > 0);
    let bound: Vec<CpuSet> = pids.iter().filter_map(|&pid| processors_of(pid)).collect();
    let allowed = job.launcher().and_then(processors_of).unwrap_or_default();
    let (set, has_processor) = place(own, &bound, &allowed, pids.len());
    let is_there = set_affinity(&set).is_ok();
    let is_complete = pids.iter().all(|&pid| pid > 0);
    (is_complete, has_processor && is_there && is_complete)
}

/// Returns the pages of this host's ranks, without those that have left: a failed spawn never publishes a process.
fn pages_here(job: &Job) -> impl Iterator<Item = &RankPage> {
    let pages = job.node_ranks().filter(|&rank| !job.is_remote(rank));
    let pages = pages.filter_map(|rank| job.rank_page(rank));
    pages.filter(|page| !has_left(page.state.load(Ordering::Relaxed)))
}

/// Returns the processors for the thread of a rank with `own` processors, and whether the thread has a dedicated one.
/// The processors are those of `allowed` to which no rank is bound. If there are fewer than `ranks`, the processors of
/// other ranks are added. An empty set leaves the thread where it is.
fn place(own: &CpuSet, bound: &[CpuSet], allowed: &CpuSet, ranks: usize) -> (CpuSet, bool) {
    let is_bound = |cpu: &usize| own.contains(*cpu) || bound.iter().any(|set| set.contains(*cpu));
    let spare: CpuSet = allowed.iter().filter(|cpu| !is_bound(cpu)).collect();
    if spare.len() >= ranks {
        return (spare, true);
    }
    let others = bound.iter().flat_map(CpuSet::iter).filter(|&cpu| !own.contains(cpu));
    (spare.iter().chain(others).collect(), false)
}

/// Whether the thread has a processor, and the number of ranks when the processors were last divided; 0 if they must be
/// divided again.
#[derive(Default)]
struct ProcessorShare {
    ranks: usize,
    has_processor: bool,
}

impl ProcessorShare {
    /// Divides the processors again by `share`, if the number of ranks has changed. The next call divides them once
    /// more if some ranks had not published their process.
    fn update(&mut self, present: usize, share: impl FnOnce() -> (bool, bool)) {
        if present == self.ranks {
            return;
        }
        let (is_complete, has_processor) = share();
        self.ranks = if is_complete { present } else { 0 };
        self.has_processor = has_processor;
    }
}

/// Polling of the thread after each turn inside the lock, for a limited time.
#[derive(Default)]
struct PollWindow {
    polls: u32,
    until_ns: u64,
}

impl PollWindow {
    fn goes_on(&mut self) -> bool {
        self.polls = self.polls.wrapping_add(1);
        if !self.polls.is_multiple_of(POLLS_PER_CLOCK) {
            return true;
        }
        let now = clock::now_ns();
        if self.until_ns == 0 {
            self.until_ns = now + AWAKE_NS;
        }
        now < self.until_ns
    }
}

fn serve(job: &Job, served: ThreadWorker, call: &'static CallWord) {
    let ThreadWorker(worker) = served;
    // Processors of this rank, before `spread` binds the thread to others.
    let own = affinity();
    let lock = lock::get();
    let (mut limit, mut is_due, mut turns) = (None, false, 0_u64);
    // Unbound ranks share all processors. A thread counts as having a processor if there are two for each rank.
    let share_all = || (true, job.processors() >= 2 * pages_here(job).count());
    let mut share = ProcessorShare::default();
    if !job.is_bound() {
        share.update(job.present(), share_all);
    }
    let mut awake = PollWindow::default();
    loop {
        let polls = || share.has_processor && limit.is_none() && awake.goes_on();
        let called = is_due || call.wait(limit, polls);
        if !call.is_answered() {
            return;
        }
        is_due = false;
        if call.is_attended() {
            limit = None;
            continue;
        }
        if !called && limit.is_none() {
            continue;
        }
        // Processors are divided on calls, because a call shows that a peer has joined the job. Only the first turn has
        // another cause: the thread's start.
        match job.is_bound() {
            true if turns == 0 => {}
            true => share.update(job.present(), || spread(job, &own)),
            false => share.update(job.present(), share_all),
        }
        turns += 1;
        // SAFETY: the lock is held, and `end` waits for this thread before the worker ends.
        let turn = lock.borrow(|| unsafe {
            (*worker).background.has_processor = share.has_processor;
            (*worker).serve_others(|| lock::get().is_wanted())
        });
        awake = PollWindow::default();
        match turn {
            TurnEnd::Over(nap) => limit = nap,
            TurnEnd::Interrupted => {
                is_due = true;
                (0..YIELDS).take_while(|_| lock.is_wanted()).for_each(|_| wait::yield_now());
            }
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn set(list: &str) -> CpuSet {
        CpuSet::parse(list).unwrap()
    }

    #[test]
    fn place__is_beside_all_ranks_where_there_are_processors_for_all_threads() {
        let bound = [set("0"), set("1")];
        assert_eq!(place(&bound[0], &bound, &set("0-3"), 2), (set("2-3"), true));
        assert_eq!(place(&bound[0], &bound, &set("0-15"), 2), (set("2-15"), true));
    }

    #[test]
    fn place__is_also_on_peers_where_too_few_processors_are_spare() {
        let bound = [set("0"), set("1")];
        assert_eq!(place(&bound[0], &bound, &set("0-2"), 2), (set("1-2"), false));
        assert_eq!(place(&bound[1], &bound, &set("0-1"), 2), (set("0"), false));
        assert_eq!(place(&bound[1], &bound, &set(""), 2), (set("0"), false), "no launcher of ours");
    }

    #[test]
    fn share__is_made_anew_where_ranks_were_spawned_or_one_has_not_told_where_it_is() {
        let mut share = ProcessorShare::default();
        let mut made = Vec::new();
        // Each pair is the number of present ranks, and the result of `share`.
        let found =
            [(2, (true, true)), (2, (false, false)), (3, (false, false)), (3, (true, true))];
        let has = found.map(|(here, answer)| {
            share.update(here, || {
                made.push(here);
                answer
            });
            share.has_processor
        });
        assert_eq!(has, [true, true, false, true]);
        assert_eq!(made, [2, 3, 3], "not again where all is known");
    }

    #[test]
    fn place__is_nowhere_else_where_a_rank_has_all_processors() {
        assert_eq!(place(&set("0-1"), &[set("0-1")], &set("0-1"), 1), (set(""), false));
    }
}
