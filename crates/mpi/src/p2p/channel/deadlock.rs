//! Detection of collective calls over several hosts that can never end. Ranks that pass different lengths may choose
//! different algorithms and wait for each other (`docs/decisions/0082-collective-calls-that-never-end.md`).
//!
//! A step of a call is the message that the call waits for. The call is blocking, or nonblocking and outstanding. A
//! rank whose step lasts long sends a probe to the rank that the step waits for. A rank with a waiting step of the same
//! call forwards the probe. If the probe returns to its origin, a cycle of ranks has waited, each at some moment. The
//! origin then sends a reply along the cycle in reverse. A rank forwards the reply if its call still waits in the step
//! in which it saw the probe. So all ranks of the cycle waited when the probe returned. The reply also arrives after
//! every earlier message from the awaited rank. If the reply returns to an origin that still waits, no message is in
//! flight in the cycle. A rank that has finished the call answers a probe itself, after all its messages. A rank that
//! polls its nonblocking calls handles probes at intervals instead of in a wait.
//!
//! Only steps of a call send its messages, so the proof holds whatever else the ranks do. Another thread of a rank may
//! be between two steps of a blocking call only in a wait or outside of MPI. Then the rank does not answer that it has
//! finished a call.
#![allow(unsafe_code)]

use super::{Channel, FIRST_PERSISTENT_TAG, FIRST_TAG, TAGS};
use crate::common::consts::{MPI_COMM_WORLD, MPI_ERR_OTHER};
use crate::common::error::Error;
use crate::objects::comm::Comm;
use crate::objects::operation::{Extra, Operation, PollCondition};
use crate::p2p::word_exchange::{Arrival, WordExchange};
use crate::process::errhandler;
use crate::process::{Process, ProcessPart};
use fastpath_base::clock;
use fastpath_protocol::matching::ANY_PEER;
use fastpath_protocol::request::RequestKind;
use fastpath_protocol::tag::{Context, key_context};
use fastpath_protocol::waiting::Note;
use fastpath_protocol::{Request, RequestId, RequestState, Worker};
use std::cell::{Cell, RefCell};
use std::time::Duration;

/// Time that a step must have waited before its rank sends a first probe. A second probe follows after an equal time.
/// Then the time doubles with each probe, which limits the probes queued at a rank that computes for hours.
const PROBE_AFTER: Duration = Duration::from_secs(5);

/// Interval at which a rank that polls its calls checks for probes and answers.
const ANSWER_AFTER: Duration = Duration::from_millis(100);

const PROBE: i32 = 0;
/// Tag of a reply, which follows the path of a probe in reverse.
const REPLY: i32 = 1;
/// Tag of an answer by a rank that has finished the call.
const FINISHED: i32 = 2;

#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Word {
    /// Context of the collective call, in the form of a match key.
    context: u64,
    /// Start of a persistent call, from 1; 1 for other calls.
    start: u64,
    /// Number of the probe, unique at its origin.
    number: u64,
    tag: i32,
    /// Rank of the origin in the job.
    origin: u32,
}

const _: () = assert!(size_of::<Word>() == 32);

impl Word {
    /// Returns whether both words are about the same start of the same call.
    fn is_of_call(&self, other: &Word) -> bool {
        (self.context, self.tag, self.start) == (other.context, other.tag, other.start)
    }
}

/// Returns whether waits of collective calls are watched, which is the case if the ranks use a network.
fn is_watched(worker: *mut Worker) -> bool {
    // SAFETY: the worker lives while MPI runs.
    unsafe { (*worker).interfaces().has_outside() }
}

/// Returns whether a tag belongs to a blocking or nonblocking call, not to a persistent one.
fn is_made_once(tag: i32) -> bool {
    (FIRST_PERSISTENT_TAG + 1..=FIRST_TAG).contains(&tag)
}

/// Waits for a step of a blocking call, and ends the job if a call can never end. Safety: see [`Worker::wait_for`].
#[inline]
pub(super) unsafe fn wait_step(
    channel: &Channel<'_>, worker: *mut Worker, id: RequestId, note: &Note,
) {
    // SAFETY: the worker lives while MPI runs.
    let peer = unsafe { (*worker).requests.get(id).peer };
    let done = |w: &mut Worker| is_complete(w, id) || w.give_up(id, peer);
    match is_made_once(channel.tag) && is_watched(worker) {
        true => {
            wait_watched(channel.process, worker, (Some(peer), note), Some((channel, id)), done);
        }
        // SAFETY: the contract of `Worker::wait_for` is this function's.
        false => unsafe { Worker::wait_for(worker, Some(peer), note, id, done) },
    }
}

/// Waits for a request like [`Worker::wait_for`], and ends the job if an outstanding collective call can never end.
/// Safety: see [`Worker::wait_for`]. The caller is inside MPI.
pub(crate) unsafe fn wait_for(
    p: &Process, worker: *mut Worker, focus: Option<u32>, note: &Note, request: RequestId,
    done: impl FnMut(&mut Worker) -> bool,
) {
    match has_watched_calls(p, worker) {
        true => wait_watched(p, worker, (focus, note), None, done),
        // SAFETY: the contract of `Worker::wait_for` is this function's.
        false => unsafe { Worker::wait_for(worker, focus, note, request, done) },
    }
}

/// Waits until `done` returns true, like [`Worker::wait_until`], and ends the job if an outstanding collective call can
/// never end. Safety: see [`Worker::wait_until`]. The caller is inside MPI.
pub(crate) unsafe fn wait_until(
    p: &Process, worker: *mut Worker, focus: Option<u32>, note: &Note,
    done: impl FnMut(&mut Worker) -> bool,
) {
    match is_watched(worker) {
        true => wait_watched(p, worker, (focus, note), None, done),
        // SAFETY: the contract of `Worker::wait_until` is this function's.
        false => unsafe { Worker::wait_until(worker, focus, note, done) },
    }
}

#[cold]
#[inline(never)]
fn wait_watched<'c>(
    p: &'c Process, worker: *mut Worker, (focus, note): (Option<u32>, &Note),
    blocking: Option<(&'c Channel<'c>, RequestId)>, mut done: impl FnMut(&mut Worker) -> bool,
) {
    let since_ns = clock::now_ns();
    let calls = OutstandingCalls { p, worker, call: note.call, blocking };
    let mut inquiry = POLLING.of(p).inquiry.take();
    let mut is_over = false;
    loop {
        let (word, request, limit) = match &inquiry {
            None => (0, blocking.map_or(0, |(_, id)| id), PROBE_AFTER),
            Some(inquiry) => (inquiry.exchange.receive(), 0, inquiry.time_to_probe()),
        };
        // SAFETY: the worker lives while MPI runs, and no reference to it is held across the wait.
        unsafe {
            Worker::wait_within(worker, focus, note, (request, since_ns, limit), |w| {
                is_over = done(w);
                is_over || (word != 0 && is_complete(w, word))
            });
        }
        if is_over {
            return;
        }
        inquiry.get_or_insert_with(|| Inquiry::new(worker)).proceed(&calls);
    }
}

/// Probes of a rank that polls its nonblocking calls, for example by `MPI_Test`.
struct PollingProbes {
    /// Time of the next check of the steps, in nanoseconds of the clock; 0 before the first check.
    next_ns: Cell<u64>,
    /// Handles of the steps found by the last check.
    handles: RefCell<Vec<u32>>,
    inquiry: RefCell<Option<Inquiry>>,
}

static POLLING: ProcessPart<PollingProbes> = ProcessPart::new(PollingProbes {
    next_ns: Cell::new(0),
    handles: RefCell::new(Vec::new()),
    inquiry: RefCell::new(None),
});

/// Drops all probes of an exiting process.
pub(crate) fn drop_all(p: &Process) {
    let probes = POLLING.of(p);
    probes.handles.take();
    probes.inquiry.take();
}

/// Returns whether this rank has outstanding collective calls that are watched.
pub(crate) fn has_watched_calls(p: &Process, worker: *mut Worker) -> bool {
    is_watched(worker) && p.extras.active.at(0).is_some()
}

/// Notes that the current call has found nothing complete. Ends the job if an outstanding collective call can never
/// end. The steps are checked every [`PROBE_AFTER`]. A step that two successive checks find sends probes.
#[cold]
#[inline(never)]
pub(crate) fn note_miss(p: &Process, worker: *mut Worker) {
    let (probes, now_ns) = (POLLING.of(p), clock::now_ns());
    if now_ns < probes.next_ns.get() {
        return;
    }
    let calls = OutstandingCalls { p, worker, call: p.call.get(), blocking: None };
    let handles: Vec<_> = calls.list_steps().iter().map(|(_, step)| step.handle).collect();
    let mut inquiry = probes.inquiry.take();
    if handles.is_empty() {
        inquiry = None;
    } else if inquiry.is_none()
        && handles.iter().any(|handle| probes.handles.borrow().contains(handle))
    {
        inquiry = Some(Inquiry::new(worker));
    }
    let pause = if inquiry.is_some() { ANSWER_AFTER } else { PROBE_AFTER };
    probes.next_ns.set(now_ns + pause.as_nanos() as u64);
    probes.handles.replace(handles);
    if let Some(inquiry) = &mut inquiry {
        inquiry.proceed(&calls);
    }
    probes.inquiry.replace(inquiry);
}

/// Cancels the receive for probes of a polling rank. A rank calls this before it leaves the job.
pub(crate) fn end_polling(p: &Process, worker: *mut Worker) {
    if is_watched(worker) {
        POLLING.of(p).inquiry.take();
        POLLING.of(p).handles.take();
    }
}

fn is_complete(worker: &Worker, id: RequestId) -> bool {
    worker.requests.get(id).state == RequestState::Complete
}

/// Message that a collective call of this rank waits for.
#[derive(Clone, Copy)]
struct CallStep {
    /// Handle of the message's request. Every step has a different handle.
    handle: u32,
    /// Rank in the job that must send or receive the message.
    peer: u32,
    sends: bool,
    bytes: u64,
}

/// A step that lasts long, and the time of its next probe.
struct ProbingStep {
    handle: u32,
    due_ns: u64,
    pause: Duration,
}

/// Probe that a step has sent or forwarded.
struct SeenProbe {
    word: Word,
    /// Rank that sent the probe to this rank; at the origin, the origin itself.
    sender: u32,
    handle: u32,
}

/// Outstanding collective calls of this rank, and the call in which it waits or polls.
struct OutstandingCalls<'c> {
    p: &'c Process,
    worker: *mut Worker,
    call: &'static str,
    /// Blocking collective call that waits now, with its request; `None` if another call waits.
    blocking: Option<(&'c Channel<'c>, RequestId)>,
}

impl OutstandingCalls<'_> {
    /// Returns the steps of the calls of this rank, each with a word that names its call.
    fn list_steps(&self) -> Vec<(Word, CallStep)> {
        let mut steps = Vec::new();
        let mut add = |id, start| {
            let request = self.request(id);
            if let Some(step) = self.step_of(request) {
                let context = key_context(request.key);
                steps.push((Word { context, tag: request.tag, start, ..Word::default() }, step));
            }
        };
        if let Some((_, id)) = self.blocking {
            add(id, 1);
        }
        for extra in self.p.extras.slots().iter().flatten() {
            if let Some((operation, id)) = waiting_call(extra) {
                add(id, operation.starts());
            }
        }
        steps
    }

    /// Returns the step of the call that `word` names, if that call waits.
    fn find_step(&self, word: &Word) -> Option<CallStep> {
        let id = match self.blocking {
            Some((channel, id)) if word.is_of_call(&word_of(channel)) => id,
            _ => self.find_operation(word)?.0,
        };
        self.step_of(self.request(id))
    }

    /// Finds the nonblocking call that `word` names, if it waits. Returns its awaited request, name and communicator.
    fn find_operation(&self, word: &Word) -> Option<(RequestId, &'static str, Option<usize>)> {
        let slots = self.p.extras.slots();
        let mut calls = slots.iter().flatten().filter_map(waiting_call);
        let found = calls.find(|(operation, _)| {
            operation.starts() == word.start && operation.carries(word.context, word.tag)
        });
        found.map(|(operation, id)| (id, operation.began(), operation.comm()))
    }

    /// Returns the step of a request, unless its message is in flight.
    fn step_of(&self, request: &Request) -> Option<CallStep> {
        // SAFETY: the worker lives while MPI runs, and this process is inside.
        let job = unsafe { &(*self.worker).job };
        let is_unmatched = request.state == RequestState::Active
            && (request.is_posted() || request.is_unmatched_send())
            && request.peer != ANY_PEER
            // A rank of another job is excluded, because that job gives ranks different numbers.
            && !job.is_foreign(request.peer as usize);
        is_unmatched.then_some(CallStep {
            handle: request.handle,
            peer: request.peer,
            sends: request.kind == RequestKind::Send,
            bytes: request.bytes,
        })
    }

    fn request(&self, id: RequestId) -> &Request {
        // SAFETY: the worker lives while MPI runs, and this process is inside.
        unsafe { (*self.worker).requests.get(id) }
    }

    fn rank(&self) -> u32 {
        // SAFETY: the worker lives while MPI runs, and this process is inside.
        unsafe { (*self.worker).rank }
    }

    /// Returns whether this process has finished the call that `word` names.
    fn has_finished(&self, word: &Word) -> bool {
        // SAFETY: the worker lives while MPI runs, and this process is inside.
        if unsafe { (*self.worker).wait.waiting } != 0 || self.p.outside.get() != 0 {
            return false;
        }
        // Only the tags are compared, because a blocking call may have steps in both contexts of an intercommunicator.
        if self.blocking.is_some_and(|(channel, _)| channel.tag == word.tag) {
            return false;
        }
        for extra in self.p.extras.slots().iter().flatten() {
            let Extra::Operation { poll, result, started, .. } = extra else { continue };
            match poll {
                Some(operation) if !operation.carries(word.context, word.tag) => {}
                Some(operation) => {
                    let is_open = result.is_none() && *started != Some(false);
                    return operation.starts() - u64::from(is_open) >= word.start;
                }
                // The operation is being polled and cannot be inspected. It may be the call that `word` names.
                None => return false,
            }
        }
        let handles = [MPI_COMM_WORLD].into_iter().chain(self.p.comms.handles());
        let mut comms = handles.filter_map(|handle| self.p.comms.get(handle));
        let of_call = comms.find(|c| key_context(c.context.collective().key(0)) == word.context);
        of_call.is_some_and(|comm| has_made(self.p, &comm, word.tag))
    }

    /// Reports that the call never ends, and ends the job. The call cannot return, because outstanding steps may use
    /// the program's memory.
    fn end_job(&self, word: &Word, step: CallStep, state: &str) -> ! {
        let begun = self.find_operation(word);
        let named = begun.and_then(|(_, _, comm)| self.p.comm_of_request(comm?));
        let (call, comm) = match begun {
            Some((_, call, _)) => (call, named.as_deref()),
            None => ("the call", self.blocking.map(|(channel, _)| channel.comm)),
        };
        let peer = comm.map_or(step.peer as i32, |comm| comm.peer_rank(step.peer));
        let (verb, preposition) = if step.sends { ("send", "to") } else { ("receive", "from") };
        let text = format!(
            "{call} can never complete: this rank waits to {verb} {} bytes {preposition} rank \
             {peer} of the communicator, which {state}. All ranks must make the same collective \
             calls, in the same order, with the same root and matching lengths",
            step.bytes
        );
        let advice = "set FASTPATH_CHECK=1 to compare the arguments of the ranks";
        let error = Error::new(MPI_ERR_OTHER, text).with_advice(Some(advice));
        errhandler::end_job(self.p, self.call, &error, comm)
    }
}

/// State of the probes of a rank.
struct Inquiry {
    exchange: WordExchange<Word>,
    origins: Vec<ProbingStep>,
    seen: Vec<SeenProbe>,
}

impl Inquiry {
    fn new(worker: *mut Worker) -> Self {
        let exchange = WordExchange::new(worker, Context::LEAVING);
        Inquiry { exchange, origins: Vec::new(), seen: Vec::new() }
    }

    fn time_to_probe(&self) -> Duration {
        let first = self.origins.iter().map(|origin| origin.due_ns).min();
        let left = first.map(|due| Duration::from_nanos(due.saturating_sub(clock::now_ns())));
        left.unwrap_or(PROBE_AFTER).min(PROBE_AFTER)
    }

    /// Sends the probes that are due, and handles the words that have arrived.
    fn proceed(&mut self, calls: &OutstandingCalls<'_>) {
        let steps = calls.list_steps();
        let waits = |handle| steps.iter().any(|(_, step)| step.handle == handle);
        self.origins.retain(|origin| waits(origin.handle));
        self.seen.retain(|probe| waits(probe.handle));
        for (call, step) in steps {
            self.send_probe(calls.rank(), call, step);
        }
        while let Some(Arrival { sender, tag, word }) = self.exchange.take() {
            match tag {
                PROBE => self.take_probe(calls, word, sender),
                _ => self.take_answer(calls, word, sender, tag),
            }
        }
    }

    fn send_probe(&mut self, rank: u32, call: Word, CallStep { handle, peer, .. }: CallStep) {
        let now_ns = clock::now_ns();
        match self.origins.iter_mut().find(|origin| origin.handle == handle) {
            Some(origin) if now_ns < origin.due_ns => return,
            Some(origin) => {
                origin.pause *= 2;
                origin.due_ns = now_ns + origin.pause.as_nanos() as u64;
            }
            None => {
                let due_ns = now_ns + PROBE_AFTER.as_nanos() as u64;
                self.origins.push(ProbingStep { handle, due_ns, pause: PROBE_AFTER });
            }
        }
        let word = Word { number: now_ns, origin: rank, ..call };
        self.seen.push(SeenProbe { word, sender: rank, handle });
        self.exchange.send(peer, PROBE, word);
    }

    fn take_probe(&mut self, calls: &OutstandingCalls<'_>, word: Word, sender: u32) {
        let Some(step) = calls.find_step(&word) else {
            if calls.has_finished(&word) {
                self.exchange.send(sender, FINISHED, word);
            }
            return;
        };
        let is_new = self.find_seen(&word).is_none();
        match (word.origin == calls.rank(), is_new) {
            (true, false) => self.exchange.send(sender, REPLY, word),
            (false, true) => {
                self.seen.push(SeenProbe { word, sender, handle: step.handle });
                self.exchange.send(step.peer, PROBE, word);
            }
            _ => {}
        }
    }

    fn take_answer(&mut self, calls: &OutstandingCalls<'_>, word: Word, sender: u32, kind: i32) {
        let Some((before, handle)) = self.find_seen(&word) else { return };
        // SAFETY: the worker lives while MPI runs, and this process is inside. Messages sent before the answer are
        // taken first, because the awaited message may be among them.
        unsafe { (*calls.worker).take_arrivals() };
        let Some(step) = calls.find_step(&word) else { return };
        if (step.handle, step.peer) != (handle, sender) {
            return;
        }
        match kind {
            REPLY if before == calls.rank() => calls.end_job(
                &word,
                step,
                "itself waits in this call for this rank, directly or through other ranks",
            ),
            REPLY => self.exchange.send(before, REPLY, word),
            FINISHED => calls.end_job(&word, step, "has finished this call without this message"),
            _ => {}
        }
    }

    /// Returns the sender and the step's handle of a probe, if this rank has sent or forwarded it.
    fn find_seen(&self, word: &Word) -> Option<(u32, u32)> {
        let seen = self.seen.iter().find(|probe| probe.word == *word);
        seen.map(|probe| (probe.sender, probe.handle))
    }
}

/// Returns the outstanding collective call of a request's operation, if any, and the request that it waits for.
fn waiting_call(extra: &Extra<Process>) -> Option<(&dyn Operation<Process>, RequestId)> {
    match extra {
        Extra::Operation { poll: Some(operation), watch: PollCondition::Request(id), .. }
            if operation.is_collective() =>
        {
            Some((&**operation, *id))
        }
        _ => None,
    }
}

/// Returns the word that names a blocking call.
fn word_of(channel: &Channel<'_>) -> Word {
    let context = key_context(channel.context.key(0));
    Word { context, tag: channel.tag, start: 1, ..Word::default() }
}

/// Returns whether this process has made the call with `tag` on `comm` or, for a persistent call, its request.
fn has_made(p: &Process, comm: &Comm, tag: i32) -> bool {
    let next = match tag {
        _ if is_made_once(tag) => Channel::next_tag(comm),
        // With checks, the tag is taken before the arguments are compared, and does not show that the request was made.
        _ if p.checks().is_some() => return false,
        _ => Channel::next_persistent_tag(comm),
    };
    // Later calls have lower tags, and tags wrap around.
    let ahead = tag.wrapping_sub(next).rem_euclid(TAGS as i32);
    ahead > 0 && ahead < TAGS as i32 / 2
}
