//! Waiting: spin, then yield, then sleep (see `fastpath_base::wait` for the handshake with senders).
//!
//! **NO REFERENCE.** `worker` is valid, and no reference to it lives in a caller across a call that waits: meanwhile
//! `done` and other threads use the worker. So each function makes a reference for as long as it needs one, and holds
//! none when it gives the worker or its lock on.
#![allow(unsafe_code)]

use crate::matching::ANY_PEER;
use crate::request::RequestId;
use crate::worker::Worker;
use fastpath_base::config::{Config, Key, WaitMode};
use fastpath_base::sleepers::Sleepers;
use fastpath_base::sync::{Ordering, spin_loop};
use fastpath_base::trace::{self, Point};
use fastpath_base::{clock, topology, wait};
use fastpath_bootstrap::segment::{Awaited, STATE_AWAKE, STATE_COVERED};
use std::sync::{Arc, Mutex};
use std::time::Duration;

mod asleep;
mod notes;
mod oversubscription;
mod polling;
mod spin;
mod spin_budget;
mod spread;
pub use asleep::Census;
use asleep::{Awaits, lock, sleep};
pub use oversubscription::Oversubscription;
pub use polling::PollYields;
pub use spin::{spin, try_briefly};
pub use spin_budget::SpinBudget;
pub use spread::Seen;

/// Looks at a directed peer up to a round over everything, that one included.
const DIRECTED_POLLS: u32 = 64;
/// The same where a yield, which takes longer than such a round, lies between two looks.
const YIELDED_POLLS: u32 = 2;
/// Looks at a named peer's ring before a receive becomes a request; at other lanes, see [`Lane::polls`].
///
/// [`Lane::polls`]: fastpath_transport::Lane::polls
pub const SPIN_POLLS: u32 = 4096;
/// The same, so much fewer, where other threads of the process wait, which may need this processor.
const COMPANY_SHARE: u32 = 4;
/// Looks of a thread that waits before it lets others run that wait too, when something has come that is not what it
/// waits for. What it waits for may follow at once, and then threads that talk to each other go on at the same time.
const GIVING_POLLS: u32 = 64;
/// Looks between two readings of the clock, where they look at memory alone.
const POLLS_PER_CLOCK: u32 = 256;
/// Nanoseconds of spinning before a rank that has a processor to itself sleeps, unless measured:
/// about what a wake-up costs.
const SPIN_NS: u64 = 50_000;
/// Nanoseconds after which a spinning rank yields now and then, unless the user says otherwise.
const ALONE_NS: u64 = 5_000;
/// How long a rank sleeps at a time where the kernel has no expedited membarrier.
const UNFENCED_NAP: Duration = Duration::from_millis(1);
/// How long a rank sleeps at a time while a connection is made through an adapter.
const CONNECTING_NAP: Duration = Duration::from_millis(5);
/// Nanoseconds of waiting after which a rank asks whether those that it waits for are still there, where nothing would
/// tell.
const ASK_NS: u64 = 250_000_000;
/// How long a thread sleeps at a time that cannot be woken for all that it waits for.
const NAP: Duration = Duration::from_millis(1);
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
    /// What names the communicator, or the operation, in the layer above; see [`Worker::name_wait`]. 0 for none.
    pub comm: usize,
    /// Bytes of the message or buffer.
    pub bytes: u64,
    /// Who could end the wait, where [`Worker::wait_until`] is told no peer.
    pub awaited: Awaited,
    /// Whether it waits for something that may change without waking this rank, so that it must sleep in short naps.
    pub naps: bool,
}

/// What the layer above says of a wait.
#[derive(Debug, Default)]
pub struct Title {
    /// What a person calls the communicator; empty for none.
    pub comm: String,
    /// The call that began the operation which is waited for; empty where it is the waiting one.
    pub began: &'static str,
    /// The peer's rank in the communicator, where [`Note::peer`] does not say it.
    pub peer: Option<i32>,
    /// Bytes that each message of the program has beside its own.
    pub added: u64,
}

/// Lets other threads of the process into MPI while the argument runs; of the worker at that place.
pub type ReleaseLock = fn(u32, &mut dyn FnMut());

/// What a thread that waits for one worker does for the others, where there are any. It is inside none meanwhile.
#[derive(Clone, Copy)]
pub struct Others {
    /// Makes progress where nobody else is inside. The argument is the place of the thread's own worker.
    pub visit: fn(u32),
    /// The same before a sleep on that worker's state word, on which it will be woken for the others too; says how long
    /// it may sleep where it is not.
    pub cover: fn(u32) -> Option<Duration>,
}

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
    pub release_lock: Option<ReleaseLock>,
    /// Whether other threads of the program may call MPI meanwhile: at `MPI_THREAD_MULTIPLE`.
    pub multiple: bool,
    /// Whether another thread tries to get into MPI; of the worker at that place.
    pub wanted: fn(u32) -> bool,
    /// Which of the process's workers this is: 0, the first, or a further one.
    pub place: u32,
    /// The process's other workers; none while there is one.
    pub others: Option<Others>,
    /// The place, plus 1, of a worker on whose state word a thread sleeps that looks for this one too; 0 for none.
    pub covered_by: u32,
    /// What all workers of the process count together.
    pub census: Arc<Mutex<Census>>,
    /// Threads that wait in this worker.
    pub waiting: u32,
    /// Those of them that sleep, and that nobody of this process has woken.
    pub sleepers: Sleepers<Awaits>,
    /// Number of sleeping threads with which arrivals may go the short way (`drain`): 0, or one that is never reached.
    pub drain_at: u32,
    /// Calls that have answered "not yet", modulo 256.
    pub misses: u8,
    /// Which of them yield where ranks share processors.
    pub poll_yields: PollYields,
    /// When this process last moved to another processor.
    pub moved_ns: u64,
    /// When to look again where the other ranks are.
    pub spread_ns: u64,
    /// What such a look has seen; its memory is used again.
    pub seen: Seen,
    /// How a crowded node is waited on.
    pub oversubscription: Oversubscription,
    /// How long to look on where an adapter wakes.
    pub spin_budget: SpinBudget,
}

impl WaitPolicy {
    /// What a configuration asks for, where the ranks of this node may use so many processors.
    pub fn of(config: &Config, processors: u32, release_lock: Option<ReleaseLock>) -> Self {
        WaitPolicy {
            mode: config.wait_mode(),
            processors,
            spin_ns: config.number(Key::Spin),
            directed: !config.is_disabled("directed"),
            release_lock,
            multiple: release_lock.is_some(),
            wanted: |_| false,
            place: 0,
            others: None,
            covered_by: 0,
            census: Arc::default(),
            waiting: 0,
            sleepers: Sleepers::default(),
            drain_at: match config.is_disabled("drain") {
                true => u32::MAX,
                false => 0,
            },
            misses: 0,
            poll_yields: PollYields::default(),
            moved_ns: 0,
            spread_ns: 0,
            seen: Seen::default(),
            oversubscription: Oversubscription::of(!config.is_disabled("oversubscription")),
            spin_budget: SpinBudget::of(!config.is_disabled("spin-budget")),
        }
    }

    /// Whether another thread tries to get into MPI.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.release_lock.is_some() && (self.wanted)(self.place)
    }

    /// Whether another thread waits in this worker, awake; the calling one does.
    fn has_company(&self) -> bool {
        self.waiting - self.sleepers.count() > 1
    }

    /// The looks of `polls` that a thread makes before it waits.
    #[inline]
    pub fn spin_polls(&self, polls: u32) -> u32 {
        match self.waiting == self.sleepers.count() {
            true => polls,
            false => polls / COMPANY_SHARE,
        }
    }

    /// What the state word says while nobody sleeps on it.
    fn awake_state(&self) -> u32 {
        match self.covered_by {
            0 => STATE_AWAKE,
            place => STATE_COVERED + place - 1,
        }
    }

    /// The way out for a moment; a copy, since other threads use the worker meanwhile.
    fn door(&self) -> Door {
        Door(self.release_lock, self.place)
    }
}

/// The way out of a worker, if threads share it, and the worker's place.
#[derive(Clone, Copy)]
struct Door(Option<ReleaseLock>, u32);

impl Door {
    /// Runs `pause` while other threads may come in.
    fn outside(self, pause: &mut dyn FnMut()) {
        match self.0 {
            Some(release_lock) => release_lock(self.1, pause),
            None => pause(),
        }
    }

    /// Yields the processor, and the lock if there is one; when it began and ended, without the wait for the lock.
    fn yield_timed(self) -> (u64, u64) {
        let (mut began, mut ended) = (0, 0);
        self.outside(&mut || {
            began = clock::now_ns();
            wait::yield_now();
            ended = clock::now_ns();
        });
        (began, ended)
    }
}

/// One wait from its first look to its end.
#[derive(Default)]
struct Wait {
    polls: u32,
    /// Looks between two readings of the clock, less one: a power of two less one.
    clock_mask: u32,
    /// When the time was first taken in it; 0 before that. For whoever asks how long this rank has waited.
    since_ns: u64,
    /// The same since something has last happened.
    started_ns: u64,
    crowded: bool,
    focus: Option<u32>,
    /// Whether the next send to that peer can still be prepared.
    cold: bool,
    /// The request that ends it; 0 where anything may.
    request: RequestId,
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
    place: NotePlace,
    /// When to ask whether the peers are still there; 0 before that is known, `u64::MAX` where nothing is to be asked.
    ask_ns: u64,
    /// When it ends at the latest; 0 if no time is set.
    until_ns: u64,
    /// Whether the poll before a sleep has found the end of the wait, or its time has passed.
    is_over: bool,
}

/// Where on the status page a thread says what it waits for.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum NotePlace {
    /// Nowhere yet.
    #[default]
    Unset,
    At(usize),
    /// Others have all of them.
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

    /// What was waited for, or something else, has come after a sleep.
    #[cold]
    fn end_sleep(&mut self, worker: &mut Worker) {
        worker.take_back_note(self);
        let waited = clock::now_ns() - std::mem::take(&mut self.slept_ns);
        worker.wait.spin_budget.note_slept(waited);
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

    /// Makes progress until `done` returns true, which is its last call. `focus` is the one peer whose message is
    /// waited for, if there is one: it is looked at first and, while nothing else is under way, mostly alone.
    ///
    /// # Safety
    /// `worker` is valid, and no reference to it lives in the caller across this call.
    pub unsafe fn wait_until(
        worker: *mut Worker, focus: Option<u32>, note: &Note, done: impl FnMut(&mut Worker) -> bool,
    ) {
        // SAFETY: by this function's contract.
        unsafe { Worker::wait_for(worker, focus, note, 0, done) };
    }

    /// As [`Worker::wait_until`], where `done` says so once a request is complete or a peer of the note (`focus`, or
    /// those awaited) has left: other threads let this one sleep until then. 0: until anything has happened.
    ///
    /// # Safety
    /// As [`Worker::wait_until`].
    pub unsafe fn wait_for(
        worker: *mut Worker, focus: Option<u32>, note: &Note, request: RequestId,
        done: impl FnMut(&mut Worker) -> bool,
    ) {
        // SAFETY: by this function's contract.
        unsafe { Worker::carry_out(worker, focus, note, (request, 0, 0), done) };
    }

    /// Makes progress until `done` returns true or `limit` has passed. The wait began at `since_ns`.
    ///
    /// # Safety
    /// `worker` is valid, and no reference to it lives in the caller across this call.
    pub unsafe fn wait_within(
        worker: *mut Worker, focus: Option<u32>, note: &Note, since_ns: u64, limit: Duration,
        done: impl FnMut(&mut Worker) -> bool,
    ) {
        let until_ns = clock::now_ns() + limit.as_nanos() as u64;
        // SAFETY: by this function's contract.
        unsafe { Worker::carry_out(worker, focus, note, (0, since_ns, until_ns), done) };
    }

    /// Carries out a wait with its request, its begin and its latest end, each 0 if there is none.
    #[inline]
    unsafe fn carry_out(
        worker: *mut Worker, focus: Option<u32>, note: &Note,
        (request, since_ns, until_ns): (RequestId, u64, u64),
        mut done: impl FnMut(&mut Worker) -> bool,
    ) {
        // SAFETY: valid by the contract.
        let (crowded, per_clock) = unsafe {
            let polls = (*worker).interfaces.polls(POLLS_PER_CLOCK);
            ((*worker).is_crowded(), polls)
        };
        let begun = Wait::begin(per_clock, crowded, focus);
        let mut wait = Wait { request, since_ns, until_ns, ..begun };
        if crowded {
            // SAFETY: NO REFERENCE: this one ends with the call.
            unsafe { (*worker).note_waiting(&mut wait) };
        }
        // SAFETY: NO REFERENCE: a word is copied.
        let attends = unsafe { (*worker).background.runs };
        // SAFETY: NO REFERENCE: this one ends with the statement.
        unsafe { (*worker).wait.waiting += 1 };
        if attends {
            // SAFETY: NO REFERENCE: this one ends with the call.
            unsafe { (*worker).attend() };
        }
        loop {
            // SAFETY: valid by the contract; the reference ends before other threads are let in.
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
                    // What has come may be another thread's, which may need this processor.
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
            // SAFETY: NO REFERENCE: none is held here.
            unsafe { pause(worker, &mut wait, note, &mut done) };
        }
    }
}

/// What happens between two looks that found nothing.
#[inline]
unsafe fn pause(
    worker: *mut Worker, wait: &mut Wait, note: &Note, done: &mut impl FnMut(&mut Worker) -> bool,
) {
    // SAFETY: NO REFERENCE: this one ends before the worker is given on.
    let this = unsafe { &mut *worker };
    if wait.polls & wait.clock_mask != 0 && !wait.crowded && !this.wait.is_wanted() {
        if wait.polls > wait.clock_mask {
            spin_loop();
        }
        return;
    }
    // SAFETY: NO REFERENCE: `this` is not used any more.
    unsafe { pause_slow(worker, wait, note, done) };
}

#[cold]
#[inline(never)]
unsafe fn pause_slow(
    worker: *mut Worker, wait: &mut Wait, note: &Note, done: &mut impl FnMut(&mut Worker) -> bool,
) {
    // SAFETY: NO REFERENCE: this one ends before the lock is given up.
    let this = unsafe { &mut *worker };
    let now = clock::now_ns();
    if wait.started_ns == 0 {
        (wait.started_ns, wait.given_ns) = (now, 0);
    }
    if wait.since_ns == 0 {
        wait.since_ns = now;
        this.matcher.count_posted();
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
        // There is something to go on with: no sleep.
        if !this.relieve(wait.focus) {
            this.wait.door().yield_timed();
        }
        return;
    }
    if let Some(others) = this.wait.others {
        let place = this.wait.place;
        this.wait.door().outside(&mut || (others.visit)(place));
    }
    // SAFETY: NO REFERENCE: a new one, since other threads may have used the worker meanwhile.
    let this = unsafe { &mut *worker };
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
        // A rank that shares its processor after all (with a rank that the kernel has put there, with a thread of
        // its own program) lets the other one run, and sleeps soon where that one does not yield in its turn.
        WaitMode::Auto if this.wait.oversubscription.is_slow(now) => (waited > spin_ns, spin_ns),
        WaitMode::Auto => (waited > spin_ns, this.polls_on_for().max(spin_ns)),
    };
    if waited.saturating_sub(wait.given_ns) >= limit {
        // SAFETY: NO REFERENCE: `this` is not used any more.
        let woken = unsafe { sleep(worker, wait, note, done) };
        // Timed out only: poll once, then sleep again.
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
            // SAFETY: NO REFERENCE: a new one, since other threads may have used the worker meanwhile.
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
    /// Nanoseconds of looking before a rank that has a processor to itself sleeps.
    fn polls_on_for(&self) -> u64 {
        match self.interfaces.has_outside() {
            true => self.wait.spin_budget.limit_ns(),
            false => SPIN_NS,
        }
    }

    /// Two ranks that wait for each other on one processor while they could run on two: the kernel finds out
    /// in milliseconds, this rank at once. It moves away.
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
        // One of the two moves, and not again at once: the kernel may know better.
        if together && self.wait.moved_ns + PARTING_NS < now && self.rank < focus.unwrap_or(0) {
            self.wait.moved_ns = now;
            topology::step_aside();
        }
    }
}
