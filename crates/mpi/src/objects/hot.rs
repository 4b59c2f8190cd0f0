//! What the immediate path reads: one cache line per communicator, one pair of words per datatype, one word per
//! predefined datatype for queries.
//!
//! A handle's low 16 bits are an index here, and the entry's key must equal the handle. An entry of zeros (before
//! initialisation, after a free, where a feature is switched off) matches no handle, so that one comparison covers them
//! all and the ordinary path says what is wrong. Handles beyond 65,536 of a kind simply take the ordinary path.
#![allow(unsafe_code)]

use crate::common::consts::{MPI_COMM_SELF, MPI_COMM_WORLD};
use crate::common::lock;
use crate::common::places;
pub use crate::common::places::hidden_worker;
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
    place: 0,
    comm: ptr::null(),
};

/// A datatype as the immediate path sees it: contiguous, committed, of 1 to 2^31 - 1 bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct HotType {
    /// The handle.
    pub key: u64,
    /// Bytes of one element.
    pub size: u64,
}

/// What a predefined datatype answers to queries, in bytes; its lower bounds are 0. Of zeros where the ordinary path
/// has to answer: MPI does not run, calls are recorded, or there is no such type.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct NamedType {
    /// Data bytes.
    pub size: u16,
    /// Bytes from one element to the next.
    pub extent: u16,
    /// Bytes to behind the last that holds data.
    pub true_extent: u16,
    /// Basic elements: 2 for a pair.
    pub elements: u16,
}

const NO_TYPE: NamedType = NamedType { size: 0, extent: 0, true_extent: 0, elements: 0 };

/// The handles of predefined datatypes begin here (MPI 5.0, section 20.3).
const FIRST_NAMED: usize = 1 << 9;
/// So many numbers are kept for them.
const NAMED_TYPES: usize = 1 << 8;

/// A variable of the tables.
struct Table<T>(UnsafeCell<T>);

// SAFETY: written inside MPI calls that hold the lock or are alone; read without it only while the
// entries' keys allow immediate operations: at MPI_THREAD_MULTIPLE they hide (`key`) from whoever has not entered.
unsafe impl<T> Sync for Table<T> {}

// Three variables rather than one: the address of each is one instruction, of a part of one three.
static COMMS: Table<[HotComm; ENTRIES]> = Table(UnsafeCell::new([EMPTY; ENTRIES]));
static NO_COMM: Table<HotComm> = Table(UnsafeCell::new(EMPTY));
static TYPES: Table<[HotType; ENTRIES]> =
    Table(UnsafeCell::new([HotType { key: 0, size: 0 }; ENTRIES]));
static NAMED: Table<[NamedType; NAMED_TYPES]> = Table(UnsafeCell::new([NO_TYPE; NAMED_TYPES]));
static WORKER: Table<*mut Worker> = Table(UnsafeCell::new(ptr::null_mut()));
/// End of the part of `COMMS` that has been used by communicators made at run time.
static COMMS_END: StaticUsize = StaticUsize::new(FIRST_USER);

/// The entry that a communicator's handle selects; its keys say whether it is that one's.
#[inline]
pub fn comm(handle: usize) -> &'static HotComm {
    // SAFETY: the index is masked. Nobody writes the entry of a communicator that lives, and the caller's does, while
    // fewer than `ENTRIES` of them live.
    unsafe { &(*COMMS.0.get())[handle & (ENTRIES - 1)] }
}

/// The entry that a datatype's handle selects; its key says whether it is that one's.
#[inline]
pub fn datatype(handle: usize) -> &'static HotType {
    // SAFETY: the index is masked; nobody writes while a call of this thread runs.
    unsafe { &(*TYPES.0.get())[handle & (ENTRIES - 1)] }
}

/// What a predefined datatype answers to queries; none where the ordinary path has to. With threads too: the entries
/// stay as they are while MPI runs.
#[inline]
pub fn named_type(handle: usize) -> Option<NamedType> {
    // SAFETY: written at initialisation and finalisation alone.
    let table = unsafe { &*NAMED.0.get() };
    let named = table.get(handle.wrapping_sub(FIRST_NAMED))?;
    (named.size != 0).then_some(*named)
}

/// Rank and size of an intracommunicator that the immediate path knows, also where it would have to take a lock for
/// more than that ([`sends_inside`]).
#[inline]
pub fn rank_and_size(handle: usize) -> Option<(i32, i32)> {
    let entry = comm(handle);
    let shown = entry.send_key == handle as u64 || is_behind_lock(entry, handle);
    let known = shown && !entry.comm.is_null();
    let rank = entry.own_key.wrapping_sub(entry.from_key);
    known.then_some((rank as i32, entry.size as i32))
}

/// Whether an entry is a communicator's that hides since threads need the lock: not since points are recorded.
#[inline]
fn is_behind_lock(entry: &HotComm, handle: usize) -> bool {
    let hidden = [key::<INSIDE>(handle), key::<FURTHER>(handle), key::<SPREAD>(handle)];
    lock::is_enabled() && hidden.contains(&entry.send_key)
}

/// The worker; null before initialisation, after finalisation and where the tables hide.
#[inline]
pub fn worker() -> *mut Worker {
    // SAFETY: written at initialisation and finalisation alone.
    unsafe { *WORKER.0.get() }
}

/// Whether the immediate path goes inside a lock.
#[inline]
pub fn is_hidden() -> bool {
    !hidden_worker().is_null()
}

/// The entry that a way of the immediate path uses for messages with that rank and tag.
#[inline(always)] // `fastpath bench instructions` counts MPI_Recv
pub fn entry<const WAY: u8>(handle: usize, peer: i32, tag: i32) -> &'static HotComm {
    match WAY {
        SPREAD => lane(handle, peer, tag),
        _ => comm(handle),
    }
}

/// The worker that a way of the immediate path to an entry uses; null if it has none.
#[inline(always)] // `fastpath bench instructions` counts MPI_Recv
pub fn worker_of<const WAY: u8>(entry: &HotComm) -> *mut Worker {
    match WAY {
        OPEN => worker(),
        INSIDE | SEEN => hidden_worker(),
        _ => places::further_worker(entry.place),
    }
}

/// The same for the worker of a request.
#[inline(always)] // `fastpath bench instructions` counts MPI_Wait_isend
pub fn worker_of_request<const WAY: u8>(handle: usize) -> *mut Worker {
    match WAY {
        OPEN => worker(),
        INSIDE | SEEN => hidden_worker(),
        _ => places::further_worker(places::of_request(handle)),
    }
}

/// Whether the immediate path may look a communicator up as it stands. Where it may not, points are recorded, threads
/// need the lock, or the ordinary path has to answer.
#[inline]
pub fn sends_openly(handle: usize) -> bool {
    comm(handle).send_key == key::<OPEN>(handle)
}

/// Whether the immediate path may look a communicator up inside the lock of the first worker. Asked before it is taken:
/// a thread may use a communicator only while others do not free it, so its entry stays.
#[inline(always)] // `fastpath bench instructions` counts MPI_Send at MPI_THREAD_MULTIPLE
pub fn sends_inside(handle: usize) -> bool {
    comm(handle).send_key == key::<INSIDE>(handle)
}

/// As [`sends_inside`], for receives.
#[inline(always)] // `fastpath bench instructions` counts MPI_Recv at MPI_THREAD_MULTIPLE
pub fn receives_inside(handle: usize) -> bool {
    comm(handle).recv_key == key::<INSIDE>(handle)
}

/// The place of the further worker that carries a communicator's sends; none where it is the first one, or where the
/// immediate path does not know it.
#[inline]
pub fn further_sends(handle: usize) -> Option<u32> {
    let entry = comm(handle);
    (entry.send_key == key::<FURTHER>(handle)).then_some(entry.place)
}

/// As [`further_sends`], for receives.
#[inline]
pub fn further_receives(handle: usize) -> Option<u32> {
    let entry = comm(handle);
    (entry.recv_key == key::<FURTHER>(handle)).then_some(entry.place)
}

/// The place of the further worker that carries a send of a communicator whose messages are spread; none where they
/// are not, or where the immediate path does not know them.
#[inline]
pub fn spread_sends(handle: usize, peer: i32, tag: i32) -> Option<u32> {
    let shown = comm(handle).send_key == key::<SPREAD>(handle);
    let place = shown.then(|| lane(handle, peer, tag).place)?;
    (place != 0).then_some(place)
}

/// As [`spread_sends`], for receives.
#[inline]
pub fn spread_receives(handle: usize, peer: i32, tag: i32) -> Option<u32> {
    let shown = comm(handle).recv_key == key::<SPREAD>(handle);
    let place = shown.then(|| lane(handle, peer, tag).place)?;
    (place != 0).then_some(place)
}

/// The entry for some messages of a communicator that the tables show as spread; of zeros where the arguments name no
/// worker.
#[inline]
fn lane(handle: usize, peer: i32, tag: i32) -> &'static HotComm {
    // SAFETY: the communicator lives while it is in the table, and its entries were made before it came there.
    let found = unsafe { &*comm(handle).comm }.spread.as_ref();
    // SAFETY: nobody writes it.
    found.and_then(|spread| spread.entry(peer, tag)).unwrap_or(unsafe { &*NO_COMM.0.get() })
}

/// The immediate path as it stands.
pub const OPEN: u8 = 0;
/// The same with something around it: points, or the lock of `MPI_THREAD_MULTIPLE`.
pub const INSIDE: u8 = 1;
/// The same inside the lock of a further worker; the caller has seen that the tables show the communicator so.
pub const FURTHER: u8 = 2;
/// As [`INSIDE`], where the caller has seen the same.
pub const SEEN: u8 = 3;
/// As [`FURTHER`], by the entry for the message's rank and tag ([`crate::objects::comm::spread`]).
pub const SPREAD: u8 = 4;

/// The key under which a communicator stands here. Where points are recorded, and at `MPI_THREAD_MULTIPLE`, it is the
/// handle's complement: the immediate path finds nothing, and has no test of its own for it. What it declines goes the
/// same way with points around it (`traced`) or inside the lock. Where a further worker carries its messages the key
/// is yet another one.
#[inline(always)] // `fastpath bench instructions` counts MPI_Send
pub const fn key<const WAY: u8>(handle: usize) -> u64 {
    match WAY {
        OPEN => handle as u64,
        INSIDE | SEEN => !(handle as u64),
        SPREAD => !(handle as u64) ^ 1 << 61,
        _ => !(handle as u64) ^ 1 << 62,
    }
}

/// Which immediate operations a process may use.
#[derive(Debug, Clone, Copy, Default)]
pub struct Allowed {
    /// Send-immediate.
    pub send: bool,
    /// Receive-immediate.
    pub recv: bool,
    /// The shortcut for contiguous datatypes; without it no call is immediate, queries of predefined ones included.
    pub datatype: bool,
    /// Collective calls, and the queries of rank and size.
    pub collective: bool,
    /// Whether points are recorded: then what is immediate goes through `traced`.
    pub traced: bool,
}

pub(crate) fn set_worker(worker: *mut Worker, hidden: bool) {
    let nobody = ptr::null_mut();
    let (plain, other) = match hidden {
        false => (worker, nobody),
        true => (nobody, worker),
    };
    // SAFETY: under the lock or alone.
    unsafe { *WORKER.0.get() = plain };
    places::set_hidden_worker(other);
}

/// Publishes a communicator to the immediate path.
pub(crate) fn set_comm(allowed: Allowed, handle: usize, comm: &Comm) {
    if comm.endpoints.is_empty() || (lock::is_enabled() && allowed.traced) {
        return;
    }
    let key = match allowed.traced || lock::is_enabled() {
        _ if comm.spread.is_some() => key::<SPREAD>(handle),
        _ if comm.place != 0 => key::<FURTHER>(handle),
        false => key::<OPEN>(handle),
        true => key::<INSIDE>(handle),
    };
    // A spread one has no immediate collective calls, and its messages find their way by the communicator.
    let hides_comm = comm.is_inter() || (!allowed.collective && comm.spread.is_none());
    let entry = HotComm {
        send_key: if allowed.send { key } else { 0 },
        recv_key: if allowed.recv { key } else { 0 },
        own_key: comm.context.key(comm.rank),
        from_key: comm.context.key(0),
        endpoints: comm.direct_endpoints().as_ptr(),
        world: comm.peer_group().world_ranks().as_ptr(),
        size: comm.peer_count(),
        place: comm.place,
        comm: if hides_comm { ptr::null() } else { comm },
    };
    if let Some(spread) = &comm.spread {
        spread.make_entries(&entry);
    }
    // SAFETY: under the lock or alone; the pointers live as long as the communicator, which is
    // taken out by [`clear_comm`] before it goes.
    let slot = unsafe { &mut (*COMMS.0.get())[handle & (ENTRIES - 1)] };
    if slot.send_key == 0 && slot.recv_key == 0 {
        *slot = entry;
        COMMS_END.fetch_max((handle & (ENTRIES - 1)) + 1, StaticOrdering::Relaxed);
    }
}

/// Empties all that calls read, in a forked child: takes no lock and no memory.
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

/// Takes a communicator out of the immediate path, before it is freed.
pub(crate) fn clear_comm(handle: usize) {
    // SAFETY: under the lock or alone.
    let slot = unsafe { &mut (*COMMS.0.get())[handle & (ENTRIES - 1)] };
    let own =
        [key::<OPEN>(handle), key::<INSIDE>(handle), key::<FURTHER>(handle), key::<SPREAD>(handle)];
    if own.contains(&slot.send_key) || own.contains(&slot.recv_key) {
        (slot.send_key, slot.recv_key) = (0, 0);
    }
}

/// Publishes a contiguous, committed datatype of `size` bytes to the immediate path.
pub(crate) fn set_type(handle: usize, size: u64) {
    // SAFETY: under the lock or alone.
    let slot = unsafe { &mut (*TYPES.0.get())[handle & (ENTRIES - 1)] };
    if (1..=i32::MAX as u64).contains(&size) && slot.key == 0 {
        *slot = HotType { key: handle as u64, size };
    }
}

/// Takes a datatype out of the immediate path, before it is freed.
pub(crate) fn clear_type(handle: usize) {
    // SAFETY: under the lock or alone.
    let slot = unsafe { &mut (*TYPES.0.get())[handle & (ENTRIES - 1)] };
    if slot.key == handle as u64 {
        *slot = HotType { key: 0, size: 0 };
    }
}

/// Publishes what queries of the predefined datatypes answer.
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

/// Takes back what queries of the predefined datatypes answer, at finalisation.
pub(crate) fn clear_named_all() {
    // SAFETY: no other thread may call MPI while it is finalised.
    unsafe { *NAMED.0.get() = [NO_TYPE; NAMED_TYPES] };
}
