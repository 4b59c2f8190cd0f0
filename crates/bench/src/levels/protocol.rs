//! Messages at the level of the protocol: worker, endpoint, matching. The steps are those of `MPI_Send` and `MPI_Recv`,
//! without communicators, datatypes, handles and checks.
//!
//! **WORKER.** Worker and endpoint live as long as the process and are used by one thread. Only the link has the
//! addresses of both, and no reference to either outlives a statement.
#![allow(unsafe_code)]

use std::io;

use fastpath_base::config::Config;
use fastpath_base::{tell, wait};
use fastpath_job::Job;
use fastpath_protocol::buffer::Buffer;
use fastpath_protocol::matching::MatchCriteria;
use fastpath_protocol::protocols::Parts;
use fastpath_protocol::rma::RemoteKey;
use fastpath_protocol::tag::Context;
use fastpath_protocol::waiting::{Note, SPIN_POLLS, WaitPolicy, spin};
use fastpath_protocol::wire::SHORT_LIMIT;
use fastpath_protocol::{Endpoint, RequestId, RequestState, SendArgs, StartOutcome, Worker};
use fastpath_segment::{AwaitedRanks, RankPhase};
use fastpath_transport::Post;

use super::{MessageLink, ProtocolRange, ProtocolRanges};

const TAG: i32 = 1;

const NOTE: Note = Note {
    call: "fastpath bench --level protocol",
    peer: -1,
    tag: TAG,
    comm: 0,
    bytes: 0,
    awaited: AwaitedRanks::UNKNOWN,
    naps: false,
};

/// A worker and its only peer.
pub struct ProtocolLink {
    pub(super) worker: *mut Worker,
    endpoint: *mut Endpoint,
    peer: u32,
    own_key: u64,
    from_key: u64,
    requests: Vec<RequestId>,
    ways: ProtocolRanges,
    /// Key of the other rank's memory for puts and gets; None while no memory is open.
    pub(super) key: Option<RemoteKey>,
}

/// Creates the worker of a rank as `MPI_Init` does for one thread.
pub fn open_worker(job: &'static Job, config: &Config) -> io::Result<Worker> {
    wait::register_membarrier();
    let policy = WaitPolicy::of(config, job.processors() as u32, None);
    let mut worker = Worker::new(job, policy)?;
    worker.configure(config).map_err(io::Error::other)?;
    Ok(worker)
}

impl ProtocolLink {
    /// Opens the link to the other rank of a job of two.
    pub fn open(job: &'static Job, config: &Config) -> io::Result<ProtocolLink> {
        let mut worker = open_worker(job, config)?;
        let ways = ProtocolRanges::of(&mut worker);
        let worker = Box::into_raw(Box::new(worker));
        let (own, peer) = (job.rank() as u32, 1 - job.rank() as u32);
        Ok(ProtocolLink {
            worker,
            // SAFETY: the worker was created just above.
            endpoint: unsafe { (*worker).endpoint_address(peer) },
            peer,
            own_key: Context::WORLD.key(own),
            from_key: Context::WORLD.key(peer),
            requests: Vec::new(),
            ways,
            key: None,
        })
    }

    pub(super) fn worker(&self) -> &Worker {
        // SAFETY: WORKER; the borrow of the link excludes changes.
        unsafe { &*self.worker }
    }

    pub(super) fn worker_mut(&mut self) -> &mut Worker {
        // SAFETY: WORKER; the exclusive borrow of the link lasts as long as the reference.
        unsafe { &mut *self.worker }
    }

    pub(super) fn peer(&self) -> u32 {
        self.peer
    }

    pub fn transport(&self) -> &'static str {
        let allowed = self.worker().interfaces().allowed;
        let adapter = allowed.adapter.filter(|_| !allowed.shm);
        adapter.map_or("shm", |by| by.name())
    }

    pub fn describe_adapter(&self) -> Vec<String> {
        super::describe_adapter(self.transport(), self.worker().interfaces().outside())
    }

    pub fn close(&mut self) {
        // SAFETY: WORKER.
        unsafe {
            (*self.worker).leave();
            (*self.worker).tell_phase(RankPhase::Finalized);
        }
    }

    /// Sends without a request, if possible.
    #[inline]
    fn try_send(&mut self, data: &[u8]) -> bool {
        // SAFETY: WORKER; the slice is readable.
        let post = unsafe {
            let mut post = Post::NoResource;
            if data.len() <= SHORT_LIMIT {
                let endpoint = &mut *self.endpoint;
                post = endpoint.send_immediate(self.own_key, TAG, data.as_ptr(), data.len());
            }
            if post == Post::NoResource {
                let (ptr, len) = (data.as_ptr(), data.len() as u64);
                post = (*self.worker).send_now(self.peer, self.own_key, TAG, ptr, len);
            }
            if post == Post::Wake {
                post = (*self.endpoint).wake();
            }
            post
        };
        match post {
            Post::PeerGone => end_without_peer(),
            post => post == Post::Done,
        }
    }

    fn start_send(&mut self, data: &[u8]) -> StartOutcome {
        let send = SendArgs {
            peer: self.peer,
            key: self.own_key,
            tag: TAG,
            buffer: Buffer::contiguous(data.as_ptr().cast_mut(), data.len() as u64),
            synchronous: false,
        };
        // SAFETY: every caller waits for the request before it returns the slice.
        match unsafe { (*self.worker).start_send(send) } {
            Ok(started) => started,
            Err(_) => end_without_peer(),
        }
    }

    fn finish(&mut self, id: RequestId) {
        // SAFETY: WORKER.
        unsafe {
            if (*self.worker).requests.get(id).state != RequestState::Complete {
                let peer = self.peer;
                Worker::wait_until(self.worker, Some(peer), &NOTE, |w| {
                    w.requests.get(id).state == RequestState::Complete || w.give_up(id, peer)
                });
            }
            let fault = (*self.worker).requests.get(id).fault;
            (*self.worker).requests.free(id);
            if fault != fastpath_protocol::Fault::None {
                end_without_peer();
            }
        }
    }

    fn want(&self) -> MatchCriteria {
        MatchCriteria { peer: self.peer, tag: TAG, key: self.from_key }
    }

    /// Polls only the peer for a while, as `MPI_Recv` does.
    fn spin_recv(&mut self, into: &mut [u8]) -> bool {
        let (ptr, room) = (into.as_mut_ptr(), into.len());
        // SAFETY: WORKER; the slice is writable for `room` bytes.
        unsafe {
            if !(*self.worker).wait.directed || !(*self.worker).may_watch(self.peer) {
                return false;
            }
            let mut cold = false;
            let has_arrival = |count| {
                if (*self.endpoint).has_arrival() {
                    return Some(());
                }
                if count == 1 {
                    cold = (*self.endpoint).begin_wait();
                } else if cold {
                    cold = (*self.endpoint).warm();
                }
                None
            };
            let is_needed =
                || (*self.worker).wants_attention(self.peer) && !(*self.endpoint).has_arrival();
            spin(SPIN_POLLS, has_arrival, is_needed).is_some() && self.recv_arrival(ptr, room)
        }
    }

    /// # Safety
    /// `ptr` is writable for `room` bytes.
    unsafe fn recv_arrival(&mut self, ptr: *mut u8, room: usize) -> bool {
        // SAFETY: `ptr` is writable for `room` bytes by this function's contract; WORKER.
        unsafe {
            let taken = (*self.endpoint).recv_immediate(self.from_key, TAG, ptr, room);
            if taken.is_some() {
                return true;
            }
            match (*self.worker).recv_parts(self.want(), ptr, room as u64, 0) {
                None => false,
                Some(Parts::Done { .. }) => true,
                Some(Parts::Request(id)) => {
                    self.finish(id);
                    true
                }
            }
        }
    }

    fn start_recv(&mut self, into: &mut [u8]) -> RequestId {
        let buffer = Buffer::contiguous(into.as_mut_ptr(), into.len() as u64);
        // SAFETY: every caller waits for the request before it returns the slice.
        match unsafe { (*self.worker).start_recv(self.want(), buffer) } {
            Ok(id) => id,
            Err(_) => end_without_peer(),
        }
    }

    /// Posts a receive, or completes it if its message has arrived, as `MPI_Irecv` does.
    fn post_recv(&mut self, into: &mut [u8]) -> RequestId {
        let (ptr, room, want) = (into.as_mut_ptr(), into.len(), self.want());
        // SAFETY: WORKER; every caller waits for the request, and an arrival is copied before it is taken.
        let handle = unsafe {
            let worker = &mut *self.worker;
            let endpoint = &mut *self.endpoint;
            let Some(look) = worker.may_recv(self.endpoint) else {
                return self.start_recv(into);
            };
            let short = match look {
                true => endpoint.copy_short(want.key, TAG, ptr, room),
                false => None,
            };
            match short {
                Some(taken) => {
                    let handle = worker.finished_recv(self.peer as i32, taken);
                    endpoint.take_short();
                    handle
                }
                None => worker.post_recv(want, ptr, room as u64, 0),
            }
        };
        // SAFETY: WORKER.
        let found = unsafe { (*self.worker).requests.find(handle as u64) };
        found.unwrap_or_else(|| end_without_peer())
    }

    fn finish_all(&mut self) {
        let requests = std::mem::take(&mut self.requests);
        requests.iter().for_each(|&id| self.finish(id));
        self.requests = requests;
        self.requests.clear();
    }
}

impl MessageLink for ProtocolLink {
    #[inline]
    fn send(&mut self, data: &[u8]) {
        if self.try_send(data) {
            return;
        }
        if let StartOutcome::Request(id) = self.start_send(data) {
            self.finish(id);
        }
    }

    #[inline]
    fn recv(&mut self, into: &mut [u8]) {
        let (ptr, room) = (into.as_mut_ptr(), into.len());
        // SAFETY: WORKER; the slice is writable for `room` bytes.
        let there = unsafe {
            (*self.worker).matcher.is_quiet_beside(self.endpoint)
                && (*self.endpoint).recv_short(self.from_key, TAG, ptr, room).is_some()
        };
        if there || self.spin_recv(into) {
            return;
        }
        let id = self.start_recv(into);
        self.finish(id);
    }

    fn send_window(&mut self, window: u32, data: &[u8]) {
        for _ in 0..window {
            if !self.try_send(data)
                && let StartOutcome::Request(id) = self.start_send(data)
            {
                self.requests.push(id);
            }
        }
        self.finish_all();
    }

    fn recv_window(&mut self, window: u32, into: &mut [u8]) {
        for _ in 0..window {
            let id = self.post_recv(into);
            self.requests.push(id);
        }
        self.finish_all();
    }

    fn way(&self, bytes: usize) -> Result<ProtocolRange, String> {
        self.ways.find(bytes)
    }
}

/// Ends the process after the other rank has left the job early. The launcher reports the cause.
pub fn end_without_peer() -> ! {
    tell!("fastpath: the other rank has left the job");
    std::process::exit(1)
}
