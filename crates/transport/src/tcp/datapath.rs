//! Posting, looking and taking; long messages go and come without a box between the user's memory and the kernel.
#![allow(unsafe_code)]

use super::buffers::Head;
use super::link::{Link, Stage};
use super::socket::Moved;
use super::wire::{BULK_MOST, Frame};
use crate::contract::{Header, Post};

impl Link {
    /// Sends a message that `pack` writes, if there is room.
    #[inline]
    pub fn post(&mut self, header: Header, len: usize, pack: impl FnOnce(*mut u8)) -> Post {
        let held = std::mem::take(&mut self.held);
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
        if !self.gather && !held {
            self.flush();
        }
        Post::Done
    }

    /// As [`Link::post`], of bytes that lie in a row and whose receiver has a place for them: the kernel takes them
    /// from where they are, by frames of up to [`BULK_MOST`] bytes. Returns how many bytes were sent. Until the frame
    /// is whole nothing else can be sent to this peer, and the next call must pass the same header.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes.
    pub unsafe fn post_bulk(
        &mut self, header: Header, data: *const u8, len: usize,
    ) -> (Post, usize) {
        if !self.takes_messages() {
            return (Post::PeerGone, 0);
        }
        let (head, most) = match self.open {
            Some((of, left)) if of == header => (None, left),
            Some(_) => return (Post::NoResource, 0),
            None => {
                let most = len.min(BULK_MOST);
                (Some(Frame::Bulk(header, most).encode()), most)
            }
        };
        let head = head.as_ref().map_or(&[][..], |head| head);
        // SAFETY: `data` is readable for `len` bytes, by this function's contract, and what a program sends it does not
        // change until the send is complete.
        let data = unsafe { std::slice::from_raw_parts(data, len.min(most)) };
        let Stage::Up(socket) = &self.stage else {
            return (Post::NoResource, 0);
        };
        let waiting = self.outbox.rest();
        let before = waiting.len();
        let moved = socket.write_all_of([waiting, head, data]);
        self.note_sent();
        let gone = match moved {
            Moved::Bytes(bytes) => bytes,
            Moved::Later => 0,
            // What the peer has sent before may still be read: that tells of its end.
            Moved::Ended(error) => {
                self.break_off(error);
                return (Post::Done, len);
            }
        };
        self.outbox.sent(gone.min(before));
        let gone = gone.saturating_sub(before);
        if gone == 0 {
            self.watch_room();
            return (Post::NoResource, 0);
        }
        self.outbox.push_bytes(head.get(gone..).unwrap_or_default());
        let taken = gone.saturating_sub(head.len());
        self.open = (taken < most).then_some((header, most - taken));
        if self.open.is_some() || self.watches_room {
            self.watch_room();
        }
        (Post::Done, taken)
    }

    /// Whether a message is to be taken as it comes ([`Link::stream`]), and no whole one lies before it.
    #[inline]
    pub fn awaits_bulk(&self) -> bool {
        self.bulk.is_some() || matches!(self.peek_partial(), Some(Frame::Bulk(..)))
    }

    fn peek_partial(&self) -> Option<Frame> {
        match self.inbox.head() {
            Head::Partial => self.inbox.peek(),
            _ => None,
        }
    }

    /// The message that [`Link::awaits_bulk`] tells of, and how many bytes of it are to come.
    pub fn find_bulk(&self) -> Option<(Header, usize)> {
        self.bulk.or(match self.peek_partial() {
            Some(Frame::Bulk(header, len)) => Some((header, len)),
            _ => None,
        })
    }

    /// Takes the next bytes of that message, at most as many as there is room for; how many.
    ///
    /// # Safety
    /// `to` is writable for `room` bytes.
    pub unsafe fn stream(&mut self, to: *mut u8, room: usize) -> usize {
        let Some((header, left)) = self.find_bulk() else {
            return 0;
        };
        if self.bulk.is_none() {
            self.inbox.take_head();
        }
        let most = left.min(room);
        let here = self.inbox.drain(most);
        let mut taken = here.len();
        // SAFETY: `to` is writable for `room` bytes, by this function's contract, and `taken` is at most that; the
        // inbox is memory of this link.
        unsafe { fastpath_base::copy::copy(to, here.as_ptr(), taken) };
        if taken < most
            && let Stage::Up(socket) = &self.stage
        {
            // SAFETY: as above, behind what was copied.
            match unsafe { socket.read_to(to.add(taken), most - taken) } {
                Moved::Bytes(bytes) => taken += bytes,
                Moved::Later => {}
                Moved::Ended(error) => self.end(error),
            }
        }
        self.bulk = (taken < left).then_some((header, left - taken));
        taken
    }

    /// Whether so many bytes would find room; what waits goes first, as far as the kernel takes it.
    #[inline]
    fn has_room(&mut self, total: usize) -> bool {
        if self.open.is_some() {
            return false;
        }
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
                Head::Whole(Frame::Message(header, len) | Frame::Bulk(header, len), at) => {
                    return Some((header, at, len));
                }
                _ if self.awaits_bulk() => return None,
                _ if std::mem::take(&mut self.rested) || !self.read() => return None,
                _ => {}
            }
        }
    }

    /// Takes what `look` showed.
    #[inline]
    pub fn take(&mut self) {
        if self.bulk.is_none()
            && let Head::Whole(frame, _) = self.inbox.head()
        {
            self.inbox.take(&frame);
        }
    }
}
