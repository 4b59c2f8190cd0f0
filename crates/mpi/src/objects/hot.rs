//! Tables of the immediate path: one cache line per communicator, one pair of words per datatype, one word per
//! predefined datatype for queries.
//!
//! The low 16 bits of a handle are the index, and the entry's key must equal the handle. An entry of zeros matches no
//! handle. An entry of zeros means that there is no object: MPI is not initialised, the object was freed, or a feature
//! is switched off. One comparison detects all these cases, and the ordinary path then reports the error. Handles
//! beyond 65,536 of a kind take the ordinary path too.
//!
//! SAFETY: tables are written under the lock, or by the only thread in MPI. The entry of an object does not change
//! until the object is freed. A caller may use an object only while no thread frees it.
#![allow(unsafe_code)]

use crate::common::consts::{MPI_COMM_SELF, MPI_COMM_WORLD};
use crate::common::lock;
use crate::common::table::FIRST_USER;
use crate::objects::comm::Comm;
pub use crate::objects::comm::HotComm;
use crate::objects::datatype::Basic;
use fastpath_base::sync::{StaticOrdering, StaticUsize};
use fastpath_protocol::Worker;
use std::cell::UnsafeCell;
use std::ptr;

const ENTRIES: usize = 1 << 16;

const EMPTY: HotComm = HotComm {
    send_key: 0,
    recv_key: 0,
    own_key: 0,
    from_key: 0,
    endpoints: ptr::null(),
    world: ptr::null(),
    size: 0,
    comm: ptr::null(),
};

/// Datatype entry of the immediate path: contiguous, committed, of 1 to 2^31 - 1 bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct HotType {
    /// The handle.
    pub key: u64,
    /// Bytes of one element.
    pub size: u64,
}

/// Answers to queries of a predefined datatype, in bytes. The lower bound is 0. All zeros if the ordinary path must
/// answer: MPI does not run, calls are recorded, or there is no such type.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct NamedType {
    /// Data bytes.
    pub size: u16,
    /// Bytes from one element to the next.
    pub extent: u16,
    /// Bytes up to the end of the data.
    pub true_extent: u16,
    /// Basic elements; 2 for a pair.
    pub elements: u16,
}

const NO_TYPE: NamedType = NamedType { size: 0, extent: 0, true_extent: 0, elements: 0 };

/// Smallest handle of a predefined datatype (MPI 5.0, section 20.3).
const FIRST_NAMED: usize = 1 << 9;
const NAMED_TYPES: usize = 1 << 8;

struct HotTable<T>(UnsafeCell<T>);

// SAFETY: a table is written under the lock, or by the only thread in MPI. It is read without the lock only while the
// keys of entries allow immediate operations. At MPI_THREAD_MULTIPLE, `key` hides entries from other threads.
unsafe impl<T> Sync for HotTable<T> {}

// The tables are several variables, because the address of a variable takes one instruction, and the address of a part
// of a variable takes three.
static COMMS: HotTable<[HotComm; ENTRIES]> = HotTable(UnsafeCell::new([EMPTY; ENTRIES]));
static TYPES: HotTable<[HotType; ENTRIES]> =
    HotTable(UnsafeCell::new([HotType { key: 0, size: 0 }; ENTRIES]));
static NAMED: HotTable<[NamedType; NAMED_TYPES]> =
    HotTable(UnsafeCell::new([NO_TYPE; NAMED_TYPES]));
static WORKER: HotTable<*mut Worker> = HotTable(UnsafeCell::new(ptr::null_mut()));
static HIDDEN_WORKER: HotTable<*mut Worker> = HotTable(UnsafeCell::new(ptr::null_mut()));
/// End of the used part of `COMMS`: the highest index that a communicator made at run time has had, plus 1.
static COMMS_END: StaticUsize = StaticUsize::new(FIRST_USER);

/// Returns the entry at a communicator's handle. The entry's keys show whether it belongs to that communicator.
#[inline]
pub fn comm(handle: usize) -> &'static HotComm {
    // SAFETY: the index is masked. No thread writes the entry of a live communicator. While fewer than `ENTRIES`
    // communicators are alive, the entry is that of the caller's communicator.
    unsafe { &(*COMMS.0.get())[handle & (ENTRIES - 1)] }
}

/// Returns the entry at a datatype's handle. The entry's key shows whether it belongs to that datatype.
#[inline]
pub fn datatype(handle: usize) -> &'static HotType {
    // SAFETY: the index is masked, and no thread writes the entry while a call of this thread uses the datatype.
    unsafe { &(*TYPES.0.get())[handle & (ENTRIES - 1)] }
}

/// Answers queries of a predefined datatype; `None` if the ordinary path must answer. The answer is valid with several
/// threads too, because entries do not change while MPI runs.
#[inline]
pub fn named_type(handle: usize) -> Option<NamedType> {
    // SAFETY: the table is written only at initialisation and finalisation, when no other thread is in MPI.
    let table = unsafe { &*NAMED.0.get() };
    let named = table.get(handle.wrapping_sub(FIRST_NAMED))?;
    (named.size != 0).then_some(*named)
}

/// Returns rank and size of an intracommunicator of the immediate path, including one behind a lock ([`sends_inside`]).
#[inline]
pub fn rank_and_size(handle: usize) -> Option<(i32, i32)> {
    let entry = comm(handle);
    let shown = entry.send_key == handle as u64
        // If the lock is not enabled, a key that is the complement means recorded trace points. Do not accept it then.
        || (lock::is_enabled() && entry.send_key == key::<INSIDE>(handle));
    let known = shown && !entry.comm.is_null();
    let rank = entry.own_key.wrapping_sub(entry.from_key);
    known.then_some((rank as i32, entry.size as i32))
}

/// Returns the worker; null before initialisation, after finalisation, and while keys hide the entries ([`key`]).
#[inline]
pub fn worker() -> *mut Worker {
    // SAFETY: the pointer is written only at initialisation and finalisation, when no other thread is in MPI.
    unsafe { *WORKER.0.get() }
}

/// Returns the worker if the immediate path runs inside a lock ([`key`]); otherwise null.
#[inline]
pub fn hidden_worker() -> *mut Worker {
    // SAFETY: the pointer is written only at initialisation and finalisation.
    unsafe { *HIDDEN_WORKER.0.get() }
}

/// Returns whether the immediate path runs inside a lock; see [`hidden_worker`].
#[inline]
pub fn is_hidden() -> bool {
    !hidden_worker().is_null()
}

/// Returns the worker for variant `WAY` of the immediate path; null if that variant is not in use.
#[inline(always)] // `fastpath bench instructions` counts MPI_Recv
pub fn worker_of<const WAY: u8>() -> *mut Worker {
    match WAY {
        OPEN => worker(),
        _ => hidden_worker(),
    }
}

/// Returns whether the immediate path may use the communicator without a lock. If not, trace points are recorded,
/// threads need the lock, or the ordinary path must answer.
#[inline]
pub fn sends_openly(handle: usize) -> bool {
    comm(handle).send_key == key::<OPEN>(handle)
}

/// Returns whether the immediate path may look up a communicator inside the lock. Called before the lock is taken. The
/// entry does not change until then, because no other thread may free a communicator that this thread uses.
#[inline(always)] // `fastpath bench instructions` counts MPI_Send at MPI_THREAD_MULTIPLE
pub fn sends_inside(handle: usize) -> bool {
    comm(handle).send_key == key::<INSIDE>(handle)
}

/// Returns whether receives may use the communicator inside the lock; see [`sends_inside`].
#[inline(always)] // `fastpath bench instructions` counts MPI_Recv at MPI_THREAD_MULTIPLE
pub fn receives_inside(handle: usize) -> bool {
    comm(handle).recv_key == key::<INSIDE>(handle)
}

/// Immediate path without a lock and without recorded trace points.
pub const OPEN: u8 = 0;
/// Immediate path with recorded trace points or under the lock of `MPI_THREAD_MULTIPLE`.
pub const INSIDE: u8 = 1;
/// Variant [`INSIDE`], if the caller has already compared the communicator's key.
pub const SEEN: u8 = 2;
/// Key of a communicator's entry. If trace points are recorded, and at `MPI_THREAD_MULTIPLE`, the key is the handle's
/// complement. The immediate path then finds no entry, and needs no test of its own for these cases. The declined call
/// then takes the immediate path inside the lock, or with points around it (`traced`).
#[inline(always)] // `fastpath bench instructions` counts MPI_Send
pub const fn key<const WAY: u8>(handle: usize) -> u64 {
    match WAY {
        OPEN => handle as u64,
        _ => !(handle as u64),
    }
}

/// Kinds of immediate operations that a process may use.
#[derive(Debug, Clone, Copy, Default)]
pub struct Allowed {
    /// Immediate sends.
    pub send: bool,
    /// Immediate receives.
    pub recv: bool,
    /// Calls with contiguous datatypes. If false, no call is immediate, and neither is a query of a predefined type.
    pub datatype: bool,
    /// Collective calls, and queries of rank and size.
    pub collective: bool,
    /// Whether trace points are recorded. If so, immediate calls go through `traced`.
    pub traced: bool,
}

pub(crate) fn set_worker(worker: *mut Worker, hidden: bool) {
    let none = ptr::null_mut();
    let (plain, other) = match hidden {
        false => (worker, none),
        true => (none, worker),
    };
    // SAFETY: the caller is under the lock, or is the only thread in MPI.
    unsafe {
        *WORKER.0.get() = plain;
        *HIDDEN_WORKER.0.get() = other;
    }
}

/// Publishes a communicator to the immediate path.
pub(crate) fn set_comm(allowed: Allowed, handle: usize, comm: &Comm) {
    if comm.endpoints.is_empty() || (lock::is_enabled() && allowed.traced) {
        return;
    }
    let key = match allowed.traced || lock::is_enabled() {
        false => key::<OPEN>(handle),
        true => key::<INSIDE>(handle),
    };
    let hides_comm = comm.is_inter() || !allowed.collective;
    let entry = HotComm {
        send_key: if allowed.send { key } else { 0 },
        recv_key: if allowed.recv { key } else { 0 },
        own_key: comm.context.key(comm.rank),
        from_key: comm.context.key(0),
        endpoints: comm.endpoints.as_ptr(),
        world: comm.peer_group().world_ranks().as_ptr(),
        size: comm.peer_count(),
        comm: if hides_comm { ptr::null() } else { comm },
    };
    // SAFETY: the caller is under the lock, or is the only thread in MPI. The pointers live as long as the
    // communicator, which [`clear_comm`] removes before it is freed.
    let slot = unsafe { &mut (*COMMS.0.get())[handle & (ENTRIES - 1)] };
    if slot.send_key == 0 && slot.recv_key == 0 {
        *slot = entry;
        COMMS_END.fetch_max((handle & (ENTRIES - 1)) + 1, StaticOrdering::Relaxed);
    }
}

/// Clears all tables in a forked child, without a lock or an allocation.
pub(crate) fn clear_all() {
    set_worker(ptr::null_mut(), false);
    clear_named_all();
    // SAFETY: the child has one thread.
    let comms = unsafe { &mut *COMMS.0.get() };
    let end = COMMS_END.load(StaticOrdering::Relaxed);
    let (predefined, made) = comms[..end].split_at_mut(FIRST_USER);
    for handle in [MPI_COMM_WORLD, MPI_COMM_SELF] {
        predefined[handle] = EMPTY;
    }
    made.fill(EMPTY);
}

/// Removes a communicator from the immediate path, before it is freed.
pub(crate) fn clear_comm(handle: usize) {
    // SAFETY: the caller is under the lock, or is the only thread in MPI.
    let slot = unsafe { &mut (*COMMS.0.get())[handle & (ENTRIES - 1)] };
    let own = [key::<OPEN>(handle), key::<INSIDE>(handle)];
    if own.contains(&slot.send_key) || own.contains(&slot.recv_key) {
        (slot.send_key, slot.recv_key) = (0, 0);
    }
}

/// Publishes a contiguous, committed datatype of `size` bytes to the immediate path.
pub(crate) fn set_type(handle: usize, size: u64) {
    // SAFETY: the caller is under the lock, or is the only thread in MPI.
    let slot = unsafe { &mut (*TYPES.0.get())[handle & (ENTRIES - 1)] };
    if (1..=i32::MAX as u64).contains(&size) && slot.key == 0 {
        *slot = HotType { key: handle as u64, size };
    }
}

/// Removes a datatype from the immediate path, before it is freed.
pub(crate) fn clear_type(handle: usize) {
    // SAFETY: the caller is under the lock, or is the only thread in MPI.
    let slot = unsafe { &mut (*TYPES.0.get())[handle & (ENTRIES - 1)] };
    if slot.key == handle as u64 {
        *slot = HotType { key: 0, size: 0 };
    }
}

pub(crate) fn set_named_all() {
    for basic in Basic::all().filter(|basic| basic.is_supported()) {
        let Ok(layout) = basic.layout() else { continue };
        let named = NamedType {
            size: layout.size() as u16,
            extent: layout.extent() as u16,
            true_extent: layout.true_extent() as u16,
            elements: basic.elements() as u16,
        };
        // SAFETY: no other thread is inside MPI yet.
        let table = unsafe { &mut *NAMED.0.get() };
        if let Some(entry) = table.get_mut(usize::from(basic.handle).wrapping_sub(FIRST_NAMED)) {
            *entry = named;
        }
    }
}

pub(crate) fn clear_named_all() {
    // SAFETY: no other thread may call MPI while it is finalised.
    unsafe { *NAMED.0.get() = [NO_TYPE; NAMED_TYPES] };
}
