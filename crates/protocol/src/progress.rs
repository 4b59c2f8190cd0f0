//! Progress: looks at what has arrived, and goes on with what was begun.
#![allow(unsafe_code)]

use crate::endpoint::Early;
use crate::matching::ANY_PEER;
use crate::pieces::Pieces;
use crate::recall::Matched;
use crate::request::{Kind, Phase, RequestId, State};
use crate::unexpected::{Arrived, Body, EntryId};
use crate::wire::{self, Announcement, RTS_HEADER, Rtr, Rts, SEND_ALWAYS, SYNC_HEADER, Timing};
use crate::worker::{SHORT_LIMIT, Worker};
use fastpath_base::copy::{copy, copy_small};
use fastpath_base::trace::{self, Point};
use fastpath_transport::Header;

/// Arrivals of one peer handled in one round, so that no peer starves another.
const ROUND: u32 = 32;

impl Worker {
    /// One round over everything alive; says whether anything happened.
    pub fn progress(&mut self) -> bool {
        let mut moved = false;
        self.flood.held_back = false;
        let asked = self.interfaces.has_news();
        if asked {
            moved |= self.progress_interfaces();
        }
        let mut index = 0;
        while index < self.active.len() {
            let peer = self.active[index];
            index += 1;
            // An adapter is asked once for all of its peers, and each look would ask it again.
            if asked && self.endpoint(peer).lane.is_resting() {
                continue;
            }
            moved |= self.progress_peer(peer);
        }
        let moved = moved | self.progress_sends();
        if moved {
            trace::record(Point::Progress, 0, 0, 0);
        }
        moved
    }

    /// Goes on with sends that found no room and with long messages.
    pub fn progress_sends(&mut self) -> bool {
        let mut moved = false;
        if !self.pushing.is_empty() {
            moved |= self.push_fragments();
        }
        if self.gated != 0 {
            moved |= self.flush_waiting();
        }
        moved
    }

    #[cold]
    fn flush_waiting(&mut self) -> bool {
        let mut moved = false;
        for peer in 0..self.size() {
            if self.endpoint(peer).gate != 0 {
                moved |= self.flush_pending(peer);
            }
        }
        if self.rma.queues != 0 {
            moved |= self.progress_remote();
        }
        moved
    }

    /// Handles what has arrived from one peer, and looks at no other.
    #[inline]
    pub fn progress_peer(&mut self, peer: u32) -> bool {
        let mut rounds = 0;
        // Threads of this process that sleep must be woken when a request completes: the long way does that.
        let alone = self.wait.sleepers == self.wait.drain_at;
        while rounds < ROUND {
            if alone && self.drain_one(peer) {
                rounds += 1;
                continue;
            }
            let Some(arrival) = self.endpoint(peer).lane.look() else {
                break;
            };
            let (header, data, len) = (arrival.header, arrival.data(), arrival.len());
            if self.flood.is_reached(&self.matcher) && self.leaves_waiting(peer, header) {
                break;
            }
            self.handle(peer, header, data, len);
            self.endpoint(peer).lane.take();
            rounds += 1;
        }
        if rounds == 0 {
            self.endpoint(peer).lane.return_credits();
        } else if self.wait.sleepers != 0 {
            // What this thread has found may be for another one: a probed message, a long one to push.
            self.wait.rouse_own(self.job);
        }
        rounds != 0
    }

    /// One arrival. `data` is valid for `len` bytes, in memory the peer may still write.
    pub(crate) fn handle(&mut self, peer: u32, header: Header, data: *const u8, len: usize) {
        trace::record(Point::Arrival, peer, header.id.into(), len as u64);
        match header.id {
            wire::EAGER => self.handle_eager(peer, header, data, len),
            wire::EAGER_SYNC => self.handle_eager_sync(peer, header, data, len),
            wire::RTS => self.handle_announcement(peer, header, data, len),
            wire::PARTS => self.handle_parts(peer, header, data, len),
            wire::FRAG => self.handle_fragment(peer, header, data, len),
            wire::RTR => self.handle_go(peer, header, data, len),
            wire::EARLY => self.handle_early(peer, data, len),
            wire::DONE => self.handle_done(peer, header),
            wire::PUT => self.handle_put(peer, header),
            wire::ACK | wire::FIN => self.handle_matched(peer, header),
            wire::CANCEL => self.handle_cancel(peer, header),
            wire::CANCELLED => self.handle_cancelled(peer, header),
            wire::ADVICE => self.handle_advice(peer, header),
            wire::REMOTE_PUT..=wire::REMOTE_FLUSHED => self.handle_remote(peer, header, data, len),
            _ => self.violation(),
        }
        trace::record(Point::Handled, 0, 0, 0);
    }

    fn handle_eager(&mut self, peer: u32, header: Header, data: *const u8, len: usize) {
        let tag = header.imm as i32;
        match self.matcher.match_arrival(peer, header.key, tag) {
            Some(id) => self.deliver(id, header.key, tag, data, len),
            None => self.store(peer, header, data, len),
        }
    }

    fn handle_eager_sync(&mut self, peer: u32, header: Header, data: *const u8, len: usize) {
        // SAFETY: `data` holds `len` bytes.
        let Some(sender) = (unsafe { wire::read::<u64>(data, len) }) else {
            return self.violation();
        };
        // SAFETY: `len` is at least the header's, as `read` found.
        let (data, len) = (unsafe { data.add(SYNC_HEADER) }, len - SYNC_HEADER);
        let tag = header.imm as i32;
        match self.match_announced(peer, header.key, tag, Some(sender as u32)) {
            Matched::Receive(id) => {
                self.deliver(id, header.key, tag, data, len);
                self.send_control(peer, Header::new(wire::ACK, 0, sender), &[]);
            }
            Matched::Nothing => {
                let arrived = Arrived::EagerSync(sender as u32);
                self.store_long(peer, header, arrived, data, len);
            }
            Matched::TakenBack => {}
        }
    }

    fn handle_announcement(&mut self, peer: u32, header: Header, data: *const u8, len: usize) {
        // SAFETY: `data` holds `len` bytes.
        let announcement = unsafe { wire::read::<Announcement>(data, len) };
        let Some((rts, timing)) = announcement.and_then(|a| a.unpack()) else {
            return self.violation();
        };
        if rts.early == 0 && len == size_of::<Announcement>() {
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

    fn handle_parts(&mut self, peer: u32, header: Header, data: *const u8, len: usize) {
        if len == 0 {
            return self.violation();
        }
        let rts = Rts::of_parts(header.aux);
        self.announce(peer, header, rts, Timing::default(), data, len);
    }

    /// A message of which the first `len` bytes are there.
    fn announce(
        &mut self,
        peer: u32,
        header: Header,
        rts: Rts,
        timing: Timing,
        data: *const u8,
        len: usize,
    ) {
        let early = rts.early as usize;
        if len > early || self.endpoint(peer).early.left != 0 {
            return self.violation();
        }
        let left = (early - len) as u32;
        let tag = header.imm as i32;
        match self.match_announced(peer, header.key, tag, rts.announced_by()) {
            Matched::Receive(id) => {
                self.endpoint(peer).early = Early {
                    left,
                    stored: false,
                    id,
                };
                self.requests.get(id).time(timing);
                self.fetch(id, peer, header.key, tag, rts, data, len);
            }
            Matched::TakenBack => {
                self.endpoint(peer).early = Early {
                    left,
                    stored: true,
                    id: Early::NOWHERE,
                };
            }
            Matched::Nothing => {
                let id = self.store_long(peer, header, Arrived::Rendezvous(rts), data, len);
                self.endpoint(peer).early = Early {
                    left,
                    stored: true,
                    id,
                };
            }
        }
    }

    /// More of the message that the peer announced last.
    fn handle_early(&mut self, peer: u32, data: *const u8, len: usize) {
        let early = &mut self.endpoint(peer).early;
        if len as u64 > early.left as u64 || len == 0 {
            return self.violation();
        }
        early.left -= len as u32;
        let (stored, id) = (early.stored, early.id);
        if !stored {
            return self.add_bytes(id, data, len);
        }
        // SAFETY: `data` holds `len` bytes.
        let bytes = unsafe { std::slice::from_raw_parts(data, len) };
        if id != Early::NOWHERE && !self.matcher.store.extend(id, bytes) {
            self.violation();
        }
    }

    /// The sender has done its part of a joint copy.
    fn handle_done(&mut self, peer: u32, header: Header) {
        match self.find_active(header.key, Kind::Recv, peer) {
            Some(id) => match self.requests.get(id).phase {
                Phase::Cooperating => self.end_joint_copy(id, header.imm != 0),
                Phase::FellBack => {}
                _ => self.violation(),
            },
            None => self.violation(),
        }
    }

    /// The sender has written the rest of a message where it was told to.
    fn handle_put(&mut self, peer: u32, header: Header) {
        let Some(id) = self.find_active(header.key, Kind::Recv, peer) else {
            return self.violation();
        };
        let request = self.requests.get(id);
        if !self.takes_bytes(peer, id) {
            return self.violation();
        }
        request.moved = request.limit;
        request.received = request.limit.min(request.bytes);
        self.finish_recv(id);
    }

    /// Keeps a whole message that nobody waits for.
    fn store(&mut self, peer: u32, header: Header, from: *const u8, len: usize) {
        if len > SHORT_LIMIT {
            self.store_long(peer, header, Arrived::Eager, from, len);
            return;
        }
        trace::record(Point::Unexpected, peer, header.imm as i32, len as u64);
        let message = (peer, header.key, header.imm as i32);
        self.matcher.add_unexpected_short(message, len, |to| {
            // SAFETY: there is room for a short message; `from` holds `len` bytes.
            unsafe { copy_small(to, from, len) };
        });
        self.counters.unexpected += 1;
    }

    fn store_long(
        &mut self,
        peer: u32,
        header: Header,
        arrived: Arrived,
        from: *const u8,
        len: usize,
    ) -> EntryId {
        trace::record(Point::Unexpected, peer, header.imm as i32, len as u64);
        let mut data = self.unexpected.buffer(len);
        // SAFETY: `buffer` reserved `len` bytes; `from` holds as many.
        unsafe {
            copy(data.as_mut_ptr(), from, len);
            data.set_len(len);
        }
        self.keep(peer, header, arrived, data)
    }

    /// Keeps a message that nobody has asked for.
    pub(crate) fn keep(
        &mut self,
        peer: u32,
        header: Header,
        arrived: Arrived,
        data: Vec<u8>,
    ) -> EntryId {
        self.counters.unexpected += 1;
        let (tag, body) = (header.imm as i32, Body::Long(arrived, data));
        self.matcher.add_unexpected(peer, header.key, tag, body)
    }

    fn handle_fragment(&mut self, peer: u32, header: Header, data: *const u8, len: usize) {
        let Some(id) = self.find_active(header.key, Kind::Recv, peer) else {
            return self.violation();
        };
        let request = self.requests.get(id);
        let fits = len as u64 <= request.limit.saturating_sub(request.moved);
        if !fits || !self.takes_bytes(peer, id) {
            return self.violation();
        }
        self.add_bytes(id, data, len);
    }

    fn handle_go(&mut self, peer: u32, header: Header, data: *const u8, len: usize) {
        // SAFETY: `data` holds `len` bytes.
        let rtr = unsafe { wire::read::<Rtr>(data, len) };
        let (Some(rtr), Some(id)) = (rtr, self.find_active(header.key, Kind::Send, peer)) else {
            return self.violation();
        };
        let request = self.requests.get(id);
        let answered = !matches!(request.phase, Phase::Announced | Phase::Cooperating);
        if answered || rtr.limit > request.bytes {
            return self.violation();
        }
        if let Some(pages) = wire::joined_pages(rtr.answer) {
            return match (Pieces::cut(rtr.limit, pages), request.counter) {
                (Some(pieces), Some(counter)) if request.phase == Phase::Announced => {
                    request.phase = Phase::Cooperating;
                    self.copy_jointly(id, counter, &rtr, pieces)
                }
                _ => self.violation(),
            };
        }
        self.endpoint(peer).declines |= rtr.answer == SEND_ALWAYS;
        self.withdraw_offer(id);
        let request = self.requests.get(id);
        request.phase = Phase::Pushing;
        request.limit = rtr.limit;
        request.remote = rtr.request;
        if rtr.rkey != 0 && self.put_directly(id, &rtr) {
            self.complete(id);
        } else if !self.requests.get(id).has_unsent() {
            self.pushing.push(id);
        }
    }

    fn handle_matched(&mut self, peer: u32, header: Header) {
        let Some(id) = self.find_active(header.key, Kind::Send, peer) else {
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
        let request = self.requests.get(id);
        match request.has_unsent() {
            true => request.phase = Phase::Ending,
            false => self.complete(id),
        }
    }

    /// Whether a receive takes bytes that it has asked for. One that is posted has neither limit nor progress: what stands
    /// there is of its last life.
    fn takes_bytes(&self, peer: u32, id: RequestId) -> bool {
        let phase = self.requests.get(id).phase;
        matches!(phase, Phase::Begun | Phase::FellBack) && !self.awaits_early(peer, id)
    }

    /// Whether bytes of a receive are still to come by themselves. It must not end before: they would
    /// go to a buffer that is its user's again.
    pub(crate) fn awaits_early(&self, peer: u32, id: RequestId) -> bool {
        let early = &self.endpoint(peer).early;
        early.left > 0 && !early.stored && early.id == id
    }

    /// The active request that a peer names, if it is one with that peer.
    pub(crate) fn find_active(&self, key: u64, kind: Kind, peer: u32) -> Option<RequestId> {
        let id = self.requests.find(key)?;
        let request = self.requests.get(id);
        let right = request.kind == kind
            && request.state == State::Active
            && request.peer == peer
            && request.peer != ANY_PEER;
        right.then_some(id)
    }

    #[cold]
    pub(crate) fn violation(&mut self) {
        self.counters.violations += 1;
    }
}
