//! Arrivals: assembles packets into messages, hands messages out, and reposts receive buffers.
//!
//! **ARRIVED.** The completion's byte count is the number of bytes that the adapter has written to the receive buffer.
//! The count never exceeds the buffer. The adapter does not touch the buffer until it is posted again, so only this
//! process accesses the bytes. Their content is not trusted.
#![allow(unsafe_code)]

use super::POLL;
use super::connection::{ASSEMBLED, Assembly, Inbound};
use super::core::Core;
use super::wire::*;
use crate::contract::Header;
use crate::verbs::Failure;
use crate::verbs::post::{failure, immediate};

/// If fewer receive buffers than this are posted, each emptied buffer is posted at once.
const LOW: u32 = 16;

impl Core {
    #[inline]
    pub fn poll_receives(&mut self) -> bool {
        self.counters.recv_polls += 1;
        let most = self.settings.batch.clamp(1, POLL);
        let count = match self.recv_cq.poll(&mut self.batch[..most]) {
            Ok(0) => return false,
            Ok(count) => count,
            Err(error) => return self.lose_device_by(error),
        };
        for at in 0..count.min(POLL) {
            self.handle_receive(at);
        }
        self.receives.note_received(count);
        self.refill_if_worth();
        true
    }

    #[inline]
    fn refill_if_worth(&mut self) {
        if self.receives.is_worth_posting(LOW) {
            self.refill();
        }
    }

    // Not inlined: otherwise the callers would save registers for this rare call on their usual path.
    #[inline(never)]
    fn refill(&mut self) {
        if let Err(error) = self.post_receives() {
            self.lose_device_by(error);
        }
    }

    #[inline]
    fn handle_receive(&mut self, place: usize) {
        let completion = &self.batch[place];
        let number = completion.wr_id as u32;
        let tag = immediate(completion).and_then(Tag::decode);
        let (None, Some(tag)) = (failure(completion), tag) else {
            return self.refuse_receive(place);
        };
        let len = (completion.byte_len as usize).min(HEADER + PACKET);
        let Some(index) = self.find_connection(self.batch[place].qp_num) else {
            return self.receives.give(number); // the connection has ended: return the buffer
        };
        let index = index as usize;
        let (at, _) = self.receives.locate(number);
        let connection = self.connection(index);
        // Limit the credits to the largest window, because the peer's count is not trusted.
        connection.credits = (connection.credits + tag.credits).min(WINDOW_MOST);
        let (header, data, len) = match (tag.kind, connection.heard) {
            (PacketKind::Whole, _) if len >= HEADER => {
                // SAFETY: ARRIVED: `len >= HEADER`, so the packet has its header.
                let header = unsafe { read_header(at) };
                connection.heard = Some(header);
                (header, at.wrapping_add(HEADER), len - HEADER)
            }
            (PacketKind::HeaderElided, Some(header)) if len <= PACKET => (header, at, len),
            // SAFETY: ARRIVED: `len` bytes have arrived in this buffer.
            _ => return unsafe { self.handle_part(index, tag, number, at, len) },
        };
        connection.inbox.push_back(Inbound { header, data, len: len as u32, number, packets: 1 });
    }

    #[cold]
    #[inline(never)]
    fn refuse_receive(&mut self, place: usize) {
        let completion = self.batch[place];
        self.receives.give(completion.wr_id as u32);
        let Some(index) = self.find_connection(completion.qp_num) else {
            return;
        };
        match failure(&completion) {
            None => self.counters.violations += 1,
            Some(Failure::Flushed) => {}
            Some(why) => {
                let text = format!("a receive of the adapter failed: {why}");
                self.fail_connection(index as usize, why, text);
            }
        }
    }

    /// Handles a packet that is part of a message, or carries only credits.
    ///
    /// # Safety
    /// `len` bytes have arrived at `at`, in receive buffer `number`.
    #[inline(never)]
    unsafe fn handle_part(
        &mut self, index: usize, tag: Tag, number: u32, at: *const u8, len: usize,
    ) {
        let kept = match tag.kind {
            // SAFETY: ARRIVED: this function's contract gives `len` bytes at `at`.
            PacketKind::First => unsafe { self.begin_assembly(index, tag.total as usize, at, len) },
            // SAFETY: ARRIVED: this function's contract gives `len` bytes at `at`.
            PacketKind::More => unsafe { self.add_to_assembly(index, at, len) },
            PacketKind::Credits => len == 0,
            PacketKind::Whole | PacketKind::HeaderElided => false,
        };
        self.counters.violations += !kept as u64;
        self.receives.give(number);
    }

    unsafe fn begin_assembly(
        &mut self, index: usize, total: usize, at: *const u8, len: usize,
    ) -> bool {
        let mut data = self.spare.pop().unwrap_or_default();
        let connection = self.connection(index);
        if len != HEADER + PACKET
            || total <= PACKET
            || total > LARGEST
            || connection.assembly.is_some()
        {
            return false;
        }
        data.clear();
        data.reserve(total);
        // SAFETY: ARRIVED: `len` is `HEADER + PACKET`, so the payload has `PACKET` bytes.
        let first = unsafe { std::slice::from_raw_parts(at.add(HEADER), PACKET) };
        data.extend_from_slice(first);
        connection.assembly = Some(Assembly {
            // SAFETY: ARRIVED: `len` exceeds `HEADER`, so the packet has its header.
            header: unsafe { read_header(at) },
            data,
            total,
            packets: 1,
        });
        true
    }

    /// # Safety
    /// `len` bytes have arrived at `at`.
    unsafe fn add_to_assembly(&mut self, index: usize, at: *const u8, len: usize) -> bool {
        let connection = self.connection(index);
        let Some(assembly) = &mut connection.assembly else {
            return false;
        };
        if len != PACKET.min(assembly.total - assembly.data.len()) {
            return false;
        }
        // SAFETY: ARRIVED: `len` bytes have arrived at `at`.
        let part = unsafe { std::slice::from_raw_parts(at, len) };
        assembly.data.extend_from_slice(part);
        assembly.packets += 1;
        if assembly.data.len() == assembly.total
            && let Some(whole) = connection.assembly.take()
        {
            connection.inbox.push_back(Inbound {
                header: whole.header,
                data: whole.data.as_ptr(),
                len: whole.total as u32,
                number: ASSEMBLED,
                packets: whole.packets,
            });
            connection.wholes.push_back(whole.data);
        }
        true
    }

    #[inline]
    pub fn take(&mut self, index: usize) {
        let connection = self.connection(index);
        let Some(inbound) = connection.inbox.pop_front() else {
            return;
        };
        connection.owed += inbound.packets;
        let half = connection.window / 2;
        let worth_telling = connection.owed >= half;
        match inbound.number {
            ASSEMBLED => self.spare_whole(index),
            number => self.receives.give(number),
        }
        if worth_telling {
            self.return_credits(index, half);
        }
        self.refill_if_worth();
    }

    #[inline(never)]
    fn spare_whole(&mut self, index: usize) {
        let whole = self.connection(index).wholes.pop_front();
        self.spare.extend(whole);
    }
}

/// # Safety
/// A header has arrived at `at`.
#[inline]
unsafe fn read_header(at: *const u8) -> Header {
    // SAFETY: ARRIVED: `HEADER` bytes are there, by this function's contract; a byte array has no alignment.
    decode_header(unsafe { &*at.cast::<[u8; HEADER]>() })
}
