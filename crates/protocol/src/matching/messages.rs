//! The matcher's side of the unexpected queue: which list, and how much each peer has waiting.
#![allow(unsafe_code)]

use super::{ANY_PEER, Matcher, Want};
use crate::endpoint::Taken;
use crate::unexpected::{Body, Entry, EntryId, List};
use fastpath_base::copy::copy_small;

/// A message that the short way of a receive is not for: it does not lie in its entry, or is longer than the buffer.
pub(crate) struct TooLong;

/// Messages that nobody has asked for.
impl Matcher {
    /// Stores a message.
    pub(crate) fn add_unexpected(&mut self, peer: u32, key: u64, tag: i32, body: Body) -> EntryId {
        // SAFETY: the lists of a peer are valid, and this call has the matcher for itself.
        let lists = unsafe { &mut *self.at(peer) };
        lists.busy += 1;
        self.store.add(&mut lists.unexpected, peer, key, tag, body)
    }

    /// Stores a whole short message that nobody waits for, of which `fill` writes the `len` bytes.
    #[inline]
    pub(crate) fn add_unexpected_short(
        &mut self, message: (u32, u64, i32), len: usize, fill: impl FnOnce(*mut u8),
    ) {
        // SAFETY: as in `add_unexpected`.
        let lists = unsafe { &mut *self.at(message.0) };
        lists.busy += 1;
        self.store.add_short(&mut lists.unexpected, message, len, fill);
    }

    /// The earliest unexpected message that satisfies `want`, left where it is.
    pub fn find_unexpected(&mut self, want: &Want) -> Option<EntryId> {
        let list = match want.peer {
            ANY_PEER => List::default(),
            peer => self.lists(peer).unexpected,
        };
        self.store.find(list, want)
    }

    /// Takes the earliest unexpected message that satisfies `want`, which names its source, if it lies in its entry and
    /// has at most `room` bytes: they go `to` there. `None` where no message satisfies it.
    ///
    /// # Safety
    /// `to` is writable for `room` bytes.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Recv_unexpected
    pub(crate) unsafe fn take_short(
        &mut self, want: &Want, to: *mut u8, room: usize,
    ) -> Option<Result<Taken, TooLong>> {
        // SAFETY: as in `add_unexpected`; what is found is in use and in the list of its peer; the caller's for `to`.
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
            Some(Ok(Taken { tag, len }))
        }
    }

    /// The unexpected messages of a peer, oldest first.
    pub fn unexpected_of(&self, peer: u32) -> impl Iterator<Item = EntryId> {
        self.store.entries(self.lists(peer).unexpected)
    }

    /// An unexpected message that was found here.
    #[inline]
    pub fn unexpected(&self, id: EntryId) -> &Entry {
        self.store.get(id)
    }

    /// Takes an unexpected message out of matching. It stays stored until it is freed.
    #[inline]
    pub fn remove_unexpected(&mut self, id: EntryId) {
        // SAFETY: as in `add_unexpected`.
        let lists = unsafe { &mut *self.at(self.store.get(id).peer) };
        lists.busy -= 1;
        self.store.unlink(&mut lists.unexpected, id);
    }
}
