//! Unexpected queue: messages that arrived before a matching receive was posted.
//!
//! An entry is a record of two cache lines. It holds the fields that are compared and all bytes of a short message.
//! Records come from a slab with a free list, so a short message needs no allocation. Entries are in two lists in the
//! order of arrival: that of their peer, and that of all peers. Once receives had to compare many entries, all entries
//! are also in an index (`chains`). Every receive, also one with wildcards, then finds its message in constant time.
//!
//! **IN USE.** An id that the slab gave out, or that a list holds, names an entry in use. The entry's memory never
//! moves.
#![allow(unsafe_code)]

mod buffers;
mod chains;
mod slab;

use crate::tag::{ANY_PEER, MatchCriteria, tag_matches};
use crate::wire::{Rts, SHORT_LIMIT};
pub use buffers::Buffers;
use chains::{FORMS, Index};
use fastpath_base::copy::copy;
pub(crate) use slab::EntryPieces;
use slab::Slab;
use std::mem::offset_of;

/// Id of an entry until it is freed.
pub type EntryId = u32;

/// Id of no entry.
pub const NIL: EntryId = 0;

/// Kind of a stored message.
#[derive(Debug, Clone, Copy)]
pub enum UnexpectedKind {
    /// A whole message.
    Eager,
    /// Whole message whose sender waits for the match; holds the sender's request.
    EagerSync(u32),
    /// RTS and first bytes of a long message.
    Rendezvous(Rts),
}

/// Bytes of an entry.
#[derive(Debug)]
pub enum Body {
    /// Whole message of standard mode, in the first bytes of the array.
    Short([u8; SHORT_LIMIT]),
    /// Any other message: its bytes, or the first bytes of a long message.
    Long(UnexpectedKind, Vec<u8>),
}

const _: () = assert!(size_of::<Body>() == 64);

impl Body {
    const EMPTY: Body = Body::Short([0; SHORT_LIMIT]);
}

/// A stored message.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct UnexpectedEntry {
    /// Link to the next entry in the peer's list, or from one free entry to the next.
    next: EntryId,
    prev: EntryId,
    all_next: EntryId,
    all_prev: EntryId,
    /// Match key.
    pub key: u64,
    /// Tag.
    pub tag: i32,
    /// World rank of the sender.
    pub peer: u32,
    id: EntryId,
    /// Length of a short body; [`LONG`] for a long one.
    len: u8,
    pub(crate) body: Body,
    /// Length of the whole message in bytes, if the body is long. Only other processes read it.
    total: u64,
}

/// Value of `UnexpectedEntry::len` for a long body.
pub(crate) const LONG: u8 = u8::MAX;

const _: () = assert!(size_of::<UnexpectedEntry>() == ENTRY_BYTES as usize);

/// Size of an entry in bytes, without memory outside it.
pub const ENTRY_BYTES: u64 = 128;

impl UnexpectedEntry {
    const EMPTY: UnexpectedEntry = UnexpectedEntry {
        next: NIL,
        prev: NIL,
        all_next: NIL,
        all_prev: NIL,
        key: 0,
        tag: 0,
        peer: 0,
        id: NIL,
        len: 0,
        body: Body::EMPTY,
        total: 0,
    };

    /// Offsets of `all_next`, `key`, `tag`, `peer`, `len` and `total`, for other processes.
    pub(crate) const OFFSETS: [usize; 6] = [
        offset_of!(Self, all_next),
        offset_of!(Self, key),
        offset_of!(Self, tag),
        offset_of!(Self, peer),
        offset_of!(Self, len),
        offset_of!(Self, total),
    ];

    /// Returns the kind of the message.
    pub fn arrived(&self) -> UnexpectedKind {
        match self.body {
            Body::Short(_) => UnexpectedKind::Eager,
            Body::Long(arrived, _) => arrived,
        }
    }

    /// Returns the bytes, or the first bytes of a long message.
    pub fn data(&self) -> &[u8] {
        match &self.body {
            Body::Short(bytes) => &bytes[..self.len as usize],
            Body::Long(_, data) => data,
        }
    }

    #[inline(always)] // `fastpath bench instructions` counts MPI_Recv_unexpected
    pub(crate) fn short(&self) -> Option<(*const u8, usize)> {
        match &self.body {
            Body::Short(bytes) => Some((bytes.as_ptr(), self.len as usize)),
            Body::Long(..) => None,
        }
    }

    /// Returns the sender's request, if the sender announced the message and may withdraw it.
    pub fn announced_by(&self) -> Option<u32> {
        match self.arrived() {
            UnexpectedKind::EagerSync(request) => Some(request),
            UnexpectedKind::Rendezvous(rts) => rts.announced_by(),
            UnexpectedKind::Eager => None,
        }
    }

    /// Returns the length of the whole message in bytes.
    pub fn total(&self) -> u64 {
        match self.arrived() {
            UnexpectedKind::Rendezvous(rts) => rts.total,
            _ => self.data().len() as u64,
        }
    }

    fn bytes_elsewhere(&self) -> u64 {
        match &self.body {
            Body::Short(_) => 0,
            Body::Long(_, data) => data.len() as u64,
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MessageList {
    first: EntryId,
    last: EntryId,
}

impl MessageList {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first == NIL
    }
}

/// Number of entries that a search compares before it builds an index.
const POLLS_MAX: u32 = 8;

/// Value of `UnexpectedStore::lacked` if no failed search is cached.
const NOTHING: MatchCriteria = MatchCriteria { peer: ANY_PEER, tag: 0, key: 0 };

pub(crate) struct UnexpectedStore {
    slab: Slab,
    all: MessageList,
    indexes: [Index; FORMS],
    indexed: u8,
    count: u64,
    bytes_elsewhere: u64,
    most: u64,
    /// Criteria of the last search by a receive with a named source that found no entry. Reset to [`NOTHING`] when a
    /// message with the same key arrives, because it may match.
    lacked: MatchCriteria,
    /// Number of entries that a search compares before it builds an index.
    pub polls_max: u32,
    /// Number of entries compared by [`UnexpectedStore::find`].
    #[cfg(test)]
    pub steps: std::cell::Cell<usize>,
}

impl Default for UnexpectedStore {
    fn default() -> Self {
        UnexpectedStore {
            slab: Slab::default(),
            all: MessageList::default(),
            indexes: Default::default(),
            indexed: 0,
            count: 0,
            bytes_elsewhere: 0,
            most: 0,
            lacked: NOTHING,
            polls_max: POLLS_MAX,
            #[cfg(test)]
            steps: std::cell::Cell::default(),
        }
    }
}

impl UnexpectedStore {
    /// Returns the number of entries in use and the bytes that they take.
    #[inline]
    pub fn usage(&self) -> (u64, u64) {
        (self.count, self.count * ENTRY_BYTES + self.bytes_elsewhere)
    }

    /// Returns the largest number of entries that were in use at once.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Returns the address of the number of entries in use, for other processes to read.
    pub fn shown(&self) -> *const u64 {
        &raw const self.count
    }

    /// Returns the addresses of two values for other processes to read: the id of the first entry, and the two words of
    /// the slab.
    pub(crate) fn shown_entries(&self) -> (*const EntryId, *const u64) {
        (&raw const self.all.first, self.slab.shown())
    }

    #[inline]
    pub fn get(&self, id: EntryId) -> &UnexpectedEntry {
        self.slab.get(id)
    }

    /// Returns the entry of an id, if the id names one.
    pub fn find_used(&self, id: EntryId) -> Option<&UnexpectedEntry> {
        (id != NIL && id < self.slab.len()).then(|| self.slab.get(id))
    }

    /// Stores a message behind all others. `list` is the list of the message's peer.
    #[inline]
    pub fn add(
        &mut self, list: &mut MessageList, peer: u32, key: u64, tag: i32, body: Body,
    ) -> EntryId {
        let id = self.slab.take();
        let is_long = matches!(body, Body::Long(..));
        let entry = self.slab.get_mut(id);
        (entry.key, entry.tag, entry.peer) = (key, tag, peer);
        entry.body = body;
        if is_long {
            (entry.len, entry.total) = (LONG, entry.total());
        }
        self.bytes_elsewhere += entry.bytes_elsewhere();
        self.count += 1;
        self.most = self.most.max(self.count);
        self.slab.push(list, id, |e| (&mut e.next, &mut e.prev));
        self.slab.push(&mut self.all, id, |e| (&mut e.all_next, &mut e.all_prev));
        if self.indexed != 0 {
            self.enter_indexes(id);
        }
        if self.lacked.key == key {
            self.lacked = NOTHING;
        }
        id
    }

    /// Stores a short message, whose `len` bytes `fill` writes. `list` is the list of the message's peer.
    #[inline]
    pub fn add_short(
        &mut self, list: &mut MessageList, (peer, key, tag): (u32, u64, i32), len: usize,
        fill: impl FnOnce(*mut u8),
    ) -> EntryId {
        debug_assert!(len <= SHORT_LIMIT);
        let id = self.add(list, peer, key, tag, Body::EMPTY);
        let entry = self.slab.get_mut(id);
        entry.len = len as u8;
        if let Body::Short(bytes) = &mut entry.body {
            fill(bytes.as_mut_ptr());
        }
        id
    }

    /// Removes an entry from all lists. The entry stays in use. `list` is the list of the entry's peer.
    #[inline]
    pub fn unlink(&mut self, list: &mut MessageList, id: EntryId) {
        // SAFETY: IN USE: the entry of this id is in a list, and so is in use.
        unsafe { self.unlink_at(list, self.slab.address(id)) }
    }

    /// # Safety
    /// `entry` is the address of an entry in the lists.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Recv_unexpected
    unsafe fn unlink_at(&mut self, list: &mut MessageList, entry: *mut UnexpectedEntry) {
        // SAFETY: IN USE: the entry is in the lists, by this function's contract, and so are its neighbours.
        unsafe {
            if self.indexed != 0 {
                self.leave_indexes((*entry).id);
            }
            let links = ((*entry).next, (*entry).prev);
            self.slab.join(list, links, |e| (&mut e.next, &mut e.prev));
            let links = ((*entry).all_next, (*entry).all_prev);
            let all = &mut self.all;
            self.slab.join(all, links, |e| (&mut e.all_next, &mut e.all_prev));
        }
    }

    /// Removes and frees an entry that has been read ([`UnexpectedEntry::short`]).
    ///
    /// # Safety
    /// [`UnexpectedStore::find_at`] has returned the entry, `list` is its peer's, and the body is short.
    #[inline(always)] // see `unlink_at`
    pub unsafe fn take_at(&mut self, list: &mut MessageList, entry: *mut UnexpectedEntry) {
        // SAFETY: IN USE: the entry is in its peer's list, by this function's contract; once removed it has no user.
        unsafe {
            self.unlink_at(list, entry);
            self.count -= 1;
            self.slab.put_back(entry);
        }
    }

    /// Frees an entry that is in no list. Returns its bytes if they are outside the entry.
    #[inline]
    pub fn free(&mut self, id: EntryId) -> Option<Vec<u8>> {
        let entry = self.slab.get_mut(id);
        self.bytes_elsewhere -= entry.bytes_elsewhere();
        self.count -= 1;
        let data = match &mut entry.body {
            Body::Short(_) => None,
            Body::Long(_, data) => {
                let data = std::mem::take(data);
                entry.body = Body::EMPTY;
                Some(data)
            }
        };
        // SAFETY: IN USE: the entry was just read, and is in no list.
        unsafe { self.slab.put_back(self.slab.address(id)) };
        data
    }

    /// Appends bytes to a long message. The bytes are only copied, because other processes may write them meanwhile.
    ///
    /// # Safety
    /// `from` is readable for `len` bytes.
    pub unsafe fn extend(&mut self, id: EntryId, from: *const u8, len: usize) -> bool {
        if id == NIL || id >= self.slab.len() {
            return false;
        }
        let Body::Long(_, data) = &mut self.slab.get_mut(id).body else {
            return false;
        };
        data.reserve(len);
        let end = data.len();
        // SAFETY: `from` is readable for `len` bytes, by this function's contract, and `reserve` made space.
        unsafe {
            copy(data.as_mut_ptr().add(end), from, len);
            data.set_len(end + len);
        }
        self.bytes_elsewhere += len as u64;
        true
    }

    /// Returns the earliest entry that satisfies `want`. `list` is the list of its peer, if `want` names one.
    pub fn find(&mut self, list: MessageList, want: &MatchCriteria) -> Option<EntryId> {
        match want.peer {
            ANY_PEER => match self.find_further(self.all, want) {
                NIL => None,
                id => Some(id),
            },
            // SAFETY: IN USE: the entry that was found is in a list, and so is in use.
            _ => self.find_at(list, want).map(|entry| unsafe { (*entry).id }),
        }
    }

    /// Returns the address of the earliest match for `want`, which names its peer. Valid until the entry is freed.
    #[inline(always)] // see `unlink_at`
    pub fn find_at(
        &mut self, list: MessageList, want: &MatchCriteria,
    ) -> Option<*mut UnexpectedEntry> {
        if list.is_empty() {
            return None;
        }
        self.note_step();
        let first = self.slab.address(list.first);
        // SAFETY: IN USE: `first` is in the list, and so is in use.
        let found = unsafe { (*first).key == want.key && tag_matches(want.tag, (*first).tag) };
        match found {
            true => Some(first),
            false if self.lacked == *want => None,
            false => match self.find_further(list, want) {
                NIL => {
                    self.lacked = *want;
                    None
                }
                id => Some(self.slab.address(id)),
            },
        }
    }

    #[inline]
    fn note_step(&self) {
        #[cfg(test)]
        self.steps.set(self.steps.get() + 1);
    }

    /// Returns the entries of a peer, oldest first.
    pub fn entries(&self, list: MessageList) -> impl Iterator<Item = EntryId> {
        let listed = |id: EntryId| (id != NIL).then_some(id);
        std::iter::successors(listed(list.first), move |&id| listed(self.slab.get(id).next))
    }

    /// Returns all entries, oldest first.
    pub fn all(&self) -> impl Iterator<Item = &UnexpectedEntry> {
        let listed = |id: EntryId| (id != NIL).then(|| self.slab.get(id));
        std::iter::successors(listed(self.all.first), move |e| listed(e.all_next))
    }
}
