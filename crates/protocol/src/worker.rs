//! Worker: all state with which one process sends and receives.
#![allow(unsafe_code)]

pub(crate) mod background;
pub(crate) mod flood;
pub mod hooks;
pub(crate) mod sends;

pub use crate::counters::{Counters, Traffic};
use crate::endpoint::{Endpoint, PendingPost};
use crate::matching::Matcher;
use crate::peers::Endpoints;
use crate::plan::Planner;
use crate::request::{Fault, RequestId, RequestPool, RequestState};
use crate::rma::Rma;
pub use crate::selection::Thresholds;
use crate::snapshot::Addresses;
use crate::unexpected::Buffers;
use crate::wait_policy::WaitPolicy;
use crate::wire::CONTROL_MAX;
use crate::wireup::Wireup;
use background::Background;
use fastpath_base::config::Config;
use fastpath_base::sync::Ordering;
use fastpath_job::Job;
use fastpath_job::network::NetworkCard;
use fastpath_transport::{Connection, Header, Interfaces, Post};
use flood::Flood;
use hooks::{Hooks, ReceivedNotice};
use sends::Sends;
use std::collections::VecDeque;

/// Sends, receives and progress of one process.
pub struct Worker {
    pub(crate) endpoints: Endpoints,
    /// World rank of this process.
    pub rank: u32,
    pub(crate) interfaces: Interfaces,
    /// The matching engine.
    pub matcher: Matcher,
    /// Pool of all requests.
    pub requests: RequestPool,
    pub(crate) unexpected: Buffers,
    /// Bound on unexpected messages.
    pub flood: Flood,
    pub(crate) active: Vec<u32>,
    pub(crate) sends: Sends,
    /// Number of announced messages that matched probes have taken and that no receive has fetched yet.
    pub(crate) probed: u32,
    /// Connections that need messages before they carry data.
    pub wireup: Wireup,
    /// One-sided operations.
    pub rma: Rma,
    /// Connections that will replace datagrams.
    pub upgrade: Wireup,
    /// State from which sends are planned.
    pub planner: Planner,
    /// Event counters.
    pub counters: Counters,
    /// Policy of waits.
    pub wait: WaitPolicy,
    /// Progress while the program computes.
    pub background: Background,
    /// The job.
    pub job: &'static Job,
    /// Callbacks into the layer above.
    pub hooks: Hooks,
    /// Notices that have arrived and are not delivered.
    pub(crate) notices: VecDeque<ReceivedNotice>,
    /// Number of deaths and aborts in the job at the last check ([`Worker::note_ends`]).
    pub(crate) seen_events: u32,
    /// Addresses of the values that other processes read. The rank's page refers to them only by a number, so this
    /// field keeps leak checkers from reporting them.
    pub(crate) shown: Option<Box<Addresses>>,
}

impl Worker {
    /// Creates the worker of a job's rank. No peer is connected yet.
    pub fn new(job: &'static Job, wait: WaitPolicy) -> std::io::Result<Self> {
        Worker::with_interfaces(job, wait, Interfaces::open(job))
    }

    /// Creates a worker that reaches its peers through `interfaces`.
    pub fn with_interfaces(
        job: &'static Job, wait: WaitPolicy, interfaces: Interfaces,
    ) -> std::io::Result<Self> {
        let endpoints = Endpoints::of_job(job)?;
        Ok(Worker {
            // SAFETY: the worker owns matcher and endpoints, and does not use the matcher while it is dropped.
            matcher: unsafe { Matcher::new(endpoints.peers()) },
            endpoints,
            rank: job.rank() as u32,
            interfaces,
            requests: RequestPool::new()?,
            unexpected: Buffers::default(),
            flood: Flood::default(),
            active: Vec::new(),
            sends: Sends::default(),
            probed: 0,
            wireup: Wireup::default(),
            rma: Rma::default(),
            upgrade: Wireup::default(),
            planner: Planner::default(),
            counters: Counters::default(),
            wait,
            background: Background::default(),
            job,
            hooks: Hooks::default(),
            notices: VecDeque::new(),
            seen_events: 0,
            shown: None,
        })
    }

    /// Returns the interfaces, for reports.
    pub fn interfaces(&self) -> &Interfaces {
        &self.interfaces
    }

    /// See [`Interfaces::open_for_foreign`].
    pub fn open_for_foreign(&mut self, config: &Config) -> Result<NetworkCard, String> {
        self.interfaces.open_for_foreign(config)
    }

    /// See [`Interfaces::note_foreign`].
    pub fn note_foreign(&mut self, ranks: &[u32]) {
        self.interfaces.note_foreign(ranks);
    }

    /// Takes the interfaces, for use without a worker. Afterwards this worker reaches no peer over an adapter.
    pub fn take_interfaces(&mut self) -> Interfaces {
        std::mem::replace(&mut self.interfaces, Interfaces::open(self.job))
    }

    /// Returns the number of ranks that the job has so far.
    pub fn present(&self) -> u32 {
        self.job.present() as u32
    }

    /// Returns the address of a rank's endpoint, which communicators cache.
    pub fn endpoint_address(&self, peer: u32) -> *mut Endpoint {
        self.endpoints.address(peer)
    }

    /// Returns whether no operation except the current one needs progress.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.sends.is_idle()
    }

    pub(crate) fn send_control(&mut self, peer: u32, header: Header, payload: &[u8]) {
        debug_assert!(payload.len() <= CONTROL_MAX);
        if let Err(fault) = self.connect(peer) {
            return self.leave_unanswered(peer, fault);
        }
        let endpoint = &mut self.endpoints[peer];
        // Control messages may overtake queued data, because they name a request. SAFETY: pointer and length are those
        // of the slice `payload`.
        let post = unsafe { endpoint.post_short(header, payload.as_ptr(), payload.len()) };
        if post == Post::NoResource {
            let mut bytes = [0; CONTROL_MAX];
            bytes[..payload.len()].copy_from_slice(payload);
            self.enqueue(peer, PendingPost::Control(header, bytes, payload.len() as u8));
        } else {
            self.ring_for(peer, header.id);
        }
    }

    /// Reports that a control message cannot be sent. A live peer would wait for it forever.
    #[cold]
    #[inline(never)]
    pub(crate) fn leave_unanswered(&self, peer: u32, fault: Fault) {
        if let (Fault::NoMemory, Some(call)) = (fault, self.hooks.on_no_answer) {
            call(peer);
        }
    }

    /// Reports on the status page, for error messages, that all requests are in use.
    #[cold]
    #[inline(never)]
    pub(crate) fn out_of_requests(&self) -> Fault {
        let most = self.requests.capacity();
        let why = match self.requests.is_limited() {
            true => "; to have more requests, raise the limit on address space (`ulimit -v`)",
            false => "",
        };
        let text = format!("all {most} requests are in use: complete or free some{why}");
        self.job.own_page().message.store(&text);
        Fault::NoMemory
    }

    pub(crate) fn enqueue(&mut self, peer: u32, pending: PendingPost) {
        if self.endpoints[peer].blocked == 0 {
            self.sends.block(peer);
        }
        let endpoint = &mut self.endpoints[peer];
        endpoint.blocked = 1;
        endpoint.pending.get_or_insert_default().push_back(pending);
        // Signal the peer's progress thread, which makes space, and this rank's progress thread, which then sends.
        self.ring(peer);
        self.ring_own();
    }

    pub(crate) fn unblock(&mut self, peer: u32) {
        self.endpoints[peer].blocked = 0;
        self.sends.unblock(peer);
    }

    /// Publishes the place of [`Addresses`] on the rank's page, and returns it. The worker must not move after this
    /// call.
    pub fn show(&mut self) -> u64 {
        let addresses = Addresses::of(&self.counters, &self.matcher, &self.requests);
        let addresses = self.shown.insert(Box::new(addresses));
        let shown = &self.job.own_page().snapshot;
        // ORDERING: release, after the addresses; partner: the acquire load of `snapshot` in `fastpath ps`.
        let address = (&raw const **addresses).addr() as u64;
        shown.store(address, Ordering::Release);
        address
    }

    pub(crate) fn complete(&mut self, id: RequestId) {
        let request = self.requests.get_mut(id);
        request.state = RequestState::Complete;
        if request.detached {
            if let Some(call) = self.hooks.on_detached {
                call(request);
            }
            self.requests.free(id);
        }
        self.wake_sleepers();
    }
}

impl Worker {
    /// Returns whether a receive that polls only `peer` must leave its loop for general progress. The reasons are other
    /// operations, a new peer, an earlier receive, or a processor that other ranks need.
    pub fn wants_attention(&mut self, peer: u32) -> bool {
        !self.matcher.has_no_receive(peer) || self.must_look_around(peer)
    }

    /// Returns whether a loop that receives unclaimed arrivals of `peer` ([`Worker::is_unclaimed`]) must make general
    /// progress.
    pub fn must_look_around(&mut self, peer: u32) -> bool {
        !self.is_idle()
            || self.interfaces.has_signal()
            // Interfaces that raise no signal must be polled.
            || (self.interfaces.has_news() && self.progress_interfaces())
            || self.endpoints[peer].lane.look().is_some()
            || self.is_crowded()
    }

    /// Returns whether a receive may poll only `peer`: no operation, message or receive comes first, and no other rank
    /// needs the processor. An arrival in the ring does not count.
    #[inline]
    pub fn may_watch(&mut self, peer: u32) -> bool {
        !self.matcher.has_unexpected(peer) && self.may_watch_ring(peer)
    }

    /// Returns whether a receive that no unexpected message satisfies may poll only `peer`. See [`Worker::may_watch`].
    #[inline]
    pub fn may_watch_ring(&mut self, peer: u32) -> bool {
        self.is_idle() && self.matcher.has_no_receive(peer) && !self.is_crowded()
    }

    /// Returns whether no posted receive matches the next arrival of `peer`, if there is one.
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

    /// Returns the filled slots of shared-memory rings: one slot for each short message or step of a longer message.
    pub fn ring_slots_sent(&self) -> u64 {
        let peers = 0..self.job.present() as u32;
        peers.map(|peer| self.endpoints[peer].lane.ring_slots_sent()).sum()
    }

    /// Completes the transfer of all sent messages to the peers. Call it before the process leaves the job.
    pub fn leave(&mut self) {
        self.progress();
        for peer in self.active.clone() {
            self.endpoints[peer].lane.return_credits();
            // An adapter may still have queued sends. If the peer has left, such a send fails.
            while !self.endpoints[peer].lane.may_leave() {
                // A peer that must answer may need this processor to do so.
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
