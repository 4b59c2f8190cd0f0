//! Performance variables: counts of the worker and of the files of this process, and the present contents of queues.
//! Nothing is counted on the immediate path.
//!
//! A counter handle is created stopped, at 0, and counts while started. A level has the current value and cannot be
//! set.
#![allow(unsafe_code)]

use super::{enter, no_index, no_name};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::process::Process;
use crate::rma::counts::{self, RmaCounter};
use fastpath_io::Counter;
use fastpath_protocol::Worker;

/// A performance variable of the process, with datatype `MPI_UINT64_T`.
pub struct Variable {
    /// Name of the variable.
    pub name: &'static str,
    /// Class of the variable (`MPI_T_PVAR_CLASS_`).
    pub class: i32,
    /// Description of one line.
    pub meaning: &'static str,
    value: PvarSource,
}

enum PvarSource {
    /// A number that the worker knows.
    Worker(fn(&Worker) -> u64),
    /// Sum of those counters of this process's adapters that have one of the listed names.
    Adapters(&'static [&'static str]),
    Files(Counter),
    Windows(RmaCounter),
}

impl Variable {
    /// Returns whether the variable is read-only and continuous.
    pub fn is_level(&self) -> bool {
        self.class != MPI_T_PVAR_CLASS_COUNTER
    }
}

macro_rules! variables {
    ($($class:ident $name:literal $from:ident $value:expr, $meaning:literal;)*) => {
        /// All performance variables.
        pub static VARIABLES: &[Variable] = &[$(Variable {
            name: $name,
            class: variables!(@ $class),
            meaning: $meaning,
            value: PvarSource::$from($value),
        },)*];
    };
    (@ counter) => { MPI_T_PVAR_CLASS_COUNTER };
    (@ level) => { MPI_T_PVAR_CLASS_LEVEL };
    (@ most) => { MPI_T_PVAR_CLASS_HIGHWATERMARK };
}

variables! {
    counter "requests" Worker |w| w.counters.requests, "sends and receives that needed a request";
    counter "unexpected_messages" Worker |w| w.counters.unexpected,
        "messages that arrived before their receive was posted, and were stored";
    counter "ring_slots_sent" Worker Worker::ring_slots_sent,
        "slots of 64 B filled in shared-memory rings: one for each message of up to 48 bytes, and \
         for each step of a longer one";
    counter "eager_messages_by_memory" Worker |w| w.counters.eager[0].messages,
        "eager messages of more than 48 bytes sent through shared memory";
    counter "eager_bytes_by_memory" Worker |w| w.counters.eager[0].bytes, "bytes of eager messages \
                                                                           sent through shared \
                                                                           memory";
    counter "eager_messages_by_network" Worker |w| w.counters.eager[1].messages,
        "eager messages sent through adapters and networks";
    counter "eager_bytes_by_network" Worker |w| w.counters.eager[1].bytes, "bytes of eager \
                                                                            messages sent through \
                                                                            adapters and networks";
    counter "rendezvous_messages_by_memory" Worker |w| w.counters.announced[0].messages,
        "rendezvous messages sent through shared memory";
    counter "rendezvous_bytes_by_memory" Worker |w| w.counters.announced[0].bytes,
        "bytes of rendezvous messages sent through shared memory";
    counter "rendezvous_messages_by_network" Worker |w| w.counters.announced[1].messages,
        "rendezvous messages sent through adapters and networks";
    counter "rendezvous_bytes_by_network" Worker |w| w.counters.announced[1].bytes,
        "bytes of rendezvous messages sent through adapters and networks";
    counter "single_copies" Worker |w| w.counters.single_copies,
        "long messages that the kernel copied from the sender's memory";
    counter "direct_reads" Worker |w| w.counters.direct_reads,
        "long messages read from the sender's shared memory";
    counter "direct_writes" Worker |w| w.counters.direct_writes,
        "long messages written into the receiver's shared memory";
    counter "waits" Worker |w| w.counters.waits, "waits whose first poll found nothing";
    counter "yields" Worker |w| w.counters.yields, "times that a wait yielded the processor";
    counter "sleeps" Worker |w| w.counters.sleeps, "waits that went to sleep in the kernel";
    counter "connections" Worker |w| w.counters.connections,
        "peers that this process has connected to";
    counter "violations" Worker |w| w.counters.violations,
        "invalid messages from peers, which this process has dropped";
    counter "rma_keys_resolved" Worker |w| w.rma.counters.resolved,
        "times that this process has chosen how to access a peer's memory";
    counter "rma_operations_queued" Worker |w| w.rma.counters.queued,
        "one-sided operations that waited in a queue";
    counter "rma_operations_served" Worker |w| w.rma.counters.served,
        "one-sided operations of peers that this process performed";
    counter "rma_puts" Windows RmaCounter::Puts,
        "puts to windows, except those of up to 48 bytes by load and store";
    counter "rma_bytes_put" Windows RmaCounter::PutBytes,
        "number of bytes written by the put operations that are included in rma_puts";
    counter "rma_gets" Windows RmaCounter::Gets,
        "gets from windows, except those of up to 48 bytes by load and store";
    counter "rma_bytes_got" Windows RmaCounter::GotBytes,
        "number of bytes read by the get operations that are included in rma_gets";
    counter "rma_accumulates" Windows RmaCounter::Accumulates,
        "MPI_Accumulate, MPI_Get_accumulate and their forms with a request";
    counter "rma_atomics" Windows RmaCounter::Atomics, "MPI_Fetch_and_op and MPI_Compare_and_swap";
    counter "rma_locks" Windows RmaCounter::Locks, "locks by MPI_Win_lock";
    counter "rma_lock_waits" Windows RmaCounter::LockWaits,
        "locks of windows that this process had to wait for";
    counter "rma_flushes" Windows RmaCounter::Flushes, "flushes of windows";
    counter "rma_epochs" Windows RmaCounter::Epochs,
        "fences, and epochs by MPI_Win_start, MPI_Win_post and MPI_Win_lock_all";
    counter "adapter_packets_resent" Adapters &["resent"],
        "packets that an adapter retransmitted";
    counter "registrations" Adapters &["registrations_made"],
        "ranges of memory registered with an adapter";
    counter "registrations_reused" Adapters &["registrations_reused"],
        "uses of a memory range that was already registered with an adapter";
    counter "file_reads" Files Counter::Reads, "system calls that read files";
    counter "file_bytes_read" Files Counter::ReadBytes, "bytes that system calls read from files";
    counter "file_writes" Files Counter::Writes, "system calls that write files";
    counter "file_bytes_written" Files Counter::WrittenBytes, "bytes that system calls wrote to \
                                                               files";
    counter "file_mappings" Files Counter::Mappings,
        "file ranges mapped to store noncontiguous pieces";
    counter "file_bytes_stored" Files Counter::StoredBytes, "bytes stored in mapped file ranges";
    counter "file_ranges_sieved" Files Counter::Sieved,
        "file ranges read or written whole, with the gaps between the pieces (data sieving)";
    counter "file_bytes_sieved" Files Counter::SievedBytes,
        "bytes of gaps that data sieving moved";
    counter "file_exchanges" Files Counter::Exchanges,
        "collective file accesses in which aggregators moved bytes for other ranks";
    counter "file_bytes_exchanged" Files Counter::ExchangedBytes,
        "bytes that this process read or wrote in file accesses through aggregators";
    level "unexpected_queue_length" Worker |w| w.unexpected_usage().0,
        "unexpected messages stored now";
    most "unexpected_queue_length_most" Worker Worker::unexpected_most,
        "largest number of unexpected messages that were stored at the same time";
    level "posted_queue_length" Worker Worker::posted, "receives posted now";
    most "posted_queue_length_most" Worker Worker::posted_most,
        "largest number of posted receives: counted when this variable is read and, in jobs of up \
         to 255 ranks, when the first poll of a wait finds nothing";
    level "unexpected_queue_bytes" Worker |w| w.unexpected_usage().1,
        "bytes of memory that unexpected messages use now";
}

#[derive(Debug)]
pub(super) struct Handle {
    session: usize,
    index: usize,
    /// Count of the earlier periods between start and stop, as changed by resets and writes. It may wrap.
    kept: u64,
    /// Value of the process at the last start; `None` while stopped.
    since: Option<u64>,
}

impl Handle {
    /// Returns the value of the handle. `now` is the present value of the variable in the process.
    fn value(&self, now: u64) -> u64 {
        match self.since {
            _ if VARIABLES[self.index].is_level() => now,
            Some(since) => self.kept.wrapping_add(now.wrapping_sub(since)),
            None => self.kept,
        }
    }

    fn set(&mut self, value: u64, now: u64) {
        self.kept = value;
        self.since = self.since.map(|_| now);
    }
}

/// Returns the variable of a number. Errors: `MPI_T_ERR_INVALID_INDEX`.
pub fn find(index: i32) -> Result<&'static Variable> {
    super::check()?;
    let found = usize::try_from(index).ok();
    let found = found.and_then(|index| VARIABLES.get(index));
    found.ok_or_else(|| no_index("performance variable", index))
}

/// Returns the number of the variable with this name and class. Errors: `MPI_T_ERR_INVALID_NAME`.
pub fn index_of(name: &str, class: i32) -> Result<usize> {
    super::check()?;
    let found =
        VARIABLES.iter().position(|variable| variable.name == name && variable.class == class);
    found.ok_or_else(|| no_name("performance variable", name))
}

/// Returns the value of a variable in this process; 0 before MPI is initialised.
fn current(p: &Process, index: usize) -> u64 {
    let Ok(worker) = p.worker() else {
        return 0;
    };
    // SAFETY: the worker lives as long as the engine, and the caller is inside MPI.
    let worker = unsafe { &*worker };
    match VARIABLES[index].value {
        PvarSource::Worker(value) => value(worker),
        PvarSource::Adapters(names) => {
            let counts = worker.interfaces().adapter_counts();
            let numbers = counts.into_iter().flat_map(|counts| counts.numbers);
            let named = numbers.filter(|(name, _)| names.contains(name));
            named.map(|(_, number)| number).sum()
        }
        PvarSource::Files(counter) => fastpath_io::PROCESS.get(counter),
        PvarSource::Windows(counted) => counts::total(p, counted),
    }
}

/// `MPI_T_pvar_session_create`. Errors: `MPI_T_ERR_NOT_INITIALIZED`.
pub fn open_session() -> Result<usize> {
    Ok(enter()?.sessions.insert(()))
}

/// `MPI_T_pvar_session_free`. Frees the handles of the session too. Errors: `MPI_T_ERR_INVALID_SESSION`.
pub fn close_session(session: usize) -> Result {
    let mut tool = enter()?;
    let closed = tool.sessions.remove(session);
    closed.ok_or_else(|| no_session(session))?;
    for slot in &mut tool.pvars.0 {
        if slot.as_ref().is_some_and(|handle| handle.session == session) {
            *slot = None;
        }
    }
    Ok(())
}

fn no_session(session: usize) -> Error {
    Error::new(MPI_T_ERR_INVALID_SESSION, format!("no session has the handle {session:#x}"))
}

/// `MPI_T_pvar_handle_alloc`. Returns the handle. Each variable has one element. Errors: `MPI_T_ERR_INVALID_SESSION`,
/// `MPI_T_ERR_INVALID_INDEX`.
pub fn open(session: usize, index: i32) -> Result<usize> {
    find(index)?;
    let mut tool = enter()?;
    tool.sessions.get(session).ok_or_else(|| no_session(session))?;
    Ok(tool.pvars.insert(Handle { session, index: index as usize, kept: 0, since: None }))
}

/// `MPI_T_pvar_handle_free`. Errors: `MPI_T_ERR_INVALID_SESSION`, `MPI_T_ERR_INVALID_HANDLE`.
pub fn close(session: usize, handle: usize) -> Result {
    let mut tool = enter()?;
    find_handle(&mut tool, session, handle)?;
    tool.pvars.remove(handle);
    Ok(())
}

fn find_handle(tool: &mut super::Tool, session: usize, handle: usize) -> Result<&mut Handle> {
    tool.sessions.get(session).ok_or_else(|| no_session(session))?;
    let found = tool.pvars.get(handle).filter(|h| h.session == session);
    found.ok_or_else(|| {
        Error::new(
            MPI_T_ERR_INVALID_HANDLE,
            format!("no performance variable of the session has the handle {handle:#x}"),
        )
    })
}

/// Calls `act` with a handle and the present value of its variable in the process.
fn with<T>(
    p: &Process, (session, handle): (usize, usize), act: impl FnOnce(&mut Handle, u64) -> Result<T>,
) -> Result<T> {
    let mut tool = enter()?;
    let found = find_handle(&mut tool, session, handle)?;
    let now = current(p, found.index);
    act(found, now)
}

/// Calls `act` with a counter or, for `MPI_T_PVAR_ALL_HANDLES`, with all counters of the session.
fn with_counters(
    p: &Process, (session, handle): (usize, usize), refused: i32, act: impl Fn(&mut Handle, u64),
) -> Result {
    if handle != MPI_T_PVAR_ALL_HANDLES {
        return with(p, (session, handle), |handle, now| {
            let variable = &VARIABLES[handle.index];
            if variable.is_level() {
                let why = format!(
                    "{} is not a counter: it cannot be started, stopped or written",
                    variable.name
                );
                return Err(Error::new(refused, why));
            }
            act(handle, now);
            Ok(())
        });
    }
    let mut tool = enter()?;
    tool.sessions.get(session).ok_or_else(|| no_session(session))?;
    let handles = tool.pvars.0.iter_mut().flatten();
    for found in handles.filter(|h| h.session == session && !VARIABLES[h.index].is_level()) {
        act(found, current(p, found.index));
    }
    Ok(())
}

/// `MPI_T_pvar_start`. Errors: `MPI_T_ERR_INVALID_SESSION`, `MPI_T_ERR_INVALID_HANDLE`. `MPI_T_ERR_PVAR_NO_STARTSTOP`
/// for a level.
pub fn start(p: &Process, session: usize, handle: usize) -> Result {
    let refused = MPI_T_ERR_PVAR_NO_STARTSTOP;
    with_counters(p, (session, handle), refused, |handle, now| {
        handle.since = handle.since.or(Some(now));
    })
}

/// `MPI_T_pvar_stop`. Errors: see [`start`].
pub fn stop(p: &Process, session: usize, handle: usize) -> Result {
    let refused = MPI_T_ERR_PVAR_NO_STARTSTOP;
    with_counters(p, (session, handle), refused, |handle, now| {
        handle.kept = handle.value(now);
        handle.since = None;
    })
}

/// `MPI_T_pvar_read`. Errors: `MPI_T_ERR_INVALID_SESSION`, `MPI_T_ERR_INVALID_HANDLE`.
pub fn read(p: &Process, session: usize, handle: usize) -> Result<u64> {
    with(p, (session, handle), |handle, now| Ok(handle.value(now)))
}

/// `MPI_T_pvar_readreset`. Reads and resets atomically. Errors: `MPI_T_ERR_INVALID_SESSION`,
/// `MPI_T_ERR_INVALID_HANDLE`. `MPI_T_ERR_PVAR_NO_WRITE` for a level.
pub fn read_and_reset(p: &Process, session: usize, handle: usize) -> Result<u64> {
    with(p, (session, handle), |handle, now| {
        if VARIABLES[handle.index].is_level() {
            return Err(Error::new(MPI_T_ERR_PVAR_NO_WRITE, "only a counter can be reset"));
        }
        let value = handle.value(now);
        handle.set(0, now);
        Ok(value)
    })
}

/// `MPI_T_pvar_write` and, with `value` 0, `MPI_T_pvar_reset`. Errors: `MPI_T_ERR_INVALID_SESSION`,
/// `MPI_T_ERR_INVALID_HANDLE`. `MPI_T_ERR_PVAR_NO_WRITE` for a level.
pub fn write(p: &Process, session: usize, handle: usize, value: u64) -> Result {
    with_counters(p, (session, handle), MPI_T_ERR_PVAR_NO_WRITE, |handle, now| {
        handle.set(value, now);
    })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn counter__counts_while_it_is_started() {
        let mut handle = Handle { session: 0, index: 0, kept: 0, since: None };
        assert_eq!(handle.value(100), 0);
        handle.since = Some(100);
        assert_eq!(handle.value(107), 7);
        (handle.kept, handle.since) = (handle.value(107), None);
        assert_eq!(handle.value(500), 7);
        handle.set(3, 500);
        assert_eq!(handle.value(600), 3, "stopped");
        handle.since = Some(600);
        handle.set(0, 610);
        assert_eq!(handle.value(612), 2);
    }

    #[test]
    fn names__are_there_once() {
        for (index, variable) in VARIABLES.iter().enumerate() {
            let first = VARIABLES.iter().position(|v| v.name == variable.name);
            assert_eq!(first, Some(index), "{}", variable.name);
        }
    }
}
