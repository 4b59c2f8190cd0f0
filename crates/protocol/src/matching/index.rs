//! Index of a long list of posted receives: chains by source and tag, in the order of posting.
//!
//! Posting does not update the index. A search adds the receives posted since the last search. Each receive is thus
//! added at most once. If messages find their receives near the start of the list, no receive is added. Receives with
//! the wildcard tag have their own chains. If both chains have a matching receive, a place number decides.
//!
//! **IN THE LIST.** The receives in the chains, and those from `rest` on, are posted in the list of this index. They
//! are therefore valid and do not move (POSTED IN PLACE, in `matching`). A receive leaves the index before the list.
#![allow(unsafe_code)]

use crate::peers::PeerLists;
use crate::request::Request;
use crate::tag::{ANY_TAG, mix};
use std::ptr;

const CHAINS_FIRST: usize = 32;

#[derive(Clone, Copy)]
struct Chain {
    first: *mut Request,
    last: *mut Request,
}

impl Chain {
    const EMPTY: Chain = Chain { first: ptr::null_mut(), last: ptr::null_mut() };
}

pub(super) struct Index {
    chains: Vec<Chain>,
    count: usize,
    any_tags: usize,
    /// Place number of the next receive; 0 is none.
    place: u64,
    /// Link to the first receive of the list that is not in the index yet.
    rest: *mut *mut Request,
}

impl Default for Index {
    fn default() -> Self {
        Index { chains: Vec::new(), count: 0, any_tags: 0, place: 1, rest: ptr::null_mut() }
    }
}

impl Index {
    /// Starts the index of a list; `first` is the list's link to its first receive.
    pub fn begin(&mut self, first: *mut *mut Request) {
        debug_assert!(self.count == 0 && self.any_tags == 0);
        (self.place, self.rest) = (1, first);
    }

    /// Adds the receives posted since the last call; `first` is the first receive of the indexed list.
    ///
    /// # Safety
    /// The receives of the list are valid.
    pub unsafe fn complete(&mut self, first: *mut Request) {
        // SAFETY: IN THE LIST: `first` and all receives behind it are valid, and `rest` names a link among them.
        unsafe {
            while !(*self.rest).is_null() {
                if self.count >= self.chains.len() {
                    self.grow(first);
                }
                let request = *self.rest;
                self.append(request);
                (*request).place = self.place;
                self.place += 1;
                self.count += 1;
                self.any_tags += ((*request).tag == ANY_TAG) as usize;
                self.rest = &raw mut (*request).next;
            }
        }
    }

    /// # Safety
    /// The receive is valid and in no chain.
    unsafe fn append(&mut self, request: *mut Request) {
        // SAFETY: IN THE LIST: this receive and the last receive of its chain are valid.
        unsafe {
            let chain = self.chain((*request).key, (*request).tag);
            let last = chain.last;
            (*request).chain_next = ptr::null_mut();
            (*request).chain_prev = last;
            match last.is_null() {
                true => chain.first = request,
                false => (*last).chain_next = request,
            }
            chain.last = request;
        }
    }

    /// Removes a receive that is still in `list`.
    ///
    /// # Safety
    /// The receive is in this index, and this is the index of `list`.
    pub unsafe fn remove(&mut self, list: *mut PeerLists, request: *mut Request) {
        // SAFETY: IN THE LIST: this receive and its neighbours in the chain are posted in the list, and so are valid.
        unsafe {
            (*request).place = 0;
            if self.rest == &raw mut (*request).next {
                self.rest = (*request).link.place(list);
            }
            self.count -= 1;
            self.any_tags -= ((*request).tag == ANY_TAG) as usize;
            let (next, prev) = ((*request).chain_next, (*request).chain_prev);
            let chain = self.chain((*request).key, (*request).tag);
            match prev.is_null() {
                true => chain.first = next,
                false => (*prev).chain_next = next,
            }
            match next.is_null() {
                true => chain.last = prev,
                false => (*next).chain_prev = prev,
            }
        }
    }

    /// Returns the first receive that matches `key` and `tag`, or null, and the number of comparisons.
    ///
    /// # Safety
    /// The receives in the index are valid.
    pub unsafe fn find(&mut self, key: u64, tag: i32) -> (*mut Request, usize) {
        let mut steps = 0;
        // SAFETY: IN THE LIST: the receives in the chains are posted in the list, and so are valid.
        unsafe {
            let named = self.find_exactly(key, tag, &mut steps);
            if self.any_tags == 0 || tag < 0 {
                return (named, steps);
            }
            let any = self.find_exactly(key, ANY_TAG, &mut steps);
            let any_is_first = !any.is_null() && (named.is_null() || (*any).place < (*named).place);
            (if any_is_first { any } else { named }, steps)
        }
    }

    /// # Safety
    /// See [`Index::find`].
    unsafe fn find_exactly(&mut self, key: u64, tag: i32, steps: &mut usize) -> *mut Request {
        if self.count == 0 {
            return ptr::null_mut();
        }
        let mut at = self.chain(key, tag).first;
        // SAFETY: IN THE LIST: a chain leads from one valid receive to the next, and ends with null.
        while let Some(request) = unsafe { at.as_ref() } {
            *steps += 1;
            if request.key == key && request.tag == tag {
                break;
            }
            at = request.chain_next;
        }
        at
    }

    #[inline]
    fn chain(&mut self, key: u64, tag: i32) -> &mut Chain {
        let mask = self.chains.len() - 1;
        &mut self.chains[mix(key, tag) & mask]
    }

    /// Doubles the table. The chains keep the order of posting.
    ///
    /// # Safety
    /// See [`Index::complete`].
    #[cold]
    unsafe fn grow(&mut self, first: *mut Request) {
        let chains = (2 * self.chains.len()).max(CHAINS_FIRST);
        self.chains.clear();
        self.chains.resize(chains, Chain::EMPTY);
        // SAFETY: IN THE LIST: `first` and all receives behind it are valid, up to the link that `rest` names.
        unsafe {
            let (mut at, end) = (first, *self.rest);
            while at != end {
                self.append(at);
                at = (*at).next;
            }
        }
    }
}
