//! Slab of the unexpected queue: records with a free list, in pieces that never move and live as long as the slab. One
//! allocation serves many messages.
//!
//! **IN A PIECE.** An id below `len` names a record in one of the pieces. Ids come from `take`.
#![allow(unsafe_code)]

use super::{EntryId, MessageList, NIL, UnexpectedEntry};

/// Binary logarithm of the number of entries of a piece, which takes 64 KiB.
const PIECE_BITS: u32 = 9;
const PIECE: usize = 1 << PIECE_BITS;

#[derive(Default)]
pub(super) struct Slab {
    pieces: Vec<*mut UnexpectedEntry>,
    free: EntryId,
    /// Address and number of the pieces, for other processes.
    shown: [u64; 2],
}

/// Places of entries in the pieces of a slab, for other processes.
pub struct EntryPieces;

impl EntryPieces {
    /// Number of entries of a piece.
    pub const PIECE: usize = PIECE;

    /// Returns the number of an entry's piece, and the entry's position in the piece.
    #[inline(always)] // see `Slab::address`
    pub fn place(id: EntryId) -> (usize, usize) {
        ((id >> PIECE_BITS) as usize, id as usize & (PIECE - 1))
    }
}

impl Slab {
    /// Returns the address of two words, the address and the number of the pieces, for other processes to read.
    pub fn shown(&self) -> *const u64 {
        self.shown.as_ptr()
    }

    /// Returns one more than the largest id.
    pub fn len(&self) -> u32 {
        (self.pieces.len() as u32) << PIECE_BITS
    }

    #[inline]
    pub fn get(&self, id: EntryId) -> &UnexpectedEntry {
        debug_assert!(id < self.len());
        // SAFETY: IN A PIECE: the id came from `take`.
        unsafe { &*self.address(id) }
    }

    /// Returns the address of an entry. The address is valid as long as the slab.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Recv_unexpected
    pub fn address(&self, id: EntryId) -> *mut UnexpectedEntry {
        debug_assert!(id < self.len());
        // SAFETY: IN A PIECE: the id came from `take`, so the piece exists.
        unsafe {
            let (piece, place) = EntryPieces::place(id);
            self.pieces.get_unchecked(piece).add(place)
        }
    }

    #[inline]
    pub fn get_mut(&mut self, id: EntryId) -> &mut UnexpectedEntry {
        debug_assert!(id < self.len());
        // SAFETY: IN A PIECE: the id came from `take`, and `self` is borrowed mutably.
        unsafe { &mut *self.address(id) }
    }

    /// Returns an entry that is in no list and has the fields of its last use.
    #[inline]
    pub fn take(&mut self) -> EntryId {
        if self.free == NIL {
            self.grow();
        }
        let id = self.free;
        self.free = self.get(id).next;
        id
    }

    /// Frees an entry.
    ///
    /// # Safety
    /// `entry` is the address of an entry of this slab without other users.
    #[inline(always)] // see `address`
    pub unsafe fn put_back(&mut self, entry: *mut UnexpectedEntry) {
        // SAFETY: the entry is one of this slab without other users, by this function's contract.
        unsafe {
            (*entry).next = self.free;
            self.free = (*entry).id;
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let first = self.len();
        let piece: Box<[UnexpectedEntry]> = (0..PIECE).map(|_| UnexpectedEntry::EMPTY).collect();
        self.pieces.push(Box::into_raw(piece).cast());
        self.shown = [self.pieces.as_ptr().addr() as u64, self.pieces.len() as u64];
        for id in (first.max(1)..self.len()).rev() {
            self.get_mut(id).id = id;
            // SAFETY: IN A PIECE: the piece was just added, and its entries have no users.
            unsafe { self.put_back(self.address(id)) };
        }
    }

    /// Appends an entry to a list. `links` returns an entry's links to the next and the previous entry.
    #[inline(always)] // see `address`
    pub fn push(
        &mut self, list: &mut MessageList, id: EntryId,
        links: impl Fn(&mut UnexpectedEntry) -> (&mut EntryId, &mut EntryId),
    ) {
        let last = list.last;
        let (next, prev) = links(self.get_mut(id));
        (*next, *prev) = (NIL, last);
        match last {
            NIL => list.first = id,
            _ => *links(self.get_mut(last)).0 = id,
        }
        list.last = id;
    }

    /// Joins the neighbours of a removed entry. `links` returns an entry's links to the next and the previous entry.
    #[inline(always)] // see `push`
    pub fn join(
        &mut self, list: &mut MessageList, (next, prev): (EntryId, EntryId),
        links: impl Fn(&mut UnexpectedEntry) -> (&mut EntryId, &mut EntryId),
    ) {
        match prev {
            NIL => list.first = next,
            _ => *links(self.get_mut(prev)).0 = next,
        }
        match next {
            NIL => list.last = prev,
            _ => *links(self.get_mut(next)).1 = prev,
        }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        for &piece in &self.pieces {
            // SAFETY: `grow` made the piece from a box of `PIECE` entries.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(piece, PIECE)) });
        }
    }
}
