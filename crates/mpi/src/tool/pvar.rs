//! Performance variables: what the workers and the files of this process have counted, and what queues hold. Nothing
//! is counted on the immediate path.
//!
//! A handle of a counter starts at 0, stopped: it sees what is counted while it is started. A level is read as it
//! stands and cannot be set.
#![allow(unsafe_code)]

use super::{enter, no_index, no_name};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::process::Process;
use crate::rma::counts::{self, Counted};
use fastpath_io::Counter;
use fastpath_protocol::Worker;

/// One variable; its datatype is `MPI_UINT64_T`, and it is of the process.
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Its `MPI_T_PVAR_CLASS_`.
    pub class: i32,
    /// One line of description.
    pub meaning: &'static str,
    value: Value,
}

/// Where a variable's value comes from.
enum Value {
    /// The sum over the workers.
    Workers(fn(&Worker) -> u64),
    /// What the adapters of this process count under one of these names.
    Adapters(&'static [&'static str]),
    /// What is counted of files.
    Files(Counter),
    /// What is counted of windows.
    Windows(Counted),
}

impl Variable {
    /// Whether a tool may not set it; then it is also always started.
    pub fn is_level(&self) -> bool {
        self.class != MPI_T_PVAR_CLASS_COUNTER
    }
}

macro_rules! variables {
    ($($class:ident $name:literal $from:ident $value:expr, $meaning:literal;)*) => {
        /// All of them.
        pub static VARIABLES: &[Variable] = &[$(Variable {
            name: $name,
            class: variables!(@ $class),
            meaning: $meaning,
            value: Value::$from($value),
        },)*];
    };
    (@ counter) => { MPI_T_PVAR_CLASS_COUNTER };
    (@ level) => { MPI_T_PVAR_CLASS_LEVEL };
    (@ most) => { MPI_T_PVAR_CLASS_HIGHWATERMARK };
}

variables! {
    counter "requests" Workers |w| w.counters.requests, "sends and receives that took a request";
    counter "unexpected_messages" Workers |w| w.counters.unexpected,
        "messages that came before their receive and were stored";
    counter "ring_slots_sent" Workers Worker::ring_slots_sent,
        "slots of 64 B filled in rings of shared memory: one for each short message (of up to 48 \
         bytes), and for each step of a longer one";
    counter "eager_messages_by_memory" Workers |w| w.counters.eager[0].messages,
        "messages of more than 48 bytes sent whole by memory";
    counter "eager_bytes_by_memory" Workers |w| w.counters.eager[0].bytes, "bytes of them";
    counter "eager_messages_by_network" Workers |w| w.counters.eager[1].messages,
        "messages sent whole by adapters and networks";
    counter "eager_bytes_by_network" Workers |w| w.counters.eager[1].bytes, "bytes of them";
    counter "rendezvous_messages_by_memory" Workers |w| w.counters.announced[0].messages,
        "long messages announced first, to go by memory";
    counter "rendezvous_bytes_by_memory" Workers |w| w.counters.announced[0].bytes,
        "bytes of them";
    counter "rendezvous_messages_by_network" Workers |w| w.counters.announced[1].messages,
        "long messages announced first, to go by adapters and networks";
    counter "rendezvous_bytes_by_network" Workers |w| w.counters.announced[1].bytes,
        "bytes of them";
    counter "single_copies" Workers |w| w.counters.single_copies,
        "long messages received by a copy of the kernel from the sender's memory";
    counter "direct_reads" Workers |w| w.counters.direct_reads,
        "long messages read from shared memory of the sender";
    counter "direct_writes" Workers |w| w.counters.direct_writes,
        "long messages written into shared memory of the receiver";
    counter "waits" Workers |w| w.counters.waits, "waits in which the first look found nothing";
    counter "yields" Workers |w| w.counters.yields, "times that a wait let others run";
    counter "sleeps" Workers |w| w.counters.sleeps, "waits that went to sleep in the kernel";
    counter "connections" Workers |w| w.counters.connections,
        "peers that this process has connected to";
    counter "violations" Workers |w| w.counters.violations,
        "messages that no healthy peer sends, dropped";
    counter "rma_keys_resolved" Workers |w| w.rma.counters.resolved,
        "keys of remote memory resolved";
    counter "rma_operations_queued" Workers |w| w.rma.counters.queued,
        "one-sided operations that waited in a queue";
    counter "rma_operations_served" Workers |w| w.rma.counters.served,
        "one-sided operations of peers carried out by this process";
    counter "rma_puts" Windows Counted::Puts,
        "puts to windows, but for those of up to 48 bytes by load and store";
    counter "rma_bytes_put" Windows Counted::PutBytes, "bytes of them";
    counter "rma_gets" Windows Counted::Gets,
        "gets from windows, but for those of up to 48 bytes by load and store";
    counter "rma_bytes_got" Windows Counted::GotBytes, "bytes of them";
    counter "rma_accumulates" Windows Counted::Accumulates,
        "MPI_Accumulate, MPI_Get_accumulate and their forms with a request";
    counter "rma_atomics" Windows Counted::Atomics, "MPI_Fetch_and_op and MPI_Compare_and_swap";
    counter "rma_locks" Windows Counted::Locks, "locks by MPI_Win_lock";
    counter "rma_lock_waits" Windows Counted::LockWaits,
        "locks of windows for whose turn this process had to wait";
    counter "rma_flushes" Windows Counted::Flushes, "flushes of windows";
    counter "rma_epochs" Windows Counted::Epochs,
        "fences, and epochs by MPI_Win_start, MPI_Win_post and MPI_Win_lock_all";
    counter "adapter_packets_resent" Adapters &["resent"],
        "packets that an adapter has sent again";
    counter "registrations" Adapters &["registrations_made"],
        "ranges of memory registered with an adapter";
    counter "registrations_reused" Adapters &["registrations_reused"],
        "uses of a range that was registered already";
    counter "file_reads" Files Counter::Reads, "calls of the system that read files";
    counter "file_bytes_read" Files Counter::ReadBytes, "bytes that they have read";
    counter "file_writes" Files Counter::Writes, "calls of the system that write files";
    counter "file_bytes_written" Files Counter::WrittenBytes, "bytes that they have written";
    counter "file_mappings" Files Counter::Mappings,
        "ranges of files that were mapped, to store pieces in them";
    counter "file_bytes_stored" Files Counter::StoredBytes, "bytes that were stored there";
    counter "file_ranges_sieved" Files Counter::Sieved,
        "ranges of files that were read or written with what lies between the pieces";
    counter "file_bytes_sieved" Files Counter::SievedBytes,
        "bytes between the pieces that were moved with them";
    counter "file_exchanges" Files Counter::Exchanges,
        "collective accesses to files in which ranks moved bytes for others";
    counter "file_bytes_exchanged" Files Counter::ExchangedBytes,
        "bytes of this process in such accesses";
    level "unexpected_queue_length" Workers |w| w.unexpected_usage().0,
        "unexpected messages stored now";
    most "unexpected_queue_length_most" Workers Worker::unexpected_most,
        "the most unexpected messages that were stored at once";
    level "posted_queue_length" Workers Worker::posted, "receives posted now";
    most "posted_queue_length_most" Workers Worker::posted_most,
        "the most receives that were posted when a wait found nothing at first, or this was read; \
         waits count them in jobs of up to 255 ranks";
    level "unexpected_queue_bytes" Workers |w| w.unexpected_usage().1,
        "memory that unexpected messages take now, in bytes";
}

/// A variable behind a handle.
#[derive(Debug)]
pub(super) struct Handle {
    session: usize,
    index: usize,
    /// What was counted while it was started before, less resets; may wrap.
    kept: u64,
    /// The process's value when it was started last; none while it is stopped.
    since: Option<u64>,
}

impl Handle {
    /// The handle's value where the process's is `now`.
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

/// A variable by its number.
///
/// # Errors
/// It does not exist.
pub fn find(index: i32) -> Result<&'static Variable> {
    super::check()?;
    let found = usize::try_from(index).ok();
    let found = found.and_then(|index| VARIABLES.get(index));
    found.ok_or_else(|| no_index("performance variable", index))
}

/// The number of a variable by its name and class.
///
/// # Errors
/// It does not exist.
pub fn index_of(name: &str, class: i32) -> Result<usize> {
    super::check()?;
    let found =
        VARIABLES.iter().position(|variable| variable.name == name && variable.class == class);
    found.ok_or_else(|| no_name("performance variable", name))
}

/// What the process has of a variable; 0 while MPI is not initialised.
fn current(p: &Process, index: usize) -> u64 {
    if p.engine().is_none() {
        return 0;
    }
    match VARIABLES[index].value {
        // SAFETY: a worker lives as long as the engine, and the caller is inside MPI.
        Value::Workers(value) => p.workers().map(|(_, w)| unsafe { value(&*w) }).sum(),
        Value::Adapters(names) => p
            .workers()
            // SAFETY: as above.
            .flat_map(|(_, w)| unsafe { (*w).interfaces().adapter_counts() })
            .flat_map(|counts| counts.numbers)
            .filter(|(name, _)| names.contains(name))
            .map(|(_, number)| number)
            .sum(),
        Value::Files(counter) => fastpath_io::PROCESS.get(counter),
        Value::Windows(counted) => counts::total(p, counted),
    }
}

/// `MPI_T_pvar_session_create`.
///
/// # Errors
/// The interface is not initialised.
pub fn open_session() -> Result<usize> {
    Ok(enter()?.sessions.insert(()))
}

/// `MPI_T_pvar_session_free`, with the handles of the session.
///
/// # Errors
/// There is no such session.
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

/// `MPI_T_pvar_handle_alloc`: the handle; each variable has one element.
///
/// # Errors
/// There is no such session or variable.
pub fn open(session: usize, index: i32) -> Result<usize> {
    find(index)?;
    let mut tool = enter()?;
    tool.sessions.get(session).ok_or_else(|| no_session(session))?;
    Ok(tool.pvars.insert(Handle { session, index: index as usize, kept: 0, since: None }))
}

/// `MPI_T_pvar_handle_free`.
///
/// # Errors
/// The session has no such handle.
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

/// Runs `act` on a handle, with the process's value.
fn with<T>(
    p: &Process, (session, handle): (usize, usize), act: impl FnOnce(&mut Handle, u64) -> Result<T>,
) -> Result<T> {
    let mut tool = enter()?;
    let found = find_handle(&mut tool, session, handle)?;
    let now = current(p, found.index);
    act(found, now)
}

/// Does something with a counter, or, with `MPI_T_PVAR_ALL_HANDLES`, with all counters of the session.
fn with_counters(
    p: &Process, (session, handle): (usize, usize), refused: i32, act: impl Fn(&mut Handle, u64),
) -> Result {
    if handle != MPI_T_PVAR_ALL_HANDLES {
        return with(p, (session, handle), |handle, now| {
            let variable = &VARIABLES[handle.index];
            if variable.is_level() {
                let why = format!(
                    "{} is a level: it cannot be started, stopped or written",
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

/// `MPI_T_pvar_start`.
///
/// # Errors
/// The session has no such handle; it is a level.
pub fn start(p: &Process, session: usize, handle: usize) -> Result {
    let refused = MPI_T_ERR_PVAR_NO_STARTSTOP;
    with_counters(p, (session, handle), refused, |handle, now| {
        handle.since = handle.since.or(Some(now));
    })
}

/// `MPI_T_pvar_stop`.
///
/// # Errors
/// As [`start`].
pub fn stop(p: &Process, session: usize, handle: usize) -> Result {
    let refused = MPI_T_ERR_PVAR_NO_STARTSTOP;
    with_counters(p, (session, handle), refused, |handle, now| {
        handle.kept = handle.value(now);
        handle.since = None;
    })
}

/// `MPI_T_pvar_read`.
///
/// # Errors
/// The session has no such handle.
pub fn read(p: &Process, session: usize, handle: usize) -> Result<u64> {
    with(p, (session, handle), |handle, now| Ok(handle.value(now)))
}

/// `MPI_T_pvar_readreset`: reads and resets as one.
///
/// # Errors
/// The session has no such handle; it is a level.
pub fn read_and_reset(p: &Process, session: usize, handle: usize) -> Result<u64> {
    with(p, (session, handle), |handle, now| {
        if VARIABLES[handle.index].is_level() {
            return Err(Error::new(MPI_T_ERR_PVAR_NO_WRITE, "a level cannot be reset"));
        }
        let value = handle.value(now);
        handle.set(0, now);
        Ok(value)
    })
}

/// `MPI_T_pvar_write`, and with 0 `MPI_T_pvar_reset`.
///
/// # Errors
/// The session has no such handle; it is a level.
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
