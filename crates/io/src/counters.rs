//! What is counted of files: by each open file, and by the process.

use fastpath_base::sync::{StaticOrdering as Ordering, StaticU64};

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// Calls of the system that read.
    Reads,
    /// Bytes that they have read.
    ReadBytes,
    /// Calls of the system that write.
    Writes,
    /// Bytes that they have written.
    WrittenBytes,
    /// Ranges that were mapped, to store pieces in them.
    Mappings,
    /// Bytes that were stored there.
    StoredBytes,
    /// Ranges that were read or written with what lies between the pieces (data sieving).
    Sieved,
    /// Bytes between the pieces that were read or written in vain.
    SievedBytes,
    /// Collective accesses in which ranks sent their bytes to aggregators, or got them from there.
    Exchanges,
    /// Bytes of this process that went that way.
    ExchangedBytes,
}

const COUNTERS: usize = Counter::ExchangedBytes as usize + 1;

/// Numbers of events and of bytes, from 0.
#[derive(Debug)]
pub struct Counters([StaticU64; COUNTERS]);

impl Counters {
    /// All at 0.
    pub const fn new() -> Counters {
        Counters([const { StaticU64::new(0) }; COUNTERS])
    }

    /// The number so far.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize].load(Ordering::Relaxed)
    }

    fn add(&self, counter: Counter, number: u64) {
        self.0[counter as usize].fetch_add(number, Ordering::Relaxed);
    }

    /// Adds to the counters of a file, and to those of the process.
    pub(crate) fn count(&self, counter: Counter, number: u64) {
        self.add(counter, number);
        PROCESS.add(counter, number);
    }
}

impl Default for Counters {
    fn default() -> Counters {
        Counters::new()
    }
}

/// Those of all files that this process has opened.
pub static PROCESS: Counters = Counters::new();
