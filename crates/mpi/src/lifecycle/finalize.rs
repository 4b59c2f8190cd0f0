//! `MPI_Finalize` (MPI-5.0 section 11.2): ends what is under way, and leaves the job.
//!
//! A send or receive whose request was freed is still to be carried out. One that nothing can match any more must not
//! keep its process for ever, nor two of them keep each other. So a process says in three steps how far it has come: it
//! begins no message any more (`Silent`), no receive of it waits any more (`Settled`), it is gone (`Finalized`). A
//! receive ends when all that could send its message are silent; an unmatched send ends when its receiver has settled.
#![allow(unsafe_code)]

mod left;

use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::common::lock;
use crate::common::places::{self, Mixed};
use crate::lifecycle::init::name_level;
use crate::objects::comm::spread;
use crate::objects::hot;
use crate::p2p::request::{self, Marked};
use crate::process::{self, ForkedChild, Phase, Process};
use fastpath_base::clock;
use fastpath_base::config::{Config, Key};
use fastpath_base::float;
use fastpath_base::tell;
use fastpath_base::wait::{futex_wait, register_own_membarrier};
use fastpath_bootstrap::segment::{Awaited, Phase as RankPhase, STATE_AWAKE};
use fastpath_protocol::background::Background;
use fastpath_protocol::matching::ANY_PEER;
use fastpath_protocol::waiting::Note;
use fastpath_protocol::{Request, State, Worker};
use std::time::Duration;

/// How often a process that looks for mistakes asks whether the last messages have come.
const AWAIT_PAUSE: Duration = Duration::from_millis(1);
/// How long a rank has slept in one wait, in nanoseconds, before it is taken to wait for nothing.
const SLEEPS_LONG_NS: u64 = 1_000_000_000;

/// `MPI_Finalize`: runs the callbacks that the standard asks for, delivers what is under way, and leaves the job; where
/// there were sessions, the process leaves when it ends, since there may be more.
///
/// # Errors
/// `MPI_ERR_OTHER` without `MPI_Init`; `MPI_ERR_RMA_SYNC` where others would wait for the end of an epoch for ever;
/// what a user's attribute delete function returns.
pub fn finalize(p: &Process) -> Result {
    if process::world_phase() != Phase::Running {
        if let Some(child) = ForkedChild::find() {
            return Err(child.refuse());
        }
        let text = "called without MPI_Init: a session is ended by MPI_Session_finalize";
        return Err(Error::new(MPI_ERR_OTHER, text));
    }
    if let Some(own) = p.comms.get(MPI_COMM_SELF) {
        crate::objects::attribute::delete_attributes(p, own.holder())?;
    }
    // A process with sessions stays, and may go on with their windows and collective calls.
    let leaves = !p.session_use.is_begun();
    if leaves {
        crate::rma::left::refuse_open(p)?;
    }
    deliver(p, leaves)?;
    if leaves {
        p.set_world_phase(Phase::Finalized);
        return leave(p);
    }
    for handle in [MPI_COMM_WORLD, MPI_COMM_SELF] {
        p.hot_comm_clear(handle);
        if let Some(comm) = p.comms.remove_predefined(handle) {
            p.session_use.keep(comm);
        }
    }
    p.set_world_phase(Phase::Finalized);
    if p.session_use.open() == 0 {
        p.set_phase(Phase::Finalized);
    }
    Ok(())
}

/// Waits until what this process has sent has left, and before that, if it is about to `leave`, until the collective
/// calls under way have ended.
///
/// # Errors
/// Those of a collective call that can never end, while this process is still there to say so.
pub(crate) fn deliver(p: &Process, leaves: bool) -> Result {
    crate::io::helper::finish();
    let worker = p.worker()?;
    let places = places::made();
    let _within = places::within_all(places);
    let _mixed = Mixed::begin(places);
    if leaves {
        request::finish_collective(p)?;
    }
    wait(p, worker, |w| w.is_idle());
    Ok(())
}

/// Delivers what is under way, and leaves the job.
pub(crate) fn leave(p: &Process) -> Result {
    crate::io::helper::finish();
    let engine = p.running()?;
    let worker = engine.worker();
    // All of them, from here to the end.
    let places = places::made();
    let _within = places::within_all(places);
    let _mixed = Mixed::begin(places);
    wait(p, worker, |w| w.is_idle());
    crate::rma::left::tell(p);
    crate::io::tell_left(p);
    if let Some(checks) = p.checks() {
        // SAFETY: the worker lives as long as the engine, and this call holds the lock.
        checks.tell_pending(p, unsafe { &*worker });
    }
    advance(p, worker, RankPhase::Silent);
    for (_, worker) in p.workers() {
        // SAFETY: the worker lives as long as the engine, and this call holds its lock.
        unsafe { (*worker).abandon_posted() };
    }
    let is_unanswered = |w: &Worker, request: &Request| is_unanswered(p, w, request);
    wait(p, worker, |w| {
        w.end_detached(is_unanswered);
        w.is_idle() && w.posted() == 0
    });
    advance(p, worker, RankPhase::Settled);
    wait(p, worker, |w| !w.end_detached(is_unanswered) && w.is_idle());
    if let Some(checks) = p.checks() {
        // SAFETY: the worker lives as long as the engine, this call holds its lock, and no other reference is held.
        checks.tell_unreceived(p, unsafe { await_last_messages(&mut *worker) });
    }
    if let Some(thread) = engine.progress.take() {
        thread.end(lock::first());
    }
    p.extras.marked.set(Marked::NONE);
    p.hot_clear_all();
    p.hot_win_clear_all();
    hot::set_worker(std::ptr::null_mut(), false);
    // SAFETY: the workers live as long as the engine, this call holds their locks, and no reference is held.
    unsafe {
        p.workers().for_each(|(_, worker)| (*worker).leave());
        float::isolated(|| print_counts(p, &*worker, engine.config));
        // The program may go on for hours: nothing of its memory stays locked or watched.
        (*worker).interfaces().keep_registrations(0);
        (*worker).tell_phase(RankPhase::Finalized);
    }
    p.set_phase(Phase::Finalized);
    engine.job.leave();
    Ok(())
}

/// Waits until no rank of this host will send a message any more, and takes those that have come: each rank has begun
/// no message since it called `MPI_Finalize`, or all others have slept for a while, in waits that only this process can
/// end.
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
        // Nobody wakes a process that does not say that it sleeps: the time ends the wait.
        let state = &worker.job.own_page().state;
        futex_wait(state, STATE_AWAKE, Some(AWAIT_PAUSE));
    }
}

/// Whether a rank has been asleep in one wait for so long that what it waits for may never come.
fn sleeps_long(worker: &Worker, peer: u32) -> bool {
    let page = worker.job.rank_page(peer as usize);
    page.is_some_and(|page| {
        let (sleepers, notes) = (page.sleepers() as usize, page.wait_notes());
        let lasts = |since_ns| clock::now_ns().saturating_sub(since_ns) > SLEEPS_LONG_NS;
        sleepers != 0 && sleepers == notes.len() && notes.iter().all(|note| lasts(note.since_ns))
    })
}

/// Publishes this process's phase, once all that it has sent is where its peers find it.
fn advance(p: &Process, worker: *mut Worker, phase: RankPhase) {
    // SAFETY: the workers live as long as the engine, and the caller holds their locks.
    unsafe {
        p.workers().for_each(|(_, worker)| (*worker).leave());
        (*worker).tell_phase(phase);
    }
}

/// Who could end what is under way though the program has given it up; unknown where nothing is.
fn awaited(p: &Process) -> Awaited {
    let mut awaited = Awaited::UNKNOWN;
    for (_, worker) in p.workers() {
        // SAFETY: the worker lives as long as the engine, and the caller holds its lock.
        let requests = unsafe { (*worker).requests.in_use() };
        let open = requests.filter(|r| r.detached && r.state != State::Complete);
        for request in open.filter(|request| request.peer != ANY_PEER) {
            awaited.add(Awaited::of(&[request.peer]));
        }
    }
    awaited
}

/// Makes progress until each worker is `done`, asked in one round.
fn wait(p: &Process, worker: *mut Worker, mut done: impl FnMut(&mut Worker) -> bool) {
    let note = Note {
        call: p.call.get(),
        peer: -1,
        tag: -1,
        comm: 0,
        bytes: 0,
        awaited: awaited(p),
        naps: places::made() != 1,
    };
    // SAFETY: the workers live as long as the engine, this call holds their locks, and no reference is held here.
    unsafe {
        Worker::wait_until(worker, None, &note, |first| {
            let mut over = done(first);
            for (place, further) in p.workers() {
                if place != 0 {
                    (*further).progress();
                    over &= done(&mut *further);
                }
            }
            over
        });
    }
}

/// Whether no process can send what a receive from any source waits for.
fn is_unanswered(p: &Process, worker: &Worker, request: &Request) -> bool {
    let Some(comm) = p.comm_of_request(request.user) else {
        return true;
    };
    let mut senders = comm.peer_group().world_ranks().iter();
    senders.all(|&peer| worker.is_silent(peer))
}

/// Says at the end, where a report is asked for, what was learnt of the ways to peers, and what the adapter has lost
/// and what was sent again; the thread level, what threads have cost each other where there may be several, and what
/// the progress thread did. With `selection` only what was learnt.
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
    // All ranks of a call take the same; those that rank 0 takes part in are told.
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

/// What the progress thread did, if there was one: one line.
fn report_progress(worker: &Worker, json: bool) -> Option<String> {
    let (rank, Background { runs, turns, useful, .. }) = (worker.rank, worker.background);
    runs.then(|| match json {
        true => format!(
            r#"{{"rank":{rank},"progress_thread":{{"turns":{turns},"useful_polls":{useful}}}}}"#
        ),
        false => format!(
            "rank {rank}: FASTPATH_PROGRESS=thread: the progress thread went inside {}, {useful} \
             of its looks found something",
            count(turns, "time")
        ),
    })
}

/// So many of these, for people.
fn count(number: impl Into<u64>, noun: &str) -> String {
    match number.into() {
        1 => format!("1 {noun}"),
        number => format!("{number} {noun}s"),
    }
}

impl Process {
    /// The thread level that was granted, and what threads have cost each other, if there may be several: one line.
    fn report_threads(&self, json: bool) -> Option<String> {
        let rank = self.engine()?.job.rank();
        let level = name_level(self.thread_level.get());
        if !lock::is_enabled() {
            return Some(match json {
                true => format!("{{\"rank\":{rank},\"threads\":{{\"level\":\"{level}\"}}}}"),
                false => format!("rank {rank}: {level}: no lock, one worker"),
            });
        }
        let (revocations, contended) = lock::first().counts();
        let biased = register_own_membarrier();
        let further = self.report_workers(json);
        let lock = match biased {
            true => format!("the lock's bias was revoked {}", count(revocations, "time")),
            false => "an ordinary lock, without membarrier or by FASTPATH_DISABLE=bias".to_owned(),
        };
        Some(match json {
            true => format!(
                "{{\"rank\":{rank},\"threads\":{{\"level\":\"{level}\",\
                 \"biased\":{biased},\"revocations\":{revocations},\"contended\":{contended},\
                 \"workers\":{further}}}}}"
            ),
            false => format!(
                "rank {rank}: {level}: {lock}, a thread found it taken {}{further}",
                count(contended, "time")
            ),
        })
    }

    /// The workers beside the first one, which were made because communicators came to them.
    fn report_workers(&self, json: bool) -> String {
        let further = self.workers().filter(|&(place, _)| place != 0);
        let each = further.map(|(place, worker)| {
            let (revocations, contended) = places::counts(place);
            // SAFETY: the worker lives as long as the engine, and this call holds its lock.
            let connections = unsafe { (*worker).counters.connections };
            match json {
                true => format!(
                    "{{\"place\":{place},\"peers\":{connections},\
                     \"revocations\":{revocations},\"contended\":{contended}}}"
                ),
                false => format!(
                    "; worker {place}, for communicators: {}, {}, taken {}",
                    count(connections, "peer"),
                    count(revocations, "revocation"),
                    count(contended, "time")
                ),
            }
        });
        let mut each: Vec<String> = each.collect();
        let spread = spread::count();
        if spread != 0 && !json {
            each.push(format!("; communicators spread over them: {spread}"));
        }
        match json {
            true => format!("[{}],\"spread\":{spread}", each.join(",")),
            false if each.is_empty() => "; one worker".to_owned(),
            false => each.concat(),
        }
    }
}
