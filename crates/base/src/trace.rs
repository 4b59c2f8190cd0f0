//! Time-stamped points in a ring per thread: what a process did last, and when.
//!
//! The rings lie in memory that outlives the process (`fastpath_bootstrap::trace` gives it, and merges the ranks'
//! rings into one file), so that the trace of a killed rank is there up to its last point. While no ring is set
//! a point is one load and one comparison, and the immediate paths have none at all (`fastpath_mpi::hot`).
#![allow(unsafe_code)]

mod area;
mod points;

pub use area::{
    AREA_BYTES, Area, EVENT_BYTES, HEADER_BYTES, MAX_NAMES, MAX_RINGS, NAME_BYTES,
    RING_HEADER_BYTES, TRACE_MAGIC, ring_bytes,
};
pub use points::{Phase, Point};

use crate::sync::{StaticBool, StaticOrdering as Ordering, StaticPtr};
use area::Ring;
use std::cell::Cell;
use std::ptr::null_mut;

/// Where the only thread inside MPI records; null while nothing is recorded.
static RING: StaticPtr<Ring> = StaticPtr::new(null_mut());
/// Whether each thread has a ring of its own, and `RING` only says that points are recorded.
static THREADS: StaticBool = StaticBool::new(false);

thread_local! {
    static OWN_RING: Cell<*mut Ring> = const { Cell::new(null_mut()) };
}

/// What a point says beside its time. What a field means depends on the point; 0 where it means nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Event {
    /// The point.
    pub point: Point,
    /// World rank of the other side.
    pub peer: u32,
    /// Tag.
    pub tag: i32,
    /// Bytes of the message, or a number.
    pub bytes: u64,
}

/// Whether points are recorded.
#[inline]
pub fn is_on() -> bool {
    !RING.load(Ordering::Relaxed).is_null()
}

/// Records a point, if points are recorded.
#[inline]
pub fn record(point: Point, peer: u32, tag: i32, bytes: u64) {
    let ring = RING.load(Ordering::Relaxed);
    if !ring.is_null() {
        let event = Event {
            point,
            peer,
            tag,
            bytes,
        };
        // SAFETY: `start` has set a ring that is never taken away.
        unsafe { record_in(ring, 0, event) };
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
        let event = Event {
            point: Point::Call,
            bytes: name as u64,
            ..Event::default()
        };
        record_in(ring, ticks, event);
    }
}

/// # Safety
/// `ring` is one that [`start`] has set. With `ticks` 0 the clock is read.
#[cold]
#[inline(never)]
unsafe fn record_in(ring: *mut Ring, ticks: u64, event: Event) {
    let ring = match THREADS.load(Ordering::Relaxed) {
        false => ring,
        true => match own_ring() {
            Some(ring) => ring,
            None => return,
        },
    };
    let ticks = match ticks {
        0 => read_ticks(),
        ticks => ticks,
    };
    // SAFETY: there is a ring, so there is an area; it is the ring of this thread, or of the only one inside MPI.
    unsafe { (*area::current()).push(ring, ticks, &event) };
}

/// This thread's ring, made at its first point; `None` where there is no room for another.
fn own_ring() -> Option<*mut Ring> {
    let ring = OWN_RING.with(|own| {
        if own.get().is_null() {
            // SAFETY: points are recorded, so there is an area.
            own.set(unsafe { (*area::current()).add_ring() }.unwrap_or(null_mut()));
        }
        own.get()
    });
    (!ring.is_null()).then_some(ring)
}

/// Begins to record in `area`, for the life of the process. With `threads` each thread gets a ring of its own, else
/// there is one, for a process of which one thread at a time is inside MPI. False where the area has no memory for it.
pub fn start(area: Area, threads: bool) -> bool {
    let area: &'static Area = Box::leak(Box::new(area));
    let Some(ring) = area.add_ring() else {
        return false;
    };
    area::set_current(area);
    OWN_RING.with(|own| own.set(ring));
    THREADS.store(threads, Ordering::Relaxed);
    // ORDERING: release, so that a thread that finds the ring finds the area set before it; partner: the
    // dependent loads of `record` and `area::current`.
    RING.store(ring, Ordering::Release);
    true
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
