//! Events: the points that traces record, each one reported to the tools that have asked for it, in the call that
//! passes it.
//!
//! The immediate path has no points unless they are recorded from `MPI_Init` on. So a handle is made before that, or
//! where `FASTPATH_TRACE` is set. A callback runs inside an MPI call: it must be one registered for
//! `MPI_T_CB_REQUIRE_MPI_RESTRICTED` or a stricter level. An event that no such callback takes is counted as dropped.
#![allow(unsafe_code)]

use super::{FIRST_HANDLE, Slots, no_index, no_name};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::process::{self, Phase};
use fastpath_base::clock::now_ns;
use fastpath_base::trace::{self, Point};
use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Ticks of the only source in a second: nanoseconds of the monotonic clock.
pub const TICKS_PER_SECOND: i64 = 1_000_000_000;

/// The safety levels, from the least strict one on.
const LEVELS: [i32; 4] = [
    MPI_T_CB_REQUIRE_NONE,
    MPI_T_CB_REQUIRE_MPI_RESTRICTED,
    MPI_T_CB_REQUIRE_THREAD_SAFE,
    MPI_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE,
];

/// An element of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// World rank of the peer, `MPI_INT32_T`.
    Peer,
    /// The tag, or another number, `MPI_INT32_T`.
    Tag,
    /// Bytes, `MPI_UINT64_T`.
    Bytes,
}

impl Element {
    /// Handle of its datatype, and its bytes.
    pub fn datatype(self) -> (usize, usize) {
        match self {
            Element::Bytes => (MPI_UINT64_T, 8),
            _ => (MPI_INT32_T, 4),
        }
    }
}

/// One event, for the length of its callback.
#[derive(Debug)]
pub struct Instance {
    point: Point,
    peer: u32,
    tag: i32,
    bytes: u64,
    /// When, in ticks of the source.
    pub ns: u64,
}

impl Instance {
    /// Its elements.
    pub fn elements(&self) -> Vec<Element> {
        elements(self.point)
    }

    /// The bytes of an element; None beyond the last.
    pub fn element(&self, index: usize) -> Option<([u8; 8], usize)> {
        let element = *elements(self.point).get(index)?;
        let value = match element {
            Element::Peer => u64::from(self.peer),
            Element::Tag => u64::from(self.tag as u32),
            Element::Bytes => self.bytes,
        };
        Some((value.to_ne_bytes(), element.datatype().1))
    }
}

/// The function that a tool registers for an event.
pub type Callback = unsafe extern "C" fn(usize, usize, i32, *mut core::ffi::c_void);
/// The function that is called when a handle is freed.
pub type FreeCallback = unsafe extern "C" fn(usize, i32, *mut core::ffi::c_void);
/// The function that is called for events that no callback took.
pub type DroppedCallback = unsafe extern "C" fn(i64, usize, i32, i32, *mut core::ffi::c_void);

/// A callback and what it is given.
#[derive(Debug, Clone, Copy)]
struct Target {
    function: Callback,
    data: usize,
}

/// A registration handle.
#[derive(Debug, Clone, Copy)]
struct Registration {
    index: usize,
    targets: [Option<Target>; LEVELS.len()],
    dropped_handler: Option<DroppedCallback>,
    dropped: i64,
}

static REGISTERED: Mutex<Slots<Registration>> = Mutex::new(Slots::new());

thread_local! {
    /// A callback runs in this thread: what it does is no event.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

fn lock() -> MutexGuard<'static, Slots<Registration>> {
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many events there are.
pub fn count() -> usize {
    Point::ALL.len()
}

/// An event by its number.
///
/// # Errors
/// It does not exist.
pub fn find(index: i32) -> Result<Point> {
    super::check()?;
    let found = usize::try_from(index).ok();
    let found = found.and_then(|index| Point::ALL.get(index));
    found.copied().ok_or_else(|| no_index("event", index))
}

/// The number of an event by its name.
///
/// # Errors
/// It does not exist.
pub fn index_of(name: &str) -> Result<usize> {
    super::check()?;
    let found = Point::ALL.iter().position(|&point| name_of(point) == name);
    found.ok_or_else(|| no_name("event", name))
}

/// An event's name: that of the point in traces, without blanks and signs.
pub fn name_of(point: Point) -> String {
    let mut name = String::new();
    for c in point.name().chars() {
        match c.is_ascii_alphanumeric() {
            true => name.push(c.to_ascii_lowercase()),
            false if name.ends_with('_') => {}
            false => name.push('_'),
        }
    }
    name
}

/// The elements of an event, in their order.
pub fn elements(point: Point) -> Vec<Element> {
    let fields = point.fields();
    [Element::Peer, Element::Tag, Element::Bytes]
        .into_iter()
        .zip(fields)
        .filter_map(|(element, name)| (!name.is_empty()).then_some(element))
        .collect()
}

/// The description of an event.
pub fn describe(point: Point) -> String {
    let fields: Vec<&str> = point.fields().into_iter().filter(|f| !f.is_empty()).collect();
    match fields.is_empty() {
        true => format!("the point \"{}\" of a trace", point.name()),
        false => format!("the point \"{}\" of a trace: {}", point.name(), fields.join(", ")),
    }
}

/// `MPI_T_event_handle_alloc`.
///
/// # Errors
/// There is no such event; or points are not recorded in this process, and cannot be any more.
pub fn open(index: i32) -> Result<usize> {
    find(index)?;
    if process::phase() != Phase::Uninitialized && !trace::is_on() {
        return Err(Error::new(
            MPI_T_ERR_NOT_ACCESSIBLE,
            "make handles of events before MPI_Init, or set FASTPATH_TRACE",
        ));
    }
    trace::set_observer(observe);
    Ok(lock().insert(Registration {
        index: index as usize,
        targets: [None; LEVELS.len()],
        dropped_handler: None,
        dropped: 0,
    }))
}

/// Whether points have to be recorded since a tool waits for them.
pub(crate) fn is_wanted() -> bool {
    lock().0.iter().any(Option::is_some)
}

/// Does something with the registration behind a handle.
fn with<T>(handle: usize, act: impl FnOnce(&mut Registration) -> Result<T>) -> Result<T> {
    super::check()?;
    act(lock().get(handle).ok_or_else(|| no_handle(handle))?)
}

fn no_handle(handle: usize) -> Error {
    Error::new(
        MPI_T_ERR_INVALID_HANDLE,
        format!("no event registration has the handle {handle:#x}"),
    )
}

fn level(safety: i32) -> Result<usize> {
    let found = LEVELS.iter().position(|&level| level == safety);
    found.ok_or_else(|| Error::new(MPI_T_ERR_INVALID, "no such level of safety"))
}

/// Whether a handle and a level of safety exist.
///
/// # Errors
/// One does not.
pub fn check(handle: usize, safety: i32) -> Result {
    level(safety)?;
    with(handle, |_| Ok(()))
}

/// `MPI_T_event_register_callback`; no function takes the one of that level back.
///
/// # Errors
/// There is no such handle or level.
pub fn register(handle: usize, safety: i32, data: usize, function: Option<Callback>) -> Result {
    let level = level(safety)?;
    with(handle, |registration| {
        registration.targets[level] = function.map(|function| Target { function, data });
        Ok(())
    })
}

/// `MPI_T_event_set_dropped_handler`.
///
/// # Errors
/// There is no such handle.
pub fn set_dropped_handler(handle: usize, function: Option<DroppedCallback>) -> Result {
    with(handle, |registration| {
        registration.dropped_handler = function;
        Ok(())
    })
}

/// `MPI_T_event_handle_free`: the caller then tells the tool that the handle is free.
///
/// # Errors
/// There is no such handle.
pub fn close(handle: usize) -> Result {
    super::check()?;
    let closed = lock().remove(handle);
    closed.map(drop).ok_or_else(|| no_handle(handle))
}

/// The level at which a free callback is called.
pub const FREE_SAFETY: i32 = MPI_T_CB_REQUIRE_NONE;

pub(super) fn forget_all() {
    lock().0.clear();
}

/// Tells the tools of a point that this thread has passed.
fn observe(point: Point, peer: u32, tag: i32, bytes: u64) {
    if BUSY.get() {
        return;
    }
    BUSY.set(true);
    let ns = now_ns();
    let instance = Instance { point, peer, tag, bytes, ns };
    let mut at = 0;
    // One at a time, since a callback may free handles and make others.
    while let Some((handle, told)) = next(at, point) {
        at = handle + 1;
        tell(handle, told, &instance);
    }
    BUSY.set(false);
}

/// What is done for one registration.
enum Told {
    Event(Target, i32),
    Dropped(DroppedCallback, i64, usize),
}

/// The next registration of a point from a handle on, and what it gets; those that get nothing are counted.
fn next(from: usize, point: Point) -> Option<(usize, Told)> {
    let mut registered = lock();
    let slots = registered.0.iter_mut().enumerate();
    for (index, slot) in slots.skip(from.saturating_sub(FIRST_HANDLE)) {
        let Some(registration) = slot.as_mut().filter(|r| r.index == point as usize) else {
            continue;
        };
        let handle = index + FIRST_HANDLE;
        // Inside an MPI call the least strict level that serves is the restricted one.
        let level = (1..LEVELS.len()).find(|&level| registration.targets[level].is_some());
        if let Some((level, target)) = level.zip(level.and_then(|l| registration.targets[l])) {
            return Some((handle, Told::Event(target, LEVELS[level])));
        }
        registration.dropped += 1;
        if let Some(function) = registration.dropped_handler {
            let count = std::mem::take(&mut registration.dropped);
            let data = registration.targets[0].map_or(0, |target| target.data);
            return Some((handle, Told::Dropped(function, count, data)));
        }
    }
    None
}

fn tell(handle: usize, told: Told, instance: &Instance) {
    let pointer = |data: usize| data as *mut core::ffi::c_void;
    match told {
        Told::Event(target, safety) => {
            let instance = std::ptr::from_ref(instance).addr();
            // SAFETY: the tool has registered the function for this.
            unsafe { (target.function)(instance, handle, safety, pointer(target.data)) };
        }
        Told::Dropped(function, count, data) => {
            let safety = MPI_T_CB_REQUIRE_MPI_RESTRICTED;
            // SAFETY: the user gave this function for such calls; the arguments are there until it returns.
            unsafe { function(count, handle, 0, safety, pointer(data)) };
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn names__are_words_and_there_once() {
        let names: Vec<String> = Point::ALL.iter().map(|&point| name_of(point)).collect();
        for (index, name) in names.iter().enumerate() {
            assert_eq!(names.iter().position(|n| n == name), Some(index), "{name}");
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{name}");
        }
    }

    #[test]
    fn elements__are_the_fields_of_the_point() {
        let all = [Element::Peer, Element::Tag, Element::Bytes];
        assert_eq!(elements(Point::PostShort), all);
        assert_eq!(elements(Point::Copy), [Element::Peer, Element::Bytes]);
        assert_eq!(elements(Point::Return), []);
        let instance = Instance { point: Point::Copy, peer: 3, tag: 0, bytes: 77, ns: 0 };
        assert_eq!(instance.element(0), Some((3_u64.to_ne_bytes(), 4)));
        assert_eq!(instance.element(1), Some((77_u64.to_ne_bytes(), 8)));
        assert_eq!(instance.element(2), None);
    }
}
