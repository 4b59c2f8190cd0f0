//! Receives that need more than the immediate path.
#![allow(unsafe_code)]

use crate::buffer::Buffer;
use crate::matching::Want;
use crate::request::{Fault, Kind, RequestId, State};
use crate::tag::key_source;
use crate::unexpected::{Arrived, Unexpected};
use crate::wire::{self, Rts, Rtr};
use crate::worker::Worker;
use fastpath_transport::{Header, Lane, Remote};

/// What a probe finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
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
        match self.matcher.find_unexpected(&want) {
            Some(node) => {
                let token = self.matcher.remove_unexpected(node);
                self.consume_unexpected(id, token);
            }
            None => self.requests.get(id).node = self.matcher.post(want, id),
        }
        Ok(id)
    }

    /// A receive request that is not posted yet.
    #[inline]
    pub fn allocate_recv(&mut self, want: Want, buffer: Buffer) -> Result<RequestId, Fault> {
        let id = self.requests.allocate(Kind::Recv).ok_or(Fault::NoMemory)?;
        self.counters.requests += 1;
        let request = self.requests.get(id);
        request.peer = want.peer;
        request.key = want.key;
        request.tag = want.tag;
        request.received = 0;
        request.moved = 0;
        request.limit = 0;
        request.set_buffer(buffer);
        Ok(id)
    }

    /// Takes back a receive that no message has matched; false where one has.
    pub fn cancel_recv(&mut self, id: RequestId) -> bool {
        let request = self.requests.get(id);
        if request.kind != Kind::Recv || request.node == 0 {
            return false;
        }
        self.matcher.unpost(request.node);
        request.node = 0;
        request.cancelled = true;
        self.complete(id);
        true
    }

    /// Looks for a message without receiving it.
    pub fn probe(&mut self, want: &Want) -> Option<Found> {
        let node = self.matcher.find_unexpected(want)?;
        let message = self.unexpected.get(self.matcher.token(node))?;
        Some(Found { source: key_source(message.key), tag: message.tag, bytes: message.total() })
    }

    /// Looks for a message and takes it out of matching; it is received by [`Worker::recv_matched`].
    pub fn probe_matched(&mut self, want: &Want) -> Option<(u32, Found)> {
        let found = self.probe(want)?;
        let node = self.matcher.find_unexpected(want)?;
        Some((self.matcher.remove_unexpected(node), found))
    }

    /// Receives a message that [`Worker::probe_matched`] has taken out.
    ///
    /// # Safety
    /// As [`Worker::start_recv`].
    pub unsafe fn recv_matched(&mut self, token: u32, buffer: Buffer) -> Result<RequestId, Fault> {
        let (peer, key, tag) = match self.unexpected.get(token) {
            Some(message) => (message.peer, message.key, message.tag),
            None => return Err(Fault::Protocol),
        };
        let id = self.allocate_recv(Want { peer, key, tag }, buffer)?;
        self.consume_unexpected(id, token);
        Ok(id)
    }

    fn consume_unexpected(&mut self, id: RequestId, token: u32) {
        let Some(message) = self.unexpected.remove(token) else { return };
        let Unexpected { peer, key, tag, arrived, data } = message;
        match arrived {
            Arrived::Eager => self.deliver(id, key, tag, data.as_ptr(), data.len()),
            Arrived::EagerSync(sender) => {
                self.deliver(id, key, tag, data.as_ptr(), data.len());
                self.send_control(peer, Header { id: wire::ACK, imm: 0, key: sender as u64 }, &[]);
            }
            Arrived::Rendezvous(rts) => self.fetch(id, peer, key, tag, rts, data.as_ptr(), data.len()),
        }
        self.unexpected.recycle(data);
    }

    /// Completes a receive with a whole message.
    pub(crate) fn deliver(&mut self, id: RequestId, key: u64, tag: i32, data: *const u8, len: usize) {
        let request = self.requests.get(id);
        request.node = 0;
        request.source = key_source(key) as i32;
        request.received_tag = tag;
        let fits = (len as u64).min(request.bytes);
        if (len as u64) > request.bytes {
            request.fault = Fault::Truncated;
            request.limit = len as u64; // for the message that explains it
        }
        request.received = fits;
        // SAFETY: the receiver's buffer is its caller's promise; `data` holds `len` bytes.
        unsafe { request.unpack(0, data, fits as usize) };
        self.complete(id);
    }

    /// A receive has matched an announcement: fetches the message by a single copy, or asks for the
    /// rest of it.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn fetch(
        &mut self,
        id: RequestId,
        peer: u32,
        key: u64,
        tag: i32,
        rts: Rts,
        first: *const u8,
        first_len: usize,
    ) {
        let request = self.requests.get(id);
        request.node = 0;
        request.source = key_source(key) as i32;
        request.received_tag = tag;
        request.peer = peer;
        request.limit = rts.total.min(request.bytes);
        if rts.total > request.bytes {
            request.fault = Fault::Truncated;
        }
        let (limit, handle) = (request.limit, request.handle);
        let head = (first_len as u64).min(limit);
        if self.fetch_directly(id, peer, &rts) {
            return;
        }
        let rest = limit > head;
        if rest {
            // The answer goes first, so that the sender works while the first bytes are copied.
            let rtr = Rtr { limit, request: handle, reserved: 0 };
            // SAFETY: `Rtr` is plain data of 16 bytes without padding.
            let bytes: [u8; 16] = unsafe { std::mem::transmute(rtr) };
            self.send_control(peer, Header { id: wire::RTR, imm: 0, key: rts.request as u64 }, &bytes);
        } else {
            self.send_control(peer, Header { id: wire::FIN, imm: 0, key: rts.request as u64 }, &[]);
        }
        let request = self.requests.get(id);
        // SAFETY: as in `deliver`.
        unsafe { request.unpack(0, first, head as usize) };
        request.moved = head;
        if !rest {
            request.received = head;
            self.finish_recv(id, rts.total);
        }
    }

    /// Single copy, where both buffers are contiguous and the transport allows it.
    fn fetch_directly(&mut self, id: RequestId, peer: u32, rts: &Rts) -> bool {
        let request = self.requests.get(id);
        let lane = &mut self.endpoint(peer).lane;
        let wanted = matches!(lane, Lane::Loopback(_)) || rts.total >= self.thresholds.single_copy;
        if !wanted || rts.addr == 0 || !request.is_contiguous() || request.limit == 0 {
            return false;
        }
        let from = Remote { addr: rts.addr, rkey: rts.rkey };
        // SAFETY: the receive buffer holds at least `limit` bytes.
        if unsafe { lane.get(request.ptr, request.limit as usize, from) }.is_err() {
            return false;
        }
        request.moved = request.limit;
        request.received = request.limit;
        self.counters.single_copies += 1;
        self.send_control(peer, Header { id: wire::FIN, imm: 0, key: rts.request as u64 }, &[]);
        self.finish_recv(id, rts.total);
        true
    }

    /// All bytes of a long message are there.
    pub(crate) fn finish_recv(&mut self, id: RequestId, total: u64) {
        let request = self.requests.get(id);
        if request.fault == Fault::Truncated {
            request.limit = total;
        }
        self.complete(id);
    }
}

impl Worker {
    /// The short way of [`Worker::start_recv`] for a contiguous buffer and a named source: takes a
    /// short message if it is the peer's next arrival, else posts the receive. Returns the request's
    /// handle; `None` where the ordinary way must be gone, and then nothing has happened.
    ///
    /// # Safety
    /// As [`Worker::start_recv`]; `endpoint` is the one of `want.peer`.
    #[inline(always)] // `bench/instructions` counts MPI_Irecv
    pub unsafe fn recv_or_post(
        &mut self,
        want: Want,
        ptr: *mut u8,
        bytes: u64,
        endpoint: &mut crate::endpoint::Endpoint,
        user: usize,
    ) -> Option<usize> {
        if self.requests.has_free() && self.matcher.is_quiet(want.peer) {
            // SAFETY: the buffer has room for its bytes.
            let taken = unsafe { endpoint.recv_short(want.key, want.tag, ptr, bytes as usize) };
            if let Some(taken) = taken {
                let id = self.requests.allocate(Kind::Recv)?;
                let request = self.requests.get(id);
                request.user = user;
                request.source = key_source(want.key) as i32;
                request.received_tag = taken.tag;
                request.received = taken.len as u64;
                request.state = State::Complete;
                return Some(request.handle as usize);
            }
        } else if !self.requests.has_free() || self.matcher.has_unexpected(want.peer) {
            return None;
        }
        let id = self.requests.allocate(Kind::Recv)?;
        let request = self.requests.get(id);
        request.user = user;
        request.peer = want.peer;
        request.key = want.key;
        request.tag = want.tag;
        request.ptr = ptr;
        request.bytes = bytes;
        request.node = self.matcher.post_named(want, id);
        Some(request.handle as usize)
    }
}
