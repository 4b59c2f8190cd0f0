//! Who could still send what a receive or a probe waits for: where all have left the job, it ends.

use crate::common::consts::MPI_ANY_SOURCE;
use crate::objects::comm::Comm;
use crate::process::Process;
use fastpath_bootstrap::segment::Awaited;
use fastpath_protocol::{RequestId, Worker};
use std::rc::Rc;

/// The senders of a call that does nothing else until a message comes.
pub(crate) struct Senders {
    comm: Option<Rc<Comm>>,
    /// The one, by its rank in the world.
    named: Option<[u32; 1]>,
    /// Whether no other thread can send to this process while this one is blocked.
    alone: bool,
}

impl Senders {
    /// Any member of the communicator of a handle.
    pub fn of_any(p: &Process, comm: usize) -> Self {
        Senders { comm: p.comm_of_request(comm), named: None, alone: !p.has_threads() }
    }

    /// The source of a probe, which is `peer` in the world where it is named.
    pub fn of_source(p: &Process, comm: &Rc<Comm>, source: i32, peer: u32) -> Self {
        Senders {
            comm: Some(comm.clone()),
            named: (source != MPI_ANY_SOURCE).then_some([peer]),
            alone: source == MPI_ANY_SOURCE && !p.has_threads(),
        }
    }

    /// The same for the note of a wait.
    pub fn awaited(&self) -> Awaited {
        match (&self.named, &self.comm) {
            (Some(peer), _) => Awaited::of(peer),
            (None, Some(comm)) => Awaited::of(comm.peer_group().world_ranks()),
            (None, None) => Awaited::UNKNOWN,
        }
    }

    /// Whether none of them will send anything more; what they have sent may still have to be taken.
    #[inline]
    pub fn have_left(&self, worker: &Worker) -> bool {
        match (&self.named, &self.comm) {
            (Some(peer), _) => worker.have_left(peer, self.alone),
            (None, Some(comm)) => worker.have_left(comm.peer_group().world_ranks(), self.alone),
            (None, None) => false,
        }
    }

    /// Ends a receive from any of them with an error if they have left without having sent it a message.
    #[inline]
    pub fn give_up(&self, worker: &mut Worker, id: RequestId) -> bool {
        self.have_left(worker) && worker.give_up_slow(id)
    }
}
