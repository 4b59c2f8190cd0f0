//! Cancelling sends (MPI-5.0 section 3.8.4): an announced message is withdrawn if its receiver has not matched it.
//!
//! `MPI_Wait` for a cancelled send must return whatever the receiver does. Within a node the sender therefore decides
//! alone, in shared memory (`transport::shm::recall`), and sends the receiver a notice to drop the message. Between
//! nodes, or if shared memory has no place for the decision, the sender sends the receiver a request. A message that
//! has left without a request counts as sent and is not withdrawn.
#![allow(unsafe_code)]

use crate::buffer::Buffer;
use crate::endpoint::{EagerTarget, PendingPost};
use crate::matching::{EntryId, MatchCriteria};
use crate::request::{MessagePhase, Request, RequestId, RequestKind, RequestState};
use crate::selection::thresholds::BULK_EARLY;
use crate::wire::{self, EARLY_LIMIT};
use crate::worker::Worker;
use crate::worker::sends::RecalledSend;
use fastpath_base::exit::LazyStatic;
use fastpath_transport::Header;

pub(crate) enum RecallMatch {
    Receive(RequestId),
    Nothing,
    TakenBack,
}

/// Zeros sent in place of the eager bytes of a withdrawn message, because its buffer belongs to the user again.
static NOTHING: LazyStatic<Box<[u8]>> = LazyStatic::new(|| vec![0; BULK_EARLY as usize].into());
const _: () = assert!(BULK_EARLY >= EARLY_LIMIT);

impl Worker {
    /// Finds the receive for an arrival, and claims the message of the peer's `request` for it.
    #[inline]
    pub(crate) fn match_announced(
        &mut self, peer: u32, key: u64, tag: i32, request: Option<u32>,
    ) -> RecallMatch {
        let Some(found) = self.matcher.find_posted(peer, key, tag) else {
            return RecallMatch::Nothing;
        };
        if request.is_some_and(|request| !self.claim(peer, request)) {
            return RecallMatch::TakenBack;
        }
        // SAFETY: `find_posted` has just returned the receive, which is posted.
        unsafe {
            self.matcher.unpost(found);
            RecallMatch::Receive((*found).id())
        }
    }

    #[inline]
    fn claim(&self, peer: u32, request: u32) -> bool {
        let endpoint = &self.endpoints[peer];
        endpoint.lane.claim(request, endpoint.blocked == 0 && self.probed == 0)
    }

    pub(crate) fn claim_unexpected(&mut self, want: &MatchCriteria) -> Option<EntryId> {
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

    pub(crate) fn find_unexpected(&mut self, want: &MatchCriteria) -> Option<EntryId> {
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

    #[cold]
    #[inline(never)]
    fn discard(&mut self, id: EntryId) {
        self.matcher.remove_unexpected(id);
        let early = &mut self.endpoints[self.matcher.unexpected(id).peer].early;
        if early.left > 0 && early.stored && early.id == id {
            early.id = EagerTarget::NOWHERE;
        }
        self.free_unexpected(id);
    }

    #[inline]
    pub(crate) fn free_unexpected(&mut self, id: EntryId) {
        if let Some(data) = self.matcher.store.free(id) {
            self.unexpected.recycle(data);
        }
    }

    /// Removes the message announced by a peer's request, if it is unmatched. Returns whether it was removed.
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

impl Worker {
    /// Cancels a send that its receiver has not matched; a matched send continues. The receiver may answer later.
    pub fn cancel_send(&mut self, id: RequestId) {
        self.reap_recalled();
        let request = self.requests.get(id);
        if request.kind != RequestKind::Send || request.state != RequestState::Active {
            return;
        }
        let (peer, handle) = (request.peer, request.handle);
        if request.phase == MessagePhase::Begun {
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
        request.state == RequestState::Active && request.is_unmatched_send()
    }

    /// Moves a partly sent eager message to a new detached request, which sends from the buffer that `copy` returns,
    /// and completes the original request. Returns the new request; `None` without such a message or a free request.
    pub fn hand_over(
        &mut self, id: RequestId, copy: impl FnOnce(&Request) -> Buffer,
    ) -> Option<RequestId> {
        let request = self.requests.get(id);
        if request.state != RequestState::Active
            || request.phase == MessagePhase::Begun
            || !request.is_unanswered()
            || !self.requests.has_room()
        {
            return None;
        }
        let heir = self.pass_on(id, copy(request))?;
        self.complete(id);
        Some(heir)
    }

    fn pass_on(&mut self, id: RequestId, buffer: Buffer) -> Option<RequestId> {
        let heir = self.requests.allocate(RequestKind::Send)?;
        let [request, new] = self.requests.pair(id, heir);
        new.set_buffer(buffer);
        (new.peer, new.key, new.tag, new.user) =
            (request.peer, request.key, request.tag, request.user);
        (new.phase, new.detached) = (MessagePhase::Announced, true);
        (new.moved, new.early) = (request.moved, request.early);
        (new.counter, new.memory.rkey) = (None, 0);
        let queue = self.endpoints[new.peer].pending.as_deref_mut();
        for pending in queue.into_iter().flatten() {
            if let PendingPost::Start(waiting) = pending
                && *waiting == id
            {
                *waiting = heir;
            }
        }
        Some(heir)
    }

    fn cancel_waiting(&mut self, id: RequestId) {
        let peer = self.requests.get(id).peer;
        let Some(queue) = self.endpoints[peer].pending.as_mut() else {
            return;
        };
        let is_it = |pending: &PendingPost| match pending {
            PendingPost::Start(waiting) => *waiting == id,
            _ => false,
        };
        if let Some(place) = queue.iter().position(is_it) {
            // The endpoint may now have no pending post. The next progress unblocks it.
            queue.remove(place);
            self.end_cancelled(id);
        }
    }

    /// Withdraws a message by a decision in shared memory. Returns false if no decision can be requested, or if the
    /// receiver has decided first.
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
        // Handle arrivals first, because the receiver's answer may be among them.
        self.take_arrivals();
        let take_back = self.is_unmatched(id);
        let recalls = self.endpoints[peer].lane.sent_recalls();
        if !recalls.is_some_and(|recalls| recalls.decide(entry, handle, take_back)) {
            return false;
        }
        let request = self.requests.get(id);
        if request.has_unsent() {
            // Send the remaining eager bytes, because the receiver expects them.
            let buffer =
                Buffer::contiguous(NOTHING.get().as_ptr().cast_mut(), request.early as u64);
            self.pass_on(id, buffer);
        }
        self.send_control(peer, Header::new(wire::CANCEL, 0, handle as u64), &[]);
        self.sends.recalled.push(RecalledSend { id, entry, released: false });
        self.requests.get_mut(id).cancelled = true;
        self.withdraw_offer(id);
        self.complete(id);
        true
    }

    #[cold]
    pub(crate) fn handle_cancelled(&mut self, peer: u32, header: Header) {
        match self.find_active(header.key, RequestKind::Send, peer) {
            Some(id) if self.requests.get(id).is_unmatched_send() => {
                self.end_cancelled(id);
                self.settle_failing();
            }
            _ => self.violation(),
        }
    }

    fn end_cancelled(&mut self, id: RequestId) {
        let request = self.requests.get_mut(id);
        request.cancelled = true;
        match request.phase {
            MessagePhase::Begun => self.complete(id),
            _ => self.end_send(id),
        }
    }

    /// Frees the request of a cancelled send: now, or when its receiver has dropped the message that it still holds.
    pub fn release_cancelled(&mut self, id: RequestId) {
        match self.sends.recalled.iter_mut().find(|recalled| recalled.id == id) {
            Some(recalled) => recalled.released = true,
            None => self.requests.free(id),
        }
        self.reap_recalled();
    }

    fn reap_recalled(&mut self) {
        let mut kept = std::mem::take(&mut self.sends.recalled);
        kept.retain(|recalled| {
            let request = self.requests.get(recalled.id);
            let recalls = self.endpoints[request.peer].lane.sent_recalls();
            let over = recalls.is_none_or(|r| r.is_forgotten(recalled.entry, request.handle));
            if over && recalled.released {
                self.requests.free(recalled.id);
            }
            !over
        });
        self.sends.recalled = kept;
    }
}
