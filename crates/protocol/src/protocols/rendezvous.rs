//! Rendezvous: a long message is announced, and its receiver says how the rest comes.
//!
//! `RTS` announces it, with the bytes that go eagerly and what else is offered ([`Offer`]). The receiver copies it by
//! itself (`get`), asks for a copy by both sides (`cooperative`), names memory to be written (`put`) or asks for
//! fragments (`pipelined`) by `RTR`. Either side may decline what the other offers, and a way that stops working in the
//! middle of a message ends in the same place: the receiver asks for fragments. `ATS` ends a send of which no more is
//! needed.
#![allow(unsafe_code)]

use super::pieces::Pieces;
use crate::endpoint::Early;
use crate::learning::{Arm, LEARN_MIN, stamp_ns};
use crate::recall::Matched;
use crate::request::{Fault, Phase, RequestId, RequestKind};
use crate::tag::key_source;
use crate::unexpected::Arrived;
use crate::wire::{self, Offer, RTS_HEADER, Rtr, Rts, RtsHeader, SEND, SEND_ALWAYS, Timing};
use crate::worker::Worker;
use fastpath_base::trace::{self, Point};
use fastpath_transport::{Capabilities, Connection, Header, Post, Remote};

/// Smallest message in bytes for which a lane prepares a stream.
const STREAM_MIN: u64 = 64 * 1024;

/// The sender.
impl Worker {
    /// Sends the RTS and the bytes that nobody needs to ask for. What finds no room is
    /// posted when this is called again; nothing else goes to the peer in between.
    pub(crate) fn post_rts_and_early(&mut self, id: RequestId) -> Post {
        if self.requests.get(id).phase == Phase::Begun {
            match self.post_rts(id) {
                Post::Done => {}
                post => return post,
            }
        }
        let request = self.requests.get_mut(id);
        let lane = &self.endpoints[request.peer].lane;
        let part = self.thresholds.fragment_on(lane);
        let early = request.early as u64;
        while request.moved < early {
            let left = early - request.moved;
            let header = Header::new(wire::EAGER_MIDDLE, 0, 0);
            let data = request.place(request.moved).map(<*mut u8>::cast_const);
            // SAFETY: as in `post_eager`.
            let (post, gone) = unsafe {
                let pack = |to, len| request.pack(request.moved, to, len);
                let endpoint = &mut self.endpoints[request.peer];
                endpoint.post_next(header, (left, part), data, pack)
            };
            match post {
                Post::Done => request.moved += gone,
                post => return post,
            }
        }
        let is_whole = request.moved == request.bytes && !request.synchronous;
        match request.phase {
            Phase::Ending => self.complete(id),
            _ if is_whole => self.complete(id),
            Phase::Pushing => self.push_later(id),
            _ => {}
        }
        Post::Done
    }

    fn post_rts(&mut self, id: RequestId) -> Post {
        let offer = self.offer_message(id);
        let request = self.requests.get(id);
        let early = match offer {
            Some(_) => 0,
            None => self.early_to(request.peer).min(request.bytes),
        };
        let request = self.requests.get_mut(id);
        let timed = request.sent_ns != 0;
        if timed {
            request.sent_ns = stamp_ns();
        }
        let (peer, bytes) = (request.peer, request.bytes);
        if early != 0 && bytes >= STREAM_MIN && !self.is_crowded() {
            self.endpoints[peer].lane.prepare_stream(early);
        }
        let request = self.requests.get_mut(id);
        let endpoint = &mut self.endpoints[peer];
        let is_bulk = request.is_contiguous() && endpoint.lane.has_bulk();
        let first = match is_bulk {
            // It is matched while the bytes come.
            true => 0,
            false => self.thresholds.fragment_on(&endpoint.lane).min(early),
        };
        if is_bulk && early == request.bytes {
            endpoint.lane.hold_next();
        }
        let offer = offer.unwrap_or(match request.synchronous && early == request.bytes {
            true => Offer::Nothing,
            false => Offer::Fragments,
        });
        let (arm, counter, exposed) = match offer {
            Offer::Fragments | Offer::Nothing => (request.arm, None, 0),
            Offer::Get(from) if endpoint.lane.wants_exposure() => (Arm::Get as u8, None, from.rkey),
            Offer::Get(_) => (Arm::Get as u8, None, 0),
            Offer::Cooperative(_, counter) => (Arm::Cooperative as u8, Some(counter), 0),
        };
        let rts = Rts { total: request.bytes, request: request.handle, early: early as u32, offer };
        let sent_ns = request.sent_ns;
        let rts_header = RtsHeader::pack(&rts, Timing { sent_ns, arm });
        let header = Header::new(wire::RTS, request.tag as u32, request.key);
        let post = match first {
            // Without any bytes of the message it fits a slot.
            // SAFETY: plain data of as many bytes.
            0 => unsafe {
                let data = (&raw const rts_header).cast();
                endpoint.post_short(header, data, size_of::<RtsHeader>())
            },
            // SAFETY: as in `post_eager`.
            _ => endpoint.post_bcopy(header, RTS_HEADER + first as usize, |to| unsafe {
                to.cast::<RtsHeader>().write_unaligned(rts_header);
                request.pack(0, to.add(RTS_HEADER), first as usize);
            }),
        };
        let request = self.requests.get_mut(id);
        (request.counter, request.memory.rkey) = (counter, exposed);
        if post == Post::Done {
            request.phase = Phase::Announced;
            request.moved = first;
            request.early = early as u32;
            let (peer, bytes) = (request.peer, request.bytes);
            if bytes >= LEARN_MIN {
                self.count_arm(peer, bytes, timed);
            }
            self.counters.announced[self.way_to(peer)].add(bytes);
            let request = self.requests.get(id);
            trace::record(Point::Announced, request.peer, request.tag, first);
        } else {
            self.withdraw_offer(id);
        }
        post
    }

    /// What an RTS offers to be copied without the ring; `None`: it is to be sent through buffers.
    pub(crate) fn offer_message(&mut self, id: RequestId) -> Option<Offer> {
        let peer = self.requests.get(id).peer;
        if self.endpoints[peer].lane.wants_exposure() {
            return self.expose_message(id).map(Offer::Get);
        }
        let request = self.requests.get(id);
        if !request.is_contiguous() {
            return None;
        }
        let (peer, arm, bytes) = (request.peer, Arm::of(request.arm), request.bytes);
        // On a crowded node the receiver of a cooperative copy would wait for its sender's turn.
        if let Some(remote) = self.find_shared(id, peer, bytes) {
            let both = bytes >= self.thresholds.cooperative && !self.is_crowded();
            return Some(self.offer_copy(peer, remote, both));
        }
        let endpoint = &self.endpoints[peer];
        let can_get = |c: Capabilities| c.get_zcopy > 0;
        let single = endpoint.lane.is_self()
            || (arm.is_some_and(|arm| !arm.is_ring())
                && !endpoint.declines
                && endpoint.lane.capabilities().is_some_and(can_get));
        if !single {
            return None;
        }
        let both = arm == Some(Arm::Cooperative) && endpoint.lane.knows_single_copy();
        Some(self.offer_copy(peer, self.name_memory(id, peer), both))
    }

    /// The receiver needs no more of an announced message than what it is sent.
    pub(crate) fn withdraw_offer(&mut self, id: RequestId) {
        let request = self.requests.get_mut(id);
        if let Some(counter) = request.counter.take() {
            self.endpoints[request.peer].lane.close_cooperative(counter as u32);
        }
        let key = std::mem::take(&mut request.memory.rkey);
        if key != 0 {
            self.endpoints[request.peer].lane.deregister(key);
        }
    }

    pub(crate) fn handle_rtr(&mut self, peer: u32, header: Header, data: *const u8, len: usize) {
        // SAFETY: `data` holds `len` bytes.
        let rtr = unsafe { wire::read::<Rtr>(data, len) };
        let (Some(rtr), Some(id)) = (rtr, self.find_active(header.key, RequestKind::Send, peer))
        else {
            return self.violation();
        };
        let request = self.requests.get_mut(id);
        let answered = !matches!(request.phase, Phase::Announced | Phase::Cooperating);
        if answered || rtr.limit > request.bytes {
            return self.violation();
        }
        if let Some(pages) = wire::joined_pages(rtr.answer) {
            return match (Pieces::cut(rtr.limit, pages), request.counter) {
                (Some(pieces), Some(counter)) if request.phase == Phase::Announced => {
                    request.phase = Phase::Cooperating;
                    self.cooperate_as_sender(id, counter, &rtr, pieces)
                }
                _ => self.violation(),
            };
        }
        self.endpoints[peer].declines |= rtr.answer == SEND_ALWAYS;
        self.withdraw_offer(id);
        let request = self.requests.get_mut(id);
        request.phase = Phase::Pushing;
        request.limit = rtr.limit;
        request.remote = rtr.request;
        if rtr.into.rkey != 0 && self.put_message(id, &rtr) {
            self.complete(id);
        } else if !self.requests.get(id).has_unsent() {
            self.push_later(id);
        }
    }

    pub(crate) fn handle_ats(&mut self, peer: u32, header: Header) {
        let Some(id) = self.find_active(header.key, RequestKind::Send, peer) else {
            return self.violation();
        };
        let request = self.requests.get(id);
        match request.phase {
            Phase::Announced | Phase::Cooperating => self.end_send(id),
            _ => self.violation(),
        }
    }

    /// The receiver needs no more than what goes by itself: the send ends when that has left.
    pub(crate) fn end_send(&mut self, id: RequestId) {
        self.withdraw_offer(id);
        let request = self.requests.get_mut(id);
        match request.has_unsent() {
            true => request.phase = Phase::Ending,
            false => self.complete(id),
        }
    }
}

/// The receiver.
impl Worker {
    pub(crate) fn handle_rts(&mut self, peer: u32, header: Header, data: *const u8, len: usize) {
        // SAFETY: `data` holds `len` bytes.
        let rts_header = unsafe { wire::read::<RtsHeader>(data, len) };
        let Some((rts, timing)) = rts_header.and_then(|a| a.unpack()) else {
            return self.violation();
        };
        if len == size_of::<RtsHeader>() {
            // Nothing of the message itself.
            return self.announce(peer, header, rts, timing, data, 0);
        }
        if len < RTS_HEADER {
            return self.violation();
        }
        // SAFETY: as just checked, the header fits.
        let (data, len) = (unsafe { data.add(RTS_HEADER) }, len - RTS_HEADER);
        self.announce(peer, header, rts, timing, data, len);
    }

    /// A message of which the first `len` bytes are there.
    pub(crate) fn announce(
        &mut self, peer: u32, header: Header, rts: Rts, timing: Timing, data: *const u8, len: usize,
    ) {
        let early = rts.early as usize;
        if len > early || self.endpoints[peer].early.left != 0 {
            return self.violation();
        }
        let left = (early - len) as u32;
        let tag = header.imm as i32;
        match self.match_announced(peer, header.key, tag, rts.announced_by()) {
            Matched::Receive(id) => {
                self.endpoints[peer].early = Early::of_request(left, id);
                self.requests.get_mut(id).time(timing);
                self.fetch(id, peer, header.key, tag, rts, data, len);
            }
            Matched::TakenBack => {
                self.endpoints[peer].early = Early::of_stored(left, Early::NOWHERE);
            }
            Matched::Nothing => {
                let id = self.store_long(peer, header, Arrived::Rendezvous(rts), data, len);
                self.endpoints[peer].early = Early::of_stored(left, id);
            }
        }
    }

    /// A receive has matched an RTS, of which the bytes at `first` are there: fetches the
    /// message by a single copy, or asks for what does not come by itself.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn fetch(
        &mut self, id: RequestId, peer: u32, key: u64, tag: i32, rts: Rts, first: *const u8,
        first_len: usize,
    ) {
        let request = self.requests.get_mut(id);
        request.source = key_source(key) as i32;
        request.received_tag = tag;
        request.peer = peer;
        let wanted = rts.total.min(request.bytes);
        if rts.total > request.bytes {
            request.fault = Fault::Truncated;
        }
        request.announced_bytes = rts.total;
        let early = rts.early as u64;
        // What comes by itself must be taken even where it does not fit.
        request.limit = wanted.max(early);
        request.moved = 0;
        request.remote = rts.request;
        if wanted != 0 && self.get_message(id, peer, &rts, wanted) {
            return;
        }
        // The answer goes first, so that the sender works while the first bytes are copied.
        if wanted > early {
            let into = self.offer_room(id, peer, wanted - early);
            self.send_answer(id, self.choose_answer(peer), into);
        } else if rts.total > early || rts.offer == Offer::Nothing {
            self.send_control(peer, Header::new(wire::ATS, 0, rts.request as u64), &[]);
        }
        self.add_bytes(id, first, first_len);
    }

    /// Tells the sender of a receive's message to go on.
    pub(crate) fn send_answer(&mut self, id: RequestId, answer: u32, into: Remote) {
        let request = self.requests.get(id);
        let rtr = Rtr { limit: request.limit, request: request.handle, answer, into };
        // SAFETY: `Rtr` is plain data of 32 bytes without padding.
        let bytes: [u8; wire::CONTROL_MAX] = unsafe { std::mem::transmute(rtr) };
        let header = Header::new(wire::RTR, 0, request.remote as u64);
        self.send_control(request.peer, header, &bytes);
    }

    /// The answer that asks a peer for fragments: it says where a single copy need not be offered again.
    pub(crate) fn choose_answer(&self, peer: u32) -> u32 {
        match self.endpoints[peer].lane.capabilities() {
            Some(c) if c.get_zcopy > 0 => SEND,
            _ => SEND_ALWAYS,
        }
    }

    /// All bytes of a long message are there.
    pub(crate) fn finish_recv(&mut self, id: RequestId) {
        if self.requests.get(id).sent_ns != 0 {
            self.learn(id);
        }
        let request = self.requests.get_mut(id);
        if request.fault == Fault::Truncated {
            request.limit = request.announced_bytes; // for the message that explains it
        }
        self.complete(id);
    }
}
