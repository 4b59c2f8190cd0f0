//! Receives that need more than the immediate path.
#![allow(unsafe_code)]

use crate::buffer::Buffer;
use crate::endpoint::{Endpoint, ImmediateReceive};
use crate::matching::MatchCriteria;
use crate::request::{Fault, MessagePhase, Request, RequestId, RequestKind, RequestState};
use crate::tag::key_source;
use crate::unexpected::{EntryId, UnexpectedEntry, UnexpectedKind};
use crate::wire::{self, Timing};
use crate::worker::Worker;
use fastpath_transport::Header;

/// Result of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbedMessage {
    /// Source rank in the communicator.
    pub source: u32,
    /// Tag.
    pub tag: i32,
    /// Length in bytes.
    pub bytes: u64,
}

impl Worker {
    /// Starts a receive, which may be complete on return.
    ///
    /// # Safety
    /// The buffer is writable as its layout says until the request completes.
    pub unsafe fn start_recv(
        &mut self, want: MatchCriteria, buffer: Buffer,
    ) -> Result<RequestId, Fault> {
        let id = self.allocate_recv(want, buffer)?;
        match self.claim_unexpected(&want) {
            Some(token) => self.consume_unexpected(id, token),
            // SAFETY: a request never moves, and is unposted before it is freed.
            None => unsafe { self.matcher.post(self.requests.address(id)) },
        }
        Ok(id)
    }

    /// Starts a receive for a call that returns at once. If there is a progress thread, that thread makes a long copy.
    ///
    /// # Safety
    /// See [`Worker::start_recv`].
    pub unsafe fn start_irecv(
        &mut self, want: MatchCriteria, buffer: Buffer,
    ) -> Result<RequestId, Fault> {
        if !self.background.runs {
            // SAFETY: the buffer is writable until the request completes, by this function's contract.
            return unsafe { self.start_recv(want, buffer) };
        }
        let id = self.allocate_recv(want, buffer)?;
        match self.claim_unexpected(&want) {
            Some(token) if self.is_long_copy(token) => self.defer_recv(id, token),
            Some(token) => self.consume_unexpected(id, token),
            // SAFETY: a request never moves, and is unposted before it is freed.
            None => unsafe { self.matcher.post(self.requests.address(id)) },
        }
        Ok(id)
    }

    /// Allocates a receive request without posting it.
    #[inline]
    pub fn allocate_recv(
        &mut self, want: MatchCriteria, buffer: Buffer,
    ) -> Result<RequestId, Fault> {
        let Some(id) = self.requests.allocate(RequestKind::Recv) else {
            return Err(self.out_of_requests());
        };
        self.counters.requests += 1;
        let request = self.requests.get_mut(id);
        request.peer = want.peer;
        request.key = want.key;
        request.tag = want.tag;
        request.received = 0;
        request.moved = 0;
        request.limit = 0;
        request.set_buffer(buffer);
        Ok(id)
    }

    /// Returns the number of posted receives. Slow, because it visits all requests.
    pub fn posted(&self) -> u64 {
        self.requests.posted()
    }

    /// Returns the largest number of posted receives counted so far, including now.
    pub fn posted_most(&self) -> u64 {
        self.matcher.posted_most().max(self.posted())
    }

    /// Cancels a receive. Returns false if a message has matched it.
    pub fn cancel_recv(&mut self, id: RequestId) -> bool {
        let request = self.requests.get_mut(id);
        if request.kind != RequestKind::Recv || !request.is_posted() {
            return false;
        }
        // SAFETY: the request is posted, by the check above.
        unsafe { self.matcher.unpost(self.requests.address(id)) };
        let request = self.requests.get_mut(id);
        request.cancelled = true;
        request.received = 0; // the old value is from the request's last use
        self.complete(id);
        true
    }

    /// Abandons a receive. Its message is dropped if it arrives.
    pub fn drop_recv(&mut self, id: RequestId) {
        let request = self.requests.get_mut(id);
        if request.state == RequestState::Complete {
            return self.requests.free(id);
        }
        (request.bytes, request.detached) = (0, true);
    }

    /// Returns the message that a receive would match, without receiving it.
    pub fn probe(&mut self, want: &MatchCriteria) -> Option<ProbedMessage> {
        let id = self.find_unexpected(want)?;
        Some(self.describe(id))
    }

    /// Returns the unexpected messages, in the order of arrival.
    pub fn unexpected_messages(&self) -> impl Iterator<Item = &UnexpectedEntry> {
        self.matcher.store.all()
    }

    fn describe(&self, id: EntryId) -> ProbedMessage {
        let message = self.matcher.unexpected(id);
        ProbedMessage { source: key_source(message.key), tag: message.tag, bytes: message.total() }
    }

    /// Takes a message out of matching. [`Worker::recv_matched`] receives it.
    pub fn probe_matched(&mut self, want: &MatchCriteria) -> Option<(EntryId, ProbedMessage)> {
        let token = self.claim_unexpected(want)?;
        let message = self.matcher.unexpected(token);
        self.probed += message.announced_by().is_some() as u32;
        Some((token, self.describe(token)))
    }

    /// Receives a message that [`Worker::probe_matched`] has taken out.
    ///
    /// # Safety
    /// See [`Worker::start_recv`].
    pub unsafe fn recv_matched(
        &mut self, token: EntryId, buffer: Buffer,
    ) -> Result<RequestId, Fault> {
        let (peer, key, tag, announced) = match self.matcher.store.find_used(token) {
            Some(m) => (m.peer, m.key, m.tag, m.announced_by().is_some()),
            None => return Err(Fault::Protocol),
        };
        let id = self.allocate_recv(MatchCriteria { peer, key, tag }, buffer)?;
        self.probed -= announced as u32;
        self.consume_unexpected(id, token);
        Ok(id)
    }

    pub(crate) fn consume_unexpected(&mut self, id: RequestId, token: EntryId) {
        let message = self.matcher.unexpected(token);
        let (peer, key, tag) = (message.peer, message.key, message.tag);
        // The bytes stay in place until the entry is freed.
        let (arrived, data, len) =
            (message.arrived(), message.data().as_ptr(), message.data().len());
        match arrived {
            UnexpectedKind::Eager => self.deliver(id, key, tag, data, len),
            UnexpectedKind::EagerSync(sender) => {
                self.deliver(id, key, tag, data, len);
                self.send_control(peer, Header::new(wire::ACK, 0, sender as u64), &[]);
            }
            UnexpectedKind::Rendezvous(rts) => {
                let early = &mut self.endpoints[peer].early;
                if early.left > 0 && early.stored && early.id == token {
                    (early.stored, early.id) = (false, id);
                }
                // The message has waited for its receive, so its time does not measure its protocol.
                self.requests.get_mut(id).time(Timing::default());
                self.fetch(id, peer, key, tag, rts, data, len);
            }
        }
        self.free_unexpected(token);
    }
}

/// Fast path of [`Worker::start_recv`] for contiguous buffers and named sources, in three steps without a loop.
impl Worker {
    /// Returns `Some(true)` if a receive may read the next arrival of an endpoint, and `Some(false)` if the receive
    /// must be posted behind other receives. Returns `None` if only the slow path can decide.
    ///
    /// # Safety
    /// The endpoint is one of this worker's.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Irecv
    pub unsafe fn may_recv(&self, endpoint: *const Endpoint) -> Option<bool> {
        // SAFETY: the endpoint is this worker's, by this function's contract.
        unsafe {
            if !self.requests.has_free() {
                None
            } else if self.matcher.is_quiet_beside(endpoint) {
                Some(true)
            } else if self.matcher.has_unexpected_beside(endpoint) {
                None
            } else {
                Some(false)
            }
        }
    }

    /// Returns the handle of a completed request for a message from `source`, a rank of the communicator.
    ///
    /// # Safety
    /// [`Worker::may_recv`] has found a free request, and none was taken since.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Irecv
    pub unsafe fn finished_recv(&mut self, source: i32, taken: ImmediateReceive) -> usize {
        // SAFETY: a request is free, by this function's contract; once taken it has no other user.
        unsafe {
            let request = self.requests.take_free(
                RequestKind::Recv,
                RequestState::Complete,
                MessagePhase::Begun,
            );
            (*request).source = source;
            (*request).received_tag = taken.tag;
            (*request).received = taken.len as u64;
            (*request).handle as usize
        }
    }

    /// Posts a receive and returns its handle.
    ///
    /// # Safety
    /// See [`Worker::finished_recv`]; `ptr` is writable for `bytes` bytes until the request completes.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Irecv
    pub unsafe fn post_recv(
        &mut self, want: MatchCriteria, ptr: *mut u8, bytes: u64, user: usize,
    ) -> usize {
        // SAFETY: the contract of `post_plain` is this function's, and the request is one of the pool.
        unsafe {
            let request = self.post_plain(want, ptr, bytes);
            (*request).user = user;
            (*request).handle as usize
        }
    }

    /// Posts a receive and returns its request.
    ///
    /// # Safety
    /// See [`Worker::post_recv`].
    #[inline(always)] // see `post_recv`
    pub unsafe fn post_plain(
        &mut self, want: MatchCriteria, ptr: *mut u8, bytes: u64,
    ) -> *mut Request {
        // SAFETY: a request is free, by this function's contract; it never moves, and is unposted before it is freed.
        unsafe {
            let request = self.requests.take_free(
                RequestKind::Recv,
                RequestState::Active,
                MessagePhase::Posted,
            );
            (*request).peer = want.peer;
            (*request).key = want.key;
            (*request).tag = want.tag;
            (*request).ptr = ptr;
            (*request).bytes = bytes;
            self.matcher.post_named(request);
            request
        }
    }
}
