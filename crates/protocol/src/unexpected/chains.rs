//! Indexes of the unexpected queue: hash tables whose chains keep the order of arrival.
//!
//! Each form of a receive has its own index: with or without a named source, with or without a named tag. An index is
//! built when a receive of its form has compared many entries without a match, and used until the queue is empty.

use super::{EntryId, MessageList, NIL, Slab, UnexpectedStore};
use crate::tag::{ANY_PEER, ANY_TAG, MatchCriteria, key_context, mix};

const CHAINS_FIRST: usize = 64;
/// Bits of a receive's form: set if the source or the tag is a wildcard.
const ANY_SOURCE_FORM: usize = 1;
const ANY_TAG_FORM: usize = 2;
pub(super) const FORMS: usize = 4;

#[derive(Default)]
pub(super) struct Index {
    /// The chains of the table. Their number is a power of two. Empty while the index is not in use.
    chains: Vec<MessageList>,
    /// Next and previous entry of each entry in its chain, by id.
    links: Vec<(EntryId, EntryId)>,
    count: usize,
}

#[inline]
pub(super) fn form_of(want: &MatchCriteria) -> usize {
    let any_source = (want.peer == ANY_PEER) as usize * ANY_SOURCE_FORM;
    any_source | ((want.tag == ANY_TAG) as usize * ANY_TAG_FORM)
}

/// Returns key and tag of a form's receives that match a message. `None` if no receive of that form matches it.
#[inline]
fn name_in(form: usize, key: u64, tag: i32) -> Option<(u64, i32)> {
    let key = match form & ANY_SOURCE_FORM {
        0 => key,
        _ => key_context(key),
    };
    match form & ANY_TAG_FORM {
        0 => Some((key, tag)),
        _ if tag < 0 => None,
        _ => Some((key, ANY_TAG)),
    }
}

impl Index {
    #[inline]
    fn chain_of(&self, (key, tag): (u64, i32)) -> usize {
        mix(key, tag) & (self.chains.len() - 1)
    }

    fn reset(&mut self, entries: usize) {
        let chains = entries.next_power_of_two().max(CHAINS_FIRST);
        self.chains.clear();
        self.chains.resize(chains, MessageList::default());
        self.count = 0;
    }

    fn append(&mut self, id: EntryId, name: (u64, i32)) {
        if self.links.len() <= id as usize {
            self.links.resize(id as usize + 1, (NIL, NIL));
        }
        let chain = self.chain_of(name);
        let last = std::mem::replace(&mut self.chains[chain].last, id);
        self.links[id as usize] = (NIL, last);
        match last {
            NIL => self.chains[chain].first = id,
            _ => self.links[last as usize].0 = id,
        }
        self.count += 1;
    }

    fn remove(&mut self, id: EntryId, name: (u64, i32)) {
        let chain = self.chain_of(name);
        let (next, prev) = self.links[id as usize];
        match prev {
            NIL => self.chains[chain].first = next,
            _ => self.links[prev as usize].0 = next,
        }
        match next {
            NIL => self.chains[chain].last = prev,
            _ => self.links[next as usize].1 = prev,
        }
        self.count -= 1;
    }
}

impl UnexpectedStore {
    /// Returns the earliest match after the first entry, or `NIL`. Has no calls that need saved registers.
    #[inline(never)]
    pub(super) fn find_further(&mut self, list: MessageList, want: &MatchCriteria) -> EntryId {
        let form = form_of(want);
        match self.indexed & 1 << form {
            0 => self.find_unindexed(list, want),
            _ => self.find_indexed(form, want),
        }
    }

    #[inline(always)] // `fastpath bench instructions` counts MPI_Recv_among_unexpected
    fn find_indexed(&self, form: usize, want: &MatchCriteria) -> EntryId {
        let index = &self.indexes[form];
        // Any-source keys have no source part. A wildcard-tag index has no message with an internal tag.
        let compared = match form & ANY_SOURCE_FORM {
            0 => u64::MAX,
            _ => key_context(u64::MAX),
        };
        let mut id = index.chains[index.chain_of((want.key, want.tag))].first;
        while id != NIL {
            let entry = self.slab.get(id);
            self.note_step();
            let tag_matches = entry.tag == want.tag || want.tag == ANY_TAG;
            if entry.key & compared == want.key && tag_matches {
                break;
            }
            id = index.links[id as usize].0;
        }
        id
    }

    #[cold]
    #[inline(never)]
    fn find_unindexed(&mut self, list: MessageList, want: &MatchCriteria) -> EntryId {
        let mut id = list.first;
        for _ in 0..self.polls_max {
            if id == NIL {
                return id;
            }
            let entry = self.slab.get(id);
            self.note_step();
            if want.accepts(entry.key, entry.tag) {
                return id;
            }
            id = match want.peer {
                ANY_PEER => entry.all_next,
                _ => entry.next,
            };
        }
        let form = form_of(want);
        self.indexed |= 1 << form;
        self.build_index(form);
        self.find_indexed(form, want)
    }

    #[cold]
    fn build_index(&mut self, form: usize) {
        let index = &mut self.indexes[form];
        index.reset(2 * self.count as usize);
        let mut id = self.all.first;
        while id != NIL {
            let entry = self.slab.get(id);
            if let Some(name) = name_in(form, entry.key, entry.tag) {
                index.append(id, name);
            }
            id = entry.all_next;
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn enter_indexes(&mut self, id: EntryId) {
        for form in 0..FORMS {
            if self.indexed & 1 << form == 0 {
                continue;
            }
            let index = &mut self.indexes[form];
            if index.count >= index.chains.len() {
                self.build_index(form);
                continue;
            }
            if let Some(name) = name_of(&self.slab, form, id) {
                index.append(id, name);
            }
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn leave_indexes(&mut self, id: EntryId) {
        if self.all.first == self.all.last {
            self.indexed = 0;
            return;
        }
        for form in 0..FORMS {
            if self.indexed & 1 << form != 0
                && let Some(name) = name_of(&self.slab, form, id)
            {
                self.indexes[form].remove(id, name);
            }
        }
    }
}

fn name_of(slab: &Slab, form: usize, id: EntryId) -> Option<(u64, i32)> {
    let entry = slab.get(id);
    name_in(form, entry.key, entry.tag)
}
