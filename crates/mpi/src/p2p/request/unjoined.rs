//! Outstanding collective calls in `MPI_Finalize` that the program has not completed.
//!
//! Other members may need these calls, so a rank waits for them. A call never ends if a member has left without joining
//! it. Two calls also never end if two ranks in `MPI_Finalize` have begun one call each, and not the same one. A rank
//! therefore asks the peer of each awaited message whether the peer's call is outstanding. The peer answers in
//! `MPI_Finalize`, when it begins no further call. The peer's denial is final, and follows all messages of the peer. A
//! rank does not answer before it enters `MPI_Finalize`.
#![allow(unsafe_code)]

use super::steps::OPERATION;
use super::{Extra, PollCondition, moved_by, operation_has_result, poll_operation};
use crate::common::consts::MPI_ERR_OTHER;
use crate::common::error::{Error, Result};
use crate::p2p::word_exchange::{Arrival, WordExchange};
use crate::process::Process;
use fastpath_protocol::matching::ANY_PEER;
use fastpath_protocol::tag::{Context, key_context};
use fastpath_protocol::waiting::Note;
use fastpath_protocol::{Request, RequestState, Worker};

/// Tag of a question.
const ASKS: i32 = 0;
/// Tag of an answer: the call is not outstanding.
const DENIES: i32 = 1;

/// Question or answer about a message.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Question {
    key: u64,
    tag: i32,
    /// Request of the message at the rank that sent the question.
    handle: u32,
}

impl Question {
    fn of(request: &Request) -> Question {
        Question { key: request.key, tag: request.tag, handle: request.handle }
    }
}

/// Waits in `MPI_Finalize` for the outstanding collective calls that the program has not completed. Errors: the error
/// of the first call that has failed; the reason why a call can never end.
pub(crate) fn finish_collective(p: &Process) -> Result {
    let is_collective = |extra: &Option<Extra<Process>>| match extra {
        Some(Extra::Operation { poll: Some(operation), result, started, .. }) => {
            let has_succeeded = matches!(result, Some(Ok(_)));
            !has_succeeded && *started != Some(false) && operation.is_collective()
        }
        _ => false,
    };
    let under_way: Vec<usize> = {
        let slots = p.extras.slots();
        let places = slots.iter().enumerate();
        places.filter(|(_, extra)| is_collective(extra)).map(|(index, _)| index).collect()
    };
    if under_way.is_empty() {
        return Ok(());
    }
    let worker = p.worker()?;
    let mut inquiry = Inquiry::begin(p, worker, under_way);
    let mut result = Ok(false);
    while matches!(result, Ok(false)) {
        // SAFETY: the worker lives while MPI runs, and this call holds its lock.
        let awaited = moved_by(unsafe { &*worker });
        let first = inquiry.open().next().unwrap_or(0);
        let note = Note {
            call: p.call.get(),
            peer: -1,
            tag: -1,
            comm: OPERATION | first,
            bytes: 0,
            awaited,
            naps: false,
        };
        // SAFETY: the worker lives while MPI runs, and `look` holds no reference to it after it returns.
        unsafe {
            Worker::wait_until(worker, None, &note, |_| {
                result = inquiry.look();
                // The wait restarts with a new note if the awaited ranks have changed.
                !matches!(result, Ok(false)) || moved_by(&*worker) != awaited
            });
        }
    }
    result.map(|_| ())
}

/// Questions sent and received by this rank while it waits for its calls.
struct Inquiry<'a> {
    p: &'a Process,
    worker: *mut Worker,
    under_way: Vec<usize>,
    exchange: WordExchange<Question>,
    asked: Vec<Question>,
    /// Questions about calls that are outstanding here, with their senders. The outstanding call may also be an earlier
    /// start of the persistent call that the question is about.
    kept: Vec<(u32, Question)>,
}

impl<'a> Inquiry<'a> {
    fn begin(p: &'a Process, worker: *mut Worker, under_way: Vec<usize>) -> Self {
        let exchange = WordExchange::new(worker, Context::LEAVING.collective());
        Inquiry { p, worker, under_way, exchange, asked: Vec::new(), kept: Vec::new() }
    }

    fn open(&self) -> impl Iterator<Item = usize> {
        self.under_way.iter().copied().filter(|&index| !operation_has_result(self.p, index))
    }

    /// Advances the calls; returns whether all have ended. Errors: a call has failed, or can never end.
    fn look(&mut self) -> Result<bool> {
        for index in self.open().collect::<Vec<_>>() {
            poll_operation(self.p, index);
        }
        // A call may have failed without a poll above: in progress, or during an earlier call of the program.
        for &index in &self.under_way {
            if let Some(Some(Extra::Operation { poll: Some(operation), result, .. })) =
                self.p.extras.slots().get(index)
                && let Some(Err(error)) = result
            {
                return Err(not_joined(operation.began(), error));
            }
        }
        if self.open().next().is_none() {
            return Ok(true);
        }
        self.receive()?;
        self.ask();
        let (ended, kept) =
            std::mem::take(&mut self.kept).into_iter().partition::<Vec<_>, _>(|(_, question)| {
                !self.p.extras.carry(key_context(question.key), question.tag)
            });
        self.kept = kept;
        for (asker, question) in ended {
            self.exchange.send(asker, DENIES, question);
        }
        Ok(false)
    }

    /// Sends a question to the peer of each message that the calls wait for, once for each message.
    fn ask(&mut self) {
        for index in self.open().collect::<Vec<_>>() {
            let Some((peer, question)) = self.awaited(index) else {
                continue;
            };
            // A question is sent only while a receive is posted, because its answer could not arrive otherwise.
            if self.exchange.receive() != 0 && !self.asked.contains(&question) {
                self.asked.push(question);
                self.exchange.send(peer, ASKS, question);
            }
        }
    }

    /// Returns the message that a call waits for, if unmatched, and the rank of the job that must send or receive it.
    fn awaited(&self, index: usize) -> Option<(u32, Question)> {
        let id = match self.p.extras.slots().get(index) {
            Some(Some(Extra::Operation { watch: PollCondition::Request(id), .. })) => *id,
            _ => return None,
        };
        // SAFETY: the worker lives while MPI runs, and this process is inside.
        let worker = unsafe { &*self.worker };
        let request = worker.requests.get(id);
        let is_alone = request.state == RequestState::Active
            && (request.is_posted() || request.is_unmatched_send())
            && request.peer != ANY_PEER
            // Another job has a different number for this rank.
            && !worker.job.is_foreign(request.peer as usize);
        is_alone.then(|| (request.peer, Question::of(request)))
    }

    /// Processes questions and answers that have arrived. Errors: an answer whose message is still awaited.
    fn receive(&mut self) -> Result {
        while let Some(Arrival { sender, tag, word }) = self.exchange.take() {
            if tag == ASKS {
                self.kept.push((sender, word));
                continue;
            }
            // Messages that the peer sent before its answer are processed first, because the awaited message may be
            // among them.
            // SAFETY: the worker lives while MPI runs, and this process is inside.
            unsafe { (*self.worker).take_arrivals() };
            let waits = |index: &usize| self.awaited(*index) == Some((sender, word));
            if let Some(index) = self.open().find(waits) {
                return Err(self.never_begun(index, sender));
            }
        }
        Ok(())
    }

    #[cold]
    fn never_begun(&self, index: usize, peer: u32) -> Error {
        let text = |peer: i32| {
            format!(
                "rank {peer} is in MPI_Finalize and has not made this call: all ranks must make \
                 the same collective calls, in the same order"
            )
        };
        let slots = self.p.extras.slots();
        let operation = match slots.get(index) {
            Some(Some(Extra::Operation { poll: Some(operation), .. })) => operation,
            _ => return Error::new(MPI_ERR_OTHER, text(peer as i32)),
        };
        let comm = operation.comm().and_then(|comm| self.p.comm_of_request(comm));
        let rank = comm.as_ref().map_or(peer as i32, |comm| comm.peer_rank(peer));
        let mut error = Error::new(MPI_ERR_OTHER, text(rank));
        if let Some(comm) = operation.comm() {
            error = error.on_comm(comm);
        }
        not_joined(operation.began(), &error)
    }
}

#[cold]
fn not_joined(call: &str, error: &Error) -> Error {
    let text = format!("{call} is under way and can never complete: {error}");
    let advice = "complete each nonblocking collective call, by MPI_Wait or MPI_Test, on all ranks";
    let told = Error::new(error.code(), text).with_advice(Some(advice)).on_object_of(error);
    match error.about() {
        Some((peer, tag, bytes)) => told.about_message(peer, tag, bytes),
        None => told,
    }
}
