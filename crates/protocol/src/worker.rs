//! The worker: everything one process (later: one thread) needs to send and receive.
#![allow(unsafe_code)]

use crate::background::Background;
use crate::endpoint::{Endpoint, Endpoints, Pending};
use crate::flood::Flood;
use crate::learning::{CopyCosts, Mirror, OCTAVES};
use crate::matching::Matcher;
use crate::recall::Recalled;
use crate::request::{Fault, Request, RequestId, RequestPool, State};
use crate::rma::Rma;
use crate::selection::Selection;
pub use crate::selection::Thresholds;
use crate::snapshot::Addresses;
use crate::unexpected::Buffers;
use crate::waiting::{Title, WaitPolicy};
use crate::wire::CONTROL_MAX;
use crate::wireup::Wireup;
use fastpath_base::config::Config;
use fastpath_base::sleepers::Sleepers;
use fastpath_bootstrap::job::Job;
use fastpath_bootstrap::network::NetworkCard;
use fastpath_bootstrap::segment::Awaited;
use fastpath_transport::{Connection, Header, Interfaces, Post};
use std::ptr::NonNull;
use std::sync::Arc;

/// Largest payload that goes to a slot by an immediate send, in bytes.
pub const SHORT_LIMIT: usize = 48;
/// Largest payload of one transport buffer, in bytes.
pub const EAGER_LIMIT: usize = 32 * 1024;

/// Most bytes of a message that are sent without being asked for.
pub const EARLY_LIMIT: u64 = 64 * 1024;

/// Messages sent, and their bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages.
    pub messages: u64,
    /// Bytes of them.
    pub bytes: u64,
}

impl Traffic {
    #[inline]
    pub(crate) fn add(&mut self, bytes: u64) {
        self.messages += 1;
        self.bytes += bytes;
    }
}

/// Counters for reports and tests; nothing on the immediate path is counted. Words alone: others read them
/// (`snapshot`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages sent whole, but for short ones by memory: by memory, and by an adapter or the network.
    pub eager: [Traffic; 2],
    /// Messages announced first (rendezvous): the same.
    pub announced: [Traffic; 2],
    /// Requests made in all.
    pub requests: u64,
    /// Messages stored because nobody had asked for them.
    pub unexpected: u64,
    /// Long messages fetched by a single copy.
    pub single_copies: u64,
    /// Long messages read straight from the sender's shared memory.
    pub direct_reads: u64,
    /// Long messages written straight into the receiver's shared memory.
    pub direct_writes: u64,
    /// Waits in which the first look found nothing.
    pub waits: u64,
    /// Times that a wait let others run.
    pub yields: u64,
    /// Times this process slept.
    pub sleeps: u64,
    /// Peers this process has opened a lane to.
    pub connections: u64,
    /// Messages that no healthy peer sends, dropped.
    pub violations: u64,
}

impl Counters {
    /// Long messages announced, by any way.
    pub fn announced_messages(&self) -> u64 {
        self.announced[0].messages + self.announced[1].messages
    }
}

/// Sends, receives and progress of one process.
pub struct Worker {
    /// One for each rank of the job.
    pub(crate) endpoints: Endpoints,
    /// This process's rank in the world.
    pub rank: u32,
    pub(crate) interfaces: Interfaces,
    /// The matching engine.
    pub matcher: Matcher,
    /// All requests.
    pub requests: RequestPool,
    /// Buffers of unexpected messages.
    pub(crate) unexpected: Buffers,
    /// The bound on unexpected messages.
    pub flood: Flood,
    /// Peers whose lanes are looked at by progress.
    pub(crate) active: Vec<u32>,
    /// Sends of long messages whose receivers have said go on, and receives whose copy was left for later.
    pub(crate) pushing: Vec<RequestId>,
    /// Announced messages that matched probes have taken, and that are not received yet.
    pub(crate) probed: u32,
    /// Cancelled sends whose messages their receivers may still have.
    pub(crate) recalled: Vec<Recalled>,
    /// Peers with pending messages, in the order in which they found no room.
    pub(crate) blocked: Vec<u32>,
    /// Number of those peers, and of peers with queued one-sided operations.
    pub(crate) blocked_peers: u32,
    /// Connections that need messages before they carry data.
    pub wireup: Wireup,
    /// One-sided operations.
    pub rma: Rma,
    /// Connections that are to take the place of datagrams.
    pub upgrade: Wireup,
    /// Where protocols change.
    pub thresholds: Thresholds,
    /// What the thresholds were made of.
    pub(crate) selection: Box<Selection>,
    /// Events so far.
    pub counters: Counters,
    /// Ways that are tried for what this rank receives, by octaves of size.
    pub(crate) mirrors: [Mirror; OCTAVES],
    /// What copies take where ranks share processors.
    pub(crate) copy_costs: CopyCosts,
    /// How to wait.
    pub wait: WaitPolicy,
    /// Progress while the program computes.
    pub background: Background,
    /// The job.
    pub job: &'static Job,
    /// What a note says of a wait: of its [`crate::waiting::Note::comm`], and of the one rank that is waited for.
    pub name_wait: fn(usize, Option<u32>) -> Title,
    /// Called after rounds of progress, where operations of the layer above go on when requests complete; says whether
    /// any did.
    pub on_progress: Option<fn(&mut Worker) -> bool>,
    /// Who could make those operations go on; unknown where nobody can say.
    pub moved_by: fn(&Worker) -> Awaited,
    /// Called with every completed detached request (buffered sends) before it is freed.
    pub on_detached: Option<fn(&Request)>,
    /// Called in progress after ranks have ended that this process had rings with.
    pub on_ends: Option<fn(&mut Worker)>,
    /// Deaths and aborts of the job at the last look ([`Worker::note_ends`]).
    pub(crate) seen_events: u32,
    /// Called where there is no memory to answer a peer, whose operation could never end.
    pub on_no_answer: Option<fn(u32)>,
    /// What other processes read first. The rank's page has its address as a number, which no leak checker follows.
    pub(crate) shown: Option<Box<Addresses>>,
}

impl Worker {
    /// The worker of a job's rank. No peer is connected yet.
    pub fn new(job: &'static Job, wait: WaitPolicy) -> std::io::Result<Self> {
        Worker::with_interfaces(job, wait, Interfaces::open(job))
    }

    /// A worker that reaches its peers through the given interfaces.
    pub fn with_interfaces(
        job: &'static Job, wait: WaitPolicy, interfaces: Interfaces,
    ) -> std::io::Result<Self> {
        Worker::with_pool(job, wait, interfaces, RequestPool::new()?)
    }

    /// A further worker of a process, beside `first`: with matching, requests, rings and connections of its own, which
    /// cost memory as they are used. It knows no adapter, and makes no one-sided operations. `area`: where the regions
    /// of further workers are mapped.
    ///
    /// # Errors
    /// There is no address space for it.
    pub fn further(first: &Worker, place: u32, area: NonNull<u8>) -> std::io::Result<Self> {
        let mut wait = WaitPolicy {
            place,
            waiting: 0,
            sleepers: Sleepers::default(),
            covered_by: 0,
            ..first.wait.clone()
        };
        wait.misses = 0;
        let interfaces = first.interfaces.further(place, area);
        let pool = RequestPool::further(place)?;
        let census = wait.census.clone();
        let mut worker = Worker::with_pool(first.job, wait, interfaces, pool)?;
        worker.wait.census = census;
        worker.thresholds = first.thresholds;
        worker.selection = first.selection.clone();
        worker.flood.bound = first.flood.bound;
        worker.flood.on_reached = first.flood.on_reached;
        worker.name_wait = first.name_wait;
        worker.on_detached = first.on_detached;
        worker.on_no_answer = first.on_no_answer;
        Ok(worker)
    }

    fn with_pool(
        job: &'static Job, mut wait: WaitPolicy, interfaces: Interfaces, requests: RequestPool,
    ) -> std::io::Result<Self> {
        wait.census = Arc::default();
        let endpoints = Endpoints::of_job(job)?;
        Ok(Worker {
            // SAFETY: both are fields of the worker, and the matcher is not used while that is dropped.
            matcher: unsafe { Matcher::new(endpoints.peers()) },
            endpoints,
            rank: job.rank() as u32,
            interfaces,
            requests,
            unexpected: Buffers::default(),
            flood: Flood::default(),
            active: Vec::new(),
            pushing: Vec::new(),
            probed: 0,
            recalled: Vec::new(),
            blocked: Vec::new(),
            blocked_peers: 0,
            wireup: Wireup::default(),
            rma: Rma::default(),
            upgrade: Wireup::default(),
            thresholds: Thresholds::default(),
            selection: Box::default(),
            counters: Counters::default(),
            mirrors: Default::default(),
            copy_costs: CopyCosts::default(),
            wait,
            background: Background::default(),
            job,
            name_wait: |_, _| Title::default(),
            on_progress: None,
            moved_by: |_| Awaited::UNKNOWN,
            on_detached: None,
            on_no_answer: None,
            on_ends: None,
            seen_events: 0,
            shown: None,
        })
    }

    /// The interfaces, for those who report them.
    pub fn interfaces(&self) -> &Interfaces {
        &self.interfaces
    }

    /// See [`Interfaces::open_for_foreign`].
    ///
    /// # Errors
    /// As there.
    pub fn open_for_foreign(&mut self, config: &Config) -> Result<NetworkCard, String> {
        self.interfaces.open_for_foreign(config)
    }

    /// See [`Interfaces::note_foreign`].
    pub fn note_foreign(&mut self, ranks: &[u32]) {
        self.interfaces.note_foreign(ranks);
    }

    /// Takes the interfaces that have been configured, to be used without a worker. This one reaches nobody by an
    /// adapter any more.
    pub fn take_interfaces(&mut self) -> Interfaces {
        std::mem::replace(&mut self.interfaces, Interfaces::open(self.job))
    }

    /// Number of ranks of the job so far.
    pub fn present(&self) -> u32 {
        self.job.present() as u32
    }

    /// The endpoint of a world rank, by address, so that it can be cached per communicator.
    pub fn endpoint_address(&self, peer: u32) -> *mut Endpoint {
        self.endpoints.address(peer)
    }

    /// Whether nothing but the operation at hand needs progress.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.pushing.is_empty() && self.blocked_peers == 0
    }

    /// Sends a small control message now or as soon as there is room.
    pub(crate) fn send_control(&mut self, peer: u32, header: Header, payload: &[u8]) {
        debug_assert!(payload.len() <= CONTROL_MAX);
        if let Err(fault) = self.connect(peer) {
            return self.leave_unanswered(peer, fault);
        }
        let endpoint = &mut self.endpoints[peer];
        // Control messages may overtake waiting data: they are matched by request, not by order.
        // SAFETY: the payload is a slice.
        let post = unsafe { endpoint.post_short(header, payload.as_ptr(), payload.len()) };
        if post == Post::NoResource {
            let mut bytes = [0; CONTROL_MAX];
            bytes[..payload.len()].copy_from_slice(payload);
            self.enqueue(peer, Pending::Control(header, bytes, payload.len() as u8));
        } else {
            self.ring_for(peer, header.id);
        }
    }

    /// A peer that is gone waits for nothing; one that is there would wait for ever.
    #[cold]
    #[inline(never)]
    pub(crate) fn leave_unanswered(&self, peer: u32, fault: Fault) {
        if let (Fault::NoMemory, Some(call)) = (fault, self.on_no_answer) {
            call(peer);
        }
    }

    /// No request is free: says so on the status page, where a fault finds its text.
    #[cold]
    #[inline(never)]
    pub(crate) fn out_of_requests(&self) -> Fault {
        let most = self.requests.capacity();
        let why = match self.requests.is_limited() {
            true => "; there are so few because address space is limited (`ulimit -v`)",
            false => "",
        };
        let text = format!("all {most} requests are in use{why}");
        self.job.own_page().message.store(&text);
        Fault::NoMemory
    }

    /// Queues something that found no room.
    pub(crate) fn enqueue(&mut self, peer: u32, pending: Pending) {
        if self.endpoints[peer].blocked == 0 {
            self.blocked.push(peer);
            self.blocked_peers += 1;
        }
        let endpoint = &mut self.endpoints[peer];
        endpoint.blocked = 1;
        endpoint.pending.get_or_insert_default().push_back(pending);
        // Its progress thread makes room, and ours goes on then.
        self.ring(peer);
        self.ring_own();
    }

    /// Takes a peer out of the blocked ones: nothing is pending for it any more.
    pub(crate) fn unblock(&mut self, peer: u32) {
        self.endpoints[peer].blocked = 0;
        self.blocked.retain(|&blocked| blocked != peer);
        self.blocked_peers -= 1;
    }

    /// Marks a request complete; a detached one is freed.
    pub(crate) fn complete(&mut self, id: RequestId) {
        let request = self.requests.get_mut(id);
        request.state = State::Complete;
        if request.detached {
            if let Some(call) = self.on_detached {
                call(request);
            }
            self.requests.free(id);
        }
        self.wake_sleepers();
    }
}

impl Worker {
    /// Whether a receive that watches `peer` alone must let the ordinary path have a turn: other work
    /// is under way, a new peer has connected, another receive stands before the wanted one, or the
    /// processor is needed by others.
    pub fn wants_attention(&mut self, peer: u32) -> bool {
        !self.matcher.has_no_receive(peer) || self.must_look_around(peer)
    }

    /// The same of a receive that takes no arrival which another one waits for ([`Worker::is_unclaimed`]).
    pub fn must_look_around(&mut self, peer: u32) -> bool {
        !self.is_idle()
            || self.interfaces.has_signal()
            // An adapter has to be asked.
            || (self.interfaces.has_news() && self.progress_interfaces())
            || self.endpoints[peer].lane.look().is_some()
            || self.is_crowded()
    }

    /// Whether a receive may watch `peer` alone: nothing else is under way, no message or receive stands
    /// before it, and nobody else needs the processor. An arrival that is there is no reason against it.
    #[inline]
    pub fn may_watch(&mut self, peer: u32) -> bool {
        !self.matcher.has_unexpected(peer) && self.may_watch_ring(peer)
    }

    /// As [`Worker::may_watch`], for a receive that no message in the unexpected queue satisfies.
    #[inline]
    pub fn may_watch_ring(&mut self, peer: u32) -> bool {
        self.is_idle() && self.matcher.has_no_receive(peer) && !self.is_crowded()
    }

    /// Whether no posted receive asks for the next arrival of `peer`, if there is one.
    pub fn is_unclaimed(&mut self, peer: u32) -> bool {
        if self.matcher.has_no_receive(peer) {
            return true;
        }
        let Some(arrival) = self.endpoints[peer].lane.look() else {
            return true;
        };
        let (key, tag) = (arrival.header.key, arrival.header.imm as i32);
        self.matcher.find_posted(peer, key, tag).is_none()
    }

    /// Slots that were filled so far in rings of shared memory: one for each short message, and for each step of a
    /// longer one.
    pub fn ring_slots_sent(&self) -> u64 {
        let peers = 0..self.job.present() as u32;
        peers.map(|peer| self.endpoints[peer].lane.ring_slots_sent()).sum()
    }

    /// What the process still owes its peers before it leaves the job: all that it has sent is where they find it.
    pub fn leave(&mut self) {
        self.progress();
        for peer in self.active.clone() {
            self.endpoints[peer].lane.return_credits();
            // An adapter may still have to send what it was given; a peer that is gone makes that an error.
            while !self.endpoints[peer].lane.may_leave() {
                // A peer that must answer may have no other processor to do so.
                self.progress_or_yield();
            }
        }
        while !self.interfaces.may_leave() {
            self.progress_or_yield();
        }
    }

    fn progress_or_yield(&mut self) {
        if !self.progress() {
            fastpath_base::wait::yield_now();
        }
    }
}
