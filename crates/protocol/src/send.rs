//! Sends that need more than the immediate path.
#![allow(unsafe_code)]

use crate::buffer::Buffer;
use crate::endpoint::Pending;
use crate::learning::{Arm, LEARN_MIN, stamp_ns};
use crate::request::{Fault, Kind, Phase, RequestId};
use crate::wire::{self, Announcement, Offer, RTS_HEADER, Rts, SYNC_HEADER, Timing};
use crate::worker::{EARLY_LIMIT, Worker};
use fastpath_base::copy::CopyLoop;
use fastpath_base::trace::{self, Point};
use fastpath_transport::{Header, Post};

/// A send as the layer above asks for it.
#[derive(Debug, Clone)]
pub struct SendArgs {
    /// World rank of the destination.
    pub peer: u32,
    /// Match key.
    pub key: u64,
    /// Tag.
    pub tag: i32,
    /// The message.
    pub buffer: Buffer,
    /// Whether it completes only when the receive has matched.
    pub synchronous: bool,
}

/// What became of a started operation.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Started {
    /// It is done, and there is no request.
    Done,
    /// It goes on under this request.
    Request(RequestId),
}

impl Worker {
    /// Starts a send. The buffer stays in use until the request completes.
    ///
    /// # Safety
    /// The buffer is readable as its layout says until then.
    pub unsafe fn start_send(&mut self, args: SendArgs) -> Result<Started, Fault> {
        trace::record(Point::Post, args.peer, args.tag, args.buffer.bytes);
        // SAFETY: the caller's.
        let started = unsafe { self.start_new_send(args) };
        if !matches!(started, Ok(Started::Done)) {
            trace::record(Point::Posted, 0, 0, 0);
        }
        started
    }

    /// # Safety
    /// As [`Worker::start_send`].
    #[inline]
    unsafe fn start_new_send(&mut self, args: SendArgs) -> Result<Started, Fault> {
        self.connect(args.peer)?;
        if !args.synchronous && args.buffer.layout.is_none() {
            let buffer = &args.buffer;
            // SAFETY: the caller's.
            match unsafe { self.send_now(args.peer, args.key, args.tag, buffer.ptr, buffer.bytes) }
            {
                Post::Done => {
                    let (peer, bytes) = (args.peer, buffer.bytes);
                    trace::record_last(Point::Eager, peer, args.tag, bytes, Point::Posted);
                    return Ok(Started::Done);
                }
                Post::PeerGone => return Err(Fault::PeerGone),
                Post::InProgress | Post::NoResource | Post::Rouse => {}
            }
        }
        let Some(id) = self.requests.allocate(Kind::Send) else {
            return Err(self.out_of_requests());
        };
        self.counters.requests += 1;
        let (arm, timed) = match args.buffer.layout {
            None => self.choose_arm(args.peer, args.buffer.bytes),
            Some(_) => (Arm::Vector, false),
        };
        let request = self.requests.get(id);
        (request.arm, request.sent_ns) = (arm as u8, timed as u32);
        request.peer = args.peer;
        request.key = args.key;
        request.tag = args.tag;
        request.synchronous = args.synchronous;
        (request.moved, request.early) = (0, 0);
        (request.counter, request.memory.rkey) = (None, 0);
        request.set_buffer(args.buffer);
        self.start_request(id);
        Ok(Started::Request(id))
    }

    /// Sends a contiguous message without a request, if it needs no answer and there is room for all of it.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes.
    #[inline]
    pub unsafe fn send_now(
        &mut self,
        peer: u32,
        key: u64,
        tag: i32,
        data: *const u8,
        len: u64,
    ) -> Post {
        if len > self.thresholds.first {
            return Post::NoResource;
        }
        let mut by = CopyLoop::Vector;
        if len >= LEARN_MIN {
            if self.is_read_directly(data.addr(), len) {
                return Post::NoResource;
            }
            let (arm, timed) = self.choose_arm(peer, len);
            if timed {
                return Post::NoResource; // an announcement says when it began
            }
            by = arm.copy_loop();
        }
        let endpoint = self.endpoint(peer);
        // SAFETY: the caller's.
        let post = unsafe {
            if len <= self.thresholds.whole_on(&endpoint.lane) {
                endpoint.send_buffered(key, tag, data, len as usize, by)
            } else {
                let part = self.thresholds.part_on(&endpoint.lane) as usize;
                endpoint.send_parts(key, tag, data, len as usize, part, by)
            }
        };
        if len >= LEARN_MIN && post == Post::Done {
            self.count_arm(peer, len, false);
        }
        post
    }

    /// Sends the first message of a request, or queues it behind what waits already.
    fn start_request(&mut self, id: RequestId) {
        let peer = self.requests.get(id).peer;
        if self.endpoint(peer).gate != 0 || !self.post_first(id) {
            let (tag, bytes) = (self.requests.get(id).tag, self.requests.get(id).bytes);
            trace::record(Point::NoRoom, peer, tag, bytes);
            self.enqueue(peer, Pending::Start(id));
        }
    }

    /// Posts the eager message or the announcement of a request; false where there is no room.
    pub(crate) fn post_first(&mut self, id: RequestId) -> bool {
        let request = self.requests.get(id);
        let whole = self.thresholds.whole_on(&self.endpoint(request.peer).lane);
        // What is announced goes on in parts, though the lane may have changed since to one that would take it whole.
        let timed = request.sent_ns != 0;
        let post = if request.bytes <= whole && request.phase == Phase::Begun && !timed {
            self.post_eager(id)
        } else {
            self.post_announcement(id)
        };
        match post {
            Post::NoResource => false,
            Post::PeerGone => {
                self.requests.get(id).fault = Fault::PeerGone;
                self.complete(id);
                true
            }
            Post::Done | Post::InProgress | Post::Rouse => true,
        }
    }

    fn post_eager(&mut self, id: RequestId) -> Post {
        let request = self.requests.get(id);
        let len = request.bytes as usize;
        let sync = request.synchronous;
        let skip = if sync { SYNC_HEADER } else { 0 };
        let wire_id = if sync { wire::EAGER_SYNC } else { wire::EAGER };
        let header = Header::new(wire_id, request.tag as u32, request.key);
        let handle = request.handle as u64;
        // SAFETY: the buffer is the caller's promise to `start_send`; `to` has room for all of it.
        let post = self
            .endpoint(request.peer)
            .post_bcopy(header, len + skip, |to| unsafe {
                if sync {
                    to.cast::<u64>().write_unaligned(handle);
                }
                request.pack(0, to.add(skip), len);
            });
        if post == Post::Done {
            trace::record(Point::Eager, request.peer, request.tag, request.bytes);
        }
        if post == Post::Done && sync {
            // From now on, and not before, the receiver may answer.
            request.phase = Phase::Announced;
        } else if post == Post::Done {
            self.complete(id);
        }
        post
    }

    /// Sends the announcement and the bytes that nobody needs to ask for. What finds no room is
    /// posted when this is called again; nothing else goes to the peer in between.
    fn post_announcement(&mut self, id: RequestId) -> Post {
        if self.requests.get(id).phase == Phase::Begun {
            match self.post_rts(id) {
                Post::Done => {}
                post => return post,
            }
        }
        let request = self.requests.get(id);
        let lane = &self.endpoint(request.peer).lane;
        let part = self.thresholds.part_on(lane);
        let early = request.early as u64;
        while request.moved < early {
            let len = part.min(early - request.moved) as usize;
            let header = Header::new(wire::EARLY, 0, 0);
            // SAFETY: as in `post_eager`.
            let post = self
                .endpoint(request.peer)
                .post_bcopy(header, len, |to| unsafe {
                    request.pack(request.moved, to, len)
                });
            match post {
                Post::Done => request.moved += len as u64,
                post => return post,
            }
        }
        let is_whole = request.moved == request.bytes && !request.synchronous;
        match request.phase {
            Phase::Ending => self.complete(id),
            _ if is_whole => self.complete(id),
            Phase::Pushing => self.pushing.push(id),
            _ => {}
        }
        Post::Done
    }

    fn post_rts(&mut self, id: RequestId) -> Post {
        let offer = self.offer_message(id);
        let request = self.requests.get(id);
        let early = if offer.is_some() {
            0
        } else {
            self.thresholds.first.min(request.bytes).min(EARLY_LIMIT)
        };
        let timed = request.sent_ns != 0;
        if timed {
            request.sent_ns = stamp_ns();
        }
        let endpoint = self.endpoint(request.peer);
        let first = self.thresholds.part_on(&endpoint.lane).min(early);
        let offer = offer.unwrap_or(match request.synchronous && early == request.bytes {
            true => Offer::Nothing,
            false => Offer::Fragments,
        });
        let (arm, counter, exposed) = match offer {
            Offer::Fragments | Offer::Nothing => (request.arm, None, 0),
            Offer::Get(from) if endpoint.lane.wants_exposure() => (Arm::Get as u8, None, from.rkey),
            Offer::Get(_) => (Arm::Get as u8, None, 0),
            Offer::Cooperative(_, counter) => (Arm::Cooperative as u8, Some(counter), 0),
        };
        let rts = Rts {
            total: request.bytes,
            request: request.handle,
            early: early as u16,
            offer,
        };
        let sent_ns = request.sent_ns;
        let announcement = Announcement::pack(&rts, Timing { sent_ns, arm });
        let header = Header::new(wire::RTS, request.tag as u32, request.key);
        let post = match first {
            0 => {
                let (peer, key, tag) = (request.peer, request.key, request.tag);
                self.post_short_rts(peer, key, tag, &announcement)
            }
            // SAFETY: as in `post_eager`.
            _ => endpoint.post_bcopy(header, RTS_HEADER + first as usize, |to| unsafe {
                to.cast::<Announcement>().write_unaligned(announcement);
                request.pack(0, to.add(RTS_HEADER), first as usize);
            }),
        };
        let request = self.requests.get(id);
        (request.counter, request.memory.rkey) = (counter, exposed);
        if post == Post::Done {
            request.phase = Phase::Announced;
            request.moved = first;
            request.early = early as u32;
            let (peer, bytes) = (request.peer, request.bytes);
            if bytes >= LEARN_MIN {
                self.count_arm(peer, bytes, timed);
            }
            self.counters.rendezvous += 1;
            let request = self.requests.get(id);
            trace::record(Point::Announced, request.peer, request.tag, first);
        } else {
            self.withdraw_offer(id);
        }
        post
    }

    /// Posts an announcement without any bytes of the message: it fits a slot.
    pub(crate) fn post_short_rts(
        &mut self,
        peer: u32,
        key: u64,
        tag: i32,
        rts: &Announcement,
    ) -> Post {
        let header = Header::new(wire::RTS, tag as u32, key);
        let data = (&raw const *rts).cast();
        // SAFETY: plain data of as many bytes.
        unsafe {
            self.endpoint(peer)
                .post_short(header, data, size_of::<Announcement>())
        }
    }

    /// Sends what waits for room, in order, as far as there is room.
    pub(crate) fn flush_pending(&mut self, peer: u32) -> bool {
        let mut moved = false;
        loop {
            let endpoint = self.endpoint(peer);
            let Some(queue) = endpoint.pending.as_mut() else {
                return moved;
            };
            let Some(next) = queue.front() else {
                endpoint.gate = 0;
                self.gated -= 1;
                return moved;
            };
            let sent = match next {
                Pending::Start(id) => {
                    let id = *id;
                    self.post_first(id)
                }
                Pending::Control(header, bytes, len) => {
                    let (header, bytes, len) = (*header, *bytes, *len);
                    // SAFETY: `len` bytes of the array.
                    let post = unsafe { endpoint.post_short(header, bytes.as_ptr(), len as usize) };
                    post != Post::NoResource
                }
            };
            if !sent && self.endpoint(peer).lane.peer_has_left() {
                self.fail_pending(peer, Fault::PeerGone);
                return true;
            }
            if !sent && self.endpoint(peer).lane.is_starved() {
                self.fail_pending(peer, Fault::NoMemory);
                return true;
            }
            if !sent {
                return moved;
            }
            moved = true;
            if let Some(queue) = self.endpoint(peer).pending.as_mut() {
                queue.pop_front();
            }
        }
    }

    /// The peer cannot be reached: all that waits for it fails.
    #[cold]
    pub(crate) fn fail_pending(&mut self, peer: u32, fault: Fault) {
        let Some(queue) = self.endpoint(peer).pending.take() else {
            return;
        };
        if self.endpoint(peer).gate != 0 {
            self.endpoint(peer).gate = 0;
            self.gated -= 1;
        }
        for pending in *queue {
            match pending {
                Pending::Start(id) => {
                    self.requests.get(id).fault = fault;
                    self.complete(id);
                }
                Pending::Control(..) => self.leave_unanswered(peer, fault),
            }
        }
    }

    /// Sends fragments of long messages as far as there is room.
    pub(crate) fn push_fragments(&mut self) -> bool {
        let mut moved = false;
        let mut index = 0;
        while index < self.pushing.len() {
            let id = self.pushing[index];
            moved |= self.push_one(id);
            let request = self.requests.get(id);
            if request.moved >= request.limit {
                self.pushing.swap_remove(index);
                self.complete(id);
            } else {
                index += 1;
            }
        }
        moved
    }

    fn push_one(&mut self, id: RequestId) -> bool {
        let request = self.requests.get(id);
        let lane = &self.endpoint(request.peer).lane;
        let fragment = self.thresholds.fragment_on(lane);
        let mut moved = false;
        while request.moved < request.limit {
            if !self.thresholds.pipelined && !self.endpoint(request.peer).lane.is_drained() {
                break;
            }
            let len = fragment.min(request.limit - request.moved) as usize;
            let header = Header::new(wire::FRAG, 0, request.remote as u64);
            // SAFETY: as in `post_eager`.
            let post = self
                .endpoint(request.peer)
                .post_bcopy(header, len, |to| unsafe {
                    request.pack(request.moved, to, len)
                });
            match post {
                Post::NoResource if self.endpoint(request.peer).lane.is_starved() => {
                    request.fault = Fault::NoMemory;
                    request.moved = request.limit;
                }
                Post::NoResource if !self.endpoint(request.peer).lane.peer_has_left() => break,
                Post::PeerGone | Post::NoResource => {
                    request.fault = Fault::PeerGone;
                    request.moved = request.limit;
                }
                Post::Done | Post::InProgress | Post::Rouse => {
                    trace::record(Point::Fragment, request.peer, 0, len as u64);
                    request.moved += len as u64;
                }
            }
            moved = true;
        }
        moved
    }
}
