//! Unexpected messages of the matcher: lists by peer.
//!
//! **OWN LISTS.** The lists of a peer are valid, and a method with `&mut self` has exclusive access to them.
#![allow(unsafe_code)]

use super::{ANY_PEER, MatchCriteria, Matcher};
use crate::endpoint::ImmediateReceive;
use crate::unexpected::{Body, EntryId, MessageList, UnexpectedEntry};
use fastpath_base::copy::copy_small;

/// Error for a message that the fast path does not take: it is stored outside its entry, or is longer than the buffer.
pub(crate) struct TooLong;

impl Matcher {
    pub(crate) fn add_unexpected(&mut self, peer: u32, key: u64, tag: i32, body: Body) -> EntryId {
        // SAFETY: OWN LISTS: the lists are valid, and this method has exclusive access to them.
        let lists = unsafe { &mut *self.at(peer) };
        lists.busy += 1;
        self.store.add(&mut lists.unexpected, peer, key, tag, body)
    }

    #[inline]
    pub(crate) fn add_unexpected_short(
        &mut self, message: (u32, u64, i32), len: usize, fill: impl FnOnce(*mut u8),
    ) {
        // SAFETY: OWN LISTS: the lists are valid, and this method has exclusive access to them.
        let lists = unsafe { &mut *self.at(message.0) };
        lists.busy += 1;
        self.store.add_short(&mut lists.unexpected, message, len, fill);
    }

    /// Returns the earliest unexpected message that satisfies `want`, without removing it.
    pub fn find_unexpected(&mut self, want: &MatchCriteria) -> Option<EntryId> {
        let list = match want.peer {
            ANY_PEER => MessageList::default(),
            peer => self.lists(peer).unexpected,
        };
        self.store.find(list, want)
    }

    /// Takes the earliest unexpected message that satisfies `want`, which names its source, and copies it to `to`. The
    /// message must be stored inside its entry, with at most `room` bytes. `None` if no message satisfies `want`.
    ///
    /// # Safety
    /// `to` is writable for `room` bytes.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Recv_unexpected
    pub(crate) unsafe fn take_short(
        &mut self, want: &MatchCriteria, to: *mut u8, room: usize,
    ) -> Option<Result<ImmediateReceive, TooLong>> {
        // SAFETY: OWN LISTS: the lists are valid and exclusive. `to` has `room` bytes, by this function's contract.
        unsafe {
            let lists = &mut *self.at(want.peer);
            let entry = self.store.find_at(lists.unexpected, want)?;
            let tag = (*entry).tag;
            let (from, len) = match (*entry).short() {
                Some(short) if short.1 <= room => short,
                _ => return Some(Err(TooLong)),
            };
            copy_small(to, from, len);
            lists.busy -= 1;
            self.store.take_at(&mut lists.unexpected, entry);
            Some(Ok(ImmediateReceive { tag, len }))
        }
    }

    /// Returns the unexpected messages of a peer, oldest first.
    pub fn unexpected_of(&self, peer: u32) -> impl Iterator<Item = EntryId> {
        self.store.entries(self.lists(peer).unexpected)
    }

    /// Returns the entry of an unexpected message.
    #[inline]
    pub fn unexpected(&self, id: EntryId) -> &UnexpectedEntry {
        self.store.get(id)
    }

    /// Removes an unexpected message from matching. The message stays stored until it is freed.
    #[inline]
    pub fn remove_unexpected(&mut self, id: EntryId) {
        // SAFETY: OWN LISTS: the lists are valid, and this method has exclusive access to them.
        let lists = unsafe { &mut *self.at(self.store.get(id).peer) };
        lists.busy -= 1;
        self.store.unlink(&mut lists.unexpected, id);
    }
}
