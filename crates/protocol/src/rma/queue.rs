//! Operations that could not be posted whole: they go on in the order they were begun, peer by peer.
#![allow(unsafe_code)]

use super::error::RmaError;
use super::key::Described;
use super::locked::Locked;
use super::message::{AtomicChange, Landing, LockedChange, RegionOffset};
use super::resolve::{AccessPath, RemoteKey, choose_way};
use super::{Moved, RmaError::PeerGone};
use crate::request::Fault;
use crate::wire;
use crate::worker::{SHORT_LIMIT, Worker};
use fastpath_base::copy::copy;
use fastpath_transport::remote::Posted;
use fastpath_transport::{Header, Post, Remote};
use std::collections::VecDeque;

/// Gets, atomics and changes by messages that one peer owes answers to, at most.
const ANSWERS_MOST: u32 = 32;

/// What an operation does.
#[derive(Debug, Clone, Copy)]
pub(super) enum OperationKind {
    Put,
    Get,
    Atomic {
        operation: u32,
        operand: u64,
        compare: u64,
    },
    /// Made by the owner under a lock word: [`super::locked`].
    Change(Locked),
}

/// An operation of which a part may have been done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operation {
    pub kind: OperationKind,
    pub way: AccessPath,
    generation: u32,
    described: Described,
    offset: u64,
    local: *mut u8,
    len: usize,
    pub done: usize,
    /// Whether the buffer stays in use until a flush.
    pub pending: bool,
}

impl Operation {
    pub fn new(
        key: &RemoteKey, kind: OperationKind, offset: u64, local: *mut u8, len: usize,
        generation: u32,
    ) -> Self {
        Operation {
            kind,
            way: key.way,
            generation,
            described: key.described,
            offset,
            local,
            len,
            done: 0,
            pending: false,
        }
    }

    fn place(&self) -> RegionOffset {
        RegionOffset { region: self.described.region, offset: self.offset + self.done as u64 }
    }

    fn remote(&self) -> Remote {
        Remote {
            addr: self.described.address + self.offset + self.done as u64,
            rkey: self.described.adapter.unwrap_or(0),
        }
    }

    /// The rest of the local buffer.
    fn rest(&self) -> (*mut u8, usize) {
        (self.local.wrapping_add(self.done), self.len - self.done)
    }
}

/// Bytes that a peer has asked for and that found no room.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reply {
    pub token: u64,
    pub place: RegionOffset,
    pub len: u32,
}

/// What is under way with a peer that its lane does not know of.
#[derive(Default)]
pub(super) struct Peer {
    /// Puts posted as messages, those a flush has been asked for, and those that the peer says are carried out.
    pub posted: u64,
    pub asked: u64,
    pub acked: u64,
    /// Answers to come.
    pub answers: u32,
    /// Puts of the peer refused here since it was last told.
    pub refused: u32,
    pub queue: VecDeque<Operation>,
    pub replies: VecDeque<Reply>,
    /// What the next flush has to say.
    pub failed: Option<RmaError>,
    /// Counted in `Rma::busy`.
    pub busy: bool,
    /// Counted in `Rma::queues`.
    pub queued: bool,
}

/// How far an operation has come.
enum OperationState {
    Complete,
    Waits,
    Gone,
}

impl Worker {
    pub(super) fn remote_peer(&mut self, peer: u32) -> &mut Peer {
        self.rma.peers.entry(peer).or_default()
    }

    /// Something is under way that only a flush ends.
    fn note_busy(&mut self, peer: u32) -> &mut Peer {
        let state = self.rma.peers.entry(peer).or_default();
        self.rma.busy += u32::from(!state.busy);
        state.busy = true;
        state
    }

    /// Counts the peers with a queue: progress looks at them.
    fn note_queue(&mut self, peer: u32) {
        let Some(state) = self.rma.peers.get_mut(&peer) else {
            return;
        };
        let queued = !state.queue.is_empty() || !state.replies.is_empty();
        match (state.queued, queued) {
            (false, true) => {
                (self.rma.queues, self.blocked_peers) =
                    (self.rma.queues + 1, self.blocked_peers + 1)
            }
            (true, false) => {
                (self.rma.queues, self.blocked_peers) =
                    (self.rma.queues - 1, self.blocked_peers - 1)
            }
            _ => {}
        }
        state.queued = queued;
    }

    /// Begins an operation, or puts it behind those that wait.
    pub(super) fn start_operation(
        &mut self, peer: u32, mut operation: Operation,
    ) -> Result<Moved, RmaError> {
        if operation.way == AccessPath::Messages {
            self.connect(peer).map_err(|_| RmaError::NoMemory)?;
        }
        let waits = self.rma.queues != 0
            && (self.rma.peers.get(&peer)).is_some_and(|state| !state.queue.is_empty());
        if !waits {
            match self.advance(peer, &mut operation) {
                OperationState::Complete if operation.pending => return Ok(Moved::Pending),
                OperationState::Complete => return Ok(Moved::Done),
                OperationState::Waits => {}
                OperationState::Gone => return Err(PeerGone),
            }
        }
        self.rma.counters.queued += 1;
        self.note_busy(peer).queue.push_back(operation);
        self.note_queue(peer);
        Ok(Moved::Pending)
    }

    /// Posts bytes for a peer that has asked for them, or keeps in mind that it has.
    pub(super) fn start_reply(&mut self, peer: u32, reply: Reply) {
        let waits = !self.remote_peer(peer).replies.is_empty();
        if waits || !self.post_reply(peer, &reply) {
            self.remote_peer(peer).replies.push_back(reply);
            self.note_queue(peer);
        }
    }

    /// Goes on with the queues of all peers; says whether anything happened.
    #[cold]
    pub(crate) fn progress_remote(&mut self) -> bool {
        let waiting = self.rma.waiting_peers();
        waiting.into_iter().fold(false, |moved, peer| moved | self.progress_queue(peer))
    }

    /// Goes on with the queue of one peer.
    pub(super) fn progress_queue(&mut self, peer: u32) -> bool {
        let mut moved = false;
        while let Some(&reply) = self.remote_peer(peer).replies.front() {
            if !self.post_reply(peer, &reply) {
                break;
            }
            self.remote_peer(peer).replies.pop_front();
            moved = true;
        }
        while let Some(mut operation) = self.remote_peer(peer).queue.pop_front() {
            let before = operation.done;
            if operation.generation != self.rma.generation && operation.way != AccessPath::Messages
            {
                // The lane is another one now.
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

    /// The peer is gone: nothing that is under way to it will end otherwise.
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

    /// Posts as much of an operation as there is room for. Of messages the peer has to carry out those that it answers,
    /// and others where it is to make room.
    fn advance(&mut self, peer: u32, operation: &mut Operation) -> OperationState {
        let step = self.post_rest(peer, operation);
        let is_put = matches!(operation.kind, OperationKind::Put);
        if operation.way != AccessPath::Adapter
            && (!is_put || matches!(step, OperationState::Waits))
        {
            self.ring(peer);
        }
        step
    }

    fn post_rest(&mut self, peer: u32, operation: &mut Operation) -> OperationState {
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
                (_, OperationKind::Put) => self.post_put_message(peer, operation),
                (_, OperationKind::Change(asked)) => self.post_change(peer, operation, asked),
                (_, _) => self.post_question(peer, operation),
            };
            match posted {
                Posted::Done(bytes) => operation.done += bytes,
                Posted::InProgress(bytes) => {
                    operation.done += bytes;
                    operation.pending = true;
                }
                Posted::NoResource if self.peer_has_left(peer) => return OperationState::Gone,
                Posted::NoResource => {
                    if self.endpoints[peer].lane.is_starved() {
                        self.leave_unanswered(peer, Fault::NoMemory);
                    }
                    return OperationState::Waits;
                }
                Posted::PeerGone => return OperationState::Gone,
            }
        }
        OperationState::Complete
    }

    /// Most bytes of a region in one message.
    fn remote_part(&self, peer: u32) -> usize {
        let lane = &self.endpoints[peer].lane;
        let most = lane.capabilities().map_or(0, |c| c.bcopy);
        let wanted = self.thresholds.fragment.min(1 << 20) as usize;
        wanted.min(most.saturating_sub(size_of::<RegionOffset>())).max(1)
    }

    fn post_put_message(&mut self, peer: u32, operation: &Operation) -> Posted {
        let (from, rest) = operation.rest();
        let (len, place) = (rest.min(self.remote_part(peer)), operation.place());
        let header = Header::new(wire::REMOTE_PUT, 0, 0);
        let pack = |to: *mut u8| {
            // SAFETY: `to` has room for both, by what is posted below; `from` as in `advance`.
            unsafe {
                to.cast::<RegionOffset>().write_unaligned(place);
                copy(to.add(size_of::<RegionOffset>()), from, len);
            }
        };
        let post = self.post_packed(peer, header, size_of::<RegionOffset>() + len, pack);
        let posted = as_posted(post, len);
        if matches!(posted, Posted::InProgress(_)) {
            self.note_busy(peer).posted += 1;
            return Posted::Done(len);
        }
        posted
    }

    /// Posts a get or an atomic, which the peer answers.
    fn post_question(&mut self, peer: u32, operation: &Operation) -> Posted {
        if self.remote_peer(peer).answers >= ANSWERS_MOST {
            return Posted::NoResource;
        }
        let (to, rest) = operation.rest();
        let (place, mut change) = (operation.place(), [0_u64; 4]);
        (change[0], change[1]) = (place.region, place.offset);
        let (id, imm, len, payload) = match operation.kind {
            OperationKind::Atomic { operation, operand, compare } => {
                (change[2], change[3]) = (operand, compare);
                (wire::REMOTE_ATOMIC, operation, 8, size_of::<AtomicChange>())
            }
            _ => {
                let len = rest.min(self.remote_part(peer));
                (wire::REMOTE_GET, len as u32, len, size_of::<RegionOffset>())
            }
        };
        let token = self.rma.landings.insert(Landing { peer, to, len });
        let header = Header::new(id, imm, token);
        // SAFETY: the words are at least so long.
        let post = unsafe {
            let endpoint = &mut self.endpoints[peer];
            endpoint.post_short(header, change.as_ptr().cast(), payload)
        };
        self.note_question(peer, token, as_posted(post, len))
    }

    /// Posts a change, which the peer answers.
    fn post_change(&mut self, peer: u32, operation: &Operation, asked: Locked) -> Posted {
        if self.remote_peer(peer).answers >= ANSWERS_MOST {
            return Posted::NoResource;
        }
        let (to, len) = operation.rest();
        let token = self.rma.landings.insert(Landing { peer, to, len });
        let header = Header::new(wire::REMOTE_CHANGE, asked.sizes(len), token);
        let change =
            LockedChange { place: operation.place(), lock: asked.lock, change: asked.change };
        let (from, given) = asked.given;
        let skip = size_of::<LockedChange>();
        let post = self.post_packed(peer, header, skip + given, |to| {
            // SAFETY: `to` has room for both, by what is posted; what is given is readable until the answer is there.
            unsafe {
                to.cast::<LockedChange>().write_unaligned(change);
                copy(to.add(skip), from, given);
            }
        });
        self.note_question(peer, token, as_posted(post, len))
    }

    /// An answer is awaited, where its question has been posted.
    fn note_question(&mut self, peer: u32, token: u64, posted: Posted) -> Posted {
        match posted {
            Posted::InProgress(_) => self.note_busy(peer).answers += 1,
            _ => {
                self.rma.landings.remove_if(token, |_| true);
            }
        }
        posted
    }

    /// Posts bytes that a peer has asked for; false where there is no room.
    fn post_reply(&mut self, peer: u32, reply: &Reply) -> bool {
        let (place, len) = (reply.place, reply.len as usize);
        let found = self.rma.regions.locate(place.region, place.offset, len as u64);
        let Some(from) = found else {
            self.send_control(peer, Header::new(wire::REMOTE_DATA, 1, reply.token), &[]);
            return true;
        };
        let header = Header::new(wire::REMOTE_DATA, 0, reply.token);
        // SAFETY: `to` has room for `len` bytes, of which there are as many in the region.
        let post = self.post_packed(peer, header, len, |to| unsafe { copy(to, from, len) });
        post != Post::NoResource
    }

    /// Posts what `pack` writes: short if it fits.
    fn post_packed(
        &mut self, peer: u32, header: Header, len: usize, pack: impl FnOnce(*mut u8),
    ) -> Post {
        let endpoint = &mut self.endpoints[peer];
        if len > SHORT_LIMIT {
            return endpoint.post_bcopy(header, len, pack);
        }
        let mut bytes = [0; SHORT_LIMIT];
        pack(bytes.as_mut_ptr());
        // SAFETY: the array is that long.
        unsafe { endpoint.post_short(header, bytes.as_ptr(), len) }
    }
}

fn as_posted(post: Post, len: usize) -> Posted {
    match post {
        Post::Done | Post::InProgress | Post::Wake => Posted::InProgress(len),
        Post::NoResource => Posted::NoResource,
        Post::PeerGone => Posted::PeerGone,
    }
}
