//! Arrivals: checks datagrams, orders packets, assembles messages, and reposts receive buffers.
#![allow(unsafe_code)]

use super::core::Core;
use super::datapath::POLL;
use super::link::{Assembly, Body, ReorderedPacket};
use super::pool::Packet;
use super::wire::*;
use crate::contract::Header;
use crate::reliable::ArrivalOutcome;
use crate::verbs::post::failure;
use crate::verbs::{Failure, VerbsError, Wc};

/// If fewer receive buffers than this are posted or about to be, packets are copied out of their buffers. Otherwise
/// packets that wait for a missing packet could hold all buffers, and the missing packet could never arrive.
const SCARCE: u32 = 32;

impl Core {
    #[inline]
    pub fn poll_receives(&mut self) -> bool {
        let mut batch = [Wc::default(); POLL];
        self.counters.recv_polls += 1;
        match self.recv_cq.poll(&mut batch) {
            Ok(0) => false,
            first => self.handle_batches(&mut batch, first),
        }
    }

    /// Processes batches of arrivals until none is left. Posts buffers only after the batches, because a count of 0
    /// posted buffers then shows that the adapter ran out of buffers.
    fn handle_batches(&mut self, batch: &mut [Wc; POLL], first: Result<usize, VerbsError>) -> bool {
        let now = self.port.now();
        let mut polled = first;
        loop {
            let count = match polled {
                Ok(count) => count,
                Err(error) => return self.lose_device(error.to_string()),
            };
            self.receives.note_received(count);
            for completion in &batch[..count] {
                self.handle_receive(completion, now);
            }
            if self.receives.posted() == 0 {
                self.counters.out_of_buffer += !self.outage.has_stopped() as u64;
                break;
            }
            if count < POLL {
                break;
            }
            polled = self.recv_cq.poll(batch);
        }
        while let Some(index) = self.urgent.pop() {
            self.link(index as usize).urgent = false;
            self.send_ack(index as usize);
        }
        self.refill_if_worth();
        true
    }

    #[inline]
    fn refill_if_worth(&mut self) {
        let able = !self.lost && !self.outage.has_stopped();
        if self.receives.is_worth_posting(SCARCE) && able {
            self.refill();
        }
    }

    fn refill(&mut self) {
        if let Err(error) = self.post_receives() {
            self.lose_device(error.to_string());
        }
    }

    fn handle_receive(&mut self, completion: &Wc, now: u64) {
        let number = completion.wr_id as u32;
        if let Some(why) = failure(completion) {
            self.receives.give(number);
            match why {
                Failure::Flushed => self.interrupt(String::new()),
                _ => self.counters.receive_errors += 1,
            }
            return;
        }
        if !self.accept(number, completion, now) {
            self.receives.give(number);
        }
    }

    /// Accepts a datagram. Returns false if the caller must give the datagram's buffer back to `receives`. Returns true
    /// if the buffer was kept for the message or was given back already.
    fn accept(&mut self, number: u32, completion: &Wc, now: u64) -> bool {
        let len = (completion.byte_len as usize).min(self.receives.len());
        let at = self.receives.locate(number).0.wrapping_add(GRH);
        // SAFETY: the adapter is done with the buffer, and `len` of its bytes are this process's alone.
        let datagram = unsafe { std::slice::from_raw_parts(at, len.saturating_sub(GRH)) };
        let found = DatagramHead::decode(datagram)
            .filter(|(head, _)| self.is_of_peer(head, completion.src_qp));
        let Some((head, stream)) = found else {
            self.counters.garbage += !self.keep_wireup_datagram(datagram, completion.src_qp) as u64;
            return false;
        };
        let index = head.link as usize;
        let (pool, done) = (&mut self.pool, self.sends.done);
        let Some(link) = self.links.get_mut(index) else {
            return false;
        };
        link.silent_since_ns = now.max(1);
        self.heard += 1;
        let release = |packet: Packet| pool.release(packet.slot, done);
        // No call of `stir` is needed: a connection with outstanding packets is in `busy` already.
        self.stirred |= link.sender.acknowledge_with(now, head.ack, release);
        if head.kind == DatagramKind::Ack {
            return false;
        }
        let scarce = self.receives.available() < SCARCE;
        let body = match scarce {
            true => Body::Copied(stream.to_vec()),
            false => Body::Slot(number, stream.len() as u32),
        };
        let (kind, total) = (head.kind, head.total);
        let fate = link.receiver.accept(head.seq, ReorderedPacket { kind, total, body });
        let hole = link.receiver.has_hole();
        let urgent = (hole || fate == ArrivalOutcome::Duplicate) && !link.urgent;
        let newly_owed = link.ack_due_ns == 0;
        match fate {
            ArrivalOutcome::Kept => self.counters.received += 1,
            ArrivalOutcome::Duplicate => self.counters.duplicates += 1,
            ArrivalOutcome::OutOfWindow => self.counters.garbage += 1,
        }
        self.counters.early += (hole && fate == ArrivalOutcome::Kept) as u64;
        if urgent {
            // Acknowledge soon: the sender must learn which packets are missing, or that it need not retransmit.
            self.link(index).urgent = true;
            self.urgent.push(index as u32);
        } else if newly_owed {
            self.stir(index);
        }
        if fate == ArrivalOutcome::Kept {
            self.settle_front(index);
        }
        fate == ArrivalOutcome::Kept && !scarce
    }

    #[inline]
    fn is_of_peer(&self, head: &DatagramHead, source: u32) -> bool {
        let Some(link) = self.links.get(head.link as usize) else {
            return false;
        };
        let open = link.stage.is_open();
        let far = link.far.as_ref().is_some_and(|far| far.qpn == source);
        open && link.token == head.token && far
    }

    fn settle_front(&mut self, index: usize) {
        loop {
            let link = self.link(index);
            if link.assembly.as_ref().is_some_and(Assembly::is_whole) {
                return;
            }
            match link.receiver.look() {
                None => return,
                Some(kept) if matches!(kept.kind, DatagramKind::Whole | DatagramKind::Last) => {
                    if link.assembly.take().is_some() {
                        self.counters.violations += 1;
                    }
                    return;
                }
                Some(_) => {}
            }
            let Some(kept) = link.receiver.take() else {
                return;
            };
            link.owed += 1;
            let right = self.add_part(index, &kept);
            self.counters.violations += !right as u64;
            if let Body::Slot(number, _) = kept.body {
                self.receives.give(number);
            }
        }
    }

    fn add_part(&mut self, index: usize, kept: &ReorderedPacket) -> bool {
        let spare = match kept.kind {
            DatagramKind::First => self.spare.pop().unwrap_or_default(),
            _ => Vec::new(),
        };
        let (at, len) = self.stream_of(&kept.body);
        // SAFETY: the packet's buffer has not been returned.
        let part = unsafe { std::slice::from_raw_parts(at, len) };
        let link = self.link(index);
        let mut right = true;
        if kept.kind == DatagramKind::First {
            let mut data = spare;
            data.clear();
            data.reserve(kept.total as usize);
            let total = kept.total as usize;
            right = link.assembly.replace(Assembly { data, total }).is_none();
        }
        match &mut link.assembly {
            Some(assembly) if part.len() <= assembly.total - assembly.data.len() => {
                assembly.data.extend_from_slice(part);
                right
            }
            assembly => {
                *assembly = None;
                false
            }
        }
    }

    #[inline]
    fn stream_of(&self, body: &Body) -> (*const u8, usize) {
        match body {
            Body::Copied(bytes) => (bytes.as_ptr(), bytes.len()),
            Body::Slot(number, len) => {
                let at = self.receives.locate(*number).0.wrapping_add(GRH + HEAD);
                (at.cast_const(), *len as usize)
            }
        }
    }

    #[inline]
    pub fn look(&mut self, index: usize) -> Option<(Header, *const u8, usize)> {
        if !self.link(index).has_message() {
            self.poll_receives();
        }
        let link = self.link(index);
        if let Some(assembly) = &link.assembly {
            let (header, payload) = assembly.message().filter(|_| assembly.is_whole())?;
            return Some((header, payload.as_ptr(), payload.len()));
        }
        let first =
            self.links.get(index)?.receiver.look().filter(|kept| kept.kind != DatagramKind::Last);
        let (at, len) = self.stream_of(&first?.body);
        // SAFETY: the packet's buffer has not been returned.
        let stream = unsafe { std::slice::from_raw_parts(at, len) };
        let (header, payload) = split_stream(stream)?;
        Some((header, payload.as_ptr(), payload.len()))
    }

    #[inline]
    pub fn take(&mut self, index: usize) {
        let link = self.link(index);
        if !link.has_message() {
            return;
        }
        if let Some(whole) = link.assembly.take() {
            self.spare.push(whole.data);
        } else if let Some(kept) = link.receiver.take() {
            link.owed += 1;
            if let Body::Slot(number, _) = kept.body {
                self.receives.give(number);
            }
        }
        self.settle_front(index);
        self.return_credits(index, WORTH);
        if self.link(index).ack_due_ns == 0 {
            self.stir(index);
        }
        self.refill_if_worth();
    }

    pub fn take_last(&mut self, index: usize) -> bool {
        let link = self.link(index);
        if !link.has_last() {
            return false;
        }
        if let Some(kept) = link.receiver.take() {
            link.owed += 1;
            if let Body::Slot(number, _) = kept.body {
                self.receives.give(number);
            }
        }
        // Acknowledge at once: the peer waits only for this acknowledgement.
        if !self.send_ack(index) {
            self.stir(index);
        }
        self.refill_if_worth();
        true
    }

    pub fn return_credits(&mut self, index: usize, part: u32) {
        let link = self.link(index);
        if link.owed > 0 && link.owed * part >= link.window && link.stage.is_open() {
            self.send_ack(index);
        }
    }
}

/// Divisor of the window: an acknowledgement is sent at once when a quarter of the window is owed.
pub(super) const WORTH: u32 = 4;
