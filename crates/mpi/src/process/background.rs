//! The progress thread (`FASTPATH_PROGRESS=thread`): goes on with messages while the program computes.
//!
//! It sleeps until it is called (`fastpath_protocol::background`), borrows the lock, which leaves its bias to the
//! program's thread, and makes progress until there is nothing to do.
#![allow(unsafe_code)]

use crate::common::lock::{self, Lock};
use fastpath_base::clock;
use fastpath_base::sync::Ordering;
use fastpath_base::thread::without_signals;
use fastpath_base::topology::{CpuSet, affinity, affinity_of, set_affinity};
use fastpath_base::wait;
use fastpath_bootstrap::job::Job;
use fastpath_bootstrap::segment::{Call, RankPage, has_left};
use fastpath_protocol::Worker;
use fastpath_protocol::background::Turn;
use std::io;
use std::thread::{Builder, JoinHandle};

/// Its name; the kernel keeps 15 bytes of it.
const NAME: &str = "fastpath-progr";
/// Bytes of its stack: it packs and unpacks datatypes.
const STACK_BYTES: usize = 1 << 18;
/// Yields of the thread, at most, until one that wants to get in is in.
const YIELDS: u32 = 64;

/// Nanoseconds after a turn for which a thread with a processor to itself stays awake: a call that finds it asleep
/// takes a call of the kernel and tens of microseconds.
const AWAKE_NS: u64 = 200_000;
/// Polls between two readings of the clock.
const POLLS_PER_CLOCK: u32 = 64;

/// The thread, to be ended before the worker goes.
pub(crate) struct ProgressThread {
    call: &'static Call,
    thread: JoinHandle<()>,
}

/// A call that stays inside MPI until its message has gone, from before it begins: peers that answer while it still
/// posts need not call the thread. See [`Worker::attend`].
pub(crate) struct Attending(Option<*mut Worker>);

impl Attending {
    /// Begins, if there is a progress thread; the worker is the first one, where MPI runs.
    #[inline]
    pub fn begin(worker: Option<*mut Worker>) -> Self {
        // SAFETY: the worker lives while MPI runs, and the caller is inside.
        Attending(worker.filter(|&worker| unsafe {
            let runs = (*worker).background.runs;
            if runs {
                (*worker).attend();
            }
            runs
        }))
    }
}

impl Drop for Attending {
    fn drop(&mut self) {
        if let Some(worker) = self.0 {
            // SAFETY: as in `begin`.
            unsafe { (*worker).resume() };
        }
    }
}

/// Goes to the new thread, which uses the worker only under the lock.
struct Served(*mut Worker);

// SAFETY: whoever uses a worker holds the lock, which is real where there is a progress thread.
unsafe impl Send for Served {}

impl ProgressThread {
    /// Starts it for a worker, which lives until [`ProgressThread::end`]. The lock is real.
    ///
    /// # Errors
    /// The process may have no more threads.
    pub fn start(job: &'static Job, worker: *mut Worker) -> io::Result<Self> {
        // SAFETY: the caller is alone with its worker so far.
        let call = unsafe {
            (*worker).background.runs = true;
            (*worker).own_call()
        };
        call.begin();
        let served = Served(worker);
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

    /// Ends it. The calling thread is inside MPI, and lets it in.
    pub fn end(self, lock: &Lock) {
        self.call.end();
        lock.release_lock(|| _ = self.thread.join());
    }
}

/// Lets the calling thread run on processors that no rank of this host is bound to, where the launcher may use enough
/// of them for the thread of each rank. With fewer, it may also run where the other ranks do: a peer's processor is
/// idle while that waits. It never runs where its own rank is bound to: the program computes there, and could not move
/// out of the way. Returns whether all ranks have said where they are, and whether there is a processor for the thread.
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

/// The pages of the ranks of this host that have not left: one that could not be spawned never says where it is.
fn pages_here(job: &Job) -> impl Iterator<Item = &RankPage> {
    let pages = job.node_ranks().filter(|&rank| !job.is_remote(rank));
    let pages = pages.filter_map(|rank| job.rank_page(rank));
    pages.filter(|page| !has_left(page.state.load(Ordering::Relaxed)))
}

/// Where the thread of a rank with `own` processors may run, and whether there is one for it: those of `allowed` that
/// no rank is bound to, and with fewer than one for each of the `ranks` also the other ranks'. Empty where there are
/// none: it stays where it is.
fn place(own: &CpuSet, bound: &[CpuSet], allowed: &CpuSet, ranks: usize) -> (CpuSet, bool) {
    let is_bound = |cpu: &usize| own.contains(*cpu) || bound.iter().any(|set| set.contains(*cpu));
    let spare: CpuSet = allowed.iter().filter(|cpu| !is_bound(cpu)).collect();
    if spare.len() >= ranks {
        return (spare, true);
    }
    let others = bound.iter().flat_map(CpuSet::iter).filter(|&cpu| !own.contains(cpu));
    (spare.iter().chain(others).collect(), false)
}

/// Whether there is a processor for the thread, and how many ranks the job had when the processors were shared out.
#[derive(Default)]
struct Share {
    ranks: usize,
    has_processor: bool,
}

impl Share {
    /// Shares them out, as [`spread`] does, where there are other ranks by now: some may have been spawned. Again
    /// later where not all have told where they are.
    fn update(&mut self, present: usize, share: impl FnOnce() -> (bool, bool)) {
        if present == self.ranks {
            return;
        }
        let (is_complete, has_processor) = share();
        self.ranks = if is_complete { present } else { 0 };
        self.has_processor = has_processor;
    }
}

/// A while after a turn for which the thread polls.
#[derive(Default)]
struct Awake {
    polls: u32,
    until_ns: u64,
}

impl Awake {
    /// Whether it goes on.
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

fn serve(job: &Job, served: Served, call: &'static Call) {
    let Served(worker) = served;
    // Those of its rank: `spread` gives the thread others.
    let own = affinity();
    let lock = lock::first();
    let (mut limit, mut is_due, mut turns) = (None, false, 0_u64);
    // Ranks that are not bound share what there is.
    let share_all = || (true, job.processors() >= 2 * pages_here(job).count());
    let mut share = Share::default();
    if !job.is_bound() {
        share.update(job.present(), share_all);
    }
    let mut awake = Awake::default();
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
        // Peers that call have joined the job; the first call is the thread's own.
        match job.is_bound() {
            true if turns == 0 => {}
            true => share.update(job.present(), || spread(job, &own)),
            false => share.update(job.present(), share_all),
        }
        turns += 1;
        // SAFETY: inside; `end` waits for this thread before the worker goes.
        let turn = lock.borrow(|| unsafe {
            (*worker).background.has_processor = share.has_processor;
            (*worker).serve_others(|| lock::first().is_wanted())
        });
        awake = Awake::default();
        match turn {
            Turn::Over(nap) => limit = nap,
            Turn::Interrupted => {
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
        let mut share = Share::default();
        let mut made = Vec::new();
        // How many are here, and what is found then.
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
