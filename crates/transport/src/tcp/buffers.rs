//! Buffers of a socket: received frames, and bytes to send.
#![allow(unsafe_code)]

use super::wire::{HEAD, PAYLOAD_MOST, TcpFrame};

const INBOX_LEAST: usize = 8 * 1024;
const INBOX_MOST: usize = 128 * 1024;
/// Number of bytes to read ahead after a message that was streamed.
const AHEAD_LEAST: usize = 4 * 1024;
const _: () = assert!(INBOX_MOST >= HEAD + PAYLOAD_MOST);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameHead {
    Whole(TcpFrame, *const u8),
    Partial,
    Garbage,
}

#[derive(Debug, Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    ahead: usize,
}

impl Inbox {
    fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    #[inline]
    pub fn head(&self) -> FrameHead {
        let filled = self.filled();
        let Some((head, payload)) = filled.split_first_chunk::<HEAD>() else {
            return FrameHead::Partial;
        };
        match TcpFrame::decode(head) {
            None => FrameHead::Garbage,
            Some(frame) if frame.total() > filled.len() => FrameHead::Partial,
            Some(frame) => FrameHead::Whole(frame, payload.as_ptr()),
        }
    }

    #[inline]
    pub fn peek(&self) -> Option<TcpFrame> {
        TcpFrame::decode(self.filled().first_chunk::<HEAD>()?)
    }

    /// Takes only the header of a frame; [`Inbox::drain`] takes its payload.
    pub fn take_head(&mut self) {
        // Read fewer bytes ahead. More streamed messages may follow, and bytes read ahead are copied once more.
        self.ahead = AHEAD_LEAST;
        self.start = (self.start + HEAD).min(self.end);
    }

    pub fn drain(&mut self, most: usize) -> &[u8] {
        let start = self.start;
        self.start = start + most.min(self.end - start);
        &self.bytes[start..self.start]
    }

    #[inline]
    pub fn take(&mut self, frame: &TcpFrame) {
        self.start = (self.start + frame.total()).min(self.end);
    }

    /// Buffer for the next read of an incomplete frame: its missing bytes, or `ahead` bytes if that is more.
    pub fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        let wanted = match self.filled().split_first_chunk::<HEAD>() {
            Some((head, _)) => TcpFrame::decode(head).map_or(HEAD, |frame| frame.total()),
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

    pub fn fill(&mut self, bytes: usize) {
        self.end = (self.end + bytes).min(self.bytes.len());
        // If the read filled its buffer, more bytes are probably waiting, so read more at a time.
        if bytes >= self.ahead {
            self.ahead = (2 * self.ahead).min(INBOX_MOST);
        }
        if self.end - self.start == self.bytes.len() && self.bytes.len() < INBOX_MOST {
            self.bytes.resize(2 * self.bytes.len(), 0);
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    start: usize,
}

impl Outbox {
    #[inline]
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    #[inline]
    pub fn push(&mut self, frame: &TcpFrame, pack: impl FnOnce(*mut u8)) {
        let (old, total) = (self.bytes.len(), frame.total());
        self.bytes.reserve(total);
        self.bytes.extend_from_slice(&frame.encode());
        // SAFETY: `reserve` has made room for the whole frame.
        let payload = unsafe { self.bytes.as_mut_ptr().add(self.bytes.len()) };
        pack(payload);
        // SAFETY: the header is there, and `pack` has written the payload.
        unsafe { self.bytes.set_len(old + total) };
    }

    pub fn push_bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Removes `bytes` bytes that the kernel has accepted.
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
    use fastpath_segment::RankPhase;

    fn receive(inbox: &mut Inbox, mut bytes: &[u8]) {
        while !bytes.is_empty() && matches!(inbox.head(), FrameHead::Partial) {
            let room = inbox.room();
            let part = room.len().min(bytes.len());
            assert!(part > 0, "no room for the frame at the head");
            room[..part].copy_from_slice(&bytes[..part]);
            inbox.fill(part);
            bytes = &bytes[part..];
        }
        assert!(bytes.is_empty() || !matches!(inbox.head(), FrameHead::Partial));
    }

    #[test]
    fn frames__come_out_as_they_went_in_however_they_are_cut() {
        for cut in [1, 7, 24, 25, 1000, 70_000] {
            let (mut inbox, mut outbox) = (Inbox::default(), Outbox::default());
            let lens = [0, 1, 48, 5000, PAYLOAD_MOST, 3];
            for (i, &len) in lens.iter().enumerate() {
                let frame = TcpFrame::Message(Header::new(i as u8, 0, 0), len);
                // SAFETY: `to` has room for the payload.
                outbox.push(&frame, |to| unsafe { to.write_bytes(i as u8, len) });
            }
            outbox.push(&TcpFrame::Phase(RankPhase::Silent), |_| ());
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
                    while let FrameHead::Whole(frame, at) = inbox.head() {
                        if let TcpFrame::Message(header, len) = frame {
                            // SAFETY: the frame was returned by `head` and not taken.
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
            let frame = TcpFrame::Message(Header::new(1, 2, 3), len);
            // SAFETY: `to` has room for the payload.
            good.push(&frame, |to| unsafe { to.write_bytes(9, len) });
        }
        good.push(&TcpFrame::Phase(RankPhase::Settled), |_| ());
        let (step, by, also) = (1, 1, true);
        let wireup = TcpFrame::Wireup(WireupHead { step, by, also }, 3);
        good.push_bytes(&[&wireup.encode()[..], &[9; 3]].concat());
        crate::mutate::run(&[good.rest()], |input| {
            let mut inbox = Inbox::default();
            for part in input.chunks(50) {
                receive(&mut inbox, part);
                while let FrameHead::Whole(frame, _) = inbox.head() {
                    inbox.take(&frame);
                }
                if inbox.head() == FrameHead::Garbage {
                    return;
                }
            }
        });
    }
}
