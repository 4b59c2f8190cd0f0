//! Posting of sends, and their completions.
#![allow(unsafe_code)]

use super::super::send_buffers::BufferSlot;
use super::POLL;
use super::connection::{Connection, Ticket, UNREPORTED};
use super::core::{Completion, Core, SMALL};
use super::wire::*;
use crate::contract::{Header, Post};
use crate::verbs::post::failure;
use crate::verbs::{Failure, InlineChoice, SendFlags, SendOperation, Sge, Wc};
use fastpath_base::copy::copy;

pub(super) const INLINE_MOST: usize = 1024;

impl Core {
    #[inline]
    pub fn connection(&mut self, index: usize) -> &mut Connection {
        self.connections.of_endpoint(index)
    }

    /// Posts one operation, unsignaled unless `report` is set or a signal is due. The send queue must have room.
    ///
    /// # Safety
    /// See [`crate::verbs::QueuePair::post_patched`].
    #[inline(always)] // `fastpath bench instructions --transport rc` counts a send
    pub unsafe fn post(
        &mut self, index: usize, operation: &SendOperation<'_>, segments: &[Sge], report: bool,
        inline: InlineChoice,
    ) -> bool {
        let connection = self.connections.of_endpoint(index);
        let flags = SendFlags {
            signaled: report || connection.sends.owes_signal(),
            inline,
            ..SendFlags::default()
        };
        let id = (index as u64) << 32 | connection.sends.posted as u64;
        let (pair, request) = (&connection.pair, &mut self.request);
        // SAFETY: the segments meet the contract of `post_patched`, by this function's own contract.
        match unsafe { pair.post_patched(request, id, operation, segments, flags) } {
            Ok(posted) => {
                connection.sends.add(flags.signaled);
                self.send_queues[connection.queue].expected += flags.signaled as u32;
                match posted.inline {
                    true => self.counters.inline += 1,
                    false => self.counters.copied += 1,
                }
                true
            }
            Err(error) => self.post_error_slow(index, error),
        }
    }

    /// Sends header and payload inline from the caller's memory. They must fit the granted inline size together.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes.
    #[inline]
    pub unsafe fn send_inline(
        &mut self, index: usize, header: Header, data: *const u8, len: usize,
    ) -> Post {
        let connection = self.connection(index);
        let post = connection.admit(1);
        if post != Post::Done {
            return post;
        }
        let tag = connection.tag(PacketKind::Whole, 0);
        connection.credits -= 1;
        connection.last_header = Some(header);
        let head = encode_header(header);
        let segments = [Sge::over(head.as_ptr(), HEADER, 0), Sge::over(data, len, 0)];
        // SAFETY: the call copies inline data, and both segments are readable now.
        match unsafe { self.post(index, &tag, &segments, false, InlineChoice::Force) } {
            true => Post::Done,
            false => Post::PeerGone,
        }
    }

    /// Reserves a slot for `len` bytes of payload. Returns `None` if [`Core::send_inline`] can send the message.
    #[inline]
    pub fn reserve(
        &mut self, index: usize, len: usize,
    ) -> Result<Option<(BufferSlot, *mut u8)>, Post> {
        let connection = self.connection(index);
        let post = connection.admit(packets(len));
        if post != Post::Done {
            return Err(post);
        }
        if HEADER + len <= connection.inline.min(INLINE_MOST) {
            return Ok(None);
        }
        let slot = self.take_slot(index, len).ok_or(Post::NoResource)?;
        let (at, _) = self.pool.locate(slot);
        Ok(Some((slot, at.wrapping_add(HEADER))))
    }

    #[inline]
    pub fn send_packed(
        &mut self, index: usize, header: Header, len: usize, slot: BufferSlot,
    ) -> Post {
        let (at, lkey) = self.pool.locate(slot);
        if len > PACKET {
            return self.send_parts(index, header, len, slot);
        }
        let known = self.repeats && self.connection(index).last_header == Some(header);
        let again = len > 0 && known;
        let (kind, from, bytes) = match again {
            true => (PacketKind::HeaderElided, at.wrapping_add(HEADER), len),
            false => (PacketKind::Whole, at, HEADER + len),
        };
        if !again {
            // SAFETY: the slot has room for header and payload, and belongs to this message alone.
            unsafe { copy(at, encode_header(header).as_ptr(), HEADER) };
        }
        let connection = self.connection(index);
        connection.last_header = Some(header);
        let tag = connection.tag(kind, 0);
        self.counters.again += u64::from(again);
        match self.post_packet(index, &tag, &[Sge::over(from, bytes, lkey)], Some(slot)) {
            true => Post::Done,
            false => Post::PeerGone,
        }
    }

    #[inline(never)]
    fn send_parts(&mut self, index: usize, header: Header, len: usize, slot: BufferSlot) -> Post {
        let (at, lkey) = self.pool.locate(slot);
        // SAFETY: the slot has room for header and payload, and belongs to this message alone.
        unsafe { copy(at, encode_header(header).as_ptr(), HEADER) };
        let mut done = 0;
        while done < len {
            let part = PACKET.min(len - done);
            let (kind, total, from, bytes) = match done {
                0 => (PacketKind::First, len, at, HEADER + part),
                _ => (PacketKind::More, 0, at.wrapping_add(HEADER + done), part),
            };
            let tag = self.connection(index).tag(kind, total);
            done += part;
            let last = (done == len).then_some(slot);
            if !self.post_packet(index, &tag, &[Sge::over(from, bytes, lkey)], last) {
                if last.is_none() {
                    self.pool.give(slot);
                }
                return Post::PeerGone;
            }
        }
        Post::Done
    }

    /// Posts a packet from a slot. If the packet is the message's last, its completion frees slot `last`.
    #[inline(always)] // `fastpath bench instructions --transport rc` counts a send
    fn post_packet(
        &mut self, index: usize, tag: &SendOperation<'_>, segments: &[Sge],
        last: Option<BufferSlot>,
    ) -> bool {
        // Large buffers are few. Signal the sends of some of them early, so that these return before all are in use.
        let report = last.is_some_and(|slot| self.pool.is_mark(slot));
        let connection = self.connection(index);
        connection.credits -= 1;
        if let Some(slot) = last {
            connection.slots.push_back((connection.sends.posted, slot));
        }
        // SAFETY: the slot belongs to this message until the completion that frees it.
        unsafe { self.post(index, tag, segments, report, InlineChoice::Auto) }
    }

    #[inline]
    pub fn take_slot(&mut self, index: usize, len: usize) -> Option<BufferSlot> {
        match self.pool.take(len > SMALL) {
            Some(slot) => Some(slot),
            None => self.take_slot_slow(index, len),
        }
    }

    #[inline]
    pub fn has_slots(&mut self, messages: u32, bytes: usize) -> bool {
        while self.pool.available(bytes > SMALL) < messages {
            if !self.make_slots_slow(bytes) {
                return false;
            }
        }
        true
    }

    pub fn return_credits(&mut self, index: usize, least: u32) {
        let connection = self.connection(index);
        let able = connection.stage.is_open() && connection.sends.room() > 0;
        if connection.owed < least.max(1) || !able {
            return;
        }
        let tag = connection.tag(PacketKind::Credits, 0);
        // SAFETY: there are no segments, so no memory is accessed.
        if unsafe { self.post(index, &tag, &[], false, InlineChoice::Auto) } {
            self.counters.credit_packets += 1;
        }
    }

    /// Posts a one-sided operation. `ticket` describes its completion; without a ticket, success is `Done`.
    ///
    /// # Safety
    /// The segments are readable, or writable for a read or an atomic, until the operation is reported.
    pub unsafe fn post_remote(
        &mut self, index: usize, operation: &SendOperation<'_>, segments: &[Sge],
        ticket: Option<Ticket>,
    ) -> Post {
        let waited = ticket.is_some();
        // Signal an operation if no other is outstanding: a flush often follows at once, and then posts nothing.
        let lone = !self.connection(index).sends.is_busy();
        let report = lone || ticket.as_ref().is_some_and(|t| t.cookie != UNREPORTED);
        if let Some(ticket) = ticket {
            let connection = self.connection(index);
            let number = connection.sends.posted;
            connection.tickets.push_back((number, ticket));
        }
        // SAFETY: the segments stay valid until the operation is reported, by this function's contract.
        match unsafe { self.post(index, operation, segments, report, InlineChoice::Auto) } {
            true if waited => Post::InProgress,
            true => Post::Done,
            false => Post::PeerGone,
        }
    }

    #[inline]
    pub fn admit_remote(&mut self, index: usize) -> Post {
        self.connection(index).admit(0)
    }

    pub fn progress(&mut self) -> bool {
        let arrived = self.poll_receives();
        let mut done = false;
        for queue in 0..self.send_queues.len() {
            if self.send_queues[queue].expected > 0 || !self.tx_gate {
                done |= self.poll_sends(queue);
            }
        }
        let found = arrived || done;
        let is_quiet = self.port.is_quiet(found);
        found || (is_quiet && self.look_for_failures())
    }

    pub fn poll_sends(&mut self, queue: usize) -> bool {
        self.counters.send_polls += 1;
        let most = self.settings.batch.clamp(1, POLL);
        let count = match self.send_queues[queue].cq.poll(&mut self.batch[..most]) {
            Ok(count) => count,
            Err(error) => return self.lose_device_by(error),
        };
        for at in 0..count {
            self.counters.send_completions += 1;
            let completion = self.batch[at];
            self.handle_sent(&completion);
        }
        count > 0
    }

    fn handle_sent(&mut self, completion: &Wc) {
        let (index, number) = ((completion.wr_id >> 32) as usize, completion.wr_id as u32);
        // The completion may belong to a removed connection whose index is in use again.
        if self.find_connection(completion.qp_num) != Some(index as u32) {
            return;
        }
        if let Some(why) = failure(completion) {
            return self.fail_connection(index, why, String::new());
        }
        let connection = self.connection(index);
        if connection.stage.failure().is_some() {
            return;
        }
        connection.sends.finish(number);
        connection.sends.expected -= 1;
        let queue = connection.queue;
        self.send_queues[queue].expected -= 1;
        self.release(index, Ok(()));
    }

    pub(super) fn release(&mut self, index: usize, result: Result<(), Failure>) {
        loop {
            let connection = self.connection(index);
            match connection.slots.front() {
                Some(&(number, slot)) if connection.sends.is_done(number) => {
                    connection.slots.pop_front();
                    self.pool.give(slot);
                }
                _ => break,
            }
        }
        loop {
            let connection = self.connection(index);
            match connection.tickets.front() {
                Some(&(number, _)) if connection.sends.is_done(number) => {}
                _ => break,
            }
            if let Some((_, ticket)) = connection.tickets.pop_front() {
                self.finish(ticket, result);
            }
        }
    }

    fn finish(&mut self, ticket: Ticket, result: Result<(), Failure>) {
        if let Some(landing) = ticket.landing {
            let (at, _) = self.pool.locate(landing.slot);
            self.pool.give(landing.slot);
            if result.is_ok() {
                // SAFETY: the adapter has written `len` bytes to the slot. The user's memory is valid until this
                // report, by the contract of the read.
                unsafe { copy(landing.to, at, landing.len) };
            }
        }
        let cookie = ticket.cookie;
        if cookie != UNREPORTED {
            self.completions.push_back(Completion { cookie, result });
        }
    }
}
