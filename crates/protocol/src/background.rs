//! Progress while the program computes: the progress thread's work under the lock, and the signals that wake it.
//!
//! Peers of the host signal the thread (`fastpath_segment::CallWord`) after events that need an answer. Such events are
//! an RTS or RTR, a synchronous message, fragments, space, and a one-sided operation by messages. Short messages do not
//! signal. The kernel reports all arrivals from other hosts. While a thread of the program waits inside MPI, that
//! thread polls, and the progress thread only notes a signal. If a call leaves work, the rank signals its own thread.

use crate::request::{MessagePhase, RequestId};
use crate::unexpected::{EntryId, UnexpectedKind};
use crate::wire::{self, Offer};
use crate::worker::Worker;
pub use crate::worker::background::Background;
use fastpath_base::clock;
use fastpath_base::sync::spin_loop;
use fastpath_base::wait;
use fastpath_segment::CallWord;
use std::time::Duration;

/// If a processor is free, the thread polls on for this many nanoseconds after the last arrival: about the time of one
/// or two fragments.
const POLLS_ON_NS: u64 = 20_000;
/// A thread with its own processor polls for this many nanoseconds after an arrival under the lock, then without it.
const POLLS_INSIDE_NS: u64 = 1_000;
/// Maximum number of rounds of progress that a thread of the program makes when a wait ends.
const ROUNDS: u32 = 4;
const POLLS_PER_CLOCK: u32 = 64;
/// Longest sleep of the thread while it awaits space and the kernel has no expedited membarrier.
const UNFENCED_NAP: Duration = Duration::from_millis(1);

/// Smallest copy, in bytes, that is left to the progress thread. Such a copy takes several times as long as a wake-up.
const DEFERRED_MIN: u64 = 64 << 10;

/// Reason why the progress thread leaves the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnEnd {
    /// Another thread needs the worker, so the progress thread must release it.
    Interrupted,
    /// There is no work before the next signal or, if there is a timeout, before it has passed.
    Over(Option<Duration>),
}

impl Worker {
    /// Returns the word by which peers signal this rank's progress thread.
    pub fn own_call(&self) -> &'static CallWord {
        &self.job.own_page().call
    }

    /// Marks that a thread of the program waits and makes progress itself. [`Worker::resume`] ends this state.
    pub fn attend(&mut self) {
        if self.background.attending == 0 {
            self.background.missed = self.own_call().attend();
        }
        self.background.attending += 1;
    }

    /// Ends the wait that [`Worker::attend`] has marked, and handles signals that the progress thread missed meanwhile.
    pub fn resume(&mut self) {
        self.background.attending -= 1;
        if self.background.attending != 0 {
            return;
        }
        let is_due = self.interfaces.has_outside();
        let missed = self.own_call().resume(is_due) | self.background.missed;
        // The event of the missed signal is usually handled already. `ROUNDS` bounds the time that other events take.
        let goes_on = missed && (0..ROUNDS).all(|_| self.progress());
        if goes_on || !self.is_idle() {
            self.own_call().ring();
        }
    }

    #[inline]
    pub(crate) fn ring(&self, peer: u32) {
        if let Some(page) = self.job.rank_page(peer as usize) {
            page.call.ring();
        }
    }

    /// Signals a peer's progress thread after a short message: an operation of that rank may depend on the message.
    #[inline]
    pub fn call_peer(&self, peer: u32) {
        if self.background.runs {
            self.ring(peer);
        }
    }

    /// Signals a peer's progress thread after a control message. Without progress threads in the job, a message that
    /// only completes an operation sends no signal. With progress threads such a message signals too, because a
    /// collective call may depend on that operation.
    pub(crate) fn ring_for(&self, peer: u32, id: u8) {
        if self.background.runs || !wire::only_completes(id) {
            self.ring(peer);
        }
    }

    /// Returns whether a message is long and the peer's progress thread will receive it, because the peer's program
    /// computes. Such a message is sent with the fewest copies: copies made here take processor time, and the peer's
    /// thread may share this processor.
    pub(crate) fn computes_beside(&self, peer: u32, bytes: u64) -> bool {
        let page = || self.job.rank_page(peer as usize);
        bytes >= self.planner.thresholds.crowded_copy
            && page().is_some_and(|page| page.call.finds_computing())
    }

    #[inline]
    pub(crate) fn ring_own(&self) {
        if self.background.runs {
            self.own_call().ring();
        }
    }

    pub(crate) fn is_long_copy(&self, token: EntryId) -> bool {
        let is_copied = |offer| matches!(offer, Offer::Get(_) | Offer::Cooperative(..));
        match self.matcher.unexpected(token).arrived() {
            UnexpectedKind::Rendezvous(rts) => rts.total >= DEFERRED_MIN && is_copied(rts.offer),
            _ => false,
        }
    }

    pub(crate) fn defer_recv(&mut self, id: RequestId, token: EntryId) {
        let peer = self.matcher.unexpected(token).peer;
        let request = self.requests.get_mut(id);
        (request.phase, request.peer, request.remote) = (MessagePhase::Deferred, peer, token);
        self.probed += 1;
        self.push_later(id);
    }

    pub(crate) fn receive_deferred(&mut self, id: RequestId) {
        let request = self.requests.get_mut(id);
        request.phase = MessagePhase::Begun;
        let token = request.remote;
        self.probed -= 1;
        self.consume_unexpected(id, token);
    }

    /// Makes progress until there is no work, or `wanted` returns true because another thread needs the worker.
    pub fn serve_others(&mut self, wanted: fn() -> bool) -> TurnEnd {
        self.background.turns += 1;
        let (mut polls, mut since_ns) = (0_u32, 0);
        // At the end of the job, `CallWord::end` makes `is_answered` return false.
        while self.background.attending == 0 && self.own_call().is_answered() {
            self.own_call().take();
            let moved = self.serve_round();
            self.background.useful += u64::from(moved);
            if wanted() {
                return TurnEnd::Interrupted;
            }
            if moved {
                (polls, since_ns) = (0, 0);
                continue;
            }
            polls += 1;
            if self.polls_on(polls, &mut since_ns) {
                spin_loop();
                continue;
            }
            let limit = self.prepare_rest();
            if limit.is_some() && self.serve_round() {
                continue;
            }
            if self.own_call().rest(self.background.has_processor) {
                return TurnEnd::Over(limit.flatten());
            }
        }
        TurnEnd::Over(None)
    }

    fn serve_round(&mut self) -> bool {
        self.background.serves = true;
        let moved = self.progress_all();
        self.background.serves = false;
        moved
    }

    fn polls_on(&self, polls: u32, since_ns: &mut u64) -> bool {
        if !self.has_free_processor() {
            return false;
        }
        if !polls.is_multiple_of(POLLS_PER_CLOCK) {
            return true;
        }
        let now = clock::now_ns();
        if *since_ns == 0 {
            *since_ns = now;
        }
        let most = match self.background.has_processor {
            true => POLLS_INSIDE_NS,
            false => POLLS_ON_NS,
        };
        now - *since_ns < most
    }

    /// Prepares a sleep of the thread: peers that make awaited space, the adapter and the network will signal it.
    /// Returns `None` if no space is awaited and there is no adapter or network. Otherwise the caller polls once more,
    /// and then sleeps for at most the returned time; `Some(None)` sets no limit.
    fn prepare_rest(&mut self) -> Option<Option<Duration>> {
        let awaits_room = self.await_all_room();
        if !awaits_room && !self.interfaces.has_outside() {
            return None;
        }
        // ORDERING: this fence precedes every sleep for space. Either peers see that space is awaited, or the poll sees
        // the space (partner: the load in the transport's `publish_head`).
        let fenced = !awaits_room || wait::fence_others();
        let unfenced = (!fenced).then_some(UNFENCED_NAP);
        Some(unfenced.into_iter().chain(self.arm()).min())
    }
}
