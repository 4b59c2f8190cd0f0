//! Tag matching (MPI-5.0 section 3.5): receives that wait, and messages nobody has asked for yet.
//!
//! No clock and no transport. Each peer has a list of posted receives and one of unexpected messages, so that a receive
//! that names its source looks at that source alone; receives from any source have a list of their own, and an order
//! number decides between the two. Posted requests are linked where they lie, so that posting writes nothing twice. A
//! long list of them gets an index by source and tag (`index`); messages have one always (`unexpected`). What stood in
//! the way of a message or a receive is remembered for the next one with the same tag ([`Again`], `Store`), so that
//! threads with tags of their own do not search behind each other's. Nothing is global to the process.
//!
//! The lists of a peer lie beside its endpoint (`peers`), in memory that reads as zero until a peer is talked to. So
//! all bits zero are empty lists.
//!
//! **POSTED IN PLACE.** A request in a list is valid, and stays where it is until it is matched or taken back: whoever
//! posts it promises that. So all links of a list lead to valid requests, and an `end` to the link behind the last of
//! them or to the list itself. The lists stay where they are as long as the matcher is used.

#![allow(unsafe_code)]

mod index;
mod messages;
#[cfg(test)]
mod tests;

use crate::endpoint::Endpoint;
use crate::peers::{Peer, Peers};
use crate::request::{Phase, Request, RequestId};
use crate::tag::{key_context, tag_matches};
pub use crate::unexpected::EntryId;
use crate::unexpected::{List, Store};
use index::Index;
use std::mem::offset_of;
use std::ptr;

/// Source of a receive that takes a message of any.
pub const ANY_PEER: u32 = u32::MAX;
/// Receives of a list that are looked at one after the other before it gets an index.
const POLLS_MAX: u32 = 8;
/// Lists up to which a wait counts the receives in all of them.
const COUNTED_MAX: u32 = 256;

/// What a receive asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// World rank of the source, or [`ANY_PEER`].
    pub peer: u32,
    /// Tag, or `tag::ANY_TAG`.
    pub tag: i32,
    /// Match key; with [`ANY_PEER`] its source part is 0 and does not count.
    pub key: u64,
}

impl Want {
    /// Whether a message satisfies this receive. Its peer has been compared by the caller's choice of list.
    #[inline]
    pub(crate) fn accepts(&self, key: u64, tag: i32) -> bool {
        let key = if self.peer == ANY_PEER { key_context(key) } else { key };
        self.key == key && tag_matches(self.tag, tag)
    }
}

/// A place in a list that leads to a receive, or to none: its `first`, or the `next` of a receive in it. It is stored
/// as the distance from `first`, so that of an empty list it is 0, and posting needs no case for that.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link(usize);

impl Link {
    /// The `next` of a receive.
    #[inline(always)] // see `append`
    fn behind(list: *mut PeerLists, request: *mut Request) -> Link {
        let next = request.expose_provenance() + offset_of!(Request, next);
        Link(next.wrapping_sub(list.addr()))
    }

    /// Where it is. What it names has been exposed: the list by `Matcher::new`, a receive by `behind`.
    #[inline(always)] // see `append`
    fn place(self, list: *mut PeerLists) -> *mut *mut Request {
        ptr::with_exposed_provenance_mut(list.addr().wrapping_add(self.0))
    }
}

/// Posted receives in the order of their posting.
#[repr(C)]
#[derive(Clone, Copy)]
struct PostedList {
    first: *mut Request,
    /// The `next` of the last one, or `first`.
    end: Link,
}

/// The lists of a peer. All bits zero are empty ones.
#[repr(C)]
pub(crate) struct PeerLists {
    posted: PostedList,
    unexpected: List,
    /// Entries in both lists: 0 says that the peer's next message can be looked at directly.
    busy: u32,
    /// Of the posted receives: one more than the place of their index in `Matcher::indexes`, or 0.
    index: u32,
}

const _: () = assert!(size_of::<PeerLists>() == 32);
// What a link counts from.
const _: () = assert!(offset_of!(PeerLists, posted) == 0 && offset_of!(PostedList, first) == 0);

/// Where the last message found its receive in a list with an index. The next message with the same key and tag begins
/// there: no receive before that place matches, and later ones are posted behind it.
struct Again {
    key: u64,
    tag: i32,
    list: u32,
    /// The link that leads to the first receive that may match; null where there was none yet, or the list is empty.
    link: *mut *mut Request,
}

/// The matching engine of one worker.
pub struct Matcher {
    /// The first of `count` peers; behind them lies one more, for receives from any source.
    peers: *mut Peer,
    count: u32,
    any_source_count: u32,
    order: u64,
    pub(crate) store: Store,
    /// Indexes of long lists of posted receives, and those of no list.
    indexes: Vec<Index>,
    unused: Vec<u32>,
    again: Again,
    /// Receives of a list that are looked at before it gets an index.
    polls_max: u32,
    /// The most posted receives that were counted.
    posted_most: u64,
    /// Receives looked at by `find_posted` so far.
    #[cfg(test)]
    steps: usize,
}

impl Matcher {
    /// An engine for messages of `peers`.
    ///
    /// # Safety
    /// The matcher is not used when `peers` has been dropped.
    pub(crate) unsafe fn new(peers: &Peers) -> Self {
        peers.first().expose_provenance();
        Matcher {
            peers: peers.first(),
            count: peers.count(),
            any_source_count: 0,
            order: 0,
            store: Store::default(),
            indexes: Vec::new(),
            unused: Vec::new(),
            again: Again { key: 0, tag: 0, list: 0, link: ptr::null_mut() },
            polls_max: POLLS_MAX,
            posted_most: 0,
            #[cfg(test)]
            steps: 0,
        }
    }

    /// Whether no receive waits that `peer`'s next message could match, and no message of it waits:
    /// then a receive may look at the next arrival without asking the lists.
    #[inline]
    pub fn is_quiet(&self, peer: u32) -> bool {
        self.is_without_entries(self.lists(peer))
    }

    /// The same of the peer that an endpoint leads to.
    ///
    /// # Safety
    /// It is one of the worker's that has this matcher.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Recv
    pub unsafe fn is_quiet_beside(&self, endpoint: *const Endpoint) -> bool {
        // SAFETY: every endpoint of a worker lies in a `Peer`, whose lists no reference is kept to.
        self.is_without_entries(unsafe { &*Peer::lists_beside(endpoint) })
    }

    #[inline(always)] // see `is_quiet_beside`
    fn is_without_entries(&self, lists: &PeerLists) -> bool {
        lists.busy == 0 && self.any_source_count == 0
    }

    /// Whether no receive waits that `peer`'s next message could match: a receive that no message in the unexpected
    /// queue satisfies may look at the next arrival.
    #[inline]
    pub fn has_no_receive(&self, peer: u32) -> bool {
        self.lists(peer).posted.first.is_null() && self.any_source_count == 0
    }

    /// Whether messages of `peer` wait that nobody has asked for.
    #[inline]
    pub fn has_unexpected(&self, peer: u32) -> bool {
        !self.lists(peer).unexpected.is_empty()
    }

    /// As [`Matcher::has_unexpected`], of the peer that an endpoint leads to.
    ///
    /// # Safety
    /// As [`Matcher::is_quiet_beside`].
    #[inline(always)] // `fastpath bench instructions` counts MPI_Irecv
    pub unsafe fn has_unexpected_beside(&self, endpoint: *const Endpoint) -> bool {
        // SAFETY: as there.
        unsafe { !(*Peer::lists_beside(endpoint)).unexpected.is_empty() }
    }

    #[inline]
    fn lists(&self, peer: u32) -> &PeerLists {
        // SAFETY: the lists of a peer are valid; who changes them has this matcher for itself.
        unsafe { &*self.at(peer) }
    }

    /// Where the lists of a peer lie; those of `count` are for receives from any source.
    #[inline]
    fn at(&self, list: u32) -> *mut PeerLists {
        debug_assert!(list <= self.count);
        // SAFETY: peers are ranks of the job that the matcher was made for: those of receives come from groups, those
        // of messages are the ones whose lanes progress looks at. `Peers` has one more, and lives (`new`).
        unsafe { &raw mut (*self.peers.add(list as usize)).lists }
    }

    /// Whether a receive is posted that a message of `peer` may match.
    pub fn wants_of(&self, peer: u32) -> bool {
        self.any_source_count != 0 || !self.lists(peer).posted.first.is_null()
    }

    /// The most posted receives that were counted in a wait.
    pub(crate) fn posted_most(&self) -> u64 {
        self.posted_most
    }

    /// Counts the posted receives in a wait that lasts, since posting and matching have no time to: all entries of
    /// lists but messages, of which a probe may have taken some out. Of many peers that takes too long.
    pub(crate) fn count_posted(&mut self) {
        if self.count < COUNTED_MAX {
            let entries: u64 = (0..=self.count).map(|list| u64::from(self.lists(list).busy)).sum();
            let posted = entries.saturating_sub(self.store.usage().0);
            self.posted_most = self.posted_most.max(posted);
        }
    }

    /// Posts a receive: its `peer`, `key` and `tag` say what it wants. The caller has looked for an
    /// unexpected message first.
    ///
    /// # Safety
    /// The request is valid and not posted, and stays where it is until it is matched or taken back.
    #[inline]
    pub unsafe fn post(&mut self, request: *mut Request) {
        // SAFETY: POSTED IN PLACE: the request is valid, and stays where it is once it is in a list.
        unsafe {
            (*request).phase = Phase::Posted;
            if (*request).peer != ANY_PEER {
                return self.post_named(request);
            }
            // Named receives of before have a smaller order than this, those of later one as large.
            self.order += 1;
            self.any_source_count += 1;
            self.append(self.count, request);
        }
    }

    /// Posts a receive that names its source.
    ///
    /// # Safety
    /// As [`Matcher::post`], but that the request says already that it is posted.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Irecv
    pub unsafe fn post_named(&mut self, request: *mut Request) {
        // SAFETY: as `append` asks: the request is valid and in no list, and names a peer, which has a list.
        unsafe { self.append((*request).peer, request) }
    }

    /// # Safety
    /// As [`Matcher::post`]; `list` is at most `count`.
    #[inline(always)] // see `post_named`
    unsafe fn append(&mut self, list: u32, request: *mut Request) {
        // SAFETY: POSTED IN PLACE for the request and for the one, or the list, whose link `end` names.
        unsafe {
            let lists = self.at(list);
            let end = (*lists).posted.end;
            (*request).next = ptr::null_mut();
            (*request).link = end;
            (*request).order = self.order;
            *end.place(lists) = request;
            (*lists).posted.end = Link::behind(lists, request);
            (*lists).busy += 1;
        }
    }

    /// Takes back a posted receive.
    ///
    /// # Safety
    /// The request is posted here.
    #[inline]
    pub unsafe fn unpost(&mut self, request: *mut Request) {
        // SAFETY: a posted request's links are valid, and it is in the list of its peer.
        unsafe {
            let list = match (*request).peer {
                ANY_PEER => {
                    self.any_source_count -= 1;
                    self.count
                }
                peer => peer,
            };
            self.unlink(list, request);
        }
    }

    /// # Safety
    /// The request is posted in this list.
    #[inline(always)] // see `drain`
    unsafe fn unlink(&mut self, list: u32, request: *mut Request) {
        // SAFETY: POSTED IN PLACE: the request and those beside it in its list are valid.
        unsafe {
            let lists = self.at(list);
            if (*lists).index != 0 {
                self.leave_index(list, request);
            }
            let (next, link) = ((*request).next, (*request).link);
            *link.place(lists) = next;
            match next.is_null() {
                true => (*lists).posted.end = link,
                false => (*next).link = link,
            }
            (*lists).busy -= 1;
            (*request).phase = Phase::Begun;
        }
    }

    /// The earliest receive posted to `peer` that a message satisfies, unless receives from any source wait as well.
    #[inline(always)] // see `drain`
    pub fn find_named(&mut self, peer: u32, key: u64, tag: i32) -> Option<*mut Request> {
        let first = self.lists(peer).posted.first;
        if self.any_source_count != 0 {
            return None;
        }
        // SAFETY: what lies in the lists is valid, by the contract of `post`.
        let request = unsafe { first.as_ref() }?;
        if request.key == key && tag_matches(request.tag, tag) {
            return Some(first);
        }
        self.find_further(peer, key, tag)
    }

    #[cold]
    #[inline(never)]
    fn find_further(&mut self, peer: u32, key: u64, tag: i32) -> Option<*mut Request> {
        let again = &self.again;
        if (again.key, again.tag, again.list) == (key, tag, peer) && !again.link.is_null() {
            // SAFETY: POSTED IN PLACE: the link is one of the list, and what it leads to is valid.
            let next = unsafe { (*again.link).as_ref() };
            if next.is_some_and(|next| next.key == key && tag_matches(next.tag, tag)) {
                // SAFETY: as above.
                return Some(unsafe { *again.link });
            }
        }
        let found = self.find_in(peer, key, tag);
        if found.is_null() {
            return None;
        }
        if self.lists(peer).index != 0 {
            // SAFETY: POSTED IN PLACE: it is in the list.
            let link = unsafe { (*found).link.place(self.at(peer)) };
            self.again = Again { key, tag, list: peer, link };
        }
        Some(found)
    }

    /// Removes a receive posted to `peer`.
    ///
    /// # Safety
    /// It is posted there.
    #[inline(always)] // see `drain`
    pub unsafe fn unpost_named(&mut self, peer: u32, request: *mut Request) {
        // SAFETY: it is posted to `peer`, so that it is in that list.
        unsafe { self.unlink(peer, request) }
    }

    /// The earliest posted receive that a message satisfies is removed and returned.
    #[inline]
    pub fn match_arrival(&mut self, peer: u32, key: u64, tag: i32) -> Option<RequestId> {
        let found = self.find_posted(peer, key, tag)?;
        // SAFETY: what lies in the lists is valid, by the contract of `post`.
        unsafe {
            self.unpost(found);
            Some((*found).id())
        }
    }

    /// The earliest posted receive that a message satisfies, left where it is.
    #[inline]
    pub fn find_posted(&mut self, peer: u32, key: u64, tag: i32) -> Option<*mut Request> {
        // SAFETY: what lies in the lists is valid, by the contract of `post`.
        unsafe {
            let mut found = self.find_in(peer, key, tag);
            if self.any_source_count != 0 {
                let any = self.find_in(self.count, key_context(key), tag);
                if found.is_null() || (!any.is_null() && (*any).order <= (*found).order) {
                    found = any;
                }
            }
            (!found.is_null()).then_some(found)
        }
    }

    /// The first receive of a list that asks for `key` and a tag, or null.
    #[inline]
    fn find_in(&mut self, list: u32, key: u64, tag: i32) -> *mut Request {
        let lists = self.lists(list);
        if lists.index == 0 {
            let mut at = lists.posted.first;
            for _ in 0..self.polls_max {
                // SAFETY: what lies in the lists is valid, by the contract of `post`.
                let Some(request) = (unsafe { at.as_ref() }) else {
                    return at;
                };
                self.note_step();
                if request.key == key && tag_matches(request.tag, tag) {
                    return at;
                }
                at = request.next;
            }
            if at.is_null() {
                return at;
            }
        }
        self.find_indexed(list, key, tag)
    }

    /// The same of a list that is long, or was before.
    #[cold]
    #[inline(never)]
    fn find_indexed(&mut self, list: u32, key: u64, tag: i32) -> *mut Request {
        let lists = self.at(list);
        // SAFETY: POSTED IN PLACE for all that the list and its index lead to.
        unsafe {
            if (*lists).index == 0 {
                (*lists).index = self.unused.pop().unwrap_or_else(|| {
                    self.indexes.push(Index::default());
                    self.indexes.len() as u32
                });
                self.indexes[(*lists).index as usize - 1].begin(&raw mut (*lists).posted.first);
            }
            let index = &mut self.indexes[(*lists).index as usize - 1];
            index.complete((*lists).posted.first);
            let (found, steps) = index.find(key, tag);
            self.note_steps(steps);
            found
        }
    }

    /// Takes a receive out of its list's index. The index of a list that becomes empty is no longer needed.
    ///
    /// # Safety
    /// The receive is posted, in a list that has an index.
    #[cold]
    #[inline(never)]
    unsafe fn leave_index(&mut self, list: u32, request: *mut Request) {
        let lists = self.at(list);
        // SAFETY: POSTED IN PLACE: the receive is in the list. One that has a place there is in the list's index.
        unsafe {
            if self.again.link == &raw mut (*request).next {
                self.again.link = (*request).link.place(lists);
            }
            if (*request).place != 0 {
                self.indexes[(*lists).index as usize - 1].remove(lists, request);
            }
            if (*lists).posted.first == request && (*request).next.is_null() {
                self.unused.push(std::mem::take(&mut (*lists).index));
                if self.again.list == list {
                    self.again.link = ptr::null_mut();
                }
            }
        }
    }

    #[inline]
    fn note_step(&mut self) {
        self.note_steps(1);
    }

    #[inline]
    fn note_steps(&mut self, _steps: usize) {
        #[cfg(test)]
        {
            self.steps += _steps;
        }
    }
}
