//! Receives that need more than the immediate path.
#![allow(unsafe_code)]

use crate::buffer::Buffer;
use crate::endpoint::{Early, Taken};
use crate::matching::Want;
use crate::request::{Fault, Kind, Phase, RequestId, State};
use crate::tag::{key_source, tag_matches};
use crate::unexpected::{Arrived, Entry, EntryId};
use crate::wire::{self, Offer, Rtr, Rts, Timing};
use crate::worker::Worker;
use fastpath_base::copy::{COPY_SMALL_MAX, copy, copy_small};
use fastpath_transport::{Header, Lane, Remote};

/// Looks for the next part of a message before a request takes over.
const PART_LOOKS: u32 = 10_000;

/// What became of a message that comes in parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parts {
    /// It is there.
    Done {
        /// Its tag.
        tag: i32,
        /// Its length in bytes.
        len: u64,
    },
    /// The rest goes to this request.
    Request(RequestId),
}

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

/// Looks for the next part of a message, of up to `left` bytes, for a while.
#[inline]
fn await_part(lane: &mut Lane, left: u64) -> Option<(*const u8, usize)> {
    for _ in 0..PART_LOOKS {
        if let Some(part) = lane.look() {
            let fits = (1..=left).contains(&(part.len() as u64));
            return (part.header.id == wire::EARLY && fits).then(|| (part.data(), part.len()));
        }
    }
    None
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

    /// A receive request that is not posted yet.
    #[inline]
    pub fn allocate_recv(&mut self, want: Want, buffer: Buffer) -> Result<RequestId, Fault> {
        let Some(id) = self.requests.allocate(Kind::Recv) else {
            return Err(self.out_of_requests());
        };
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
        if request.kind != Kind::Recv || !request.is_posted() {
            return false;
        }
        // SAFETY: as just seen.
        unsafe { self.matcher.unpost(self.requests.address(id)) };
        let request = self.requests.get(id);
        request.cancelled = true;
        request.received = 0; // what stands there is of its last life
        self.complete(id);
        true
    }

    /// Looks for a message without receiving it.
    pub fn probe(&mut self, want: &Want) -> Option<Found> {
        let id = self.find_unexpected(want)?;
        Some(self.describe(id))
    }

    /// The messages that nobody has asked for, in the order of their arrival.
    pub fn unexpected_messages(&self) -> impl Iterator<Item = &Entry> {
        self.matcher.store.all()
    }

    fn describe(&self, id: EntryId) -> Found {
        let message = self.matcher.unexpected(id);
        Found {
            source: key_source(message.key),
            tag: message.tag,
            bytes: message.total(),
        }
    }

    /// Looks for a message and takes it out of matching; it is received by [`Worker::recv_matched`].
    pub fn probe_matched(&mut self, want: &Want) -> Option<(EntryId, Found)> {
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
        &mut self,
        token: EntryId,
        buffer: Buffer,
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

    fn consume_unexpected(&mut self, id: RequestId, token: EntryId) {
        let message = self.matcher.unexpected(token);
        let (peer, key, tag) = (message.peer, message.key, message.tag);
        // The bytes stay where they are until the entry is freed.
        let (arrived, data, len) = (
            message.arrived(),
            message.data().as_ptr(),
            message.data().len(),
        );
        match arrived {
            Arrived::Eager => self.deliver(id, key, tag, data, len),
            Arrived::EagerSync(sender) => {
                self.deliver(id, key, tag, data, len);
                self.send_control(peer, Header::new(wire::ACK, 0, sender as u64), &[]);
            }
            Arrived::Rendezvous(rts) => {
                let early = &mut self.endpoint(peer).early;
                if early.left > 0 && early.stored && early.id == token {
                    (early.stored, early.id) = (false, id);
                }
                // It has waited for its receive, which tells nothing of its way.
                self.requests.get(id).time(Timing::default());
                self.fetch(id, peer, key, tag, rts, data, len);
            }
        }
        self.free_unexpected(token);
    }

    /// Completes a receive with a whole message.
    pub(crate) fn deliver(
        &mut self,
        id: RequestId,
        key: u64,
        tag: i32,
        data: *const u8,
        len: usize,
    ) {
        let request = self.requests.get(id);
        request.source = key_source(key) as i32;
        request.received_tag = tag;
        let fits = (len as u64).min(request.bytes);
        if (len as u64) > request.bytes {
            request.fault = Fault::Truncated;
            request.limit = len as u64; // for the message that explains it
        }
        request.received = fits;
        // SAFETY: the receiver's buffer is its caller's promise; `data` holds `len` bytes.
        unsafe {
            if request.is_contiguous() && fits as usize <= COPY_SMALL_MAX {
                copy_small(request.ptr, data, fits as usize);
            } else {
                request.unpack(0, data, fits as usize);
            }
        }
        self.complete(id);
    }

    /// A receive has matched an announcement, of which the bytes at `first` are there: fetches the
    /// message by a single copy, or asks for what does not come by itself.
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
        request.source = key_source(key) as i32;
        request.received_tag = tag;
        request.peer = peer;
        let wanted = rts.total.min(request.bytes);
        if rts.total > request.bytes {
            request.fault = Fault::Truncated;
        }
        request.announced_bytes = rts.total;
        let early = rts.early as u64;
        // What comes by itself must be taken even where it does not fit.
        request.limit = wanted.max(early);
        request.moved = 0;
        if wanted != 0 && self.fetch_directly(id, peer, &rts, wanted) {
            return;
        }
        let request = self.requests.get(id);
        if rts.total > early {
            // The answer goes first, so that the sender works while the first bytes are copied.
            if wanted > early {
                let Remote { addr, rkey } = self.offer_room(id, peer, wanted - early);
                let (request, answer) = (request.handle, self.choose_answer(peer));
                let rtr = Rtr {
                    limit: wanted,
                    request,
                    answer,
                    addr,
                    rkey,
                };
                self.send_answer(peer, rts.request, &rtr);
            } else {
                self.send_control(peer, Header::new(wire::FIN, 0, rts.request as u64), &[]);
            }
        } else if rts.offer == Offer::Nothing {
            self.send_control(peer, Header::new(wire::FIN, 0, rts.request as u64), &[]);
        }
        self.add_bytes(id, first, first_len);
    }

    /// The next bytes of a long message, in order; completes the receive with the last.
    pub(crate) fn add_bytes(&mut self, id: RequestId, data: *const u8, len: usize) {
        let request = self.requests.get(id);
        let fits = request.bytes.saturating_sub(request.moved).min(len as u64);
        // SAFETY: the receiver's buffer is its caller's promise; `data` holds `len` bytes.
        unsafe { request.unpack(request.moved, data, fits as usize) };
        request.moved += len as u64;
        if request.moved >= request.limit {
            request.received = request.moved.min(request.bytes);
            self.finish_recv(id);
        }
    }

    /// Receives a message that comes in parts by itself, if it is the peer's next arrival, is the wanted
    /// one and fits: straight from the ring into the buffer, without a request. `None`: nothing has
    /// happened. A sender that stops in the middle leaves the rest to a request.
    ///
    /// # Safety
    /// `to` is writable for `room` bytes. The caller has made sure of `Matcher::is_unasked`, and that no unexpected message
    /// is the wanted one.
    pub unsafe fn recv_parts(
        &mut self,
        want: Want,
        to: *mut u8,
        room: u64,
        user: usize,
    ) -> Option<Parts> {
        let arrival = self.endpoint(want.peer).lane.look()?;
        let (header, data, len) = (arrival.header, arrival.data(), arrival.len());
        let (tag, total) = (header.imm as i32, header.aux as u64);
        let fits = total <= room && (1..=total).contains(&(len as u64));
        if header.id != wire::PARTS
            || header.key != want.key
            || !tag_matches(want.tag, tag)
            || !fits
            || !self.requests.has_room()
        {
            return None;
        }
        let lane = &mut self.endpoint(want.peer).lane;
        // SAFETY: `to` has room for `total` bytes; the arrival stays until it is taken.
        unsafe { copy(to, data, len) };
        lane.take();
        let mut moved = len as u64;
        while moved < total {
            let Some((data, len)) = await_part(lane, total - moved) else {
                return self
                    .continue_parts(want, tag, to, room, moved, total, user)
                    .map(Parts::Request);
            };
            // SAFETY: as above.
            unsafe { copy(to.add(moved as usize), data, len) };
            lane.take();
            moved += len as u64;
        }
        Some(Parts::Done { tag, len: total })
    }

    /// Hands the rest of a message in parts to a request.
    #[allow(clippy::too_many_arguments)]
    #[cold]
    fn continue_parts(
        &mut self,
        want: Want,
        tag: i32,
        to: *mut u8,
        room: u64,
        moved: u64,
        total: u64,
        user: usize,
    ) -> Option<RequestId> {
        // There is one: `recv_parts` has looked before it took anything.
        let id = self
            .allocate_recv(Want { tag, ..want }, Buffer::contiguous(to, room))
            .ok()?;
        let request = self.requests.get(id);
        request.user = user;
        request.source = key_source(want.key) as i32;
        request.received_tag = tag;
        request.moved = moved;
        request.limit = total;
        request.time(Timing::default());
        self.endpoint(want.peer).early = Early {
            left: (total - moved) as u32,
            stored: false,
            id,
        };
        Some(id)
    }

    pub(crate) fn send_answer(&mut self, peer: u32, sender: u32, rtr: &Rtr) {
        // SAFETY: `Rtr` is plain data of 32 bytes without padding.
        let bytes: [u8; wire::CONTROL_MAX] = unsafe { std::mem::transmute_copy(rtr) };
        self.send_control(peer, Header::new(wire::RTR, 0, sender as u64), &bytes);
    }

    /// All bytes of a long message are there.
    pub(crate) fn finish_recv(&mut self, id: RequestId) {
        if self.requests.get(id).sent_ns != 0 {
            self.learn(id);
        }
        let request = self.requests.get(id);
        if request.fault == Fault::Truncated {
            request.limit = request.announced_bytes; // for the message that explains it
        }
        self.complete(id);
    }
}

/// The short way of [`Worker::start_recv`] for a contiguous buffer and a named source, in three steps of which each is
/// straight code: whether it can be gone at all, and what follows where the message was there and where it was not.
impl Worker {
    /// Whether a receive from `peer` may look at its next arrival (`Some(true)`) or must be posted behind others
    /// (`Some(false)`); `None` where the ordinary way must be gone.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Irecv
    pub fn may_recv(&self, peer: u32) -> Option<bool> {
        if !self.requests.has_free() {
            None
        } else if self.matcher.is_quiet(peer) {
            Some(true)
        } else if self.matcher.has_unexpected(peer) {
            None
        } else {
            Some(false)
        }
    }

    /// A request that has completed with what was taken from `source`, a rank of the communicator. Returns its handle.
    ///
    /// # Safety
    /// [`Worker::may_recv`] has found a free request, and none was taken since.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Irecv
    pub unsafe fn finished_recv(&mut self, source: i32, taken: Taken) -> usize {
        // SAFETY: the caller's; just taken, and nobody else's.
        unsafe {
            let request = self
                .requests
                .take_free(Kind::Recv, State::Complete, Phase::Begun);
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
        // SAFETY: the caller's; a request never moves, and is unposted before it is freed.
        unsafe {
            let request = self
                .requests
                .take_free(Kind::Recv, State::Active, Phase::Posted);
            (*request).user = user;
            (*request).peer = want.peer;
            (*request).key = want.key;
            (*request).tag = want.tag;
            (*request).ptr = ptr;
            (*request).bytes = bytes;
            self.matcher.post_named(request);
            (*request).handle as usize
        }
    }
}
