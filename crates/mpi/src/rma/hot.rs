//! What the immediate path of one-sided operations reads: a line per window, four words per rank of it.
//!
//! A window's entry is found by the low bits of its handle, and its key must be that of the handle, as with
//! communicators ([`crate::objects::hot`]): at `MPI_THREAD_MULTIPLE` another one, which calls look for when they have
//! the lock.
//!
//! A rank's entry has a size other than 0 only while an epoch gives access to it and its memory is
//! reached by load and store: so the check of the bounds is that of the epoch too, and whatever does not fit takes the
//! ordinary path, which says what is wrong. A rank that is reached otherwise has [`FAR`] for an address while an epoch
//! gives access: a put or a get that is inside MPI then need look neither at epoch nor handles.
//!
//! **SIDES.** The origin's buffer is readable for a put and writable for a get as count and datatype say, by the user's
//! promise.
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
/// Flushes after which one looks for messages: a program may wait for one in a loop of flushes.
const FLUSHES_PER_LOOK: u32 = 64;

/// The address of what an adapter, the kernel or messages reach: none that memory has.
const FAR: *mut u8 = ptr::dangling_mut();

/// A rank's part of a window.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct HotPeer {
    /// Its first byte in this process, or [`FAR`]; null where no epoch is known to give access.
    pub base: *mut u8,
    /// Bytes; 0 where the ordinary path has to look.
    pub size: u64,
    /// Bytes that a displacement of 1 is.
    pub unit: u64,
    /// Largest displacement inside of it.
    pub limit: u64,
}

const _: () = assert!(size_of::<HotPeer>() == 32);

impl HotPeer {
    /// A rank that the immediate path does not reach.
    pub const CLOSED: HotPeer = HotPeer { base: ptr::null_mut(), size: 0, unit: 1, limit: 0 };

    /// A rank whose memory is not reached by load and store.
    pub fn far(unit: u64, limit: u64) -> HotPeer {
        HotPeer { base: FAR, size: 0, unit, limit }
    }

    /// Whether an epoch gives access to it.
    #[inline]
    pub fn is_open(&self) -> bool {
        !self.base.is_null()
    }
}

/// A window.
#[repr(C, align(64))]
struct HotWin {
    /// `hot::key` of its handle; 0 where the ordinary path has to look.
    key: Cell<u64>,
    peers: Cell<*const Cell<HotPeer>>,
    /// The lock of accumulates of each rank that is shown.
    locks: Cell<*const Cell<*const AtomicU64>>,
    size: Cell<u32>,
    /// Flushes until the next look for messages.
    flushes: Cell<u32>,
    /// From `Rc::as_ptr`.
    whole: Cell<*const Window>,
    /// The key where locks take the immediate path, else 0.
    lock_key: Cell<u64>,
    /// What the immediate path has counted: [`CountedKind`].
    counted: [Cell<u64>; 2],
}

const _: () = assert!(size_of::<HotWin>() == 64);

/// Operations that are counted: one addition to a line that is read anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CountedKind {
    Accumulate,
    Atomic,
}

struct Table(UnsafeCell<[HotWin; ENTRIES]>);

// SAFETY: read and written inside MPI calls of the only thread; where there may be several, the keys hide from calls
// that do not have the lock.
unsafe impl Sync for Table {}

static WINDOWS: Table = Table(UnsafeCell::new(
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

/// End of the part of the table that has been used.
static WINDOWS_END: StaticUsize = StaticUsize::new(0);

#[inline]
fn window(handle: usize) -> &'static HotWin {
    // SAFETY: the index is masked, and the entries are cells.
    unsafe { &(*WINDOWS.0.get())[handle & (ENTRIES - 1)] }
}

/// The window itself, if its locks take the immediate path.
#[inline(always)] // `fastpath bench instructions` counts MPI_Win_lock
pub(super) fn lockable<const WAY: u8>(win: usize) -> Option<&'static Window> {
    let entry = window(win);
    // SAFETY: it lives as long as the key is there.
    (entry.lock_key.get() == hot::key::<WAY>(win)).then(|| unsafe { &*entry.whole.get() })
}

/// The entry of a rank that the immediate path reaches.
#[inline(always)] // `fastpath bench instructions` counts MPI_Put
fn peer<const WAY: u8>(win: usize, rank: i32) -> Option<*mut HotPeer> {
    let window = window(win);
    if window.key.get() != hot::key::<WAY>(win) || rank as u32 >= window.size.get() {
        return None;
    }
    // SAFETY: the table has an entry for each rank, and lives as long as the key is there.
    let peer = unsafe { window.peers.get().add(rank as u32 as usize) };
    Some(in_one_register(peer.cast_mut().cast()))
}

/// The same address, hidden from the compiler as a sum: otherwise it keeps the parts in two registers, and saves others
/// for them (6 instructions in `MPI_Put`).
#[inline(always)] // `fastpath bench instructions` counts MPI_Put
#[allow(clippy::pointers_in_nomem_asm_block)] // it is not followed
fn in_one_register<T>(mut address: *mut T) -> *mut T {
    // SAFETY: no instruction at all.
    unsafe {
        asm!("/* {0} */", inout(reg) address, options(pure, nomem, nostack, preserves_flags));
    }
    address
}

/// The two sides of a put or a get, as the program gave them.
#[derive(Clone, Copy)]
pub struct Sides {
    /// Address here.
    pub origin: *mut u8,
    /// Elements here.
    pub count: i64,
    /// Their datatype.
    pub datatype: usize,
    /// Rank of the target.
    pub rank: i32,
    /// Displacement there.
    pub disp: isize,
    /// Elements there.
    pub target_count: i64,
    /// Their datatype.
    pub target_datatype: usize,
    /// The window.
    pub win: usize,
}

/// A put (or a get) of a few bytes, in contiguous elements of one datatype, to memory that is reached by load and
/// store, or nothing. No call is made: so the caller saves no registers.
///
/// # Safety
/// The buffer is as count and datatype say.
#[inline(always)] // `fastpath bench instructions` counts MPI_Put and MPI_Get
pub unsafe fn try_move<const PUTS: bool>(sides: Sides) -> bool {
    let Some((peer, end, bytes)) = find_target::<OPEN>(&sides) else {
        return false;
    };
    // SAFETY: SIDES.
    unsafe { copy_now::<PUTS, false>(peer, end, bytes, &sides) }
}

/// The same of any number of bytes and by any way, for a call that is inside MPI; none where it did nothing.
///
/// # Safety
/// The buffer is as count and datatype say, until the operation is completed.
#[inline(never)]
pub(super) unsafe fn try_move_long<const PUTS: bool>(p: &Process, sides: &Sides) -> Option<Result> {
    let (peer, end, bytes) = match hot::is_hidden() {
        false => find_target::<OPEN>(sides)?,
        true => find_target::<INSIDE>(sides)?,
    };
    let whole = window(sides.win).whole.get();
    // SAFETY: the entry is there; nobody writes it while this call runs.
    if unsafe { (*peer).base } == FAR {
        // The move may wait, and that lets others in: who frees the window then does not take it from this call.
        // SAFETY: from `Rc::as_ptr`; the table of windows has a count of it as long as the key is there, as just seen.
        // Counts change only inside MPI, so this call has the lock, or there is no other thread.
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
        // SAFETY: it lives as long as the key is there, and nothing here has let others in.
        let whole = unsafe { &*whole };
        whole.counts.add_move::<PUTS>(bytes);
        Ok(())
    })
}

/// The entry of the rank that contiguous elements of one datatype go to or come from, where they end there, and their
/// bytes. Whether they are inside is not known yet.
#[inline(always)] // `fastpath bench instructions` counts MPI_Put and MPI_Get
fn find_target<const WAY: u8>(sides: &Sides) -> Option<(*mut HotPeer, u64, u64)> {
    let peer = peer::<WAY>(sides.win, sides.rank)?;
    let datatype = in_one_register(ptr::from_ref(hot::datatype(sides.datatype)).cast_mut());
    // SAFETY: an entry of the table.
    let datatype = unsafe { &*datatype };
    // SAFETY: the entry is there; nobody writes it while this call runs.
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
    // Elements have at most 2^31 - 1 bytes, and a displacement within the limit is inside: no sum is too large.
    let bytes = sides.count as u64 * datatype.size;
    Some((peer, sides.disp as u64 * unit + bytes, bytes))
}

/// Copies what [`find_target`] has found, where it is inside.
///
/// # Safety
/// As [`try_move`].
#[inline(always)] // `fastpath bench instructions` counts MPI_Put and MPI_Get
unsafe fn copy_now<const PUTS: bool, const LONG: bool>(
    peer: *mut HotPeer, end: u64, bytes: u64, sides: &Sides,
) -> bool {
    // SAFETY: as in `find_target`.
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
    // SAFETY: inside the mapped part, as just seen; SIDES. What overlaps is an error of the program.
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
            // Without any bytes nothing tells whether the rank is shown.
            0 => return false,
            _ if !LONG => return false,
            _ => copy(to, from, bytes as usize),
        }
    }
    true
}

/// Completes operations to a rank that is reached by load and store, or does nothing. `LOCAL` if only their buffers
/// have to be free, as they are.
#[inline(always)] // `fastpath bench instructions` counts MPI_Win_flush
pub fn try_flush<const WAY: u8, const LOCAL: bool>(rank: i32, win: usize) -> bool {
    let Some(peer) = peer::<WAY>(win, rank) else {
        return false;
    };
    let window = window(win);
    let left = window.flushes.get().wrapping_sub(1);
    window.flushes.set(left);
    // SAFETY: as in `try_move`.
    if left == 0 || unsafe { (*peer).size } == 0 {
        return false;
    }
    if !LOCAL {
        // ORDERING: what was put is there for others before this process reads anything else; the partner is the same
        // fence of a rank that does so too.
        fence(Ordering::SeqCst);
    }
    true
}

/// A call that polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Caller {
    /// `MPI_Win_flush` or `MPI_Win_flush_local`, which the immediate path has counted where it knows the window.
    Flush,
    /// A flush that it does not know.
    FlushAll,
    /// No flush.
    Sync,
}

/// A flush that the immediate path may have counted is refused.
pub(super) fn take_back_flush(win: usize) {
    if is_shown(win) {
        let entry = window(win);
        entry.flushes.set(entry.flushes.get().wrapping_add(1));
    }
}

/// A call has polled: how many flushes there were since the last one that has, itself among them.
pub(super) fn note_look(win: usize, caller: Caller) -> u64 {
    let own = u64::from(caller != Caller::Sync);
    if !is_shown(win) {
        return own;
    }
    let since = FLUSHES_PER_LOOK.wrapping_sub(window(win).flushes.replace(FLUSHES_PER_LOOK));
    u64::from(since) + if caller == Caller::Flush { 0 } else { own }
}

/// Flushes of a window that have not looked for messages, since the last one that has.
pub(super) fn flushes_since_look(win: usize) -> u64 {
    match is_shown(win) {
        true => u64::from(FLUSHES_PER_LOOK.wrapping_sub(window(win).flushes.get())),
        false => 0,
    }
}

/// Operations that the immediate path has counted.
pub(super) fn count(kind: CountedKind, win: usize) -> u64 {
    match is_shown(win) {
        true => window(win).counted[kind as usize].get(),
        false => 0,
    }
}

/// Whether the immediate path knows a window.
fn is_shown(win: usize) -> bool {
    [hot::key::<OPEN>(win), hot::key::<INSIDE>(win)].contains(&window(win).key.get())
}

/// Whether puts and gets of a window may return without going inside.
pub(super) fn serves_outside(win: usize) -> bool {
    window(win).key.get() == hot::key::<OPEN>(win)
}

/// Memory of a rank that is reached by load and store.
pub(super) struct TargetMemory {
    pub target: *mut u8,
    /// The lock of accumulates. A pointer, so that finding a place needs no check of it.
    lock: *const AtomicU64,
    /// How many operations there were.
    counted: &'static Cell<u64>,
}

impl TargetMemory {
    /// The lock of accumulates.
    #[inline(always)] // as `find`
    pub fn lock(&self) -> &'static AtomicU64 {
        // SAFETY: set where the rank is shown: to a word in memory that stays mapped while the window lives.
        unsafe { &*self.lock }
    }

    /// Counts an operation, which nothing keeps from being made any more.
    #[inline(always)] // as `find`
    pub fn count(&self) {
        self.counted.set(self.counted.get().wrapping_add(1));
    }
}

/// Finds `bytes`, 1 to 2^62, at a displacement of a rank that is shown, for an operation of a kind.
#[inline(always)] // `fastpath bench instructions` counts MPI_Fetch_and_op
pub(super) fn find<const WAY: u8>(
    kind: CountedKind, win: usize, (rank, disp): (i32, isize), bytes: u64,
) -> Option<TargetMemory> {
    let peer = peer::<WAY>(win, rank)?;
    // SAFETY: as in `find_target`.
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
    // SAFETY: there is an entry for each rank.
    let lock = unsafe { (*entry.locks.get().add(rank as u32 as usize)).get() };
    let target = base.wrapping_add((end - bytes) as usize);
    Some(TargetMemory { target, lock, counted: &entry.counted[kind as usize] })
}

/// Takes all windows out of the immediate path, in a forked child: takes no lock and no memory.
pub(crate) fn clear_all() {
    for index in 0..WINDOWS_END.load(StaticOrdering::Relaxed) {
        window(index).key.set(0);
        window(index).lock_key.set(0);
    }
}

impl Process {
    /// Publishes a window to the immediate path.
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

    /// Takes a window out of the immediate path, before it is freed.
    pub(super) fn hot_win_clear(&self, handle: usize) {
        if is_shown(handle) {
            window(handle).key.set(0);
            window(handle).lock_key.set(0);
        }
    }

    /// The same of all windows.
    pub(crate) fn hot_win_clear_all(&self) {
        for handle in self.list_windows() {
            self.hot_win_clear(handle);
        }
    }
}
