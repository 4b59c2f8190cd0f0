//! Records of unexpected messages: in pieces that never move and are never given back, with a list of those that are
//! free, so that storing a message allocates once in many.
#![allow(unsafe_code)]

use super::{Entry, EntryId, List, NIL};

/// Entries of a piece, as a power of two: 64 KiB.
const PIECE_BITS: u32 = 9;
const PIECE: usize = 1 << PIECE_BITS;

/// The entries.
#[derive(Default)]
pub(super) struct Slab {
    /// Each of [`PIECE`] entries.
    pieces: Vec<*mut Entry>,
    free: EntryId,
}

impl Slab {
    /// One more than the largest name that was given out.
    pub fn len(&self) -> u32 {
        (self.pieces.len() as u32) << PIECE_BITS
    }

    /// The entry of a name that was given out.
    #[inline]
    pub fn get(&self, id: EntryId) -> &Entry {
        debug_assert!(id < self.len());
        // SAFETY: names come from `take`, which took them from these pieces, and no piece is ever given back.
        unsafe { &*self.address(id) }
    }

    /// Where it lies, for as long as there is the slab.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Recv_unexpected
    pub fn address(&self, id: EntryId) -> *mut Entry {
        debug_assert!(id < self.len());
        // SAFETY: as in `get`.
        unsafe {
            let piece = *self.pieces.get_unchecked((id >> PIECE_BITS) as usize);
            piece.add(id as usize & (PIECE - 1))
        }
    }

    /// The same, to be changed.
    #[inline]
    pub fn get_mut(&mut self, id: EntryId) -> &mut Entry {
        debug_assert!(id < self.len());
        // SAFETY: as in `get`.
        unsafe { &mut *self.address(id) }
    }

    /// An entry in no list, its fields as the last user has left them.
    #[inline]
    pub fn take(&mut self) -> EntryId {
        if self.free == NIL {
            self.grow();
        }
        let id = self.free;
        self.free = self.get(id).next;
        id
    }

    /// Takes back an entry.
    ///
    /// # Safety
    /// It is the address of an entry of this slab that nobody uses any more.
    #[inline(always)] // as `address`
    pub unsafe fn put_back(&mut self, entry: *mut Entry) {
        // SAFETY: it is an entry of this slab that nobody uses any more, by this function's contract.
        unsafe {
            (*entry).next = self.free;
            self.free = (*entry).id;
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let first = self.len();
        let piece: Box<[Entry]> = (0..PIECE).map(|_| Entry::EMPTY).collect();
        self.pieces.push(Box::into_raw(piece).cast());
        // The first of all is none: its name is that of no entry.
        for id in (first.max(1)..self.len()).rev() {
            self.get_mut(id).id = id;
            // SAFETY: just made.
            unsafe { self.put_back(self.address(id)) };
        }
    }

    /// Appends an entry to a list, whose links `links` names: to the next and to the one before.
    #[inline(always)] // as `address`
    pub fn push(
        &mut self, list: &mut List, id: EntryId,
        links: impl Fn(&mut Entry) -> (&mut EntryId, &mut EntryId),
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

    /// Takes out of a list what lies between two neighbours, by its links to the next and to the one before.
    #[inline(always)] // as `push`
    pub fn join(
        &mut self, list: &mut List, (next, prev): (EntryId, EntryId),
        links: impl Fn(&mut Entry) -> (&mut EntryId, &mut EntryId),
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
            // SAFETY: made by `grow` from a box of so many.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(piece, PIECE)) });
        }
    }
}
