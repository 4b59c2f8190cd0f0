//! Dynamic windows (MPI 5.0, section 12.2.4): each rank keeps a list of what it has attached in memory that the others
//! read, so that attaching needs no message.
//!
//! The list is a page of its own: a number that is odd while the owner changes the list, and that every change
//! increases; how many entries there are; and the entries, of address, length and key each. A rank that has read the
//! list later reads only the number, if that is a load.
//!
//! **LOCKED WORKER.** The worker lives while MPI runs, and the calling thread is inside it. A reference to it or to
//! what is reached is made anew after each call that may let others in.
#![allow(unsafe_code)]

use super::error;
use super::window::{Flavor, Window};
use crate::consts::*;
use crate::datatype::{is_memory, name_special};
use crate::error::{Error, Result};
use crate::process::Process;
use fastpath_base::sync::{AtomicU64, Ordering, fence};
use fastpath_protocol::Worker;
use fastpath_protocol::rma::{PackedKey, RegionId, RemoteKey};
use std::cell::RefCell;
use std::mem::offset_of;

/// Pieces of memory that a rank can have attached at the same time.
const MOST: usize = 1 << 13;

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
    entries: [Entry; MOST],
}

const ENTRIES_AT: u64 = offset_of!(List, entries) as u64;

/// Bytes of a rank's list.
pub(super) const LIST_BYTES: usize = size_of::<List>();

/// What this process has attached: address, length, and the key's number.
pub(super) type Pieces = RefCell<Vec<(usize, usize, Option<RegionId>)>>;

/// What another rank has attached, as this one has read it.
#[derive(Default)]
pub(super) struct Attached {
    number: u64,
    pieces: Vec<(Entry, Option<Box<RemoteKey>>)>,
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

    /// Writes the list anew.
    fn publish(&self, change: impl FnOnce(&mut Vec<Entry>)) {
        // SAFETY: the own list, which this process alone writes; its memory lives as long as the window.
        unsafe {
            let list = self.list();
            let count = (*list).count.load(Ordering::Relaxed) as usize;
            let first = (&raw mut (*list).entries).cast::<Entry>();
            let mut entries: Vec<Entry> = (0..count).map(|at| first.add(at).read()).collect();
            change(&mut entries);
            let number = (*list).number.load(Ordering::Relaxed);
            (*list).number.store(number + 1, Ordering::Relaxed);
            // ORDERING: who sees a part of what follows sees the odd number; partners: the fence and the acquire in
            // `read_near`. Elsewhere the list is read by copies of whole words in the same order.
            fence(Ordering::SeqCst);
            for (at, entry) in entries.iter().enumerate() {
                first.add(at).write_volatile(*entry);
            }
            (*list).count.store(entries.len() as u64, Ordering::Relaxed);
            // ORDERING: as above.
            (*list).number.store(number + 2, Ordering::Release);
        }
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
        window.publish(|entries| entries.push(entry));
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
        window.publish(|entries| entries.retain(|entry| entry.address != at as u64));
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
            read_near(near, &mut reached.attached);
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
fn read_near(list: *mut List, attached: &mut Attached) {
    // SAFETY: the list is mapped, and words are read as such.
    unsafe {
        loop {
            // ORDERING: partner: the release in `publish`.
            let number = (*list).number.load(Ordering::Acquire);
            if number == attached.number {
                return;
            }
            if number.is_multiple_of(2) {
                let count = (*list).count.load(Ordering::Relaxed).min(MOST as u64) as usize;
                let first = (&raw const (*list).entries).cast::<Entry>();
                let entries = (0..count).map(|at| first.add(at).read_volatile()).collect();
                // ORDERING: partner: the fence in `publish`.
                fence(Ordering::SeqCst);
                if (*list).number.load(Ordering::Relaxed) == number {
                    return take(attached, number, entries);
                }
            }
            fastpath_base::wait::yield_now();
        }
    }
}

/// Reads a list by copies.
///
/// # Safety
/// The caller holds the lock, and no reference to the worker or to what is reached.
unsafe fn read_far(worker: *mut Worker, window: &Window, rank: u32) -> Result {
    let world = window.world(rank);
    let fail = |e| error::explain(window, rank, e);
    let get = |offset: u64, to: *mut u8, len: usize| -> Result {
        // SAFETY: the reached part lives as long as the window; the buffer until the flush has returned.
        unsafe {
            let reached = &raw mut **(*window.peers[rank as usize].reached_place())
                .as_mut()
                .ok_or_else(|| error::refuse_rank(window, rank as i32))?;
            let Some(key) = &mut (*reached).memory else {
                return Ok(());
            };
            // Complete after the flush, whatever it is now.
            let _ = (*worker).get_nbi(key, offset, to, len).map_err(fail)?;
            Worker::flush(worker, world).map_err(fail)
        }
    };
    loop {
        let mut head = Box::new([0_u64; 2]);
        get(0, head.as_mut_ptr().cast(), 16)?;
        let count = head[1].min(MOST as u64) as usize;
        let mut entries: Vec<Entry> = Vec::with_capacity(count);
        if count != 0 {
            get(ENTRIES_AT, entries.as_mut_ptr().cast(), count * size_of::<Entry>())?;
            // SAFETY: as many have been written, of plain bytes.
            unsafe { entries.set_len(count) };
        }
        let mut after = Box::new(0_u64);
        get(0, (&raw mut *after).cast(), 8)?;
        if head[0].is_multiple_of(2) && *after == head[0] {
            // SAFETY: LOCKED WORKER: made anew, since the copies may have let others in.
            unsafe {
                if let Some(reached) = &mut *window.peers[rank as usize].reached_place() {
                    take(&mut reached.attached, head[0], entries);
                }
            }
            return Ok(());
        }
    }
}
