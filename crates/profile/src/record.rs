//! The table of calls of this process.

use crate::library::MeasuredFunction;
use crate::site;
use fastpath_base::clock::now_ns;
use fastpath_base::sync::{StaticBool, StaticOrdering as Ordering};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Whether calls are recorded: between `MPI_Init` and `MPI_Finalize`, unless `MPI_Pcontrol(0)` has paused the profile.
static RECORDS: StaticBool = StaticBool::new(false);

thread_local! {
    /// Whether this thread is inside a measured call. A callback of that call may call MPI.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Function, by its address, and return address of a call.
type SiteKey = (usize, usize);

static TABLE: Mutex<Option<HashMap<SiteKey, SiteCalls>>> = Mutex::new(None);

/// Counters of one function at one call site.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CallCounters {
    pub calls: u64,
    pub nanoseconds: u64,
    pub min_nanoseconds: u64,
    pub max_nanoseconds: u64,
    /// Calls with at least one byte.
    pub calls_with_bytes: u64,
    pub bytes: u64,
    pub min_bytes: u64,
    pub max_bytes: u64,
}

impl CallCounters {
    /// Makes the counters of one call.
    pub fn of_call(nanoseconds: u64, bytes: u64) -> CallCounters {
        CallCounters {
            calls: 1,
            nanoseconds,
            min_nanoseconds: nanoseconds,
            max_nanoseconds: nanoseconds,
            calls_with_bytes: u64::from(bytes > 0),
            bytes,
            min_bytes: bytes,
            max_bytes: bytes,
        }
    }

    /// Adds the counters of other calls.
    pub fn merge(&mut self, other: &CallCounters) {
        if other.calls == 0 {
            return;
        }
        self.min_nanoseconds = match self.calls {
            0 => other.min_nanoseconds,
            _ => self.min_nanoseconds.min(other.min_nanoseconds),
        };
        self.max_nanoseconds = self.max_nanoseconds.max(other.max_nanoseconds);
        if other.calls_with_bytes > 0 {
            self.min_bytes = match self.calls_with_bytes {
                0 => other.min_bytes,
                _ => self.min_bytes.min(other.min_bytes),
            };
            self.max_bytes = self.max_bytes.max(other.max_bytes);
        }
        self.calls += other.calls;
        self.nanoseconds = self.nanoseconds.saturating_add(other.nanoseconds);
        self.calls_with_bytes += other.calls_with_bytes;
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// Calls of one function at one call site.
#[derive(Debug)]
pub(crate) struct SiteCalls {
    pub function: &'static MeasuredFunction,
    /// Return address of the calls.
    pub site: usize,
    pub counters: CallCounters,
}

/// A call that has not ended.
#[derive(Debug)]
pub(crate) struct OpenCall {
    function: &'static MeasuredFunction,
    /// Return address and start of the call; `None` if the call is not recorded.
    start: Option<(usize, u64)>,
}

/// Begins a call of the program.
pub(crate) fn begin(function: &'static MeasuredFunction) -> OpenCall {
    let is_recorded = RECORDS.load(Ordering::Relaxed) && !IS_INSIDE.replace(true);
    OpenCall { function, start: is_recorded.then(|| (site::find_site(), now_ns())) }
}

impl OpenCall {
    /// Ends the call. `bytes` returns the bytes of the call.
    pub fn end(self, bytes: impl FnOnce() -> i64) {
        let Some((site, start)) = self.start else {
            return;
        };
        let nanoseconds = now_ns().saturating_sub(start);
        IS_INSIDE.set(false);
        let bytes = u64::try_from(bytes()).unwrap_or(0);
        let mut table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (std::ptr::from_ref(self.function).addr(), site);
        let empty =
            || SiteCalls { function: self.function, site, counters: CallCounters::default() };
        let calls = table.get_or_insert_default().entry(key).or_insert_with(empty);
        calls.counters.merge(&CallCounters::of_call(nanoseconds, bytes));
    }
}

/// Starts, pauses or resumes recording.
pub(crate) fn set_recording(on: bool) {
    RECORDS.store(on, Ordering::Relaxed);
}

/// Removes and returns the calls in the table.
pub(crate) fn take_calls() -> Vec<SiteCalls> {
    let table = TABLE.lock().unwrap_or_else(PoisonError::into_inner).take();
    table.unwrap_or_default().into_values().collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn counters__keep_extremes_and_ignore_calls_without_bytes() {
        let mut counters = CallCounters::default();
        for (nanoseconds, bytes) in [(30, 0), (10, 8), (20, 4), (15, 0)] {
            counters.merge(&CallCounters::of_call(nanoseconds, bytes));
        }
        let expected = CallCounters {
            calls: 4,
            nanoseconds: 75,
            min_nanoseconds: 10,
            max_nanoseconds: 30,
            calls_with_bytes: 2,
            bytes: 12,
            min_bytes: 4,
            max_bytes: 8,
        };
        assert_eq!(counters, expected);
        let mut sum = CallCounters::default();
        sum.merge(&counters);
        sum.merge(&CallCounters::default());
        assert_eq!(sum, expected);
    }
}
