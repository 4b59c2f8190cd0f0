#![allow(unsafe_code)]
//! Creation, attachment, mapping and backing of a segment.

use crate::error::SegmentError;
use crate::file::{create_file, file_system_room, is_nameless, is_sealed_or_unlinked};
use crate::header::{JobHeader, MAGIC, VERSION};
use crate::layout::{PAGE_BYTES, SegmentLayout};
use crate::mapping::Mapping;
use fastpath_base::entropy::draw_random;
use fastpath_base::fd::{CheckedFd, LostFd};
use fastpath_base::sync::{AtomicU64, AtomicUsize, Ordering};
use fastpath_base::topology::available_memory;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};

const PUNCH: libc::c_int = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;

const STEP_BYTES: u64 = 64 << 20;

/// Source of the zeros that `fill_with_zeros` writes, one array at a time. It stays in the cache, because it is small.
static ZEROS: [u8; 4 * PAGE_BYTES] = [0; 4 * PAGE_BYTES];

/// Bytes that may be backed without another check of the available memory.
const BUDGET_BYTES: u64 = 16 << 20;

/// Bytes of the available memory that segments leave unused, because the ranks' own memory grows too.
fn margin(available: u64) -> u64 {
    (1 << 20) + available / 64
}

/// The segment of one job, mapped into this process up to the end of the pair regions.
#[derive(Debug)]
pub struct Segment {
    pub(crate) file: CheckedFd,
    pub(crate) layout: SegmentLayout,
    pub(crate) front: Mapping,
    /// Number of leading places whose pair regions have addresses. If address space is short, only the regions of the
    /// first ranks have addresses.
    pub(crate) reach: usize,
    /// Number of leading places whose pair regions are mapped. Unused regions stay unmapped: a process that locks all
    /// its memory would lock them too.
    pub(crate) mapped: AtomicUsize,
    /// Number of first ranks whose place equals their rank number.
    pub(crate) ordered: usize,
    writable: bool,
    /// Bytes that may be backed before the next check of the available memory.
    budget: AtomicU64,
}

impl Segment {
    /// Makes the segment of a job with `ranks` ranks, in a file without a name that is closed on exec. Header, pages
    /// and bitmaps are backed, and the header's first line is written.
    ///
    /// # Errors
    /// The number of ranks is out of range, the kernel refuses, or memory is short.
    pub fn create(ranks: usize, job_id: u64) -> Result<Segment, SegmentError> {
        Segment::create_with_room(ranks, 0, job_id)
    }

    /// Makes a segment like [`Segment::create`], with address space, and little memory, for `spare` more ranks.
    pub fn create_with_room(
        ranks: usize, spare: usize, job_id: u64,
    ) -> Result<Segment, SegmentError> {
        Segment::create_as_spare_fits(spare, |spare| {
            let all = ranks.saturating_add(spare);
            let layout = SegmentLayout::new(all).filter(|_| ranks != 0);
            let (file, layout) = create_file(layout.ok_or(SegmentError::Ranks(all))?)?;
            Segment::begin(file, layout, ranks, job_id)
        })
    }

    /// Makes a segment with space for `spare` more ranks, or for none if that fails.
    pub(crate) fn create_as_spare_fits(
        spare: usize, create: impl Fn(usize) -> Result<Segment, SegmentError>,
    ) -> Result<Segment, SegmentError> {
        match create(spare) {
            // Try without spare ranks, because the length of files, or the address space, may be limited.
            Err(_) if spare != 0 => create(0),
            other => other,
        }
    }

    /// Makes a segment in a new file, with the first `ranks` ranks.
    pub(crate) fn begin(
        file: OwnedFd, layout: SegmentLayout, ranks: usize, job_id: u64,
    ) -> Result<Segment, SegmentError> {
        let mut segment = Segment::map(file, layout, ranks, true)?;
        // The header is backed first, because available memory is divided by the number of present ranks.
        segment.allocate(0, PAGE_BYTES as u64)?;
        let header = segment.header();
        header.present.store(ranks as u32, Ordering::Relaxed);
        segment.back_front(0..ranks)?;
        header.version.store(VERSION, Ordering::Relaxed);
        header.ranks.store(layout.ranks() as u32, Ordering::Relaxed);
        header.kept_places.store(ranks as u32, Ordering::Relaxed);
        if layout.has_others() {
            let all = layout.job_ranks() as u32;
            header.job_ranks.store(all, Ordering::Relaxed);
            header.here.store(ranks as u32, Ordering::Relaxed);
            segment.begin_others()?;
        }
        header.job_id.store(job_id, Ordering::Relaxed);
        // If no secret can be drawn, no rank is reached over a network. A job in shared memory needs no secret.
        if let Ok(secret) = draw_random() {
            header.set_secret(&secret);
        }
        let budget = segment.budget.load(Ordering::Relaxed);
        header.budget_kib.store((budget >> 10) as u32, Ordering::Relaxed);
        // ORDERING: release: the magic comes last, so a half-made header is never taken for a whole one. Partner is the
        // acquire in `open`; processes that attach start later.
        header.magic.store(MAGIC, Ordering::Release);
        segment.ordered = if layout.has_others() { 0 } else { layout.ranks() };
        Ok(segment)
    }

    /// Maps a segment made by another process. Checks magic, version, length, absence of a name, the job's number, and
    /// the seal of a memory file against shrinking.
    ///
    /// # Errors
    /// The file is not a segment, or cannot be mapped.
    pub fn attach(file: OwnedFd, job_id: u64) -> Result<Segment, SegmentError> {
        Segment::open(file, Some(job_id))
    }

    /// Maps the segment of any job read-only, after the checks of [`Segment::attach`] except the job's number. Nothing
    /// may be written or backed through it.
    pub fn view(file: OwnedFd) -> Result<Segment, SegmentError> {
        Segment::open(file, None)
    }

    /// Maps a segment: for writing if `job_id` names its job, or read-only, of any job, if `job_id` is `None`.
    fn open(file: OwnedFd, job_id: Option<u64>) -> Result<Segment, SegmentError> {
        let writable = job_id.is_some();
        let foreign = |why: String| SegmentError::Foreign(why);
        let file = File::from(file);
        let stat = |cause| SegmentError::System { step: "fstat", cause };
        if !is_nameless(&file).map_err(stat)? {
            return Err(foreign(
                "the descriptor does not refer to an anonymous memory file or an unlinked file"
                    .into(),
            ));
        }
        let seals = |cause| SegmentError::System { step: "fcntl (F_GET_SEALS)", cause };
        if !is_sealed_or_unlinked(&file).map_err(seals)? {
            let why = "the memory file is not sealed against shrinking: shortening the file would \
                       end the ranks by SIGBUS";
            return Err(foreign(why.into()));
        }
        let length = file.metadata().map_err(stat)?.len();
        let file = OwnedFd::from(file);
        if length < 2 * PAGE_BYTES as u64 {
            return Err(foreign(format!("the file has only {length} bytes")));
        }
        let first = Mapping::new(file.as_fd(), 0, PAGE_BYTES, writable)?;
        // SAFETY: the mapping covers the header, whose fields are atomics and valid in any state. A seal keeps the page
        // of a memory file. An unlinked file has no name and was inherited, so only processes of the job hold it, and
        // they never shorten it. A process that shortened the file would end the job's ranks by SIGBUS.
        let header = unsafe { first.base.cast::<JobHeader>().as_ref() };
        // ORDERING: partner is the release store in `begin`.
        if header.magic.load(Ordering::Acquire) != MAGIC {
            return Err(foreign("the file does not begin with Fastpath's magic number".into()));
        }
        let version = header.version.load(Ordering::Relaxed);
        if version != VERSION {
            return Err(foreign(format!(
                "the file has layout version {version}, but this library uses version {VERSION}: \
                 use the mpiexec of this library's release"
            )));
        }
        let ranks = header.ranks.load(Ordering::Relaxed) as usize;
        let all = header.job_ranks.load(Ordering::Relaxed) as usize;
        let layout = SegmentLayout::of_length(ranks, all, length).ok_or_else(|| {
            foreign(format!(
                "the file has {length} bytes, which is not a valid size for {ranks} ranks"
            ))
        })?;
        if job_id.is_some_and(|job_id| header.job_id.load(Ordering::Relaxed) != job_id) {
            return Err(foreign("the file belongs to another job".into()));
        }
        let budget = (header.budget_kib.load(Ordering::Relaxed) as u64) << 10;
        let taken = if all == 0 { &header.present } else { &header.here };
        let taken = (taken.load(Ordering::Relaxed) as usize).clamp(1, ranks);
        let ordered = header.ordered.load(Ordering::Relaxed) as usize;
        let mut segment = Segment::map(file, layout, taken, writable)?;
        segment.ordered = if all == 0 { ranks } else { ordered.min(ranks) };
        segment.budget.store(budget.min(BUDGET_BYTES), Ordering::Relaxed);
        Ok(segment)
    }

    /// Maps the file. If address space is short, only the pairs of the first `least` ranks get addresses.
    fn map(
        file: OwnedFd, layout: SegmentLayout, least: usize, writable: bool,
    ) -> Result<Segment, SegmentError> {
        let reserve = |ranks: usize| {
            let bytes = usize::try_from(layout.mapped_bytes_of(ranks));
            Mapping::reserve(bytes.map_err(|_| SegmentError::Ranks(ranks))?)
        };
        let (reach, front) = match reserve(layout.ranks()) {
            Err(_) if least < layout.ranks() => (least, reserve(least)?),
            other => (layout.ranks(), other?),
        };
        let segment = Segment {
            file: CheckedFd::keep(file, "the job's memory"),
            layout,
            front,
            reach,
            mapped: AtomicUsize::new(0),
            ordered: 0,
            writable,
            budget: AtomicU64::new(0),
        };
        segment.map_pairs(least)?;
        Ok(segment)
    }

    pub(crate) fn map_pairs(&self, ranks: usize) -> Result<(), SegmentError> {
        let end = |ranks: usize| self.layout.mapped_bytes_of(ranks) as usize;
        let first = match self.mapped.load(Ordering::Relaxed) {
            0 => 0,
            mapped => end(mapped),
        };
        let part = first..end(ranks);
        if !part.is_empty() {
            match self.file() {
                Ok(file) => self.front.fill(file, part, self.writable)?,
                Err(lost) => {
                    let filled = self.front.fill_by_duplicate(part);
                    filled.map_err(|cause| SegmentError::Lost { lost, cause })?;
                }
            }
        }
        // Another thread may have mapped the same regions or more at the same time, so the number never falls.
        self.mapped.fetch_max(ranks, Ordering::Relaxed);
        Ok(())
    }

    /// Backs the page and the row of bits of each rank in `ranks`.
    pub(crate) fn back_front(&self, ranks: Range<usize>) -> Result<(), SegmentError> {
        let layout = self.layout;
        let pages = layout.page_offset(ranks.start)..layout.page_offset(ranks.end);
        let rows = layout.bitmap_offset(ranks.start)..layout.bitmap_offset(ranks.end);
        for part in [pages, rows] {
            self.ensure_backed(part.start as u64, part.len() as u64)?;
        }
        Ok(())
    }

    /// Returns the layout.
    pub fn layout(&self) -> SegmentLayout {
        self.layout
    }

    /// Returns the file.
    ///
    /// # Errors
    /// The program closed the descriptor.
    pub fn file(&self) -> Result<BorrowedFd<'_>, LostFd> {
        self.file.get().map(AsFd::as_fd)
    }

    /// Returns the job's header.
    #[inline]
    pub fn header(&self) -> &JobHeader {
        // SAFETY: the header is mapped and backed, at offset 0, for the life of `self`. Every field is an atomic, which
        // others may write.
        unsafe { self.front.base.cast::<JobHeader>().as_ref() }
    }

    /// Maps another piece of the file, shared, readable and writable.
    ///
    /// # Errors
    /// `offset` is not on a page boundary, the piece leaves the file, or the kernel refuses.
    pub fn map_range(&self, offset: u64, bytes: usize) -> Result<Mapping, SegmentError> {
        self.check_range(offset, bytes as u64)?;
        self.map_piece(offset, bytes)
    }

    /// Maps a piece of the file, without the file's descriptor if the program closed it.
    fn map_piece(&self, offset: u64, bytes: usize) -> Result<Mapping, SegmentError> {
        match self.file() {
            Ok(file) => Mapping::new(file, offset, bytes, true),
            Err(lost) => {
                let piece = self.front.duplicate(offset, bytes);
                piece.map_err(|cause| SegmentError::Lost { lost, cause })
            }
        }
    }

    /// Backs every byte of the range, so that touching it cannot fail later. Backed parts stay unchanged.
    ///
    /// # Errors
    /// The range leaves the file, or memory is short. The range must not be touched then. The error states bytes needed
    /// and available.
    pub fn ensure_backed(&self, offset: u64, bytes: u64) -> Result<(), SegmentError> {
        self.check_range(offset, bytes)?;
        match bytes {
            0 => Ok(()),
            _ => self.with_room_for(bytes, || self.allocate(offset, bytes)),
        }
    }

    /// Backs an unused range by writing zeros. When a process touches a page that was written, the kernel also maps the
    /// neighbouring pages. It does not do so for pages that were only allocated.
    pub(crate) fn fill_with_zeros(&self, offset: u64, bytes: usize) -> Result<(), SegmentError> {
        self.check_range(offset, bytes as u64)?;
        let write = || {
            let file = File::from(self.file()?.try_clone_to_owned()?);
            let parts = (0..bytes).step_by(ZEROS.len());
            parts
                .map(|at| (at as u64, ZEROS.len().min(bytes - at)))
                .try_for_each(|(at, len)| file.write_all_at(&ZEROS[..len], offset + at))
        };
        let explain = |cause| self.explain_allocate("write", cause, bytes as u64);
        self.with_room_for(bytes as u64, || write().map_err(explain))
    }

    /// Calls `allocate`, which takes `bytes` bytes, if enough memory is available.
    fn with_room_for(
        &self, bytes: u64, allocate: impl FnOnce() -> Result<(), SegmentError>,
    ) -> Result<(), SegmentError> {
        if self.spend_budget(bytes) {
            return allocate();
        }
        // A control group at its limit kills the process instead of returning an error, so check first. A request that
        // cannot be met is not counted in `backing`: other ranks would treat its bytes as used.
        let available = available_memory();
        self.check_available(available, bytes)?;
        let backing = &self.header().backing;
        let others = backing.fetch_add(bytes, Ordering::Relaxed);
        let available = available.saturating_sub(others);
        let done = self.check_available(available, bytes).and_then(|left| {
            let share = left / (8 * self.here().max(1) as u64);
            self.budget.store(share.min(BUDGET_BYTES), Ordering::Relaxed);
            allocate()
        });
        backing.fetch_sub(bytes, Ordering::Relaxed);
        done
    }

    /// Frees the memory behind whole pages. They read as zero afterwards, and must be backed again before use.
    ///
    /// # Errors
    /// The range leaves the file, or the kernel refuses.
    pub fn give_back(&self, offset: u64, bytes: u64) -> Result<(), SegmentError> {
        self.check_range(offset, bytes)?;
        match self.fallocate(PUNCH, offset, bytes) {
            None => Ok(()),
            Some(cause) => {
                Err(SegmentError::System { step: "fallocate (FALLOC_FL_PUNCH_HOLE)", cause })
            }
        }
    }

    /// Returns the bytes free in the file's file system; `None` for a memory file, which only memory limits.
    pub fn file_system_room(&self) -> Option<u64> {
        file_system_room(self.file().ok()?)
    }

    /// Returns the bytes of memory behind the segment.
    ///
    /// # Errors
    /// The kernel does not report them.
    pub fn used_bytes(&self) -> io::Result<u64> {
        let file = File::from(self.file()?.try_clone_to_owned()?);
        Ok(file.metadata()?.blocks() * 512)
    }

    fn allocate(&self, offset: u64, bytes: u64) -> Result<(), SegmentError> {
        let end = offset + bytes;
        let mut at = offset;
        // The range is backed in steps, because a signal makes the kernel undo the step that it interrupts.
        while at < end {
            let step = STEP_BYTES.min(end - at);
            match self.fallocate(0, at, step) {
                None => at += step,
                Some(cause) if cause.raw_os_error() == Some(libc::EINTR) => {}
                Some(cause) => return Err(self.explain_allocate("fallocate", cause, bytes)),
            }
        }
        Ok(())
    }

    /// Calls `fallocate`; returns the kernel's error, or `None`.
    fn fallocate(&self, mode: libc::c_int, offset: u64, bytes: u64) -> Option<io::Error> {
        let file = match self.file() {
            Ok(file) => file.as_raw_fd(),
            Err(lost) => return self.advise_slow(mode, offset, bytes, lost.into()),
        };
        // SAFETY: the descriptor is open, the call takes no pointer, and callers pass ranges inside the file.
        let rc = unsafe { libc::fallocate(file, mode, offset as i64, bytes as i64) };
        if rc == 0 {
            return None;
        }
        let cause = io::Error::last_os_error();
        match cause.raw_os_error() {
            Some(libc::EPERM | libc::ENOSYS | libc::EOPNOTSUPP) => {
                self.advise_slow(mode, offset, bytes, cause)
            }
            _ => Some(cause),
        }
    }

    /// Replaces `fallocate` by advice on a mapping, if a sandbox refuses the call, the file system lacks it, or the
    /// descriptor is lost. The advice is `MADV_POPULATE_WRITE` (Linux 5.14) or `MADV_REMOVE`. Other backed pages stay
    /// unchanged.
    #[cold]
    #[inline(never)]
    fn advise_slow(
        &self, mode: libc::c_int, offset: u64, bytes: u64, refused: io::Error,
    ) -> Option<io::Error> {
        let advice = match mode {
            PUNCH => libc::MADV_REMOVE,
            _ => libc::MADV_POPULATE_WRITE,
        };
        let first = offset / PAGE_BYTES as u64 * PAGE_BYTES as u64;
        let end = (offset + bytes).next_multiple_of(PAGE_BYTES as u64);
        let piece = match self.map_piece(first, (end - first) as usize) {
            Ok(piece) => piece,
            Err(_) => return Some(refused),
        };
        // SAFETY: the advice is for the mapping just made, which holds no object of this process.
        if unsafe { libc::madvise(piece.base.as_ptr().cast(), piece.bytes, advice) } == 0 {
            return None;
        }
        let cause = io::Error::last_os_error();
        Some(match cause.raw_os_error() {
            // EFAULT means that touching the page would have raised SIGBUS, because the file system is full.
            Some(libc::EFAULT) => io::Error::from_raw_os_error(libc::ENOSPC),
            Some(libc::ENOMEM | libc::EINTR) => cause,
            _ => refused,
        })
    }

    /// Describes a failed allocation. The free space of the file system is read only here, because a full file system
    /// returns an error. A full control group returns none, so `with_room_for` checks memory before.
    fn explain_allocate(&self, step: &'static str, cause: io::Error, needed: u64) -> SegmentError {
        if !matches!(cause.raw_os_error(), Some(libc::ENOSPC | libc::ENOMEM)) {
            return SegmentError::System { step, cause };
        }
        let memory = available_memory();
        let room = self.file_system_room().unwrap_or(u64::MAX);
        SegmentError::Shortage {
            needed,
            available: memory.min(room),
            in_file_system: room < memory,
        }
    }

    /// Returns the rest of `available` bytes after `bytes` and the margin are subtracted; an error if they exceed it.
    fn check_available(&self, available: u64, bytes: u64) -> Result<u64, SegmentError> {
        available
            .checked_sub(margin(available))
            .and_then(|a| a.checked_sub(bytes))
            .ok_or(SegmentError::Shortage { needed: bytes, available, in_file_system: false })
    }

    fn spend_budget(&self, bytes: u64) -> bool {
        let take = |left: u64| left.checked_sub(bytes);
        self.budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    fn check_range(&self, offset: u64, bytes: u64) -> Result<(), SegmentError> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.layout.total_bytes() => Ok(()),
            _ => Err(SegmentError::Foreign(format!(
                "{bytes} bytes at offset {offset} lie outside of the job's memory"
            ))),
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::layout::PAIR_BYTES;
    use crate::page::{RankPage, RankPhase};
    use crate::wait_note::{AwaitedRanks, WaitNoteRef};

    fn again(segment: &Segment) -> OwnedFd {
        segment.file().unwrap().try_clone_to_owned().unwrap()
    }

    #[test]
    fn segment__without_its_descriptor__is_backed_and_mapped_by_its_mapping() {
        let segment = Segment::create(2, 7).unwrap();
        let own = File::options().read(true).write(true).open("/dev/zero").unwrap();
        let number = segment.file.number_unchecked();
        // SAFETY: dup2 takes no pointer. It replaces the file, as a program does that closes and opens files.
        assert_eq!(unsafe { libc::dup2(own.as_raw_fd(), number) }, number);
        assert!(segment.file().is_err());
        let start = segment.arena(0).unwrap().start;
        let piece = segment.map_range(start, 4 * PAGE_BYTES).unwrap();
        segment.ensure_backed(start, 4 * PAGE_BYTES as u64).unwrap();
        let again = segment.map_range(start, PAGE_BYTES).unwrap();
        // SAFETY: both pieces are mapped and backed.
        unsafe {
            piece.base().write(5);
            assert_eq!(again.base().read(), 5);
            segment.give_back(start, PAGE_BYTES as u64).unwrap();
            segment.ensure_backed(start, PAGE_BYTES as u64).unwrap();
            assert_eq!(again.base().read(), 0);
        }
        let ranks = segment.mapped.swap(0, Ordering::Relaxed);
        segment.map_pairs(ranks).unwrap();
        assert_eq!(segment.header().magic.load(Ordering::Relaxed), MAGIC);
        drop(segment);
        // SAFETY: `number` is the copy made above, which the segment has left open.
        assert_eq!(unsafe { libc::close(number) }, 0);
    }

    #[test]
    fn segment__is_shared_by_attached_processes() {
        let a = Segment::create(3, 42).unwrap();
        let b = Segment::attach(again(&a), 42).unwrap();
        assert_eq!(b.layout().ranks(), 3);
        a.page(2).unwrap().set_phase(RankPhase::Initialized);
        assert_eq!(b.page(2).unwrap().phase(), RankPhase::Initialized);
        assert!(b.page(3).is_none());
        a.incoming_bitmap(1).unwrap()[0].store(5, Ordering::Relaxed);
        assert_eq!(b.incoming_bitmap(1).unwrap()[0].load(Ordering::Relaxed), 5);
        assert_eq!(b.incoming_bitmap(2).unwrap()[0].load(Ordering::Relaxed), 0);
    }

    #[test]
    fn ranks__are_added_as_far_as_there_is_room() {
        let a = Segment::create_with_room(2, 3, 42).unwrap();
        let b = Segment::attach(again(&a), 42).unwrap();
        assert_eq!((b.layout().ranks(), b.present()), (5, 2));
        let name = |rank: usize, page: &RankPage| page.parent.store(rank as u32, Ordering::Relaxed);
        assert_eq!(a.add_ranks(2, |_| None, name).unwrap(), 2);
        assert_eq!(b.present(), 4);
        assert_eq!(b.page(3).unwrap().parent.load(Ordering::Relaxed), 3);
        assert!(matches!(a.add_ranks(2, |_| None, name), Err(SegmentError::Ranks(6))));
        assert_eq!(a.add_ranks(1, |_| None, name).unwrap(), 4);
        a.back_pair(4, 0).unwrap();
        a.header().present.store(u32::MAX, Ordering::Relaxed);
        assert_eq!(b.present(), 5, "no more than there are pages");
    }

    #[test]
    fn budget__is_what_the_launcher_found_and_at_most_a_share() {
        for (kib, kept) in [(0, 0), (1024, 1 << 20), (u32::MAX, BUDGET_BYTES)] {
            let a = Segment::create(1, 1).unwrap();
            a.header().budget_kib.store(kib, Ordering::Relaxed);
            let b = Segment::attach(again(&a), 1).unwrap();
            assert_eq!(b.budget.load(Ordering::Relaxed), kept);
        }
    }

    #[test]
    fn pair_regions__are_shared_and_apart() {
        let a = Segment::create(2, 1).unwrap();
        let b = Segment::attach(again(&a), 1).unwrap();
        for (src, dst, value) in [(0, 1, 7u8), (1, 0, 9)] {
            a.back_pair(src, dst).unwrap();
            let region = a.pair_region(src, dst).unwrap();
            // SAFETY: the region is backed and PAIR_BYTES long.
            unsafe { std::ptr::write_bytes(region.as_ptr(), value, PAIR_BYTES) };
        }
        for (src, dst, value) in [(0, 1, 7u8), (1, 0, 9)] {
            let region = b.pair_region(src, dst).unwrap();
            // SAFETY: the region is backed and PAIR_BYTES long.
            let bytes = unsafe { std::slice::from_raw_parts(region.as_ptr(), PAIR_BYTES) };
            assert!(bytes.iter().all(|&x| x == value));
        }
        assert!(a.pair_region(2, 0).is_none() && a.back_pair(0, 2).is_err());
    }

    #[test]
    fn arena__is_mapped_piece_by_piece() {
        let a = Segment::create(2, 1).unwrap();
        let range = a.arena(1).unwrap();
        a.ensure_backed(range.start, 1 << 20).unwrap();
        let piece = a.map_range(range.start, 1 << 20).unwrap();
        // SAFETY: the piece is mapped and backed.
        unsafe { piece.base().as_ptr().add((1 << 20) - 1).write(1) };
        assert!(a.map_range(a.layout().total_bytes(), 4096).is_err());
        assert!(a.arena(2).is_none());
    }

    #[test]
    fn given_back__reads_as_zero_for_all() {
        let a = Segment::create(1, 1).unwrap();
        let start = a.arena(0).unwrap().start;
        let (one, other) = (a.map_range(start, 8192).unwrap(), a.map_range(start, 8192).unwrap());
        a.ensure_backed(start, 8192).unwrap();
        // SAFETY: both mappings are 8192 bytes long, and backed.
        unsafe {
            one.base().as_ptr().write_bytes(1, 8192);
            assert_eq!(other.base().as_ptr().add(4096).read(), 1);
            a.give_back(start + 4096, 4096).unwrap();
            assert_eq!(other.base().as_ptr().add(4095).read(), 1);
            assert_eq!(other.base().as_ptr().add(4096).read(), 0);
        }
        assert!(a.give_back(a.layout().total_bytes(), 4096).is_err());
    }

    #[test]
    fn shortage__states_needed_and_available() {
        let a = Segment::create(1, 1).unwrap();
        let start = a.arena(0).unwrap().start;
        let e = a.ensure_backed(start, 1 << 39).unwrap_err();
        let text = e.to_string();
        assert!(matches!(e, SegmentError::Shortage { .. }), "{text}");
        assert!(text.contains("512 GiB needed") && text.contains("available"), "{text}");
    }

    #[test]
    fn segment__cannot_be_resized() {
        let a = Segment::create(1, 1).unwrap();
        let file = File::from(again(&a));
        assert!(file.set_len(4096).is_err());
        assert!(file.set_len(1 << 62).is_err());
    }

    #[test]
    fn attach__refuses_what_is_no_segment() {
        let null = OwnedFd::from(File::open("/dev/null").unwrap());
        assert!(matches!(Segment::attach(null, 1), Err(SegmentError::Foreign(_))));
        let a = Segment::create(2, 1).unwrap();
        assert!(Segment::attach(again(&a), 2).unwrap_err().to_string().contains("another job"));
        a.header().ranks.store(3, Ordering::Relaxed);
        assert!(matches!(Segment::attach(again(&a), 1), Err(SegmentError::Foreign(_))));
        a.header().ranks.store(u32::MAX, Ordering::Relaxed);
        assert!(matches!(Segment::attach(again(&a), 1), Err(SegmentError::Foreign(_))));
        a.header().version.store(99, Ordering::Relaxed);
        assert!(Segment::attach(again(&a), 1).unwrap_err().to_string().contains("version 99"));
    }

    #[test]
    fn secret__is_the_jobs_own_and_can_be_handed_on() {
        let (a, b) = (Segment::create(1, 1).unwrap(), Segment::create(1, 1).unwrap());
        assert_ne!(a.header().secret(), b.header().secret());
        assert_ne!(a.header().secret(), [0; 32]);
        b.header().set_secret(&a.header().secret());
        assert_eq!(a.header().secret(), b.header().secret());
    }

    #[test]
    fn create__refuses_impossible_numbers() {
        assert!(matches!(Segment::create(0, 1), Err(SegmentError::Ranks(0))));
        assert!(matches!(Segment::create(1 << 20, 1), Err(SegmentError::Ranks(_))));
    }

    #[test]
    fn wait_note__is_whole_or_absent() {
        let a = Segment::create(1, 1).unwrap();
        let page = a.page(0).unwrap();
        assert_eq!(page.wait_notes().pop(), None);
        let note = |n: i32| WaitNoteRef {
            call: if n % 2 == 0 { "MPI_Recv" } else { "MPI_Barrier" },
            peer: n,
            tag: n,
            comm: if n % 2 == 0 { "MPI_COMM_WORLD" } else { "halo" },
            bytes: n as u64,
            since_ns: n as u64,
            awaited: AwaitedRanks::of(&[n as u32, 3]),
            multiple: n % 2 == 0,
            thread: 0,
        };
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                (0..20_000).for_each(|n| page.note_waiting(0, note(n)));
                done.store(true, std::sync::atomic::Ordering::Relaxed);
            });
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                if let Some(seen) = page.wait_notes().pop() {
                    assert_eq!(seen.tag, seen.peer);
                    assert_eq!(seen.bytes, seen.since_ns);
                    let whole = note(seen.peer);
                    assert_eq!((&*seen.call, &*seen.comm), (whole.call, whole.comm));
                    assert_eq!((seen.awaited, seen.multiple), (whole.awaited, whole.multiple));
                }
            }
        });
        assert_eq!(page.wait_notes().pop().unwrap().peer, 19_999);
        page.clear_waiting(0);
        assert_eq!(page.wait_notes().pop(), None);
    }

    #[test]
    fn fuzz__header_and_pages_may_hold_anything() {
        let segment = Segment::create(2, 7).unwrap();
        let front = segment.layout().front_bytes();
        // SAFETY: the front is backed, and only this test uses it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(segment.front.base.as_ptr(), front) };
        segment.page(1).unwrap().note_waiting(
            0,
            WaitNoteRef {
                call: "MPI_Recv",
                peer: 1,
                tag: 7,
                comm: "halo",
                bytes: 8,
                since_ns: 9,
                awaited: AwaitedRanks::of(&[1]),
                multiple: false,
                thread: 0,
            },
        );
        segment.header().abort.record(1, 7, "a text");
        let good = bytes.to_vec();
        let mut random = crate::mutate::Random::new(crate::mutate::seed());
        for _ in 0..3000 {
            bytes.copy_from_slice(&good);
            for _ in 0..1 + random.below(20) {
                let page = random.below(front / PAGE_BYTES) * PAGE_BYTES;
                let most = [512, PAGE_BYTES][random.below(2)];
                let at = page + random.below(most);
                bytes[at] = random.next() as u8;
            }
            if let Ok(other) = Segment::attach(again(&segment), 7) {
                assert_eq!(other.layout().ranks(), 2);
            }
            let header = segment.header();
            let _ = (header.failure.load(), header.abort.load());
            for rank in 0..2 {
                let page = segment.page(rank).unwrap();
                let said = page.message.load_lines();
                assert!(!said.contains(|c: char| c.is_control() && c != '\n'));
                if let Some(note) = page.wait_notes().pop() {
                    assert!(!note.call.contains(|c: char| c.is_control() && c != '\n'));
                    assert!(note.awaited.named().len() <= 14);
                }
                page.phase();
            }
        }
    }
}
