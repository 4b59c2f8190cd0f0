//! Arena: this rank's part of the node segment. Programs allocate memory there that peers reach (`MPI_Alloc_mem`).
//!
//! A large allocation has its own pages and mapping, which are freed with it. Small allocations of one size share a
//! slab. Memory is backed before its address is returned ([`Segment::ensure_backed`]). A shortage is therefore an error
//! of the allocation, and later accesses cannot fail.
//!
//! [`Segment::ensure_backed`]: fastpath_segment::Segment::ensure_backed
#![allow(unsafe_code)]

mod extents;

use super::domain::Domain;
use crate::contract::Remote;
use extents::{Extents, PAGE};
use fastpath_segment::{Mapping, SegmentError};
use std::collections::BTreeMap;
use std::ptr::NonNull;

/// Smallest alignment of an address, in bytes: a cache line.
pub const MIN_ALIGN: usize = 64;
/// Largest alignment of a request, in bytes.
pub const MAX_ALIGN: usize = 1 << 30;

/// Bit of a [`Remote::rkey`] that marks `addr` as an offset in the arena of the rank in the key's low half.
pub const KEY_ARENA: u64 = 1 << 63;

const SLAB_BYTES: usize = 256 * 1024;
const SMALL_MAX: usize = 32 * 1024;
const CLASSES: usize = (SMALL_MAX / MIN_ALIGN).ilog2() as usize + 1;

/// Memory of this rank that its peers can access.
pub struct Arena {
    domain: &'static Domain,
    start: u64,
    extents: Extents,
    pieces: BTreeMap<usize, ArenaPiece>,
    open: [Vec<usize>; CLASSES],
}

struct ArenaPiece {
    offset: u64,
    mapping: Mapping,
    use_: Use,
}

enum Use {
    Whole(usize),
    Slab(Slab),
}

struct Slab {
    class: usize,
    backed: usize,
    /// Indices of freed objects; objects from `fresh` on were never allocated.
    free: Vec<u16>,
    fresh: u16,
    live: Vec<u64>,
}

impl Slab {
    fn object_bytes(&self) -> usize {
        MIN_ALIGN << self.class
    }

    fn capacity(&self) -> u16 {
        (SLAB_BYTES / self.object_bytes()) as u16
    }

    fn used(&self) -> usize {
        self.fresh as usize - self.free.len()
    }

    fn is_full(&self) -> bool {
        self.free.is_empty() && self.fresh == self.capacity()
    }

    fn is_live(&self, index: usize) -> bool {
        self.live[index / 64] >> (index % 64) & 1 == 1
    }
}

impl Arena {
    /// Creates the empty arena of the domain's rank, without memory or mappings.
    pub fn new(domain: &'static Domain) -> Arena {
        Arena {
            domain,
            start: domain
                .arena_start(domain.me)
                .expect("own rank was checked when the job was attached"),
            extents: Extents::new(domain.arena_bytes()),
            pieces: BTreeMap::new(),
            open: [const { Vec::new() }; CLASSES],
        }
    }

    /// Allocates `bytes` bytes, aligned to `align` (a power of two, at most [`MAX_ALIGN`]) and to [`MIN_ALIGN`]. An
    /// allocation of 0 bytes also has an address of its own.
    ///
    /// # Errors
    /// Too little memory (the error states needed and available bytes), or the kernel refuses a mapping.
    pub fn allocate(&mut self, bytes: usize, align: usize) -> Result<NonNull<u8>, SegmentError> {
        debug_assert!(align.is_power_of_two() && align <= MAX_ALIGN);
        let object = bytes.max(align).max(MIN_ALIGN);
        if object <= SMALL_MAX && align <= PAGE as usize {
            let class = object.next_power_of_two().ilog2() - MIN_ALIGN.ilog2();
            return self.allocate_small(class as usize);
        }
        self.allocate_whole(bytes, align, true)
    }

    /// Allocates pages, all zero, that are backed on first access, as by the C library's allocator. If the job's file
    /// is not in memory, pages are backed at once, because a later shortage would end the process by a signal.
    ///
    /// # Errors
    /// An error of [`Arena::allocate`], or too little memory available at the time of the call.
    pub fn reserve(&mut self, bytes: usize, align: usize) -> Result<NonNull<u8>, SegmentError> {
        let lazily = self.domain.job.segment().file_system_room().is_none();
        if lazily && bytes as u64 > fastpath_base::topology::available_memory() {
            return Err(self.full(bytes));
        }
        self.allocate_whole(bytes, align.max(MIN_ALIGN), !lazily)
    }

    fn allocate_whole(
        &mut self, bytes: usize, align: usize, backed: bool,
    ) -> Result<NonNull<u8>, SegmentError> {
        let pages = (bytes as u64).max(1).checked_next_multiple_of(PAGE);
        let pages = pages
            .filter(|&pages| pages <= self.domain.arena_bytes())
            .ok_or_else(|| self.full(bytes))?;
        // The kernel chooses the page at which a mapping starts, so allocate room to align the address inside it.
        let spare = if align > PAGE as usize { align as u64 } else { 0 };
        let offset = self.extents.take(pages + spare).ok_or_else(|| self.full(bytes))?;
        let made = self.map_pages(offset, pages, spare, (align, backed));
        let (mapping, address) = match made {
            Ok(made) => made,
            Err(error) => {
                self.extents.put(offset, pages + spare);
                return Err(error);
            }
        };
        let base = mapping.base().addr().get();
        self.pieces
            .insert(base, ArenaPiece { offset, mapping, use_: Use::Whole(address.addr().get()) });
        Ok(address)
    }

    fn map_pages(
        &self, offset: u64, pages: u64, spare: u64, (align, backed): (usize, bool),
    ) -> Result<(Mapping, NonNull<u8>), SegmentError> {
        let segment = self.domain.job.segment();
        let mapping = segment.map_range(self.start + offset, (pages + spare) as usize)?;
        let base = mapping.base();
        let skip = base.addr().get().next_multiple_of(align) - base.addr().get();
        let from = self.start + offset + skip as u64;
        let there = if backed { segment.ensure_backed(from, pages) } else { Ok(()) };
        if let Err(error) = there {
            // Part of the range may be backed already, so return all of it.
            let _ = segment.give_back(self.start + offset, pages + spare);
            return Err(error);
        }
        // SAFETY: `skip` is 0 or below `align`, and the mapping has `align` bytes to spare.
        Ok((mapping, unsafe { base.add(skip) }))
    }

    fn allocate_small(&mut self, class: usize) -> Result<NonNull<u8>, SegmentError> {
        let base = match self.open[class].last() {
            Some(&base) => base,
            None => self.add_slab(class)?,
        };
        let piece = match self.pieces.get_mut(&base) {
            Some(piece) => piece,
            None => unreachable!("a slab on the list is mapped"),
        };
        let Use::Slab(slab) = &mut piece.use_ else { unreachable!("a slab is a slab") };
        let size = slab.object_bytes();
        let index = match slab.free.pop() {
            Some(index) => index,
            None => {
                let end = (slab.fresh as usize + 1) * size;
                if end > slab.backed {
                    let end = end.next_multiple_of(PAGE as usize);
                    let from = self.start + piece.offset + slab.backed as u64;
                    let segment = self.domain.job.segment();
                    segment.ensure_backed(from, (end - slab.backed) as u64)?;
                    slab.backed = end;
                }
                slab.fresh += 1;
                slab.fresh - 1
            }
        };
        slab.live[index as usize / 64] |= 1 << (index % 64);
        if slab.is_full() {
            self.open[class].pop();
        }
        // SAFETY: the index is below the slab's capacity, so the object is inside its mapping.
        Ok(unsafe { piece.mapping.base().add(index as usize * size) })
    }

    fn add_slab(&mut self, class: usize) -> Result<usize, SegmentError> {
        let offset = self.extents.take(SLAB_BYTES as u64).ok_or_else(|| self.full(SLAB_BYTES))?;
        let mapping = match self.domain.job.map_range(self.start + offset, SLAB_BYTES) {
            Ok(mapping) => mapping,
            Err(error) => {
                self.extents.put(offset, SLAB_BYTES as u64);
                return Err(error);
            }
        };
        let base = mapping.base().addr().get();
        let words = (SLAB_BYTES / (MIN_ALIGN << class)).div_ceil(64);
        let slab = Slab { class, backed: 0, free: Vec::new(), fresh: 0, live: vec![0; words] };
        self.pieces.insert(base, ArenaPiece { offset, mapping, use_: Use::Slab(slab) });
        self.open[class].push(base);
        Ok(base)
    }

    #[cold]
    fn full(&self, bytes: usize) -> SegmentError {
        let available = fastpath_base::topology::available_memory();
        SegmentError::Shortage {
            needed: bytes as u64,
            available: available.min(self.domain.arena_bytes()),
            in_file_system: false,
        }
    }

    /// Frees an allocation; returns false if `address` is not from [`Arena::allocate`], or was freed before.
    pub fn free(&mut self, address: usize) -> bool {
        let Some((&base, piece)) = self.pieces.range_mut(..=address).next_back() else {
            return false;
        };
        let slab = match &mut piece.use_ {
            Use::Whole(start) if *start == address => {
                self.remove(base);
                return true;
            }
            Use::Whole(_) => return false,
            Use::Slab(slab) => slab,
        };
        let (size, class) = (slab.object_bytes(), slab.class);
        let (index, rest) = ((address - base) / size, (address - base) % size);
        if rest != 0 || index >= slab.fresh as usize || !slab.is_live(index) {
            return false;
        }
        let was_full = slab.is_full();
        slab.live[index / 64] &= !(1 << (index % 64));
        slab.free.push(index as u16);
        let is_empty = slab.used() == 0;
        if was_full {
            self.open[class].push(base);
        }
        // Keep one empty slab of each class, so that alternating allocate and free calls make no system call.
        if is_empty && self.open[class].len() > 1 {
            self.open[class].retain(|&other| other != base);
            self.remove(base);
        }
        true
    }

    fn remove(&mut self, base: usize) {
        if let Some(ArenaPiece { offset, mapping, .. }) = self.pieces.remove(&base) {
            let bytes = mapping.len();
            let given_back = self.domain.job.segment().give_back(self.start + offset, bytes as u64);
            if given_back.is_err() {
                // The pages stay backed and are reused, so they must be zero like new ones.
                // SAFETY: the mapping has `bytes` writable bytes, which no allocation uses any more.
                unsafe { mapping.base().as_ptr().write_bytes(0, bytes) };
            }
            drop(mapping);
            self.extents.put(offset, bytes as u64);
        }
    }

    /// Key for `len` bytes at `address`; `None` unless all of them lie in this arena.
    pub fn find(&self, address: usize, len: u64) -> Option<Remote> {
        let (&base, piece) = self.pieces.range(..=address).next_back()?;
        let skip = (address - base) as u64;
        if skip.checked_add(len)? > piece.mapping.len() as u64 {
            return None;
        }
        Some(Remote { addr: piece.offset + skip, rkey: KEY_ARENA | self.domain.me as u64 })
    }

    /// Whether nothing is allocated.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::direct::{Windows, visit_stretches};
    use super::*;
    use crate::contract::RemoteError;
    use fastpath_job::Job;
    use fastpath_segment::ARENA_BYTES;

    fn domain() -> &'static Domain {
        let job: &'static Job = Box::leak(Box::new(Job::singleton().unwrap()));
        Box::leak(Box::new(Domain::new(job)))
    }

    fn fill(at: NonNull<u8>, value: u8, bytes: usize) {
        // SAFETY: tests pass an allocation of the arena and its length.
        unsafe { at.as_ptr().write_bytes(value, bytes) }
    }

    fn peek(domain: &Domain, remote: Remote, bytes: usize) -> Vec<u8> {
        let mut seen = Vec::new();
        visit_stretches(domain, &mut Windows::default(), remote, bytes, |at, part| {
            // SAFETY: the test has allocated this stretch, so it is mapped and backed.
            seen.extend_from_slice(unsafe { std::slice::from_raw_parts(at, part) });
        })
        .unwrap();
        seen
    }

    #[test]
    fn reserved_memory__is_zero_after_use() {
        let mut arena = Arena::new(domain());
        for _ in 0..2 {
            let at = arena.reserve(1 << 20, 1).unwrap();
            // SAFETY: the memory has 1 MiB.
            let memory = unsafe { std::slice::from_raw_parts(at.as_ptr(), 1 << 20) };
            assert!(memory.iter().all(|&byte| byte == 0));
            fill(at, 7, 1 << 20);
            assert!(arena.free(at.addr().get()));
        }
    }

    #[test]
    fn memory__is_apart_aligned_and_seen_by_peers() {
        let domain = domain();
        let mut arena = Arena::new(domain);
        let sizes = [0, 1, 63, 64, 65, 4096, 4097, 32768, 32769, 100_000, 1 << 20];
        let mut pieces = Vec::new();
        for round in 0..3 {
            for (index, &bytes) in sizes.iter().enumerate() {
                let at = arena.allocate(bytes, 1).unwrap();
                assert_eq!(at.addr().get() % MIN_ALIGN, 0);
                fill(at, (round * sizes.len() + index) as u8, bytes);
                pieces.push((at, bytes));
            }
        }
        for (value, &(at, bytes)) in pieces.iter().enumerate() {
            let remote = arena.find(at.addr().get(), bytes as u64).unwrap();
            assert!(peek(domain, remote, bytes).iter().all(|&byte| byte == value as u8));
        }
        for (at, _) in pieces {
            assert!(arena.free(at.addr().get()));
        }
    }

    #[test]
    fn alignment__is_kept_above_a_page_too() {
        let mut arena = Arena::new(domain());
        for shift in [0, 3, 6, 12, 13, 16, 21] {
            for bytes in [1, 5000, 3 << 20] {
                let at = arena.allocate(bytes, 1 << shift).unwrap();
                assert_eq!(at.addr().get() % (1 << shift), 0, "{bytes} bytes at 2^{shift}");
                fill(at, 1, bytes);
                assert!(arena.free(at.addr().get()));
            }
        }
    }

    #[test]
    fn free__refuses_garbage_and_doubles() {
        let mut arena = Arena::new(domain());
        assert!(!arena.free(0) && !arena.free(usize::MAX) && !arena.free(4096));
        for bytes in [8, 100_000] {
            let at = arena.allocate(bytes, 1).unwrap().addr().get();
            assert!(!arena.free(at + 1) && !arena.free(at + 64) && !arena.free(at - 1));
            assert!(arena.free(at));
            assert!(!arena.free(at), "a double free of {bytes} bytes");
        }
    }

    #[test]
    fn freed_memory__goes_back_to_the_system() {
        let domain = domain();
        let used = || domain.job.segment().used_bytes().unwrap();
        let mut arena = Arena::new(domain);
        let before = used();
        let large = arena.allocate(8 << 20, 1).unwrap();
        let small: Vec<_> = (0..20_000).map(|_| arena.allocate(64, 1).unwrap()).collect();
        assert!(used() >= before + (8 << 20) + 20_000 * 64);
        arena.free(large.addr().get());
        for at in small {
            assert!(arena.free(at.addr().get()));
        }
        // The arena keeps one empty slab of the class.
        assert!(used() <= before + SLAB_BYTES as u64, "{} bytes", used() - before);
    }

    #[test]
    fn window__shows_what_came_after_a_free() {
        let domain = domain();
        let (mut arena, mut windows) = (Arena::new(domain), Windows::default());
        for value in 1..4u8 {
            let at = arena.allocate(100_000, 1).unwrap();
            fill(at, value, 100_000);
            let remote = arena.find(at.addr().get(), 100_000).unwrap();
            visit_stretches(domain, &mut windows, remote, 100_000, |at, part| {
                // SAFETY: the test has allocated this stretch, so it is mapped and backed.
                let seen = unsafe { std::slice::from_raw_parts(at, part) };
                assert!(seen.iter().all(|&byte| byte == value));
            })
            .unwrap();
            assert!(arena.free(at.addr().get()));
        }
    }

    #[test]
    fn stretches__cover_what_crosses_a_window() {
        let domain = domain();
        let remote = Remote { addr: (256 << 20) - 10, rkey: KEY_ARENA };
        domain
            .job
            .segment()
            .ensure_backed(domain.arena_start(0).unwrap() + (255 << 20), 2 << 20)
            .unwrap();
        assert_eq!(peek(domain, remote, 20), [0; 20]);
    }

    #[test]
    fn stretches__refuse_keys_that_lie() {
        let domain = domain();
        let try_key = |addr, rkey, len| {
            let mut called = false;
            let remote = Remote { addr, rkey };
            let windows = &mut Windows::default();
            let outcome = visit_stretches(domain, windows, remote, len, |_, _| called = true);
            assert!(!called);
            outcome
        };
        assert_eq!(try_key(0, 77, 1), Err(RemoteError::Unsupported));
        for (addr, rkey, len) in [
            (ARENA_BYTES, KEY_ARENA, 1),
            (ARENA_BYTES - 1, KEY_ARENA, 2),
            (u64::MAX, KEY_ARENA, 2),
            (0, KEY_ARENA, usize::MAX),
            (0, KEY_ARENA | 1, 1),
            (0, u64::MAX, 1),
        ] {
            assert_eq!(
                try_key(addr, rkey, len),
                Err(RemoteError::Fault),
                "{addr:#x} {rkey:#x} {len}"
            );
        }
    }

    #[test]
    fn find__knows_only_what_lies_inside() {
        let mut arena = Arena::new(domain());
        let outside = [0u8; 64];
        assert_eq!(arena.find(outside.as_ptr().addr(), 64), None);
        let at = arena.allocate(100_000, 1).unwrap().addr().get();
        assert!(arena.find(at + 5, 1000).is_some());
        assert_eq!(arena.find(at, 200_000), None);
        assert_eq!(arena.find(at, u64::MAX), None);
        assert_eq!(arena.find(outside.as_ptr().addr(), 64), None);
    }

    #[test]
    fn shortage__leaves_everything_as_it_was() {
        let mut arena = Arena::new(domain());
        for bytes in [1 << 39, usize::MAX, ARENA_BYTES as usize] {
            let error = arena.allocate(bytes, 1).unwrap_err();
            assert!(matches!(error, SegmentError::Shortage { .. }), "{error}");
        }
        assert!(arena.is_empty());
        assert_eq!(arena.allocate(1 << 20, 1).map(|_| ()).ok(), Some(()));
    }
}
