//! Time-stamped points in a ring per thread: the latest events of a process.
//!
//! The rings are in memory that outlives the process, so the trace of a killed rank ends at its last point.
//! `fastpath_job::trace` provides the memory and merges the ranks' rings into one file. Without a ring, a point costs
//! one load and one comparison. The immediate paths have no points (`fastpath_mpi::objects::hot`).
#![allow(unsafe_code)]

mod area;
mod points;

pub use area::{
    AREA_BYTES, Area, EVENT_BYTES, HEADER_BYTES, MAX_EVENTS, MAX_NAMES, MAX_RINGS, NAME_BYTES,
    RING_HEADER_BYTES, TRACE_MAGIC, ring_bytes,
};
pub use points::{Point, PointPhase};

use crate::sync::{StaticBool, StaticOrdering as Ordering, StaticPtr};
use area::TraceRing;
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::OnceLock;

/// Ring of a process in which one thread at a time is inside MPI; null while nothing is recorded.
static RING: StaticPtr<TraceRing> = StaticPtr::new(null_mut());
/// Whether each thread has its own ring. `RING` then only shows that points are recorded.
static THREADS: StaticBool = StaticBool::new(false);

/// Observer that is called at every recorded point, on the recording thread.
static OBSERVER: OnceLock<Observer> = OnceLock::new();

/// Arguments: point, peer, tag and bytes.
pub type Observer = fn(Point, u32, i32, u64);

/// Sets the observer of every recorded point, for the life of the process. A second call is ignored.
pub fn set_observer(observer: Observer) {
    _ = OBSERVER.set(observer);
}

fn tell_observer(event: TraceEvent) {
    if let Some(observer) = OBSERVER.get()
        && let Some(point) = Point::from_number(event.head as u8)
    {
        observer(point, (event.head >> 32) as u32, event.tag as i32, event.bytes);
    }
}

thread_local! {
    static OWN_RING: Cell<*mut TraceRing> = const { Cell::new(null_mut()) };
    /// Whether the area had no ring left for this thread.
    static LOST: Cell<bool> = const { Cell::new(false) };
}

/// An event without its time, as stored in the ring: point (8 bits), subject (24 bits, [`TraceSubject`]) and peer, tag,
/// bytes. Passed by value, so that it travels in registers.
#[derive(Debug, Clone, Copy)]
struct TraceEvent {
    head: u64,
    tag: u32,
    bytes: u64,
}

impl TraceEvent {
    #[inline]
    fn new(point: Point, peer: u32, tag: i32, bytes: u64) -> TraceEvent {
        TraceEvent { head: u64::from(peer) << 32 | point as u64, tag: tag as u32, bytes }
    }

    fn of(self, subject: TraceSubject) -> TraceEvent {
        TraceEvent { head: self.head | u64::from(subject.0) << 8, ..self }
    }

    #[inline]
    fn bare(point: Point) -> TraceEvent {
        TraceEvent::new(point, 0, 0, 0)
    }
}

/// Number of the name of a window, recorded in the points that belong to the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceSubject(u32);

impl TraceSubject {
    /// Subject of points without a name.
    pub const NONE: TraceSubject = TraceSubject(0);
}

/// Returns a number for a name; [`TraceSubject::NONE`] if nothing is recorded or no number is left.
#[cold]
pub fn name_subject(name: &str) -> TraceSubject {
    match is_on() {
        // SAFETY: points are recorded, so the area exists.
        true => unsafe { (*area::current()).name_subject(name) },
        false => TraceSubject::NONE,
    }
}

/// Records a point of a named subject, if points are recorded.
#[cold]
pub fn record_of(subject: TraceSubject, point: Point, peer: u32, tag: i32, bytes: u64) {
    let ring = RING.load(Ordering::Relaxed);
    if !ring.is_null() {
        // SAFETY: `start` has set a ring, which stays valid.
        unsafe { record_now(ring, TraceEvent::new(point, peer, tag, bytes).of(subject)) };
    }
}

/// Returns whether points are recorded.
#[inline]
pub fn is_on() -> bool {
    !RING.load(Ordering::Relaxed).is_null()
}

/// Records a point, if points are recorded. `peer` is the world rank of the other side; `bytes` is the message's size,
/// or a number that depends on the point. Fields that the point does not use are 0.
#[inline]
pub fn record(point: Point, peer: u32, tag: i32, bytes: u64) {
    let ring = RING.load(Ordering::Relaxed);
    if !ring.is_null() {
        // SAFETY: `start` has set a ring, which stays valid.
        unsafe { record_now(ring, TraceEvent::new(point, peer, tag, bytes)) };
    }
}

/// Records a point and the point `end` directly after it, if points are recorded. Both points get one time, because
/// reading the clock is most of a point's cost.
#[inline]
pub fn record_last(point: Point, peer: u32, tag: i32, bytes: u64, end: Point) {
    let ring = RING.load(Ordering::Relaxed);
    if !ring.is_null() {
        // SAFETY: `start` has set a ring, which stays valid.
        unsafe { record_two(ring, TraceEvent::new(point, peer, tag, bytes), end) };
    }
}

/// Gives this thread's next point the time of its last point, if the last point is `last` and points are recorded. Call
/// it for points closer to each other than a clock read takes.
#[inline]
pub fn share_time_of(last: Point) {
    let ring = RING.load(Ordering::Relaxed);
    if !ring.is_null() {
        // SAFETY: `start` has set a ring, which stays valid.
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

/// Records the return of the innermost call, if points are recorded.
#[inline]
pub fn leave() {
    record(Point::Return, 0, 0, 0);
}

/// Records the entry into a call at the time `ticks`.
#[cold]
pub fn enter_at(name: &'static str, ticks: u64) {
    let ring = RING.load(Ordering::Relaxed);
    if ring.is_null() {
        return;
    }
    // SAFETY: `start` has set the ring and the area, for the life of the process.
    unsafe {
        let name = (*area::current()).intern(name);
        let event = TraceEvent::new(Point::Call, 0, 0, name as u64);
        if let Some(ring) = choose_ring(ring) {
            (*area::current()).push(ring, ticks, event);
        }
    }
    tell_observer(event_of_call());
}

/// Event that observers get for the entry into a call. It lacks the number of the call's name.
fn event_of_call() -> TraceEvent {
    TraceEvent::bare(Point::Call)
}

/// Records a call entered at time `begun`. Its point and its return share one time, from one clock read.
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
    // SAFETY: there is a ring, so the area exists; it is the ring of this thread, or of the only thread inside MPI.
    unsafe {
        let area = &*area::current();
        let name = area.intern(name) as u64;
        area.push(ring, begun, TraceEvent::new(Point::Call, 0, 0, name));
        area.push(ring, now, TraceEvent::new(point, peer, tag, bytes));
        area.push(ring, now, TraceEvent::bare(Point::Return));
    }
    tell_observer(event_of_call());
    tell_observer(TraceEvent::new(point, peer, tag, bytes));
    tell_observer(TraceEvent::bare(Point::Return));
}

/// # Safety
/// `ring` was set by [`start`].
#[cold]
#[inline(never)]
unsafe fn record_now(ring: *mut TraceRing, event: TraceEvent) {
    if let Some(ring) = choose_ring(ring) {
        // SAFETY: there is a ring, so the area exists; it is the ring of this thread, or of the only thread inside MPI.
        unsafe {
            let area = &*area::current();
            let ticks = area.shared_time(ring).unwrap_or_else(read_ticks);
            area.push(ring, ticks, event);
        }
    }
    tell_observer(event);
}

/// # Safety
/// `ring` was set by [`start`].
#[cold]
#[inline(never)]
unsafe fn share_now(ring: *mut TraceRing, last: Point) {
    if let Some(ring) = choose_ring(ring) {
        // SAFETY: there is a ring, so the area exists; the ring is this thread's (see `record_now`).
        unsafe { (*area::current()).share_time_of(ring, last) };
    }
}

/// # Safety
/// `ring` was set by [`start`].
#[cold]
#[inline(never)]
unsafe fn record_two(ring: *mut TraceRing, event: TraceEvent, end: Point) {
    if let Some(ring) = choose_ring(ring) {
        let ticks = read_ticks();
        // SAFETY: there is a ring, so the area exists; the ring is this thread's (see `record_now`).
        unsafe {
            (*area::current()).push(ring, ticks, event);
            (*area::current()).push(ring, ticks, TraceEvent::bare(end));
        }
    }
    tell_observer(event);
    tell_observer(TraceEvent::bare(end));
}

/// Returns the ring of the calling thread; `ring` is the one that [`start`] has set.
#[inline]
fn choose_ring(ring: *mut TraceRing) -> Option<*mut TraceRing> {
    match THREADS.load(Ordering::Relaxed) {
        false => Some(ring),
        true => own_ring(),
    }
}

/// Returns this thread's ring, which its first point creates; `None` if the area has no ring left.
#[inline]
fn own_ring() -> Option<*mut TraceRing> {
    let ring = OWN_RING.get();
    match ring.is_null() {
        false => Some(ring),
        true => own_ring_slow(),
    }
}

#[cold]
#[inline(never)]
fn own_ring_slow() -> Option<*mut TraceRing> {
    if LOST.get() {
        return None;
    }
    // SAFETY: points are recorded, so the area exists.
    let ring = unsafe { (*area::current()).add_ring() };
    match ring {
        Some(ring) => OWN_RING.set(ring),
        None => LOST.set(true),
    }
    ring
}

/// Begins to record in `area`, for the life of the process. With `threads` each thread gets its own ring. Otherwise one
/// thread at a time is inside MPI, and there is one ring. Returns false if the area has no memory.
pub fn start(area: Area, threads: bool) -> bool {
    let area: &'static Area = Box::leak(Box::new(area));
    let Some(ring) = area.add_ring() else {
        return false;
    };
    area::set_current(area);
    OWN_RING.set(ring);
    THREADS.store(threads, Ordering::Relaxed);
    // ORDERING: release, so that a thread that finds the ring finds the area. Partners are the dependent loads of
    // `record` and `area::current`.
    RING.store(ring, Ordering::Release);
    true
}

/// Stops or resumes recording after [`start`], to measure the cost of points. Call it on the thread that called
/// [`start`], while no other thread is inside MPI.
pub fn set_recording(on: bool) {
    let ring = match on {
        true => OWN_RING.get(),
        false => null_mut(),
    };
    // SAFETY: a ring that is not null stays valid.
    if let Some(ring) = unsafe { ring.as_ref() } {
        ring.share_no_time(); // the time is that of an old point
    }
    // ORDERING: release; partners are the dependent loads named in `start`.
    RING.store(ring, Ordering::Release);
}

/// Number of points that this thread has recorded.
pub fn count_recorded() -> u64 {
    let ring = OWN_RING.get();
    // SAFETY: a ring that is not null stays valid.
    unsafe { ring.as_ref() }.map_or(0, TraceRing::count)
}

/// Reads the clock of points: the time-stamp counter if there is one, otherwise nanoseconds.
#[inline]
pub fn read_ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has RDTSC.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    crate::clock::now_ns()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
