//! Completion of the operations posted to a peer.
#![allow(unsafe_code)]

use crate::rma::error::RmaError;
use crate::rma::error::RmaError::PeerGone;
use crate::wire;
use crate::worker::Worker;
use fastpath_transport::{Header, Post};

impl Worker {
    /// Advances the completion of all operations posted to `peer`. Returns whether they are complete: puts are in the
    /// peer's memory, results are here. Until then call it again after progress; [`Worker::flush`] does that.
    ///
    /// # Errors
    /// Errors since the last flush: the peer is gone, or did not expose the memory. After an error no earlier operation
    /// is under way, except for bytes that an adapter may still move.
    #[inline]
    pub fn progress_flush(&mut self, peer: u32) -> Result<bool, RmaError> {
        match self.endpoints[peer].lane.progress_flush() {
            Post::Done if self.rma.busy == 0 => Ok(true),
            post => self.settle(peer, post, true),
        }
    }

    /// Advances the completion of the operations posted to `peer`, whose lane has answered `post`. Returns whether they
    /// are complete. If not `remote`, it is enough that the local buffers may be reused.
    #[cold]
    #[inline(never)]
    pub(super) fn settle(&mut self, peer: u32, post: Post, remote: bool) -> Result<bool, RmaError> {
        if !self.rma.gates_wireup {
            self.rma.counters.idle_wireup_polls += u64::from(!self.wireup.is_active());
            self.progress_wireup();
        }
        let busy = self.rma.peers.get(&peer).is_some_and(|state| state.busy);
        if post == Post::PeerGone {
            if busy {
                self.fail_remote(peer);
                self.end_flush(peer);
            }
            return Err(PeerGone);
        }
        if busy && !self.settle_messages(peer, remote)? {
            return Ok(false);
        }
        Ok(post == Post::Done)
    }

    fn settle_messages(&mut self, peer: u32, remote: bool) -> Result<bool, RmaError> {
        if self.remote_peer(peer).has_queue() {
            self.progress_queue(peer);
        }
        if remote {
            self.ask_for_flush(peer);
        }
        if !self.remote_peer(peer).is_settled(remote) && self.peer_has_left(peer) {
            self.take_arrivals();
            if !self.remote_peer(peer).is_settled(remote) {
                self.fail_remote(peer);
            }
        }
        let state = self.remote_peer(peer);
        if !state.is_settled(remote) {
            return Ok(false);
        }
        let failed = state.failed.take();
        if state.is_settled(true) {
            self.end_flush(peer);
        }
        failed.map_or(Ok(true), Err)
    }

    fn ask_for_flush(&mut self, peer: u32) {
        let state = self.remote_peer(peer);
        if state.has_queue() || state.asked == state.posted {
            return;
        }
        let number = state.posted;
        let header = Header::new(wire::REMOTE_FLUSH, 0, number);
        match self.endpoints[peer].post_signal(header) {
            Post::NoResource => {}
            Post::PeerGone => self.fail_remote(peer),
            _ => {
                self.remote_peer(peer).asked = number;
                self.ring(peer);
            }
        }
    }

    fn end_flush(&mut self, peer: u32) {
        let state = self.remote_peer(peer);
        if std::mem::take(&mut state.busy) {
            state.failed = None;
            self.rma.busy -= 1;
        }
    }

    /// Advances completion for every peer. If a peer fails, returns its error after all peers were advanced. See
    /// [`Worker::progress_flush`].
    ///
    /// # Errors
    /// See [`Worker::progress_flush`]. If several peers fail, returns the error of one of them.
    pub fn progress_flush_all(&mut self) -> Result<bool, RmaError> {
        let (mut all, mut failed) = (true, None);
        let busy = self.rma.peers.iter().filter(|(_, state)| state.busy);
        let mut peers: Vec<u32> = busy.map(|(&peer, _)| peer).collect();
        let posting = |&peer: &u32| self.endpoints[peer].lane.posts_remote();
        peers.extend(self.active.iter().copied().filter(posting));
        for peer in peers {
            match self.progress_flush(peer) {
                Ok(done) => all &= done,
                Err(error) => failed = Some(error),
            }
        }
        if all {
            self.rma.reads = false;
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(all),
        }
    }
}
