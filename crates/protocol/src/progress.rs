//! Progress: handles arrivals and advances operations.
#![allow(unsafe_code)]

use crate::matching::ANY_PEER;
use crate::request::{RequestId, RequestKind, RequestState};
use crate::unexpected::{Body, EntryId, UnexpectedKind};
use crate::wire::{self, EARLY_LIMIT, SHORT_LIMIT};
use crate::worker::Worker;
use fastpath_base::copy::{copy, copy_small};
use fastpath_base::trace::{self, Point};
use fastpath_transport::{Connection, Header};

/// Maximum number of arrivals of one peer that one round handles, so that no peer starves another.
pub(crate) const ROUND: u32 = 32;

impl Worker {
    /// Makes one round of progress. Returns whether anything happened.
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
            // If the interfaces were polled, skip resting lanes: the adapter was polled for all its peers.
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

    /// Makes one round of progress, and advances the operations of the layer above.
    pub fn progress_all(&mut self) -> bool {
        let moved = self.progress();
        moved | self.advance_operations()
    }

    #[inline]
    pub(crate) fn advance_operations(&mut self) -> bool {
        match self.hooks.on_progress {
            None => false,
            Some(go_on) => go_on(self),
        }
    }

    /// Returns a function by which another thread of the process wakes this rank.
    pub fn waker(&self) -> impl Fn() + Send + 'static {
        self.interfaces.waker()
    }

    /// Advances blocked sends and long messages.
    pub fn progress_sends(&mut self) -> bool {
        let mut moved = false;
        if !self.sends.pushing.is_empty() {
            moved |= self.push_fragments();
        }
        if self.sends.blocked_peers != 0 {
            moved |= self.flush_waiting();
        }
        moved
    }

    #[cold]
    fn flush_waiting(&mut self) -> bool {
        let mut moved = false;
        let mut next = 0;
        while let Some(&peer) = self.sends.blocked.get(next) {
            moved |= self.flush_pending(peer);
            next += usize::from(self.sends.blocked.get(next) == Some(&peer));
        }
        if self.rma.queues != 0 {
            moved |= self.progress_remote();
        }
        moved
    }

    /// Handles the arrivals of one peer.
    #[inline]
    pub fn progress_peer(&mut self, peer: u32) -> bool {
        let mut rounds = 0;
        // Only the slow path wakes a thread when its request completes, so use it if threads sleep.
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
            // Another thread may probe for the arrival, or may have to push a long message because of it.
            self.wake_sleepers();
        }
        rounds != 0
    }

    /// Handles one arrival. `data` is valid for `len` bytes, in memory that the peer may still write.
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
            wire::REMOTE_PUT..=wire::REMOTE_FLUSHED
            | wire::REMOTE_ASK..=wire::REMOTE_GET_BLOCKS => {
                self.handle_remote(peer, header, data, len)
            }
            wire::NOTICE => self.handle_notice(peer, header, data, len),
            _ => self.violation(),
        }
        trace::record(Point::Handled, 0, 0, 0);
    }

    pub(crate) fn store(&mut self, peer: u32, header: Header, from: *const u8, len: usize) {
        if len > SHORT_LIMIT {
            self.store_long(peer, header, UnexpectedKind::Eager, from, len);
            return;
        }
        trace::record(Point::Unexpected, peer, header.imm as i32, len as u64);
        let message = (peer, header.key, header.imm as i32);
        self.matcher.add_unexpected_short(message, len, |to| {
            // SAFETY: `to` has space for a short message, and `from` holds `len` bytes.
            unsafe { copy_small(to, from, len) };
        });
        self.counters.unexpected += 1;
    }

    /// Stores the first part of an unexpected message, with space for all of its eager bytes.
    pub(crate) fn store_long(
        &mut self, peer: u32, header: Header, arrived: UnexpectedKind, from: *const u8, len: usize,
    ) -> EntryId {
        trace::record(Point::Unexpected, peer, header.imm as i32, len as u64);
        let room = match arrived {
            UnexpectedKind::Rendezvous(rts) => (rts.early as usize).min(EARLY_LIMIT as usize),
            _ => len,
        };
        let mut data = self.unexpected.buffer(room.max(len));
        // SAFETY: `buffer` reserved at least `len` bytes, and `from` holds `len` bytes.
        unsafe {
            copy(data.as_mut_ptr(), from, len);
            data.set_len(len);
        }
        self.keep(peer, header, arrived, data)
    }

    pub(crate) fn keep(
        &mut self, peer: u32, header: Header, arrived: UnexpectedKind, data: Vec<u8>,
    ) -> EntryId {
        self.counters.unexpected += 1;
        let (tag, body) = (header.imm as i32, Body::Long(arrived, data));
        self.matcher.add_unexpected(peer, header.key, tag, body)
    }

    pub(crate) fn find_active(&self, key: u64, kind: RequestKind, peer: u32) -> Option<RequestId> {
        let id = self.requests.find(key)?;
        let request = self.requests.get(id);
        let right = request.kind == kind
            && request.state == RequestState::Active
            && request.peer == peer
            && request.peer != ANY_PEER;
        right.then_some(id)
    }

    #[cold]
    pub(crate) fn violation(&mut self) {
        self.counters.violations += 1;
    }
}
