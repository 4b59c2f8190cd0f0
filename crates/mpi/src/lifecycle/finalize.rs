//! `MPI_Finalize` (MPI 5.0, section 11.2): completes pending operations, and leaves the job.
//!
//! A send or receive whose request was freed must still be performed. If the operation can no longer be matched, its
//! process must not wait forever for it. Two such processes must not wait for each other either. So a process announces
//! three phases: it begins no further message (`Silent`), none of its receives waits any more (`Settled`), it has left
//! (`Finalized`). A receive ends when all ranks that could send its message are silent. An unmatched send ends when its
//! receiver has settled.
#![allow(unsafe_code)]

mod left;

use crate::common::consts::*;
use crate::common::debugger;
use crate::common::error::{Error, Result};
use crate::common::lock;
use crate::lifecycle::exit;
use crate::lifecycle::init::name_level;
use crate::objects::hot;
use crate::p2p::channel::deadlock;
use crate::p2p::request::{self, MarkedRequest};
use crate::process::{self, ForkedChild, Process, ProcessPhase};
use crate::recovery;
use fastpath_base::clock;
use fastpath_base::config::{Config, Key};
use fastpath_base::float;
use fastpath_base::sync::Ordering;
use fastpath_base::tell;
use fastpath_base::tell::count;
use fastpath_base::wait::{futex_wait, register_own_membarrier};
use fastpath_protocol::background::Background;
use fastpath_protocol::matching::ANY_PEER;
use fastpath_protocol::waiting::Note;
use fastpath_protocol::{Request, RequestState, Worker};
use fastpath_segment::{AwaitedRanks, RankPhase, STATE_AWAKE};
use std::time::Duration;

/// Pause between two polls of the wait for the last messages. `MPI_Finalize` waits for them with `FASTPATH_CHECK`,
/// until no rank of this host will send another message.
const AWAIT_PAUSE: Duration = Duration::from_millis(1);
/// Duration of one wait, in nanoseconds, after which a sleeping rank is assumed to wait in vain.
const SLEEPS_LONG_NS: u64 = 1_000_000_000;

/// `MPI_Finalize`. Calls the callbacks that MPI requires, delivers pending messages, and leaves the job. A process with
/// sessions leaves at its exit, since further sessions may follow. Errors: `MPI_ERR_OTHER` without `MPI_Init`.
/// `MPI_ERR_RMA_SYNC` if other ranks would wait forever for the end of an epoch. A user's attribute delete function may
/// also fail.
pub fn finalize(p: &Process) -> Result {
    if process::world_phase() != ProcessPhase::Running {
        if let Some(child) = ForkedChild::find() {
            return Err(child.refuse());
        }
        let text =
            "MPI_Finalize was called without MPI_Init: end a session by MPI_Session_finalize";
        return Err(Error::new(MPI_ERR_OTHER, text));
    }
    if let Some(own) = p.comms.get(MPI_COMM_SELF) {
        crate::objects::attribute::delete_attributes(p, own.holder())?;
    }
    // A process with sessions stays in the job, and may continue to use windows and collective calls of sessions.
    let leaves = !p.session_use.is_begun();
    if leaves {
        crate::rma::left::refuse_open(p)?;
    }
    deliver(p, leaves)?;
    if leaves {
        p.set_world_phase(ProcessPhase::Finalized);
        return leave(p);
    }
    for handle in [MPI_COMM_WORLD, MPI_COMM_SELF] {
        p.hot_comm_clear(handle);
        if let Some(comm) = p.comms.remove_predefined(handle) {
            p.session_use.keep(comm);
        }
    }
    p.set_world_phase(ProcessPhase::Finalized);
    if p.session_use.open() == 0 {
        p.set_phase(ProcessPhase::Finalized);
    }
    Ok(())
}

/// Waits until all sent messages have left. If the process is about to leave, first waits for pending collective calls.
/// Errors: those of a collective call that can never end.
pub(crate) fn deliver(p: &Process, leaves: bool) -> Result {
    crate::io::helper::finish();
    let worker = p.worker()?;
    if leaves {
        request::finish_collective(p)?;
    }
    deadlock::end_polling(p, worker);
    wait(p, worker, |w| w.is_idle());
    Ok(())
}

pub(crate) fn leave(p: &Process) -> Result {
    crate::io::helper::finish();
    let engine = p.running()?;
    let worker = engine.worker();
    wait(p, worker, |w| w.is_idle());
    crate::rma::left::tell(p);
    crate::io::tell_left(p);
    if let Some(checks) = p.checks() {
        // SAFETY: the worker lives as long as the engine, and this call holds the lock.
        checks.tell_pending(p, unsafe { &*worker });
    }
    advance(worker, RankPhase::Silent);
    // SAFETY: the worker lives as long as the engine, and this call holds the lock.
    unsafe { (*worker).abandon_posted() };
    let is_unanswered = |w: &Worker, request: &Request| is_unanswered(p, w, request);
    wait(p, worker, |w| {
        w.end_detached(is_unanswered);
        // A rank that returned from an agreement may be the only one that knows the decision.
        w.is_idle() && w.posted() == 0 && !recovery::is_needed(p, w)
    });
    advance(worker, RankPhase::Settled);
    wait(p, worker, |w| !w.end_detached(is_unanswered) && w.is_idle());
    if let Some(checks) = p.checks() {
        // SAFETY: the worker lives as long as the engine, this call holds its lock, and no other reference is held.
        checks.tell_unreceived(p, unsafe { await_last_messages(&mut *worker) });
    }
    if let Some(thread) = engine.progress.take() {
        thread.end(lock::get());
    }
    p.extras.marked.set(MarkedRequest::NONE);
    p.hot_clear_all();
    p.hot_win_clear_all();
    hot::set_worker(std::ptr::null_mut(), false);
    debugger::publish_queues(0);
    // SAFETY: the worker lives as long as the engine, this call holds the lock, and no reference is held.
    unsafe {
        (*worker).leave();
        publish_counters(&*worker);
        float::isolated(|| print_counts(p, &*worker, engine.config));
        // The program may run for hours after `MPI_Finalize`, so none of its memory stays registered or watched.
        (*worker).interfaces().keep_registrations(0);
        (*worker).tell_phase(RankPhase::Finalized);
    }
    p.set_phase(ProcessPhase::Finalized);
    engine.job.leave();
    exit::allow_release();
    Ok(())
}

/// Stores the counters in the rank's page, for the metrics that `mpiexec` writes at the end of the job.
fn publish_counters(worker: &Worker) {
    let words = &worker.job.own_page().final_counters;
    for (word, value) in words.iter().zip(worker.counters.words()) {
        word.store(value, Ordering::Relaxed);
    }
}

/// Waits until no rank of this host will send another message, and takes the messages that have arrived. A rank sends
/// no message if it is silent, or if it has slept long in waits that only this process can end.
fn await_last_messages(worker: &mut Worker) -> &Worker {
    let will_send = |worker: &Worker, peer: u32| {
        let is_away = worker.job.is_remote(peer as usize) || worker.is_silent(peer);
        !is_away && !sleeps_long(worker, peer)
    };
    loop {
        worker.take_arrivals();
        if !worker.job.world().any(|peer| will_send(worker, peer as u32)) {
            return worker;
        }
        // No peer wakes a process that has not announced a sleep, so the timeout ends the wait.
        let state = &worker.job.own_page().state;
        futex_wait(state, STATE_AWAKE, Some(AWAIT_PAUSE));
    }
}

/// Returns whether all waiting threads of a rank have slept so long that they may wait in vain.
fn sleeps_long(worker: &Worker, peer: u32) -> bool {
    let page = worker.job.rank_page(peer as usize);
    page.is_some_and(|page| {
        let (sleepers, notes) = (page.sleepers() as usize, page.wait_notes());
        let lasts = |since_ns| clock::now_ns().saturating_sub(since_ns) > SLEEPS_LONG_NS;
        sleepers != 0 && sleepers == notes.len() && notes.iter().all(|note| lasts(note.since_ns))
    })
}

/// Publishes this process's phase, after all that it has sent is visible to its peers.
fn advance(worker: *mut Worker, phase: RankPhase) {
    // SAFETY: the worker lives as long as the engine, and the caller holds the lock.
    unsafe {
        (*worker).leave();
        (*worker).tell_phase(phase);
    }
}

/// Returns the ranks that can complete the operations still under way; unknown if no operation is under way.
fn awaited(worker: *mut Worker) -> AwaitedRanks {
    let mut awaited = AwaitedRanks::UNKNOWN;
    // SAFETY: the worker lives as long as the engine, and the caller holds the lock.
    let requests = unsafe { (*worker).requests.in_use() };
    let open = requests.filter(|r| r.detached && r.state != RequestState::Complete);
    for request in open.filter(|request| request.peer != ANY_PEER) {
        awaited.add(AwaitedRanks::of(&[request.peer]));
    }
    awaited
}

/// Makes progress until `done` returns true.
fn wait(p: &Process, worker: *mut Worker, done: impl FnMut(&mut Worker) -> bool) {
    let note = Note {
        call: p.call.get(),
        peer: -1,
        tag: -1,
        comm: 0,
        bytes: 0,
        awaited: awaited(worker),
        naps: false,
    };
    // SAFETY: the worker lives as long as the engine, this call holds the lock, and no reference is held here.
    unsafe { Worker::wait_until(worker, None, &note, done) };
}

/// Returns whether no rank can send the message of `request` any more, if it is a receive from any source.
fn is_unanswered(p: &Process, worker: &Worker, request: &Request) -> bool {
    let Some(comm) = p.comm_of_request(request.user) else {
        return true;
    };
    let mut senders = comm.peer_group().world_ranks().iter();
    senders.all(|&peer| worker.is_silent(peer))
}

/// Prints the final report if `FASTPATH_REPORT` is set: learned transfer costs, adapter losses and resends, the thread
/// level and contention, and the progress thread's work. With `selection`, prints only the learned costs.
fn print_counts(p: &Process, worker: &Worker, config: &Config) {
    let form = config.choice(Key::Report);
    if form == "selection" {
        worker.report_learnt(true).iter().for_each(|line| tell!("{line}"));
        return;
    }
    let json = form == "json";
    if !json && !config.flag(Key::Report) {
        return;
    }
    let learnt = worker.report_learnt(json);
    let counts = worker.report_counts(json).into_iter();
    // Only rank 0 reports its collective calls, because all ranks of a call select the same algorithm.
    let collective = (worker.rank == 0).then(|| crate::coll::report(p, json));
    for line in learnt
        .into_iter()
        .chain(counts)
        .chain(collective.into_iter().flatten())
        .chain(p.report_threads(json))
        .chain(report_progress(worker, json))
    {
        match json {
            true => tell!("{line}"),
            false => tell!("fastpath: {line}"),
        }
    }
}

fn report_progress(worker: &Worker, json: bool) -> Option<String> {
    let (rank, Background { runs, turns, useful, .. }) = (worker.rank, worker.background);
    runs.then(|| match json {
        true => format!(
            r#"{{"rank":{rank},"progress_thread":{{"turns":{turns},"useful_polls":{useful}}}}}"#
        ),
        false => format!(
            "rank {rank}: the progress thread (FASTPATH_PROGRESS=thread) took the library's lock \
             {}, and {useful} of the thread's polls found work",
            count(turns, "time")
        ),
    })
}

impl Process {
    fn report_threads(&self, json: bool) -> Option<String> {
        let rank = self.engine()?.job.rank();
        let level = name_level(self.thread_level.get());
        if !lock::is_enabled() {
            return Some(match json {
                true => format!("{{\"rank\":{rank},\"threads\":{{\"level\":\"{level}\"}}}}"),
                false => format!("rank {rank}: with {level}, calls take no lock"),
            });
        }
        let (revocations, contended) = lock::get().counts();
        let biased = register_own_membarrier();
        let lock = match biased {
            true => format!(
                "the lock is biased to one thread at a time, which needs no atomic operation to \
                 take the lock; the bias was revoked {}",
                count(revocations, "time")
            ),
            false => {
                "the lock is not biased to one thread, because the kernel refuses membarrier, \
                      FASTPATH_DISABLE=bias is set, or the program has ThreadSanitizer"
                    .to_owned()
            }
        };
        Some(match json {
            true => format!(
                "{{\"rank\":{rank},\"threads\":{{\"level\":\"{level}\",\
                 \"biased\":{biased},\"revocations\":{revocations},\"contended\":{contended}}}}}"
            ),
            false => format!(
                "rank {rank}: with {level}, {lock}; threads found the lock taken {}",
                count(contended, "time")
            ),
        })
    }
}
