//! What has arrived: packets become messages, messages are taken, buffers are posted again.
#![allow(unsafe_code)]

use super::connection::{Assembly, Body, Connection, Inbound, Place};
use super::datapath::POLL;
use super::iface::Core;
use super::wire::*;
use crate::contract::Header;
use crate::verbs::post::{failure, immediate};
use crate::verbs::{Failure, Wc};

/// Posted receive buffers below which none waits for others to be posted with it.
const LOW: u32 = 32;

impl Core {
    /// Takes a batch of arrivals; says whether there were any.
    #[inline]
    pub fn poll_receives(&mut self) -> bool {
        self.counters.recv_polls += 1;
        let most = self.settings.batch.clamp(1, POLL);
        let count = match self.recv_cq.poll(&mut self.batch[..most]) {
            Ok(0) => return false,
            Ok(count) => count,
            Err(error) => return self.lose_device(error.to_string()),
        };
        for at in 0..count {
            let completion = self.batch[at];
            self.handle_receive(&completion);
        }
        self.posted = self.posted.saturating_sub(count as u32);
        self.refill_if_worth();
        true
    }

    /// Posts the receive buffers that were emptied: a batch of them, or what there is where few are posted.
    #[inline]
    fn refill_if_worth(&mut self) {
        if self.idle.len() >= POLL || (self.posted < LOW && !self.idle.is_empty()) {
            self.refill();
        }
    }

    fn refill(&mut self) {
        if let Err(error) = self.post_receives() {
            self.lose_device(error.to_string());
        }
    }

    fn handle_receive(&mut self, completion: &Wc) {
        let number = completion.wr_id as u32;
        let Some(index) = self.find_connection(completion.qp_num) else {
            return self.idle.push(number); // of a connection that has been ended
        };
        let index = index as usize;
        if let Some(why) = failure(completion) {
            self.idle.push(number);
            if why != Failure::Flushed {
                self.fail_connection(index, why, format!("a receive failed: {why:?}"));
            }
            return;
        }
        let Some(tag) = immediate(completion).and_then(Tag::decode) else {
            self.counters.violations += 1;
            return self.idle.push(number);
        };
        let len = (completion.byte_len as usize).min(HEADER + PACKET);
        let (at, _) = self.receive(number);
        let connection = self.connection(index);
        // A peer cannot give back more than there is: the count stays what packets may carry.
        connection.credits = (connection.credits + tag.credits).min(WINDOW_MOST);
        let kept = match tag.kind {
            Kind::Whole if len >= HEADER => {
                // SAFETY: the packet has its header.
                let header = unsafe { read_header(at) };
                connection.heard = Some(header);
                return connection.keep(header, number, HEADER, len - HEADER);
            }
            Kind::Again if len <= PACKET => match connection.heard {
                Some(header) => return connection.keep(header, number, 0, len),
                None => false,
            },
            // SAFETY: `len` bytes have arrived there.
            Kind::First => unsafe { self.begin_assembly(index, tag.total as usize, at, len) },
            // SAFETY: as above.
            Kind::More => unsafe { self.add_to_assembly(index, at, len) },
            Kind::Credits => len == 0,
            Kind::Whole | Kind::Again => false,
        };
        self.counters.violations += !kept as u64;
        self.idle.push(number);
    }

    unsafe fn begin_assembly(
        &mut self,
        index: usize,
        total: usize,
        at: *const u8,
        len: usize,
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
        // SAFETY: header and a packet's payload have arrived.
        let first = unsafe { std::slice::from_raw_parts(at.add(HEADER), PACKET) };
        data.extend_from_slice(first);
        connection.assembly = Some(Assembly {
            // SAFETY: as above.
            header: unsafe { read_header(at) },
            data,
            total,
            packets: 1,
        });
        true
    }

    unsafe fn add_to_assembly(&mut self, index: usize, at: *const u8, len: usize) -> bool {
        let connection = self.connection(index);
        let Some(assembly) = &mut connection.assembly else {
            return false;
        };
        if len != PACKET.min(assembly.total - assembly.data.len()) {
            return false;
        }
        // SAFETY: `len` bytes have arrived there.
        let part = unsafe { std::slice::from_raw_parts(at, len) };
        assembly.data.extend_from_slice(part);
        assembly.packets += 1;
        if assembly.data.len() == assembly.total
            && let Some(whole) = connection.assembly.take()
        {
            connection.inbox.push_back(Inbound {
                header: whole.header,
                body: Body::Whole(whole.data),
                packets: whole.packets,
            });
        }
        true
    }

    /// Takes the first arrival of a connection, and tells the peer now and then.
    #[inline]
    pub fn take(&mut self, index: usize) {
        let connection = self.connection(index);
        let Some(inbound) = connection.inbox.pop_front() else {
            return;
        };
        connection.owed += inbound.packets;
        let half = connection.window / 2;
        if connection.owed >= half {
            self.return_credits(index, half);
        }
        match inbound.body {
            Body::Slot(place) => self.idle.push(place.number),
            Body::Whole(data) => self.spare.push(data),
        }
        self.refill_if_worth();
    }
}

impl Connection {
    /// A message has arrived whole, in a receive buffer.
    #[inline]
    fn keep(&mut self, header: Header, number: u32, skip: usize, len: usize) {
        let (skip, len) = (skip as u32, len as u32);
        self.inbox.push_back(Inbound {
            header,
            body: Body::Slot(Place { number, skip, len }),
            packets: 1,
        });
    }
}

/// # Safety
/// A header is there.
#[inline]
unsafe fn read_header(at: *const u8) -> Header {
    // SAFETY: the caller's; any alignment is right for bytes.
    decode_header(unsafe { &*at.cast::<[u8; HEADER]>() })
}
