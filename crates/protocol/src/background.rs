//! Progress while the program computes: what a progress thread does under the lock, and who calls it.
//!
//! Peers of the host call it (`fastpath_bootstrap::segment::Call`) after what needs an answer: an RTS, a
//! synchronous message, the answer to an RTS, fragments, room, a one-sided operation by messages. A call is no
//! part of a short message. Of what comes from other hosts the kernel tells, whatever it is. While a thread of the
//! program waits inside MPI it looks by itself, and a call is only noted. The rank calls its own thread where it leaves
//! something behind that has to be pushed.

use crate::request::{Phase, RequestId};
use crate::unexpected::{Arrived, EntryId};
use crate::wire::{self, Offer};
use crate::worker::Worker;
use fastpath_base::clock;
use fastpath_base::sync::{Ordering, spin_loop};
use fastpath_base::wait;
use fastpath_bootstrap::segment::Call;
use std::time::Duration;

/// Nanoseconds without an arrival for which the thread looks on where a processor is spare: a fragment or two.
const POLLS_ON_NS: u64 = 20_000;
/// The same where it goes on to poll outside of the lock, so that the program need not ask it to leave.
const POLLS_INSIDE_NS: u64 = 1_000;
/// Rounds of progress that a thread of the program makes, at most, before it goes on.
const ROUNDS: u32 = 4;
/// Looks between two readings of the clock.
const POLLS_PER_CLOCK: u32 = 64;
/// How long the thread sleeps at a time while it waits for room, where the kernel has no expedited membarrier.
const UNFENCED_NAP: Duration = Duration::from_millis(1);

/// Bytes from which on a copy is left to the progress thread: it takes several times as long as waking it.
const DEFERRED_MIN: u64 = 64 << 10;

/// What a process knows of its progress thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct Background {
    /// Whether there is one.
    pub runs: bool,
    /// Threads of the program that wait inside MPI.
    attending: u32,
    /// Whether a call came that the thread did not follow, because one of these looks.
    missed: bool,
    /// Whether it has a processor that nobody else needs, on which it stays awake for a while.
    pub has_processor: bool,
    /// Whether the thread makes progress now.
    pub serves: bool,
    /// Times the thread went inside.
    pub turns: u64,
    /// Those of its looks that found something.
    pub useful: u64,
}

/// Why the thread goes outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Another thread wants to get in; it must come back.
    Interrupted,
    /// There is nothing to do until it is called, or, where there is a limit, for so long.
    Over(Option<Duration>),
}

impl Worker {
    /// The word by which this rank's progress thread is called.
    pub fn own_call(&self) -> &'static Call {
        &self.job.own_page().call
    }

    /// A thread of the program waits from now on, and looks by itself. Ended by [`Worker::resume`].
    pub fn attend(&mut self) {
        if self.background.attending == 0 {
            self.background.missed = self.own_call().attend();
        }
        self.background.attending += 1;
    }

    /// Ends what [`Worker::attend`] has begun.
    pub fn resume(&mut self) {
        self.background.attending -= 1;
        if self.background.attending != 0 {
            return;
        }
        let is_due = self.interfaces.has_outside();
        let missed = self.own_call().resume(is_due) | self.background.missed;
        // Mostly it was what was waited for. Where more and more comes, the program is not kept.
        let goes_on = missed && (0..ROUNDS).all(|_| self.progress());
        if goes_on || !self.is_idle() {
            self.own_call().ring();
        }
    }

    /// Calls a peer's progress thread, if it has one, to what was posted to that peer.
    #[inline]
    pub(crate) fn ring(&self, peer: u32) {
        if let Some(page) = self.job.rank_page(peer as usize) {
            page.call.ring();
        }
    }

    /// Calls a peer's progress thread to a short message, if the job has such threads: an operation of that rank may
    /// go on with it.
    #[inline]
    pub fn call_peer(&self, peer: u32) {
        if self.background.runs {
            self.ring(peer);
        }
    }

    /// Calls a peer's progress thread to a control message. One that only completes an operation is left to the
    /// program, but where the job has such threads: a collective call may go on with it.
    pub(crate) fn ring_for(&self, peer: u32, id: u8) {
        if self.background.runs || !wire::only_completes(id) {
            self.ring(peer);
        }
    }

    /// Whether a long message will be received by the peer's progress thread while its program computes: it needs a
    /// processor, perhaps this one, and the fewer copies the better.
    pub(crate) fn computes_beside(&self, peer: u32, bytes: u64) -> bool {
        let page = || self.job.rank_page(peer as usize);
        bytes >= self.thresholds.crowded_copy
            && page().is_some_and(|page| page.call.finds_computing())
    }

    /// Something was left that has to be pushed.
    #[inline]
    pub(crate) fn ring_own(&self) {
        if self.background.runs {
            self.own_call().ring();
        }
    }

    /// Whether an unexpected message is copied at once by its receiver, and is long.
    pub(crate) fn is_long_copy(&self, token: EntryId) -> bool {
        let is_copied = |offer| matches!(offer, Offer::Get(_) | Offer::Cooperative(..));
        match self.matcher.unexpected(token).arrived() {
            Arrived::Rendezvous(rts) => rts.total >= DEFERRED_MIN && is_copied(rts.offer),
            _ => false,
        }
    }

    /// Leaves a receive, which has taken that message out of matching, to whoever makes progress.
    pub(crate) fn defer_recv(&mut self, id: RequestId, token: EntryId) {
        let peer = self.matcher.unexpected(token).peer;
        let request = self.requests.get_mut(id);
        (request.phase, request.peer, request.remote) = (Phase::Deferred, peer, token);
        self.probed += 1;
        self.push_later(id);
    }

    /// Goes on with it.
    pub(crate) fn receive_deferred(&mut self, id: RequestId) {
        let request = self.requests.get_mut(id);
        request.phase = Phase::Begun;
        let token = request.remote;
        self.probed -= 1;
        self.consume_unexpected(id, token);
    }

    /// Makes progress until there is nothing to do, for the progress thread. `wanted`: whether another thread wants to
    /// get in.
    pub fn serve_others(&mut self, wanted: fn() -> bool) -> Turn {
        self.background.turns += 1;
        let (mut polls, mut since_ns) = (0_u32, 0);
        // At its end the word says that nobody answers, for good.
        while self.background.attending == 0 && self.own_call().is_answered() {
            self.own_call().take();
            let moved = self.serve_round();
            self.background.useful += u64::from(moved);
            if wanted() {
                return Turn::Interrupted;
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
                return Turn::Over(limit.flatten());
            }
        }
        Turn::Over(None)
    }

    fn serve_round(&mut self) -> bool {
        self.background.serves = true;
        let moved = self.progress_all();
        self.background.serves = false;
        moved
    }

    /// Whether to look on after so many looks that found nothing.
    fn polls_on(&self, polls: u32, since_ns: &mut u64) -> bool {
        if self.job.header().awake.load(Ordering::Relaxed) >= self.wait.processors {
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

    /// Has peers call when they give room that is waited for, and adapter and network when something comes. `Some`
    /// where one more look is due after that; in it how long a sleep may last.
    fn prepare_rest(&mut self) -> Option<Option<Duration>> {
        let awaits_room = self.await_all_room();
        if !awaits_room && !self.interfaces.has_outside() {
            return None;
        }
        // ORDERING: as before every sleep for room: either peers see that it is awaited, or the look sees the room
        // (partner: the load in the transport's `publish_head`).
        let fenced = !awaits_room || wait::fence_others();
        let unfenced = (!fenced).then_some(UNFENCED_NAP);
        Some(unfenced.into_iter().chain(self.arm()).min())
    }
}
