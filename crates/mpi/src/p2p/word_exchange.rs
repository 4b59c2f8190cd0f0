//! Short messages of the library in a separate context: a receive that stays posted, and outstanding sends.
//!
//! **LOCKED WORKER.** The worker lives while MPI runs, and the calling thread is inside it.
#![allow(unsafe_code)]

use fastpath_protocol::buffer::Buffer;
use fastpath_protocol::matching::{ANY_PEER, MatchCriteria};
use fastpath_protocol::tag::{ANY_TAG, Context};
use fastpath_protocol::{RequestId, RequestState, SendArgs, StartOutcome, Worker};
use std::cell::Cell;

pub(crate) struct Arrival<W> {
    /// Rank of the sender in the job, checked to be a present rank.
    pub sender: u32,
    pub tag: i32,
    pub word: W,
}

/// Sends and receives values of the plain type `W` in one context. Messages of another length are dropped. Dropping the
/// exchange cancels the receive and leaves the sends to the library.
pub(crate) struct WordExchange<W: Copy + Default> {
    worker: *mut Worker,
    context: Context,
    /// Posted receive; 0 if no request was free.
    receive: RequestId,
    arrived: Box<Cell<W>>,
    unsent: Vec<(RequestId, Box<Cell<W>>)>,
}

impl<W: Copy + Default> WordExchange<W> {
    /// Starts the exchange, and posts its receive. The worker must outlive the exchange.
    pub(crate) fn new(worker: *mut Worker, context: Context) -> Self {
        let (arrived, unsent) = (Box::default(), Vec::new());
        let mut exchange = WordExchange { worker, context, receive: 0, arrived, unsent };
        exchange.post();
        exchange
    }

    /// Returns the posted receive, for waits; 0 if no request was free.
    pub(crate) fn receive(&self) -> RequestId {
        self.receive
    }

    /// Takes the next message that has arrived, if any, and frees sends that have ended.
    pub(crate) fn take(&mut self) -> Option<Arrival<W>> {
        // SAFETY: LOCKED WORKER.
        let worker = unsafe { &mut *self.worker };
        self.unsent.retain(|&(id, _)| {
            let is_under_way = worker.requests.get(id).state != RequestState::Complete;
            if !is_under_way {
                worker.requests.free(id);
            }
            is_under_way
        });
        while self.receive != 0 && worker.requests.get(self.receive).state == RequestState::Complete
        {
            let request = worker.requests.get(self.receive);
            let is_whole = request.ended_well() && request.received == size_of::<W>() as u64;
            let (sender, tag) = (request.source as u32, request.received_tag);
            let word = self.arrived.get();
            worker.requests.free(self.receive);
            self.post();
            // Length and sender are checked, because other processes are not trusted.
            if is_whole && (sender as usize) < worker.job.present() {
                return Some(Arrival { sender, tag, word });
            }
        }
        None
    }

    /// Starts a send. A message to a rank that has left is dropped.
    pub(crate) fn send(&mut self, peer: u32, tag: i32, word: W) {
        let data = Box::new(Cell::new(word));
        // SAFETY: LOCKED WORKER; the memory is kept until the send has ended.
        let started = unsafe {
            let worker = &mut *self.worker;
            let key = self.context.key(worker.rank);
            let buffer = Buffer::contiguous(data.as_ptr().cast(), size_of::<W>() as u64);
            worker.start_send(SendArgs { peer, key, tag, buffer, synchronous: false })
        };
        if let Ok(StartOutcome::Request(id)) = started {
            self.unsent.push((id, data));
        }
    }

    fn post(&mut self) {
        let want = MatchCriteria { peer: ANY_PEER, tag: ANY_TAG, key: self.context.key(0) };
        let buffer = Buffer::contiguous(self.arrived.as_ptr().cast(), size_of::<W>() as u64);
        // SAFETY: LOCKED WORKER; the memory does not move, and lives until the receive has ended or was cancelled.
        self.receive = unsafe { (*self.worker).start_recv(want, buffer) }.unwrap_or(0);
    }
}

impl<W: Copy + Default> Drop for WordExchange<W> {
    fn drop(&mut self) {
        // SAFETY: LOCKED WORKER.
        let worker = unsafe { &mut *self.worker };
        if self.receive != 0 {
            worker.cancel_recv(self.receive);
            worker.drop_recv(self.receive);
        }
        for (id, data) in self.unsent.drain(..) {
            worker.requests.get_mut(id).detached = true;
            Box::leak(data);
        }
    }
}
