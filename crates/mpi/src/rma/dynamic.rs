//! Dynamic windows (MPI 5.0, section 12.2.4). Each rank lists its attached memory in memory that the other ranks read,
//! so that attaching needs no message.
//!
//! The list begins with a version number. Every change increases the number, and it is odd during a change. The number
//! of entries, a key and the entries follow, each with address, length and key. A rank that has read a mapped list
//! later reads only the version number, until that changes. A few entries fit in the list itself. If there are more,
//! all entries are in separate memory that the key names. When the separate memory is full, larger memory replaces it.
//! The replaced memory stays allocated until the window is freed.
//!
//! **LOCKED WORKER.** The worker lives while MPI runs, and the calling thread is inside it. References to the worker or
//! to a reached part are made anew after each call that may let other threads enter MPI.
#![allow(unsafe_code)]

use super::window::{Flavor, Window};
use super::{create, error};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::objects::datatype::{is_memory, name_special};
use crate::process::Process;
use fastpath_base::sync::{AtomicU64, Ordering, fence};
use fastpath_protocol::Worker;
use fastpath_protocol::rma::{PACKED_BYTES, PackedKey, RegionId, RemoteKey, key_of_words};
use std::cell::RefCell;
use std::mem::offset_of;

/// Maximum number of pieces of memory that a rank can attach at the same time.
const MOST: usize = 1 << 13;
/// Maximum number of entries that fit in the list itself.
const FEW: usize = 5;

#[repr(C)]
#[derive(Clone, Copy)]
struct AttachedEntry {
    address: u64,
    len: u64,
    key: PackedKey,
}

#[repr(C)]
struct AttachedList {
    /// Version number, odd while the owner changes the other fields.
    number: AtomicU64,
    count: AtomicU64,
    /// Key of the separate memory, if there are more than [`FEW`] entries.
    longer: PackedKey,
    entries: [AttachedEntry; FEW],
}

const ENTRIES_AT: u64 = offset_of!(AttachedList, entries) as u64;
const ENTRY_BYTES: usize = size_of::<AttachedEntry>();

pub(super) const LIST_BYTES: usize = size_of::<AttachedList>();
pub(super) const LIST_HEAD: usize = offset_of!(AttachedList, entries);
const _: () = assert!(LIST_BYTES <= 512);

/// Separate memory for a list of more than [`FEW`] entries.
#[derive(Clone, Copy)]
pub(super) struct ExtendedList {
    entries: *mut AttachedEntry,
    key: PackedKey,
    capacity: usize,
}

impl ExtendedList {
    pub const NONE: ExtendedList =
        ExtendedList { entries: std::ptr::null_mut(), key: [0; PACKED_BYTES], capacity: 0 };
}

/// Memory that this process has attached: address, length, and id of the exposed region.
pub(super) type Pieces = RefCell<Vec<(usize, usize, Option<RegionId>)>>;

/// Attached memory of another rank, from this process's last read of the list.
#[derive(Default)]
pub(super) struct AttachedMemory {
    number: u64,
    pieces: Vec<(AttachedEntry, Option<Box<RemoteKey>>)>,
    /// Separate memory of the list, if it has more than [`FEW`] entries and is mapped.
    longer: Option<(PackedKey, Box<RemoteKey>)>,
}

impl Window {
    fn require_dynamic(&self) -> Result {
        match self.flavor {
            Flavor::Dynamic => Ok(()),
            _ => Err(Error::new(
                MPI_ERR_RMA_FLAVOR,
                format!("the window ({}) is not dynamic", self.title()),
            )
            .with_advice(Some("attach memory to a window of MPI_Win_create_dynamic"))),
        }
    }

    fn list(&self) -> *mut AttachedList {
        self.base_of_list().cast()
    }

    fn make_room(&self, p: &Process, count: usize) -> Result<ExtendedList> {
        let longer = self.longer.get();
        if count <= FEW || count <= longer.capacity {
            return Ok(longer);
        }
        let capacity = count.next_power_of_two();
        // SAFETY: LOCKED WORKER.
        let worker = unsafe { &mut *p.worker()? };
        let own = &mut *self.own.borrow_mut();
        let memory = create::allocate(worker, own, capacity * ENTRY_BYTES, 64)?;
        // SAFETY: the memory is freed with the window, after it is withdrawn.
        let exposed = unsafe { worker.expose_memory(memory, capacity * ENTRY_BYTES) };
        own.exposed.push(exposed.id);
        let longer = ExtendedList { entries: memory.cast(), key: exposed.key, capacity };
        self.longer.set(longer);
        Ok(longer)
    }

    /// Changes the entries by `change`, and publishes the list to the other ranks.
    fn publish(&self, p: &Process, change: impl FnOnce(&mut Vec<AttachedEntry>)) -> Result {
        // SAFETY: only this process writes its own list, whose memory lives as long as the window.
        unsafe {
            let list = self.list();
            let few = (&raw mut (*list).entries).cast::<AttachedEntry>();
            let count = (*list).count.load(Ordering::Relaxed) as usize;
            let first = if count <= FEW { few } else { self.longer.get().entries };
            let mut entries: Vec<AttachedEntry> =
                (0..count).map(|at| first.add(at).read()).collect();
            change(&mut entries);
            let longer = self.make_room(p, entries.len())?;
            let first = if entries.len() <= FEW { few } else { longer.entries };
            let number = (*list).number.load(Ordering::Relaxed);
            (*list).number.store(number + 1, Ordering::Relaxed);
            // ORDERING: a reader that sees a part of the following stores also sees the odd number. Partners are the
            // fence and the acquire in `read_near`. Remote readers copy whole words in the same order.
            fence(Ordering::SeqCst);
            for (at, entry) in entries.iter().enumerate() {
                first.add(at).write_volatile(*entry);
            }
            (&raw mut (*list).longer).write_volatile(longer.key);
            (*list).count.store(entries.len() as u64, Ordering::Relaxed);
            // ORDERING: release, pairs with the acquire load in `read_near`.
            (*list).number.store(number + 2, Ordering::Release);
        }
        Ok(())
    }
}

/// `MPI_Win_attach`. Errors: `MPI_ERR_RMA_FLAVOR` for a window that is not dynamic, `MPI_ERR_SIZE`, `MPI_ERR_BASE`.
/// `MPI_ERR_RMA_ATTACH` for memory that is already attached, or for too many pieces.
///
/// # Safety
/// The memory stays mapped until it is detached or the window is freed.
pub unsafe fn attach(p: &Process, window: &Window, base: *mut u8, size: i64) -> Result {
    window.require_dynamic()?;
    let Ok(len) = usize::try_from(size) else {
        let text = format!("the size {size} is negative");
        return Err(Error::new(MPI_ERR_SIZE, text));
    };
    if !is_memory(base) && len != 0 {
        let text = format!(
            "the address of the {len} bytes is {}, which is not memory",
            name_special(base)
        );
        let advice = "pass the address of memory of this process";
        return Err(Error::new(MPI_ERR_BASE, text).with_advice(Some(advice)));
    }
    let (at, pieces) = (base.expose_provenance(), &window.pieces);
    let overlaps = |&(other, bytes, _): &(usize, usize, Option<RegionId>)| {
        at < other + bytes && other < at + len
    };
    if at.checked_add(len).is_none() || pieces.borrow().iter().any(overlaps) {
        let text = format!("some of the {len} bytes at {at:#x} are attached to the window already");
        return Err(Error::new(MPI_ERR_RMA_ATTACH, text)
            .with_advice(Some("detach the memory before it is attached again")));
    }
    if pieces.borrow().len() == MOST {
        let text =
            format!("{MOST} pieces of memory are attached to the window, which is the limit");
        return Err(Error::new(MPI_ERR_RMA_ATTACH, text)
            .with_advice(Some("detach some pieces, or attach larger ones")));
    }
    let mut id = None;
    if len != 0 {
        // SAFETY: LOCKED WORKER. The memory stays mapped until it is detached, by this function's contract.
        let exposed = unsafe { create::expose_user(&mut *p.worker()?, base, len)? };
        id = Some(exposed.id);
        let entry = AttachedEntry { address: at as u64, len: len as u64, key: exposed.key };
        if let Err(error) = window.publish(p, |entries| entries.push(entry)) {
            // SAFETY: LOCKED WORKER.
            unsafe { (*p.worker()?).withdraw_memory(exposed.id) };
            return Err(error);
        }
    }
    pieces.borrow_mut().push((at, len, id));
    Ok(())
}

/// `MPI_Win_detach`. Errors: `MPI_ERR_RMA_FLAVOR` for a window that is not dynamic, `MPI_ERR_RMA_ATTACH` for memory
/// that is not attached.
pub fn detach(p: &Process, window: &Window, base: *const u8) -> Result {
    window.require_dynamic()?;
    let at = base.addr();
    let found = window.pieces.borrow().iter().position(|piece| piece.0 == at);
    let Some(found) = found else {
        let text = format!("no memory that begins at {at:#x} is attached to the window");
        return Err(Error::new(MPI_ERR_RMA_ATTACH, text)
            .with_advice(Some("pass the address that was passed to MPI_Win_attach")));
    };
    let (_, _, id) = window.pieces.borrow_mut().swap_remove(found);
    if let Some(id) = id {
        window.publish(p, |entries| entries.retain(|entry| entry.address != at as u64))?;
        // SAFETY: the worker lives while MPI runs.
        unsafe { (*p.worker()?).withdraw_memory(id) };
    }
    Ok(())
}

/// Location of attached memory: address (null unless reached by load and store), key, and offset in the key's region.
pub(super) type AttachedBytes = (*mut u8, *mut RemoteKey, u64);

/// Finds `len` bytes at address `at` of a rank. Returns their location, and the number of bytes located: fewer than
/// `len` if the attached piece ends earlier. Returns `None` if no attached piece contains the first byte.
pub(super) fn locate(
    p: &Process, window: &Window, rank: u32, at: u64, len: u64,
) -> Result<Option<(AttachedBytes, u64)>> {
    let worker = p.worker()?;
    // Accept fewer than `len` bytes only after the list was read again: the cached list may be out of date.
    for (fresh, least) in [(false, len), (true, len), (true, 1)] {
        let reached = window.reach(p, rank)?;
        // SAFETY: the reached part lives as long as the window, and no other thread enters while the reference lives.
        let reached = unsafe { &mut *reached };
        let near = reached.base.cast::<AttachedList>();
        if !near.is_null() {
            // SAFETY: LOCKED WORKER.
            let worker = unsafe { &mut *worker };
            read_near(worker, window, rank, (near, &mut reached.attached))?;
        } else if fresh && least == len {
            // SAFETY: this call holds the lock, and no reference to the worker or the reached part is used later.
            unsafe { read_far(worker, window, rank)? };
        }
        // SAFETY: LOCKED WORKER. The reference is made anew, since `read_far` may have let other threads enter MPI.
        let attached = unsafe { &mut (*window.reach(p, rank)?).attached };
        let holds = |entry: &AttachedEntry| {
            let offset = at.checked_sub(entry.address);
            offset.is_some_and(|offset| entry.len.checked_sub(offset) >= Some(least))
        };
        let Some((entry, key)) = attached.pieces.iter_mut().find(|(entry, _)| holds(entry)) else {
            continue;
        };
        let fail = |e| error::explain(window, rank, e);
        // SAFETY: LOCKED WORKER.
        let worker = unsafe { &mut *worker };
        if key.is_none() {
            let unpacked = worker.unpack_key(window.world(rank), &entry.key);
            *key = Some(Box::new(unpacked.map_err(fail)?));
        }
        let Some(key) = key else { continue };
        let offset = at - entry.address;
        let base = worker.region_address(key).map_err(fail)?;
        let base = base.map_or(std::ptr::null_mut(), |base| base.wrapping_add(offset as usize));
        let found = (base, &raw mut **key, offset);
        return Ok(Some((found, len.min(entry.len - offset))));
    }
    Ok(None)
}

#[cold]
pub(super) fn refuse(window: &Window, rank: u32, at: u64, len: u64) -> Error {
    let text = format!(
        "rank {rank} has not attached the {len} bytes at {at:#x} to the window ({})",
        window.title()
    );
    Error::new(MPI_ERR_RMA_RANGE, text).with_advice(Some(
        "attach the memory first, and pass the address that MPI_Get_address gave on that rank as \
         displacement",
    ))
}

/// Replaces the cached list. Keys of pieces that stay attached are kept.
fn take(attached: &mut AttachedMemory, number: u64, entries: Vec<AttachedEntry>) {
    let mut old = std::mem::take(&mut attached.pieces);
    let keep = |entry: AttachedEntry| {
        let same = |(other, _): &(AttachedEntry, _)| {
            other.key == entry.key && other.address == entry.address
        };
        let key = old.iter().position(same).map(|at| old.swap_remove(at).1);
        (entry, key.flatten())
    };
    attached.pieces = entries.into_iter().map(keep).collect();
    attached.number = number;
}

/// Reads a mapped list if it has changed. The list's contents are not trusted: keys are checked when they are unpacked.
fn read_near(
    worker: &mut Worker, window: &Window, rank: u32,
    (list, attached): (*mut AttachedList, &mut AttachedMemory),
) -> Result {
    loop {
        // SAFETY: the list is mapped, and its words are read atomically or as volatile.
        let (number, count, key) = unsafe {
            // ORDERING: acquire, pairs with the release in `publish`.
            let number = (*list).number.load(Ordering::Acquire);
            let count = (*list).count.load(Ordering::Relaxed).min(MOST as u64) as usize;
            (number, count, (&raw const (*list).longer).read_volatile())
        };
        if number == attached.number {
            return Ok(());
        }
        let is_whole = || {
            // ORDERING: pairs with the fence in `publish`.
            fence(Ordering::SeqCst);
            // SAFETY: the list is mapped, and the number is read atomically.
            unsafe { (*list).number.load(Ordering::Relaxed) == number }
        };
        if number.is_multiple_of(2) && is_whole() {
            let first = match count <= FEW {
                // SAFETY: the list is mapped, and only the address is computed.
                true => unsafe { (&raw const (*list).entries).cast::<AttachedEntry>() },
                false => {
                    let memory = find_longer(worker, window, rank, (count, key), attached)?;
                    memory.cast_const()
                }
            };
            // SAFETY: `count` entries are in memory that stays mapped as long as the window.
            let entries = (0..count).map(|at| unsafe { first.add(at).read_volatile() }).collect();
            if is_whole() {
                take(attached, number, entries);
                return Ok(());
            }
        }
        fastpath_base::wait::yield_now();
    }
}

/// Maps the separate memory that `key` names and checks that it holds `count` entries.
fn find_longer(
    worker: &mut Worker, window: &Window, rank: u32, (count, key): (usize, PackedKey),
    attached: &mut AttachedMemory,
) -> Result<*mut AttachedEntry> {
    let fail = |e| error::explain(window, rank, e);
    let known = attached.longer.take().filter(|(known, _)| *known == key);
    let mut memory = match known {
        Some((_, memory)) => memory,
        None => Box::new(worker.unpack_key(window.world(rank), &key).map_err(fail)?),
    };
    let base = worker.region_address(&mut memory).map_err(fail)?;
    let fits = memory.len() >= (count * ENTRY_BYTES) as u64;
    let base = base.filter(|_| fits).ok_or_else(|| error::refuse_part(window, rank))?;
    attached.longer = Some((key, memory));
    Ok(base.cast())
}

/// Reads a list by remote gets. Safety: the caller holds the lock, but no reference to the worker or reached part.
unsafe fn read_far(worker: *mut Worker, window: &Window, rank: u32) -> Result {
    let world = window.world(rank);
    let fail = |e| error::explain(window, rank, e);
    let get_of = |key: *mut RemoteKey, offset: u64, to: *mut u8, len: usize| -> Result {
        // SAFETY: the key and the buffer live until the flush has returned.
        unsafe {
            // The state of the get is ignored, because the flush completes the get.
            let _ = (*worker).get_nbi(&mut *key, offset, to, len).map_err(fail)?;
            Worker::flush(worker, world).map_err(fail)
        }
    };
    let get = |offset: u64, to: *mut u8, len: usize| -> Result {
        // SAFETY: the reached part lives as long as the window, and the buffer until the flush has returned.
        unsafe {
            let reached = &raw mut **(*window.peers[rank as usize].reached_place())
                .as_mut()
                .ok_or_else(|| error::refuse_rank(window, rank as i32))?;
            let Some(key) = &mut (*reached).memory else {
                return Ok(());
            };
            get_of(key, offset, to, len)
        }
    };
    let read_number = || -> Result<u64> {
        let mut number = Box::new(0_u64);
        get(0, (&raw mut *number).cast(), 8)?;
        Ok(*number)
    };
    loop {
        let mut head = Box::new([0_u64; LIST_HEAD / 8]);
        get(0, head.as_mut_ptr().cast(), LIST_HEAD)?;
        let (number, count) = (head[0], head[1].min(MOST as u64) as usize);
        // During a change, the key of a list may be half old and half new, so check the version number again.
        if !number.is_multiple_of(2) || count > FEW && read_number()? != number {
            continue;
        }
        let none = AttachedEntry { address: 0, len: 0, key: [0; PACKED_BYTES] };
        let mut entries = vec![none; count];
        let (to, len) = (entries.as_mut_ptr().cast(), count * ENTRY_BYTES);
        match count {
            0 => {}
            1..=FEW => get(ENTRIES_AT, to, len)?,
            _ => {
                // SAFETY: LOCKED WORKER.
                let key = unsafe { (*worker).unpack_key(world, &key_of_words(&head[2..])) };
                get_of(&raw mut *Box::new(key.map_err(fail)?), 0, to, len)?;
            }
        }
        if read_number()? == number {
            // SAFETY: LOCKED WORKER. The reference is made anew, since the gets may have let other threads enter MPI.
            unsafe {
                if let Some(reached) = &mut *window.peers[rank as usize].reached_place() {
                    take(&mut reached.attached, number, entries);
                }
            }
            return Ok(());
        }
    }
}
