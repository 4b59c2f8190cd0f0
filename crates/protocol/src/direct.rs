//! Long messages that do not go through the transport's buffers: the receiver fetches them from the
//! sender's memory, the sender writes them into the receiver's, or both do at once (a joint copy).
//!
//! The memory is reached by load and store where it is shared, else by the kernel's single copy. Either
//! side may decline what the other offers, and a way that stops working in the middle of a message
//! ends in the same place: the receiver asks for fragments.
#![allow(unsafe_code)]

use crate::learning::Arm;
use crate::pieces::{End, Pieces};
use crate::request::{Phase, RequestId};
use crate::wire::{self, Offer, Rtr, Rts, SEND, SEND_ALWAYS};
use crate::worker::Worker;
use fastpath_base::trace::{self, Point};
use fastpath_transport::{Capabilities, Header, Remote};

/// Names no memory.
const NOWHERE: Remote = Remote { addr: 0, rkey: 0 };

impl Worker {
    /// Whether messages of `len` bytes at `address` are read by their receivers directly.
    #[inline]
    pub(crate) fn is_read_directly(&self, address: usize, len: u64) -> bool {
        let arena = &self.interfaces.arena;
        len >= self.thresholds.direct && !arena.is_empty() && arena.find(address, len).is_some()
    }

    /// The memory of a contiguous request where its peer can reach it by load and store.
    fn find_shared(&self, id: RequestId, peer: u32, len: u64) -> Option<Remote> {
        let address = self.requests.get(id).ptr.expose_provenance();
        let lane = &self.endpoint(peer).lane;
        let arena = &self.interfaces.arena;
        match len >= self.thresholds.direct {
            true => lane.share_memory(arena, address, len),
            false => None,
        }
    }

    /// The memory of a contiguous request for copies by the kernel.
    fn name_memory(&self, id: RequestId, peer: u32) -> Remote {
        let addr = self.requests.get(id).ptr.expose_provenance() as u64;
        let rkey = self.endpoint(peer).lane.memory_key();
        Remote { addr, rkey }
    }

    /// What an announcement offers to be copied without the ring; `None`: it is to be sent through buffers.
    pub(crate) fn offer_message(&mut self, id: RequestId) -> Option<Offer> {
        let peer = self.requests.get(id).peer;
        if self.endpoint(peer).lane.wants_exposure() {
            return self.expose_message(id).map(Offer::Get);
        }
        let request = self.requests.get(id);
        if !request.is_contiguous() {
            return None;
        }
        let (peer, arm, bytes) = (request.peer, Arm::of(request.arm), request.bytes);
        // On a crowded node the receiver of a cooperative copy would wait for its sender's turn.
        if let Some(remote) = self.find_shared(id, peer, bytes) {
            let both = bytes >= self.thresholds.direct_joint && !self.is_crowded();
            return Some(self.offer_copy(peer, remote, both));
        }
        let endpoint = self.endpoint(peer);
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

    fn offer_copy(&mut self, peer: u32, from: Remote, both: bool) -> Offer {
        let counter = both.then(|| self.endpoint(peer).lane.open_joint());
        match counter.flatten() {
            Some(counter) => Offer::Cooperative(from, counter as u8),
            None => Offer::Get(from),
        }
    }

    /// Shows a message to its receiver, which fetches it by an adapter.
    fn expose_message(&mut self, id: RequestId) -> Option<Remote> {
        let request = self.requests.get(id);
        let endpoint = self.endpoint(request.peer);
        if request.bytes < self.thresholds.fetch || !request.is_contiguous() || endpoint.declines {
            return None;
        }
        // SAFETY: the buffer is there until the request completes, and `withdraw_offer` comes before that.
        unsafe { endpoint.lane.expose(request.ptr, request.bytes as usize) }
    }

    /// The receiver needs no more of an announced message than what it is sent.
    pub(crate) fn withdraw_offer(&mut self, id: RequestId) {
        let request = self.requests.get(id);
        if let Some(counter) = request.counter.take() {
            self.endpoint(request.peer).lane.close_joint(counter as u32);
        }
        let key = std::mem::take(&mut request.memory.rkey);
        if key != 0 {
            self.endpoint(request.peer).lane.conceal(key);
        }
    }

    /// The answer that asks a peer for fragments: it says where a single copy need not be offered again.
    pub(crate) fn choose_answer(&self, peer: u32) -> u32 {
        match self.endpoint(peer).lane.capabilities() {
            Some(c) if c.get_zcopy > 0 => SEND,
            _ => SEND_ALWAYS,
        }
    }

    /// A message that was offered: by one copy, which this side makes alone, or both at once where the
    /// sender has opened a joint copy.
    pub(crate) fn fetch_directly(
        &mut self,
        id: RequestId,
        peer: u32,
        rts: &Rts,
        wanted: u64,
    ) -> bool {
        let (from, counter) = match rts.offer {
            Offer::Get(from) => (from, None),
            Offer::Cooperative(from, counter) => (from, Some(counter)),
            Offer::Fragments | Offer::Nothing => return false,
        };
        let request = self.requests.get(id);
        let lane = &mut self.endpoint(peer).lane;
        let shared = lane.is_shared(&from);
        if shared && self.thresholds.direct == u64::MAX {
            return false;
        }
        let contiguous = request.is_contiguous();
        if let (true, Some(counter)) = (contiguous, counter) {
            let own = self.find_shared(id, peer, wanted);
            if own.is_some() || lane.knows_single_copy() {
                let own = own.unwrap_or_else(|| self.name_memory(id, peer));
                let sender = rts.request;
                self.fetch_jointly(id, peer, sender, (from, counter), wanted, own);
                return true;
            }
        }
        let (begins, ends) = match lane.wants_exposure() {
            true => (Point::Read, Point::ReadDone),
            false => (Point::Copy, Point::Copied),
        };
        if shared || contiguous {
            trace::record(begins, peer, 0, wanted);
        }
        let fetched = if shared {
            let mut at = 0;
            lane.visit_shared(from, wanted as usize, |from, part| {
                // SAFETY: the stretches are `wanted` bytes in all, for which the buffer has room.
                unsafe { request.unpack(at, from, part) };
                at += part as u64;
            })
            .is_ok()
        } else {
            // SAFETY: the contiguous buffer has room for `wanted` bytes.
            contiguous && unsafe { lane.get(request.ptr, wanted as usize, from) }.is_ok()
        };
        if shared || contiguous {
            trace::record(ends, 0, 0, 0);
        }
        if fetched {
            self.end_fetch(id, peer, rts.request, wanted, shared);
        }
        fetched
    }

    /// Both sides copy, from both ends.
    fn fetch_jointly(
        &mut self,
        id: RequestId,
        peer: u32,
        sender: u32,
        (start, counter): (Remote, u8),
        wanted: u64,
        own: Remote,
    ) {
        let request = self.requests.get(id);
        request.phase = Phase::Cooperating;
        request.limit = wanted;
        request.remote = sender;
        request.memory = start;
        let (addr, rkey, handle) = (own.addr, own.rkey, request.handle);
        let pieces = Pieces::of(wanted, self.thresholds.piece_min, self.thresholds.piece_max);
        self.send_answer(
            peer,
            sender,
            &Rtr {
                limit: wanted,
                request: handle,
                answer: wire::join(pieces.pages()),
                addr,
                rkey,
            },
        );
        let request = self.requests.get(id);
        let lane = &mut self.endpoint(peer).lane;
        let (mut claimed, end) = (0, End::of(self.rank, peer));
        // The counter lies in shared memory: a peer that turns it back ends nothing but its own message.
        while claimed < pieces.count && lane.claim_joint(counter as u32, false) < pieces.count {
            let (offset, len) = pieces.from(end, claimed);
            claimed += 1;
            let from = Remote {
                addr: start.addr.wrapping_add(offset),
                ..start
            };
            trace::record(Point::Copy, peer, 0, len);
            // SAFETY: the receive buffer holds `wanted` bytes.
            let got = unsafe { lane.get(request.ptr.add(offset as usize), len as usize, from) };
            trace::record(Point::Copied, 0, 0, 0);
            if got.is_err() {
                return self.ask_for_fragments(id);
            }
        }
        // Otherwise the sender has claimed the rest, and says `DONE` when it is there.
        if claimed >= pieces.count {
            let shared = lane.is_shared(&start);
            self.end_fetch(id, peer, sender, wanted, shared);
        }
    }

    /// The sender has done its part of a joint copy, or could not.
    pub(crate) fn end_joint_copy(&mut self, id: RequestId, failed: bool) {
        let request = self.requests.get(id);
        let (peer, sender, limit) = (request.peer, request.remote, request.limit);
        let start = request.memory;
        let lane = &mut self.endpoint(peer).lane;
        if failed {
            // Rare: what is there already comes again.
            // SAFETY: the receive buffer holds `limit` bytes.
            if unsafe { lane.get(request.ptr, limit as usize, start) }.is_err() {
                return self.ask_for_fragments(id);
            }
        }
        let shared = lane.is_shared(&start);
        self.end_fetch(id, peer, sender, limit, shared);
    }

    /// A direct way has stopped working in the middle of a message: all of it comes in fragments. What
    /// the sender still says of its part of the joint copy is not listened to.
    #[cold]
    fn ask_for_fragments(&mut self, id: RequestId) {
        let request = self.requests.get(id);
        request.phase = Phase::FellBack;
        request.moved = 0;
        let (peer, sender, limit, handle) =
            (request.peer, request.remote, request.limit, request.handle);
        let answer = self.choose_answer(peer);
        self.send_answer(
            peer,
            sender,
            &Rtr {
                limit,
                request: handle,
                answer,
                addr: 0,
                rkey: 0,
            },
        );
    }

    fn end_fetch(&mut self, id: RequestId, peer: u32, sender: u32, bytes: u64, shared: bool) {
        let request = self.requests.get(id);
        request.moved = bytes;
        request.received = bytes;
        match shared {
            true => self.counters.direct_reads += 1,
            false => self.counters.single_copies += 1,
        }
        self.send_control(peer, Header::new(wire::FIN, 0, sender as u64), &[]);
        self.finish_recv(id);
    }

    /// Copies pieces of a joint copy from the end that is this side's, until the receiver's are met; then says so.
    pub(crate) fn copy_jointly(&mut self, id: RequestId, counter: u8, rtr: &Rtr, pieces: Pieces) {
        let request = self.requests.get(id);
        let end = End::of(self.rank, request.peer);
        let lane = &mut self.endpoint(request.peer).lane;
        let (mut claimed, mut failed) = (0, false);
        while claimed < pieces.count
            && !failed
            && lane.claim_joint(counter as u32, true) < pieces.count
        {
            let (offset, len) = pieces.from(end, claimed);
            claimed += 1;
            let to = Remote {
                addr: rtr.addr.wrapping_add(offset),
                rkey: rtr.rkey,
            };
            trace::record(Point::Copy, request.peer, 0, len);
            // SAFETY: the send buffer holds `bytes`, of which `limit` is no more.
            failed =
                unsafe { lane.put(request.ptr.add(offset as usize), len as usize, to) }.is_err();
            trace::record(Point::Copied, 0, 0, 0);
        }
        if claimed > 0 {
            let (peer, header) = (
                request.peer,
                Header::new(wire::DONE, failed as u32, rtr.request as u64),
            );
            self.send_control(peer, header, &[]);
        }
    }

    /// Where the sender may write what does not come by itself, for an answer that asks for it.
    pub(crate) fn offer_room(&self, id: RequestId, peer: u32, missing: u64) -> Remote {
        let request = self.requests.get(id);
        if !request.is_contiguous() || missing < self.thresholds.direct {
            return NOWHERE;
        }
        self.find_shared(id, peer, request.limit).unwrap_or(NOWHERE)
    }

    /// Writes the rest of a message into the receiver's memory, where that is offered, and says so.
    /// False where nothing of it was done: it goes through buffers.
    pub(crate) fn put_directly(&mut self, id: RequestId, rtr: &Rtr) -> bool {
        let request = self.requests.get(id);
        let lane = &mut self.endpoint(request.peer).lane;
        let start = Remote {
            addr: rtr.addr,
            rkey: rtr.rkey,
        };
        let rest = rtr.limit.saturating_sub(request.moved);
        if !lane.is_shared(&start)
            || self.thresholds.direct == u64::MAX
            || request.moved < request.early as u64
        {
            return false;
        }
        let Some(addr) = rtr.addr.checked_add(request.moved) else {
            return false;
        };
        let mut at = request.moved;
        let put = lane.visit_shared(Remote { addr, ..start }, rest as usize, |to, part| {
            // SAFETY: the send buffer holds `limit` bytes; the stretch is mapped.
            unsafe { request.pack(at, to, part) };
            at += part as u64;
        });
        if put.is_err() {
            return false;
        }
        self.counters.direct_writes += 1;
        let peer = request.peer;
        self.send_control(peer, Header::new(wire::PUT, 0, rtr.request as u64), &[]);
        true
    }
}
