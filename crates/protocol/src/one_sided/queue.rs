//! Operations that could not be posted whole. For each peer they continue in the order in which they began.
#![allow(unsafe_code)]

use crate::request::Fault;
use crate::rma::error::RmaError;
use crate::rma::locked::LockedOperation;
use crate::rma::message::{AtomicChange, LockedChange, RegionOffset, ReplyTarget};
use crate::rma::queue::{OperationKind, Reply, RmaOperation, RmaPeer};
use crate::rma::resolve::{AccessPath, choose_way};
use crate::rma::{BufferState, RmaError::PeerGone};
use crate::wire::{self, SHORT_LIMIT};
use crate::worker::Worker;
use fastpath_base::copy::copy;
use fastpath_transport::PostOutcome;
use fastpath_transport::{Header, Post};

/// Most gets, atomics and changes by messages that one peer has not answered.
const ANSWERS_MOST: u32 = 32;

enum OperationState {
    Complete,
    Waits,
    Gone,
}

impl Worker {
    pub(super) fn remote_peer(&mut self, peer: u32) -> &mut RmaPeer {
        self.rma.peers.entry(peer).or_default()
    }

    fn note_busy(&mut self, peer: u32) -> &mut RmaPeer {
        let state = self.rma.peers.entry(peer).or_default();
        self.rma.busy += u32::from(!state.busy);
        state.busy = true;
        state
    }

    fn note_queue(&mut self, peer: u32) {
        let Some(state) = self.rma.peers.get_mut(&peer) else {
            return;
        };
        let queued = !state.queue.is_empty() || !state.replies.is_empty();
        match (state.queued, queued) {
            (false, true) => {
                (self.rma.queues, self.sends.blocked_peers) =
                    (self.rma.queues + 1, self.sends.blocked_peers + 1)
            }
            (true, false) => {
                (self.rma.queues, self.sends.blocked_peers) =
                    (self.rma.queues - 1, self.sends.blocked_peers - 1)
            }
            _ => {}
        }
        state.queued = queued;
    }

    pub(super) fn start_operation(
        &mut self, peer: u32, mut operation: RmaOperation,
    ) -> Result<BufferState, RmaError> {
        if operation.way == AccessPath::Messages {
            self.connect(peer).map_err(|_| RmaError::NoMemory)?;
        }
        let waits = self.rma.queues != 0
            && (self.rma.peers.get(&peer)).is_some_and(|state| !state.queue.is_empty());
        if !waits {
            match self.advance(peer, &mut operation) {
                OperationState::Complete if operation.pending => return Ok(BufferState::Pending),
                OperationState::Complete => return Ok(BufferState::Done),
                OperationState::Waits => {}
                OperationState::Gone => {
                    // An answer to a part that was posted must find no destination.
                    self.fail_remote(peer);
                    return Err(PeerGone);
                }
            }
        }
        self.rma.counters.queued += 1;
        self.note_busy(peer).queue.push_back(operation);
        self.note_queue(peer);
        Ok(BufferState::Pending)
    }

    pub(super) fn start_reply(&mut self, peer: u32, reply: Reply) {
        let waits = !self.remote_peer(peer).replies.is_empty();
        if waits || !self.post_reply(peer, &reply) {
            self.remote_peer(peer).replies.push_back(reply);
            self.note_queue(peer);
        }
    }

    #[cold]
    pub(crate) fn progress_remote(&mut self) -> bool {
        let waiting = self.rma.waiting_peers();
        waiting.into_iter().fold(false, |moved, peer| moved | self.progress_queue(peer))
    }

    pub(super) fn progress_queue(&mut self, peer: u32) -> bool {
        let mut moved = false;
        while let Some(reply) = self.remote_peer(peer).replies.pop_front() {
            if !self.post_reply(peer, &reply) {
                self.remote_peer(peer).replies.push_front(reply);
                break;
            }
            moved = true;
        }
        while let Some(mut operation) = self.remote_peer(peer).queue.pop_front() {
            let before = operation.done;
            if operation.generation != self.rma.generation && operation.way != AccessPath::Messages
            {
                let lane = &self.endpoints[peer].lane;
                operation.way = choose_way(lane, &operation.described, false, true);
                operation.generation = self.rma.generation;
            }
            match self.advance(peer, &mut operation) {
                OperationState::Complete => moved = true,
                OperationState::Waits => {
                    moved |= operation.done != before;
                    self.remote_peer(peer).queue.push_front(operation);
                    break;
                }
                OperationState::Gone => self.fail_remote(peer),
            }
        }
        self.note_queue(peer);
        moved
    }

    /// Fails all operations to a peer that is gone, because no arrival would end them.
    #[cold]
    pub(super) fn fail_remote(&mut self, peer: u32) {
        self.rma.landings.remove_all(|landing| landing.peer == peer);
        let state = self.note_busy(peer);
        state.queue.clear();
        state.replies.clear();
        (state.acked, state.asked, state.answers) = (state.posted, state.posted, 0);
        state.failed = Some(PeerGone);
        self.note_queue(peer);
    }

    /// Posts as much of an operation as fits, and signals the peer's progress thread, which must answer or make space.
    fn advance(&mut self, peer: u32, operation: &mut RmaOperation) -> OperationState {
        let step = self.post_rest(peer, operation);
        let is_put = matches!(operation.kind, OperationKind::Put);
        if operation.way != AccessPath::Adapter
            && (!is_put || matches!(step, OperationState::Waits))
        {
            self.ring(peer);
        }
        step
    }

    fn post_rest(&mut self, peer: u32, operation: &mut RmaOperation) -> OperationState {
        while operation.done < operation.len {
            let posted = match (operation.way, operation.kind) {
                // SAFETY: LOCAL BYTES (`post`), which last until the flush.
                (AccessPath::Adapter, OperationKind::Put) => unsafe {
                    let (from, len) = operation.rest();
                    self.post_moving::<true>(peer, from, len, operation.remote())
                },
                // SAFETY: LOCAL BYTES (`post`), which last until the flush.
                (AccessPath::Adapter, OperationKind::Get) => unsafe {
                    let (to, len) = operation.rest();
                    self.post_moving::<false>(peer, to, len, operation.remote())
                },
                _ if !operation.blocks.is_empty() => self.post_blocks(peer, operation),
                (_, OperationKind::Put) => self.post_put_message(peer, operation),
                (_, OperationKind::Change(asked)) => self.post_change(peer, operation, asked),
                (_, _) => self.post_question(peer, operation),
            };
            match posted {
                PostOutcome::Done(bytes) => operation.done += bytes,
                PostOutcome::InProgress(bytes) => {
                    operation.done += bytes;
                    operation.pending = true;
                }
                PostOutcome::NoResource if self.peer_has_left(peer) => return OperationState::Gone,
                PostOutcome::NoResource => {
                    if self.endpoints[peer].lane.is_starved() {
                        self.leave_unanswered(peer, Fault::NoMemory);
                    }
                    return OperationState::Waits;
                }
                PostOutcome::PeerGone => return OperationState::Gone,
            }
        }
        OperationState::Complete
    }

    pub(super) fn remote_part(&self, peer: u32) -> usize {
        let lane = &self.endpoints[peer].lane;
        let most = lane.capabilities().map_or(0, |c| c.bcopy);
        let wanted = self.planner.thresholds.fragment.min(1 << 20) as usize;
        wanted.min(most.saturating_sub(size_of::<RegionOffset>())).max(1)
    }

    fn post_put_message(&mut self, peer: u32, operation: &RmaOperation) -> PostOutcome {
        let (from, rest) = operation.rest();
        let (len, place) = (rest.min(self.remote_part(peer)), operation.place());
        let header = Header::new(wire::REMOTE_PUT, 0, 0);
        let pack = |to: *mut u8| {
            // SAFETY: `post_packed` gives `to` space for both parts, and LOCAL BYTES (`post`) holds for `from`.
            unsafe {
                to.cast::<RegionOffset>().write_unaligned(place);
                copy(to.add(size_of::<RegionOffset>()), from, len);
            }
        };
        self.post_put(peer, header, size_of::<RegionOffset>() + len, len, pack)
    }

    /// Posts a message of `payload` bytes that puts `len` bytes.
    pub(super) fn post_put(
        &mut self, peer: u32, header: Header, payload: usize, len: usize,
        pack: impl FnOnce(*mut u8),
    ) -> PostOutcome {
        let posted = as_posted(self.post_packed(peer, header, payload, pack), len);
        if matches!(posted, PostOutcome::InProgress(_)) {
            self.note_busy(peer).posted += 1;
            return PostOutcome::Done(len);
        }
        posted
    }

    /// Posts a request of `payload` bytes, whose answer has `len` bytes for `to`. `request` is the id and `imm` of its
    /// header.
    pub(super) fn post_request(
        &mut self, peer: u32, request: (u8, u32), (to, len): (*mut u8, usize), payload: usize,
        pack: impl FnOnce(*mut u8),
    ) -> PostOutcome {
        if self.remote_peer(peer).answers >= ANSWERS_MOST {
            return PostOutcome::NoResource;
        }
        let token = self.rma.landings.insert(ReplyTarget { peer, to, len });
        let header = Header::new(request.0, request.1, token);
        let post = self.post_packed(peer, header, payload, pack);
        self.note_question(peer, token, as_posted(post, len))
    }

    fn post_question(&mut self, peer: u32, operation: &RmaOperation) -> PostOutcome {
        let (to, rest) = operation.rest();
        let (place, mut change) = (operation.place(), [0_u64; 4]);
        (change[0], change[1]) = (place.region, place.offset);
        let (request, len, payload) = match operation.kind {
            OperationKind::Atomic { operation, operand, compare } => {
                (change[2], change[3]) = (operand, compare);
                ((wire::REMOTE_ATOMIC, operation), 8, size_of::<AtomicChange>())
            }
            _ => {
                let len = rest.min(self.remote_part(peer));
                ((wire::REMOTE_GET, len as u32), len, size_of::<RegionOffset>())
            }
        };
        self.post_request(peer, request, (to, len), payload, |to| {
            // SAFETY: `post_packed` gives `to` space, and `change` has at least `payload` bytes.
            unsafe { copy(to, change.as_ptr().cast(), payload) };
        })
    }

    fn post_change(
        &mut self, peer: u32, operation: &RmaOperation, asked: LockedOperation,
    ) -> PostOutcome {
        let (to, len) = operation.rest();
        let request = (wire::REMOTE_CHANGE, asked.sizes(len));
        let change =
            LockedChange { place: operation.place(), lock: asked.lock, change: asked.change };
        let (from, given) = asked.given;
        let skip = size_of::<LockedChange>();
        self.post_request(peer, request, (to, len), skip + given, |to| {
            // SAFETY: `post_packed` gives `to` space, and the given bytes are readable until the answer.
            unsafe {
                to.cast::<LockedChange>().write_unaligned(change);
                copy(to.add(skip), from, given);
            }
        })
    }

    fn note_question(&mut self, peer: u32, token: u64, posted: PostOutcome) -> PostOutcome {
        match posted {
            PostOutcome::InProgress(_) => self.note_busy(peer).answers += 1,
            _ => {
                self.rma.landings.remove_if(token, |_| true);
            }
        }
        posted
    }

    fn post_reply(&mut self, peer: u32, reply: &Reply) -> bool {
        let (place, len) = (reply.place, reply.len as usize);
        let header = Header::new(wire::REMOTE_DATA, 0, reply.token);
        let post = if self.is_stream(place.region) {
            let bytes = self.read_stream(reply);
            bytes.map(|bytes| {
                // SAFETY: `to` has space for `len` bytes, as many as were read.
                self.post_packed(peer, header, len, |to| unsafe { copy(to, bytes.as_ptr(), len) })
            })
        } else if reply.blocks.is_empty() {
            let found = self.rma.regions.locate(place.region, place.offset, len as u64);
            found.map(|from| {
                // SAFETY: `to` has space for `len` bytes, and the region has `len` bytes from `from` on.
                self.post_packed(peer, header, len, |to| unsafe { _ = from.read(to, len) })
            })
        } else {
            let found = self.locate_blocks(reply);
            found.map(|blocks| {
                self.post_packed(peer, header, len, |mut to| {
                    for (from, len) in blocks {
                        // SAFETY: `to` has space for all blocks, and the region has `len` bytes from `from` on.
                        unsafe { _ = from.read(to, len) };
                        to = to.wrapping_add(len);
                    }
                })
            })
        };
        let Some(post) = post else {
            self.send_control(peer, Header::new(wire::REMOTE_DATA, 1, reply.token), &[]);
            return true;
        };
        post != Post::NoResource
    }

    fn is_stream(&self, region: u64) -> bool {
        self.rma.regions.find(region).is_some_and(|region| region.stream.is_some())
    }

    /// Returns the bytes of a reply from memory that the processor cannot touch; `None` if they cannot be copied.
    #[cold]
    fn read_stream(&self, reply: &Reply) -> Option<Vec<u8>> {
        let place = reply.place;
        let parts = match reply.blocks.is_empty() {
            true => {
                let bytes =
                    self.rma.regions.locate(place.region, place.offset, reply.len.into())?;
                vec![(bytes, reply.len as usize)]
            }
            false => self.locate_blocks(reply)?,
        };
        let (mut read, mut done) = (vec![0; reply.len as usize], 0);
        for (from, len) in parts {
            let to = read.get_mut(done..done + len)?;
            // SAFETY: `to` has `len` bytes, and the region has `len` bytes from `from` on.
            if !unsafe { from.read(to.as_mut_ptr(), len) } {
                return None;
            }
            done += len;
        }
        Some(read)
    }

    fn post_packed(
        &mut self, peer: u32, header: Header, len: usize, pack: impl FnOnce(*mut u8),
    ) -> Post {
        let endpoint = &mut self.endpoints[peer];
        if len > SHORT_LIMIT {
            return endpoint.post_bcopy(header, len, pack);
        }
        let mut bytes = [0; SHORT_LIMIT];
        pack(bytes.as_mut_ptr());
        // SAFETY: the array has `SHORT_LIMIT` bytes, which are at least `len`.
        unsafe { endpoint.post_short(header, bytes.as_ptr(), len) }
    }
}

fn as_posted(post: Post, len: usize) -> PostOutcome {
    match post {
        Post::Done | Post::InProgress | Post::Wake => PostOutcome::InProgress(len),
        Post::NoResource => PostOutcome::NoResource,
        Post::PeerGone => PostOutcome::PeerGone,
    }
}
