//! The memory of a trace: a header, the names of calls, and rings.
//!
//! ```text
//! 0              AreaHeader              4 KiB
//! 4 KiB          names[MAX_NAMES]        NAME_BYTES each, text ended by zeros
//! HEADER_BYTES   rings, one per thread   ring_bytes(events) each: a RING_HEADER_BYTES header, events of EVENT_BYTES
//! ```
//!
//! **OWN RING.** A ring is aligned and inside the area, which stays mapped. Only the thread to which it was given
//! writes it, and callers of `push` guarantee to be that thread.
//!
//! **BACKED.** The header, and every ring that was given out, have memory for the life of the process.
#![allow(unsafe_code)]

use super::{Point, TraceEvent, TraceSubject, read_ticks};
use crate::clock;
use crate::sync::{StaticOrdering as Ordering, StaticPtr, StaticU32, StaticU64, StaticUsize};
use crate::topology::thread_number;
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

/// First word of an area: the text `FPTRACE1`.
pub const TRACE_MAGIC: u64 = u64::from_le_bytes(*b"FPTRACE1");
/// Address range of one rank's trace, in bytes. Only used parts take memory.
pub const AREA_BYTES: u64 = 64 << 20;
/// Bytes of a name.
pub const NAME_BYTES: usize = 64;
/// Largest number of names.
pub const MAX_NAMES: usize = 1024;
/// Maximum number of names given by programs; the other numbers are for names of calls.
const MAX_SUBJECTS: usize = MAX_NAMES / 4;
const PAGE: usize = 4096;
const NAMES_OFFSET: usize = PAGE;
/// Bytes before the first ring.
pub const HEADER_BYTES: usize = NAMES_OFFSET + MAX_NAMES * NAME_BYTES;
/// Largest number of rings.
pub const MAX_RINGS: u32 = 256;
/// Largest number of events of a ring.
pub const MAX_EVENTS: u32 = 1 << 20;
/// Bytes of a ring's header.
pub const RING_HEADER_BYTES: usize = 64;
/// Bytes of an event.
pub const EVENT_BYTES: usize = 32;

/// Bytes of a ring of `events` events.
pub const fn ring_bytes(events: u32) -> usize {
    RING_HEADER_BYTES + events as usize * EVENT_BYTES
}

/// Header of the area. Readers of the file rely on the order of its fields. The rest of the page is zero.
#[repr(C)]
struct AreaHeader {
    magic: StaticU64,
    /// Clock of points at the start of the trace.
    ticks: StaticU64,
    /// Monotonic clock at the start of the trace, in nanoseconds.
    ns: StaticU64,
    events: StaticU32,
    rings: StaticU32,
    lost: StaticU32,
    pid: StaticU32,
}

/// Header of a thread's ring. The ring's events follow, four words each (ticks; point and peer; tag; bytes).
#[repr(C)]
pub(super) struct TraceRing {
    written: StaticU64,
    events: StaticU32,
    tid: StaticU32,
    /// Value of `written` at which the next event shares the time of the last one.
    shared: StaticU64,
}

impl TraceRing {
    pub(super) fn share_no_time(&self) {
        self.shared.store(0, Ordering::Relaxed);
    }

    pub(super) fn count(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }
}

const _: () = assert!(size_of::<TraceRing>() <= RING_HEADER_BYTES);

/// Backs a range (offset and bytes) with memory. Returns false without memory.
pub type BackFn = Box<dyn Fn(u64, u64) -> bool + Send + Sync>;

/// Trace area of one process.
pub struct Area {
    base: *mut u8,
    /// Events of a ring; a power of two.
    events: u32,
    back: BackFn,
    /// Addresses of the names that already have a number.
    known: [StaticUsize; MAX_NAMES],
    subjects: Mutex<Vec<&'static str>>,
}

// SAFETY: memory at `base` is accessed through atomics, and each ring by its own thread; `subjects` is behind a lock.
unsafe impl Send for Area {}
// SAFETY: shared state is atomic or behind a lock, and an atomic count assigns rings.
unsafe impl Sync for Area {}

static CURRENT: StaticPtr<Area> = StaticPtr::new(null_mut());

pub(super) fn set_current(area: &'static Area) {
    // ORDERING: release; partner: the acquire in `current`.
    CURRENT.store(std::ptr::from_ref(area).cast_mut(), Ordering::Release);
}

/// Area of this process; null before `set_current`.
pub(super) fn current() -> *const Area {
    // ORDERING: acquire; partner: the release in `set_current`.
    CURRENT.load(Ordering::Acquire)
}

impl Area {
    /// Makes an area of [`AREA_BYTES`] at `base`, which is zero where it has memory. Rings have `events` events,
    /// rounded up to a power of two. `None` if `back` has no memory for the header.
    ///
    /// # Safety
    /// `base` is page-aligned, mapped for the life of the process, and without another user in it. Ranges for which
    /// `back` returned true can be written.
    pub unsafe fn new(base: *mut u8, events: u32, back: BackFn) -> Option<Area> {
        let events = events.clamp(1, MAX_EVENTS).next_power_of_two();
        if !back(0, HEADER_BYTES as u64) {
            return None;
        }
        // SAFETY: the header is backed and aligned, and all zeros are valid atomics.
        let header = unsafe { &*base.cast::<AreaHeader>() };
        header.ticks.store(read_ticks(), Ordering::Relaxed);
        header.ns.store(clock::now_ns(), Ordering::Relaxed);
        header.events.store(events, Ordering::Relaxed);
        header.pid.store(std::process::id(), Ordering::Relaxed);
        // ORDERING: release, so that a reader that finds the magic finds the rest. Partner is another process that
        // reads the file, usually after this one's end.
        header.magic.store(TRACE_MAGIC, Ordering::Release);
        let known = [const { StaticUsize::new(0) }; MAX_NAMES];
        Some(Area { base, events, back, known, subjects: Mutex::default() })
    }

    fn header(&self) -> &AreaHeader {
        // SAFETY: BACKED, and all zeros are valid atomics.
        unsafe { &*self.base.cast::<AreaHeader>() }
    }

    /// Adds a ring for the calling thread; `None` if there is no space or memory for another.
    pub(super) fn add_ring(&self) -> Option<*mut TraceRing> {
        let header = self.header();
        let bytes = ring_bytes(self.events) as u64;
        let index = header.rings.fetch_add(1, Ordering::Relaxed);
        let offset = HEADER_BYTES as u64 + u64::from(index) * bytes;
        let fits = index < MAX_RINGS && offset + bytes <= AREA_BYTES;
        if !fits || !(self.back)(offset, bytes) {
            header.lost.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        // SAFETY: the ring is inside the area and backed, and its index was given to this thread only.
        let ring = unsafe { self.base.add(offset as usize) }.cast::<TraceRing>();
        // SAFETY: OWN RING: it was just given to this thread. Multiples of 64 bytes from a page border are aligned.
        unsafe {
            (*ring).events.store(self.events, Ordering::Relaxed);
            (*ring).tid.store(thread_number(), Ordering::Relaxed);
        }
        self.touch(offset as usize, bytes as usize);
        Some(ring)
    }

    /// Touches the pages of a ring, so that page faults do not delay its first points. Kernels without
    /// MADV_POPULATE_WRITE touch no pages.
    fn touch(&self, offset: usize, bytes: usize) {
        let first = offset & !(PAGE - 1);
        // SAFETY: the pages are inside the mapping, whose base is page-aligned, and those of the ring have memory.
        unsafe {
            let at = self.base.add(first);
            libc::madvise(at.cast(), offset + bytes - first, libc::MADV_POPULATE_WRITE);
        }
    }

    /// Returns the number of a name, or [`MAX_NAMES`] if no number is left. The name's address identifies it.
    pub(super) fn intern(&self, name: &'static str) -> usize {
        let address = name.as_ptr().addr();
        let first = (address >> 3).wrapping_mul(0x9e37_79b9) % MAX_NAMES;
        for step in 0..MAX_NAMES {
            let index = (first + step) % MAX_NAMES;
            let known = self.known[index].load(Ordering::Relaxed);
            if known == address {
                return index;
            }
            if known == 0 && self.take_name(index, address, name) {
                return index;
            }
        }
        MAX_NAMES
    }

    /// Returns the number of a name given by the program, and keeps the name for ever. [`TraceSubject::NONE`] if the
    /// name is empty or no number is left.
    pub(super) fn name_subject(&self, name: &str) -> TraceSubject {
        let mut subjects = self.subjects.lock().unwrap_or_else(PoisonError::into_inner);
        let known = subjects.iter().find(|known| **known == name).copied();
        let name = match known {
            Some(known) => known,
            None if name.is_empty() || subjects.len() == MAX_SUBJECTS => return TraceSubject::NONE,
            None => {
                let kept: &'static str = Box::leak(name.into());
                subjects.push(kept);
                kept
            }
        };
        match self.intern(name) {
            MAX_NAMES => TraceSubject::NONE,
            number => TraceSubject(number as u32 + 1),
        }
    }

    fn take_name(&self, index: usize, address: usize, name: &str) -> bool {
        let slot = &self.known[index];
        match slot.compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {}
            Err(other) => return other == address,
        }
        let len = name.len().min(NAME_BYTES - 1);
        // SAFETY: `to` is the name's place in the backed header, and only the thread that took the slot writes there.
        unsafe {
            let to = self.base.add(NAMES_OFFSET + index * NAME_BYTES);
            std::ptr::copy_nonoverlapping(name.as_ptr(), to, len);
        }
        true
    }

    /// Returns the words of event `number`, or of the event that replaced it.
    ///
    /// # Safety
    /// The ring is one of this area.
    #[inline]
    unsafe fn words<'a>(&self, ring: *mut TraceRing, number: u64) -> &'a [StaticU64; 4] {
        let place = (number & u64::from(self.events - 1)) as usize;
        // SAFETY: BACKED: a ring has `events` events of this size behind its header, and the place is below that.
        unsafe {
            let at = ring.byte_add(RING_HEADER_BYTES + place * EVENT_BYTES);
            &*at.cast::<[StaticU64; 4]>()
        }
    }

    /// Gives the next event the time of the last event, if the last event is of the point `last`.
    ///
    /// # Safety
    /// The contract is that of [`Area::push`].
    #[inline]
    pub(super) unsafe fn share_time_of(&self, ring: *mut TraceRing, last: Point) {
        // SAFETY: BACKED.
        let ring_of = unsafe { &*ring };
        let written = ring_of.written.load(Ordering::Relaxed);
        // SAFETY: OWN RING. For an empty ring these are the words of its last place.
        let words = unsafe { self.words(ring, written.wrapping_sub(1)) };
        if words[1].load(Ordering::Relaxed) as u8 == last as u8 {
            ring_of.shared.store(written, Ordering::Relaxed);
        }
    }

    /// Returns the time of the next event, if it shares the time of the last event.
    /// # Safety
    /// The contract is that of [`Area::push`].
    #[inline]
    pub(super) unsafe fn shared_time(&self, ring: *mut TraceRing) -> Option<u64> {
        // SAFETY: BACKED.
        let (written, shared) = unsafe {
            let ring = &*ring;
            (ring.written.load(Ordering::Relaxed), ring.shared.load(Ordering::Relaxed))
        };
        if shared != written || written == 0 {
            return None;
        }
        // SAFETY: OWN RING.
        let words = unsafe { self.words(ring, written - 1) };
        Some(words[0].load(Ordering::Relaxed))
    }

    /// # Safety
    /// The ring is one that this area gave to the calling thread.
    #[inline]
    pub(super) unsafe fn push(&self, ring: *mut TraceRing, ticks: u64, event: TraceEvent) {
        // SAFETY: BACKED.
        let count = unsafe { &(*ring).written };
        let written = count.load(Ordering::Relaxed);
        // SAFETY: OWN RING.
        let words = unsafe { self.words(ring, written) };
        words[0].store(ticks, Ordering::Relaxed);
        words[1].store(event.head, Ordering::Relaxed);
        words[2].store(u64::from(event.tag), Ordering::Relaxed);
        words[3].store(event.bytes, Ordering::Relaxed);
        // ORDERING: release, so that the count covers whole events. Partner is the process that reads the file.
        count.store(written + 1, Ordering::Release);
    }
}
