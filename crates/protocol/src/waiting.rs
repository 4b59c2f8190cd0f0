//! Waiting: spin, then yield, then sleep (see `fastpath_base::wait` for the handshake with senders).
//!
//! **NO REFERENCE.** `worker` is valid. No reference to it lives in a caller across a call that waits, because `done`
//! and other threads use the worker meanwhile. Each function therefore makes short-lived references, and holds no
//! reference when it passes on the worker or its lock.
#![allow(unsafe_code)]

pub use crate::endpoint::SPIN_POLLS;
use crate::matching::ANY_PEER;
use crate::request::RequestId;
use crate::wait_policy::SPIN_NS;
pub use crate::wait_policy::{ReleaseLock, Title, WaitPolicy};
use crate::worker::Worker;
use fastpath_base::config::WaitMode;
use fastpath_base::sync::{Ordering, spin_loop};
use fastpath_base::trace::{self, Point};
use fastpath_base::{clock, topology};
use fastpath_segment::{AwaitedRanks, STATE_AWAKE};
use std::time::Duration;

mod asleep;
mod notes;
mod oversubscription;
mod polling;
mod spin;
mod spread;
use asleep::sleep;
pub use spin::{spin, try_briefly};

/// Number of polls of the awaited peer for each round of progress over all peers.
const DIRECTED_POLLS: u32 = 64;
/// Number of polls of the awaited peer for each round, if a yield follows each poll. A yield takes longer than a poll.
const YIELDED_POLLS: u32 = 2;
/// After an arrival, a thread makes this many polls before it lets other waiting threads run. Its own message may
/// follow at once, and threads that exchange messages then run at the same time.
const GIVING_POLLS: u32 = 64;
const POLLS_PER_CLOCK: u32 = 256;
/// A rank that has spun for this many nanoseconds also yields at intervals, unless the user configures another time.
const ALONE_NS: u64 = 5_000;
const UNFENCED_NAP: Duration = Duration::from_millis(1);
/// Longest sleep while a connection is made through an adapter.
const CONNECTING_NAP: Duration = Duration::from_millis(5);
/// After this many nanoseconds, a waiting rank checks whether its peers are alive, if no event would report their end.
const ASK_NS: u64 = 250_000_000;
/// Longest sleep of a thread if an awaited event might not wake it.
const NAP: Duration = Duration::from_millis(1);
const PARTING_NS: u64 = 1_000_000;
/// Maximum time of one yield, in nanoseconds, that counts as waiting. During the rest, other processes worked.
const YIELD_SHARE_NS: u64 = 5_000;
/// A rank that waits awake writes its note to the status page after this many nanoseconds without an arrival.
const NOTED_NS: u64 = 1_000_000_000;

/// Note of a waiting rank on its status page.
#[derive(Debug, Clone, Copy)]
pub struct Note {
    /// Name of the MPI call.
    pub call: &'static str,
    /// Awaited rank in the communicator; negative for any or none.
    pub peer: i32,
    /// Tag.
    pub tag: i32,
    /// Communicator or operation, as a number for `Hooks::name_wait`; 0 for none.
    pub comm: usize,
    /// Bytes of the message or buffer.
    pub bytes: u64,
    /// Ranks that could end the wait, if [`Worker::wait_until`] gets no peer.
    pub awaited: AwaitedRanks,
    /// Whether the awaited state may change without waking this rank, so that it must sleep in short naps.
    pub naps: bool,
}

#[derive(Default)]
struct Wait {
    polls: u32,
    /// Number of polls between two readings of the clock, minus one. The number is a power of two.
    clock_mask: u32,
    /// Time of the first reading of the clock, from which reports compute the length of the wait; 0 before it.
    since_ns: u64,
    /// Time of the first reading of the clock after the last arrival.
    started_ns: u64,
    crowded: bool,
    focus: Option<u32>,
    /// Whether `Lane::warm` can still prepare the next send to `focus`.
    cold: bool,
    request: RequestId,
    begun: bool,
    /// Whether the rank has kept its processor so far. Used on an oversubscribed node.
    kept: bool,
    /// Length of the wait up to the last reading of the clock, in nanoseconds. Used on an oversubscribed node.
    waited_ns: u64,
    /// Nanoseconds since `started_ns` in which other processes ran.
    given_ns: u64,
    noted: bool,
    /// Time when the wait began, if its note is written and nothing has arrived since; otherwise 0.
    slept_ns: u64,
    place: NotePlace,
    /// Time of the next check whether the peers are alive; 0 before it is known, `u64::MAX` for no check.
    ask_ns: u64,
    until_ns: u64,
    /// Whether the wait ended in the poll before a sleep, or its time limit has passed.
    is_over: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum NotePlace {
    #[default]
    Unset,
    At(usize),
    None,
}

impl Wait {
    fn begin(polls_per_clock: u32, crowded: bool, focus: Option<u32>) -> Self {
        Wait {
            clock_mask: polls_per_clock.next_power_of_two() - 1,
            crowded,
            focus,
            ..Wait::default()
        }
    }

    #[cold]
    fn end_sleep(&mut self, worker: &mut Worker) {
        worker.take_back_note(self);
        let waited = clock::now_ns() - std::mem::take(&mut self.slept_ns);
        worker.wait.spin_budget.note_slept(waited);
    }
}

impl Worker {
    /// Starts the recording of arrivals. Arrivals then take the slow path, which records them.
    pub fn record_arrivals(&mut self) {
        self.wait.drain_at = u32::MAX;
    }

    /// Returns whether more ranks are awake on this node than it has processors.
    pub fn is_crowded(&self) -> bool {
        self.job.header().awake.load(Ordering::Relaxed) > self.wait.processors
    }

    /// Returns whether fewer ranks are awake on this node than it has processors.
    pub(crate) fn has_free_processor(&self) -> bool {
        self.job.header().awake.load(Ordering::Relaxed) < self.wait.processors
    }

    /// Makes progress until `done` returns true, and does not call `done` again. `focus` is the peer whose message is
    /// awaited, if there is exactly one. While no other operation is under way, most polls are of that peer alone.
    ///
    /// # Safety
    /// `worker` is valid, and no reference to it lives in the caller across this call.
    pub unsafe fn wait_until(
        worker: *mut Worker, focus: Option<u32>, note: &Note, done: impl FnMut(&mut Worker) -> bool,
    ) {
        // SAFETY: the contract of `wait_for` is this function's.
        unsafe { Worker::wait_for(worker, focus, note, 0, done) };
    }

    /// Waits until `done` returns true, like [`Worker::wait_until`]. `done` must return true once `request` is
    /// complete, or once a peer of the note (`focus`, or an awaited rank) has left. Other threads wake this thread only
    /// in these cases or, if `request` is 0, at any event.
    ///
    /// # Safety
    /// See [`Worker::wait_until`].
    pub unsafe fn wait_for(
        worker: *mut Worker, focus: Option<u32>, note: &Note, request: RequestId,
        done: impl FnMut(&mut Worker) -> bool,
    ) {
        // SAFETY: the contract of `carry_out` is this function's.
        unsafe { Worker::carry_out(worker, focus, note, (request, 0, 0), done) };
    }

    /// Makes progress until `done` returns true ([`Worker::wait_for`]) or `limit` has passed. `since_ns`: start of the
    /// wait.
    ///
    /// # Safety
    /// See [`Worker::wait_until`].
    pub unsafe fn wait_within(
        worker: *mut Worker, focus: Option<u32>, note: &Note,
        (request, since_ns, limit): (RequestId, u64, Duration),
        done: impl FnMut(&mut Worker) -> bool,
    ) {
        let until_ns = clock::now_ns() + limit.as_nanos() as u64;
        // SAFETY: the contract of `carry_out` is this function's.
        unsafe { Worker::carry_out(worker, focus, note, (request, since_ns, until_ns), done) };
    }

    #[inline]
    unsafe fn carry_out(
        worker: *mut Worker, focus: Option<u32>, note: &Note,
        (request, since_ns, until_ns): (RequestId, u64, u64),
        mut done: impl FnMut(&mut Worker) -> bool,
    ) {
        // SAFETY: NO REFERENCE: `worker` is valid. This copies words, and makes no reference.
        let (crowded, per_clock) = unsafe {
            let polls = (*worker).interfaces.polls(POLLS_PER_CLOCK);
            ((*worker).is_crowded(), polls)
        };
        let begun = Wait::begin(per_clock, crowded, focus);
        let mut wait = Wait { request, since_ns, until_ns, ..begun };
        if crowded {
            // SAFETY: NO REFERENCE: this reference ends with the call.
            unsafe { (*worker).note_waiting(&mut wait) };
        }
        // SAFETY: NO REFERENCE: this copies a word, and makes no reference.
        let attends = unsafe { (*worker).background.runs };
        // SAFETY: NO REFERENCE: this reference ends with the statement.
        unsafe { (*worker).wait.waiting += 1 };
        if attends {
            // SAFETY: NO REFERENCE: this reference ends with the call.
            unsafe { (*worker).attend() };
        }
        loop {
            // SAFETY: NO REFERENCE: this reference ends before other threads enter.
            let this = unsafe { &mut *worker };
            wait.polls += 1;
            let mut moved = match focus {
                Some(peer)
                    if this.wait.directed
                        && !wait.polls.is_multiple_of(wait.round())
                        && this.is_idle() =>
                {
                    this.progress_peer(peer)
                }
                _ => this.progress(),
            };
            moved |= this.advance_operations();
            let over = wait.is_over || done(this);
            if this.flood.held_back && !moved && !over {
                moved = this.take_held_back(focus);
            }
            if wait.slept_ns != 0 && (moved || over) {
                wait.end_sleep(this);
            }
            if over {
                this.wait.waiting -= 1;
                if this.wait.sleepers.count() != 0 {
                    this.hand_on();
                }
                this.flood.rest();
                if wait.begun {
                    trace::record(Point::Waited, 0, 0, 0);
                }
                wait.end_in_crowd(this);
                if attends {
                    this.resume();
                }
                return;
            }
            if moved {
                let others = this.wait.has_company();
                if others && wait.polls <= GIVING_POLLS {
                    continue;
                }
                wait.polls = 0;
                wait.started_ns = 0;
                if others {
                    // The arrival may be for another thread, which may need this processor.
                    this.wait.door().yield_timed();
                }
                continue;
            }
            if !wait.begun {
                wait.begun = true;
                this.counters.waits += 1;
                trace::record(Point::Wait, focus.unwrap_or(ANY_PEER), note.tag, note.bytes);
            }
            if let Some(peer) = focus {
                let lane = &mut this.endpoints[peer].lane;
                match wait.polls {
                    1 => wait.cold = lane.begin_wait(),
                    _ if wait.cold => wait.cold = lane.warm(),
                    _ => {}
                }
            }
            // SAFETY: NO REFERENCE: this function holds no reference at this point.
            unsafe { pause(worker, &mut wait, note, &mut done) };
        }
    }
}

#[inline]
unsafe fn pause(
    worker: *mut Worker, wait: &mut Wait, note: &Note, done: &mut impl FnMut(&mut Worker) -> bool,
) {
    // SAFETY: NO REFERENCE: this reference ends before the worker is passed on.
    let this = unsafe { &mut *worker };
    if wait.polls & wait.clock_mask != 0 && !wait.crowded && !this.wait.is_wanted() {
        if wait.polls > wait.clock_mask {
            spin_loop();
        }
        return;
    }
    // SAFETY: NO REFERENCE: `this` is not used afterwards.
    unsafe { pause_slow(worker, wait, note, done) };
}

#[cold]
#[inline(never)]
unsafe fn pause_slow(
    worker: *mut Worker, wait: &mut Wait, note: &Note, done: &mut impl FnMut(&mut Worker) -> bool,
) {
    // SAFETY: NO REFERENCE: this reference ends before the lock is released.
    let this = unsafe { &mut *worker };
    let now = clock::now_ns();
    if wait.started_ns == 0 {
        (wait.started_ns, wait.given_ns) = (now, 0);
    }
    if wait.since_ns == 0 {
        wait.since_ns = now;
        this.matcher.count_posted();
    }
    if let Some(call) = this.hooks.on_pause {
        call(this);
    }
    wait.crowded = this.is_crowded();
    let waited = now - wait.started_ns;
    if waited >= NOTED_NS && wait.place == NotePlace::Unset {
        this.write_note(wait, note);
    }
    if wait.until_ns != 0 && now >= wait.until_ns {
        wait.is_over = true;
        return;
    }
    if now >= wait.ask_ns {
        this.ask_after_peers(wait, note, now);
    }
    let spin_ns = this.wait.spin_ns.unwrap_or(ALONE_NS);
    if waited > spin_ns && !wait.crowded {
        this.migrate_away(wait.focus, now);
    }
    let release_lock = this.wait.release_lock;
    if this.flood.held_back {
        // Do not sleep while messages are held back. Take some of them, or let other ranks run.
        if !this.relieve(wait.focus) {
            this.wait.door().yield_timed();
        }
        return;
    }
    if wait.crowded && waited == 0 {
        this.note_processor(now);
    }
    let keeps = this.keeps_processor(wait, waited, now);
    let (yields, limit) = match this.wait.mode {
        _ if keeps => (false, u64::MAX),
        WaitMode::Spin => (false, u64::MAX),
        WaitMode::Yield => (true, u64::MAX),
        WaitMode::Sleep => (false, 0),
        WaitMode::Auto if wait.crowded => (true, this.wait.oversubscription.yields_for(now)),
        // A rank may share its processor although each rank could have one: the kernel has put another rank there, or
        // the program has a thread there. The rank yields, and sleeps soon if the other thread does not yield in turn.
        WaitMode::Auto if this.wait.oversubscription.is_slow(now) => (waited > spin_ns, spin_ns),
        WaitMode::Auto => (waited > spin_ns, this.polls_on_for().max(spin_ns)),
    };
    if waited.saturating_sub(wait.given_ns) >= limit {
        // SAFETY: NO REFERENCE: `this` is not used afterwards.
        let woken = unsafe { sleep(worker, wait, note, done) };
        (wait.started_ns, wait.polls) = match woken {
            true => (0, 0),
            false => (1, wait.clock_mask),
        };
        return;
    }
    match (release_lock, yields) {
        (_, true) => {
            let (began, ended) = this.wait.door().yield_timed();
            wait.given_ns += (ended - began).saturating_sub(YIELD_SHARE_NS);
            // SAFETY: NO REFERENCE: a new reference, because other threads may have used the worker meanwhile.
            unsafe {
                (*worker).counters.yields += 1;
                (*worker).note_yield(began, ended);
            }
        }
        (Some(_), false) if this.wait.is_wanted() => _ = this.wait.door().yield_timed(),
        _ => spin_loop(),
    }
}

impl Worker {
    /// Returns how many nanoseconds a rank with its own processor polls before it sleeps.
    fn polls_on_for(&self) -> u64 {
        match self.interfaces.has_outside() {
            true => self.wait.spin_budget.limit_ns(),
            false => SPIN_NS,
        }
    }

    /// Moves this rank off a processor that it shares with an awaited rank. The kernel would do so milliseconds later.
    #[cold]
    fn migrate_away(&mut self, focus: Option<u32>, now: u64) {
        let Some(here) = topology::current_processor() else {
            return;
        };
        let here = here as u32 + 1;
        self.job.own_page().processor.store(here, Ordering::Relaxed);
        let Some(page) = focus.and_then(|peer| self.job.rank_page(peer as usize)) else {
            return;
        };
        let together = page.processor.load(Ordering::Relaxed) == here
            && page.state.load(Ordering::Relaxed) == STATE_AWAKE
            && !self.job.is_bound();
        // Only one of the two ranks moves. It does not move again soon, because the kernel may have had a reason to
        // move it.
        if together && self.wait.moved_ns + PARTING_NS < now && self.rank < focus.unwrap_or(0) {
            self.wait.moved_ns = now;
            topology::step_aside();
        }
    }
}
