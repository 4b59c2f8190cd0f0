//! Receives that need more than the immediate path.
#![allow(unsafe_code)]

use crate::buffer::Buffer;
use crate::endpoint::{Endpoint, Taken};
use crate::matching::Want;
use crate::request::{Fault, Phase, Request, RequestId, RequestKind, State};
use crate::tag::key_source;
use crate::unexpected::{Arrived, Entry, EntryId};
use crate::wire::{self, Timing};
use crate::worker::Worker;
use fastpath_transport::Header;

/// What a probe finds.
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
    /// Starts a receive; it may be complete at once.
    ///
    /// # Safety
    /// The buffer is writable as its layout says until the request completes.
    pub unsafe fn start_recv(&mut self, want: Want, buffer: Buffer) -> Result<RequestId, Fault> {
        let id = self.allocate_recv(want, buffer)?;
        match self.claim_unexpected(&want) {
            Some(token) => self.consume_unexpected(id, token),
            // SAFETY: a request never moves, and is unposted before it is freed.
            None => unsafe { self.matcher.post(self.requests.address(id)) },
        }
        Ok(id)
    }

    /// As [`Worker::start_recv`], of a call that returns at once: a long copy is left to the progress thread.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn start_irecv(&mut self, want: Want, buffer: Buffer) -> Result<RequestId, Fault> {
        if !self.background.runs {
            // SAFETY: the buffer is writable as its layout says until the request completes, by this function's
            // contract.
            return unsafe { self.start_recv(want, buffer) };
        }
        let id = self.allocate_recv(want, buffer)?;
        match self.claim_unexpected(&want) {
            Some(token) if self.is_long_copy(token) => self.defer_recv(id, token),
            Some(token) => self.consume_unexpected(id, token),
            // SAFETY: as in `start_recv`.
            None => unsafe { self.matcher.post(self.requests.address(id)) },
        }
        Ok(id)
    }

    /// A receive request that is not posted yet.
    #[inline]
    pub fn allocate_recv(&mut self, want: Want, buffer: Buffer) -> Result<RequestId, Fault> {
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

    /// Receives that wait for their message. Slow: walks all requests.
    pub fn posted(&self) -> u64 {
        self.requests.posted()
    }

    /// The most that were counted, now or in a wait.
    pub fn posted_most(&self) -> u64 {
        self.matcher.posted_most().max(self.posted())
    }

    /// Takes back a receive that no message has matched; false where one has.
    pub fn cancel_recv(&mut self, id: RequestId) -> bool {
        let request = self.requests.get_mut(id);
        if request.kind != RequestKind::Recv || !request.is_posted() {
            return false;
        }
        // SAFETY: as just seen.
        unsafe { self.matcher.unpost(self.requests.address(id)) };
        let request = self.requests.get_mut(id);
        request.cancelled = true;
        request.received = 0; // what stands there is of its last life
        self.complete(id);
        true
    }

    /// Gives up a receive whose message may come or not: what comes of it is dropped.
    pub fn drop_recv(&mut self, id: RequestId) {
        let request = self.requests.get_mut(id);
        if request.state == State::Complete {
            return self.requests.free(id);
        }
        (request.bytes, request.detached) = (0, true);
    }

    /// Looks for a message without receiving it.
    pub fn probe(&mut self, want: &Want) -> Option<ProbedMessage> {
        let id = self.find_unexpected(want)?;
        Some(self.describe(id))
    }

    /// The messages that nobody has asked for, in the order of their arrival.
    pub fn unexpected_messages(&self) -> impl Iterator<Item = &Entry> {
        self.matcher.store.all()
    }

    fn describe(&self, id: EntryId) -> ProbedMessage {
        let message = self.matcher.unexpected(id);
        ProbedMessage { source: key_source(message.key), tag: message.tag, bytes: message.total() }
    }

    /// Looks for a message and takes it out of matching; it is received by [`Worker::recv_matched`].
    pub fn probe_matched(&mut self, want: &Want) -> Option<(EntryId, ProbedMessage)> {
        let token = self.claim_unexpected(want)?;
        let message = self.matcher.unexpected(token);
        self.probed += message.announced_by().is_some() as u32;
        Some((token, self.describe(token)))
    }

    /// Receives a message that [`Worker::probe_matched`] has taken out.
    ///
    /// # Safety
    /// As [`Worker::start_recv`].
    pub unsafe fn recv_matched(
        &mut self, token: EntryId, buffer: Buffer,
    ) -> Result<RequestId, Fault> {
        let (peer, key, tag, announced) = match self.matcher.store.find_used(token) {
            Some(m) => (m.peer, m.key, m.tag, m.announced_by().is_some()),
            None => return Err(Fault::Protocol),
        };
        let id = self.allocate_recv(Want { peer, key, tag }, buffer)?;
        self.probed -= announced as u32;
        self.consume_unexpected(id, token);
        Ok(id)
    }

    pub(crate) fn consume_unexpected(&mut self, id: RequestId, token: EntryId) {
        let message = self.matcher.unexpected(token);
        let (peer, key, tag) = (message.peer, message.key, message.tag);
        // The bytes stay where they are until the entry is freed.
        let (arrived, data, len) =
            (message.arrived(), message.data().as_ptr(), message.data().len());
        match arrived {
            Arrived::Eager => self.deliver(id, key, tag, data, len),
            Arrived::EagerSync(sender) => {
                self.deliver(id, key, tag, data, len);
                self.send_control(peer, Header::new(wire::ACK, 0, sender as u64), &[]);
            }
            Arrived::Rendezvous(rts) => {
                let early = &mut self.endpoints[peer].early;
                if early.left > 0 && early.stored && early.id == token {
                    (early.stored, early.id) = (false, id);
                }
                // It has waited for its receive, which tells nothing of its way.
                self.requests.get_mut(id).time(Timing::default());
                self.fetch(id, peer, key, tag, rts, data, len);
            }
        }
        self.free_unexpected(token);
    }
}

/// The short way of [`Worker::start_recv`] for a contiguous buffer and a named source, in three steps of which each is
/// straight code: whether it can be gone at all, and what follows where the message was there and where it was not.
impl Worker {
    /// Whether a receive may look at the next arrival by an endpoint (`Some(true)`) or must be posted behind others
    /// (`Some(false)`); `None` where the ordinary way must be gone.
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

    /// A request that has completed with what was taken from `source`, a rank of the communicator. Returns its handle.
    ///
    /// # Safety
    /// [`Worker::may_recv`] has found a free request, and none was taken since.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Irecv
    pub unsafe fn finished_recv(&mut self, source: i32, taken: Taken) -> usize {
        // SAFETY: a request is free, by this function's contract; just taken, it is nobody else's.
        unsafe {
            let request = self.requests.take_free(RequestKind::Recv, State::Complete, Phase::Begun);
            (*request).source = source;
            (*request).received_tag = taken.tag;
            (*request).received = taken.len as u64;
            (*request).handle as usize
        }
    }

    /// Posts a receive and returns its handle.
    ///
    /// # Safety
    /// As [`Worker::finished_recv`]; `ptr` is writable for `bytes` bytes until the request completes.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Irecv
    pub unsafe fn post_recv(&mut self, want: Want, ptr: *mut u8, bytes: u64, user: usize) -> usize {
        // SAFETY: by this function's contract; the request is one of the pool.
        unsafe {
            let request = self.post_plain(want, ptr, bytes);
            (*request).user = user;
            (*request).handle as usize
        }
    }

    /// The same; returns the request.
    ///
    /// # Safety
    /// As [`Worker::post_recv`].
    #[inline(always)] // as `post_recv`
    pub unsafe fn post_plain(&mut self, want: Want, ptr: *mut u8, bytes: u64) -> *mut Request {
        // SAFETY: a request is free, by this function's contract; it never moves, and is unposted before it is freed.
        unsafe {
            let request = self.requests.take_free(RequestKind::Recv, State::Active, Phase::Posted);
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
