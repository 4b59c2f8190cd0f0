//! Sending: splits messages into packets, posts packets, and handles completions.
#![allow(unsafe_code)]

use super::super::send_buffers::BufferSlot;
use super::core::Core;
use super::link::UdLink;
use super::pool::Packet;
use super::wire::*;
use crate::contract::{Header, Post};
use crate::verbs::post::failure;
use crate::verbs::{PostError, PostedSend, SendFlags, SendOperation, Sge, Wc};

pub(super) const POLL: usize = 16;
const RESERVE: u32 = 8;

impl Core {
    #[inline]
    pub fn reserve(&mut self, index: usize, len: usize) -> Result<(BufferSlot, *mut u8), Post> {
        let link = self.link(index);
        let post = link.stage.admit(true);
        if post != Post::Done {
            return Err(post);
        }
        let (chunk, count) = (link.chunk, packets(len, link.chunk));
        if link.sender.room() < count || !self.has_queue_room(count) {
            return Err(Post::NoResource);
        }
        let slot = self.take_slot(HEADER + len > chunk, count);
        let slot = slot.ok_or(Post::NoResource)?;
        Ok((slot, self.pool.stream(slot).wrapping_add(HEADER)))
    }

    #[inline]
    pub fn send_packed(
        &mut self, index: usize, header: Header, len: usize, slot: BufferSlot,
    ) -> Post {
        let stream = self.pool.stream(slot);
        // SAFETY: the slot has room for header and payload, and belongs to this message alone.
        unsafe { stream.cast::<[u8; HEADER]>().write_unaligned(encode_header(header)) };
        let chunk = self.link(index).chunk;
        match self.send_stream(index, slot, HEADER + len, chunk) {
            true => Post::Done,
            false => Post::PeerGone,
        }
    }

    #[inline]
    fn send_stream(&mut self, index: usize, slot: BufferSlot, total: usize, chunk: usize) -> bool {
        let now = self.port.now();
        let mut offset = 0;
        let mut part = 0;
        while offset < total {
            let bytes = chunk.min(total - offset);
            let kind = match (part, bytes == total) {
                (0, true) => DatagramKind::Whole,
                (0, false) => DatagramKind::First,
                _ => DatagramKind::More,
            };
            let packet = Packet { slot, part, offset: offset as u32, bytes: bytes as u32 };
            let total = if kind == DatagramKind::First { total } else { 0 };
            if !self.send_new(index, &packet, kind, total as u32, now) {
                return false;
            }
            offset += bytes;
            part += 1;
        }
        true
    }

    #[inline]
    pub fn send_new(
        &mut self, index: usize, packet: &Packet, kind: DatagramKind, total: u32, now: u64,
    ) -> bool {
        let Some(link) = self.links.get_mut(index) else {
            return false;
        };
        let Some(head) = prepare(link, kind, total, Some((packet, now))) else {
            return false;
        };
        self.pool.write_head(packet, &head);
        self.counters.sent += 1;
        self.stir(index);
        self.post_packet(index, packet)
    }

    #[inline]
    pub fn post_packet(&mut self, index: usize, packet: &Packet) -> bool {
        let (segments, count) = self.pool.segments(packet);
        self.pool.note_post(packet.slot, self.sends.posted);
        // SAFETY: the slot is not changed until the send is known to be complete.
        unsafe { self.post(index, &segments[..count]) }
    }

    pub fn send_ack(&mut self, index: usize) -> bool {
        if self.sends.room() == 0 && !self.make_queue_room(1) {
            return false;
        }
        let inline = self.pair.granted_inline() as usize >= HEAD;
        let slot = match inline {
            true => None,
            false => match self.take_slot(false, 1) {
                None => return false,
                slot => slot,
            },
        };
        let Some(link) = self.links.get_mut(index) else {
            return false;
        };
        let Some(head) = prepare(link, DatagramKind::Ack, 0, None) else {
            return false;
        };
        self.counters.acks += 1;
        let Some(slot) = slot else {
            // SAFETY: the call copies inline data, and `head` is readable now.
            return unsafe { self.post(index, &[Sge::over(head.as_ptr(), HEAD, 0)]) };
        };
        let packet = Packet::alone(slot, 0);
        self.pool.write_head(&packet, &head);
        // No acknowledgement follows, so the slot is free when the send completes.
        let head_only = self.pool.segments(&packet).0[0];
        self.pool.note_post(slot, self.sends.posted);
        // SAFETY: the slot is not changed until the send is known to be complete.
        let posted = unsafe { self.post(index, &[head_only]) };
        self.pool.release(slot, self.sends.done);
        posted
    }

    /// Posts one datagram to the peer, signaled only if a signal is due. The send queue must have room.
    ///
    /// # Safety
    /// See [`crate::verbs::QueuePair::post_patched`].
    #[inline]
    pub unsafe fn post(&mut self, index: usize, segments: &[Sge]) -> bool {
        let flags = self.next_flags();
        let Some(far) = self.links.get(index).and_then(|link| link.far.as_ref()) else {
            return false;
        };
        let operation = SendOperation::Datagram {
            ah: &far.handle,
            qpn: far.qpn,
            qkey: far.qkey,
            immediate: None,
        };
        let (id, request) = (self.sends.posted as u64, &mut self.request);
        // SAFETY: the segments meet the contract of `post_patched`, by this function's own contract.
        let outcome = unsafe { self.pair.post_patched(request, id, &operation, segments, flags) };
        self.note_posted(flags, outcome)
    }

    #[inline]
    pub fn next_flags(&self) -> SendFlags {
        SendFlags {
            signaled: self.sends.owes_signal() || self.pool.buffers.is_low(),
            ..SendFlags::default()
        }
    }

    #[inline]
    pub fn note_posted(
        &mut self, flags: SendFlags, outcome: Result<PostedSend, PostError>,
    ) -> bool {
        match outcome {
            Ok(posted) => {
                self.sends.add(flags.signaled);
                self.counters.inline += posted.inline as u64;
                if flags.signaled && self.sends.expected > 1 {
                    self.poll_sends(); // a rank that only sends and tests polls nowhere else
                }
                true
            }
            Err(error) => self.post_error_slow(error),
        }
    }

    #[inline]
    pub fn has_queue_room(&mut self, count: u32) -> bool {
        let wanted = count.saturating_add(RESERVE);
        self.sends.room() >= wanted || self.make_queue_room(wanted)
    }

    #[inline]
    pub fn take_slot(&mut self, large: bool, packets: u32) -> Option<BufferSlot> {
        let taken = self.pool.take(large, packets);
        taken.or_else(|| self.take_slot_slow(large, packets))
    }

    #[inline]
    pub fn has_slots(&mut self, large: bool, messages: u32) -> bool {
        while self.pool.buffers.available(large) < messages {
            if !self.make_slots_slow(large) {
                return false;
            }
        }
        true
    }

    pub fn poll_sends(&mut self) -> bool {
        let mut batch = [Wc::default(); POLL];
        self.counters.send_polls += 1;
        let count = match self.send_cq.poll(&mut batch) {
            Ok(0) => return false,
            Ok(count) => count,
            Err(error) => return self.lose_device(error.to_string()),
        };
        for completion in &batch[..count] {
            self.counters.send_completions += 1;
            let number = completion.wr_id as u32;
            if self.sends.is_done(number) {
                continue;
            }
            self.sends.finish(number);
            if let Some(why) = failure(completion) {
                self.interrupt(format!("a send failed: {why}"));
                continue;
            }
            self.sends.expected -= 1;
        }
        self.pool.sweep(self.sends.done);
        true
    }
}

/// Prepares the head of a connection's next packet, with its acknowledgement. A message packet gets a sequence number.
#[inline]
fn prepare(
    link: &mut UdLink, kind: DatagramKind, total: u32, packet: Option<(&Packet, u64)>,
) -> Option<[u8; HEAD]> {
    let seq = match packet {
        None => 0,
        Some((packet, now)) => {
            if link.sender.in_flight() == 0 {
                link.silent_since_ns = now.max(1);
            }
            link.sender.push(now, *packet).ok()?
        }
    };
    let far = link.far.as_ref()?;
    let head = DatagramHead {
        kind,
        link: far.link,
        token: far.token,
        seq,
        ack: link.receiver.ack(),
        total,
    };
    (link.owed, link.ack_due_ns) = (0, 0);
    Some(head.encode())
}
