//! Progress: looks at what has arrived, and goes on with what was begun.
#![allow(unsafe_code)]

use crate::matching::ANY_PEER;
use crate::request::{RequestId, RequestKind, State};
use crate::unexpected::{Arrived, Body, EntryId};
use crate::wire;
use crate::worker::{EARLY_LIMIT, SHORT_LIMIT, Worker};
use fastpath_base::copy::{copy, copy_small};
use fastpath_base::trace::{self, Point};
use fastpath_transport::{Connection, Header};

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
            let lane = &mut self.endpoints[peer].lane;
            index += 1;
            // An adapter is asked once for all of its peers, and each look would ask it again.
            if !asked || !lane.is_resting() {
                moved |= self.progress_peer(peer);
            } else if lane.retire() {
                index -= 1;
                self.active.swap_remove(index);
            }
        }
        let moved = moved | self.progress_sends();
        if moved {
            trace::record(Point::Progress, 0, 0, 0);
        }
        moved
    }

    /// As [`Worker::progress`], and goes on with the operations of the layer above.
    pub fn progress_all(&mut self) -> bool {
        let moved = self.progress();
        moved | self.advance_operations()
    }

    /// Goes on with the operations of the layer above, if any are under way.
    #[inline]
    pub(crate) fn advance_operations(&mut self) -> bool {
        match self.on_progress {
            None => false,
            Some(go_on) => go_on(self),
        }
    }

    /// What wakes this rank where it sleeps, for another thread of its process that has done something for it.
    pub fn waker(&self) -> impl Fn() + Send + 'static {
        self.interfaces.waker()
    }

    /// Goes on with sends that found no room and with long messages.
    pub fn progress_sends(&mut self) -> bool {
        let mut moved = false;
        if !self.pushing.is_empty() {
            moved |= self.push_fragments();
        }
        if self.blocked_peers != 0 {
            moved |= self.flush_waiting();
        }
        moved
    }

    #[cold]
    fn flush_waiting(&mut self) -> bool {
        let mut moved = false;
        let mut next = 0;
        while let Some(&peer) = self.blocked.get(next) {
            moved |= self.flush_pending(peer);
            // A peer that is not blocked any more has left the list.
            next += usize::from(self.blocked.get(next) == Some(&peer));
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
        let alone = self.wait.sleepers.count() == self.wait.drain_at;
        while rounds < ROUND {
            if alone && self.drain_next(peer).is_some() {
                rounds += 1;
                continue;
            }
            let Some(arrival) = self.endpoints[peer].lane.look() else {
                if self.endpoints[peer].lane.find_bulk().is_some() && self.receive_bulk(peer) {
                    rounds += 1;
                    continue;
                }
                break;
            };
            let (header, data, len) = (arrival.header, arrival.data(), arrival.len());
            if self.flood.is_reached(&self.matcher) && self.leaves_waiting(peer, header) {
                break;
            }
            self.handle(peer, header, data, len);
            self.endpoints[peer].lane.take();
            rounds += 1;
        }
        if rounds == 0 {
            self.endpoints[peer].lane.offer_credits();
        } else {
            // What this thread has found may be for another one: a probed message, a long one to push.
            self.wake_sleepers();
        }
        rounds != 0
    }

    /// One arrival. `data` is valid for `len` bytes, in memory the peer may still write.
    pub(crate) fn handle(&mut self, peer: u32, header: Header, data: *const u8, len: usize) {
        trace::record(Point::Arrival, peer, header.id.into(), len as u64);
        match header.id {
            wire::EAGER => self.handle_eager(peer, header, data, len),
            wire::EAGER_SYNC => self.handle_eager_sync(peer, header, data, len),
            wire::RTS => self.handle_rts(peer, header, data, len),
            wire::EAGER_FIRST => self.handle_eager_first(peer, header, data, len),
            wire::FRAG => self.handle_fragment(peer, header, data, len),
            wire::RTR => self.handle_rtr(peer, header, data, len),
            wire::EAGER_MIDDLE => self.handle_eager_middle(peer, header, data, len),
            wire::DONE => self.handle_done(peer, header),
            wire::ATP => self.handle_atp(peer, header),
            wire::ACK | wire::ATS => self.handle_ats(peer, header),
            wire::CANCEL => self.handle_cancel(peer, header),
            wire::CANCELLED => self.handle_cancelled(peer, header),
            wire::ADVICE => self.handle_advice(peer, header),
            wire::REMOTE_PUT..=wire::REMOTE_FLUSHED | wire::REMOTE_ASK | wire::REMOTE_CHANGE => {
                self.handle_remote(peer, header, data, len)
            }
            _ => self.violation(),
        }
        trace::record(Point::Handled, 0, 0, 0);
    }

    /// Keeps a whole message that nobody waits for.
    pub(crate) fn store(&mut self, peer: u32, header: Header, from: *const u8, len: usize) {
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

    /// Keeps what has come of a message, with room for what comes by itself.
    pub(crate) fn store_long(
        &mut self, peer: u32, header: Header, arrived: Arrived, from: *const u8, len: usize,
    ) -> EntryId {
        trace::record(Point::Unexpected, peer, header.imm as i32, len as u64);
        let room = match arrived {
            Arrived::Rendezvous(rts) => (rts.early as usize).min(EARLY_LIMIT as usize),
            _ => len,
        };
        let mut data = self.unexpected.buffer(room.max(len));
        // SAFETY: `buffer` reserved `len` bytes at least; `from` holds as many.
        unsafe {
            copy(data.as_mut_ptr(), from, len);
            data.set_len(len);
        }
        self.keep(peer, header, arrived, data)
    }

    /// Keeps a message that nobody has asked for.
    pub(crate) fn keep(
        &mut self, peer: u32, header: Header, arrived: Arrived, data: Vec<u8>,
    ) -> EntryId {
        self.counters.unexpected += 1;
        let (tag, body) = (header.imm as i32, Body::Long(arrived, data));
        self.matcher.add_unexpected(peer, header.key, tag, body)
    }

    /// The active request that a peer names, if it is one with that peer.
    pub(crate) fn find_active(&self, key: u64, kind: RequestKind, peer: u32) -> Option<RequestId> {
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
