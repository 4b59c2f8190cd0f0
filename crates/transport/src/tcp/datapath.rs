//! Post, look and take operations. Long messages are copied directly between user memory and the kernel.
#![allow(unsafe_code)]

use super::buffers::FrameHead;
use super::link::{Stage, TcpLink};
use super::socket::IoOutcome;
use super::wire::{BULK_MOST, TcpFrame};
use crate::contract::{Header, Post};

impl TcpLink {
    #[inline]
    pub fn post(&mut self, header: Header, len: usize, pack: impl FnOnce(*mut u8)) -> Post {
        let held = std::mem::take(&mut self.held);
        if !self.takes_messages() {
            return Post::PeerGone;
        }
        if !self.is_up() {
            return Post::NoResource;
        }
        let frame = TcpFrame::Message(header, len);
        if !self.has_room(frame.total()) {
            return Post::NoResource;
        }
        self.outbox.push(&frame, pack);
        if !self.gather && !held {
            self.flush();
        }
        Post::Done
    }

    /// Sends contiguous bytes for which the receiver has a buffer, directly from user memory, in frames of up to
    /// [`BULK_MOST`] bytes. Returns the number of bytes sent. Until the frame is complete, nothing else can be sent to
    /// this peer, and the next call must pass the same header.
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
                (Some(TcpFrame::Bulk(header, most).encode()), most)
            }
        };
        let head = head.as_ref().map_or(&[][..], |head| head);
        // SAFETY: `data` is readable for `len` bytes, by this function's contract. A program does not change a send
        // buffer until the send is complete.
        let data = unsafe { std::slice::from_raw_parts(data, len.min(most)) };
        let Stage::Up(socket) = &self.stage else {
            return (Post::NoResource, 0);
        };
        let waiting = self.outbox.rest();
        let before = waiting.len();
        let moved = socket.write_all_of([waiting, head, data]);
        self.note_sent();
        let gone = match moved {
            IoOutcome::Bytes(bytes) => bytes,
            IoOutcome::Later => 0,
            // Do not report the end now: the peer's last messages may still be unread, and a later read reports it.
            IoOutcome::Ended(error) => {
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

    #[inline]
    pub fn awaits_bulk(&self) -> bool {
        self.bulk.is_some() || matches!(self.peek_partial(), Some(TcpFrame::Bulk(..)))
    }

    fn peek_partial(&self) -> Option<TcpFrame> {
        match self.inbox.head() {
            FrameHead::Partial => self.inbox.peek(),
            _ => None,
        }
    }

    pub fn find_bulk(&self) -> Option<(Header, usize)> {
        self.bulk.or(match self.peek_partial() {
            Some(TcpFrame::Bulk(header, len)) => Some((header, len)),
            _ => None,
        })
    }

    /// Takes the next bytes of a bulk message, at most `room`; returns their number.
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
        // SAFETY: `to` is writable for `room` bytes, by this function's contract, and `taken` is at most that. The
        // inbox is this link's memory.
        unsafe { fastpath_base::copy::copy(to, here.as_ptr(), taken) };
        if taken < most
            && let Stage::Up(socket) = &self.stage
        {
            // SAFETY: `most` is at most `room`, so `to` is writable for `most - taken` bytes behind the copied ones.
            match unsafe { socket.read_to(to.add(taken), most - taken) } {
                IoOutcome::Bytes(bytes) => taken += bytes,
                IoOutcome::Later => {}
                IoOutcome::Ended(error) => self.end(error),
            }
        }
        self.bulk = (taken < left).then_some((header, left - taken));
        taken
    }

    /// Whether there is room for `total` bytes. First sends waiting bytes, if the kernel accepts them.
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

    pub fn has_room_for(&mut self, messages: u32, bytes: usize) -> bool {
        let total = TcpFrame::Message(Header::default(), bytes).total();
        self.is_up() && self.has_room(total * messages as usize)
    }

    #[inline]
    pub fn look(&mut self) -> Option<(Header, *const u8, usize)> {
        loop {
            match self.advance() {
                FrameHead::Whole(
                    TcpFrame::Message(header, len) | TcpFrame::Bulk(header, len),
                    at,
                ) => {
                    return Some((header, at, len));
                }
                _ if self.awaits_bulk() => return None,
                _ if std::mem::take(&mut self.rested) || !self.read() => return None,
                _ => {}
            }
        }
    }

    #[inline]
    pub fn take(&mut self) {
        if self.bulk.is_none()
            && let FrameHead::Whole(frame, _) = self.inbox.head()
        {
            self.inbox.take(&frame);
        }
    }
}
