//! Peers that have left the job: what only they could end, ends here.
#![allow(unsafe_code)]

use crate::matching::ANY_PEER;
use crate::request::{Fault, Request, RequestId, RequestKind, State};
use crate::tag::key_source;
use crate::worker::Worker;
use fastpath_base::sync::Ordering;
use fastpath_bootstrap::segment::Phase;
use fastpath_transport::Connection;

/// Most rounds of progress for what has arrived: each takes some messages of every peer.
const ROUNDS_MAX: u32 = 1000;

impl Worker {
    /// Whether a peer, by its rank in the world, has left the job. What it sent before can be seen after an answer of
    /// yes.
    #[inline]
    pub fn peer_has_left(&self, peer: u32) -> bool {
        let lane = &self.endpoints[peer].lane;
        match lane.is_unconnected() {
            true => self.interfaces.has_left(peer),
            false => lane.peer_has_left(),
        }
    }

    /// Calls `on_ends` if ranks ended since the last call. The launcher signals ranks that have a ring with an ended
    /// rank. Returns whether messages may have been taken.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_ends(&mut self) -> bool {
        let events = self.job.header().events.load(Ordering::Relaxed);
        let call = self.on_ends.filter(|_| events != self.seen_events);
        self.seen_events = events;
        if let Some(call) = call {
            call(self);
        }
        call.is_some()
    }

    /// Spawned ranks of this host that have left and that this process has a lane to.
    pub fn departed(&self) -> Vec<u32> {
        let has_left = |peer: &u32| {
            *peer != self.rank && self.endpoints[*peer].lane.is_ring() && self.peer_has_left(*peer)
        };
        let segment = self.job.segment();
        let spawned = segment.node_ranks().filter(|&rank| segment.has_reusable_place(rank));
        spawned.map(|rank| rank as u32).filter(has_left).collect()
    }

    /// Drops the lanes to ranks that have left and that no communicator of this process has, where nothing is under way
    /// with them: their places in memory can be reused. An operation with such a rank fails from now on as it did
    /// before.
    pub fn release_departed(&mut self, departed: &[u32]) {
        self.take_arrivals();
        for &peer in departed {
            let endpoint = &mut self.endpoints[peer];
            let is_pending = endpoint.blocked != 0 || endpoint.lane.has_arrival();
            if is_pending || self.requests.active().any(|request| request.peer == peer) {
                continue;
            }
            self.active.retain(|&active| active != peer);
            let endpoint = &mut self.endpoints[peer];
            (endpoint.pending, endpoint.learnt) = (None, None);
            self.interfaces.release(peer, &mut endpoint.lane);
            self.note_lane_change();
        }
    }

    /// Why a peer cannot be reached any more, with its rank, for people.
    pub fn lost_peer(&self) -> Option<String> {
        let of_lane = |peer| self.endpoints[peer].lane.describe_failure(peer);
        let of_interface = |peer| self.interfaces.failure(peer);
        (0..self.present()).find_map(|peer| of_lane(peer).or_else(|| of_interface(peer)))
    }

    /// Whether none of `senders`, ranks in the world, will send anything more. With `blocked` this process itself is
    /// not counted: it does nothing until a message comes.
    pub fn have_left(&self, senders: &[u32], blocked: bool) -> bool {
        let is_silent = |&peer: &u32| (blocked && peer == self.rank) || self.peer_has_left(peer);
        senders.iter().all(is_silent)
    }

    /// Whether an operation with `peer` can never end because the peer has left the job. It is completed with
    /// [`Fault::PeerGone`] or [`Fault::SourceGone`] then, unless its message was there after all.
    #[inline]
    pub fn give_up(&mut self, id: RequestId, peer: u32) -> bool {
        self.peer_has_left(peer) && self.give_up_slow(id)
    }

    /// As [`Worker::give_up`], of an operation whose peers, all that it may have, have been found to have left.
    #[cold]
    #[inline(never)]
    pub fn give_up_slow(&mut self, id: RequestId) -> bool {
        self.take_arrivals();
        let request = self.requests.get(id);
        if request.state != State::Active {
            return true;
        }
        let unsent = request.kind == RequestKind::Send && request.has_unsent();
        if unsent || self.pushing.contains(&id) {
            return false; // `progress_sends` gives it up
        }
        let (peer, kind, posted) = (request.peer, request.kind, request.is_posted());
        if peer == ANY_PEER && !self.is_idle() {
            return false; // what this process sends to itself may be under way
        }
        if peer != ANY_PEER && self.awaits_early(peer, id) {
            // What may still come by itself, from one that only claims to have left, belongs nowhere.
            self.endpoints[peer].early.left = 0;
        }
        if kind == RequestKind::Send {
            self.withdraw_offer(id);
        }
        let request = self.requests.get_mut(id);
        request.fault = match request.kind {
            RequestKind::Recv => Fault::SourceGone,
            _ => Fault::PeerGone,
        };
        if posted {
            request.source = key_source(request.key) as i32;
            request.received_tag = request.tag;
            request.received = 0;
            // SAFETY: as it says itself.
            unsafe { self.matcher.unpost(self.requests.address(id)) };
        }
        self.complete(id);
        true
    }

    /// Says how far this process has come with leaving the job, and wakes who may wait for that.
    pub fn tell_phase(&mut self, phase: Phase) {
        self.interfaces.tell_phase(phase);
    }

    /// Whether a peer, or this process itself, has come so far with leaving the job.
    fn has_come(&self, peer: u32, phase: Phase) -> bool {
        self.interfaces.has_come(peer, phase) || self.peer_has_left(peer)
    }

    /// Whether a process, by its rank in the world, begins no message any more.
    pub fn is_silent(&self, peer: u32) -> bool {
        self.has_come(peer, Phase::Silent)
    }

    /// Whether the peer of an active request has left, or is too far in `MPI_Finalize` to complete the request. The
    /// request's peer is not [`ANY_PEER`].
    pub fn is_hopeless(&self, request: &Request) -> bool {
        match request.peer {
            peer if request.is_posted() => self.has_come(peer, Phase::Silent),
            peer if request.is_unmatched_send() => self.has_come(peer, Phase::Settled),
            peer => self.peer_has_left(peer),
        }
    }

    /// Ends the requests without an owner that nothing can end any more; says whether there are others, for which this
    /// process must stay. `is_unanswered`: whether nobody can send what a receive from any source waits for.
    pub fn end_detached(&mut self, is_unanswered: impl Fn(&Worker, &Request) -> bool) -> bool {
        let is_hopeless = |worker: &Worker, request: &Request| match request.peer {
            ANY_PEER => is_unanswered(worker, request),
            _ => worker.is_hopeless(request),
        };
        let detached = self.requests.active().filter(|request| request.detached);
        let (hopeless, others): (Vec<_>, Vec<_>) = detached
            .map(|r| (r.id(), r.handle))
            .partition(|&(id, _)| is_hopeless(self, self.requests.get(id)));
        if hopeless.is_empty() {
            return !others.is_empty();
        }
        // What has ended one of them may be there and not seen yet.
        self.take_arrivals();
        let mut left = !others.is_empty();
        for (id, handle) in hopeless {
            if self.requests.find(handle as u64).is_some() {
                let over = is_hopeless(self, self.requests.get(id));
                left |= !(over && self.give_up_slow(id));
            }
        }
        left
    }

    /// Takes back, in `MPI_Finalize`, receives that the program has not completed: it cannot any more.
    pub fn abandon_posted(&mut self) {
        let is_abandoned =
            |r: &&Request| r.kind == RequestKind::Recv && r.is_posted() && !r.detached;
        let posted = self.requests.active().filter(is_abandoned);
        for id in posted.map(Request::id).collect::<Vec<_>>() {
            self.cancel_recv(id);
        }
    }

    /// Handles all that is there, of peers not yet seen too: of one that has left nothing comes after that.
    #[cold]
    pub fn take_arrivals(&mut self) {
        // A peer that sends all the time would keep this rank here.
        for _ in 0..ROUNDS_MAX {
            if !self.progress_unbounded() {
                break;
            }
        }
    }
}
