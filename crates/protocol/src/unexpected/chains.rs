//! The hash table of unexpected messages by source and tag. It holds the entries of those peers of which a receive has had
//! to look at many.

use super::{EntryId, List, NIL, Store};
use crate::matching::Want;
use crate::tag::mix;

/// Chains of the table at first.
const CHAINS_FIRST: usize = 64;

impl Store {
    /// Looks at a few entries one after the other, then chains them all.
    pub(super) fn find_unchained(&mut self, list: List, want: &Want) -> Option<EntryId> {
        let mut id = list.first;
        for _ in 0..self.looks_max {
            if id == NIL {
                return None;
            }
            let entry = self.slab.get(id);
            self.note_step();
            if want.accepts(entry.key, entry.tag) {
                return Some(id);
            }
            id = entry.next;
        }
        let mut id = list.first;
        while id != NIL {
            self.chain(id);
            id = self.slab.get(id).next;
        }
        self.find_chained(want)
    }

    pub(super) fn find_chained(&self, want: &Want) -> Option<EntryId> {
        let mut id = self.chains[chain_of(self.chains.len(), want.key, want.tag)].first;
        while id != NIL {
            let entry = self.slab.get(id);
            self.note_step();
            if entry.key == want.key && entry.tag == want.tag && entry.peer == want.peer {
                return Some(id);
            }
            id = entry.chain_next;
        }
        None
    }

    /// Appends an entry to its chain.
    #[cold]
    #[inline(never)]
    pub(super) fn chain(&mut self, id: EntryId) {
        if self.chained >= self.chains.len() {
            self.grow_table();
        }
        self.chained += 1;
        self.slab.get_mut(id).chained = true;
        self.append_to_chain(id);
    }

    fn append_to_chain(&mut self, id: EntryId) {
        let entry = self.slab.get(id);
        let chain = chain_of(self.chains.len(), entry.key, entry.tag);
        let chain = &mut self.chains[chain];
        self.slab
            .push(chain, id, |e| (&mut e.chain_next, &mut e.chain_prev));
    }

    /// Takes an entry out of its chain.
    #[cold]
    #[inline(never)]
    pub(super) fn unchain(&mut self, id: EntryId) {
        self.chained -= 1;
        let entry = self.slab.get_mut(id);
        entry.chained = false;
        let links = (entry.chain_next, entry.chain_prev);
        let chain = chain_of(self.chains.len(), entry.key, entry.tag);
        let chain = &mut self.chains[chain];
        self.slab
            .join(chain, links, |e| (&mut e.chain_next, &mut e.chain_prev));
    }

    /// Doubles the table. Its chains keep the order of arrival.
    #[cold]
    fn grow_table(&mut self) {
        let chains = (2 * self.chains.len()).max(CHAINS_FIRST);
        self.chains.clear();
        self.chains.resize(chains, List::default());
        let mut id = self.all.first;
        while id != NIL {
            let entry = self.slab.get(id);
            let (next, chained) = (entry.all_next, entry.chained);
            if chained {
                self.append_to_chain(id);
            }
            id = next;
        }
    }
}

/// Which of so many chains, a power of two, holds messages of a source and tag.
#[inline]
fn chain_of(chains: usize, key: u64, tag: i32) -> usize {
    mix(key, tag) & (chains - 1)
}
