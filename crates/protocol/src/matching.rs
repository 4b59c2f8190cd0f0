//! Tag matching (MPI-5.0 section 3.5): posted receives and unexpected messages.
//!
//! This module uses no clock and no transport. Each peer has a list of posted receives and a list of unexpected
//! messages, so a receive with a named source searches only that source. Receives from any source have their own list.
//! If both lists have a matching receive, an order number decides. Posted requests are linked in place.
//!
//! A long list of receives gets an index by source and tag (`index`), and so does a long list of messages
//! (`unexpected`). The matcher caches where the last search ended ([`LastMatch`], `UnexpectedStore`), so threads with
//! their own tags do not search through each other's entries.
//!
//! The lists of a peer are beside its endpoint (`peers`), in memory that reads as zero until the peer is first used.
//! All bits zero are therefore empty lists.
//!
//! **POSTED IN PLACE.** A request in a list is valid and does not move until it is matched or taken back: its poster
//! guarantees that. So all links of a list lead to valid requests. `end` names the link of the last request, or the
//! list itself. The lists do not move while the matcher is used.

#![allow(unsafe_code)]

mod index;
mod messages;
#[cfg(test)]
mod tests;

use crate::endpoint::Endpoint;
use crate::peers::{Peer, PeerLists, Peers};
use crate::request::{MessagePhase, ReceiveLink, Request, RequestId};
pub use crate::tag::{ANY_PEER, MatchCriteria};
use crate::tag::{key_context, tag_matches};
pub use crate::unexpected::EntryId;
use crate::unexpected::UnexpectedStore;
use index::Index;
use std::ptr;

/// Number of receives that a search compares before it builds an index of the list.
const POLLS_MAX: u32 = 8;
/// With this many peers or more, waits do not count posted receives.
const COUNTED_MAX: u32 = 256;

/// Place where the last message found its receive in an indexed list. The next search with this key and tag starts at
/// that place: no earlier receive matches, and later receives are posted behind it.
struct LastMatch {
    key: u64,
    tag: i32,
    list: u32,
    /// Link to the first receive that may match; null before the first search, or if the list is empty.
    link: *mut *mut Request,
}

/// The matching engine of one worker.
pub struct Matcher {
    /// First of `count` peers. The entry after the last peer has the receives from any source.
    peers: *mut Peer,
    count: u32,
    any_source_count: u32,
    order: u64,
    pub(crate) store: UnexpectedStore,
    /// Indexes of long lists.
    indexes: Vec<Index>,
    /// Positions in `indexes` of unused indexes.
    unused: Vec<u32>,
    again: LastMatch,
    polls_max: u32,
    posted_most: u64,
    #[cfg(test)]
    steps: usize,
}

impl Matcher {
    /// Creates an engine for messages of `peers`.
    ///
    /// # Safety
    /// The matcher is not used after `peers` has been dropped.
    pub(crate) unsafe fn new(peers: &Peers) -> Self {
        peers.first().expose_provenance();
        Matcher {
            peers: peers.first(),
            count: peers.count(),
            any_source_count: 0,
            order: 0,
            store: UnexpectedStore::default(),
            indexes: Vec::new(),
            unused: Vec::new(),
            again: LastMatch { key: 0, tag: 0, list: 0, link: ptr::null_mut() },
            polls_max: POLLS_MAX,
            posted_most: 0,
            #[cfg(test)]
            steps: 0,
        }
    }

    /// Returns whether `peer` has no unexpected message, and no posted receive could match its next message. If so, a
    /// receive may read the next arrival without searching the lists.
    #[inline]
    pub fn is_quiet(&self, peer: u32) -> bool {
        self.is_without_entries(self.lists(peer))
    }

    /// Returns whether the peer of an endpoint is quiet. See [`Matcher::is_quiet`].
    ///
    /// # Safety
    /// The endpoint belongs to the worker of this matcher.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Recv
    pub unsafe fn is_quiet_beside(&self, endpoint: *const Endpoint) -> bool {
        // SAFETY: every endpoint of a worker is in a `Peer`, to whose lists no reference is kept.
        self.is_without_entries(unsafe { &*Peer::lists_beside(endpoint) })
    }

    #[inline(always)] // see `is_quiet_beside`
    fn is_without_entries(&self, lists: &PeerLists) -> bool {
        lists.busy == 0 && self.any_source_count == 0
    }

    /// Returns whether no posted receive could match the next message of `peer`. If so, a receive may read the next
    /// arrival after it has found no unexpected message.
    #[inline]
    pub fn has_no_receive(&self, peer: u32) -> bool {
        self.lists(peer).posted.first.is_null() && self.any_source_count == 0
    }

    /// Returns whether `peer` has unexpected messages.
    #[inline]
    pub fn has_unexpected(&self, peer: u32) -> bool {
        !self.lists(peer).unexpected.is_empty()
    }

    /// Returns whether the peer of an endpoint has unexpected messages.
    ///
    /// # Safety
    /// See [`Matcher::is_quiet_beside`].
    #[inline(always)] // `fastpath bench instructions` counts MPI_Irecv
    pub unsafe fn has_unexpected_beside(&self, endpoint: *const Endpoint) -> bool {
        // SAFETY: every endpoint of a worker is in a `Peer`, to whose lists no reference is kept.
        unsafe { !(*Peer::lists_beside(endpoint)).unexpected.is_empty() }
    }

    #[inline]
    fn lists(&self, peer: u32) -> &PeerLists {
        // SAFETY: the lists of a peer are valid, and only `&mut self` methods change them.
        unsafe { &*self.at(peer) }
    }

    /// Returns the address of the lists of a peer; index `count` is for receives from any source.
    #[inline]
    fn at(&self, list: u32) -> *mut PeerLists {
        debug_assert!(list <= self.count);
        // SAFETY: the index is a rank of the job of this matcher: for receives it comes from groups, for messages from
        // polled lanes. `Peers` has one more entry, and outlives the matcher (`new`).
        unsafe { &raw mut (*self.peers.add(list as usize)).lists }
    }

    /// Returns whether a posted receive names `peer` or any source, and so may match a message of `peer`.
    pub fn wants_of(&self, peer: u32) -> bool {
        self.any_source_count != 0 || !self.lists(peer).posted.first.is_null()
    }

    pub(crate) fn posted_most(&self) -> u64 {
        self.posted_most
    }

    /// Updates the largest number of posted receives. Called during long waits, because posting and matching do not
    /// count receives. The number is that of list entries minus that of messages. It is a lower bound if a probe has
    /// taken messages out. With [`COUNTED_MAX`] peers or more, this function does nothing.
    pub(crate) fn count_posted(&mut self) {
        if self.count < COUNTED_MAX {
            let entries: u64 = (0..=self.count).map(|list| u64::from(self.lists(list).busy)).sum();
            let posted = entries.saturating_sub(self.store.usage().0);
            self.posted_most = self.posted_most.max(posted);
        }
    }

    /// Posts a receive with its `peer`, `key` and `tag`. The caller has searched the unexpected messages first.
    ///
    /// # Safety
    /// The request is valid, not posted, and does not move until it is matched or taken back.
    #[inline]
    pub unsafe fn post(&mut self, request: *mut Request) {
        // SAFETY: POSTED IN PLACE: the request is valid, and does not move while it is in a list.
        unsafe {
            (*request).phase = MessagePhase::Posted;
            if (*request).peer != ANY_PEER {
                return self.post_named(request);
            }
            // Named receives posted before this any-source receive have a smaller order. Named receives posted later
            // have at least this order.
            self.order += 1;
            self.any_source_count += 1;
            self.append(self.count, request);
        }
    }

    /// Posts a receive that names its source.
    ///
    /// # Safety
    /// See [`Matcher::post`]; the request is already in phase `Posted`.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Irecv
    pub unsafe fn post_named(&mut self, request: *mut Request) {
        // SAFETY: the request is valid and in no list, and names a peer, which has a list.
        unsafe { self.append((*request).peer, request) }
    }

    /// # Safety
    /// See [`Matcher::post`]; `list` is at most `count`.
    #[inline(always)] // see `post_named`
    unsafe fn append(&mut self, list: u32, request: *mut Request) {
        // SAFETY: POSTED IN PLACE: the request is valid, and so is the request or list whose link `end` names.
        unsafe {
            let lists = self.at(list);
            let end = (*lists).posted.end;
            (*request).next = ptr::null_mut();
            (*request).link = end;
            (*request).order = self.order;
            *end.place(lists) = request;
            (*lists).posted.end = ReceiveLink::behind(lists, request);
            (*lists).busy += 1;
        }
    }

    /// Takes back a posted receive.
    ///
    /// # Safety
    /// The request is posted in this matcher.
    #[inline]
    pub unsafe fn unpost(&mut self, request: *mut Request) {
        // SAFETY: POSTED IN PLACE: the request is in the list of its peer, and its links are valid.
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
    /// The request is posted in `list`.
    #[inline(always)] // see `Worker::drain_next`
    unsafe fn unlink(&mut self, list: u32, request: *mut Request) {
        // SAFETY: POSTED IN PLACE: the request and its neighbours in the list are valid.
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
            (*request).phase = MessagePhase::Begun;
        }
    }

    /// Returns the earliest receive posted to `peer` that matches; `None` if any-source receives are posted.
    #[inline(always)] // see `Worker::drain_next`
    pub fn find_named(&mut self, peer: u32, key: u64, tag: i32) -> Option<*mut Request> {
        let first = self.lists(peer).posted.first;
        if self.any_source_count != 0 {
            return None;
        }
        // SAFETY: POSTED IN PLACE: the first request of the list is valid.
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
            // SAFETY: POSTED IN PLACE: the link belongs to the list, so it leads to a valid request or null.
            let next = unsafe { (*again.link).as_ref() };
            if next.is_some_and(|next| next.key == key && tag_matches(next.tag, tag)) {
                // SAFETY: POSTED IN PLACE: the link belongs to the list, so it is valid.
                return Some(unsafe { *again.link });
            }
        }
        let found = self.find_in(peer, key, tag);
        if found.is_null() {
            return None;
        }
        if self.lists(peer).index != 0 {
            // SAFETY: POSTED IN PLACE: `found` is in the list, and so is valid.
            let link = unsafe { (*found).link.place(self.at(peer)) };
            self.again = LastMatch { key, tag, list: peer, link };
        }
        Some(found)
    }

    /// Removes a receive posted to `peer`.
    ///
    /// # Safety
    /// The request is posted to `peer`.
    #[inline(always)] // see `Worker::drain_next`
    pub unsafe fn unpost_named(&mut self, peer: u32, request: *mut Request) {
        // SAFETY: the request is posted to `peer`, by this function's contract, and so in that list.
        unsafe { self.unlink(peer, request) }
    }

    /// Removes and returns the earliest posted receive that a message satisfies.
    #[inline]
    pub fn match_arrival(&mut self, peer: u32, key: u64, tag: i32) -> Option<RequestId> {
        let found = self.find_posted(peer, key, tag)?;
        // SAFETY: POSTED IN PLACE: the request that was found is in a list, and so is valid.
        unsafe {
            self.unpost(found);
            Some((*found).id())
        }
    }

    /// Returns the earliest posted receive that a message satisfies, without removing it.
    #[inline]
    pub fn find_posted(&mut self, peer: u32, key: u64, tag: i32) -> Option<*mut Request> {
        // SAFETY: POSTED IN PLACE: both requests that were found are in a list, and so are valid.
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

    #[inline]
    fn find_in(&mut self, list: u32, key: u64, tag: i32) -> *mut Request {
        let lists = self.lists(list);
        if lists.index == 0 {
            let mut at = lists.posted.first;
            for _ in 0..self.polls_max {
                // SAFETY: POSTED IN PLACE: each link of the list leads to a valid request or null.
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

    #[cold]
    #[inline(never)]
    fn find_indexed(&mut self, list: u32, key: u64, tag: i32) -> *mut Request {
        let lists = self.at(list);
        // SAFETY: POSTED IN PLACE: all requests in the list and its index are valid.
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

    /// Removes a receive from its list's index, and releases the index if the list becomes empty.
    ///
    /// # Safety
    /// The receive is posted, in a list that has an index.
    #[cold]
    #[inline(never)]
    unsafe fn leave_index(&mut self, list: u32, request: *mut Request) {
        let lists = self.at(list);
        // SAFETY: POSTED IN PLACE: the receive is in the list, and if its `place` is not 0, also in the index.
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
