//! Peers that have left the job: ends operations that only those peers could end.
#![allow(unsafe_code)]

use crate::matching::ANY_PEER;
use crate::request::{Fault, Request, RequestId, RequestKind, RequestState};
use crate::tag::key_source;
use crate::worker::Worker;
use fastpath_base::sync::Ordering;
use fastpath_segment::{RankPhase, STATE_DEAD};
use fastpath_transport::Connection;

/// Maximum number of rounds of progress that drain arrivals. Each round takes some messages of every peer.
const ROUNDS_MAX: u32 = 1000;

impl Worker {
    /// Returns whether a peer, by world rank, has left the job. If so, all its messages are visible.
    #[inline]
    pub fn peer_has_left(&self, peer: u32) -> bool {
        let lane = &self.endpoints[peer].lane;
        match lane.is_unconnected() {
            true => self.interfaces.has_left(peer),
            false => lane.peer_has_left(),
        }
    }

    /// Calls `on_ends` if ranks ended since the last call. The launcher signals the ranks that have a ring with an
    /// ended rank. Returns whether the callback may have taken messages.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_ends(&mut self) -> bool {
        let events = self.job.header().events.load(Ordering::Relaxed);
        let call = self.hooks.on_ends.filter(|_| events != self.seen_events);
        self.seen_events = events;
        if let Some(call) = call {
            call(self);
        }
        call.is_some()
    }

    /// Returns the spawned ranks of this host that have left and to which this process still has a lane.
    pub fn departed(&self) -> Vec<u32> {
        let has_left = |peer: &u32| {
            *peer != self.rank && self.endpoints[*peer].lane.is_ring() && self.peer_has_left(*peer)
        };
        let segment = self.job.segment();
        let spawned = segment.node_ranks().filter(|&rank| segment.has_reusable_place(rank));
        spawned.map(|rank| rank as u32).filter(has_left).collect()
    }

    /// Drops the lanes to the ranks of `departed`, which are in no communicator of this process, so that their places
    /// in memory can be reused. A lane with an operation or arrival stays. Operations with such a rank fail as before.
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

    /// Returns why the first unreachable peer, by rank, cannot be reached any more; `None` if there is none.
    pub fn lost_peer(&self) -> Option<String> {
        let of_lane = |peer| self.endpoints[peer].lane.describe_failure(peer);
        let of_interface = |peer| self.interfaces.failure(peer);
        (0..self.present()).find_map(|peer| of_lane(peer).or_else(|| of_interface(peer)))
    }

    /// Returns whether none of `senders`, by world rank, will send another message. If `blocked`, this process itself
    /// does not count as a sender, because it waits for the message.
    pub fn have_left(&self, senders: &[u32], blocked: bool) -> bool {
        let is_silent = |&peer: &u32| (blocked && peer == self.rank) || self.peer_has_left(peer);
        senders.iter().all(is_silent)
    }

    /// Completes, with [`Fault::PeerGone`] or [`Fault::SourceGone`], an operation that cannot end because `peer` has
    /// left the job. If the operation's message has arrived, completes it without a fault. Returns whether the
    /// operation is complete.
    #[inline]
    pub fn give_up(&mut self, id: RequestId, peer: u32) -> bool {
        self.peer_has_left(peer) && self.give_up_slow(id)
    }

    /// Completes an operation like [`Worker::give_up`]. The caller has checked that all its possible peers have left.
    #[cold]
    #[inline(never)]
    pub fn give_up_slow(&mut self, id: RequestId) -> bool {
        let was_posted = self.requests.get(id).is_posted();
        self.take_arrivals();
        let request = self.requests.get(id);
        if request.state != RequestState::Active {
            return true;
        }
        let peer = request.peer;
        if was_posted && !request.is_posted() && !self.peer_has_left(peer) {
            return false; // a message that has just arrived is being received
        }
        let request = self.requests.get(id);
        let unsent = request.kind == RequestKind::Send && request.has_unsent();
        if unsent || self.sends.pushing.contains(&id) {
            return false; // `progress_sends` gives up such a send
        }
        let (peer, kind, posted) = (request.peer, request.kind, request.is_posted());
        if peer == ANY_PEER && !self.is_idle() {
            return false; // a message from this process to itself may be under way
        }
        if peer != ANY_PEER && self.awaits_early(peer, id) {
            // Drop eager bytes from a peer that only claims to have left.
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
            // SAFETY: the phase of the request is that of a posted receive.
            unsafe { self.matcher.unpost(self.requests.address(id)) };
        }
        self.complete(id);
        true
    }

    /// Returns whether a peer, by world rank, has died: it has left the job, or cannot be reached any more, and had not
    /// finalized MPI.
    pub fn has_died(&self, peer: u32) -> bool {
        let page = self.job.rank_page(peer as usize);
        // ORDERING: acquire pairs with the release of the launcher that marks the rank dead.
        page.is_some_and(|page| page.state.load(Ordering::Acquire) == STATE_DEAD)
            || self.endpoints[peer].lane.describe_failure(peer).is_some()
            || self.interfaces.failure(peer).is_some()
    }

    /// Ends an active operation with `fault`, although its peer may be alive. A posted receive ends now. A send ends
    /// if its receiver has not matched it. Other operations continue, because their peers still transfer bytes. A send
    /// is freed by [`Worker::free_failed`].
    pub fn fail_request(&mut self, id: RequestId, fault: Fault) {
        let request = self.requests.get(id);
        if request.state != RequestState::Active || request.detached {
            return;
        }
        match request.kind {
            RequestKind::Recv if request.is_posted() => {
                // SAFETY: the request is posted, by the check above.
                unsafe { self.matcher.unpost(self.requests.address(id)) };
                let request = self.requests.get_mut(id);
                request.fault = fault;
                request.source = match request.peer {
                    ANY_PEER => -1,
                    _ => key_source(request.key) as i32,
                };
                (request.received_tag, request.received) = (request.tag, 0);
                self.complete(id);
            }
            RequestKind::Send => {
                let handle = request.handle;
                if self.sends.failing.iter().all(|&(failing, _)| failing != handle) {
                    self.sends.failing.push((handle, fault));
                    self.cancel_send(id);
                }
                self.settle_failing();
            }
            _ => {}
        }
    }

    /// Gives the sends that [`Worker::fail_request`] has withdrawn their faults, and forgets the sends that ended.
    pub(crate) fn settle_failing(&mut self) {
        let mut failing = std::mem::take(&mut self.sends.failing);
        failing.retain(|&(handle, fault)| {
            let Some(id) = self.requests.find(handle.into()) else { return false };
            let request = self.requests.get_mut(id);
            if request.state == RequestState::Complete && request.cancelled {
                request.fault = fault;
            }
            request.state == RequestState::Active
        });
        self.sends.failing = failing;
    }

    /// Frees the request of an operation that has ended with a fault.
    pub fn free_failed(&mut self, id: RequestId) {
        let request = self.requests.get(id);
        match request.kind == RequestKind::Send && request.cancelled {
            true => self.release_cancelled(id),
            false => self.requests.free(id),
        }
    }

    /// Publishes this process's phase of leaving the job, and wakes the processes that wait for it.
    pub fn tell_phase(&mut self, phase: RankPhase) {
        self.interfaces.tell_phase(phase);
    }

    fn has_come(&self, peer: u32, phase: RankPhase) -> bool {
        self.interfaces.has_come(peer, phase) || self.peer_has_left(peer)
    }

    /// Returns whether a process, by world rank, will begin no further message.
    pub fn is_silent(&self, peer: u32) -> bool {
        self.has_come(peer, RankPhase::Silent)
    }

    /// Returns whether a process, by world rank, receives no further message.
    pub fn is_settled(&self, peer: u32) -> bool {
        self.has_come(peer, RankPhase::Settled)
    }

    /// Returns whether the peer of an active request has left, or is too far in `MPI_Finalize` to complete the request.
    /// The request's peer is not [`ANY_PEER`].
    pub fn is_hopeless(&self, request: &Request) -> bool {
        match request.peer {
            peer if request.is_posted() => self.has_come(peer, RankPhase::Silent),
            peer if request.is_unmatched_send() => self.is_settled(peer),
            peer => self.peer_has_left(peer),
        }
    }

    /// Ends the detached requests that can no longer complete. Returns whether any remain; if so, this process must not
    /// leave yet. `is_unanswered` returns whether no rank can send the message of an any-source receive.
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
        // The message that completes a request may have arrived without being handled.
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

    /// Cancels, in `MPI_Finalize`, posted receives that the program has not completed. It can no longer complete them.
    pub fn abandon_posted(&mut self) {
        let is_abandoned =
            |r: &&Request| r.kind == RequestKind::Recv && r.is_posted() && !r.detached;
        let posted = self.requests.active().filter(is_abandoned);
        for id in posted.map(Request::id).collect::<Vec<_>>() {
            self.cancel_recv(id);
        }
    }

    /// Handles all arrivals, including those of peers not yet connected. A peer that has left sends nothing afterwards.
    #[cold]
    pub fn take_arrivals(&mut self) {
        // Bounded, because a peer that sends continuously would keep this rank here.
        for _ in 0..ROUNDS_MAX {
            if !self.progress_unbounded() {
                break;
            }
        }
    }
}
