//! What lies between the socket and its owner: frames that have come, and bytes that could not go yet.
#![allow(unsafe_code)]

use super::wire::{Frame, HEAD, PAYLOAD_MOST};

/// Bytes of an inbox at first.
const INBOX_LEAST: usize = 8 * 1024;
/// Bytes of an inbox at most; the longest frame fits.
const INBOX_MOST: usize = 128 * 1024;
/// Bytes that are read ahead after something that is taken as it comes.
const AHEAD_LEAST: usize = 4 * 1024;
const _: () = assert!(INBOX_MOST >= HEAD + PAYLOAD_MOST);

/// A frame at the head of an inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    /// It is whole; its payload begins at that byte.
    Whole(Frame, *const u8),
    /// More must come.
    Partial,
    /// It is no frame, and nothing that follows can be told.
    Garbage,
}

/// What has come and is not taken. A frame that was shown stays where it is until it is taken.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes that are read at once beyond those of the frame at the head.
    ahead: usize,
}

impl Inbox {
    fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The next frame.
    #[inline]
    pub fn head(&self) -> Head {
        let filled = self.filled();
        let Some((head, payload)) = filled.split_first_chunk::<HEAD>() else {
            return Head::Partial;
        };
        match Frame::decode(head) {
            None => Head::Garbage,
            Some(frame) if frame.total() > filled.len() => Head::Partial,
            Some(frame) => Head::Whole(frame, payload.as_ptr()),
        }
    }

    /// The frame at the head, whether it is whole or not.
    #[inline]
    pub fn peek(&self) -> Option<Frame> {
        Frame::decode(self.filled().first_chunk::<HEAD>()?)
    }

    /// Takes the head of a frame alone; its payload is taken by [`Inbox::drain`].
    pub fn take_head(&mut self) {
        // More of these may follow: what is read here of them is copied once more than need be.
        self.ahead = AHEAD_LEAST;
        self.start = (self.start + HEAD).min(self.end);
    }

    /// Takes up to so many bytes of a payload.
    pub fn drain(&mut self, most: usize) -> &[u8] {
        let start = self.start;
        self.start = start + most.min(self.end - start);
        &self.bytes[start..self.start]
    }

    /// Takes a frame that [`Inbox::head`] has shown.
    #[inline]
    pub fn take(&mut self, frame: &Frame) {
        self.start = (self.start + frame.total()).min(self.end);
    }

    /// Room for what comes next: all of the frame at the head, at least, and not much more than is expected. To be
    /// called where that is not whole.
    pub fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        let wanted = match self.filled().split_first_chunk::<HEAD>() {
            Some((head, _)) => Frame::decode(head).map_or(HEAD, |frame| frame.total()),
            None => HEAD,
        };
        let full = self.end == self.bytes.len();
        if self.start != 0 && (full || self.start + wanted > self.bytes.len()) {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if wanted > self.bytes.len() || self.bytes.is_empty() {
            let size = wanted.next_power_of_two();
            self.bytes.resize(size.clamp(INBOX_LEAST, INBOX_MOST), 0);
        }
        self.ahead = self.ahead.max(AHEAD_LEAST);
        let until = (self.start + wanted).max(self.end + self.ahead);
        let until = until.min(self.bytes.len());
        &mut self.bytes[self.end..until]
    }

    /// So many bytes have been written into the room.
    pub fn fill(&mut self, bytes: usize) {
        self.end = (self.end + bytes).min(self.bytes.len());
        // Where all of it was used at once there is more to come: fewer, longer reads.
        if bytes >= self.ahead {
            self.ahead = (2 * self.ahead).min(INBOX_MOST);
        }
        if self.end - self.start == self.bytes.len() && self.bytes.len() < INBOX_MOST {
            self.bytes.resize(2 * self.bytes.len(), 0);
        }
    }
}

/// What the kernel has not taken yet.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    start: usize,
}

impl Outbox {
    /// What is to go.
    #[inline]
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Whether nothing is.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    /// Adds a frame whose payload `pack` writes.
    #[inline]
    pub fn push(&mut self, frame: &Frame, pack: impl FnOnce(*mut u8)) {
        let (old, total) = (self.bytes.len(), frame.total());
        self.bytes.reserve(total);
        self.bytes.extend_from_slice(&frame.encode());
        // SAFETY: reserved just now.
        let payload = unsafe { self.bytes.as_mut_ptr().add(self.bytes.len()) };
        pack(payload);
        // SAFETY: the head is there, and `pack` has written the rest, as it promises.
        unsafe { self.bytes.set_len(old + total) };
    }

    /// Adds bytes as they are: what is said before the first frame, the rest of a frame.
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The kernel has taken so many bytes.
    #[inline]
    pub fn sent(&mut self, bytes: usize) {
        self.start = (self.start + bytes).min(self.bytes.len());
        if self.is_empty() {
            self.clear();
        } else if self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }

    /// Nothing of it will ever go.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.start = 0;
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::contract::Header;
    use crate::tcp::WireupHead;
    use fastpath_bootstrap::segment::Phase;

    fn receive(inbox: &mut Inbox, mut bytes: &[u8]) {
        while !bytes.is_empty() && matches!(inbox.head(), Head::Partial) {
            let room = inbox.room();
            let part = room.len().min(bytes.len());
            assert!(part > 0, "no room for the frame at the head");
            room[..part].copy_from_slice(&bytes[..part]);
            inbox.fill(part);
            bytes = &bytes[part..];
        }
        assert!(bytes.is_empty() || !matches!(inbox.head(), Head::Partial));
    }

    #[test]
    fn frames__come_out_as_they_went_in_however_they_are_cut() {
        for cut in [1, 7, 24, 25, 1000, 70_000] {
            let (mut inbox, mut outbox) = (Inbox::default(), Outbox::default());
            let lens = [0, 1, 48, 5000, PAYLOAD_MOST, 3];
            for (i, &len) in lens.iter().enumerate() {
                let frame = Frame::Message(Header::new(i as u8, 0, 0), len);
                // SAFETY: room for the payload.
                outbox.push(&frame, |to| unsafe { to.write_bytes(i as u8, len) });
            }
            outbox.push(&Frame::Phase(Phase::Silent), |_| ());
            let mut seen = Vec::new();
            while !outbox.is_empty() {
                let part = outbox.rest().len().min(cut);
                let mut bytes = &outbox.rest()[..part];
                while !bytes.is_empty() {
                    let room = inbox.room();
                    let fits = room.len().min(bytes.len());
                    room[..fits].copy_from_slice(&bytes[..fits]);
                    inbox.fill(fits);
                    bytes = &bytes[fits..];
                    while let Head::Whole(frame, at) = inbox.head() {
                        if let Frame::Message(header, len) = frame {
                            // SAFETY: shown, and not taken.
                            let data = unsafe { std::slice::from_raw_parts(at, len) };
                            assert!(data.iter().all(|&byte| byte == header.id));
                            seen.push(len);
                        }
                        inbox.take(&frame);
                    }
                }
                outbox.sent(part);
            }
            assert_eq!(seen, lens);
        }
    }

    #[test]
    fn fuzz__stream_is_understood_or_refused() {
        let mut good = Outbox::default();
        for len in [0, 3, 48] {
            let frame = Frame::Message(Header::new(1, 2, 3), len);
            // SAFETY: room for the payload.
            good.push(&frame, |to| unsafe { to.write_bytes(9, len) });
        }
        good.push(&Frame::Phase(Phase::Settled), |_| ());
        let (step, by, also) = (1, 1, true);
        let wireup = Frame::Wireup(WireupHead { step, by, also }, 3);
        good.push_bytes(&[&wireup.encode()[..], &[9; 3]].concat());
        crate::mutate::run(&[good.rest()], |input| {
            let mut inbox = Inbox::default();
            for part in input.chunks(50) {
                receive(&mut inbox, part);
                while let Head::Whole(frame, _) = inbox.head() {
                    inbox.take(&frame);
                }
                if inbox.head() == Head::Garbage {
                    return;
                }
            }
        });
    }
}
