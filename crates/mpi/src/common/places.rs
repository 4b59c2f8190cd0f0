//! Workers beside the first one, at `MPI_THREAD_MULTIPLE`: threads on different communicators do not share a lock.
//!
//! A rank offers up to [`FURTHER`] of them, if it can, on its page. A communicator made at run time has a place,
//! computed of its context and of what its members offer, so that all of them find the same: 0, the first worker, or
//! that of a further one, which is made when the first communicator comes to it. The messages between two ranks that
//! carry the communicator's context go by that worker's rings, and are matched by it; all else of the communicator,
//! collective calls too, is the first worker's.
//!
//! **Locks.** The first worker's lock is that of MPI ([`crate::common::lock`]): tables, communicators, requests of
//! this layer. Each further worker has one of its own.
//!
//! - The immediate path of a communicator takes only its worker's lock.
//! - Any other call takes the first lock, and inside it those of the workers that it touches.
//! - A wait for one message lets go of the first lock.
//!
//! A thread that holds the first lock may take any other. A thread without it holds one at most and waits for none. So
//! threads cannot wait in a circle.
//!
//! **Progress.** A waiting thread also polls other workers that no thread is inside ([`visit`]), and before it sleeps
//! it makes sure that it is woken for them too ([`cover`]).
#![allow(unsafe_code)]

use crate::common::consts::MPI_ERR_NO_MEM;
use crate::common::error::{Error, Result};
use crate::common::lock::{self, thread_token};
use fastpath_base::biased::Biased;
use fastpath_base::clock;
use fastpath_base::config::{Config, Key};
use fastpath_base::sync::{Ordering, StaticPtr, StaticU32, StaticU64};
use fastpath_base::{topology, wait};
use fastpath_bootstrap::job::Job;
use fastpath_bootstrap::segment::{Awaited, FURTHER};
use fastpath_protocol::Worker;
use fastpath_protocol::request::place_of;
use fastpath_protocol::waiting::{Note, Others, Title};
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How often a thread goes inside a worker that another one has the bias of, at most, in nanoseconds.
const VISIT_NS: u64 = 1_000_000;
/// How long a thread sleeps at a time while it cannot look at a worker.
const NAP: Duration = Duration::from_millis(1);

/// A place for a further worker.
struct WorkerPlace {
    lock: Biased,
    worker: StaticPtr<Worker>,
    /// When a thread last went inside to look.
    visited_ns: StaticU64,
    /// Whether that look has seen that the worker has peers.
    in_use: StaticU32,
}

/// The first worker, or null.
struct First(UnsafeCell<*mut Worker>);

// SAFETY: written at initialisation and finalisation alone.
unsafe impl Sync for First {}

static HIDDEN_WORKER: First = First(UnsafeCell::new(ptr::null_mut()));

// A power of two of them, so that an index is a mask; the first worker's is not used.
static PLACES: [WorkerPlace; FURTHER + 1] = [const {
    WorkerPlace {
        lock: Biased::new(may_bias),
        worker: StaticPtr::new(ptr::null_mut()),
        visited_ns: StaticU64::new(0),
        in_use: StaticU32::new(0),
    }
}; FURTHER + 1];
const _: () = assert!((FURTHER + 1).is_power_of_two());
/// The first worker's.
static FIRST_VISITED_NS: StaticU64 = StaticU64::new(0);
/// Places that have a worker: a bit for each; the first one's where there are others.
static MADE: StaticU32 = StaticU32::new(0);
/// Threads that wait for several workers at once.
static MIXED: StaticU32 = StaticU32::new(0);
/// Where the pair regions of further workers are mapped; null where this process offers none.
static AREA: StaticPtr<u8> = StaticPtr::new(ptr::null_mut());
/// What people call the communicators of further workers, for notes of their waits.
static TITLES: Mutex<Option<HashMap<usize, String>>> = Mutex::new(None);

/// Ends the bias of a thread that ends.
struct AtExit;

impl Drop for AtExit {
    fn drop(&mut self) {
        forget(thread_token());
    }
}

thread_local!(static AT_EXIT: AtExit = const { AtExit });

/// Whether a lock may be biased to the calling thread: its end will be noticed.
fn may_bias() -> bool {
    AT_EXIT.try_with(|_| ()).is_ok()
}

#[inline]
fn place_at(place: u32) -> Option<&'static WorkerPlace> {
    (place != 0).then(|| further(place))
}

/// Of a further worker.
#[inline]
fn further(place: u32) -> &'static WorkerPlace {
    &PLACES[place as usize & FURTHER]
}

fn lock_of(place: u32) -> &'static Biased {
    match place_at(place) {
        Some(further) => &further.lock,
        None => lock::first().biased(),
    }
}

/// The further worker at a place; null if it was not made.
#[inline]
pub fn further_worker(place: u32) -> *mut Worker {
    // Relaxed: who knows the place has been told of it since the worker was made.
    further(place).worker.load(Ordering::Relaxed)
}

/// The first worker where the immediate path goes inside a lock ([`crate::objects::hot::key`]); null elsewhere.
#[inline]
pub fn hidden_worker() -> *mut Worker {
    // SAFETY: written at initialisation and finalisation alone.
    unsafe { *HIDDEN_WORKER.0.get() }
}

/// Says which is the first worker where the immediate path goes inside a lock.
pub(crate) fn set_hidden_worker(worker: *mut Worker) {
    // SAFETY: under the lock or alone.
    unsafe { *HIDDEN_WORKER.0.get() = worker };
}

/// Forgets all workers, in a forked child.
pub(crate) fn abandon() {
    MADE.store(0, Ordering::Relaxed);
    for place in &PLACES {
        place.worker.store(ptr::null_mut(), Ordering::Relaxed);
    }
}

/// The worker at a place; null if it was not made.
#[inline]
pub fn worker(place: u32) -> *mut Worker {
    match place {
        0 => hidden_worker(),
        place => further_worker(place),
    }
}

/// The places of workers beside that one, itself left out.
fn others(own: u32) -> impl Iterator<Item = u32> {
    // ORDERING: acquire pairs with the release in `make`.
    let made = MADE.load(Ordering::Acquire) & !(1 << own);
    (0..=FURTHER as u32).filter(move |place| made & 1 << place != 0)
}

/// All places that have a worker, the first one's included; as a mask.
#[inline]
pub(crate) fn made() -> u32 {
    // ORDERING: acquire pairs with the release in `make`.
    MADE.load(Ordering::Acquire) | 1
}

/// The place of the worker whose request a handle names; 0 for what is no request.
#[inline]
pub fn of_request(handle: usize) -> u32 {
    let place = place_of(handle as u32);
    match place != 0 && made() & 1 << place == 0 {
        true => 0,
        false => place,
    }
}

/// Takes the bias of further workers from a thread that ends.
fn forget(me: usize) {
    for place in others(0) {
        lock_of(place).forget(me);
    }
}

/// How often biases were revoked, and how often a lock was found taken; of a further worker.
pub(crate) fn counts(place: u32) -> (u32, u32) {
    lock_of(place).counts()
}

/// Inside some workers, for a thread that is inside MPI; leaves them when dropped.
#[must_use]
pub(crate) struct Within(u32);

/// Goes inside the worker at a place. Of the first one the caller is inside already.
pub(crate) fn within(place: u32) -> Within {
    within_all(1 << place)
}

/// As [`within`], for a mask of places.
#[inline]
pub(crate) fn within_all(places: u32) -> Within {
    let places = places & !1;
    if places != 0 {
        enter_all(places);
    }
    Within(places)
}

#[cold]
fn enter_all(places: u32) {
    for place in each(places) {
        lock_of(place).acquire(thread_token());
    }
}

#[cold]
fn leave_all(places: u32) {
    for place in each(places) {
        lock_of(place).release(thread_token());
    }
}

impl Drop for Within {
    #[inline]
    fn drop(&mut self) {
        if self.0 != 0 {
            leave_all(self.0);
        }
    }
}

/// The places of a mask.
#[inline]
pub(crate) fn each(mut places: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let place = places.trailing_zeros();
        places &= places.wrapping_sub(1);
        (place < u32::BITS).then_some(place)
    })
}

/// Does `short` inside a further worker, and outside of all else.
#[inline]
pub fn with<R>(place: u32, short: impl FnOnce() -> R) -> R {
    let (lock, me) = (&further(place).lock, thread_token());
    lock.acquire(me);
    let result = short();
    lock.release(me);
    result
}

/// Lets other threads into MPI, into whichever worker, while `pause` runs. The first lock is left last and taken first.
pub(crate) fn release_lock(pause: &mut dyn FnMut()) {
    release_lock_from(FURTHER as u32, made(), thread_token(), pause);
}

fn release_lock_from(place: u32, made: u32, me: usize, pause: &mut dyn FnMut()) {
    match place {
        0 => lock::first().release_lock(pause),
        _ if made & 1 << place == 0 => release_lock_from(place - 1, made, me, pause),
        _ => lock_of(place).release_lock(me, || release_lock_from(place - 1, made, me, pause)),
    }
}

/// Whether another thread tries to get in where the calling one is that waits for the worker at a place.
#[inline]
pub fn is_wanted(place: u32) -> bool {
    if place != 0 {
        let first = lock::first();
        return lock_of(place).is_wanted()
            || (first.is_wanted() && first.biased().holds(thread_token()));
    }
    lock::first().is_wanted() || (MIXED.load(Ordering::Relaxed) != 0 && is_any_wanted())
}

#[cold]
fn is_any_wanted() -> bool {
    others(0).any(|place| lock_of(place).is_wanted())
}

/// Runs `wait`, which waits for one message, inside only a further worker; the calling thread is inside MPI.
pub(crate) fn outside(place: u32, wait: impl FnOnce()) {
    let mut wait = Some(wait);
    release_lock(&mut || {
        if let Some(wait) = wait.take() {
            with(place, wait);
        }
    });
}

/// A wait for several workers at once, which is counted while it lasts.
pub(crate) struct Mixed(bool);

impl Mixed {
    /// Of a mask of places.
    pub fn begin(places: u32) -> Self {
        let mixed = places & !1 != 0;
        MIXED.fetch_add(u32::from(mixed), Ordering::Relaxed);
        Mixed(mixed)
    }
}

impl Drop for Mixed {
    fn drop(&mut self) {
        MIXED.fetch_sub(u32::from(self.0), Ordering::Relaxed);
    }
}

/// Enters the worker at a place if no other thread is inside, and without a fence unless `may_fence`; returns whether
/// by its own bias.
fn try_enter(place: u32, me: usize, may_fence: bool) -> Option<bool> {
    let lock = lock_of(place);
    if lock.try_enter(me) {
        return Some(true);
    }
    lock.try_borrow(me, may_fence).then_some(false)
}

fn leave(place: u32, me: usize, by_bias: bool) {
    let lock = lock_of(place);
    match by_bias {
        true => lock.release(me),
        false => lock.give_back(),
    }
}

/// Whether a look at a worker is due that costs its thread a moment, at the time `now`.
fn is_due(place: u32, now: u64) -> bool {
    let visited = place_at(place).map_or(&FIRST_VISITED_NS, |further| &further.visited_ns);
    let due = now.saturating_sub(visited.load(Ordering::Relaxed)) >= VISIT_NS;
    if due {
        visited.store(now, Ordering::Relaxed);
    }
    due
}

/// Whether a worker has had a peer when it was last looked at.
fn is_in_use(place: u32) -> bool {
    place_at(place).is_none_or(|further| further.in_use.load(Ordering::Relaxed) != 0)
}

/// Runs `look` on the worker at a place; `None` if another thread is inside.
fn look_at<R>(place: u32, may_fence: bool, look: impl FnOnce(&mut Worker) -> R) -> Option<R> {
    let me = thread_token();
    let by_bias = try_enter(place, me, may_fence)?;
    // SAFETY: it lives while MPI runs, and the thread is alone inside; null at the end.
    let result = unsafe { worker(place).as_mut() }.map(|worker| {
        worker.progress_all();
        if let Some(further) = place_at(place) {
            let in_use = u32::from(worker.counters.connections != 0);
            further.in_use.store(in_use, Ordering::Relaxed);
        }
        look(worker)
    });
    leave(place, me, by_bias);
    result
}

/// Makes progress for the workers other than that at `own`, unless another thread is inside them. The calling thread
/// may be inside some, and has no reference to them. Unused ones are polled once in [`VISIT_NS`].
#[inline]
pub(crate) fn visit(own: u32) {
    if made() != 1 {
        visit_others(own);
    }
}

#[cold]
fn visit_others(own: u32) {
    let now = clock::now_ns();
    for place in others(own) {
        if lock_of(place).holds(thread_token()) {
            // SAFETY: the thread is inside, and the worker lives while MPI runs.
            unsafe { (*worker(place)).progress_all() };
        } else {
            let due = is_due(place, now);
            if due || is_in_use(place) {
                look_at(place, due, |_| ());
            }
        }
    }
}

/// Before a sleep on the state word of the worker at `own`: makes progress for the others and has the thread woken for
/// them too. Says how long it may sleep where it will not be.
pub(crate) fn cover(own: u32) -> Option<Duration> {
    let (mut covered, mut limit) = (0, None);
    let now = clock::now_ns();
    for place in others(own) {
        match look_at(place, is_due(place, now), |worker| worker.cover(own)) {
            Some(true) => covered |= 1 << place,
            Some(false) => {}
            None => limit = Some(NAP),
        }
    }
    // ORDERING: as before every sleep: either peers see whom to wake, or the looks that follow see their messages and
    // their credits (partners: the loads in the transport's `publish` and `publish_head`).
    if covered != 0 && !wait::fence_others() {
        limit = Some(NAP);
    }
    for place in each(covered) {
        if look_at(place, true, |_| ()).is_none() {
            limit = Some(NAP);
        }
    }
    limit
}

/// What a thread that waits does for other workers.
const OTHERS: Others = Others { visit, cover };

/// Whether the configuration asks for further workers. By itself it does where threads of a rank run at the same time:
/// where they take turns on one processor, a lock that they share makes fewer turns.
fn is_asked_for(job: &Job, config: &Config) -> bool {
    let enough = || match job.is_bound() {
        true => topology::affinity().len() >= 2,
        false => job.processors() >= 2 * job.node_place().0,
    };
    match config.choice(Key::Workers) {
        "one" => false,
        "several" => true,
        _ => enough(),
    }
}

/// Says on the page how many workers this process offers, if it may offer any. Called once, before other threads are in
/// MPI.
pub(crate) fn offer(job: &'static Job, first: &mut Worker, config: &Config, may: bool) {
    let page = job.own_page();
    let may = may && is_asked_for(job, config) && first.interfaces().is_within_host();
    let area = may.then(|| job.segment().map_further()).flatten();
    let offers = match area {
        Some(area) if first.requests.share() => {
            AREA.store(area.as_ptr(), Ordering::Relaxed);
            FURTHER as u32 + 1
        }
        _ => 1,
    };
    page.offers.store(offers, Ordering::Relaxed);
}

/// Whether this process offers further workers.
pub(crate) fn are_offered() -> bool {
    !AREA.load(Ordering::Relaxed).is_null()
}

/// How many further workers each of those ranks of the world has, the calling process among them. All of them find the
/// same. Waits until all of them have initialised MPI: they make the same call, of that name.
pub(crate) fn count_common(
    job: &Job, first: *mut Worker, call: &'static str, members: &[u32],
) -> u32 {
    if members.iter().any(|&rank| job.is_remote(rank as usize)) {
        return 0;
    }
    let offer = |worker: &Worker, rank: u32| {
        // Before its page is read: what it has said on it stays.
        let left = worker.peer_has_left(rank);
        let page = job.rank_page(rank as usize);
        match page.map_or(1, |page| page.offers.load(Ordering::Relaxed)) {
            0 if left => Some(1),
            0 => None,
            offers => Some(offers),
        }
    };
    let mut least = None;
    let mut look = |worker: &Worker| {
        let offers = members.iter().map(|&rank| offer(worker, rank));
        least = offers.collect::<Option<Vec<u32>>>().and_then(|all| all.into_iter().min());
        least.is_some()
    };
    // SAFETY: the worker lives while MPI runs; no reference to it is held across the wait.
    unsafe {
        if !look(&*first) {
            let note = Note {
                call,
                peer: -1,
                tag: -1,
                comm: 0,
                bytes: 0,
                awaited: Awaited::UNKNOWN,
                // Nobody wakes this one when it has initialised MPI.
                naps: true,
            };
            Worker::wait_until(first, None, &note, |worker| look(worker));
        }
    }
    least.unwrap_or(1).clamp(1, FURTHER as u32 + 1) - 1
}

/// Makes the worker at a place, if it does not exist, besides the first one; biased to the calling thread if `favour`.
/// That thread is inside MPI.
///
/// # Errors
/// There is no address space for it.
pub(crate) fn make(first: *mut Worker, place: u32, favour: bool) -> Result {
    let (Some(further), Some(area)) = (place_at(place), NonNull::new(AREA.load(Ordering::Relaxed)))
    else {
        return Ok(());
    };
    if !further.worker.load(Ordering::Relaxed).is_null() {
        return Ok(());
    }
    // SAFETY: the calling thread is inside; the worker lives while MPI runs.
    let first = unsafe { &mut *first };
    first.wait.others = Some(OTHERS);
    let mut made = Worker::further(first, place, area).map_err(|e| {
        let text = format!("no address space for another worker: {e}");
        Error::new(MPI_ERR_NO_MEM, text).with_advice(Some("FASTPATH_WORKERS=one does without"))
    })?;
    made.name_wait = title;
    let made = Box::leak(Box::new(made));
    made.show();
    further.worker.store(made, Ordering::Relaxed);
    if favour {
        further.lock.favour(thread_token());
    }
    // ORDERING: release pairs with the acquires of who looks at all workers: this one is made.
    MADE.fetch_or(1 | 1 << place, Ordering::Release);
    Ok(())
}

/// Keeps what people call a communicator of a further worker; `None` when it has been freed.
pub(crate) fn keep_title(handle: usize, title: Option<String>) {
    let mut titles = TITLES.lock().unwrap_or_else(PoisonError::into_inner);
    let titles = titles.get_or_insert_default();
    match title {
        Some(title) => _ = titles.insert(handle, title),
        None => _ = titles.remove(&handle),
    }
}

fn title(handle: usize, _: Option<u32>) -> Title {
    let titles = TITLES.lock().unwrap_or_else(PoisonError::into_inner);
    let found = titles.as_ref().and_then(|titles| titles.get(&handle));
    Title { comm: found.cloned().unwrap_or_default(), ..Title::default() }
}
