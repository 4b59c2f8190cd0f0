//! Collective calls of several hosts that can never end: ranks that pass different lengths may choose different
//! algorithms and wait for each other (`docs/decisions/0082-collective-calls-that-never-end.md`).
//!
//! A rank whose step lasts long sends a probe to the rank that it waits for, and each rank that waits in a step of the
//! same call passes it on. If it comes back to its origin, a cycle of ranks has waited, each at some moment. The origin
//! sends a reply back the way that the probe came. A rank passes that on if it still waits in the step in which it saw
//! the probe. So all of them waited at the moment at which the probe came back. The reply also follows every message
//! from the rank that is waited for. If it returns to an origin that still waits, no message is on its way in the
//! cycle. A rank that has finished the call answers a probe by itself, behind all that it has sent.
#![allow(unsafe_code)]

use super::{Channel, FIRST_TAG, TAGS};
use crate::common::consts::{MPI_COMM_WORLD, MPI_ERR_OTHER, MPI_THREAD_MULTIPLE};
use crate::common::error::Error;
use crate::p2p::word_exchange::{Arrival, WordExchange};
use crate::process::Process;
use crate::process::errhandler;
use fastpath_base::clock;
use fastpath_protocol::tag::{Context, key_context};
use fastpath_protocol::waiting::Note;
use fastpath_protocol::{RequestId, State, Worker};
use std::time::Duration;

/// How long a step lasts before its rank sends a probe. The next one follows after the same time, and each further one
/// after twice the time.
const PROBE_AFTER: Duration = Duration::from_secs(5);

/// Tag of a probe.
const PROBE: i32 = 0;
/// Tag of a reply, which goes the way of a probe back.
const REPLY: i32 = 1;
/// Tag of an answer: the sender has finished the call.
const FINISHED: i32 = 2;

/// A probe, or an answer to one.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Word {
    /// Context of the collective call, as a match key has it.
    context: u64,
    /// Number of the probe, unique at its origin.
    number: u64,
    /// Tag of the collective call.
    tag: i32,
    /// Rank in the job that made the probe.
    origin: u32,
}

const _: () = assert!(size_of::<Word>() == 24);

/// Whether the steps of a call are watched: ranks are reached by a network, and no other thread of a rank may carry out
/// another part of the call.
pub(super) fn is_watched(channel: &Channel<'_>, worker: *mut Worker) -> bool {
    // SAFETY: the worker lives while MPI runs.
    let has_network = unsafe { (*worker).interfaces().has_outside() };
    has_network
        && is_made_once(channel.tag)
        && channel.process.thread_level.get() != MPI_THREAD_MULTIPLE
}

/// Whether a tag is that of a call that is made once, by all members in the same order.
fn is_made_once(tag: i32) -> bool {
    (FIRST_TAG - TAGS as i32 + 1..=FIRST_TAG).contains(&tag)
}

/// Waits for a step; ends the job if it can never end.
#[cold]
#[inline(never)]
pub(super) fn wait(channel: &Channel<'_>, worker: *mut Worker, id: RequestId, note: &Note) {
    let since_ns = clock::now_ns();
    if await_step(worker, (id, 0), since_ns, note) {
        return;
    }
    let mut step = WaitingStep::new(channel, worker, id);
    let mut pause = PROBE_AFTER;
    loop {
        step.send_probe();
        let until_ns = clock::now_ns() + pause.as_nanos() as u64;
        // Probes stay with a rank that computes for hours.
        pause *= 2;
        while clock::now_ns() < until_ns {
            if await_step(worker, (id, step.exchange.receive()), since_ns, note) {
                return;
            }
            step.take_words();
        }
    }
}

/// Waits until a request has ended, or another one (0 for none), or for [`PROBE_AFTER`]; returns whether the first has.
fn await_step(
    worker: *mut Worker, (id, other): (RequestId, RequestId), since_ns: u64, note: &Note,
) -> bool {
    let is_complete = |w: &Worker, id| w.requests.get(id).state == State::Complete;
    // SAFETY: the worker lives while MPI runs; no reference to it is held across the wait.
    unsafe {
        let peer = (*worker).requests.get(id).peer;
        Worker::wait_within(worker, Some(peer), note, since_ns, PROBE_AFTER, |w| {
            is_complete(w, id) || (other != 0 && is_complete(w, other)) || w.give_up(id, peer)
        });
        is_complete(&*worker, id)
    }
}

/// A step of a collective call that lasts long.
struct WaitingStep<'c> {
    channel: &'c Channel<'c>,
    worker: *mut Worker,
    /// The request that the step waits for.
    id: RequestId,
    exchange: WordExchange<Word>,
    /// Probes of this step: each with the rank that sent it. Those of this rank itself name it.
    seen: Vec<(Word, u32)>,
}

impl<'c> WaitingStep<'c> {
    fn new(channel: &'c Channel<'c>, worker: *mut Worker, id: RequestId) -> Self {
        let exchange = WordExchange::new(worker, Context::LEAVING);
        WaitingStep { channel, worker, id, exchange, seen: Vec::new() }
    }

    /// The rank in the job that the step waits for, while its message is not under way.
    fn awaited(&self) -> Option<u32> {
        // SAFETY: the worker lives while MPI runs, and this process is inside.
        let worker = unsafe { &*self.worker };
        let request = worker.requests.get(self.id);
        let is_unmatched = request.state == State::Active
            && (request.is_posted() || request.is_unmatched_send())
            // The ranks of another job have other numbers there.
            && !worker.job.is_foreign(request.peer as usize);
        is_unmatched.then_some(request.peer)
    }

    fn rank(&self) -> u32 {
        // SAFETY: the worker lives while MPI runs, and this process is inside.
        unsafe { (*self.worker).rank }
    }

    fn send_probe(&mut self) {
        let Some(peer) = self.awaited() else { return };
        let origin = self.rank();
        let word = Word {
            context: self.context(),
            number: clock::now_ns(),
            tag: self.channel.tag,
            origin,
        };
        self.seen.push((word, origin));
        self.exchange.send(peer, PROBE, word);
    }

    fn context(&self) -> u64 {
        key_context(self.channel.context.key(0))
    }

    /// Takes the words that have come.
    fn take_words(&mut self) {
        while let Some(Arrival { sender, tag, word }) = self.exchange.take() {
            match tag {
                PROBE => self.take_probe(word, sender),
                _ => self.take_answer(word, sender, tag),
            }
        }
    }

    fn take_probe(&mut self, word: Word, sender: u32) {
        if (word.context, word.tag) != (self.context(), self.channel.tag) {
            if has_finished(self.channel.process, &word) {
                self.exchange.send(sender, FINISHED, word);
            }
            return;
        }
        if word.origin == self.rank() {
            if self.find(&word).is_some() {
                self.exchange.send(sender, REPLY, word);
            }
            return;
        }
        if let Some(peer) = self.awaited()
            && self.find(&word).is_none()
        {
            self.seen.push((word, sender));
            self.exchange.send(peer, PROBE, word);
        }
    }

    fn take_answer(&mut self, word: Word, sender: u32, kind: i32) {
        let Some(before) = self.find(&word) else { return };
        // SAFETY: the worker lives while MPI runs, and this process is inside. What the sender has sent before is taken
        // first.
        unsafe { (*self.worker).take_arrivals() };
        if self.awaited() != Some(sender) {
            return;
        }
        match kind {
            REPLY if before == self.rank() => {
                self.end_job(sender, "waits in it, in the end for this rank")
            }
            REPLY => self.exchange.send(before, REPLY, word),
            FINISHED => self.end_job(sender, "has finished it without this message"),
            _ => {}
        }
    }

    /// The rank that sent a probe of this step.
    fn find(&self, word: &Word) -> Option<u32> {
        self.seen.iter().find(|(seen, _)| seen == word).map(|&(_, sender)| sender)
    }

    /// Reports that the call never ends, and ends the job: other steps of the call may still use the program's memory,
    /// so that the call cannot return.
    fn end_job(&self, peer: u32, state: &str) -> ! {
        let (p, comm) = (self.channel.process, self.channel.comm);
        let call = p.call.get();
        let text = format!(
            "the call can never complete: this rank waits for a message of rank {} of the \
             communicator, which {state}. Do all ranks make the same collective calls, in the same \
             order, with the same root and matching lengths?",
            comm.peer_rank(peer)
        );
        let advice = "set FASTPATH_CHECK=1, which compares the arguments of the ranks";
        let error = Error::new(MPI_ERR_OTHER, text).with_advice(Some(advice));
        errhandler::end_job(p, call, &error.on_comm(comm.handle.get()), comm)
    }
}

/// Whether this process, which waits in another call, has finished the one of a probe.
fn has_finished(p: &Process, word: &Word) -> bool {
    if !is_made_once(word.tag) || p.extras.carry(word.context, word.tag) {
        return false;
    }
    let handles = [MPI_COMM_WORLD].into_iter().chain(p.comms.handles());
    let mut comms = handles.filter_map(|handle| p.comms.get(handle));
    let of_call = comms.find(|c| key_context(c.context.collective().key(0)) == word.context);
    of_call.is_some_and(|comm| {
        let next = Channel::next_tag(&comm);
        // Tags fall, and come round.
        let ahead = (word.tag - next).rem_euclid(TAGS as i32);
        ahead > 0 && ahead < TAGS as i32 / 2
    })
}
