//! The unexpected queue: messages that arrived before anyone asked for them.
//!
//! An entry is one record of two cache lines that holds what is compared and, of a short message, all its bytes.
//! Records come from a slab and go back to its free list, so that a short message needs no allocation. Entries stand in
//! two lists in the order of arrival, of their peer and of all peers. Where receives have had to look at many, all
//! stand in an index as well (`chains`): then a receive finds its message in constant time, whether it names source and
//! tag or not.
#![allow(unsafe_code)]

mod buffers;
mod chains;
mod slab;

use crate::matching::{ANY_PEER, Want};
use crate::tag::tag_matches;
use crate::wire::Rts;
use crate::worker::SHORT_LIMIT;
pub use buffers::Buffers;
use chains::{FORMS, Index};
use fastpath_base::copy::copy;
use slab::Slab;

/// Names an entry until it is freed.
pub type EntryId = u32;

/// No entry.
pub const NIL: EntryId = 0;

/// What kind of message is stored.
#[derive(Debug, Clone, Copy)]
pub enum Arrived {
    /// A whole message.
    Eager,
    /// A whole message whose sender waits to hear that it was matched; holds the sender's request.
    EagerSync(u32),
    /// The RTS and first bytes of a long message.
    Rendezvous(Rts),
}

/// What an entry holds.
#[derive(Debug)]
pub enum Body {
    /// A whole message that nobody waits for, in the first bytes.
    Short([u8; SHORT_LIMIT]),
    /// Anything else: its bytes, or the first ones of a long message.
    Long(Arrived, Vec<u8>),
}

const _: () = assert!(size_of::<Body>() == 64);

impl Body {
    /// A body without bytes.
    const EMPTY: Body = Body::Short([0; SHORT_LIMIT]);
}

/// A stored message.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Entry {
    /// In the list of its peer; while free, the next free one.
    next: EntryId,
    prev: EntryId,
    /// In the list of all.
    all_next: EntryId,
    all_prev: EntryId,
    /// Match key.
    pub key: u64,
    /// Tag.
    pub tag: i32,
    /// World rank of the sender.
    pub peer: u32,
    /// Its own name.
    id: EntryId,
    /// Bytes of a short body.
    len: u8,
    /// What is there of the message.
    pub(crate) body: Body,
}

const _: () = assert!(size_of::<Entry>() == ENTRY_BYTES as usize);

/// Bytes of an entry, without those that lie elsewhere.
pub const ENTRY_BYTES: u64 = 128;

impl Entry {
    const EMPTY: Entry = Entry {
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
    };

    /// What kind of message it is.
    pub fn arrived(&self) -> Arrived {
        match self.body {
            Body::Short(_) => Arrived::Eager,
            Body::Long(arrived, _) => arrived,
        }
    }

    /// Its bytes, or the first ones of a long message.
    pub fn data(&self) -> &[u8] {
        match &self.body {
            Body::Short(bytes) => &bytes[..self.len as usize],
            Body::Long(_, data) => data,
        }
    }

    /// A whole message that nobody waits for and that lies in the entry: its bytes, of which `len` count.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Recv_unexpected
    pub(crate) fn short(&self) -> Option<(*const u8, usize)> {
        match &self.body {
            Body::Short(bytes) => Some((bytes.as_ptr(), self.len as usize)),
            Body::Long(..) => None,
        }
    }

    /// The sender's request, where the message was announced by one: it may be taken back.
    pub fn announced_by(&self) -> Option<u32> {
        match self.arrived() {
            Arrived::EagerSync(request) => Some(request),
            Arrived::Rendezvous(rts) => rts.announced_by(),
            Arrived::Eager => None,
        }
    }

    /// Length of the whole message in bytes.
    pub fn total(&self) -> u64 {
        match self.arrived() {
            Arrived::Rendezvous(rts) => rts.total,
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

/// First and last entry of a list.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct List {
    first: EntryId,
    last: EntryId,
}

impl List {
    /// Whether nothing is in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first == NIL
    }
}

/// Entries that are looked at one after the other before there is an index.
const POLLS_MAX: u32 = 8;

/// A receive that names no source: no search for one is remembered.
const NOTHING: Want = Want { peer: ANY_PEER, tag: 0, key: 0 };

/// All stored messages. The list of each peer lies with its caller.
pub(crate) struct Store {
    slab: Slab,
    all: List,
    indexes: [Index; FORMS],
    /// Which of them are in use, one bit for each.
    indexed: u8,
    /// Entries in use.
    count: u64,
    /// Bytes that lie outside of entries.
    bytes_elsewhere: u64,
    /// The most entries in use so far.
    most: u64,
    /// What no entry satisfies: the last receive from a named source that found nothing, as long as no message came
    /// that it might take. Without such a receive it names no source.
    lacked: Want,
    /// Entries that are looked at before there is an index.
    pub polls_max: u32,
    /// Entries looked at by [`Store::find`] so far.
    #[cfg(test)]
    pub steps: std::cell::Cell<usize>,
}

impl Default for Store {
    fn default() -> Self {
        Store {
            slab: Slab::default(),
            all: List::default(),
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

impl Store {
    /// Entries in use, and the bytes that they take.
    #[inline]
    pub fn usage(&self) -> (u64, u64) {
        (self.count, self.count * ENTRY_BYTES + self.bytes_elsewhere)
    }

    /// The most entries that were in use at once.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Where the number of entries in use lies, for those who look from outside.
    pub fn shown(&self) -> *const u64 {
        &raw const self.count
    }

    /// An entry.
    #[inline]
    pub fn get(&self, id: EntryId) -> &Entry {
        self.slab.get(id)
    }

    /// An entry, if there is one of that name and it is in use.
    pub fn find_used(&self, id: EntryId) -> Option<&Entry> {
        (id != NIL && id < self.slab.len()).then(|| self.slab.get(id))
    }

    /// Stores a message behind all others; `list` is its peer's.
    #[inline]
    pub fn add(&mut self, list: &mut List, peer: u32, key: u64, tag: i32, body: Body) -> EntryId {
        let id = self.slab.take();
        let entry = self.slab.get_mut(id);
        (entry.key, entry.tag, entry.peer) = (key, tag, peer);
        entry.body = body;
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

    /// As [`Store::add`], of a short message: `fill` writes its `len` bytes.
    #[inline]
    pub fn add_short(
        &mut self, list: &mut List, (peer, key, tag): (u32, u64, i32), len: usize,
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

    /// Takes an entry out of all lists; `list` is its peer's. It stays in use.
    #[inline]
    pub fn unlink(&mut self, list: &mut List, id: EntryId) {
        // SAFETY: a name that was given out.
        unsafe { self.unlink_at(list, self.slab.address(id)) }
    }

    /// # Safety
    /// It is the address of an entry that is in the lists.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Recv_unexpected
    unsafe fn unlink_at(&mut self, list: &mut List, entry: *mut Entry) {
        // SAFETY: the entry is in the lists, by this function's contract, and those beside it are valid.
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

    /// Takes out and frees an entry that has been read ([`Entry::short`]).
    ///
    /// # Safety
    /// As [`Store::find_at`], which has shown it; `list` is its peer's, and the body is short.
    #[inline(always)] // as `unlink_at`
    pub unsafe fn take_at(&mut self, list: &mut List, entry: *mut Entry) {
        // SAFETY: the entry is in its peer's list, by this function's contract; nobody uses it once it is taken out.
        unsafe {
            self.unlink_at(list, entry);
            self.count -= 1;
            self.slab.put_back(entry);
        }
    }

    /// Frees an entry that is in no list any more, and returns its bytes where they lie elsewhere.
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
        // SAFETY: just used, and in no list.
        unsafe { self.slab.put_back(self.slab.address(id)) };
        data
    }

    /// More bytes of a long message. Other processes may write there meanwhile: they are copied, and nothing else.
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
        // SAFETY: `from` is readable for `len` bytes, by this function's contract; there is room for as many behind
        // what `data` has, which they make its own.
        unsafe {
            copy(data.as_mut_ptr().add(end), from, len);
            data.set_len(end + len);
        }
        self.bytes_elsewhere += len as u64;
        true
    }

    /// The earliest entry that satisfies `want`; `list` is that of its peer, if it names one.
    pub fn find(&mut self, list: List, want: &Want) -> Option<EntryId> {
        match want.peer {
            ANY_PEER => match self.find_further(self.all, want) {
                NIL => None,
                id => Some(id),
            },
            // SAFETY: what is found can be read.
            _ => self.find_at(list, want).map(|entry| unsafe { (*entry).id }),
        }
    }

    /// As [`Store::find`], of a receive that names its peer: where the entry lies, until it is freed.
    #[inline(always)] // as `unlink_at`
    pub fn find_at(&mut self, list: List, want: &Want) -> Option<*mut Entry> {
        if list.is_empty() {
            return None;
        }
        self.note_step();
        let first = self.slab.address(list.first);
        // SAFETY: in use, as all that lists name.
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

    /// The entries of a peer, oldest first.
    pub fn entries(&self, list: List) -> impl Iterator<Item = EntryId> {
        let listed = |id: EntryId| (id != NIL).then_some(id);
        std::iter::successors(listed(list.first), move |&id| listed(self.slab.get(id).next))
    }

    /// All entries in the order of their arrival.
    pub fn all(&self) -> impl Iterator<Item = &Entry> {
        let listed = |id: EntryId| (id != NIL).then(|| self.slab.get(id));
        std::iter::successors(listed(self.all.first), move |e| listed(e.all_next))
    }
}
