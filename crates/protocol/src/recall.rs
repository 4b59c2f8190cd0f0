//! Cancelling sends (MPI-5.0 section 3.8.4): an announced message is taken back if its receiver has not matched it.
//!
//! `MPI_Wait` for a cancelled send must return whatever the receiver does. So within a node the sender decides alone,
//! in shared memory (`transport::shm::recall`), and tells the receiver to forget the message. Elsewhere, and where that
//! does not come to a decision, it asks the receiver. What has left without a request is not taken back: it was sent.
#![allow(unsafe_code)]

use crate::buffer::Buffer;
use crate::endpoint::{Early, Pending};
use crate::matching::{EntryId, Want};
use crate::request::{Phase, Request, RequestId, RequestKind, State};
use crate::selection::thresholds::BULK_EARLY;
use crate::wire;
use crate::worker::{EARLY_LIMIT, Worker};
use fastpath_transport::Header;
use std::sync::LazyLock;

/// What an arrival that its sender may take back has found.
pub(crate) enum Matched {
    /// A receive, which is its own now.
    Receive(RequestId),
    /// No receive.
    Nothing,
    /// The message was taken back.
    TakenBack,
}

/// A cancelled send whose message the receiver may still have: its request must not name another one yet.
pub(crate) struct Recalled {
    id: RequestId,
    /// Of the entry in shared memory.
    entry: usize,
    /// Whether the owner has let the request go.
    released: bool,
}

/// What the rest of a message is sent from when its own buffer is the user's again: zeros, as many as go by themselves.
static NOTHING: LazyLock<Box<[u8]>> = LazyLock::new(|| vec![0; BULK_EARLY as usize].into());
const _: () = assert!(BULK_EARLY >= EARLY_LIMIT);

/// The receiver.
impl Worker {
    /// Finds the receive for an arrival and claims the message of the peer's request for it.
    #[inline]
    pub(crate) fn match_announced(
        &mut self, peer: u32, key: u64, tag: i32, request: Option<u32>,
    ) -> Matched {
        let Some(found) = self.matcher.find_posted(peer, key, tag) else {
            return Matched::Nothing;
        };
        if request.is_some_and(|request| !self.claim(peer, request)) {
            return Matched::TakenBack;
        }
        // SAFETY: posted, as just found.
        unsafe {
            self.matcher.unpost(found);
            Matched::Receive((*found).id())
        }
    }

    #[inline]
    fn claim(&self, peer: u32, request: u32) -> bool {
        let endpoint = &self.endpoints[peer];
        endpoint.lane.claim(request, endpoint.blocked == 0 && self.probed == 0)
    }

    /// The earliest unexpected message that satisfies `want`, taken out of matching.
    pub(crate) fn claim_unexpected(&mut self, want: &Want) -> Option<EntryId> {
        loop {
            let id = self.matcher.find_unexpected(want)?;
            let message = self.matcher.unexpected(id);
            let announced = message.announced_by();
            if announced.is_none_or(|request| self.claim(message.peer, request)) {
                self.matcher.remove_unexpected(id);
                return Some(id);
            }
            self.discard(id);
        }
    }

    /// The earliest unexpected message that satisfies `want`, left where it is.
    pub(crate) fn find_unexpected(&mut self, want: &Want) -> Option<EntryId> {
        loop {
            let id = self.matcher.find_unexpected(want)?;
            let message = self.matcher.unexpected(id);
            let recalls = self.endpoints[message.peer].lane.received_recalls();
            let taken_back = match (message.announced_by(), recalls) {
                (Some(request), Some(recalls)) => recalls.is_taken_back(request),
                _ => false,
            };
            if !taken_back {
                return Some(id);
            }
            self.discard(id);
        }
    }

    /// Removes an unexpected message that was taken back.
    #[cold]
    #[inline(never)]
    fn discard(&mut self, id: EntryId) {
        self.matcher.remove_unexpected(id);
        let early = &mut self.endpoints[self.matcher.unexpected(id).peer].early;
        if early.left > 0 && early.stored && early.id == id {
            early.id = Early::NOWHERE;
        }
        self.free_unexpected(id);
    }

    /// Frees an unexpected message that was taken out of matching.
    #[inline]
    pub(crate) fn free_unexpected(&mut self, id: EntryId) {
        if let Some(data) = self.matcher.store.free(id) {
            self.unexpected.recycle(data);
        }
    }

    /// Removes the message that a peer's request has announced, if nothing has matched it.
    fn discard_announced(&mut self, peer: u32, request: u32) -> bool {
        let is_it = |id: &EntryId| self.matcher.unexpected(*id).announced_by() == Some(request);
        let found = self.matcher.unexpected_of(peer).find(is_it);
        found.map(|id| self.discard(id)).is_some()
    }

    #[cold]
    pub(crate) fn handle_cancel(&mut self, peer: u32, header: Header) {
        let request = header.key as u32;
        let found = self.discard_announced(peer, request);
        if header.imm != 0 {
            if found {
                self.send_control(peer, Header::new(wire::CANCELLED, 0, header.key), &[]);
            }
        } else if let Some(recalls) = self.endpoints[peer].lane.received_recalls() {
            recalls.forget(request);
        }
    }
}

/// The sender.
impl Worker {
    /// Takes back a send that its receiver has not matched; one that it has matched goes on. The answer may follow,
    /// where the receiver must be asked.
    pub fn cancel_send(&mut self, id: RequestId) {
        self.reap_recalled();
        let request = self.requests.get(id);
        if request.kind != RequestKind::Send || request.state != State::Active {
            return;
        }
        let (peer, handle) = (request.peer, request.handle);
        if request.phase == Phase::Begun {
            return self.cancel_waiting(id);
        }
        if request.is_unanswered() {
            return;
        }
        if peer == self.rank {
            self.take_arrivals();
            if self.is_unmatched(id) && self.discard_announced(peer, handle) {
                self.end_cancelled(id);
            }
        } else if !self.recall(id) && self.is_unmatched(id) {
            self.send_control(peer, Header::new(wire::CANCEL, 1, handle as u64), &[]);
        }
    }

    fn is_unmatched(&self, id: RequestId) -> bool {
        let request = self.requests.get(id);
        request.state == State::Active && request.is_unmatched_send()
    }

    /// Hands a message that is on its way, in part, over to a request without an owner, whose `buffer` has a copy of
    /// it: the first one completes, whatever the receiver does. `None` where there is no such message.
    pub fn hand_over(
        &mut self, id: RequestId, copy: impl FnOnce(&Request) -> Buffer,
    ) -> Option<RequestId> {
        let request = self.requests.get(id);
        if request.state != State::Active
            || request.phase == Phase::Begun
            || !request.is_unanswered()
            || !self.requests.has_room()
        {
            return None;
        }
        let heir = self.pass_on(id, copy(request))?;
        self.complete(id);
        Some(heir)
    }

    /// Lets a new request without an owner send what of a message goes by itself and has not left, from `buffer`.
    fn pass_on(&mut self, id: RequestId, buffer: Buffer) -> Option<RequestId> {
        let heir = self.requests.allocate(RequestKind::Send)?;
        let [request, new] = self.requests.pair(id, heir);
        new.set_buffer(buffer);
        (new.peer, new.key, new.tag, new.user) =
            (request.peer, request.key, request.tag, request.user);
        (new.phase, new.detached) = (Phase::Announced, true);
        (new.moved, new.early) = (request.moved, request.early);
        (new.counter, new.memory.rkey) = (None, 0);
        let queue = self.endpoints[new.peer].pending.as_deref_mut();
        for pending in queue.into_iter().flatten() {
            if let Pending::Start(waiting) = pending
                && *waiting == id
            {
                *waiting = heir;
            }
        }
        Some(heir)
    }

    /// A send that still waits for room.
    fn cancel_waiting(&mut self, id: RequestId) {
        let peer = self.requests.get(id).peer;
        let Some(queue) = self.endpoints[peer].pending.as_mut() else {
            return;
        };
        let is_it =
            |pending: &Pending| matches!(pending, Pending::Start(waiting) if *waiting == id);
        if let Some(place) = queue.iter().position(is_it) {
            // The endpoint is unblocked by the next progress, as after any other.
            queue.remove(place);
            self.end_cancelled(id);
        }
    }

    /// Takes a message back without its receiver, where both share memory; false where that was not decided, or the
    /// receiver was first.
    fn recall(&mut self, id: RequestId) -> bool {
        let request = self.requests.get(id);
        let (peer, handle) = (request.peer, request.handle);
        if !self.requests.has_room() {
            return false;
        }
        let asked = |worker: &Worker| worker.endpoints[peer].lane.sent_recalls()?.ask(handle);
        let Some(entry) = asked(self) else {
            return false;
        };
        // An answer to it may be there.
        self.take_arrivals();
        let take_back = self.is_unmatched(id);
        let recalls = self.endpoints[peer].lane.sent_recalls();
        if !recalls.is_some_and(|recalls| recalls.decide(entry, handle, take_back)) {
            return false;
        }
        let request = self.requests.get(id);
        if request.has_unsent() {
            // The rest of what goes by itself must still go: the receiver counts on it.
            let buffer = Buffer::contiguous(NOTHING.as_ptr().cast_mut(), request.early as u64);
            self.pass_on(id, buffer);
        }
        self.send_control(peer, Header::new(wire::CANCEL, 0, handle as u64), &[]);
        self.recalled.push(Recalled { id, entry, released: false });
        self.requests.get_mut(id).cancelled = true;
        self.withdraw_offer(id);
        self.complete(id);
        true
    }

    #[cold]
    pub(crate) fn handle_cancelled(&mut self, peer: u32, header: Header) {
        match self.find_active(header.key, RequestKind::Send, peer) {
            Some(id) if self.requests.get(id).is_unmatched_send() => self.end_cancelled(id),
            _ => self.violation(),
        }
    }

    /// Ends a send that its receiver has let go of.
    fn end_cancelled(&mut self, id: RequestId) {
        let request = self.requests.get_mut(id);
        request.cancelled = true;
        match request.phase {
            Phase::Begun => self.complete(id),
            _ => self.end_send(id),
        }
    }

    /// Frees the request of a cancelled send, now or when its receiver has forgotten the message.
    pub fn release_cancelled(&mut self, id: RequestId) {
        match self.recalled.iter_mut().find(|recalled| recalled.id == id) {
            Some(recalled) => recalled.released = true,
            None => self.requests.free(id),
        }
        self.reap_recalled();
    }

    fn reap_recalled(&mut self) {
        let mut kept = std::mem::take(&mut self.recalled);
        kept.retain(|recalled| {
            let request = self.requests.get(recalled.id);
            let recalls = self.endpoints[request.peer].lane.sent_recalls();
            let over = recalls.is_none_or(|r| r.is_forgotten(recalled.entry, request.handle));
            if over && recalled.released {
                self.requests.free(recalled.id);
            }
            !over
        });
        self.recalled = kept;
    }
}
