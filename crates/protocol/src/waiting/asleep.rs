//! The sleep of a thread that waits, and what all threads of a process count of theirs.
#![allow(unsafe_code)]

use super::{CONNECTING_NAP, NAP, Note, NotePlace, UNFENCED_NAP, Wait};
use crate::request::{RequestId, State};
use crate::worker::Worker;
use fastpath_base::clock;
use fastpath_base::sleepers::QUIET;
use fastpath_base::sync::Ordering;
use fastpath_base::trace::{self, Point};
use fastpath_base::wait::{self, Wake};
use fastpath_bootstrap::job::Job;
use fastpath_bootstrap::segment::{Awaited, STATE_AWAKE, STATE_COVERED, STATE_SLEEPING};
use fastpath_transport::Connection;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How many threads of a process sleep and wait, in whichever worker.
#[derive(Debug, Default)]
pub struct Census {
    /// Threads that sleep now.
    sleepers: u32,
    /// Threads of those that wake up by themselves.
    napping: u32,
    /// The workers on whose state words some of them sleep: a bit for each place.
    leaders: u32,
    /// Places on the status page where threads say what they wait for: a bit for each that is taken.
    pub(super) places: u32,
    /// Threads that wait and have no such place.
    pub(super) unnoted: u32,
}

impl Census {
    /// Threads that sleep until they are woken, where all that sleep do.
    fn asleep(&self) -> u32 {
        match self.napping {
            0 => self.sleepers,
            _ => 0,
        }
    }

    /// A thread goes to sleep.
    fn begin_sleep(&mut self, job: &Job, leads: Option<u32>) {
        self.sleepers += 1;
        if self.sleepers == 1 {
            job.segment().uncount_awake(job.own_page());
        }
        self.lead(job, leads, true);
    }

    /// It has woken up.
    fn end_sleep(&mut self, job: &Job, leads: Option<u32>, naps: bool) {
        self.sleepers -= 1;
        self.napping -= u32::from(naps);
        job.own_page().set_asleep(self.asleep());
        self.lead(job, leads, false);
        if self.sleepers == 0 {
            job.segment().count_awake(job.own_page());
        }
    }

    fn lead(&mut self, job: &Job, place: Option<u32>, begins: bool) {
        let Some(place) = place else { return };
        match begins {
            true => self.leaders |= 1 << place,
            false => self.leaders &= !(1 << place),
        }
        job.own_page().set_leaders(self.leaders);
    }
}

/// What several threads count, each in a moment in which nothing can fail.
pub(super) fn lock(census: &Mutex<Census>) -> MutexGuard<'_, Census> {
    census.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Announces the sleep, polls once more, and sleeps until a peer (or a thread of this process) wakes it; false where
/// only the time was up. Then the note on the status page stays: this rank is awake for a moment.
///
/// Of several threads one sleeps on the state word (`fastpath_base::sleepers`). It makes progress for all when a peer
/// wakes it, and wakes those whose wait that may have ended.
pub(super) unsafe fn sleep(
    worker: *mut Worker, wait: &mut Wait, note: &Note, done: &mut impl FnMut(&mut Worker) -> bool,
) -> bool {
    // SAFETY: NO REFERENCE (`waiting`): this one ends before the lock is given up.
    let this = unsafe { &mut *worker };
    this.counters.sleeps += 1;
    this.return_all_credits();
    let job = this.job;
    let page = job.own_page();
    if this.on_progress.is_some() {
        // What its operations wait for may have changed.
        this.take_back_note(wait);
    }
    if wait.place == NotePlace::Unset {
        this.write_note(wait, note);
    }
    let bed = this.wait.sleepers.lie_down(Awaits::of(wait, note));
    let (place, leads) = (this.wait.place, bed.leads());
    let census = this.wait.census.clone();
    let led = leads.then_some(place);
    lock(&census).begin_sleep(job, led);
    let (word, expected) = match bed.bell() {
        Some(bell) => (bell, QUIET),
        None => (page.state_of(place as usize), STATE_SLEEPING),
    };
    if leads {
        // ORDERING: after the note; partner is the acquire load in `RankPage::sleepers`.
        word.store(STATE_SLEEPING, Ordering::Release);
    }
    let awaits_room = this.await_all_room();
    let mut fenced = true;
    if leads || awaits_room {
        // ORDERING: the fence that peers do not pay: either they see the state and that room is awaited, or the polls
        // below see their messages and their credits (partners: the loads in the transport's `publish` and
        // `publish_head`).
        fenced = wait::fence_others();
    }
    // Again: what could not be given back before may be free since, and its peer has woken nobody.
    this.return_all_credits();
    // Where several workers are waited for at once, who works for another one does not know of this thread.
    let mut limit = note.naps.then_some(NAP);
    if leads {
        limit = limit.into_iter().chain(this.arm()).min();
    }
    if wait.ask_ns != u64::MAX {
        let nap = wait.ask_ns.saturating_sub(clock::now_ns());
        limit = limit.into_iter().chain([Duration::from_nanos(nap)]).min();
    }
    if wait.until_ns != 0 {
        let nap = wait.until_ns.saturating_sub(clock::now_ns());
        limit = limit.into_iter().chain([Duration::from_nanos(nap)]).min();
    }
    let moved = this.progress_all();
    if leads {
        this.wake_followers();
    }
    let (mut woken, mut naps) = (true, false);
    let is_quiet = !moved && !this.flood.held_back;
    wait.is_over = is_quiet && done(this);
    if is_quiet && !wait.is_over {
        trace::record(Point::Sleep, 0, 0, 0);
        // Without the fence a wake-up can be missed: then it is looked for again and again.
        limit = limit.into_iter().chain((!fenced).then_some(UNFENCED_NAP)).min();
        let others = this.wait.others.filter(|_| leads);
        this.wait.door().outside(&mut || {
            let covered = others.and_then(|others| (others.cover)(place));
            let limit = limit.into_iter().chain(covered).min();
            naps = limit.is_some();
            {
                let mut census = lock(&census);
                census.napping += u32::from(naps);
                page.set_asleep(census.asleep());
            }
            woken = wait::futex_wait(word, expected, limit) != Wake::TimedOut;
            if let Some(others) = others {
                (others.visit)(place);
            }
        });
        trace::record(Point::Woken, 0, 0, 0);
    }
    // SAFETY: NO REFERENCE (`waiting`): a new one, since other threads may have used the worker meanwhile.
    let this = unsafe { &mut *worker };
    this.wait.sleepers.get_up(&bed);
    if leads {
        let state = this.wait.awake_state();
        page.state_of(place as usize).store(state, Ordering::Relaxed);
        // What peers do without a message they must see for themselves.
        this.wake_sleepers();
        if state != STATE_AWAKE {
            // ORDERING: either peers see that another thread polls for this worker, or the looks that follow see their
            // messages (partner: the load in the transport's `publish`).
            wait::fence_others();
        }
    }
    lock(&census).end_sleep(job, led, naps);
    if woken {
        this.take_back_note(wait);
    } else if this.wait.others.is_none() {
        page.naps.fetch_add(1, Ordering::Relaxed);
    }
    woken
}

/// What ends the wait of a thread that sleeps.
#[derive(Debug, Clone)]
pub struct Awaits {
    /// The request; 0 where anything may.
    request: RequestId,
    /// Its peers, which may leave.
    peers: Awaited,
}

impl Awaits {
    fn of(wait: &Wait, note: &Note) -> Self {
        let peers = wait.focus.map_or(note.awaited, |peer| Awaited::of(&[peer]));
        // Of peers without names nobody can say whether they have left.
        let request = if peers.named().is_empty() { 0 } else { wait.request };
        Awaits { request, peers }
    }

    fn may_be_over(&self, worker: &Worker) -> bool {
        self.request == 0
            || worker.requests.get(self.request).state == State::Complete
            || self.peers.named().iter().any(|&peer| worker.peer_has_left(peer))
    }
}

impl Worker {
    /// Wakes the threads of this process that sleep and whose wait may be over. To be called wherever something has
    /// happened.
    #[inline]
    pub fn wake_sleepers(&mut self) {
        if self.wait.sleepers.count() != 0 {
            self.wake_sleepers_slow();
        }
    }

    #[cold]
    #[inline(never)]
    fn wake_sleepers_slow(&mut self) {
        let mut sleepers = std::mem::take(&mut self.wait.sleepers);
        sleepers.wake(|awaits| awaits.may_be_over(self), || self.wake_leader());
        self.wait.sleepers = sleepers;
        self.hand_on();
    }

    /// The calling thread, which leads, has announced its sleep.
    fn wake_followers(&mut self) {
        let mut sleepers = std::mem::take(&mut self.wait.sleepers);
        sleepers.wake_followers(|awaits| awaits.may_be_over(self));
        self.wait.sleepers = sleepers;
    }

    /// Wakes who sleeps on the state word.
    fn wake_leader(&self) {
        let word = self.job.own_page().state_of(self.wait.place as usize);
        word.store(self.wait.awake_state(), Ordering::Relaxed);
        wait::futex_wake(word, u32::MAX);
    }

    /// Threads sleep: where none waits awake, one must lead them, and look for what no peer wakes it for.
    #[cold]
    #[inline(never)]
    pub(super) fn hand_on(&mut self) {
        if self.wait.waiting != self.wait.sleepers.count() {
            return;
        }
        let polls = self.flood.held_back || self.on_progress.is_some() || self.awaits_room();
        let mut sleepers = std::mem::take(&mut self.wait.sleepers);
        sleepers.hand_on(polls, || self.wake_leader());
        self.wait.sleepers = sleepers;
    }

    /// Whether something is under way that goes on when a peer makes room.
    fn awaits_room(&self) -> bool {
        self.blocked_peers != 0 || !self.rma.waiting_peers().is_empty() || !self.pushing.is_empty()
    }

    /// Before a thread sleeps on the state word of the worker at `place`: has it woken there for this one too. Says
    /// whether it must look once more after a fence, since nobody sleeps on this one's own word.
    pub fn cover(&mut self, place: u32) -> bool {
        self.wait.covered_by = place + 1;
        if self.wait.sleepers.is_led() {
            return false;
        }
        self.return_all_credits();
        let word = self.job.own_page().state_of(self.wait.place as usize);
        word.store(STATE_COVERED + place, Ordering::Relaxed);
        self.await_all_room();
        true
    }

    /// Before a sleep, of the program or of its progress thread: what comes from outside ends it. Says how long it may
    /// last.
    pub(crate) fn arm(&mut self) -> Option<Duration> {
        let armed = self.interfaces.arm();
        match self.is_connecting() {
            // What is asked again must be asked by somebody awake.
            true => armed.map(|limit| limit.min(CONNECTING_NAP)),
            false => armed,
        }
    }

    /// Before a sleep: peers learn what was taken.
    fn return_all_credits(&mut self) {
        for index in 0..self.active.len() {
            self.endpoints[self.active[index]].lane.return_credits();
        }
    }

    /// Peers learn that this rank waits for room; says whether it does. Only when the sleep has been announced: one
    /// that gives room, but not enough, would take the wish back and wake nobody.
    pub(crate) fn await_all_room(&mut self) -> bool {
        for &peer in &self.blocked {
            self.endpoints[peer].lane.await_room();
        }
        let waiting = self.rma.waiting_peers();
        for &peer in &waiting {
            self.endpoints[peer].lane.await_room();
        }
        for index in 0..self.pushing.len() {
            let peer = self.requests.get(self.pushing[index]).peer;
            self.endpoints[peer].lane.await_room();
        }
        self.awaits_room()
    }
}
