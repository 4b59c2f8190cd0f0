//! Sends that need more than the immediate path.
#![allow(unsafe_code)]

use crate::buffer::Buffer;
use crate::endpoint::Pending;
use crate::learning::{Arm, EagerCopy, LEARN_MIN};
use crate::request::{Fault, Phase, RequestId, RequestKind};
use crate::worker::{SHORT_LIMIT, Worker};
use fastpath_base::clock;
use fastpath_base::trace::{self, Point};
use fastpath_transport::{Connection, Post};

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
        // SAFETY: the buffer is readable as its layout says until the request completes, by this function's contract.
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
            // SAFETY: the buffer is contiguous here, and readable for as many bytes, by this function's contract.
            match unsafe { self.send_now(args.peer, args.key, args.tag, buffer.ptr, buffer.bytes) }
            {
                Post::Done => {
                    let (peer, bytes) = (args.peer, buffer.bytes);
                    trace::record_last(Point::Eager, peer, args.tag, bytes, Point::Posted);
                    return Ok(Started::Done);
                }
                Post::PeerGone => return Err(Fault::PeerGone),
                Post::InProgress | Post::NoResource | Post::Wake => {}
            }
        }
        let Some(id) = self.requests.allocate(RequestKind::Send) else {
            return Err(self.out_of_requests());
        };
        self.counters.requests += 1;
        let (arm, timed) = match args.buffer.layout {
            None => {
                let (arm, timed) = self.choose_arm(args.peer, args.buffer.bytes);
                // Shared memory is read where it lies, whichever way others go.
                let shared =
                    timed && self.is_read_directly(args.buffer.ptr.addr(), args.buffer.bytes);
                (arm, timed && !shared)
            }
            Some(_) => (Arm::Vector, false),
        };
        let request = self.requests.get_mut(id);
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
        &mut self, peer: u32, key: u64, tag: i32, data: *const u8, len: u64,
    ) -> Post {
        if len > self.thresholds.first {
            return Post::NoResource;
        }
        let mut copy = EagerCopy::PLAIN;
        if len >= LEARN_MIN {
            if self.is_read_directly(data.addr(), len) {
                return Post::NoResource;
            }
            let Some(chosen) = self.choose_eager(peer, len) else {
                return Post::NoResource;
            };
            copy = chosen;
        }
        let began_ns = copy.timed.then(clock::now_ns);
        let endpoint = &mut self.endpoints[peer];
        // SAFETY: `data` is readable for `len` bytes, by this function's contract.
        let post = unsafe {
            if len <= self.thresholds.max_single_on(&endpoint.lane) {
                endpoint.send_buffered(key, tag, data, len as usize, copy.by)
            } else {
                let part = self.thresholds.fragment_on(&endpoint.lane) as usize;
                endpoint.send_fragments(key, tag, data, len as usize, part, copy)
            }
        };
        if post == Post::Done {
            self.count_eager(peer, len);
            if len >= LEARN_MIN {
                if let Some(began_ns) = began_ns {
                    self.copy_costs.note_eager_pack(copy.by, len, began_ns);
                }
                self.count_arm(peer, len, false);
            }
        }
        post
    }

    /// Counts a message that has left whole. Short ones by memory are known by the slots that they took.
    #[inline]
    pub(crate) fn count_eager(&mut self, peer: u32, bytes: u64) {
        let way = self.way_to(peer);
        if way != 0 || bytes > SHORT_LIMIT as u64 {
            self.counters.eager[way].add(bytes);
        }
    }

    /// How a peer is reached, as an index of what is counted: 0 by memory, 1 by an adapter or the network.
    #[inline]
    pub(crate) fn way_to(&self, peer: u32) -> usize {
        let lane = &self.endpoints[peer].lane;
        usize::from(!lane.is_same_host() && !lane.is_self())
    }

    /// Sends the first message of a request, or queues it behind what waits already.
    fn start_request(&mut self, id: RequestId) {
        let peer = self.requests.get(id).peer;
        if self.endpoints[peer].blocked != 0 || !self.post_first(id) {
            let (tag, bytes) = (self.requests.get(id).tag, self.requests.get(id).bytes);
            trace::record(Point::NoRoom, peer, tag, bytes);
            if self.endpoints[peer].lane.peer_has_left() {
                // Nobody makes room any more.
                self.requests.get_mut(id).fault = Fault::PeerGone;
                return self.complete(id);
            }
            self.enqueue(peer, Pending::Start(id));
        }
    }

    /// Posts the eager message or the RTS of a request; false where there is no room.
    pub(crate) fn post_first(&mut self, id: RequestId) -> bool {
        let request = self.requests.get(id);
        let whole = self.thresholds.max_single_on(&self.endpoints[request.peer].lane);
        // What is announced goes on in parts, though the lane may have changed since to one that would take it whole.
        let timed = request.sent_ns != 0;
        let (peer, mut is_answered) = (request.peer, request.synchronous);
        let post = if request.bytes <= whole && request.phase == Phase::Begun && !timed {
            self.post_eager(id)
        } else {
            is_answered = true;
            self.post_rts_and_early(id)
        };
        match post {
            Post::NoResource => false,
            Post::PeerGone => {
                self.requests.get_mut(id).fault = Fault::PeerGone;
                self.complete(id);
                true
            }
            Post::Done | Post::InProgress | Post::Wake => {
                if is_answered {
                    self.ring(peer);
                }
                true
            }
        }
    }

    /// Sends what waits for room, in order, as far as there is room.
    pub(crate) fn flush_pending(&mut self, peer: u32) -> bool {
        let mut moved = false;
        loop {
            let endpoint = &mut self.endpoints[peer];
            let Some(queue) = endpoint.pending.as_mut() else {
                return moved;
            };
            let Some(next) = queue.front() else {
                self.unblock(peer);
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
                    self.ring_for(peer, header.id);
                    post != Post::NoResource
                }
            };
            if !sent && self.endpoints[peer].lane.peer_has_left() {
                self.fail_pending(peer, Fault::PeerGone);
                return true;
            }
            if !sent && self.endpoints[peer].lane.is_starved() {
                self.fail_pending(peer, Fault::NoMemory);
                return true;
            }
            if !sent {
                if moved {
                    self.ring(peer); // it makes room again
                }
                return moved;
            }
            moved = true;
            if let Some(queue) = self.endpoints[peer].pending.as_mut() {
                queue.pop_front();
            }
        }
    }

    /// The peer cannot be reached: all that waits for it fails.
    #[cold]
    pub(crate) fn fail_pending(&mut self, peer: u32, fault: Fault) {
        let Some(queue) = self.endpoints[peer].pending.take() else {
            return;
        };
        if self.endpoints[peer].blocked != 0 {
            self.unblock(peer);
        }
        for pending in *queue {
            match pending {
                Pending::Start(id) => {
                    self.requests.get_mut(id).fault = fault;
                    self.complete(id);
                }
                Pending::Control(..) => self.leave_unanswered(peer, fault),
            }
        }
    }
}
