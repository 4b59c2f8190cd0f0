//! Possible senders of the message that a receive or a probe waits for. The wait ends if all of them have left.

use crate::common::consts::MPI_ANY_SOURCE;
use crate::objects::comm::Comm;
use crate::process::Process;
use fastpath_protocol::matching::ANY_PEER;
use fastpath_protocol::{RequestId, RequestState, Worker};
use fastpath_segment::AwaitedRanks;
use std::rc::Rc;

/// Possible senders of the message that a call waits for.
pub(crate) struct Senders {
    comm: Option<Rc<Comm>>,
    /// World rank of the named sender; `None` for any source.
    named: Option<[u32; 1]>,
    /// Whether no other thread can send to this process while this thread is blocked.
    alone: bool,
}

impl Senders {
    /// Returns the senders of a receive from any source: all members of the communicator with handle `comm`.
    pub fn of_any(p: &Process, comm: usize) -> Self {
        Senders { comm: p.comm_of_request(comm), named: None, alone: !p.has_threads() }
    }

    /// Returns the possible senders for a probe. `peer` is the world rank of `source`, ignored for `MPI_ANY_SOURCE`.
    pub fn of_source(p: &Process, comm: &Rc<Comm>, source: i32, peer: u32) -> Self {
        Senders {
            comm: Some(comm.clone()),
            named: (source != MPI_ANY_SOURCE).then_some([peer]),
            alone: source == MPI_ANY_SOURCE && !p.has_threads(),
        }
    }

    /// Returns the senders as the awaited ranks of a wait.
    pub fn awaited(&self) -> AwaitedRanks {
        match (&self.named, &self.comm) {
            (Some(peer), _) => AwaitedRanks::of(peer),
            (None, Some(comm)) => AwaitedRanks::of(comm.peer_group().world_ranks()),
            (None, None) => AwaitedRanks::UNKNOWN,
        }
    }

    /// Returns whether none of the senders will send again, or one has died and the program has not acknowledged its
    /// death. Messages that they have sent may still be in flight.
    #[inline]
    pub fn have_left(&self, worker: &Worker) -> bool {
        match (&self.named, &self.comm) {
            (Some(peer), _) => worker.have_left(peer, self.alone),
            (None, Some(comm)) => {
                self.has_dead() || worker.have_left(comm.peer_group().world_ranks(), self.alone)
            }
            (None, None) => false,
        }
    }

    /// Returns whether a possible sender of a message from any source has died, and the program has not acknowledged
    /// its death.
    #[inline]
    pub fn has_dead(&self) -> bool {
        let comm = self.comm.as_ref().filter(|_| self.named.is_none());
        comm.is_some_and(|comm| comm.faults.has_unacknowledged())
    }

    /// Ends a receive with an error if [`Senders::have_left`] and no message for it has arrived.
    #[inline]
    pub fn give_up(&self, worker: &mut Worker, id: RequestId) -> bool {
        match give_up_matched(worker, id) {
            Some(is_over) => is_over,
            None => self.have_left(worker) && worker.give_up_slow(id),
        }
    }

    /// Returns whether the wait for a nonblocking receive is over without its message. If only some senders have died,
    /// the receive remains active.
    pub fn end_wait(&self, worker: &mut Worker, id: RequestId) -> bool {
        match give_up_matched(worker, id) {
            Some(is_over) => is_over,
            None => self.has_dead() || self.give_up(worker, id),
        }
    }
}

/// Ends a receive that a message has matched if the message's sender has left. Returns whether the receive is complete;
/// `None` if no message has matched it.
fn give_up_matched(worker: &mut Worker, id: RequestId) -> Option<bool> {
    let request = worker.requests.get(id);
    if request.state == RequestState::Complete {
        return Some(true);
    }
    let peer = request.peer;
    (!request.is_posted()).then(|| peer != ANY_PEER && worker.give_up(id, peer))
}
