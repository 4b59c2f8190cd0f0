//! Rendezvous: a long message is announced, and its receiver chooses how the rest is transferred.
//!
//! `RTS` announces the message, with the first eager bytes and an offer of other transfers ([`Offer`]). The receiver
//! copies the message alone (`get`), or sends an `RTR`. The RTR requests a copy by both sides (`cooperative`), a write
//! into the receiver's memory (`put`), or fragments (`pipelined`). Either side may decline an offer. If a transfer
//! fails in the middle of a message, the receiver requests fragments. `ATS` ends a send that needs no further step.
#![allow(unsafe_code)]

use super::pieces::Pieces;
use crate::advice::stamp_ns;
use crate::endpoint::EagerTarget;
use crate::learning::{Arm, LEARN_MIN};
use crate::plan::SendPlan;
use crate::recall::RecallMatch;
use crate::request::{Fault, MessagePhase, RequestId, RequestKind};
use crate::tag::key_source;
use crate::unexpected::UnexpectedKind;
use crate::wire::{self, Offer, RTS_HEADER, Rtr, Rts, RtsHeader, SEND, SEND_ALWAYS, Timing};
use crate::worker::Worker;
use fastpath_base::trace::{self, Point};
use fastpath_transport::{Capabilities, Connection, Header, Post, Remote};

/// Smallest message, in bytes, for which a lane prepares a stream.
const STREAM_MIN: u64 = 64 * 1024;

/// Sends the RTS and the eager bytes. If space is lacking, a later call continues, before any other message is sent.
pub(super) fn start(worker: &mut Worker, plan: &SendPlan, id: RequestId) -> Post {
    if worker.requests.get(id).phase == MessagePhase::Begun {
        match post_rts(worker, plan, id) {
            Post::Done => {}
            post => return post,
        }
    }
    let request = worker.requests.get_mut(id);
    let (early, part) = (request.early as u64, plan.part as u64);
    while request.moved < early {
        let left = early - request.moved;
        let header = Header::new(wire::EAGER_MIDDLE, 0, 0);
        let data = request.place(request.moved).map(<*mut u8>::cast_const);
        // SAFETY: the buffer is readable by the contract of `start_send`, and `to` has space for `len` bytes.
        let (post, gone) = unsafe {
            let pack = |to, len| request.pack(request.moved, to, len);
            let endpoint = &mut worker.endpoints[request.peer];
            endpoint.post_next(header, (left, part), data, pack)
        };
        match post {
            Post::Done => request.moved += gone,
            post => return post,
        }
    }
    let is_whole = request.moved == request.bytes && !request.synchronous;
    match request.phase {
        MessagePhase::Ending => worker.complete(id),
        _ if is_whole => worker.complete(id),
        MessagePhase::Pushing => worker.push_later(id),
        _ => {}
    }
    Post::Done
}

fn post_rts(worker: &mut Worker, plan: &SendPlan, id: RequestId) -> Post {
    let offer = worker.offer_message(plan, id);
    let early = match offer {
        Some(_) => 0,
        None => plan.early as u64,
    };
    let request = worker.requests.get_mut(id);
    if plan.timed {
        request.sent_ns = stamp_ns();
    }
    let (peer, bytes) = (request.peer, request.bytes);
    if early != 0 && bytes >= STREAM_MIN && !plan.crowded {
        worker.endpoints[peer].lane.prepare_stream(early);
    }
    let request = worker.requests.get_mut(id);
    let endpoint = &mut worker.endpoints[peer];
    let is_bulk = request.is_contiguous() && endpoint.lane.has_bulk();
    let first = match is_bulk {
        // Send no bytes with the RTS. The receiver can then match the message while its bytes are still arriving.
        true => 0,
        false => (plan.part as u64).min(early),
    };
    if is_bulk && early == request.bytes {
        endpoint.lane.hold_next();
    }
    let offer = offer.unwrap_or(match request.synchronous && early == request.bytes {
        true => Offer::Nothing,
        false => Offer::Fragments,
    });
    let (arm, counter, exposed) = match offer {
        Offer::Fragments | Offer::Nothing => (plan.arm as u8, None, 0),
        Offer::Get(from) if endpoint.lane.wants_exposure() => (Arm::Get as u8, None, from.rkey),
        Offer::Get(_) => (Arm::Get as u8, None, 0),
        Offer::Cooperative(_, counter) => (Arm::Cooperative as u8, Some(counter), 0),
    };
    let rts = Rts { total: request.bytes, request: request.handle, early: early as u32, offer };
    let sent_ns = request.sent_ns;
    let rts_header = RtsHeader::pack(&rts, Timing { sent_ns, arm });
    let header = Header::new(wire::RTS, request.tag as u32, request.key);
    let post = match first {
        // Without eager bytes, the RTS fits a slot. SAFETY: `rts_header` is plain data of the given size.
        0 => unsafe {
            let data = (&raw const rts_header).cast();
            endpoint.post_short(header, data, size_of::<RtsHeader>())
        },
        // SAFETY: the buffer is readable by the contract of `start_send`, and `to` has space for both parts.
        _ => endpoint.post_bcopy(header, RTS_HEADER + first as usize, |to| unsafe {
            to.cast::<RtsHeader>().write_unaligned(rts_header);
            request.pack(0, to.add(RTS_HEADER), first as usize);
        }),
    };
    let request = worker.requests.get_mut(id);
    (request.counter, request.memory.rkey) = (counter, exposed);
    if post == Post::Done {
        request.phase = MessagePhase::Announced;
        request.moved = first;
        request.early = early as u32;
        let (peer, bytes) = (request.peer, request.bytes);
        if bytes >= LEARN_MIN {
            worker.planner.count(&mut worker.endpoints[peer], bytes, plan.timed);
        }
        worker.counters.announced[worker.way_to(peer)].add(bytes);
        let request = worker.requests.get(id);
        trace::record(Point::Announced, request.peer, request.tag, first);
    } else {
        worker.withdraw_offer(id);
    }
    post
}

impl Worker {
    /// Returns the offer of an RTS for a copy without the ring; `None` if the message is sent through buffers.
    fn offer_message(&mut self, plan: &SendPlan, id: RequestId) -> Option<Offer> {
        let peer = self.requests.get(id).peer;
        if self.endpoints[peer].lane.wants_exposure() {
            return self.expose_message(id).map(Offer::Get);
        }
        let request = self.requests.get(id);
        if !request.is_contiguous() {
            return None;
        }
        let (peer, bytes) = (request.peer, request.bytes);
        // No cooperative copy if ranks share processors: its receiver would wait for the sender's time slice.
        if let Some(remote) = self.find_shared(id, peer, bytes) {
            let both = bytes >= self.planner.thresholds.cooperative && !plan.crowded;
            return Some(self.offer_copy(peer, remote, both));
        }
        let endpoint = &self.endpoints[peer];
        let can_get = |c: Capabilities| c.get_zcopy > 0;
        let single = endpoint.lane.is_self()
            || (!plan.arm.is_ring()
                && !endpoint.declines
                && endpoint.lane.capabilities().is_some_and(can_get));
        if !single {
            return None;
        }
        let both = plan.arm == Arm::Cooperative && endpoint.lane.knows_single_copy();
        Some(self.offer_copy(peer, self.name_memory(id, peer), both))
    }

    /// Withdraws the offered memory, once the receiver needs only the bytes that are sent to it.
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
        let answered =
            !matches!(request.phase, MessagePhase::Announced | MessagePhase::Cooperating);
        if answered || rtr.limit > request.bytes {
            return self.violation();
        }
        if let Some(pages) = wire::joined_pages(rtr.answer) {
            return match (Pieces::cut(rtr.limit, pages), request.counter) {
                (Some(pieces), Some(counter)) if request.phase == MessagePhase::Announced => {
                    request.phase = MessagePhase::Cooperating;
                    self.cooperate_as_sender(id, counter, &rtr, pieces)
                }
                _ => self.violation(),
            };
        }
        self.endpoints[peer].declines |= rtr.answer == SEND_ALWAYS;
        self.withdraw_offer(id);
        let request = self.requests.get_mut(id);
        request.phase = MessagePhase::Pushing;
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
            MessagePhase::Announced | MessagePhase::Cooperating => self.end_send(id),
            _ => self.violation(),
        }
    }

    pub(crate) fn end_send(&mut self, id: RequestId) {
        self.withdraw_offer(id);
        let request = self.requests.get_mut(id);
        match request.has_unsent() {
            true => request.phase = MessagePhase::Ending,
            false => self.complete(id),
        }
    }
}

impl Worker {
    pub(crate) fn handle_rts(&mut self, peer: u32, header: Header, data: *const u8, len: usize) {
        // SAFETY: `data` holds `len` bytes.
        let rts_header = unsafe { wire::read::<RtsHeader>(data, len) };
        let Some((rts, timing)) = rts_header.and_then(|a| a.unpack()) else {
            return self.violation();
        };
        if len == size_of::<RtsHeader>() {
            return self.announce(peer, header, rts, timing, data, 0);
        }
        if len < RTS_HEADER {
            return self.violation();
        }
        // SAFETY: `len` is at least `RTS_HEADER`, by the check above.
        let (data, len) = (unsafe { data.add(RTS_HEADER) }, len - RTS_HEADER);
        self.announce(peer, header, rts, timing, data, len);
    }

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
            RecallMatch::Receive(id) => {
                self.endpoints[peer].early = EagerTarget::of_request(left, id);
                self.requests.get_mut(id).time(timing);
                self.fetch(id, peer, header.key, tag, rts, data, len);
            }
            RecallMatch::TakenBack => {
                self.endpoints[peer].early = EagerTarget::of_stored(left, EagerTarget::NOWHERE);
            }
            RecallMatch::Nothing => {
                let id = self.store_long(peer, header, UnexpectedKind::Rendezvous(rts), data, len);
                self.endpoints[peer].early = EagerTarget::of_stored(left, id);
            }
        }
    }

    /// Starts the transfer of a matched message with first bytes at `first`: a single copy, or a request for the rest.
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
        // The limit includes all eager bytes, because they must be taken even if they do not fit.
        request.limit = wanted.max(early);
        request.moved = 0;
        request.remote = rts.request;
        if wanted != 0 && self.get_message(id, peer, &rts, wanted) {
            return;
        }
        // Send the RTR first, so that the sender works while the first bytes are copied.
        if wanted > early {
            let into = self.offer_room(id, peer, wanted - early);
            self.send_answer(id, self.choose_answer(peer), into);
        } else if rts.total > early || rts.offer == Offer::Nothing {
            self.send_control(peer, Header::new(wire::ATS, 0, rts.request as u64), &[]);
        }
        self.add_bytes(id, first, first_len);
    }

    pub(crate) fn send_answer(&mut self, id: RequestId, answer: u32, into: Remote) {
        let request = self.requests.get(id);
        let rtr = Rtr { limit: request.limit, request: request.handle, answer, into };
        // SAFETY: `Rtr` is plain data of 32 bytes without padding.
        let bytes: [u8; wire::CONTROL_MAX] = unsafe { std::mem::transmute(rtr) };
        let header = Header::new(wire::RTR, 0, request.remote as u64);
        self.send_control(request.peer, header, &bytes);
    }

    /// Returns the answer that requests fragments. The answer also tells the peer if single copies are impossible.
    pub(crate) fn choose_answer(&self, peer: u32) -> u32 {
        match self.endpoints[peer].lane.capabilities() {
            Some(c) if c.get_zcopy > 0 => SEND,
            _ => SEND_ALWAYS,
        }
    }

    pub(crate) fn finish_recv(&mut self, id: RequestId) {
        if self.requests.get(id).sent_ns != 0 {
            self.learn(id);
        }
        let request = self.requests.get_mut(id);
        if request.fault == Fault::Truncated {
            request.limit = request.announced_bytes; // for the text of the error
        }
        self.complete(id);
    }
}
