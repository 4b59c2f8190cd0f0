//! State of the immediate path of one-sided operations: a cache line for each window, and four words for each rank of
//! the window.
//!
//! The low bits of a window's handle select its entry, whose key must match the handle, as for communicators
//! ([`crate::objects::hot`]). At `MPI_THREAD_MULTIPLE` the key differs, so that only calls that hold the lock find it.
//!
//! A rank's entry has a nonzero size only if an epoch gives access to the rank and load and store reach its memory. So
//! the bounds check also checks the epoch. All other cases take the ordinary path, which reports errors. While an epoch
//! gives access to a rank that load and store do not reach, the entry's address is [`FAR`]. A put or a get inside MPI
//! then needs to check neither epoch nor handles.
//!
//! **SIDES.** The origin's buffer is readable for a put and writable for a get, as count and datatype specify. The user
//! guarantees this.
#![allow(unsafe_code)]

use super::transfer::move_far;
use super::window::Window;
use crate::common::error::Result;
use crate::common::lock;
use crate::objects::datatype::is_memory;
use crate::objects::hot::{self, INSIDE, OPEN};
use crate::process::Process;
use fastpath_base::copy::{COPY_SMALL_MAX, copy, copy_small};
use fastpath_base::sync::{AtomicU64, Ordering, StaticOrdering, StaticUsize, fence};
use std::arch::asm;
use std::cell::{Cell, UnsafeCell};
use std::ptr;
use std::rc::Rc;

const ENTRIES: usize = 1 << 12;
const SMALL: u64 = COPY_SMALL_MAX as u64;
/// Number of flushes between two polls for messages. A program may wait for a message in a loop of flushes.
const FLUSHES_PER_LOOK: u32 = 64;

/// Address of memory that an adapter, the kernel or messages reach. No memory has this address.
const FAR: *mut u8 = ptr::dangling_mut();

/// Entry of a rank.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct HotPeer {
    /// Address of the part in this process, or [`FAR`]. Null unless an epoch is known to give access.
    pub base: *mut u8,
    /// Size in bytes; 0 if the ordinary path has to be taken.
    pub size: u64,
    /// Displacement unit in bytes.
    pub unit: u64,
    /// Largest displacement inside the part.
    pub limit: u64,
}

const _: () = assert!(size_of::<HotPeer>() == 32);

impl HotPeer {
    /// Entry of a rank that the immediate path does not reach.
    pub const CLOSED: HotPeer = HotPeer { base: ptr::null_mut(), size: 0, unit: 1, limit: 0 };

    /// Returns the entry of a rank whose memory load and store do not reach.
    pub fn far(unit: u64, limit: u64) -> HotPeer {
        HotPeer { base: FAR, size: 0, unit, limit }
    }

    /// Returns whether an epoch gives access to the rank.
    #[inline]
    pub fn is_open(&self) -> bool {
        !self.base.is_null()
    }
}

#[repr(C, align(64))]
struct HotWin {
    /// Key of the handle (`hot::key`); 0 if the ordinary path has to be taken.
    key: Cell<u64>,
    peers: Cell<*const Cell<HotPeer>>,
    /// Accumulate lock of each open rank.
    locks: Cell<*const Cell<*const AtomicU64>>,
    size: Cell<u32>,
    flushes: Cell<u32>,
    /// Address of the window, from `Rc::as_ptr`.
    whole: Cell<*const Window>,
    /// The value of `key` if locks take the immediate path; otherwise 0.
    lock_key: Cell<u64>,
    /// Number of operations counted by the immediate path, by [`CountedKind`].
    counted: [Cell<u64>; 2],
}

const _: () = assert!(size_of::<HotWin>() == 64);

/// Operations that the immediate path counts, by an addition to a cache line that it reads anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CountedKind {
    Accumulate,
    Atomic,
}

struct HotWindows(UnsafeCell<[HotWin; ENTRIES]>);

// SAFETY: only the single thread inside MPI accesses the table. With several threads, keys hide entries from calls
// without the lock.
unsafe impl Sync for HotWindows {}

static WINDOWS: HotWindows = HotWindows(UnsafeCell::new(
    [const {
        HotWin {
            key: Cell::new(0),
            peers: Cell::new(ptr::null()),
            locks: Cell::new(ptr::null()),
            size: Cell::new(0),
            flushes: Cell::new(FLUSHES_PER_LOOK),
            whole: Cell::new(ptr::null()),
            lock_key: Cell::new(0),
            counted: [const { Cell::new(0) }; 2],
        }
    }; ENTRIES],
));

/// Number of table entries that have ever been used: the highest used index plus 1.
static WINDOWS_END: StaticUsize = StaticUsize::new(0);

#[inline]
fn window(handle: usize) -> &'static HotWin {
    // SAFETY: the index is masked, and the entries are cells.
    unsafe { &(*WINDOWS.0.get())[handle & (ENTRIES - 1)] }
}

/// Returns the window of a handle, if its locks take the immediate path.
#[inline(always)] // `fastpath bench instructions` counts MPI_Win_lock
pub(super) fn lockable<const WAY: u8>(win: usize) -> Option<&'static Window> {
    let entry = window(win);
    // SAFETY: the window lives as long as the key is set.
    (entry.lock_key.get() == hot::key::<WAY>(win)).then(|| unsafe { &*entry.whole.get() })
}

/// Returns the entry of a rank; `None` if the window is not in the table for `WAY` or has no such rank.
#[inline(always)] // `fastpath bench instructions` counts MPI_Put
fn peer<const WAY: u8>(win: usize, rank: i32) -> Option<*mut HotPeer> {
    let window = window(win);
    if window.key.get() != hot::key::<WAY>(win) || rank as u32 >= window.size.get() {
        return None;
    }
    // SAFETY: the table has an entry for each rank, and lives as long as the key is set.
    let peer = unsafe { window.peers.get().add(rank as u32 as usize) };
    Some(in_one_register(peer.cast_mut().cast()))
}

/// Returns `address` unchanged, and hides from the compiler that it is a sum. Otherwise the compiler keeps the parts in
/// two registers, and saves other registers for them (6 instructions in `MPI_Put`).
#[inline(always)] // `fastpath bench instructions` counts MPI_Put
#[allow(clippy::pointers_in_nomem_asm_block)] // the pointer is not dereferenced
fn in_one_register<T>(mut address: *mut T) -> *mut T {
    // SAFETY: the assembly is empty.
    unsafe {
        asm!("/* {0} */", inout(reg) address, options(pure, nomem, nostack, preserves_flags));
    }
    address
}

/// Arguments of a put or a get.
#[derive(Clone, Copy)]
pub struct Sides {
    /// Address of the origin's buffer.
    pub origin: *mut u8,
    /// Number of elements at the origin.
    pub count: i64,
    /// Handle of the datatype of the origin's elements.
    pub datatype: usize,
    /// Rank of the target.
    pub rank: i32,
    /// Displacement at the target, in the target's displacement units.
    pub disp: isize,
    /// Number of elements at the target.
    pub target_count: i64,
    /// Handle of the datatype of the target's elements.
    pub target_datatype: usize,
    /// Handle of the window.
    pub win: usize,
}

/// Performs a put or a get of a few contiguous bytes of one datatype to memory that load and store reach. Returns
/// false, without effect, in other cases. The function makes no call, so the caller saves no registers.
///
/// # Safety
/// See SIDES.
#[inline(always)] // `fastpath bench instructions` counts MPI_Put and MPI_Get
pub unsafe fn try_move<const PUTS: bool>(sides: Sides) -> bool {
    let Some((peer, end, bytes)) = find_target::<OPEN>(&sides) else {
        return false;
    };
    // SAFETY: SIDES.
    unsafe { copy_now::<PUTS, false>(peer, end, bytes, &sides) }
}

/// Performs a put or a get of any size and access, for a call that is inside MPI. Returns `None`, without effect, if
/// the immediate path does not apply. Safety: SIDES must hold until the operation completes.
#[inline(never)]
pub(super) unsafe fn try_move_long<const PUTS: bool>(p: &Process, sides: &Sides) -> Option<Result> {
    let (peer, end, bytes) = match hot::is_hidden() {
        false => find_target::<OPEN>(sides)?,
        true => find_target::<INSIDE>(sides)?,
    };
    let whole = window(sides.win).whole.get();
    // SAFETY: the entry exists, and no other thread writes it during this call.
    if unsafe { (*peer).base } == FAR {
        // A move may wait and let other threads enter MPI: the reference keeps the window alive if one of them frees
        // it. SAFETY: the pointer is from `Rc::as_ptr`. The table of windows holds a count while the key is set, as
        // checked. Counts change only inside MPI: this call has the lock, or there is no other thread.
        let held = unsafe {
            Rc::increment_strong_count(whole);
            Rc::from_raw(whole)
        };
        // SAFETY: SIDES.
        return unsafe { move_far::<PUTS>(p, &held, sides, end - bytes, bytes) };
    }
    // SAFETY: SIDES.
    let done = unsafe { copy_now::<PUTS, true>(peer, end, bytes, sides) };
    done.then(|| {
        // SAFETY: the window lives as long as the key is set, and nothing here has let other threads enter MPI.
        let whole = unsafe { &*whole };
        whole.counts.add_move::<PUTS>(bytes);
        Ok(())
    })
}

/// Finds the entry of the target rank for contiguous elements of one datatype. Returns the entry, the end offset of the
/// elements there, and their bytes. The bounds are not yet checked.
#[inline(always)] // `fastpath bench instructions` counts MPI_Put and MPI_Get
fn find_target<const WAY: u8>(sides: &Sides) -> Option<(*mut HotPeer, u64, u64)> {
    let peer = peer::<WAY>(sides.win, sides.rank)?;
    let datatype = in_one_register(ptr::from_ref(hot::datatype(sides.datatype)).cast_mut());
    // SAFETY: the pointer is to an entry of the static table.
    let datatype = unsafe { &*datatype };
    // SAFETY: the entry exists, and no other thread writes it during this call.
    let (unit, limit) = unsafe { ((*peer).unit, (*peer).limit) };
    let plain = datatype.key == sides.datatype as u64
        && sides.datatype == sides.target_datatype
        && sides.count == sides.target_count
        && sides.count as u64 <= u64::from(u32::MAX)
        && sides.disp as u64 <= limit
        && is_memory(sides.origin);
    if !plain {
        return None;
    }
    // No sum overflows: elements have at most 2^31 - 1 bytes, and a displacement within the limit is inside the part.
    let bytes = sides.count as u64 * datatype.size;
    Some((peer, sides.disp as u64 * unit + bytes, bytes))
}

/// Copies the bytes that [`find_target`] has found, if they are inside the part. Safety: see SIDES.
#[inline(always)] // `fastpath bench instructions` counts MPI_Put and MPI_Get
unsafe fn copy_now<const PUTS: bool, const LONG: bool>(
    peer: *mut HotPeer, end: u64, bytes: u64, sides: &Sides,
) -> bool {
    // SAFETY: the entry exists, and no other thread writes it during this call.
    let (base, size) = unsafe { ((*peer).base, (*peer).size) };
    if end > size {
        return false;
    }
    let target_end = base.wrapping_add(end as usize);
    let target = target_end.wrapping_sub(bytes as usize);
    let (to, from) = match PUTS {
        true => (target, sides.origin),
        false => (sides.origin, target),
    };
    // SAFETY: SIDES. The target is inside the mapped part, as checked. Overlap is an error of the program.
    unsafe {
        match bytes {
            8 if PUTS => {
                let value = from.cast::<u64>().read_unaligned();
                target_end.cast::<u64>().wrapping_sub(1).write_unaligned(value);
            }
            8 => {
                let value = target_end.cast::<u64>().wrapping_sub(1).read_unaligned();
                to.cast::<u64>().write_unaligned(value);
            }
            1..=SMALL => copy_small(to, from, bytes as usize),
            // An empty access also passes the bounds check of a closed rank. The ordinary path handles it.
            0 => return false,
            _ if !LONG => return false,
            _ => copy(to, from, bytes as usize),
        }
    }
    true
}

/// Completes operations to a rank that load and store reach. Returns false if the immediate path does not apply. With
/// `LOCAL`, only the buffers must be free. They are, because operations by load and store are complete on return.
#[inline(always)] // `fastpath bench instructions` counts MPI_Win_flush
pub fn try_flush<const WAY: u8, const LOCAL: bool>(rank: i32, win: usize) -> bool {
    let Some(peer) = peer::<WAY>(win, rank) else {
        return false;
    };
    let window = window(win);
    let left = window.flushes.get().wrapping_sub(1);
    window.flushes.set(left);
    // SAFETY: the entry exists, and no other thread writes it during this call.
    if left == 0 || unsafe { (*peer).size } == 0 {
        return false;
    }
    if !LOCAL {
        // ORDERING: full fence: earlier puts are visible to others before this process reads anything else. The partner
        // is the same fence in a rank that also flushes.
        fence(Ordering::SeqCst);
    }
    true
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Caller {
    /// `MPI_Win_flush` or `MPI_Win_flush_local`. The immediate path has counted it if it knows the window.
    Flush,
    /// A flush that the immediate path does not perform, and so has not counted.
    FlushAll,
    /// A call other than a flush.
    Sync,
}

/// Corrects the count of flushes after the ordinary path has refused a flush that the immediate path may have counted.
pub(super) fn take_back_flush(win: usize) {
    if is_shown(win) {
        let entry = window(win);
        entry.flushes.set(entry.flushes.get().wrapping_add(1));
    }
}

/// Records that a call has polled. Returns the number of flushes since the last poll, including this call.
pub(super) fn note_look(win: usize, caller: Caller) -> u64 {
    let own = u64::from(caller != Caller::Sync);
    if !is_shown(win) {
        return own;
    }
    let since = FLUSHES_PER_LOOK.wrapping_sub(window(win).flushes.replace(FLUSHES_PER_LOOK));
    u64::from(since) + if caller == Caller::Flush { 0 } else { own }
}

pub(super) fn flushes_since_look(win: usize) -> u64 {
    match is_shown(win) {
        true => u64::from(FLUSHES_PER_LOOK.wrapping_sub(window(win).flushes.get())),
        false => 0,
    }
}

pub(super) fn count(kind: CountedKind, win: usize) -> u64 {
    match is_shown(win) {
        true => window(win).counted[kind as usize].get(),
        false => 0,
    }
}

fn is_shown(win: usize) -> bool {
    [hot::key::<OPEN>(win), hot::key::<INSIDE>(win)].contains(&window(win).key.get())
}

/// Returns whether puts and gets of a window may complete without entering MPI.
pub(super) fn serves_outside(win: usize) -> bool {
    window(win).key.get() == hot::key::<OPEN>(win)
}

/// Target memory of an operation, which load and store reach.
pub(super) struct TargetMemory {
    pub target: *mut u8,
    /// The accumulate lock. It is a raw pointer, so that finding the memory needs no test of it.
    lock: *const AtomicU64,
    counted: &'static Cell<u64>,
}

impl TargetMemory {
    #[inline(always)] // see `find`
    pub fn lock(&self) -> &'static AtomicU64 {
        // SAFETY: opening the rank has set the pointer, to a word in memory that stays mapped while the window lives.
        unsafe { &*self.lock }
    }

    /// Counts an operation. Called when the operation can no longer fail.
    #[inline(always)] // see `find`
    pub fn count(&self) {
        self.counted.set(self.counted.get().wrapping_add(1));
    }
}

/// Locates `bytes` bytes, 1 to 2^62, at a displacement of a rank; `None` if the immediate path does not reach them.
#[inline(always)] // `fastpath bench instructions` counts MPI_Fetch_and_op
pub(super) fn find<const WAY: u8>(
    kind: CountedKind, win: usize, (rank, disp): (i32, isize), bytes: u64,
) -> Option<TargetMemory> {
    let peer = peer::<WAY>(win, rank)?;
    // SAFETY: the entry exists, and no other thread writes it during this call.
    let (base, size, unit, limit) =
        unsafe { ((*peer).base, (*peer).size, (*peer).unit, (*peer).limit) };
    if disp as u64 > limit {
        return None;
    }
    let end = disp as u64 * unit + bytes;
    if end > size {
        return None;
    }
    let entry = window(win);
    // SAFETY: the table of locks has an entry for each rank.
    let lock = unsafe { (*entry.locks.get().add(rank as u32 as usize)).get() };
    let target = base.wrapping_add((end - bytes) as usize);
    Some(TargetMemory { target, lock, counted: &entry.counted[kind as usize] })
}

/// Removes all windows from the immediate path, in a forked child. Takes no lock and no memory.
pub(crate) fn clear_all() {
    for index in 0..WINDOWS_END.load(StaticOrdering::Relaxed) {
        window(index).key.set(0);
        window(index).lock_key.set(0);
    }
}

impl Process {
    pub(super) fn hot_win_set(&self, handle: usize, shown: &Rc<Window>) {
        let allowed = self.engine().is_some_and(|engine| {
            let allowed = engine.allowed;
            allowed.datatype && allowed.send && allowed.recv && !allowed.traced
        });
        let entry = window(handle);
        if allowed && entry.key.get() == 0 {
            let key = match lock::is_enabled() {
                false => hot::key::<OPEN>(handle),
                true => hot::key::<INSIDE>(handle),
            };
            entry.key.set(key);
            entry.lock_key.set(if shown.serves { 0 } else { key });
            let end = (handle & (ENTRIES - 1)) + 1;
            WINDOWS_END.fetch_max(end, StaticOrdering::Relaxed);
            entry.peers.set(shown.hot.as_ptr());
            entry.locks.set(shown.locks.as_ptr());
            entry.size.set(shown.size());
            entry.flushes.set(FLUSHES_PER_LOOK);
            for count in &entry.counted {
                count.set(0);
            }
            entry.whole.set(Rc::as_ptr(shown));
        }
    }

    pub(super) fn hot_win_clear(&self, handle: usize) {
        if is_shown(handle) {
            window(handle).key.set(0);
            window(handle).lock_key.set(0);
        }
    }

    pub(crate) fn hot_win_clear_all(&self) {
        for handle in self.list_windows() {
            self.hot_win_clear(handle);
        }
    }
}
