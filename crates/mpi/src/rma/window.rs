//! A window (MPI 5.0, chapter 12): what each rank of its group exposes, and how this process reaches it.
#![allow(unsafe_code)]

use super::conflicts::{Accesses, Uses};
use super::control::{self, ACCUMULATE, Control, LOCK};
use super::counts::Counts;
use super::dynamic::{Attached, LIST_BYTES, Longer, Pieces};
use super::epoch::Epoch;
use super::error;
use super::exposure::Exposure;
use super::hot::HotPeer;
use crate::common::consts::*;
use crate::common::error::Result;
use crate::common::table::{Handled, Table};
use crate::objects::attribute::{Attributes, Holder, KeyvalKind};
use crate::objects::comm::Comm;
use crate::objects::group::Group;
use crate::process::{Process, ProcessPart};
use fastpath_base::sync::AtomicU64;
use fastpath_base::trace::{self, Point, Subject};
use fastpath_protocol::Worker;
use fastpath_protocol::rma::{AccessPath, PackedKey, RegionId, RemoteKey, Slots};
use std::cell::{Cell, OnceCell, RefCell, UnsafeCell};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::rc::Rc;

/// How a window was made.
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

/// How memory is reached that is not mapped.
const SMALL_BY_OWNER: &str = "the kernel copies between the processes; up to 4 KiB the owner does \
                              while it is inside MPI";

/// A key that names nothing.
pub(super) const NO_KEY: PackedKey = [0; size_of::<PackedKey>()];

/// What a rank has said of its part of the window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    /// Bytes.
    pub size: u64,
    /// Bytes that a displacement of 1 is.
    pub unit: u64,
    /// Largest displacement inside of it: a division, which `MPI_Win_lock` need not make.
    pub limit: u64,
    /// The rank whose memory it lies in: itself, but in a shared window.
    pub owner: u32,
    /// Where it begins in the region of `memory`.
    pub start: u64,
    /// Its memory; of a dynamic window the list of what is attached. Zeros without memory.
    pub memory: PackedKey,
    /// Its words for synchronisation.
    pub control: PackedKey,
    /// Key of the rank's slots for small operations on memory that is not mapped; zeros if all of it is mapped.
    pub slots: PackedKey,
}

/// How this process reaches a rank's part, found out when it is first accessed.
pub(super) struct Reached {
    /// The part's first byte in this process, by load and store; null otherwise.
    pub base: *mut u8,
    /// The region that the part lies in; none where it has no bytes.
    pub memory: Option<RemoteKey>,
    /// The words for synchronisation.
    pub control: Control,
    /// Where its owner takes small operations on memory that is not mapped.
    pub slots: Option<Slots>,
    /// The key that they were found with.
    _slots_key: Option<RemoteKey>,
    /// What is attached there, of a dynamic window.
    pub attached: Attached,
}

/// The part of the window that a rank has.
pub(super) struct Peer {
    pub part: Part,
    reached: UnsafeCell<Option<Box<Reached>>>,
    /// Whether operations may be under way that a flush has to complete.
    pub pending: Cell<bool>,
}

/// Values of the predefined attributes, at addresses that stay.
pub(super) struct Described {
    pub size: isize,
    pub unit: i32,
    pub flavor: i32,
    pub model: i32,
}

/// Memory of this process that the window has.
#[derive(Default)]
pub(super) struct Own {
    /// What is exposed, to be withdrawn.
    pub exposed: Vec<RegionId>,
    /// What was allocated, to be freed.
    pub allocated: Vec<usize>,
}

/// A window. All calls on it are made under the process's lock.
pub struct Window {
    /// Its handle.
    pub handle: Cell<usize>,
    /// How it was made.
    pub flavor: Flavor,
    /// Its group.
    pub group: Rc<Group>,
    /// The calling process's rank.
    pub rank: u32,
    /// A communicator of the group, only for the window.
    pub(super) comm: Rc<Comm>,
    /// As `MPI_Win_set_name` left it.
    pub name: RefCell<String>,
    /// The MPI call that made it.
    pub(super) made_by: &'static str,
    /// Handle of the error handler.
    pub errhandler: Cell<usize>,
    /// Cached attributes.
    pub attributes: Attributes,
    /// Hints given at creation or by `MPI_Win_set_info`.
    pub hints: RefCell<Vec<(String, String)>>,
    /// The own memory's first byte.
    pub base: Cell<*mut u8>,
    /// The list of what is attached, of a dynamic window.
    pub(super) list: *mut u8,
    pub(super) described: Described,
    pub(super) peers: Box<[Peer]>,
    pub(super) hot: Box<[Cell<HotPeer>]>,
    /// The lock of accumulates of each rank that the hot table has shown.
    pub(super) locks: Box<[Cell<*const AtomicU64>]>,
    pub(super) epoch: RefCell<Epoch>,
    pub(super) counts: Counts,
    /// The name by which traces know it, once it was asked for.
    pub(super) subject: Cell<Option<Subject>>,
    /// Whether all ranks are on this host, so that the rank that ends a wait wakes the one that waits.
    pub(super) is_local: bool,
    /// Whether peers may need this rank's progress for operations on its memory. Then every epoch of a lock makes
    /// progress, and none takes the immediate path.
    pub(super) serves: bool,
    /// Whether this rank has told all hosts that it locks exclusively.
    pub(super) announced: Cell<bool>,
    /// Whether this rank has seen that another does.
    pub(super) contested: Cell<bool>,
    /// The first rank on this host, once it is asked for.
    pub(super) home: OnceCell<u32>,
    /// How often this rank has left a lock and kept it since it gave one away.
    pub(super) kept: Cell<u32>,
    /// Ranks that the hot table shows as open.
    pub(super) opened: RefCell<Vec<u32>>,
    /// Those that it showed at the end of the last epoch by `MPI_Win_lock_all`.
    pub(super) opened_before: RefCell<Vec<u32>>,
    /// Ranks with [`Peer::pending`].
    pub(super) pending: RefCell<Vec<u32>>,
    /// What `MPI_Win_post` and `MPI_Win_start` count and remember.
    pub(super) exposure: RefCell<Exposure>,
    pub(super) own: RefCell<Own>,
    /// Accesses to each rank that nothing has completed, where mistakes are looked for.
    pub(super) accesses: RefCell<BTreeMap<u32, Accesses>>,
    /// What operations towards each rank do with buffers of this process, until something has completed them here.
    pub(super) uses: RefCell<BTreeMap<u32, Uses>>,
    /// What this process has attached to a dynamic window.
    pub(super) pieces: Pieces,
    /// Where its list is once it is longer than the window's memory for it.
    pub(super) longer: Cell<Longer>,
}

impl Peer {
    pub fn new(part: Part) -> Self {
        Peer { part, reached: UnsafeCell::new(None), pending: Cell::new(false) }
    }

    /// Where it is kept how the part is reached.
    pub fn reached_place(&self) -> *mut Option<Box<Reached>> {
        self.reached.get()
    }
}

/// The windows of the process.
pub(super) static WINDOWS: ProcessPart<Table<Window>> = ProcessPart::new(Table::new());

/// The error handler of a window.
pub(crate) fn find_handler(p: &Process, handle: usize) -> Option<usize> {
    Some(WINDOWS.of(p).get(handle)?.errhandler.get())
}

impl Handled for Window {
    const NOUN: &'static str = "window";
    const NULL: (usize, &'static str) = (MPI_WIN_NULL, "MPI_WIN_NULL");
    const CLASS: i32 = MPI_ERR_WIN;
}

/// Forgets what is kept of a rank, or of all of them.
fn forget<T>(kept: &RefCell<BTreeMap<u32, T>>, rank: Option<u32>) {
    let mut all = kept.borrow_mut();
    match rank {
        Some(rank) => _ = all.remove(&rank),
        None => all.clear(),
    }
}

impl Window {
    /// Number of ranks.
    pub fn size(&self) -> u32 {
        self.group.size()
    }

    /// What a person would call it.
    pub fn title(&self) -> String {
        let name = self.name.borrow();
        match name.is_empty() {
            true => format!("made by {}", self.made_by),
            false => name.clone(),
        }
    }

    /// What `MPI_Win_toint` says.
    #[inline]
    pub(super) fn number(&self) -> u32 {
        self.handle.get() as u32
    }

    /// Publishes its title for reports on the job.
    pub(super) fn tell_title(&self, p: &Process) {
        if let Some(engine) = p.engine() {
            engine.job.own_page().set_window_title(self.number(), &self.title());
        }
    }

    /// `MPI_Win_set_name`: what reports and messages call it too.
    pub fn set_name(&self, p: &Process, name: String) {
        self.comm.name.replace(format!("of the window {name}"));
        self.comm.tell_title();
        self.name.replace(name);
        self.tell_title(p);
        self.subject.set(None);
    }

    /// Records a point of the window, towards a world rank where it has one, if points are recorded.
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

    /// It as the holder of attributes.
    pub fn holder(&self) -> Holder<'_> {
        Holder { kind: KeyvalKind::Win, handle: self.handle.get(), attributes: &self.attributes }
    }

    /// The value of a predefined attribute: an address.
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

    /// The list of a dynamic window.
    pub(super) fn base_of_list(&self) -> *mut u8 {
        self.list
    }

    /// World rank of a rank.
    #[inline]
    pub(super) fn world(&self, rank: u32) -> u32 {
        self.group.world_ranks()[rank as usize]
    }

    /// The rank that an argument names.
    ///
    /// # Errors
    /// `MPI_ERR_RANK`.
    #[inline]
    pub(super) fn check_rank(&self, rank: i32) -> Result<u32> {
        match rank >= 0 && (rank as u32) < self.size() {
            true => Ok(rank as u32),
            false => Err(error::refuse_rank(self, rank)),
        }
    }

    /// How a rank's part is reached, found out at the first call.
    ///
    /// # Errors
    /// What keeps the rank from being reached.
    #[inline]
    pub(super) fn reach(&self, p: &Process, rank: u32) -> Result<*mut Reached> {
        // SAFETY: under the lock; nothing here lets another thread in while the reference lives.
        let reached = unsafe { &mut *self.peers[rank as usize].reached.get() };
        match reached {
            Some(reached) => Ok(&raw mut **reached),
            None => self.reach_first(p, rank),
        }
    }

    #[cold]
    #[inline(never)]
    fn reach_first(&self, p: &Process, rank: u32) -> Result<*mut Reached> {
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
        let control = Control::new(control, words.unwrap_or(std::ptr::null_mut()));
        let (memory, base) = self.reach_memory(p, rank)?;
        let reached = Reached {
            base,
            memory,
            control,
            slots,
            _slots_key: slots_key,
            attached: Attached::default(),
        };
        // SAFETY: as in `reach`.
        let place = unsafe { &mut *self.peers[rank as usize].reached.get() };
        Ok(&raw mut **place.insert(Box::new(reached)))
    }

    /// The memory that a rank's part lies in, and the part's first byte where it is reached by load and store.
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
        // Of a dynamic window: its list, at the begin of the memory.
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
            // The parts of all ranks follow each other here too: they are mapped once.
            let whole = self.reach(p, part.owner)?;
            // SAFETY: lives as long as the window.
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

    /// Notes that operations are under way to a rank that a flush has to complete.
    #[inline]
    pub(super) fn note_pending(&self, rank: u32) {
        if !self.peers[rank as usize].pending.replace(true) {
            self.pending.borrow_mut().push(rank);
        }
    }

    /// Whether locks, atomics and accumulates of a rank that is reached wait until it makes progress.
    pub(super) fn needs_owner(&self, rank: u32) -> bool {
        self.known(rank).is_some_and(|reached| reached.control.word(LOCK).is_null())
    }

    /// How a rank is reached, if it was accessed: name and explanation.
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

    /// Shows a rank, to which an epoch gives access, to the immediate path, where it is reached by load and store.
    #[inline]
    pub(super) fn show(&self, p: &Process, rank: u32) -> Result {
        let reached = self.reach(p, rank)?;
        // SAFETY: lives as long as the window; nothing below lets other threads in.
        self.open(rank, unsafe { &*reached });
        Ok(())
    }

    /// As [`Window::show`], of a rank that was shown before.
    #[inline]
    pub(super) fn show_again(&self, rank: u32) {
        if let Some(reached) = self.known(rank) {
            self.open(rank, reached);
        }
    }

    /// How a rank's part is reached, if that was found out before. The reference is not kept while other threads come
    /// in.
    #[inline]
    pub(super) fn known(&self, rank: u32) -> Option<&Reached> {
        // SAFETY: as in `reach`.
        unsafe { (*self.peers[rank as usize].reached.get()).as_deref() }
    }

    /// Whether operations may be under way to a rank that a flush has to complete.
    #[inline]
    pub(super) fn is_pending(&self, rank: u32) -> bool {
        self.peers[rank as usize].pending.get()
    }

    #[inline]
    fn open(&self, rank: u32, reached: &Reached) {
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

    /// Accesses to a rank, or to all of them, are complete.
    #[cold]
    pub(super) fn forget_accesses(&self, rank: Option<u32>) {
        forget(&self.accesses, rank);
    }

    /// The buffers of operations to a rank, or to all of them, may be used again.
    #[cold]
    pub(super) fn forget_uses(&self, rank: Option<u32>) {
        forget(&self.uses, rank);
    }

    /// Hides a rank from the immediate path.
    #[inline]
    pub(super) fn close(&self, rank: u32) {
        if self.hot[rank as usize].replace(HotPeer::CLOSED).is_open() {
            let mut opened = self.opened.borrow_mut();
            if let Some(at) = opened.iter().rposition(|&other| other == rank) {
                opened.swap_remove(at);
            }
        }
    }

    /// Shows those that [`Window::close_for_now`] hid.
    #[inline]
    pub(super) fn open_again(&self) {
        while let Some(rank) = self.opened_before.borrow_mut().pop() {
            self.show_again(rank);
        }
    }

    /// As [`Window::close_all`], at the end of an epoch that the next one will be like.
    #[inline]
    pub(super) fn close_for_now(&self) {
        self.opened_before.swap(&self.opened);
        for &rank in &*self.opened_before.borrow() {
            self.hot[rank as usize].set(HotPeer::CLOSED);
        }
    }

    /// Hides all ranks from the immediate path.
    pub(super) fn close_all(&self) {
        for rank in self.opened.borrow_mut().drain(..) {
            self.hot[rank as usize].set(HotPeer::CLOSED);
        }
    }

    /// Forgets how ranks are reached: nothing may be under way any more.
    pub(super) fn forget_all(&self) {
        self.close_all();
        for peer in &self.peers {
            // SAFETY: as in `reach`.
            unsafe { *peer.reached.get() = None };
        }
    }
}

impl Process {
    /// The window behind a handle, or the right error.
    #[inline]
    pub fn win(&self, handle: usize) -> Result<Rc<Window>> {
        WINDOWS.of(self).find(handle)
    }

    /// The handles of all windows.
    pub(super) fn list_windows(&self) -> Vec<usize> {
        WINDOWS.of(self).handles()
    }
}
