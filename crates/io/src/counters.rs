//! Counters of file access, for each open file and for the process.

use fastpath_base::sync::{StaticOrdering as Ordering, StaticU64};

/// A counted quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// System calls that read.
    Reads,
    /// Bytes read by system calls.
    ReadBytes,
    /// System calls that write.
    Writes,
    /// Bytes written by system calls.
    WrittenBytes,
    /// Ranges mapped to store pieces in them.
    Mappings,
    /// Bytes stored through mappings.
    StoredBytes,
    /// Ranges read or written together with the gaps between their pieces (data sieving).
    Sieved,
    /// Bytes of the gaps in sieved ranges.
    SievedBytes,
    /// Collective accesses in which ranks exchanged bytes with aggregators.
    Exchanges,
    /// Bytes that this process exchanged with aggregators.
    ExchangedBytes,
}

const COUNTERS: usize = Counter::ExchangedBytes as usize + 1;

/// One count for each [`Counter`].
#[derive(Debug)]
pub struct IoCounters([StaticU64; COUNTERS]);

impl IoCounters {
    /// Returns counters that are all 0.
    pub const fn new() -> IoCounters {
        IoCounters([const { StaticU64::new(0) }; COUNTERS])
    }

    /// Returns the count of `counter`.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize].load(Ordering::Relaxed)
    }

    fn add(&self, counter: Counter, number: u64) {
        self.0[counter as usize].fetch_add(number, Ordering::Relaxed);
    }

    /// Adds `number` to a counter of the file and of the process.
    pub(crate) fn count(&self, counter: Counter, number: u64) {
        self.add(counter, number);
        PROCESS.add(counter, number);
    }
}

impl Default for IoCounters {
    fn default() -> IoCounters {
        IoCounters::new()
    }
}

/// Counters of all files that this process has opened.
pub static PROCESS: IoCounters = IoCounters::new();
