//! Time-stamped points in a ring per thread: what a process did last, and when.
//!
//! The rings lie in memory that outlives the process (`fastpath_bootstrap::trace` gives it, and merges the ranks'
//! rings into one file), so that the trace of a killed rank is there up to its last point. While no ring is set
//! a point is one load and one comparison, and the immediate paths have none at all (`fastpath_mpi::objects::hot`).
#![allow(unsafe_code)]

mod area;
mod points;

pub use area::{
    AREA_BYTES, Area, EVENT_BYTES, HEADER_BYTES, MAX_EVENTS, MAX_NAMES, MAX_RINGS, NAME_BYTES,
    RING_HEADER_BYTES, TRACE_MAGIC, ring_bytes,
};
pub use points::{Phase, Point};

use crate::sync::{StaticBool, StaticOrdering as Ordering, StaticPtr};
use area::Ring;
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::OnceLock;

/// Where the only thread inside MPI records; null while nothing is recorded.
static RING: StaticPtr<Ring> = StaticPtr::new(null_mut());
/// Whether each thread has a ring of its own, and `RING` only says that points are recorded.
static THREADS: StaticBool = StaticBool::new(false);

/// Who is told of every point that is recorded, in the thread that passes it.
static OBSERVER: OnceLock<Observer> = OnceLock::new();

/// Point, peer, tag and bytes.
pub type Observer = fn(Point, u32, i32, u64);

/// From now on `observer` is told of every point that is recorded, for the life of the process; a second one is
/// ignored.
pub fn set_observer(observer: Observer) {
    _ = OBSERVER.set(observer);
}

fn tell_observer(event: Event) {
    if let Some(observer) = OBSERVER.get()
        && let Some(point) = Point::from_number(event.head as u8)
    {
        observer(point, (event.head >> 32) as u32, event.tag as i32, event.bytes);
    }
}

thread_local! {
    static OWN_RING: Cell<*mut Ring> = const { Cell::new(null_mut()) };
    /// There was no room for it.
    static LOST: Cell<bool> = const { Cell::new(false) };
}

/// What a point says beside its time, as it lies in the ring: point (8 bits), what it belongs to (24 bits, [`Subject`])
/// and peer, tag, bytes. By value, so that it travels in registers.
#[derive(Debug, Clone, Copy)]
struct Event {
    head: u64,
    tag: u32,
    bytes: u64,
}

impl Event {
    #[inline]
    fn new(point: Point, peer: u32, tag: i32, bytes: u64) -> Event {
        Event { head: u64::from(peer) << 32 | point as u64, tag: tag as u32, bytes }
    }

    /// Of something that has a name.
    fn of(self, subject: Subject) -> Event {
        Event { head: self.head | u64::from(subject.0) << 8, ..self }
    }

    /// Of a point that has no fields.
    #[inline]
    fn bare(point: Point) -> Event {
        Event::new(point, 0, 0, 0)
    }
}

/// The name of what points belong to, as they say it: of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subject(u32);

impl Subject {
    /// Of no name.
    pub const NONE: Subject = Subject(0);
}

/// Gives a name to points that follow; none where nothing is recorded, or where there is no room for another.
#[cold]
pub fn name_subject(name: &str) -> Subject {
    match is_on() {
        // SAFETY: points are recorded, so there is an area.
        true => unsafe { (*area::current()).name_subject(name) },
        false => Subject::NONE,
    }
}

/// Records a point of something that has a name, if points are recorded.
#[cold]
pub fn record_of(subject: Subject, point: Point, peer: u32, tag: i32, bytes: u64) {
    let ring = RING.load(Ordering::Relaxed);
    if !ring.is_null() {
        // SAFETY: as in `record`.
        unsafe { record_now(ring, Event::new(point, peer, tag, bytes).of(subject)) };
    }
}

/// Whether points are recorded.
#[inline]
pub fn is_on() -> bool {
    !RING.load(Ordering::Relaxed).is_null()
}

/// Records a point, if points are recorded. What a field means depends on the point; 0 where it means nothing: `peer`
/// is the world rank of the other side, `bytes` those of the message, or a number.
#[inline]
pub fn record(point: Point, peer: u32, tag: i32, bytes: u64) {
    let ring = RING.load(Ordering::Relaxed);
    if !ring.is_null() {
        // SAFETY: `start` has set a ring that is never taken away.
        unsafe { record_now(ring, Event::new(point, peer, tag, bytes)) };
    }
}

/// Records a point and an end that follows with nothing between them, if points are recorded: both have one time, and
/// the clock, which takes most of a point, is read once.
#[inline]
pub fn record_last(point: Point, peer: u32, tag: i32, bytes: u64, end: Point) {
    let ring = RING.load(Ordering::Relaxed);
    if !ring.is_null() {
        // SAFETY: as in `record`.
        unsafe { record_two(ring, Event::new(point, peer, tag, bytes), end) };
    }
}

/// Lets the next point of this thread have the time of its last one, if that is `last` and points are recorded: for
/// where what lies between them takes less than reading the clock.
#[inline]
pub fn share_time_of(last: Point) {
    let ring = RING.load(Ordering::Relaxed);
    if !ring.is_null() {
        // SAFETY: as in `record`.
        unsafe { share_now(ring, last) };
    }
}

/// Records the entry into a call, if points are recorded.
#[inline]
pub fn enter(name: &'static str) {
    if is_on() {
        enter_at(name, read_ticks());
    }
}

/// Records the return of the innermost call that was entered, if points are recorded.
#[inline]
pub fn leave() {
    record(Point::Return, 0, 0, 0);
}

/// Records that a call was entered when the clock stood at `ticks`.
#[cold]
pub fn enter_at(name: &'static str, ticks: u64) {
    let ring = RING.load(Ordering::Relaxed);
    if ring.is_null() {
        return;
    }
    // SAFETY: set by `start`, for the life of the process.
    unsafe {
        let name = (*area::current()).intern(name);
        let event = Event::new(Point::Call, 0, 0, name as u64);
        if let Some(ring) = choose_ring(ring) {
            (*area::current()).push(ring, ticks, event);
        }
    }
    tell_observer(event_of_call());
}

/// The entry into a call, as observers see it: they have no use for the number of its name.
fn event_of_call() -> Event {
    Event::bare(Point::Call)
}

/// Records a whole call that was entered when the clock stood at `begun`: its one point, and with nothing between them
/// the return, are now, and the clock is read once for both.
#[cold]
#[inline(never)]
pub fn record_call(name: &'static str, begun: u64, point: Point, peer: u32, tag: i32, bytes: u64) {
    let now = read_ticks();
    let ring = RING.load(Ordering::Relaxed);
    if ring.is_null() {
        return;
    }
    let Some(ring) = choose_ring(ring) else {
        return;
    };
    // SAFETY: as in `record_now`.
    unsafe {
        let area = &*area::current();
        let name = area.intern(name) as u64;
        area.push(ring, begun, Event::new(Point::Call, 0, 0, name));
        area.push(ring, now, Event::new(point, peer, tag, bytes));
        area.push(ring, now, Event::bare(Point::Return));
    }
    tell_observer(event_of_call());
    tell_observer(Event::new(point, peer, tag, bytes));
    tell_observer(Event::bare(Point::Return));
}

/// # Safety
/// `ring` is one that [`start`] has set.
#[cold]
#[inline(never)]
unsafe fn record_now(ring: *mut Ring, event: Event) {
    if let Some(ring) = choose_ring(ring) {
        // SAFETY: there is a ring, so there is an area; it is the ring of this thread, or of the only one inside MPI.
        unsafe {
            let area = &*area::current();
            let ticks = area.shared_time(ring).unwrap_or_else(read_ticks);
            area.push(ring, ticks, event);
        }
    }
    tell_observer(event);
}

/// # Safety
/// As [`record_now`].
#[cold]
#[inline(never)]
unsafe fn share_now(ring: *mut Ring, last: Point) {
    if let Some(ring) = choose_ring(ring) {
        // SAFETY: as in `record_now`.
        unsafe { (*area::current()).share_time_of(ring, last) };
    }
}

/// # Safety
/// As [`record_now`].
#[cold]
#[inline(never)]
unsafe fn record_two(ring: *mut Ring, event: Event, end: Point) {
    if let Some(ring) = choose_ring(ring) {
        let ticks = read_ticks();
        // SAFETY: as in `record_now`.
        unsafe {
            (*area::current()).push(ring, ticks, event);
            (*area::current()).push(ring, ticks, Event::bare(end));
        }
    }
    tell_observer(event);
    tell_observer(Event::bare(end));
}

/// The ring of the calling thread, where `ring` is the one that [`start`] has set.
#[inline]
fn choose_ring(ring: *mut Ring) -> Option<*mut Ring> {
    match THREADS.load(Ordering::Relaxed) {
        false => Some(ring),
        true => own_ring(),
    }
}

/// This thread's ring, made at its first point; `None` where there is no room for another.
#[inline]
fn own_ring() -> Option<*mut Ring> {
    let ring = OWN_RING.get();
    match ring.is_null() {
        false => Some(ring),
        true => own_ring_slow(),
    }
}

#[cold]
#[inline(never)]
fn own_ring_slow() -> Option<*mut Ring> {
    if LOST.get() {
        return None;
    }
    // SAFETY: points are recorded, so there is an area.
    let ring = unsafe { (*area::current()).add_ring() };
    match ring {
        Some(ring) => OWN_RING.set(ring),
        None => LOST.set(true),
    }
    ring
}

/// Begins to record in `area`, for the life of the process. With `threads` each thread gets a ring of its own, else
/// there is one, for a process of which one thread at a time is inside MPI. False where the area has no memory for it.
pub fn start(area: Area, threads: bool) -> bool {
    let area: &'static Area = Box::leak(Box::new(area));
    let Some(ring) = area.add_ring() else {
        return false;
    };
    area::set_current(area);
    OWN_RING.set(ring);
    THREADS.store(threads, Ordering::Relaxed);
    // ORDERING: release, so that a thread that finds the ring finds the area set before it; partner: the
    // dependent loads of `record` and `area::current`.
    RING.store(ring, Ordering::Release);
    true
}

/// Records no more, or goes on, where [`start`] has begun: what points cost is measured by both. For the thread that
/// has begun it, while no other is inside.
pub fn set_recording(on: bool) {
    let ring = match on {
        true => OWN_RING.get(),
        false => null_mut(),
    };
    // SAFETY: not null: a ring that is never taken away.
    if let Some(ring) = unsafe { ring.as_ref() } {
        ring.share_no_time(); // that of a point long ago
    }
    // ORDERING: release; partner: as in `start`.
    RING.store(ring, Ordering::Release);
}

/// Points that this thread has recorded so far.
pub fn count_recorded() -> u64 {
    let ring = OWN_RING.get();
    // SAFETY: not null: a ring that is never taken away.
    unsafe { ring.as_ref() }.map_or(0, Ring::count)
}

/// The clock of points: the processor's time-stamp counter where there is one, else nanoseconds.
#[inline]
pub fn read_ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has the instruction.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    crate::clock::now_ns()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
