//! Sends that need more than the immediate path.
#![allow(unsafe_code)]

use crate::buffer::Buffer;
use crate::endpoint::PendingPost;
use crate::learning::LEARN_MIN;
use crate::plan::{Outgoing, SendPlan, SendProtocol};
use crate::protocols;
use crate::request::{Fault, RequestId, RequestKind};
use crate::wire::SHORT_LIMIT;
use crate::worker::Worker;
use fastpath_base::clock;
use fastpath_base::trace::{self, Point};
use fastpath_transport::{Connection, Post};

/// Arguments of a send.
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
    /// Whether the send completes only when the receive has matched.
    pub synchronous: bool,
}

/// Outcome of starting an operation.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartOutcome {
    /// The operation is complete and has no request.
    Done,
    /// The operation continues under this request.
    Request(RequestId),
}

impl Worker {
    /// Starts a send.
    ///
    /// # Safety
    /// The buffer is readable as its layout says until the request completes.
    pub unsafe fn start_send(&mut self, args: SendArgs) -> Result<StartOutcome, Fault> {
        trace::record(Point::Post, args.peer, args.tag, args.buffer.bytes);
        // SAFETY: the buffer is readable as its layout says until the request completes, by this function's contract.
        let started = unsafe { self.start_new_send(args) };
        if !matches!(started, Ok(StartOutcome::Done)) {
            trace::record(Point::Posted, 0, 0, 0);
        }
        started
    }

    /// # Safety
    /// See [`Worker::start_send`].
    #[inline]
    unsafe fn start_new_send(&mut self, args: SendArgs) -> Result<StartOutcome, Fault> {
        self.connect(args.peer)?;
        let SendArgs { peer, key, tag, synchronous, .. } = args;
        let Buffer { ptr, bytes, .. } = args.buffer;
        let address = args.buffer.layout.is_none().then(|| ptr.addr());
        let mut plan = self.plan_send(peer, bytes, address, synchronous);
        if plan.immediate {
            // SAFETY: an immediate message is contiguous; it is readable, by this function's contract.
            match unsafe { self.send_immediate(&plan, peer, (key, tag), ptr, bytes) } {
                Post::Done => {
                    trace::record_last(Point::Eager, peer, tag, bytes, Point::Posted);
                    return Ok(StartOutcome::Done);
                }
                Post::PeerGone => return Err(Fault::PeerGone),
                Post::InProgress | Post::NoResource | Post::Wake => {}
            }
        }
        let Some(id) = self.requests.allocate(RequestKind::Send) else {
            return Err(self.out_of_requests());
        };
        self.counters.requests += 1;
        let request = self.requests.get_mut(id);
        plan.store(request);
        (request.peer, request.key, request.tag) = (peer, key, tag);
        request.synchronous = synchronous;
        (request.moved, request.early) = (0, 0);
        (request.counter, request.memory.rkey) = (None, 0);
        request.set_buffer(args.buffer);
        if plan.immediate {
            plan = self.replan_send(id);
        }
        self.start_request(id, &plan);
        Ok(StartOutcome::Request(id))
    }

    /// Sends a contiguous message without a request, or returns `NoResource` if it needs one or space is lacking.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes.
    #[inline]
    pub unsafe fn send_now(
        &mut self, peer: u32, key: u64, tag: i32, data: *const u8, len: u64,
    ) -> Post {
        if len > self.planner.thresholds.first {
            return Post::NoResource;
        }
        if len >= LEARN_MIN {
            // SAFETY: `data` is readable for `len` bytes, by this function's contract.
            return unsafe { self.send_chosen(peer, (key, tag), data, len) };
        }
        let sizes = self.planner.thresholds.sizes_on(&self.endpoints[peer].lane);
        let plan = SendPlan::plain(&sizes, len);
        // SAFETY: `data` is readable for `len` bytes, by this function's contract.
        unsafe { self.send_planned(&plan, peer, (key, tag), data, len) }
    }

    /// Sends a message of [`LEARN_MIN`] bytes or more, or returns `NoResource` if its plan needs a request.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes.
    #[inline(never)]
    unsafe fn send_chosen(
        &mut self, peer: u32, match_bits: (u64, i32), data: *const u8, len: u64,
    ) -> Post {
        let plan = self.plan_send(peer, len, Some(data.addr()), false);
        match plan.immediate {
            // SAFETY: `data` is readable for `len` bytes, by this function's contract.
            true => unsafe { self.send_planned(&plan, peer, match_bits, data, len) },
            false => Post::NoResource,
        }
    }

    /// Calls the inlined [`Worker::send_planned`]. The caller makes a request if space is lacking.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes.
    #[inline(never)]
    unsafe fn send_immediate(
        &mut self, plan: &SendPlan, peer: u32, match_bits: (u64, i32), data: *const u8, len: u64,
    ) -> Post {
        // SAFETY: `data` is readable for `len` bytes, by this function's contract.
        unsafe { self.send_planned(plan, peer, match_bits, data, len) }
    }

    /// Plans a send. `address` is `None` if the message is not contiguous.
    #[inline(always)] // benchmark: callgrind of MPI_Send; a call would take 20 to 40 instructions
    fn plan_send(
        &mut self, peer: u32, bytes: u64, address: Option<usize>, synchronous: bool,
    ) -> SendPlan {
        let plain = address.is_some() && !synchronous;
        if plain && let Some(plan) = self.planner.plan_short(&self.endpoints[peer].lane, bytes) {
            return plan;
        }
        let message = Outgoing {
            bytes,
            contiguous: address.is_some(),
            synchronous,
            shared: address.is_some_and(|address| self.is_read_directly(address, bytes)),
            crowded: self.is_crowded(),
            computes: self.computes_beside(peer, bytes),
        };
        self.planner.plan_send(&mut self.endpoints[peer], message)
    }

    fn replan_send(&self, id: RequestId) -> SendPlan {
        let request = self.requests.get(id);
        self.planner.replan(&self.endpoints[request.peer].lane, request, self.is_crowded())
    }

    /// Sends an immediate message by its plan, or returns `NoResource` if space is lacking.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes.
    #[inline(always)] // benchmark: callgrind of MPI_Send; a call would take 20 to 40 instructions
    unsafe fn send_planned(
        &mut self, plan: &SendPlan, peer: u32, match_bits: (u64, i32), data: *const u8, len: u64,
    ) -> Post {
        let began_ns = plan.times_copies.then(clock::now_ns);
        let endpoint = &mut self.endpoints[peer];
        // SAFETY: `data` is readable for `len` bytes, by this function's contract.
        let post = unsafe { protocols::start_now(endpoint, plan, match_bits, data, len as usize) };
        if post == Post::Done {
            self.count_eager(peer, len);
            if len >= LEARN_MIN {
                if let Some(began_ns) = began_ns {
                    self.planner.copy_costs.note_eager_pack(plan.arm.copy_loop(), len, began_ns);
                }
                self.planner.count(&mut self.endpoints[peer], len, false);
            }
        }
        post
    }

    /// Counts a message that has left whole. Short messages through memory are counted by ring slots instead.
    #[inline]
    pub(crate) fn count_eager(&mut self, peer: u32, bytes: u64) {
        let way = self.way_to(peer);
        if way != 0 || bytes > SHORT_LIMIT as u64 {
            self.counters.eager[way].add(bytes);
        }
    }

    /// Returns the index of a peer's counters: 0 for memory, 1 for an adapter or the network.
    #[inline]
    pub(crate) fn way_to(&self, peer: u32) -> usize {
        let lane = &self.endpoints[peer].lane;
        usize::from(!lane.is_same_host() && !lane.is_self())
    }

    fn start_request(&mut self, id: RequestId, plan: &SendPlan) {
        let peer = self.requests.get(id).peer;
        if self.endpoints[peer].blocked != 0 || !self.post_first(id, plan) {
            let (tag, bytes) = (self.requests.get(id).tag, self.requests.get(id).bytes);
            trace::record(Point::NoRoom, peer, tag, bytes);
            if self.endpoints[peer].lane.peer_has_left() {
                // The peer has left and will never make space, so the send fails.
                self.requests.get_mut(id).fault = Fault::PeerGone;
                return self.complete(id);
            }
            self.enqueue(peer, PendingPost::Start(id));
        }
    }

    fn post_first(&mut self, id: RequestId, plan: &SendPlan) -> bool {
        let request = self.requests.get(id);
        let peer = request.peer;
        let is_answered = request.synchronous || plan.protocol == SendProtocol::Announced;
        match protocols::start(self, plan, id) {
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
                PendingPost::Start(id) => {
                    let id = *id;
                    let plan = self.replan_send(id);
                    self.post_first(id, &plan)
                }
                PendingPost::Control(header, bytes, len) => {
                    let (header, bytes, len) = (*header, *bytes, *len);
                    // SAFETY: `bytes` is an array of at least `len` bytes.
                    let post = unsafe { endpoint.post_short(header, bytes.as_ptr(), len as usize) };
                    self.ring_for(peer, header.id);
                    post != Post::NoResource
                }
                PendingPost::Notice(notice) => {
                    let (header, bytes) = (notice.header, notice.bytes.clone());
                    let post = self.post_notice(peer, header, &bytes);
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
                    self.ring(peer); // the peer then makes space again
                }
                return moved;
            }
            moved = true;
            if let Some(queue) = self.endpoints[peer].pending.as_mut() {
                queue.pop_front();
            }
        }
    }

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
                PendingPost::Start(id) => {
                    self.requests.get_mut(id).fault = fault;
                    self.complete(id);
                }
                PendingPost::Control(..) => self.leave_unanswered(peer, fault),
                PendingPost::Notice(..) => {}
            }
        }
    }
}
