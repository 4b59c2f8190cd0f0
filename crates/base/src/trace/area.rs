//! The memory of a trace: a header, the names of calls, and rings.
//!
//! ```text
//! 0              AreaHeader              4 KiB
//! 4 KiB          names[MAX_NAMES]        NAME_BYTES each, text ended by zeros
//! HEADER_BYTES   rings, one per thread   ring_bytes(events) each: a RING_HEADER_BYTES header, events of EVENT_BYTES
//! ```
//!
//! **OWN RING.** A ring is inside the area, which stays mapped, aligned, and written by the one thread that it was
//! given to: who pushes promises to be that thread.
#![allow(unsafe_code)]

use super::{Event, Point, Subject, read_ticks};
use crate::clock;
use crate::sync::{StaticOrdering as Ordering, StaticPtr, StaticU32, StaticU64, StaticUsize};
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

/// `FPTRACE1`.
pub const TRACE_MAGIC: u64 = u64::from_le_bytes(*b"FPTRACE1");
/// Address range of one rank's trace; memory is taken only for what is used.
pub const AREA_BYTES: u64 = 64 << 20;
/// Bytes of a name.
pub const NAME_BYTES: usize = 64;
/// Most names.
pub const MAX_NAMES: usize = 1024;
/// Most names that programs have given, so that those of calls find room.
const MAX_SUBJECTS: usize = MAX_NAMES / 4;
const PAGE: usize = 4096;
const NAMES_OFFSET: usize = PAGE;
/// Bytes before the first ring.
pub const HEADER_BYTES: usize = NAMES_OFFSET + MAX_NAMES * NAME_BYTES;
/// Most rings.
pub const MAX_RINGS: u32 = 256;
/// Most events of a ring.
pub const MAX_EVENTS: u32 = 1 << 20;
/// Bytes of the header of a ring.
pub const RING_HEADER_BYTES: usize = 64;
/// Bytes of an event.
pub const EVENT_BYTES: usize = 32;

/// Bytes of a ring of so many events.
pub const fn ring_bytes(events: u32) -> usize {
    RING_HEADER_BYTES + events as usize * EVENT_BYTES
}

/// What is known of the whole area. Words in this order; the rest of the page is zero.
#[repr(C)]
struct AreaHeader {
    magic: StaticU64,
    /// The clock of points when the trace began, and nanoseconds of the monotonic clock at that moment.
    ticks: StaticU64,
    ns: StaticU64,
    /// Events of one ring.
    events: StaticU32,
    /// Rings in use.
    rings: StaticU32,
    /// Threads that found no room for theirs.
    lost: StaticU32,
    pid: StaticU32,
}

/// A ring of one thread, and, behind it its events: four words each (ticks; point and peer; tag; bytes).
#[repr(C)]
pub(super) struct Ring {
    /// Events recorded so far; the ring holds the last of them.
    written: StaticU64,
    events: StaticU32,
    tid: StaticU32,
    /// Events recorded when the next one was given the time of the last.
    shared: StaticU64,
}

impl Ring {
    /// The next event reads the clock.
    pub(super) fn share_no_time(&self) {
        self.shared.store(0, Ordering::Relaxed);
    }

    /// Events recorded so far.
    pub(super) fn count(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }
}

const _: () = assert!(size_of::<Ring>() <= RING_HEADER_BYTES);

/// Gets memory behind a piece of the area: offset and bytes. False where there is none.
pub type Back = Box<dyn Fn(u64, u64) -> bool + Send + Sync>;

/// One process's part of a trace.
pub struct Area {
    base: *mut u8,
    /// A power of two.
    events: u32,
    back: Back,
    /// Addresses of the names that have a number.
    known: [StaticUsize; MAX_NAMES],
    /// Names that programs have given.
    subjects: Mutex<Vec<&'static str>>,
}

// SAFETY: what lies at `base` is touched through atomics, and each ring by its own thread; `subjects` is behind a lock.
unsafe impl Send for Area {}
// SAFETY: all that is shared is atomic or behind a lock, and rings are given out by an atomic count.
unsafe impl Sync for Area {}

static CURRENT: StaticPtr<Area> = StaticPtr::new(null_mut());

pub(super) fn set_current(area: &'static Area) {
    // ORDERING: release; partner: the acquire in `current`.
    CURRENT.store(std::ptr::from_ref(area).cast_mut(), Ordering::Release);
}

/// The area of this process; null before there is one.
pub(super) fn current() -> *const Area {
    // ORDERING: acquire; partner: the release in `set_current`.
    CURRENT.load(Ordering::Acquire)
}

impl Area {
    /// Makes an area of [`AREA_BYTES`] at `base`, all zeros where it has memory, with rings of `events` events each,
    /// rounded up to a power of two. `None` where `back` has no memory for the header.
    ///
    /// # Safety
    /// `base` is mapped for the life of the process, on a page border, and used by nothing else in this process; what
    /// `back` has answered `true` for can be written.
    pub unsafe fn new(base: *mut u8, events: u32, back: Back) -> Option<Area> {
        let events = events.clamp(1, MAX_EVENTS).next_power_of_two();
        if !back(0, HEADER_BYTES as u64) {
            return None;
        }
        // SAFETY: backed, aligned, and all zeros are valid atomics.
        let header = unsafe { &*base.cast::<AreaHeader>() };
        header.ticks.store(read_ticks(), Ordering::Relaxed);
        header.ns.store(clock::now_ns(), Ordering::Relaxed);
        header.events.store(events, Ordering::Relaxed);
        header.pid.store(std::process::id(), Ordering::Relaxed);
        // ORDERING: release: who finds the magic finds the rest; partner: the reader is another process that reads the
        // file, mostly after this one's end.
        header.magic.store(TRACE_MAGIC, Ordering::Release);
        let known = [const { StaticUsize::new(0) }; MAX_NAMES];
        Some(Area { base, events, back, known, subjects: Mutex::default() })
    }

    fn header(&self) -> &AreaHeader {
        // SAFETY: as in `new`.
        unsafe { &*self.base.cast::<AreaHeader>() }
    }

    /// A ring for the calling thread; `None` where there is no room or no memory for another.
    pub(super) fn add_ring(&self) -> Option<*mut Ring> {
        let header = self.header();
        let bytes = ring_bytes(self.events) as u64;
        let index = header.rings.fetch_add(1, Ordering::Relaxed);
        let offset = HEADER_BYTES as u64 + u64::from(index) * bytes;
        let fits = index < MAX_RINGS && offset + bytes <= AREA_BYTES;
        if !fits || !(self.back)(offset, bytes) {
            header.lost.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        // SAFETY: inside the area, backed; the index is this thread's alone.
        let ring = unsafe { self.base.add(offset as usize) }.cast::<Ring>();
        // SAFETY: OWN RING: it was just given to this thread. Steps of 64 bytes from a page border are aligned.
        unsafe {
            (*ring).events.store(self.events, Ordering::Relaxed);
            let tid = libc::gettid() as u32;
            (*ring).tid.store(tid, Ordering::Relaxed);
        }
        self.touch(offset as usize, bytes as usize);
        Some(ring)
    }

    /// Touches the pages of a ring now, or each of them would hold up a point of the first round. Older kernels cannot,
    /// and then that is so.
    fn touch(&self, offset: usize, bytes: usize) {
        let first = offset & !(PAGE - 1);
        // SAFETY: pages of the mapping, whose base is on a page border, with memory behind what the ring has of them.
        unsafe {
            let at = self.base.add(first);
            libc::madvise(at.cast(), offset + bytes - first, libc::MADV_POPULATE_WRITE);
        }
    }

    /// The number of a name. Names have static addresses, so that the address finds it again.
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

    /// The number of a name that a program has given, which is kept for ever.
    pub(super) fn name_subject(&self, name: &str) -> Subject {
        let mut subjects = self.subjects.lock().unwrap_or_else(PoisonError::into_inner);
        let known = subjects.iter().find(|known| **known == name).copied();
        let name = match known {
            Some(known) => known,
            None if name.is_empty() || subjects.len() == MAX_SUBJECTS => return Subject::NONE,
            None => {
                let kept: &'static str = Box::leak(name.into());
                subjects.push(kept);
                kept
            }
        };
        match self.intern(name) {
            MAX_NAMES => Subject::NONE,
            number => Subject(number as u32 + 1),
        }
    }

    fn take_name(&self, index: usize, address: usize, name: &str) -> bool {
        let slot = &self.known[index];
        match slot.compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {}
            Err(other) => return other == address,
        }
        let len = name.len().min(NAME_BYTES - 1);
        // SAFETY: the name's place in the backed header, written by whoever has taken the slot.
        unsafe {
            let to = self.base.add(NAMES_OFFSET + index * NAME_BYTES);
            std::ptr::copy_nonoverlapping(name.as_ptr(), to, len);
        }
        true
    }

    /// The words of the event of a number, or of the one that has taken its place.
    ///
    /// # Safety
    /// The ring is one of this area.
    #[inline]
    unsafe fn words<'a>(&self, ring: *mut Ring, number: u64) -> &'a [StaticU64; 4] {
        let place = (number & u64::from(self.events - 1)) as usize;
        // SAFETY: a ring has `events` events of this size behind its header, and the place is below that; backed for
        // ever.
        unsafe {
            let at = ring.byte_add(RING_HEADER_BYTES + place * EVENT_BYTES);
            &*at.cast::<[StaticU64; 4]>()
        }
    }

    /// The next event is to have the time of the last one, if that is of the point `last`.
    ///
    /// # Safety
    /// As [`Area::push`].
    #[inline]
    pub(super) unsafe fn share_time_of(&self, ring: *mut Ring, last: Point) {
        // SAFETY: backed for ever.
        let ring_of = unsafe { &*ring };
        let written = ring_of.written.load(Ordering::Relaxed);
        // SAFETY: OWN RING. Of an empty ring these are the words of its last place.
        let words = unsafe { self.words(ring, written.wrapping_sub(1)) };
        if words[1].load(Ordering::Relaxed) as u8 == last as u8 {
            ring_of.shared.store(written, Ordering::Relaxed);
        }
    }

    /// The time of the next event, if it is to have that of the last one.
    ///
    /// # Safety
    /// As [`Area::push`].
    #[inline]
    pub(super) unsafe fn shared_time(&self, ring: *mut Ring) -> Option<u64> {
        // SAFETY: backed for ever.
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
    pub(super) unsafe fn push(&self, ring: *mut Ring, ticks: u64, event: Event) {
        // SAFETY: backed for ever.
        let count = unsafe { &(*ring).written };
        let written = count.load(Ordering::Relaxed);
        // SAFETY: OWN RING.
        let words = unsafe { self.words(ring, written) };
        words[0].store(ticks, Ordering::Relaxed);
        words[1].store(event.head, Ordering::Relaxed);
        words[2].store(u64::from(event.tag), Ordering::Relaxed);
        words[3].store(event.bytes, Ordering::Relaxed);
        // ORDERING: release: the count covers whole events; partner: as the magic's.
        count.store(written + 1, Ordering::Release);
    }
}
