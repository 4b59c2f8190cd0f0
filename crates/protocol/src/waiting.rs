//! Waiting: spin, then yield, then sleep (see `fastpath_base::wait` for the handshake with senders).
#![allow(unsafe_code)]

use crate::matching::ANY_PEER;
use crate::worker::Worker;
use fastpath_base::config::{Config, Key, WaitMode};
use fastpath_base::sync::{Ordering, spin_loop};
use fastpath_base::trace::{self, Point};
use fastpath_base::wait::Wake;
use fastpath_base::{clock, topology, wait};
use fastpath_bootstrap::job::Job;
use fastpath_bootstrap::segment::{Awaited, STATE_AWAKE, STATE_SLEEPING};
use std::time::Duration;

mod crowd;
mod notes;
mod patience;
mod polling;
mod spread;
pub use crowd::Crowd;
pub use patience::Patience;

/// Looks at a directed peer up to a round over everything, that one included.
const DIRECTED_LOOKS: u32 = 64;
/// The same where a yield, which takes longer than such a round, lies between two looks.
const YIELDED_LOOKS: u32 = 2;
/// Looks at a named peer's ring before a receive becomes a request.
pub const SPIN_LOOKS: u32 = 4096;
/// Looks of those between two checks whether something else needs this process.
pub const LOOKS_PER_CHECK: u32 = 64;
/// Looks between two readings of the clock.
const LOOKS_PER_CLOCK: u32 = 256;
/// Nanoseconds of spinning before a rank that has a processor to itself sleeps, unless measured:
/// about what a wake-up costs.
const SPIN_NS: u64 = 50_000;
/// Nanoseconds after which a spinning rank yields now and then, unless the user says otherwise.
const ALONE_NS: u64 = 5_000;
/// How long a rank sleeps at a time where the kernel has no expedited membarrier.
const UNFENCED_NAP: Duration = Duration::from_millis(1);
/// How long a rank sleeps at a time while a connection is made through an adapter.
const CONNECTING_NAP: Duration = Duration::from_millis(5);
/// Nanoseconds between two moves to another processor.
const PARTING_NS: u64 = 1_000_000;
/// Nanoseconds of yielding before a rank on a crowded node sleeps. A yield lets every other ready
/// rank run once, so this must cover a round of many ranks.
const YIELD_NS: u64 = 200_000;
/// Nanoseconds of a yield that count for that, at most: in the others somebody else had something to do.
const YIELD_SHARE_NS: u64 = 5_000;
/// Nanoseconds without an arrival after which a rank that waits awake says on its status page what it waits for.
const NOTED_NS: u64 = 1_000_000_000;

/// What a waiting rank writes on its status page before it sleeps.
#[derive(Debug, Clone, Copy)]
pub struct Note {
    /// Name of the MPI call.
    pub call: &'static str,
    /// Rank waited for in the communicator, negative for any or none.
    pub peer: i32,
    /// Tag.
    pub tag: i32,
    /// What names the communicator in the layer above; see [`Worker::name_comm`]. 0 for none.
    pub comm: usize,
    /// Bytes of the message or buffer.
    pub bytes: u64,
    /// Who could end the wait, where [`Worker::wait_until`] is told no peer.
    pub awaited: Awaited,
}

/// Lets other threads of the process into MPI while the argument runs.
pub type Breathe = fn(&mut dyn FnMut());

/// How this process waits.
#[derive(Clone)]
pub struct WaitPolicy {
    /// What the user asked for.
    pub mode: WaitMode,
    /// Processors that the ranks of this node may use.
    pub processors: u32,
    /// Nanoseconds that a rank with a processor to itself spins before it yields, if the user says so.
    pub spin_ns: Option<u64>,
    /// Whether a receive that names its source looks at that source alone.
    pub directed: bool,
    /// Set where threads need a lock: at `MPI_THREAD_MULTIPLE`, and where there is a progress thread.
    pub breathe: Option<Breathe>,
    /// Whether other threads of the program may call MPI meanwhile: at `MPI_THREAD_MULTIPLE`.
    pub multiple: bool,
    /// Whether another thread tries to get into MPI.
    pub wanted: fn() -> bool,
    /// Threads of this process that sleep now.
    pub sleepers: u32,
    /// Number of sleeping threads with which arrivals may go the short way (`drain`): 0, or one that is never reached.
    pub drain_at: u32,
    /// Whether one of them sleeps on the state word, where peers wake it.
    pub led: bool,
    /// Threads of those that wake up by themselves.
    pub napping: u32,
    /// Places on the status page where threads say what they wait for: a bit for each that is taken.
    pub places: u32,
    /// Threads that wait and have no such place.
    pub unnoted: u32,
    /// Calls that have answered "not yet", modulo 256.
    pub misses: u8,
    /// When this process last moved to another processor.
    pub moved_ns: u64,
    /// When to look again where the other ranks are.
    pub spread_ns: u64,
    /// How a crowded node is waited on.
    pub crowd: Crowd,
    /// How long to look on where an adapter wakes.
    pub patience: Patience,
}

impl WaitPolicy {
    /// What a configuration asks for, where the ranks of this node may use so many processors.
    pub fn of(config: &Config, processors: u32, breathe: Option<Breathe>) -> Self {
        WaitPolicy {
            mode: config.wait_mode(),
            processors,
            spin_ns: config.number(Key::Spin),
            directed: !config.is_disabled("directed"),
            breathe,
            multiple: breathe.is_some(),
            wanted: || false,
            sleepers: 0,
            drain_at: match config.is_disabled("drain") {
                true => u32::MAX,
                false => 0,
            },
            led: false,
            napping: 0,
            places: 0,
            unnoted: 0,
            misses: 0,
            moved_ns: 0,
            spread_ns: 0,
            crowd: Crowd::of(!config.is_disabled("crowd")),
            patience: Patience::of(!config.is_disabled("patience")),
        }
    }

    /// Whether another thread tries to get into MPI.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.breathe.is_some() && (self.wanted)()
    }

    /// Threads that sleep until they are woken, where all that sleep do.
    fn asleep(&self) -> u32 {
        match self.napping {
            0 => self.sleepers,
            _ => 0,
        }
    }

    /// Wakes this process's own sleeping threads: one of their requests may be complete, or there is
    /// something that they can go on with. Called under the lock, as all that follows.
    #[cold]
    pub(crate) fn rouse_own(&self, job: &Job) {
        let word = &*job.own_page().state;
        word.store(STATE_AWAKE, Ordering::Relaxed);
        wait::futex_wake(word, u32::MAX);
        if self.sleepers > 1 {
            ring_bell(job);
        }
    }
}

/// Wakes the threads that sleep behind the one on the state word. What they have to see lies under the
/// lock; who has not slept yet finds the number changed.
fn ring_bell(job: &Job) {
    let bell = &job.own_page().bell;
    bell.fetch_add(1, Ordering::Relaxed);
    wait::futex_wake(bell, u32::MAX);
}

/// One wait from its first look to its end.
#[derive(Default)]
struct Wait {
    looks: u32,
    /// When the time was first taken in it; 0 before that. For whoever asks how long this rank has waited.
    since_ns: u64,
    /// The same since something has last happened.
    started_ns: u64,
    crowded: bool,
    focus: Option<u32>,
    /// Whether the next send to that peer can still be prepared.
    cold: bool,
    /// Whether a look has found nothing.
    begun: bool,
    /// Whether the processor was kept on a crowded node, so far.
    kept: bool,
    /// Nanoseconds up to the last look at the clock; on a crowded node alone.
    waited_ns: u64,
    /// Nanoseconds since `started_ns` in which others ran.
    given_ns: u64,
    /// Whether the status page says that this rank waits there.
    noted: bool,
    /// When it began, where it has written its note and nothing has come since; 0 otherwise.
    slept_ns: u64,
    /// Where its note is on the status page.
    place: Place,
}

/// Where on the status page a thread says what it waits for.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    /// Nowhere yet.
    #[default]
    Unasked,
    At(usize),
    /// Others have all of them.
    None,
}

impl Wait {
    fn begin(crowded: bool, focus: Option<u32>) -> Self {
        Wait {
            crowded,
            focus,
            ..Wait::default()
        }
    }

    /// What was waited for, or something else, has come after a sleep.
    #[cold]
    fn end_sleep(&mut self, worker: &mut Worker) {
        worker.take_back_note(self);
        let waited = clock::now_ns() - std::mem::take(&mut self.slept_ns);
        worker.wait.patience.note_slept(waited);
    }
}

impl Worker {
    /// Points are recorded from now on: arrivals go the long way, which has them.
    pub fn record_arrivals(&mut self) {
        self.wait.drain_at = u32::MAX;
    }

    /// Whether more ranks are awake on this node than it has processors.
    pub fn is_crowded(&self) -> bool {
        self.job.header().awake.load(Ordering::Relaxed) > self.wait.processors
    }

    /// Makes progress until `done` says so. `focus` is the one peer whose message is waited for, if
    /// there is one: it is looked at first and, while nothing else is under way, mostly alone.
    ///
    /// # Safety
    /// `worker` is valid, and no reference to it lives in the caller across this call.
    pub unsafe fn wait_until(
        worker: *mut Worker,
        focus: Option<u32>,
        note: &Note,
        mut done: impl FnMut(&mut Worker) -> bool,
    ) {
        // SAFETY: valid by the contract.
        let crowded = unsafe { (*worker).is_crowded() };
        let mut wait = Wait::begin(crowded, focus);
        if crowded {
            // SAFETY: as above.
            unsafe { (*worker).note_waiting(&mut wait) };
        }
        // SAFETY: as above.
        let attends = unsafe { (*worker).background.runs };
        if attends {
            // SAFETY: as above.
            unsafe { (*worker).attend() };
        }
        loop {
            // SAFETY: valid by the contract; the reference ends before other threads are let in.
            let this = unsafe { &mut *worker };
            wait.looks += 1;
            let mut moved = match focus {
                Some(peer)
                    if this.wait.directed
                        && !wait.looks.is_multiple_of(wait.round())
                        && this.is_idle() =>
                {
                    this.progress_peer(peer)
                }
                _ => this.progress(),
            };
            let over = done(this);
            if this.flood.held_back && !moved && !over {
                moved = this.take_held_back(focus);
            }
            if wait.slept_ns != 0 && (moved || over) {
                wait.end_sleep(this);
            }
            if over {
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
                wait.looks = 0;
                wait.started_ns = 0;
                continue;
            }
            if !wait.begun {
                wait.begun = true;
                trace::record(Point::Wait, focus.unwrap_or(ANY_PEER), note.tag, note.bytes);
            }
            if let Some(peer) = focus {
                let lane = &mut this.endpoint(peer).lane;
                match wait.looks {
                    1 => wait.cold = lane.begin_wait(),
                    _ if wait.cold => wait.cold = lane.warm(),
                    _ => {}
                }
            }
            // SAFETY: as above.
            unsafe { pause(worker, &mut wait, note, &mut done) };
        }
    }
}

/// What happens between two looks that found nothing.
#[inline]
unsafe fn pause(
    worker: *mut Worker,
    wait: &mut Wait,
    note: &Note,
    done: &mut impl FnMut(&mut Worker) -> bool,
) {
    // SAFETY: the caller's.
    let this = unsafe { &mut *worker };
    if !wait.looks.is_multiple_of(LOOKS_PER_CLOCK) && !wait.crowded && !this.wait.is_wanted() {
        if wait.looks > LOOKS_PER_CLOCK {
            spin_loop();
        }
        return;
    }
    // SAFETY: the caller's.
    unsafe { pause_slow(worker, wait, note, done) };
}

#[cold]
#[inline(never)]
unsafe fn pause_slow(
    worker: *mut Worker,
    wait: &mut Wait,
    note: &Note,
    done: &mut impl FnMut(&mut Worker) -> bool,
) {
    // SAFETY: the caller's.
    let this = unsafe { &mut *worker };
    let now = clock::now_ns();
    if wait.started_ns == 0 {
        (wait.started_ns, wait.given_ns) = (now, 0);
    }
    if wait.since_ns == 0 {
        wait.since_ns = now;
    }
    wait.crowded = this.is_crowded();
    let waited = now - wait.started_ns;
    if waited >= NOTED_NS && wait.place == Place::Unasked {
        this.write_note(wait, note);
    }
    let spin_ns = this.wait.spin_ns.unwrap_or(ALONE_NS);
    if waited > spin_ns && !wait.crowded {
        this.part_from(wait.focus, now);
    }
    let breathe = this.wait.breathe;
    if this.flood.held_back {
        // There is something to go on with: no sleep.
        if !this.relieve(wait.focus) {
            yield_timed(breathe);
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
        WaitMode::Auto if wait.crowded => (true, this.wait.crowd.yields_for(now)),
        // A rank that shares its processor after all (with a rank that the kernel has put there, with a thread of
        // its own program) lets the other one run, and sleeps soon where that one does not yield in its turn.
        WaitMode::Auto if this.wait.crowd.is_slow(now) => (waited > spin_ns, spin_ns),
        WaitMode::Auto => (waited > spin_ns, this.looks_on_for().max(spin_ns)),
    };
    if waited.saturating_sub(wait.given_ns) >= limit {
        // SAFETY: the caller's.
        let woken = unsafe { sleep(worker, wait, note, done) };
        // Where only the time was up there is nothing to wait for awake: one look, and on it sleeps.
        (wait.started_ns, wait.looks) = match woken {
            true => (0, 0),
            false => (1, LOOKS_PER_CLOCK - 1),
        };
        return;
    }
    match (breathe, yields) {
        (_, true) => {
            let (began, ended) = yield_timed(breathe);
            wait.given_ns += (ended - began).saturating_sub(YIELD_SHARE_NS);
            // SAFETY: the caller's; other threads may have used the worker meanwhile.
            unsafe { (*worker).note_yield(began, ended) };
        }
        (Some(breathe), false) if this.wait.is_wanted() => breathe(&mut wait::yield_now),
        _ => spin_loop(),
    }
}

/// Yields the processor, and the lock if there is one; when it began and ended, without the wait for the lock.
fn yield_timed(breathe: Option<Breathe>) -> (u64, u64) {
    let (mut began, mut ended) = (0, 0);
    let mut yields = || {
        began = clock::now_ns();
        wait::yield_now();
        ended = clock::now_ns();
    };
    match breathe {
        Some(breathe) => breathe(&mut yields),
        None => yields(),
    }
    (began, ended)
}

/// Announces the sleep, looks once more, and sleeps until a peer (or a thread of this process) wakes it; false where
/// only the time was up. Then the note on the status page stays: this rank is awake for a moment.
///
/// Of several threads one sleeps on the state word. It makes progress for all when a peer wakes it, and
/// then wakes the others, which sleep on the bell. Were they to announce their sleep in the state word as
/// well, that would hide a wake-up from a thread that was on its way to sleep there.
unsafe fn sleep(
    worker: *mut Worker,
    wait: &mut Wait,
    note: &Note,
    done: &mut impl FnMut(&mut Worker) -> bool,
) -> bool {
    // SAFETY: the caller's.
    let this = unsafe { &mut *worker };
    this.counters.sleeps += 1;
    this.return_all_credits();
    let job = this.job;
    let page = job.own_page();
    if wait.place == Place::Unasked {
        this.write_note(wait, note);
    }
    this.wait.sleepers += 1;
    if this.wait.sleepers == 1 {
        job.header().awake.fetch_sub(1, Ordering::Relaxed);
    }
    let leads = !this.wait.led;
    let (word, expected) = match leads {
        true => (&*page.state, STATE_SLEEPING),
        false => (&page.bell, page.bell.load(Ordering::Relaxed)),
    };
    if leads {
        this.wait.led = true;
        // ORDERING: after the note; partner is the acquire load in `RankPage::sleeps_alone`.
        word.store(STATE_SLEEPING, Ordering::Release);
    }
    let awaits_room = this.await_all_room();
    let (mut fenced, mut limit) = (true, None);
    if leads || awaits_room {
        // ORDERING: the fence that peers do not pay: either they see the state and that room is awaited, or the looks
        // below see their messages and their credits (partners: the loads in the transport's `publish` and
        // `publish_head`).
        fenced = wait::fence_others();
    }
    // Again: what could not be given back before may be free since, and its peer has woken nobody.
    this.return_all_credits();
    if leads {
        limit = this.interfaces.arm();
        if this.is_connecting() {
            // What is asked again must be asked by somebody awake.
            limit = limit.map(|limit| limit.min(CONNECTING_NAP));
        }
    }
    let moved = this.progress();
    let (mut woken, mut naps) = (true, false);
    if !moved && !this.flood.held_back && !done(this) {
        trace::record(Point::Sleep, 0, 0, 0);
        // Without the fence a wake-up can be missed: then it is looked for again and again.
        let limit = limit.into_iter().chain((!fenced).then_some(UNFENCED_NAP));
        let limit = limit.min();
        naps = limit.is_some();
        this.wait.napping += u32::from(naps);
        page.set_asleep(this.wait.asleep());
        let breathe = this.wait.breathe;
        let mut nap = || woken = wait::futex_wait(word, expected, limit) != Wake::TimedOut;
        match breathe {
            Some(breathe) => breathe(&mut nap),
            None => nap(),
        }
        trace::record(Point::Woken, 0, 0, 0);
    }
    // SAFETY: the caller's; other threads may have used the worker meanwhile.
    let this = unsafe { &mut *worker };
    this.wait.sleepers -= 1;
    this.wait.napping -= u32::from(naps);
    page.set_asleep(this.wait.asleep());
    if leads {
        page.state.store(STATE_AWAKE, Ordering::Relaxed);
        this.wait.led = false;
        if this.wait.sleepers != 0 {
            // Another one must take the place on the state word.
            ring_bell(job);
        }
    }
    if this.wait.sleepers == 0 {
        job.header().awake.fetch_add(1, Ordering::Relaxed);
    }
    if woken {
        this.take_back_note(wait);
    }
    woken
}

impl Worker {
    /// Nanoseconds of looking before a rank that has a processor to itself sleeps.
    fn looks_on_for(&self) -> u64 {
        match self.interfaces.has_adapter() {
            true => self.wait.patience.limit_ns(),
            false => SPIN_NS,
        }
    }

    /// Two ranks that wait for each other on one processor while they could run on two: the kernel finds out
    /// in milliseconds, this rank at once. It moves away.
    #[cold]
    fn part_from(&mut self, focus: Option<u32>, now: u64) {
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
        // One of the two moves, and not again at once: the kernel may know better.
        if together && self.wait.moved_ns + PARTING_NS < now && self.rank < focus.unwrap_or(0) {
            self.wait.moved_ns = now;
            topology::step_aside();
        }
    }

    /// Before a sleep: peers learn what was taken.
    fn return_all_credits(&mut self) {
        for index in 0..self.active.len() {
            self.endpoint(self.active[index]).lane.return_credits();
        }
    }

    /// Peers learn that this rank waits for room; says whether it does. Only when the sleep has been announced: one
    /// that gives room, but not enough, would take the wish back and wake nobody.
    pub(crate) fn await_all_room(&mut self) -> bool {
        if self.gated != 0 {
            for peer in 0..self.size() {
                if self.endpoint(peer).gate != 0 {
                    self.endpoint(peer).lane.await_room();
                }
            }
        }
        let waiting = self.rma.waiting_peers();
        for &peer in &waiting {
            self.endpoint(peer).lane.await_room();
        }
        for index in 0..self.pushing.len() {
            let peer = self.requests.get(self.pushing[index]).peer;
            self.endpoint(peer).lane.await_room();
        }
        self.gated != 0 || !waiting.is_empty() || !self.pushing.is_empty()
    }
}
