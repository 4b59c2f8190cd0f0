//! Windows (MPI 5.0, chapter 12): the memory that each rank of the group exposes, and how this process reaches it.
#![allow(unsafe_code)]

use super::conflicts::{Accesses, Uses};
use super::control::{self, ACCUMULATE, LOCK, WindowControl};
use super::counts::RmaCounts;
use super::dynamic::{AttachedMemory, ExtendedList, LIST_BYTES, Pieces};
use super::epoch::Epoch;
use super::error;
use super::exposure::Exposure;
use super::hot::HotPeer;
use crate::common::consts::*;
use crate::common::error::Result;
use crate::common::table::{HandleKind, HandleTable};
use crate::objects::attribute::{Attributes, Holder, KeyvalKind};
use crate::objects::comm::Comm;
use crate::objects::group::Group;
use crate::process::{Process, ProcessPart};
use fastpath_base::sync::AtomicU64;
use fastpath_base::trace::{self, Point, TraceSubject};
use fastpath_protocol::Worker;
use fastpath_protocol::rma::{AccessPath, PackedKey, RegionId, RemoteKey, Slots};
use fastpath_segment::OF_WINDOW;
use std::cell::{Cell, OnceCell, RefCell, UnsafeCell};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::rc::Rc;

/// Kind of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavor {
    /// `MPI_Win_create`.
    Create,
    /// `MPI_Win_allocate`.
    Allocate,
    /// `MPI_Win_allocate_shared`.
    Shared,
    /// `MPI_Win_create_dynamic`.
    Dynamic,
}

impl Flavor {
    /// The value of `MPI_WIN_CREATE_FLAVOR`.
    pub fn code(self) -> i32 {
        match self {
            Flavor::Create => MPI_WIN_FLAVOR_CREATE,
            Flavor::Allocate => MPI_WIN_FLAVOR_ALLOCATE,
            Flavor::Shared => MPI_WIN_FLAVOR_SHARED,
            Flavor::Dynamic => MPI_WIN_FLAVOR_DYNAMIC,
        }
    }
}

/// Explanation, in reports, of kernel copies if the target performs small operations itself.
const SMALL_BY_OWNER: &str = "the kernel copies between the processes; the target itself copies \
                              puts and gets of up to 4 KiB while it is inside MPI";

pub(super) const NO_KEY: PackedKey = [0; size_of::<PackedKey>()];

/// Description of a rank's part of the window, as that rank sends it to the others.
#[derive(Debug, Clone, Copy)]
pub(super) struct WindowPart {
    /// Size in bytes.
    pub size: u64,
    /// Displacement unit in bytes.
    pub unit: u64,
    /// Largest displacement inside the part. Stored, because `MPI_Win_lock` would otherwise divide, which is slow.
    pub limit: u64,
    /// Rank whose memory contains the part. Only in a shared window is it another rank.
    pub owner: u32,
    /// Offset of the part in the region of `memory`.
    pub start: u64,
    /// Key of the memory, or of the attachment list of a dynamic window; zeros if the part is empty.
    pub memory: PackedKey,
    pub control: PackedKey,
    /// Key of the rank's slots for small operations on memory that is not mapped. Zeros if all memory is mapped.
    pub slots: PackedKey,
}

/// How this process reaches a rank's part, determined at the first access.
pub(super) struct PeerAccess {
    /// Address of the part in this process, or null if load and store do not reach it.
    pub base: *mut u8,
    /// Region of the part; `None` if the part is empty.
    pub memory: Option<RemoteKey>,
    pub control: WindowControl,
    /// Slots in which the owner receives small operations; `None` if all its memory is mapped.
    pub slots: Option<Slots>,
    /// Key of the slots, kept while they are used.
    _slots_key: Option<RemoteKey>,
    /// Attached memory of a dynamic window.
    pub attached: AttachedMemory,
}

pub(super) struct WindowPeer {
    pub part: WindowPart,
    reached: UnsafeCell<Option<Box<PeerAccess>>>,
    /// Whether operations may be pending that a flush has to complete.
    pub pending: Cell<bool>,
}

/// Values of the predefined attributes, at stable addresses.
pub(super) struct WindowAttributes {
    pub size: isize,
    pub unit: i32,
    pub flavor: i32,
    pub model: i32,
}

#[derive(Default)]
pub(super) struct LocalMemory {
    /// Exposed regions, withdrawn when the window is freed.
    pub exposed: Vec<RegionId>,
    /// Allocations, freed with the window.
    pub allocated: Vec<usize>,
}

/// A window. All calls on it run under the process's lock.
pub struct Window {
    /// Handle of the window.
    pub handle: Cell<usize>,
    /// Kind of the window.
    pub flavor: Flavor,
    /// Group of the window.
    pub group: Rc<Group>,
    /// Rank of the calling process.
    pub rank: u32,
    /// Communicator of the group, used only by the window.
    pub(super) comm: Rc<Comm>,
    /// Name set by `MPI_Win_set_name`.
    pub name: RefCell<String>,
    pub(super) made_by: &'static str,
    /// Handle of the error handler.
    pub errhandler: Cell<usize>,
    /// Cached attributes.
    pub attributes: Attributes,
    /// Hints given at creation or by `MPI_Win_set_info`.
    pub hints: RefCell<Vec<(String, String)>>,
    /// Address of this rank's memory.
    pub base: Cell<*mut u8>,
    /// Attachment list of a dynamic window.
    pub(super) list: *mut u8,
    pub(super) described: WindowAttributes,
    pub(super) peers: Box<[WindowPeer]>,
    pub(super) hot: Box<[Cell<HotPeer>]>,
    /// Accumulate lock of each rank that the hot table has opened.
    pub(super) locks: Box<[Cell<*const AtomicU64>]>,
    pub(super) epoch: RefCell<Epoch>,
    pub(super) counts: RmaCounts,
    /// Name of the window in traces; `None` before the first trace point.
    pub(super) subject: Cell<Option<TraceSubject>>,
    /// Whether all ranks are on this host. If so, the rank that ends a wait wakes the waiting rank.
    pub(super) is_local: bool,
    /// Whether peers may need this rank's progress for operations on its memory. Every lock epoch then makes progress,
    /// and none takes the immediate path.
    pub(super) serves: bool,
    /// Whether this rank has announced on all hosts that it locks exclusively.
    pub(super) announced: Cell<bool>,
    /// Whether this rank has seen another rank's announcement of exclusive locks.
    pub(super) contested: Cell<bool>,
    /// First rank of this host, set at the first use.
    pub(super) home: OnceCell<u32>,
    /// Number of times that this rank has kept a lock since it last gave one away.
    pub(super) kept: Cell<u32>,
    /// Ranks that are open in the hot table.
    pub(super) opened: RefCell<Vec<u32>>,
    /// Ranks that were open in the hot table at the end of the last `MPI_Win_lock_all` epoch.
    pub(super) opened_before: RefCell<Vec<u32>>,
    /// Ranks whose [`WindowPeer::pending`] is set.
    pub(super) pending: RefCell<Vec<u32>>,
    pub(super) exposure: RefCell<Exposure>,
    pub(super) own: RefCell<LocalMemory>,
    /// Incomplete accesses to each rank, if `FASTPATH_CHECK` is set.
    pub(super) accesses: RefCell<BTreeMap<u32, Accesses>>,
    /// Local buffers used by incomplete operations to each rank, if `FASTPATH_CHECK` is set.
    pub(super) uses: RefCell<BTreeMap<u32, Uses>>,
    pub(super) pieces: Pieces,
    /// Separate memory of the attachment list, once the list is longer than its own memory.
    pub(super) longer: Cell<ExtendedList>,
}

impl WindowPeer {
    pub fn new(part: WindowPart) -> Self {
        WindowPeer { part, reached: UnsafeCell::new(None), pending: Cell::new(false) }
    }

    pub fn reached_place(&self) -> *mut Option<Box<PeerAccess>> {
        self.reached.get()
    }
}

pub(super) static WINDOWS: ProcessPart<HandleTable<Window>> = ProcessPart::new(HandleTable::new());

/// Drops all windows of an exiting process.
pub(crate) fn drop_all(p: &Process) {
    WINDOWS.of(p).clear();
}

/// Removes the windows with a dead rank from the immediate path.
pub(crate) fn hide_broken(p: &Process) {
    for handle in WINDOWS.of(p).handles() {
        if WINDOWS.of(p).get(handle).is_some_and(|window| window.comm.faults.is_broken()) {
            p.hot_win_clear(handle);
        }
    }
}

pub(crate) fn find_handler(p: &Process, handle: usize) -> Option<usize> {
    Some(WINDOWS.of(p).get(handle)?.errhandler.get())
}

impl HandleKind for Window {
    const NOUN: &'static str = "window";
    const NULL: (usize, &'static str) = (MPI_WIN_NULL, "MPI_WIN_NULL");
    const CLASS: i32 = MPI_ERR_WIN;
}

/// Removes the entry of a rank from `kept`, or all entries if `rank` is `None`.
fn forget<T>(kept: &RefCell<BTreeMap<u32, T>>, rank: Option<u32>) {
    let mut all = kept.borrow_mut();
    match rank {
        Some(rank) => _ = all.remove(&rank),
        None => all.clear(),
    }
}

impl Window {
    /// Returns the number of ranks.
    pub fn size(&self) -> u32 {
        self.group.size()
    }

    /// Returns the name for messages: the name set by the program, or the call that made the window.
    pub fn title(&self) -> String {
        let name = self.name.borrow();
        match name.is_empty() {
            true => format!("made by {}", self.made_by),
            false => name.clone(),
        }
    }

    /// Number of the window, as `MPI_Win_toint` returns it.
    #[inline]
    pub(super) fn number(&self) -> u32 {
        self.handle.get() as u32
    }

    pub(super) fn tell_title(&self, p: &Process) {
        if let Some(engine) = p.engine() {
            engine.job.own_page().set_window_title(self.number(), &self.title());
        }
    }

    /// `MPI_Win_set_name`. Reports and messages use the name too.
    pub fn set_name(&self, p: &Process, name: String) {
        self.comm.name.replace(format!("{OF_WINDOW}{name}"));
        self.name.replace(name);
        self.tell_title(p);
        self.subject.set(None);
    }

    /// If tracing is on, records a trace point of the window. `world` is the world rank of the target, or 0.
    #[inline]
    pub(super) fn record(&self, point: Point, world: u32, bytes: u64) {
        if trace::is_on() {
            self.record_now(point, world, bytes);
        }
    }

    #[cold]
    #[inline(never)]
    fn record_now(&self, point: Point, world: u32, bytes: u64) {
        let subject = self.subject.get().unwrap_or_else(|| {
            let subject = trace::name_subject(&self.title());
            self.subject.set(Some(subject));
            subject
        });
        trace::record_of(subject, point, world, self.handle.get() as i32, bytes);
    }

    /// Returns the window as a holder of attributes.
    pub fn holder(&self) -> Holder<'_> {
        Holder { kind: KeyvalKind::Win, handle: self.handle.get(), attributes: &self.attributes }
    }

    /// Returns the address of the value of a predefined attribute; `None` for any other key.
    pub fn predefined(&self, key: i32) -> Option<*mut c_void> {
        let described = &self.described;
        Some(match key {
            MPI_WIN_BASE => self.base.get().cast(),
            MPI_WIN_SIZE => (&raw const described.size).cast_mut().cast(),
            MPI_WIN_DISP_UNIT => (&raw const described.unit).cast_mut().cast(),
            MPI_WIN_CREATE_FLAVOR => (&raw const described.flavor).cast_mut().cast(),
            MPI_WIN_MODEL => (&raw const described.model).cast_mut().cast(),
            _ => return None,
        })
    }

    pub(super) fn base_of_list(&self) -> *mut u8 {
        self.list
    }

    #[inline]
    pub(super) fn world(&self, rank: u32) -> u32 {
        self.group.world_ranks()[rank as usize]
    }

    /// Checks a rank argument. Errors: `MPI_ERR_RANK`.
    #[inline]
    pub(super) fn check_rank(&self, rank: i32) -> Result<u32> {
        match rank >= 0 && (rank as u32) < self.size() {
            true => Ok(rank as u32),
            false => Err(error::refuse_rank(self, rank)),
        }
    }

    /// Returns the access to a rank's part. The first call for a rank determines it.
    #[inline]
    pub(super) fn reach(&self, p: &Process, rank: u32) -> Result<*mut PeerAccess> {
        // SAFETY: this call holds the lock, and nothing lets another thread in while the reference lives.
        let reached = unsafe { &mut *self.peers[rank as usize].reached.get() };
        match reached {
            Some(reached) => Ok(&raw mut **reached),
            None => self.reach_first(p, rank),
        }
    }

    #[cold]
    #[inline(never)]
    fn reach_first(&self, p: &Process, rank: u32) -> Result<*mut PeerAccess> {
        let (part, world) = (self.peers[rank as usize].part, self.world(rank));
        let worker = p.worker()?;
        let fail = |e| error::explain(self, rank, e);
        // SAFETY: the worker lives while MPI runs, and this call holds the lock.
        let worker: &mut Worker = unsafe { &mut *worker };
        let mut control = worker.unpack_key(world, &part.control).map_err(fail)?;
        if control.len() < control::bytes(self.size()) as u64 {
            return Err(error::refuse_part(self, rank));
        }
        let words = worker.region_address(&mut control).map_err(fail)?;
        let slots_key = match part.slots {
            NO_KEY => None,
            key => Some(worker.unpack_key(world, &key).map_err(fail)?),
        };
        let slots = slots_key.as_ref().and_then(|key| worker.find_slots(key, 0));
        let control = WindowControl::new(control, words.unwrap_or(std::ptr::null_mut()));
        let (memory, base) = self.reach_memory(p, rank)?;
        let reached = PeerAccess {
            base,
            memory,
            control,
            slots,
            _slots_key: slots_key,
            attached: AttachedMemory::default(),
        };
        // SAFETY: this call holds the lock, and nothing lets another thread in while the reference lives.
        let place = unsafe { &mut *self.peers[rank as usize].reached.get() };
        Ok(&raw mut **place.insert(Box::new(reached)))
    }

    /// Returns the region of a rank's part (`None` if it is empty) and its address (null unless load and store reach
    /// it).
    fn reach_memory(&self, p: &Process, rank: u32) -> Result<(Option<RemoteKey>, *mut u8)> {
        let part = self.peers[rank as usize].part;
        let nowhere = std::ptr::null_mut();
        if part.memory == NO_KEY {
            return Ok((None, nowhere));
        }
        let fail = |e| error::explain(self, rank, e);
        // SAFETY: the worker lives while MPI runs, and this call holds the lock.
        let worker: &mut Worker = unsafe { &mut *p.worker()? };
        let mut key = worker.unpack_key(self.world(part.owner), &part.memory).map_err(fail)?;
        // In a dynamic window, a rank's part is its attachment list, at the start of the memory.
        let len = match self.flavor {
            Flavor::Dynamic => LIST_BYTES as u64,
            _ => part.size,
        };
        let end = part.start.checked_add(len);
        if end.is_none_or(|end| end > key.len()) {
            return Err(error::refuse_part(self, rank));
        }
        let start = part.start as usize;
        if self.flavor != Flavor::Shared {
            let found = worker.region_address(&mut key).map_err(fail)?;
            let base = found.map_or(nowhere, |base| base.wrapping_add(start));
            return Ok((Some(key), base));
        }
        if part.owner != rank {
            // The parts of all ranks are contiguous in this process too, so they are mapped once.
            let whole = self.reach(p, part.owner)?;
            // SAFETY: the reached part lives as long as the window.
            let first = unsafe { (*whole).base };
            return match first.is_null() {
                true => Err(error::refuse_part(self, rank)),
                false => Ok((Some(key), first.wrapping_add(start))),
            };
        }
        match worker.map_region(&mut key).map_err(fail)? {
            Some(base) if start == 0 => Ok((Some(key), base)),
            _ => Err(error::refuse_part(self, rank)),
        }
    }

    #[inline]
    pub(super) fn note_pending(&self, rank: u32) {
        if !self.peers[rank as usize].pending.replace(true) {
            self.pending.borrow_mut().push(rank);
        }
    }

    /// Returns whether locks, atomics and accumulates at a reached rank wait for that rank's progress.
    pub(super) fn needs_owner(&self, rank: u32) -> bool {
        self.known(rank).is_some_and(|reached| reached.control.word(LOCK).is_null())
    }

    /// Returns how a rank is reached, as name and explanation; `None` if the rank was not accessed.
    pub(super) fn way(&self, rank: u32) -> Option<(&'static str, &'static str)> {
        let reached = self.known(rank)?;
        let near = (AccessPath::LoadStore.name(), AccessPath::LoadStore.how());
        match &reached.memory {
            _ if !reached.base.is_null() => Some(near),
            Some(key) if key.way() == AccessPath::Kernel && reached.slots.is_some() => {
                Some((key.way().name(), SMALL_BY_OWNER))
            }
            Some(key) => Some((key.way().name(), key.way().how())),
            None => None,
        }
    }

    /// Opens a rank, to which an epoch gives access, in the hot table.
    #[inline]
    pub(super) fn show(&self, p: &Process, rank: u32) -> Result {
        let reached = self.reach(p, rank)?;
        // SAFETY: the reached part lives as long as the window, and no other thread enters while the reference lives.
        self.open(rank, unsafe { &*reached });
        Ok(())
    }

    /// Opens a rank in the hot table again, if it was reached before.
    #[inline]
    pub(super) fn show_again(&self, rank: u32) {
        if let Some(reached) = self.known(rank) {
            self.open(rank, reached);
        }
    }

    /// Returns the access to a rank's part if it is known. The reference must end before other threads may enter MPI.
    #[inline]
    pub(super) fn known(&self, rank: u32) -> Option<&PeerAccess> {
        // SAFETY: this call holds the lock, and the caller lets no other thread enter MPI while the reference lives.
        unsafe { (*self.peers[rank as usize].reached.get()).as_deref() }
    }

    #[inline]
    pub(super) fn is_pending(&self, rank: u32) -> bool {
        self.peers[rank as usize].pending.get()
    }

    #[inline]
    fn open(&self, rank: u32, reached: &PeerAccess) {
        let part = &self.peers[rank as usize].part;
        let lock = reached.control.word(ACCUMULATE);
        if self.flavor == Flavor::Dynamic {
            return;
        }
        let shown = match (reached.base.is_null(), lock.is_null()) {
            (true, _) => HotPeer::far(part.unit, part.limit),
            (false, true) => return,
            (false, false) => {
                self.locks[rank as usize].set(lock);
                HotPeer { base: reached.base, size: part.size, unit: part.unit, limit: part.limit }
            }
        };
        if part.size != 0 && !self.hot[rank as usize].replace(shown).is_open() {
            self.opened.borrow_mut().push(rank);
        }
    }

    /// Records that accesses to a rank, or to all ranks, are complete.
    #[cold]
    pub(super) fn forget_accesses(&self, rank: Option<u32>) {
        forget(&self.accesses, rank);
    }

    /// Records that the buffers of operations to a rank, or to all ranks, are free.
    #[cold]
    pub(super) fn forget_uses(&self, rank: Option<u32>) {
        forget(&self.uses, rank);
    }

    #[inline]
    pub(super) fn close(&self, rank: u32) {
        if self.hot[rank as usize].replace(HotPeer::CLOSED).is_open() {
            let mut opened = self.opened.borrow_mut();
            if let Some(at) = opened.iter().rposition(|&other| other == rank) {
                opened.swap_remove(at);
            }
        }
    }

    /// Opens the ranks that [`Window::close_for_now`] has closed.
    #[inline]
    pub(super) fn open_again(&self) {
        while let Some(rank) = self.opened_before.borrow_mut().pop() {
            self.show_again(rank);
        }
    }

    /// Closes all ranks at the end of an epoch, for [`Window::open_again`] at the next epoch by `MPI_Win_lock_all`.
    #[inline]
    pub(super) fn close_for_now(&self) {
        self.opened_before.swap(&self.opened);
        for &rank in &*self.opened_before.borrow() {
            self.hot[rank as usize].set(HotPeer::CLOSED);
        }
    }

    pub(super) fn close_all(&self) {
        for rank in self.opened.borrow_mut().drain(..) {
            self.hot[rank as usize].set(HotPeer::CLOSED);
        }
    }

    /// Drops the cached access to all ranks. No operation may be pending.
    pub(super) fn forget_all(&self) {
        self.close_all();
        for peer in &self.peers {
            // SAFETY: this call holds the lock, and no reference to a reached part is alive.
            unsafe { *peer.reached.get() = None };
        }
    }
}

impl Process {
    /// Returns the window of a handle.
    #[inline]
    pub fn win(&self, handle: usize) -> Result<Rc<Window>> {
        WINDOWS.of(self).find(handle)
    }

    pub(super) fn list_windows(&self) -> Vec<usize> {
        WINDOWS.of(self).handles()
    }
}
