//! Creation and destruction of windows (MPI 5.0, sections 12.2.1 to 12.2.5).
//!
//! **WINDOW'S MEMORY.** Memory that the user provides stays valid until the window is freed. [`make`] requires this.
#![allow(unsafe_code)]

use super::control;
use super::counts::RmaCounts;
use super::dynamic::{ExtendedList, LIST_BYTES, LIST_HEAD, Pieces};
use super::epoch::Epoch;
use super::hot::HotPeer;
use super::window::{
    Flavor, LocalMemory, NO_KEY, WINDOWS, Window, WindowAttributes, WindowPart, WindowPeer,
};
use super::{counts, error, fence, hints, lock, report};
use crate::coll;
use crate::coll::words::gather_all;
use crate::comm_creation::{create as comms, free_comm, publish};
use crate::common::consts::*;
use crate::common::error::classes;
use crate::common::error::{Error, Result};
use crate::objects::attribute::{self, Attributes};
use crate::objects::comm::Comm;
use crate::objects::datatype::{is_memory, name_special};
use crate::objects::staging::find_device;
use crate::p2p::channel::Channel;
use crate::process::Process;
use crate::process::errhandler;
use crate::process::memory::find_alignment;
use fastpath_base::device::{self, DeviceBytes};
use fastpath_protocol::Worker;
use fastpath_protocol::rma::{
    ExposedMemory, KEY_WORDS, PackedKey, SLOTS_BYTES, key_of_words, words_of_key,
};
use fastpath_segment::{OF_WINDOW, SegmentError};
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// Arguments of a window creation on one rank.
pub struct WindowArguments {
    /// Kind of the window.
    pub flavor: Flavor,
    /// Memory given to `MPI_Win_create`.
    pub base: *mut u8,
    /// Size in bytes.
    pub size: i64,
    /// Displacement unit in bytes.
    pub unit: i64,
    /// Hints as keys and values.
    pub hints: Vec<(String, String)>,
}

/// Creates a window. All ranks of the communicator call this, and if one rank fails, all fail. Errors: `MPI_ERR_SIZE`,
/// `MPI_ERR_DISP`, `MPI_ERR_BASE`. `MPI_ERR_RMA_SHARED` if ranks of several hosts are to share memory.
/// `MPI_ERR_NO_MEM`. If another rank failed, that rank's error class.
///
/// # Safety
/// See WINDOW'S MEMORY.
pub unsafe fn make(p: &Process, parent: &Comm, wanted: &WindowArguments) -> Result<Rc<Window>> {
    parent.require_intra()?;
    coll::compare_calls(p, parent)?;
    let context = comms::take_spare(p, parent)?;
    let comm = Comm::new(p, context, parent.group.clone(), None, parent.rank);
    comm.name.replace(format!("{OF_WINDOW}made by {}", p.call.get()));
    let handle = publish(p, comm)?;
    let made = p
        .comm(handle)
        // SAFETY: WINDOW'S MEMORY.
        .and_then(|comm| unsafe { make_over(p, comm, wanted) });
    if made.is_err() {
        free_comm(p, handle)?;
    }
    made
}

/// Gathers the words of all ranks, or fails on all ranks if one rank has failed. The first word is the error code, 0 on
/// success.
fn agree<const N: usize>(
    p: &Process, comm: &Comm, mine: Result<[u64; N]>,
) -> Result<Vec<[u64; N]>> {
    let (words, own) = match mine {
        Ok(words) => (words, None),
        Err(error) => {
            let mut words = [0; N];
            words[0] = u64::from(error.code() as u32);
            (words, Some(error))
        }
    };
    let all = gather_all(&Channel::next(p, comm), words)?;
    if let Some(error) = own {
        return Err(error);
    }
    match all.iter().position(|words| words[0] != 0) {
        None => Ok(all),
        Some(rank) => {
            let code = all[rank][0] as u32 as i32;
            let meaning = classes::meaning_of(code);
            let text = format!(
                "rank {rank} of the communicator could not make its part of the window: {meaning}"
            );
            Err(Error::new(code, text).with_advice(Some("see the error message of that rank")))
        }
    }
}

fn check(p: &Process, comm: &Comm, wanted: &WindowArguments) -> Result<[u64; 3]> {
    let refuse = |class, text: String| Err(Error::new(class, text));
    if wanted.size < 0 {
        return refuse(MPI_ERR_SIZE, format!("the size {} is negative", wanted.size));
    }
    if wanted.unit <= 0 {
        let text = format!("the displacement unit is {}: pass 1 or more", wanted.unit);
        return refuse(MPI_ERR_DISP, text);
    }
    if wanted.flavor == Flavor::Create && !is_memory(wanted.base) && wanted.size != 0 {
        let text = format!(
            "the address of the {} bytes is {}, which is not memory",
            wanted.size,
            name_special(wanted.base)
        );
        return refuse(MPI_ERR_BASE, text);
    }
    if wanted.flavor == Flavor::Shared {
        // SAFETY: the worker lives while MPI runs, and this call holds the lock.
        let worker = unsafe { &*p.worker()? };
        let mut ranks = comm.group.world_ranks().iter();
        if let Some(rank) = ranks.position(|&world| worker.is_elsewhere(world)) {
            let text = format!("rank {rank} of the communicator is on another host");
            return Err(Error::new(MPI_ERR_RMA_SHARED, text).with_advice(Some(
                "split the communicator with MPI_Comm_split_type and MPI_COMM_TYPE_SHARED first",
            )));
        }
    }
    Ok([0, wanted.size as u64, wanted.unit as u64])
}

/// Makes the window on `comm`, its own communicator. Safety: see WINDOW'S MEMORY.
unsafe fn make_over(p: &Process, comm: Rc<Comm>, wanted: &WindowArguments) -> Result<Rc<Window>> {
    let sizes = agree(p, &comm, check(p, &comm, wanted))?;
    let layout = PartLayout::of(&comm, wanted, &sizes);
    let mut own = LocalMemory::default();
    // SAFETY: WINDOW'S MEMORY.
    let taken =
        layout.and_then(|layout| unsafe { take_memory(p, &comm, wanted, layout, &mut own) });
    let mut base = std::ptr::null_mut();
    let words = taken.map(|taken| {
        base = taken.base;
        taken.to_words()
    });
    let all = match agree(p, &comm, words) {
        Ok(all) => all,
        Err(error) => {
            give_back(p, &mut own)?;
            return Err(error);
        }
    };
    let parts = sizes.iter().zip(&all).map(|(size, words)| {
        // The memory of a shared window belongs to one rank. Find the key that this rank sent.
        all.get(words[1] as usize)
            .map_or_else(|| Err(wrong_part()), |owner| part_of(size, words, owner))
    });
    let peers: Box<[WindowPeer]> =
        parts.map(|part| part.map(WindowPeer::new)).collect::<Result<_>>()?;
    let window = assemble(p, comm, wanted, peers, base, own)?;
    if wanted.flavor == Flavor::Shared {
        let reached = window.reach(p, window.rank)?;
        // SAFETY: the reached part lives as long as the window.
        window.base.set(unsafe { (*reached).base });
    }
    let window = Rc::new(window);
    let handle = WINDOWS.of(p).publish(window.clone())?;
    window.handle.set(handle);
    errhandler::attach(p, window.errhandler.get());
    window.tell_title(p);
    p.hot_win_set(handle, &window);
    // No barrier is needed: a rank gets the key of control words only after their owner has made them.
    Ok(window)
}

fn assemble(
    p: &Process, comm: Rc<Comm>, wanted: &WindowArguments, peers: Box<[WindowPeer]>, base: *mut u8,
    own: LocalMemory,
) -> Result<Window> {
    let ranks = comm.size();
    // SAFETY: the worker lives while MPI runs, and this call holds the lock.
    let worker = unsafe { &mut *p.worker()? };
    let is_local = !comm.group.world_ranks().iter().any(|&world| worker.is_elsewhere(world));
    let dynamic = wanted.flavor == Flavor::Dynamic;
    // All other ranks of this host are reached in the same way, so the next rank represents all of them.
    let other = comm.group.world_ranks()[(comm.rank as usize + 1) % ranks as usize];
    let memory = &peers[comm.rank as usize].part.memory;
    let is_shared = !dynamic && (*memory == NO_KEY || worker.is_shared_key(memory));
    let uses_device = match dynamic {
        true => device::may_appear(),
        false => worker.is_stream_key(memory),
    };
    let reached_alone = is_local && !uses_device && worker.is_reached_alone(other, is_shared);
    let serves = ranks > 1 && !reached_alone;
    let given = hints::select(wanted.hints.clone());
    Ok(Window {
        handle: Cell::new(MPI_WIN_NULL),
        flavor: wanted.flavor,
        group: comm.group.clone(),
        rank: comm.rank,
        name: RefCell::default(),
        made_by: p.call.get(),
        errhandler: Cell::new(MPI_ERRORS_ARE_FATAL),
        attributes: Attributes::default(),
        hints: RefCell::new(given),
        base: Cell::new(if dynamic { std::ptr::null_mut() } else { base }),
        list: if dynamic { base } else { std::ptr::null_mut() },
        described: WindowAttributes {
            size: wanted.size as isize,
            unit: wanted.unit as i32,
            flavor: wanted.flavor.code(),
            model: MPI_WIN_UNIFIED,
        },
        peers,
        hot: (0..ranks).map(|_| Cell::new(HotPeer::CLOSED)).collect(),
        locks: (0..ranks).map(|_| Cell::new(std::ptr::null())).collect(),
        epoch: RefCell::new(Epoch::new(ranks)),
        counts: RmaCounts::new(),
        subject: Cell::new(None),
        is_local,
        serves,
        announced: Cell::new(false),
        contested: Cell::new(false),
        home: OnceCell::new(),
        kept: Cell::new(0),
        opened: RefCell::default(),
        opened_before: RefCell::default(),
        pending: RefCell::default(),
        exposure: RefCell::default(),
        own: RefCell::new(own),
        uses: RefCell::default(),
        accesses: RefCell::default(),
        pieces: Pieces::default(),
        longer: Cell::new(ExtendedList::NONE),
        comm,
    })
}

/// Number of bytes that a rank allocates, and the location of its part.
struct PartLayout {
    bytes: u64,
    /// Rank that owns the memory of the part.
    owner: u32,
    /// Offset of the part in the owner's memory.
    start: u64,
}

impl PartLayout {
    fn of(comm: &Comm, wanted: &WindowArguments, sizes: &[[u64; 3]]) -> Result<PartLayout> {
        let alone = PartLayout { bytes: wanted.size as u64, owner: comm.rank, start: 0 };
        if wanted.flavor != Flavor::Shared || hints::says(&wanted.hints, hints::NONCONTIG) {
            return Ok(alone);
        }
        // The parts are contiguous in the memory of rank 0.
        let sum = |sizes: &[[u64; 3]]| {
            let mut sizes = sizes.iter().map(|words| words[1]);
            sizes.try_fold(0_u64, u64::checked_add)
        };
        let (all, before) = (sum(sizes), sum(&sizes[..comm.rank as usize]));
        match (all, before) {
            (Some(all), Some(start)) if all <= isize::MAX as u64 => {
                Ok(PartLayout { bytes: if comm.rank == 0 { all } else { 0 }, owner: 0, start })
            }
            _ => Err(Error::new(
                MPI_ERR_NO_MEM,
                "the sizes of all ranks together exceed the address space",
            )),
        }
    }
}

struct AllocatedPart {
    base: *mut u8,
    owner: u32,
    start: u64,
    memory: PackedKey,
    control: PackedKey,
    slots: PackedKey,
}

const WORDS: usize = 3 + 3 * KEY_WORDS;

impl AllocatedPart {
    fn to_words(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        (words[1], words[2]) = (self.owner.into(), self.start);
        let keys = [&self.memory, &self.control, &self.slots];
        for (to, key) in words[3..].chunks_exact_mut(KEY_WORDS).zip(keys) {
            to.copy_from_slice(&words_of_key(key));
        }
        words
    }
}

/// Decodes a rank's description of its part. The part's keys are checked when they are unpacked.
fn part_of(size: &[u64; 3], words: &[u64; WORDS], owner: &[u64; WORDS]) -> Result<WindowPart> {
    let (control, slots) = words[3 + KEY_WORDS..].split_at(KEY_WORDS);
    let memory = &owner[3..3 + KEY_WORDS];
    match u32::try_from(words[1]) {
        Ok(owner) if size[2] != 0 => Ok(WindowPart {
            size: size[1],
            unit: size[2],
            limit: size[1] / size[2],
            owner,
            start: words[2],
            memory: key_of_words(memory),
            control: key_of_words(control),
            slots: key_of_words(slots),
        }),
        _ => Err(wrong_part()),
    }
}

#[cold]
fn wrong_part() -> Error {
    let text = "a rank sent an invalid description of its part of the window";
    Error::new(MPI_ERR_INTERN, text)
}

/// Allocates and exposes this rank's part and control words. Safety: see WINDOW'S MEMORY.
unsafe fn take_memory(
    p: &Process, comm: &Comm, wanted: &WindowArguments, layout: PartLayout, own: &mut LocalMemory,
) -> Result<AllocatedPart> {
    // SAFETY: the worker lives while MPI runs, and this call holds the lock.
    let worker = unsafe { &mut *p.worker()? };
    let bytes = control::bytes(comm.size());
    let control = allocate(worker, own, bytes, 64)?;
    // SAFETY: `control` is an allocation of `bytes` bytes.
    unsafe { control.write_bytes(0, bytes) };
    let slots = match wanted.flavor {
        Flavor::Allocate | Flavor::Shared => NO_KEY,
        Flavor::Create | Flavor::Dynamic => {
            worker.expose_slots().map_err(|cause| refuse_memory(SLOTS_BYTES, &cause))?
        }
    };
    let (base, len) = match wanted.flavor {
        Flavor::Create => (wanted.base, wanted.size as usize),
        Flavor::Dynamic => {
            let list = allocate(worker, own, LIST_BYTES, 64)?;
            // SAFETY: `list` has LIST_BYTES bytes, and zeros are the head of an empty list.
            unsafe { list.write_bytes(0, LIST_HEAD) };
            (list, LIST_BYTES)
        }
        Flavor::Allocate | Flavor::Shared if layout.bytes == 0 => (std::ptr::null_mut(), 0),
        Flavor::Allocate | Flavor::Shared => {
            let align = find_alignment(&crate::objects::info::Info::from_pairs(
                wanted.hints.iter().cloned(),
            ))?;
            (allocate(worker, own, layout.bytes as usize, align)?, layout.bytes as usize)
        }
    };
    let mut keep = |exposed: ExposedMemory| {
        own.exposed.push(exposed.id);
        exposed.key
    };
    // SAFETY: the memory is that of WINDOW'S MEMORY, or an allocation that is freed with the window.
    unsafe {
        let memory = match wanted.flavor {
            _ if len == 0 => NO_KEY,
            Flavor::Create => keep(expose_user(worker, base, len)?),
            _ => keep(worker.expose_memory(base, len)),
        };
        let control = keep(worker.expose_memory(control, bytes));
        let (owner, start) = (layout.owner, layout.start);
        Ok(AllocatedPart { base, owner, start, memory, control, slots })
    }
}

/// Exposes memory of the program, which may be that of a device. Errors: the device memory cannot be used. Safety: see
/// WINDOW'S MEMORY.
pub(super) unsafe fn expose_user(
    worker: &mut Worker, at: *mut u8, len: usize,
) -> Result<ExposedMemory> {
    Ok(match find_device(at)? {
        Some(memory) => worker.expose_stream(at, len, Arc::new(DeviceBytes::new(at, memory))),
        // SAFETY: WINDOW'S MEMORY.
        None => unsafe { worker.expose_memory(at, len) },
    })
}

/// Minimum size, in bytes, of an allocation that gets its own pages. A smaller one shares pages with other objects.
const RESERVED_FROM: usize = 1 << 16;

fn refuse_memory(bytes: usize, cause: &SegmentError) -> Error {
    Error::new(MPI_ERR_NO_MEM, format!("no memory for the {bytes} bytes of the window: {cause}"))
}

/// Allocates memory that peers can reach. It is freed with the window. Errors: `MPI_ERR_NO_MEM`.
pub(super) fn allocate(
    worker: &mut Worker, own: &mut LocalMemory, bytes: usize, align: usize,
) -> Result<*mut u8> {
    let made = match bytes < RESERVED_FROM {
        true => worker.allocate_memory(bytes, align),
        false => worker.reserve_memory(bytes, align),
    };
    let memory = made.map_err(|cause| refuse_memory(bytes, &cause))?;
    own.allocated.push(memory.addr().get());
    Ok(memory.as_ptr())
}

fn give_back(p: &Process, own: &mut LocalMemory) -> Result {
    // SAFETY: the worker lives while MPI runs, and this call holds the lock.
    let worker = unsafe { &mut *p.worker()? };
    for id in own.exposed.drain(..) {
        worker.withdraw_memory(id);
    }
    for address in own.allocated.drain(..) {
        worker.free_memory(address);
    }
    Ok(())
}

/// `MPI_Win_free`. The window is freed after all ranks have called it. Errors: `MPI_ERR_RMA_SYNC` if an epoch is open,
/// and the window then stays. A user's attribute delete function and pending operations may also fail.
pub fn free(p: &Process, handle: usize) -> Result {
    let window = p.win(handle)?;
    let may = window.epoch.borrow().may_free();
    may.map_err(|refusal| error::refuse_free(&window, refusal))?;
    attribute::delete_attributes(p, window.holder())?;
    let met = lock::complete_all(p, &window).and_then(|()| fence::meet(p, &window));
    // A window with a dead rank can be freed: the others may still use it, but find its memory withdrawn.
    if !window.comm.faults.is_broken() {
        met?;
    }
    report::print(p, &window)?;
    counts::keep(p, &window);
    p.hot_win_clear(handle);
    WINDOWS.of(p).remove(handle);
    window.forget_all();
    for (_, _, id) in window.pieces.borrow_mut().drain(..) {
        window.own.borrow_mut().exposed.extend(id);
    }
    give_back(p, &mut window.own.borrow_mut())?;
    errhandler::detach(p, window.errhandler.get());
    free_comm(p, window.comm.handle.get())
}

/// `MPI_Win_shared_query`: size, displacement unit and local address of a rank's part. For `MPI_PROC_NULL`, the results
/// are those of the first rank with a nonempty part. The size is 0 for a part that load and store do not reach (MPI
/// 5.0, section 12.2.3). Errors: `MPI_ERR_RMA_FLAVOR` for a dynamic window, `MPI_ERR_RANK`.
pub fn query_shared(p: &Process, window: &Window, rank: i32) -> Result<(i64, i64, *mut u8)> {
    if window.flavor == Flavor::Dynamic {
        let text =
            format!("the window ({}) is dynamic and has no memory of its own", window.title());
        return Err(Error::new(MPI_ERR_RMA_FLAVOR, text)
            .with_advice(Some("pass a window of MPI_Win_allocate_shared")));
    }
    let rank = match rank {
        MPI_PROC_NULL => {
            let mut peers = window.peers.iter();
            peers.position(|peer| peer.part.size != 0).map_or(0, |rank| rank as u32)
        }
        rank => window.check_rank(rank)?,
    };
    let part = window.peers[rank as usize].part;
    let reached = window.reach(p, rank)?;
    // SAFETY: the reached part lives as long as the window.
    let base = unsafe { (*reached).base };
    let own = rank == window.rank && window.flavor == Flavor::Create;
    match base.is_null() {
        true if own && part.size != 0 => {
            Ok((part.size as i64, part.unit as i64, window.base.get()))
        }
        true => Ok((0, part.unit as i64, base)),
        false => Ok((part.size as i64, part.unit as i64, base)),
    }
}
