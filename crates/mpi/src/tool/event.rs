//! Events: trace points, reported to registered tools by the call that passes the point.
//!
//! The immediate path has no trace points unless recording starts in `MPI_Init`. To get events of the immediate path, a
//! tool makes a handle before `MPI_Init`, or the user sets `FASTPATH_TRACE`. A callback runs inside an MPI call, so the
//! callback must be registered for `MPI_T_CB_REQUIRE_MPI_RESTRICTED` or a stricter level. An event without such a
//! callback counts as dropped.
#![allow(unsafe_code)]

use super::{FIRST_HANDLE, Slots, no_index, no_name};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::process::{self, ProcessPhase};
use fastpath_base::clock::now_ns;
use fastpath_base::trace::{self, Point};
use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Ticks per second of the only source: nanoseconds of the monotonic clock.
pub const TICKS_PER_SECOND: i64 = 1_000_000_000;

/// Safety levels, with the least strict first.
const LEVELS: [i32; 4] = [
    MPI_T_CB_REQUIRE_NONE,
    MPI_T_CB_REQUIRE_MPI_RESTRICTED,
    MPI_T_CB_REQUIRE_THREAD_SAFE,
    MPI_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE,
];

/// An element of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// World rank of the peer; `MPI_INT32_T`.
    Peer,
    /// Tag, or another number of the trace point; `MPI_INT32_T`.
    Tag,
    /// Number of bytes; `MPI_UINT64_T`.
    Bytes,
}

impl Element {
    /// Returns the handle of the element's datatype, and its size in bytes.
    pub fn datatype(self) -> (usize, usize) {
        match self {
            Element::Bytes => (MPI_UINT64_T, 8),
            _ => (MPI_INT32_T, 4),
        }
    }
}

/// An event, for the duration of its callback.
#[derive(Debug)]
pub struct Instance {
    point: Point,
    peer: u32,
    tag: i32,
    bytes: u64,
    /// Time stamp, in ticks of the source.
    pub ns: u64,
}

impl Instance {
    /// Returns the elements of the event.
    pub fn elements(&self) -> Vec<Element> {
        elements(self.point)
    }

    /// Returns the bytes of element `index` and their number; `None` beyond the last element.
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

/// Tool's callback for an event. Arguments: event instance, handle, safety level, data of the tool.
pub type Callback = unsafe extern "C" fn(usize, usize, i32, *mut core::ffi::c_void);
/// Tool's callback for a freed handle. Arguments: handle, safety level, data of the tool.
pub type FreeCallback = unsafe extern "C" fn(usize, i32, *mut core::ffi::c_void);
/// Tool's callback for dropped events. Arguments: their number, handle, source, safety level, data of the tool.
pub type DroppedCallback = unsafe extern "C" fn(i64, usize, i32, i32, *mut core::ffi::c_void);

#[derive(Debug, Clone, Copy)]
struct EventTarget {
    function: Callback,
    data: usize,
}

#[derive(Debug, Clone, Copy)]
struct Registration {
    index: usize,
    targets: [Option<EventTarget>; LEVELS.len()],
    dropped_handler: Option<DroppedCallback>,
    dropped: i64,
}

static REGISTERED: Mutex<Slots<Registration>> = Mutex::new(Slots::new());

thread_local! {
    /// Whether a callback runs in this thread. Trace points that a callback passes are not reported.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

fn lock() -> MutexGuard<'static, Slots<Registration>> {
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the number of events.
pub fn count() -> usize {
    Point::ALL.len()
}

/// Returns the event of a number. Errors: `MPI_T_ERR_INVALID_INDEX`.
pub fn find(index: i32) -> Result<Point> {
    super::check()?;
    let found = usize::try_from(index).ok();
    let found = found.and_then(|index| Point::ALL.get(index));
    found.copied().ok_or_else(|| no_index("event", index))
}

/// Returns the number of the event `name`. Errors: `MPI_T_ERR_INVALID_NAME`.
pub fn index_of(name: &str) -> Result<usize> {
    super::check()?;
    let found = Point::ALL.iter().position(|&point| name_of(point) == name);
    found.ok_or_else(|| no_name("event", name))
}

/// Returns the name of an event: the trace point's name, with runs of other characters replaced by underscores.
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

/// Returns the elements of an event, in order.
pub fn elements(point: Point) -> Vec<Element> {
    let fields = point.fields();
    [Element::Peer, Element::Tag, Element::Bytes]
        .into_iter()
        .zip(fields)
        .filter_map(|(element, name)| (!name.is_empty()).then_some(element))
        .collect()
}

/// Returns the description of an event.
pub fn describe(point: Point) -> String {
    let fields: Vec<&str> = point.fields().into_iter().filter(|f| !f.is_empty()).collect();
    match fields.is_empty() {
        true => format!("trace point \"{}\"", point.name()),
        false => format!("trace point \"{}\" with {}", point.name(), fields.join(", ")),
    }
}

/// `MPI_T_event_handle_alloc`. Errors: `MPI_T_ERR_INVALID_INDEX`, or `MPI_T_ERR_NOT_ACCESSIBLE` if trace points are not
/// recorded and the recording cannot start any more.
pub fn open(index: i32) -> Result<usize> {
    find(index)?;
    if process::phase() != ProcessPhase::Uninitialized && !trace::is_on() {
        return Err(Error::new(
            MPI_T_ERR_NOT_ACCESSIBLE,
            "create event handles before MPI_Init, or set FASTPATH_TRACE",
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

/// Returns whether a tool has event handles, so that trace points must be recorded.
pub(crate) fn is_wanted() -> bool {
    lock().0.iter().any(Option::is_some)
}

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
    found.ok_or_else(|| Error::new(MPI_T_ERR_INVALID, "the level of callback safety is unknown"))
}

/// Checks a handle and a safety level. Errors: `MPI_T_ERR_INVALID_HANDLE`, or `MPI_T_ERR_INVALID` for an unknown level.
pub fn check(handle: usize, safety: i32) -> Result {
    level(safety)?;
    with(handle, |_| Ok(()))
}

/// `MPI_T_event_register_callback`. Without a function it removes the callback of that level. Errors:
/// `MPI_T_ERR_INVALID_HANDLE`, or `MPI_T_ERR_INVALID` for an unknown level.
pub fn register(handle: usize, safety: i32, data: usize, function: Option<Callback>) -> Result {
    let level = level(safety)?;
    with(handle, |registration| {
        registration.targets[level] = function.map(|function| EventTarget { function, data });
        Ok(())
    })
}

/// `MPI_T_event_set_dropped_handler`. Errors: `MPI_T_ERR_INVALID_HANDLE`.
pub fn set_dropped_handler(handle: usize, function: Option<DroppedCallback>) -> Result {
    with(handle, |registration| {
        registration.dropped_handler = function;
        Ok(())
    })
}

/// `MPI_T_event_handle_free`. The caller then runs the tool's free callback. Errors: `MPI_T_ERR_INVALID_HANDLE`.
pub fn close(handle: usize) -> Result {
    super::check()?;
    let closed = lock().remove(handle);
    closed.map(drop).ok_or_else(|| no_handle(handle))
}

/// Safety level of free callbacks.
pub const FREE_SAFETY: i32 = MPI_T_CB_REQUIRE_NONE;

pub(super) fn forget_all() {
    lock().0.clear();
}

/// Reports to the tools a trace point that this thread has passed.
fn observe(point: Point, peer: u32, tag: i32, bytes: u64) {
    if BUSY.get() {
        return;
    }
    BUSY.set(true);
    let ns = now_ns();
    let instance = Instance { point, peer, tag, bytes, ns };
    let mut at = 0;
    // Registrations are found one at a time, because a callback may free handles and make others.
    while let Some((handle, told)) = next(at, point) {
        at = handle + 1;
        tell(handle, told, &instance);
    }
    BUSY.set(false);
}

enum EventCall {
    Event(EventTarget, i32),
    Dropped(DroppedCallback, i64, usize),
}

/// Finds the next registration of a point, from handle `from` on, and the callback to call. Counts dropped events.
fn next(from: usize, point: Point) -> Option<(usize, EventCall)> {
    let mut registered = lock();
    let slots = registered.0.iter_mut().enumerate();
    for (index, slot) in slots.skip(from.saturating_sub(FIRST_HANDLE)) {
        let Some(registration) = slot.as_mut().filter(|r| r.index == point as usize) else {
            continue;
        };
        let handle = index + FIRST_HANDLE;
        // Trace points are passed inside MPI calls, so `MPI_T_CB_REQUIRE_MPI_RESTRICTED` is the least strict level.
        let level = (1..LEVELS.len()).find(|&level| registration.targets[level].is_some());
        if let Some((level, target)) = level.zip(level.and_then(|l| registration.targets[l])) {
            return Some((handle, EventCall::Event(target, LEVELS[level])));
        }
        registration.dropped += 1;
        if let Some(function) = registration.dropped_handler {
            let count = std::mem::take(&mut registration.dropped);
            let data = registration.targets[0].map_or(0, |target| target.data);
            return Some((handle, EventCall::Dropped(function, count, data)));
        }
    }
    None
}

fn tell(handle: usize, told: EventCall, instance: &Instance) {
    let pointer = |data: usize| data as *mut core::ffi::c_void;
    match told {
        EventCall::Event(target, safety) => {
            let instance = std::ptr::from_ref(instance).addr();
            // SAFETY: the tool registered this function for events, and `instance` lives until it returns.
            unsafe { (target.function)(instance, handle, safety, pointer(target.data)) };
        }
        EventCall::Dropped(function, count, data) => {
            let safety = MPI_T_CB_REQUIRE_MPI_RESTRICTED;
            // SAFETY: the tool registered this function for dropped events. It gets only numbers and the tool's data.
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
