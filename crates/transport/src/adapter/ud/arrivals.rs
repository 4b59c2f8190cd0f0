//! What has arrived: datagrams are checked, packets put in order, messages put together and taken, buffers posted
//! again.
#![allow(unsafe_code)]

use super::datapath::POLL;
use super::iface::Core;
use super::link::{Assembly, Body, Kept};
use super::pool::Packet;
use super::wire::*;
use crate::contract::Header;
use crate::reliable::Accepted;
use crate::verbs::post::failure;
use crate::verbs::{Failure, VerbsError, Wc};

/// Receive buffers, posted or about to be, below which packets are copied out of theirs: were all of them held by
/// packets that wait for a missing one, that one could never arrive.
const SCARCE: u32 = 32;

impl Core {
    /// Takes the arrivals that are there; says whether there were any.
    #[inline]
    pub fn poll_receives(&mut self) -> bool {
        let mut batch = [Wc::default(); POLL];
        self.counters.recv_polls += 1;
        match self.recv_cq.poll(&mut batch) {
            Ok(0) => false,
            first => self.handle_batches(&mut batch, first),
        }
    }

    /// Handles batch after batch until there is no more. Buffers are posted afterwards: so it is known whether the
    /// adapter had none left.
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

    /// Posts the receive buffers that were emptied: a batch of them, or what there is where few are posted.
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

    /// Takes in a datagram; says whether its buffer is kept, or has been given back already.
    fn accept(&mut self, number: u32, completion: &Wc, now: u64) -> bool {
        let len = (completion.byte_len as usize).min(self.receives.len());
        let at = self.receives.locate(number).0.wrapping_add(GRH);
        // SAFETY: the adapter is done with the buffer, and so many bytes of it are this process's alone.
        let datagram = unsafe { std::slice::from_raw_parts(at, len.saturating_sub(GRH)) };
        let found =
            Head::decode(datagram).filter(|(head, _)| self.is_of_peer(head, completion.src_qp));
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
        // What is under way is watched already.
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
        let fate = link.receiver.accept(head.seq, Kept { kind, total, body });
        let hole = link.receiver.has_hole();
        let urgent = (hole || fate == Accepted::Duplicate) && !link.urgent;
        let newly_owed = link.ack_due_ns == 0;
        match fate {
            Accepted::Kept => self.counters.received += 1,
            Accepted::Duplicate => self.counters.duplicates += 1,
            Accepted::OutOfWindow => self.counters.garbage += 1,
        }
        self.counters.early += (hole && fate == Accepted::Kept) as u64;
        if urgent {
            // The sender is to hear soon what is missing, or that it need not try again.
            self.link(index).urgent = true;
            self.urgent.push(index as u32);
        } else if newly_owed {
            self.stir(index);
        }
        if fate == Accepted::Kept {
            self.settle_front(index);
        }
        fate == Accepted::Kept && !scarce
    }

    /// Whether a packet comes from the peer of the connection that it names, and that connection is open.
    #[inline]
    fn is_of_peer(&self, head: &Head, source: u32) -> bool {
        let Some(link) = self.links.get(head.link as usize) else {
            return false;
        };
        let open = link.stage.is_open();
        let far = link.far.as_ref().is_some_and(|far| far.qpn == source);
        open && link.token == head.token && far
    }

    /// Puts together the message of several packets whose turn it is, as far as they are there.
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

    /// Adds a part to the message it belongs to; false where it fits none.
    fn add_part(&mut self, index: usize, kept: &Kept) -> bool {
        let spare = match kept.kind {
            DatagramKind::First => self.spare.pop().unwrap_or_default(),
            _ => Vec::new(),
        };
        let (at, len) = self.stream_of(&kept.body);
        // SAFETY: the packet has not been given back.
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

    /// Where the stream of a packet lies.
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

    /// The next message of a connection: header, first byte and length of its payload.
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
        // SAFETY: the packet has not been given back.
        let stream = unsafe { std::slice::from_raw_parts(at, len) };
        let (header, payload) = split_stream(stream)?;
        Some((header, payload.as_ptr(), payload.len()))
    }

    /// Takes the next message of a connection, and tells the peer now and then.
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

    /// Takes the peer's word that no more messages come this way, where all have been taken; says whether it is there.
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
        // The peer waits for nothing else.
        if !self.send_ack(index) {
            self.stir(index);
        }
        self.refill_if_worth();
        true
    }

    /// Tells the peer what has been taken, if that is so large a part of what it may have under way.
    pub fn return_credits(&mut self, index: usize, part: u32) {
        let link = self.link(index);
        if link.owed > 0 && link.owed * part >= link.window && link.stage.is_open() {
            self.send_ack(index);
        }
    }
}

/// The part of a window that is worth a packet: a quarter.
pub(super) const WORTH: u32 = 4;
