//! Posting, looking and taking.
#![allow(unsafe_code)]

use super::buffers::Head;
use super::link::Link;
use super::wire::Frame;
use crate::contract::{Header, Post};

impl Link {
    /// Sends a message that `pack` writes, if there is room.
    #[inline]
    pub fn post(&mut self, header: Header, len: usize, pack: impl FnOnce(*mut u8)) -> Post {
        if !self.takes_messages() {
            return Post::PeerGone;
        }
        if !self.is_up() {
            return Post::NoResource;
        }
        let frame = Frame::Message(header, len);
        if !self.has_room(frame.total()) {
            return Post::NoResource;
        }
        self.outbox.push(&frame, pack);
        if !self.gather {
            self.flush();
        }
        Post::Done
    }

    /// Whether so many bytes would find room; what waits goes first, as far as the kernel takes it.
    #[inline]
    fn has_room(&mut self, total: usize) -> bool {
        let fits = |waiting: usize| waiting == 0 || waiting + total <= self.limit;
        let waiting = self.outbox.rest().len();
        if fits(waiting) {
            return true;
        }
        if !self.gather {
            self.flush();
        }
        let waiting = self.outbox.rest().len();
        waiting == 0 || waiting + total <= self.limit
    }

    /// Whether so many messages of so many bytes would find room now.
    pub fn has_room_for(&mut self, messages: u32, bytes: usize) -> bool {
        let total = Frame::Message(Header::default(), bytes).total();
        self.is_up() && self.has_room(total * messages as usize)
    }

    /// The next message: header, first byte and length. It stays where it is until it is taken.
    #[inline]
    pub fn look(&mut self) -> Option<(Header, *const u8, usize)> {
        loop {
            match self.advance() {
                Head::Whole(Frame::Message(header, len), at) => return Some((header, at, len)),
                _ if std::mem::take(&mut self.rested) || !self.read() => return None,
                _ => {}
            }
        }
    }

    /// Takes what `look` showed.
    #[inline]
    pub fn take(&mut self) {
        if let Head::Whole(frame, _) = self.inbox.head() {
            self.inbox.take(&frame);
        }
    }
}
