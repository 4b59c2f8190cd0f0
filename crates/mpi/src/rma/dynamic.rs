//! Dynamic windows (MPI 5.0, section 12.2.4): each rank keeps a list of what it has attached in memory that the others
//! read, so that attaching needs no message.
//!
//! The list begins with a number that is odd while the owner changes it, and that every change increases; then follow
//! the number of entries, a key, and the entries, of address, length and key each. A rank that has read the list reads
//! only the number, if that is a load. The few entries of most windows have a place behind the head. Of more, all are
//! in memory that the key names; it is replaced when it is full, and stays until the window is freed.
//!
//! **LOCKED WORKER.** The worker lives while MPI runs, and the calling thread is inside it. A reference to it or to
//! what is reached is made anew after each call that may let others in.
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

/// Pieces of memory that a rank can have attached at the same time.
const MOST: usize = 1 << 13;
/// Entries of a list that need no memory beside it.
const FEW: usize = 5;

/// A piece of attached memory, for the others.
#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    address: u64,
    len: u64,
    key: PackedKey,
}

#[repr(C)]
struct List {
    /// Odd while the owner changes what follows.
    number: AtomicU64,
    count: AtomicU64,
    /// Names the memory of the entries, if there are more than [`FEW`].
    longer: PackedKey,
    entries: [Entry; FEW],
}

const ENTRIES_AT: u64 = offset_of!(List, entries) as u64;
const ENTRY_BYTES: usize = size_of::<Entry>();

/// Bytes of a rank's list.
pub(super) const LIST_BYTES: usize = size_of::<List>();
/// Bytes of its head.
pub(super) const LIST_HEAD: usize = offset_of!(List, entries);
const _: () = assert!(LIST_BYTES <= 512);

/// Memory for a list of more than [`FEW`] entries.
#[derive(Clone, Copy)]
pub(super) struct Longer {
    entries: *mut Entry,
    key: PackedKey,
    capacity: usize,
}

impl Longer {
    /// No memory.
    pub const NONE: Longer =
        Longer { entries: std::ptr::null_mut(), key: [0; PACKED_BYTES], capacity: 0 };
}

/// What this process has attached: address, length, and the key's number.
pub(super) type Pieces = RefCell<Vec<(usize, usize, Option<RegionId>)>>;

/// What another rank has attached, as this one has read it.
#[derive(Default)]
pub(super) struct Attached {
    number: u64,
    pieces: Vec<(Entry, Option<Box<RemoteKey>>)>,
    /// The memory of a list of more than [`FEW`] entries, where it is mapped.
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

    fn list(&self) -> *mut List {
        self.base_of_list().cast()
    }

    /// Memory for `count` entries.
    fn make_room(&self, p: &Process, count: usize) -> Result<Longer> {
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
        let longer = Longer { entries: memory.cast(), key: exposed.key, capacity };
        self.longer.set(longer);
        Ok(longer)
    }

    /// Writes the list anew.
    fn publish(&self, p: &Process, change: impl FnOnce(&mut Vec<Entry>)) -> Result {
        // SAFETY: the own list, which this process alone writes; its memory lives as long as the window.
        unsafe {
            let list = self.list();
            let few = (&raw mut (*list).entries).cast::<Entry>();
            let count = (*list).count.load(Ordering::Relaxed) as usize;
            let first = if count <= FEW { few } else { self.longer.get().entries };
            let mut entries: Vec<Entry> = (0..count).map(|at| first.add(at).read()).collect();
            change(&mut entries);
            let longer = self.make_room(p, entries.len())?;
            let first = if entries.len() <= FEW { few } else { longer.entries };
            let number = (*list).number.load(Ordering::Relaxed);
            (*list).number.store(number + 1, Ordering::Relaxed);
            // ORDERING: who sees a part of what follows sees the odd number; partners: the fence and the acquire in
            // `read_near`. Elsewhere the list is read by copies of whole words in the same order.
            fence(Ordering::SeqCst);
            for (at, entry) in entries.iter().enumerate() {
                first.add(at).write_volatile(*entry);
            }
            (&raw mut (*list).longer).write_volatile(longer.key);
            (*list).count.store(entries.len() as u64, Ordering::Relaxed);
            // ORDERING: as above.
            (*list).number.store(number + 2, Ordering::Release);
        }
        Ok(())
    }
}

/// `MPI_Win_attach`
///
/// # Errors
/// `MPI_ERR_RMA_FLAVOR` for another window, `MPI_ERR_SIZE`, `MPI_ERR_RMA_ATTACH` for memory that is attached already or
/// too many pieces.
///
/// # Safety
/// The memory stays mapped until it is detached or the window freed.
pub unsafe fn attach(p: &Process, window: &Window, base: *mut u8, size: i64) -> Result {
    window.require_dynamic()?;
    let Ok(len) = usize::try_from(size) else {
        let text = format!("the size {size} is negative");
        return Err(Error::new(MPI_ERR_SIZE, text));
    };
    if !is_memory(base) && len != 0 {
        let text = format!("{len} bytes at an address that is {}", name_special(base));
        return Err(Error::new(MPI_ERR_BASE, text));
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
        let text = format!("{MOST} pieces of memory are attached, the most that there can be");
        return Err(Error::new(MPI_ERR_RMA_ATTACH, text).with_advice(Some("attach larger pieces")));
    }
    let mut id = None;
    if len != 0 {
        // SAFETY: LOCKED WORKER; the memory stays mapped until it is detached, by this function's contract.
        let exposed = unsafe { (*p.worker()?).expose_memory(base, len) };
        id = Some(exposed.id);
        let entry = Entry { address: at as u64, len: len as u64, key: exposed.key };
        if let Err(error) = window.publish(p, |entries| entries.push(entry)) {
            // SAFETY: LOCKED WORKER.
            unsafe { (*p.worker()?).withdraw_memory(exposed.id) };
            return Err(error);
        }
    }
    pieces.borrow_mut().push((at, len, id));
    Ok(())
}

/// `MPI_Win_detach`
///
/// # Errors
/// `MPI_ERR_RMA_FLAVOR` for another window, `MPI_ERR_RMA_ATTACH` for memory that is not attached.
pub fn detach(p: &Process, window: &Window, base: *const u8) -> Result {
    window.require_dynamic()?;
    let at = base.addr();
    let found = window.pieces.borrow().iter().position(|piece| piece.0 == at);
    let Some(found) = found else {
        let text = format!("no memory that begins at {at:#x} is attached to the window");
        return Err(Error::new(MPI_ERR_RMA_ATTACH, text)
            .with_advice(Some("pass the address that MPI_Win_attach was given")));
    };
    let (_, _, id) = window.pieces.borrow_mut().swap_remove(found);
    if let Some(id) = id {
        window.publish(p, |entries| entries.retain(|entry| entry.address != at as u64))?;
        // SAFETY: the worker lives while MPI runs.
        unsafe { (*p.worker()?).withdraw_memory(id) };
    }
    Ok(())
}

/// Where bytes of a rank's attached memory are: address in this process (null where it is not reached by load and
/// store), key, offset in its region.
pub(super) type AttachedBytes = (*mut u8, *mut RemoteKey, u64);

/// Finds `len` bytes at the address `at` of a rank, or as many of them as the piece of attached memory has that the
/// first one is in; how many. Nothing where the first one is in none.
///
/// # Errors
/// What keeps the rank from being reached.
pub(super) fn locate(
    p: &Process, window: &Window, rank: u32, at: u64, len: u64,
) -> Result<Option<(AttachedBytes, u64)>> {
    let worker = p.worker()?;
    // A part is no answer of a list that may have changed.
    for (fresh, least) in [(false, len), (true, len), (true, 1)] {
        let reached = window.reach(p, rank)?;
        // SAFETY: lives as long as the window; nothing below lets other threads in while the reference lives.
        let reached = unsafe { &mut *reached };
        let near = reached.base.cast::<List>();
        if !near.is_null() {
            // SAFETY: LOCKED WORKER.
            let worker = unsafe { &mut *worker };
            read_near(worker, window, rank, (near, &mut reached.attached))?;
        } else if fresh && least == len {
            // SAFETY: this call holds the lock.
            unsafe { read_far(worker, window, rank)? };
        }
        // SAFETY: LOCKED WORKER: made anew, since `read_far` may have let others in.
        let attached = unsafe { &mut (*window.reach(p, rank)?).attached };
        let holds = |entry: &Entry| {
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

/// The error for bytes at the address `at` of a rank that are not attached.
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

/// Takes over a new list; keys of pieces that stay are kept.
fn take(attached: &mut Attached, number: u64, entries: Vec<Entry>) {
    let mut old = std::mem::take(&mut attached.pieces);
    let keep = |entry: Entry| {
        let same =
            |(other, _): &(Entry, _)| other.key == entry.key && other.address == entry.address;
        let key = old.iter().position(same).map(|at| old.swap_remove(at).1);
        (entry, key.flatten())
    };
    attached.pieces = entries.into_iter().map(keep).collect();
    attached.number = number;
}

/// Reads a list in mapped memory, if it has changed. What it says is its owner's word: keys are checked when they are
/// unpacked.
fn read_near(
    worker: &mut Worker, window: &Window, rank: u32, (list, attached): (*mut List, &mut Attached),
) -> Result {
    loop {
        // SAFETY: the list is mapped, and words are read as such.
        let (number, count, key) = unsafe {
            // ORDERING: partner: the release in `publish`.
            let number = (*list).number.load(Ordering::Acquire);
            let count = (*list).count.load(Ordering::Relaxed).min(MOST as u64) as usize;
            (number, count, (&raw const (*list).longer).read_volatile())
        };
        if number == attached.number {
            return Ok(());
        }
        let is_whole = || {
            // ORDERING: partner: the fence in `publish`.
            fence(Ordering::SeqCst);
            // SAFETY: as above.
            unsafe { (*list).number.load(Ordering::Relaxed) == number }
        };
        if number.is_multiple_of(2) && is_whole() {
            let first = match count <= FEW {
                // SAFETY: as above; only the address is taken.
                true => unsafe { (&raw const (*list).entries).cast::<Entry>() },
                false => {
                    let memory = find_longer(worker, window, rank, (count, key), attached)?;
                    memory.cast_const()
                }
            };
            // SAFETY: there are as many entries in mapped memory, which is there as long as the window.
            let entries = (0..count).map(|at| unsafe { first.add(at).read_volatile() }).collect();
            if is_whole() {
                take(attached, number, entries);
                return Ok(());
            }
        }
        fastpath_base::wait::yield_now();
    }
}

/// The mapped memory of `count` entries that a key names.
fn find_longer(
    worker: &mut Worker, window: &Window, rank: u32, (count, key): (usize, PackedKey),
    attached: &mut Attached,
) -> Result<*mut Entry> {
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

/// Reads a list by copies.
///
/// # Safety
/// The caller holds the lock, and no reference to the worker or to what is reached.
unsafe fn read_far(worker: *mut Worker, window: &Window, rank: u32) -> Result {
    let world = window.world(rank);
    let fail = |e| error::explain(window, rank, e);
    let get_of = |key: *mut RemoteKey, offset: u64, to: *mut u8, len: usize| -> Result {
        // SAFETY: the key and the buffer live until the flush has returned.
        unsafe {
            // Complete after the flush, whatever it is now.
            let _ = (*worker).get_nbi(&mut *key, offset, to, len).map_err(fail)?;
            Worker::flush(worker, world).map_err(fail)
        }
    };
    let get = |offset: u64, to: *mut u8, len: usize| -> Result {
        // SAFETY: the reached part lives as long as the window; the buffer until the flush has returned.
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
        // The key of a list that is being changed may be part old and part new.
        if !number.is_multiple_of(2) || count > FEW && read_number()? != number {
            continue;
        }
        let none = Entry { address: 0, len: 0, key: [0; PACKED_BYTES] };
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
            // SAFETY: LOCKED WORKER: made anew, since the copies may have let others in.
            unsafe {
                if let Some(reached) = &mut *window.peers[rank as usize].reached_place() {
                    take(&mut reached.attached, number, entries);
                }
            }
            return Ok(());
        }
    }
}
