//! Sleep of a waiting thread, and the state that the threads of a process share for it.
#![allow(unsafe_code)]

use super::{CONNECTING_NAP, NAP, Note, NotePlace, UNFENCED_NAP, Wait};
use crate::request::RequestState;
use crate::wait_policy::WakeEvents;
use crate::worker::Worker;
use fastpath_base::clock;
use fastpath_base::sleepers::QUIET;
use fastpath_base::sync::Ordering;
use fastpath_base::trace::{self, Point};
use fastpath_base::wait::{self, Wake};
use fastpath_segment::{AwaitedRanks, STATE_AWAKE, STATE_SLEEPING};
use fastpath_transport::Connection;
use std::time::Duration;

/// Announces the sleep, polls once more, and sleeps until a peer or a thread of this process wakes it. Returns false
/// after a timeout. After a timeout the note stays on the status page, because this rank is awake only briefly.
///
/// If several threads sleep, one of them, the leader, sleeps on the state word (`fastpath_base::sleepers`). When a peer
/// wakes the leader, the leader makes progress for all threads, and wakes the threads whose wait may have ended.
pub(super) unsafe fn sleep(
    worker: *mut Worker, wait: &mut Wait, note: &Note, done: &mut impl FnMut(&mut Worker) -> bool,
) -> bool {
    // SAFETY: NO REFERENCE (`waiting`): this reference ends before the lock is released.
    let this = unsafe { &mut *worker };
    this.counters.sleeps += 1;
    this.return_all_credits();
    let job = this.job;
    let page = job.own_page();
    if this.hooks.on_progress.is_some() {
        // Take the note back: the ranks on which operations of the layer above depend may have changed.
        this.take_back_note(wait);
    }
    if wait.place == NotePlace::Unset {
        this.write_note(wait, note);
    }
    let slot = this.wait.sleepers.register(awaits_of(wait, note));
    let leads = slot.leads();
    this.wait.census.begin_sleep(job);
    let (word, expected) = match slot.bell() {
        Some(bell) => (bell, QUIET),
        None => (&*page.state, STATE_SLEEPING),
    };
    if leads {
        // ORDERING: release, after the note; partner is the acquire load in `RankPage::sleepers`.
        word.store(STATE_SLEEPING, Ordering::Release);
    }
    let awaits_room = this.await_all_room();
    let mut fenced = true;
    if leads || awaits_room {
        // ORDERING: this fence costs the peers nothing. Either peers see the state and that space is awaited, or the
        // polls below see the peers' messages and credits. Partners: the loads in the transport's `publish` and
        // `publish_head`.
        fenced = wait::fence_others();
    }
    // Return the credits that earlier calls could not return, because no event will wake this rank to return them.
    this.return_all_credits();
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
        // Without the fence a wake-up can be missed, so the sleep must be short.
        limit = limit.into_iter().chain((!fenced).then_some(UNFENCED_NAP)).min();
        naps = limit.is_some();
        this.wait.census.rest(job, naps);
        this.wait.door().outside(&mut || {
            woken = wait::futex_wait(word, expected, limit) != Wake::TimedOut;
        });
        trace::record(Point::Woken, 0, 0, 0);
    }
    // SAFETY: NO REFERENCE (`waiting`): a new reference, because other threads may have used the worker meanwhile.
    let this = unsafe { &mut *worker };
    this.wait.sleepers.unregister(&slot);
    if leads {
        page.state.store(STATE_AWAKE, Ordering::Relaxed);
        // Wake the other threads. Events that peers cause without a message wake only the leader.
        this.wake_sleepers();
    }
    this.wait.census.end_sleep(job, naps);
    if woken {
        this.take_back_note(wait);
    } else {
        page.naps.fetch_add(1, Ordering::Relaxed);
    }
    woken
}

fn awaits_of(wait: &Wait, note: &Note) -> WakeEvents {
    let peers = wait.focus.map_or(note.awaited, |peer| AwaitedRanks::of(&[peer]));
    // If the peers are not named, the wait must wake at any event, because no check could show whether they have left.
    let request = if peers.named().is_empty() { 0 } else { wait.request };
    WakeEvents { request, peers }
}

fn may_be_over(awaits: &WakeEvents, worker: &Worker) -> bool {
    awaits.request == 0
        || worker.requests.get(awaits.request).state == RequestState::Complete
        || awaits.peers.named().iter().any(|&peer| worker.peer_has_left(peer))
}

impl Worker {
    /// Wakes the sleeping threads of this process whose wait may be over. Call it after every event.
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
        sleepers.wake(|awaits| may_be_over(awaits, self), || self.wake_leader());
        self.wait.sleepers = sleepers;
        self.hand_on();
    }

    fn wake_followers(&mut self) {
        let mut sleepers = std::mem::take(&mut self.wait.sleepers);
        sleepers.wake_followers(|awaits| may_be_over(awaits, self));
        self.wait.sleepers = sleepers;
    }

    fn wake_leader(&self) {
        let word = &self.job.own_page().state;
        word.store(STATE_AWAKE, Ordering::Relaxed);
        wait::futex_wake(word, u32::MAX);
    }

    /// If all waiting threads sleep, makes one the leader. The leader polls for work that causes no wake-up.
    #[cold]
    #[inline(never)]
    pub(super) fn hand_on(&mut self) {
        if self.wait.waiting != self.wait.sleepers.count() {
            return;
        }
        let polls = self.flood.held_back || self.hooks.on_progress.is_some() || self.awaits_room();
        let mut sleepers = std::mem::take(&mut self.wait.sleepers);
        sleepers.hand_on(polls, || self.wake_leader());
        self.wait.sleepers = sleepers;
    }

    fn awaits_room(&self) -> bool {
        self.sends.blocked_peers != 0
            || !self.rma.waiting_peers().is_empty()
            || !self.sends.pushing.is_empty()
    }

    /// Prepares a sleep that external events will end. Returns its longest duration; `None` without a limit.
    pub(crate) fn arm(&mut self) -> Option<Duration> {
        let armed = self.interfaces.arm();
        match self.is_connecting() {
            // Sleep only briefly, because only an awake rank can send wire-up messages again.
            true => armed.map(|limit| limit.min(CONNECTING_NAP)),
            false => armed,
        }
    }

    fn return_all_credits(&mut self) {
        for index in 0..self.active.len() {
            self.endpoints[self.active[index]].lane.return_credits();
        }
    }

    /// Marks at the peers that this rank awaits space. Returns whether this rank awaits space. Call it after the sleep
    /// has been announced: otherwise a peer that makes too little space would clear the mark and wake no rank.
    pub(crate) fn await_all_room(&mut self) -> bool {
        for &peer in &self.sends.blocked {
            self.endpoints[peer].lane.await_room();
        }
        let waiting = self.rma.waiting_peers();
        for &peer in &waiting {
            self.endpoints[peer].lane.await_room();
        }
        for index in 0..self.sends.pushing.len() {
            let peer = self.requests.get(self.sends.pushing[index]).peer;
            self.endpoints[peer].lane.await_room();
        }
        self.awaits_room()
    }
}
