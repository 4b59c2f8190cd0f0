//! Several workers in one process, joined by a simulated network whose clock the test advances.
#![allow(unsafe_code, dead_code)]

use fastpath_base::config::{Config, WaitMode};
use fastpath_job::Job;
use fastpath_protocol::buffer::Buffer;
use fastpath_protocol::endpoint::Endpoint;
use fastpath_protocol::matching::{ANY_PEER, MatchCriteria};
use fastpath_protocol::request::{Fault, Request};
use fastpath_protocol::tag::Context;
use fastpath_protocol::waiting::WaitPolicy;
use fastpath_protocol::worker::Thresholds;
use fastpath_protocol::{RequestId, RequestState, SendArgs, StartOutcome, Worker};
use fastpath_transport::Interfaces;
use fastpath_transport::adapter::AdapterTransport;
use fastpath_transport::adapter::upgrade::Rule;
use fastpath_transport::sim::{Conditions, Network};
use fastpath_transport::verbs::inline::Overrides;
use std::cell::RefCell;
use std::time::{Duration, Instant};

pub const WORLD: Context = Context::WORLD;

/// Virtual nanoseconds after which a program counts as hung.
const TIMEOUT_NS: u64 = 60_000_000_000;

/// Real time after which a test counts as hung.
const WATCHDOG: Duration = Duration::from_secs(60);

thread_local! {
    /// A job lives as long as the process, so each thread creates the jobs that it needs only once.
    static JOBS: RefCell<Vec<(u32, &'static [Job])>> = const { RefCell::new(Vec::new()) };
}

fn jobs(ranks: u32) -> &'static [Job] {
    JOBS.with_borrow_mut(|known| {
        if let Some((_, jobs)) = known.iter().find(|(size, _)| *size == ranks) {
            return *jobs;
        }
        let jobs: &'static [Job] = Job::in_process(ranks as usize).unwrap().leak();
        known.push((ranks, jobs));
        jobs
    })
}

pub fn policy() -> WaitPolicy {
    WaitPolicy { mode: WaitMode::Spin, ..WaitPolicy::of(&Config::defaults(), 2, None) }
}

/// Returns whether an unfinished send keeps a rank from leaving the job.
pub fn has_unsent(worker: &mut Worker) -> bool {
    !worker.is_idle() || worker.end_detached(|_, _| false)
}

/// The ranks and their network.
pub struct World {
    pub network: Network,
    pub workers: Vec<Worker>,
    /// Whether a rank can read another's memory.
    pub get: bool,
}

impl World {
    pub fn new(ranks: u32, conditions: Conditions) -> Self {
        let get = conditions.get;
        let network = Network::new(ranks, conditions);
        let worker = |job: &'static Job| {
            Worker::with_interfaces(job, policy(), Interfaces::simulate(job, &network)).unwrap()
        };
        let workers = jobs(ranks).iter().map(worker).collect();
        World { network, workers, get }
    }

    /// Creates ranks over the shared memory of a new job. The simulated network serves only as a clock.
    pub fn shared(ranks: u32) -> Self {
        Self::shared_with(ranks, true, true)
    }

    /// Creates ranks like [`World::shared`], with or without single copies by the kernel. A rank sends to itself
    /// through the process's queue if `loopback` is set, otherwise through a ring.
    pub fn shared_with(ranks: u32, single_copy: bool, loopback: bool) -> Self {
        let jobs: &'static [Job] = Job::in_process(ranks as usize).unwrap().leak();
        let worker = |job| {
            let mut interfaces = Interfaces::open(job);
            interfaces.allowed.cma = single_copy;
            interfaces.allowed.loopback = loopback;
            Worker::with_interfaces(job, policy(), interfaces).unwrap()
        };
        let network = Network::new(0, Conditions::default());
        World { network, workers: jobs.iter().map(worker).collect(), get: true }
    }

    /// Creates ranks that only have reliable connections of an adapter. The simulated network is not used.
    pub fn on_adapter(ranks: u32, device: &str) -> Self {
        Self::on_adapter_by(ranks, AdapterTransport::Rc, device)
    }

    /// Creates ranks with connections or datagrams of an adapter. See [`World::on_adapter`].
    pub fn on_adapter_by(ranks: u32, by: AdapterTransport, device: &str) -> Self {
        Self::on_adapters(&vec![device; ranks as usize], by, Rule::default())
    }

    /// Creates a rank on each of the devices. `rule`: when pairs change from datagrams to connections.
    pub fn on_adapters(devices: &[&str], by: AdapterTransport, rule: Rule) -> Self {
        let jobs: &'static [Job] = Job::in_process(devices.len()).unwrap().leak();
        let worker = |(job, device): (&'static Job, &&str)| {
            let mut interfaces = Interfaces::open(job);
            interfaces.allowed.shm = false;
            let opened = interfaces.open_adapter(by, Some(device), &Overrides::default());
            opened.unwrap();
            interfaces.set_upgrade_rule(rule);
            Worker::with_interfaces(job, policy(), interfaces).unwrap()
        };
        World {
            network: Network::new(0, Conditions::default()),
            workers: jobs.iter().zip(devices).map(worker).collect(),
            get: true,
        }
    }

    /// Creates ranks over TCP connections of the kernel; `nodes` has the node of each rank. Ranks of a node use shared
    /// memory, unless `all` requires TCP for all pairs. The simulated network is not used.
    pub fn over_network(nodes: &[u32], all: bool) -> Self {
        let several = nodes.iter().any(|node| node != &nodes[0]);
        let jobs = match several {
            true => Job::on_nodes(nodes),
            false => Job::in_process(nodes.len()),
        };
        let jobs: &'static [Job] = jobs.unwrap().leak();
        let listed = if all { "tcp" } else { "shm,tcp" };
        let pairs = [
            ("FASTPATH_TRANSPORTS".into(), listed.into()),
            ("FASTPATH_INTERFACES".into(), "lo".into()),
        ];
        let config = Config::from_pairs(pairs).unwrap();
        let worker = |job| {
            let mut worker = Worker::new(job, policy()).unwrap();
            worker.configure(&config).unwrap();
            worker
        };
        let workers = jobs.iter().map(worker).collect();
        for job in jobs {
            for other in jobs.iter().filter(|other| !job.is_node_peer(other.rank())) {
                let card = other.network_card(other.rank()).unwrap();
                job.learn_card(other.rank(), &card);
            }
        }
        World { network: Network::new(0, Conditions::default()), workers, get: false }
    }

    pub fn rank(&mut self, rank: u32) -> &mut Worker {
        &mut self.workers[rank as usize]
    }

    pub fn endpoint(&mut self, from: u32, to: u32) -> &mut Endpoint {
        // SAFETY: the endpoint lives as long as the worker, and the test holds one reference at a time.
        unsafe { &mut *self.workers[from as usize].endpoint_address(to) }
    }

    /// Makes progress once for every rank. Returns whether anything happened.
    pub fn progress(&mut self) -> bool {
        self.workers.iter_mut().fold(false, |moved, worker| moved | worker.progress())
    }

    /// Makes progress and advances time until `done` holds. Returns false if that takes more than [`TIMEOUT_NS`].
    pub fn run_until(&mut self, mut done: impl FnMut(&mut World) -> bool) -> bool {
        let start = self.network.now_ns();
        loop {
            if done(self) {
                return true;
            }
            if self.progress() {
                continue;
            }
            if !self.network.advance_to_next() {
                // The network is idle, but timers of the workers may be running.
                self.network.advance(1_000_000);
            }
            if self.network.now_ns() - start > TIMEOUT_NS {
                return false;
            }
        }
    }

    /// Makes progress in real time until `done` holds.
    ///
    /// # Panics
    /// `done` does not hold after [`WATCHDOG`].
    pub fn await_until(&mut self, what: &str, mut done: impl FnMut(&mut World) -> bool) {
        let start = Instant::now();
        while !done(self) {
            self.progress();
            assert!(start.elapsed() < WATCHDOG, "waited in vain for {what}");
        }
    }

    /// Sends a message of `size` bytes from one rank to a receive of another with `room` bytes, in real time.
    pub fn pass(&mut self, [from, to]: [u32; 2], size: usize, room: usize) -> ReceivedMessage {
        let data: Vec<u8> = (0..size).map(|i| ((i * 7) >> 3) as u8).collect();
        let receiving = self.recv(to, from, 3, room);
        let sending = self.send(from, to, 3, &data);
        self.await_until("a message", |w| w.is_received(&receiving) && w.is_sent(&sending));
        self.finish_send(sending);
        let received = self.finish_recv(receiving);
        assert!(received.data == data[..size.min(room)], "{size} {room}");
        received
    }

    /// Turns off faults, then makes progress and advances time until nothing moves any more.
    pub fn settle(&mut self) {
        self.network.set_faults(0.0, 0.0, 0.0);
        let mut idle = 0;
        for _ in 0..1_000_000 {
            if self.progress() || self.network.advance_to_next() {
                idle = 0;
                continue;
            }
            idle += 1;
            if idle == 5 {
                return;
            }
            // This is longer than any timer of a worker.
            self.network.advance(200_000_000);
        }
        panic!("the network never comes to rest");
    }

    pub fn wait(&mut self, rank: u32, id: RequestId) -> RequestEnd {
        assert!(
            self.run_until(|w| w.rank(rank).requests.get(id).state == RequestState::Complete),
            "request {id} of rank {rank} never completes"
        );
        let outcome = RequestEnd::of(self.rank(rank).requests.get(id));
        self.rank(rank).requests.free(id);
        outcome
    }

    pub fn send(&mut self, from: u32, to: u32, tag: i32, data: &[u8]) -> Sending {
        self.send_as(from, to, tag, data, false)
    }

    /// Starts a send of a copy of `data`.
    pub fn send_as(
        &mut self, from: u32, to: u32, tag: i32, data: &[u8], synchronous: bool,
    ) -> Sending {
        let data: Box<[u8]> = data.into();
        let buffer = Buffer::contiguous(data.as_ptr().cast_mut(), data.len() as u64);
        let args = SendArgs { peer: to, key: WORLD.key(from), tag, buffer, synchronous };
        // SAFETY: the copy lives in the `Sending`, which is leaked if it is dropped early.
        let started = unsafe { self.rank(from).start_send(args) }.unwrap();
        Sending { rank: from, started, data }
    }

    pub fn finish_send(&mut self, sending: Sending) -> Option<RequestEnd> {
        let outcome = match sending.started {
            StartOutcome::Done => None,
            StartOutcome::Request(id) => Some(self.wait(sending.rank, id)),
        };
        drop(sending.data);
        outcome
    }

    pub fn is_sent(&mut self, sending: &Sending) -> bool {
        match sending.started {
            StartOutcome::Done => true,
            StartOutcome::Request(id) => {
                self.rank(sending.rank).requests.get(id).state == RequestState::Complete
            }
        }
    }

    /// Starts a receive; `from` is a rank or [`ANY_PEER`].
    pub fn recv(&mut self, rank: u32, from: u32, tag: i32, room: usize) -> Receiving {
        let mut data = vec![FILL; room + GUARD].into_boxed_slice();
        let buffer = Buffer::contiguous(data.as_mut_ptr(), room as u64);
        // SAFETY: the buffer lives in the `Receiving`.
        let id = unsafe { self.rank(rank).start_recv(want(from, tag), buffer) }.unwrap();
        Receiving { rank, id, data, room }
    }

    /// Starts a receive from a named rank by the fast path, if possible.
    pub fn recv_short(&mut self, rank: u32, from: u32, tag: i32, room: usize) -> Receiving {
        let worker = self.rank(rank);
        // SAFETY: the endpoint is the worker's.
        if unsafe { worker.may_recv(worker.endpoint_address(from)) }.is_none() {
            return self.recv(rank, from, tag, room);
        }
        let mut data = vec![FILL; room + GUARD].into_boxed_slice();
        // SAFETY: a request is free, and the buffer lives in the `Receiving`.
        let handle =
            unsafe { worker.post_recv(want(from, tag), data.as_mut_ptr(), room as u64, 0) };
        let id = worker.requests.find(handle as u64).expect("just posted");
        Receiving { rank, id, data, room }
    }

    pub fn is_received(&mut self, receiving: &Receiving) -> bool {
        self.rank(receiving.rank).requests.get(receiving.id).state == RequestState::Complete
    }

    pub fn finish_recv(&mut self, receiving: Receiving) -> ReceivedMessage {
        let outcome = self.wait(receiving.rank, receiving.id);
        receiving.check_guard(outcome.received as usize);
        ReceivedMessage { outcome, data: receiving.data[..outcome.received as usize].to_vec() }
    }
}

/// Fill of an untouched receive buffer.
pub const FILL: u8 = 0xa5;
const GUARD: usize = 64;

pub fn want(from: u32, tag: i32) -> MatchCriteria {
    match from {
        ANY_PEER => MatchCriteria { peer: ANY_PEER, tag, key: WORLD.key(0) },
        _ => MatchCriteria { peer: from, tag, key: WORLD.key(from) },
    }
}

/// Send under way, with its buffer.
pub struct Sending {
    pub rank: u32,
    pub started: StartOutcome,
    pub data: Box<[u8]>,
}

/// Receive under way, with its buffer.
pub struct Receiving {
    pub rank: u32,
    pub id: RequestId,
    pub data: Box<[u8]>,
    pub room: usize,
}

impl Receiving {
    /// Checks that no byte beyond the first `received` ones was written.
    pub fn check_guard(&self, received: usize) {
        assert!(received <= self.room);
        let rest = &self.data[received..];
        assert!(rest.iter().all(|&byte| byte == FILL), "written beyond {received} bytes");
    }
}

/// Outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestEnd {
    pub fault: Fault,
    pub source: i32,
    pub tag: i32,
    pub received: u64,
    /// Length in bytes of a message that did not fit the receive buffer.
    pub sent: u64,
    pub cancelled: bool,
}

impl RequestEnd {
    pub fn of(request: &Request) -> Self {
        RequestEnd {
            fault: request.fault,
            source: request.source,
            tag: request.received_tag,
            received: request.received,
            sent: request.limit,
            cancelled: request.cancelled,
        }
    }
}

/// Received message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedMessage {
    pub outcome: RequestEnd,
    pub data: Vec<u8>,
}

/// Returns bytes that depend on seed and position.
pub fn pattern(seed: u32, len: usize) -> Vec<u8> {
    (0..len as u32)
        .map(|i| (seed.wrapping_mul(0x9e37_79b9) ^ i.wrapping_mul(0x85eb_ca6b)).to_le_bytes()[3])
        .collect()
}

/// Small thresholds, so that short messages use every protocol.
pub const SMALL: Thresholds = Thresholds {
    eager: 100,
    max_single: 0,
    first: 200,
    fragment: 60,
    single_copy: u64::MAX,
    crowded_copy: u64::MAX,
    fetch: u64::MAX,
    direct: u64::MAX,
    cooperative: 0,
    piece_min: 4096,
    piece_max: 4096,
    pipelined: true,
};

/// Creates ranks with the thresholds [`SMALL`].
pub fn small_world(ranks: u32, conditions: Conditions) -> World {
    let mut world = World::new(ranks, conditions);
    world.workers.iter_mut().for_each(|worker| worker.planner.thresholds = SMALL);
    world
}

pub fn finish_all(world: &mut World, sends: impl IntoIterator<Item = Sending>) {
    for sending in sends {
        if let Some(outcome) = world.finish_send(sending) {
            assert_eq!(outcome.fault, Fault::None);
        }
    }
}

/// Starts a synchronous or long send that must wait for its receiver. Returns also its request.
pub fn waiting_send(world: &mut World, tag: i32, len: usize) -> (Sending, u32) {
    let sending = world.send_as(0, 1, tag, &pattern(tag as u32, len), true);
    let StartOutcome::Request(id) = sending.started else { panic!("it waits for its receiver") };
    (sending, id)
}
