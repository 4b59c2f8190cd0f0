//! Random programs on several ranks, checked against MPI's rules of matching (MPI 5.0, section 3.5).
#![allow(unsafe_code, non_snake_case)]

mod common;
#[path = "common/draw.rs"]
mod draw;

use common::*;
use draw::{conditions, op, thresholds};
use fastpath_protocol::buffer::Buffer;
use fastpath_protocol::matching::{ANY_PEER, MatchCriteria};
use fastpath_protocol::protocols::Parts;
use fastpath_protocol::request::Fault;
use fastpath_protocol::tag::{ANY_TAG, Context, tag_matches};
use fastpath_protocol::worker::Thresholds;
use fastpath_protocol::{RequestId, RequestState, SendArgs, StartOutcome};
use fastpath_transport::Post;
use fastpath_transport::sim::Conditions;
use proptest::prelude::*;

/// Step of a program, or of time.
#[derive(Debug, Clone)]
enum Op {
    Send {
        from: u32,
        to: u32,
        comm: usize,
        tag: i32,
        len: usize,
        synchronous: bool,
        immediate: bool,
    },
    Recv {
        at: u32,
        from: u32,
        comm: usize,
        tag: i32,
        room: usize,
        way: ReceiveForm,
    },
    Cancel {
        at: u32,
        index: usize,
    },
    Progress(u32),
    Advance(u64),
}

/// Form of a receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReceiveForm {
    Plain,
    /// Takes an arrived message without a request, as the layer above does.
    Immediate,
    /// Probes first, and receives only if there is a message.
    Matched,
}

struct ProgramMessage {
    from: u32,
    to: u32,
    comm: usize,
    tag: i32,
    data: Box<[u8]>,
    synchronous: bool,
    request: Option<RequestId>,
    /// Receive that got the message.
    receive: Option<usize>,
}

struct Receive {
    at: u32,
    want: MatchCriteria,
    from: u32,
    comm: usize,
    data: Box<[u8]>,
    room: usize,
    request: Option<RequestId>,
    outcome: Option<RequestEnd>,
    /// Index of the message that the receive got.
    message: Option<usize>,
}

impl Receive {
    fn accepts(&self, message: &ProgramMessage) -> bool {
        let source = self.from == ANY_PEER || self.from == message.from;
        message.to == self.at
            && message.comm == self.comm
            && source
            && tag_matches(self.want.tag, message.tag)
    }
}

fn comm(index: usize) -> Context {
    [Context::WORLD, Context::from_leader(1, 4), Context::WORLD.collective()][index]
}

/// The world, with its messages and receives in the order in which they were started.
struct ProgramRun {
    world: World,
    messages: Vec<ProgramMessage>,
    receives: Vec<Receive>,
}

impl ProgramRun {
    #[allow(clippy::too_many_arguments)] // the fields of a message
    fn send(
        &mut self, from: u32, to: u32, comm_index: usize, tag: i32, len: usize, synchronous: bool,
        immediate: bool,
    ) {
        let number = self.messages.len() as u32;
        let mut data = pattern(number, len.max(4)).into_boxed_slice();
        data[..4].copy_from_slice(&number.to_le_bytes());
        let key = comm(comm_index).key(from);
        let worker = self.world.rank(from);
        // SAFETY: the data lives in the message until the end.
        let now = immediate
            && !synchronous
            && unsafe {
                match worker.send_now(to, key, tag, data.as_ptr(), data.len() as u64) {
                    Post::Done => true,
                    Post::NoResource => false,
                    post => panic!("{post:?}"),
                }
            };
        let mut request = None;
        if !now {
            let buffer = Buffer::contiguous(data.as_ptr().cast_mut(), data.len() as u64);
            let args = SendArgs { peer: to, key, tag, buffer, synchronous };
            // SAFETY: the data lives in the message until the end.
            if let StartOutcome::Request(id) = unsafe { worker.start_send(args) }.unwrap() {
                request = Some(id);
            }
        }
        self.messages.push(ProgramMessage {
            from,
            to,
            comm: comm_index,
            tag,
            data,
            synchronous,
            request,
            receive: None,
        });
    }

    fn recv(
        &mut self, at: u32, from: u32, comm_index: usize, tag: i32, room: usize, way: ReceiveForm,
    ) {
        let room = room.max(4);
        let mut data = vec![FILL; room + 32].into_boxed_slice();
        let source = if from == ANY_PEER { 0 } else { from };
        let want = MatchCriteria { peer: from, tag, key: comm(comm_index).key(source) };
        let buffer = Buffer::contiguous(data.as_mut_ptr(), room as u64);
        let mut receive = Receive {
            at,
            want,
            from,
            comm: comm_index,
            data,
            room,
            request: None,
            outcome: None,
            message: None,
        };
        let worker = self.world.rank(at);
        match way {
            ReceiveForm::Matched => {
                let Some((token, _)) = worker.probe_matched(&want) else {
                    return;
                };
                // SAFETY: the buffer lives in the receive until the end.
                receive.request = Some(unsafe { worker.recv_matched(token, buffer) }.unwrap());
            }
            ReceiveForm::Immediate if from != ANY_PEER && self.recv_now(&mut receive) => {}
            _ => {
                // SAFETY: the buffer lives in the receive until the end.
                receive.request =
                    Some(unsafe { self.world.rank(at).start_recv(want, buffer) }.unwrap());
            }
        }
        self.receives.push(receive);
    }

    /// Receives an arrived message as far as possible without a request. Returns whether there was one.
    fn recv_now(&mut self, receive: &mut Receive) -> bool {
        let Receive { at, want, room, .. } = *receive;
        let to = receive.data.as_mut_ptr();
        if !self.world.rank(at).matcher.is_quiet(want.peer) {
            return self.recv_queued(receive);
        }
        // SAFETY: the buffer has `room` bytes.
        let taken = unsafe {
            self.world.endpoint(at, want.peer).recv_immediate(want.key, want.tag, to, room)
        };
        let done = |tag, len: u64| RequestEnd {
            fault: Fault::None,
            source: (want.key & 0xff_ffff) as i32,
            tag,
            received: len,
            sent: 0,
            cancelled: false,
        };
        if let Some(taken) = taken {
            receive.outcome = Some(done(taken.tag, taken.len as u64));
            return true;
        }
        // SAFETY: the buffer has `room` bytes, and lives until the request completes.
        match unsafe { self.world.rank(at).recv_parts(want, to, room as u64, 0) } {
            Some(Parts::Done { tag, len }) => receive.outcome = Some(done(tag, len)),
            Some(Parts::Request(id)) => receive.request = Some(id),
            None => return false,
        }
        true
    }

    /// Receives without a request from a source with unexpected messages or posted receives; returns whether it did.
    fn recv_queued(&mut self, receive: &mut Receive) -> bool {
        let Receive { at, want, room, .. } = *receive;
        let to = receive.data.as_mut_ptr();
        // SAFETY: the buffer has `room` bytes.
        let taken = unsafe { self.world.rank(at).recv_queued(want, to, room) };
        receive.outcome = taken.map(|taken| RequestEnd {
            fault: Fault::None,
            source: (want.key & 0xff_ffff) as i32,
            tag: taken.tag,
            received: taken.len as u64,
            sent: 0,
            cancelled: false,
        });
        receive.outcome.is_some()
    }

    fn step(&mut self, op: &Op) {
        let ranks = self.world.workers.len() as u32;
        match *op {
            Op::Send { from, to, comm, tag, len, synchronous, immediate } => {
                self.send(from % ranks, to % ranks, comm, tag, len, synchronous, immediate);
            }
            Op::Recv { at, from, comm, tag, room, way } => {
                let from = if from == ANY_PEER { from } else { from % ranks };
                self.recv(at % ranks, from, comm, tag, room, way);
            }
            Op::Cancel { at, index } => {
                let at = at % ranks;
                let mine = |r: &&Receive| r.at == at && r.request.is_some();
                let Some(receive) = self.receives.iter().filter(mine).nth(index) else {
                    return;
                };
                let Some(id) = receive.request else { return };
                if self.world.rank(at).requests.get(id).state == RequestState::Active {
                    self.world.rank(at).cancel_recv(id);
                }
            }
            Op::Progress(rank) => {
                self.world.rank(rank % ranks).progress();
            }
            Op::Advance(ns) => self.world.network.advance(ns),
        }
    }

    /// Collects the outcomes of completed receives.
    fn collect(&mut self) {
        for index in 0..self.receives.len() {
            let receive = &mut self.receives[index];
            if let Some(id) = receive.request {
                let worker = &mut self.world.workers[receive.at as usize];
                if worker.requests.get(id).state == RequestState::Complete {
                    receive.outcome = Some(RequestEnd::of(worker.requests.get(id)));
                    receive.request = None;
                    worker.requests.free(id);
                }
            }
            if receive.message.is_none() && receive.outcome.is_some_and(|o| !o.cancelled) {
                self.identify(index);
            }
        }
        for message in &mut self.messages {
            if let Some(id) = message.request {
                let worker = &mut self.world.workers[message.from as usize];
                let request = worker.requests.get(id);
                if request.state == RequestState::Complete {
                    assert_eq!(request.fault, Fault::None);
                    message.request = None;
                    worker.requests.free(id);
                }
            }
        }
    }

    /// Identifies the message that a receive got, and checks its contents.
    fn identify(&mut self, index: usize) {
        let receive = &mut self.receives[index];
        let outcome = receive.outcome.unwrap();
        let number = u32::from_le_bytes(receive.data[..4].try_into().unwrap()) as usize;
        let message = &mut self.messages[number];
        assert!(
            receive.accepts(message),
            "receive {index} got message {number}, which it did not ask for"
        );
        assert_eq!(message.receive, None, "message {number} was received twice");
        let fits = message.data.len().min(receive.room);
        assert_eq!(
            (outcome.source, outcome.tag, outcome.received),
            (message.from as i32, message.tag, fits as u64)
        );
        let fault = if fits < message.data.len() { Fault::Truncated } else { Fault::None };
        assert_eq!(outcome.fault, fault);
        if fault == Fault::Truncated {
            assert_eq!(outcome.sent, message.data.len() as u64);
        }
        assert!(
            receive.data[..fits] == message.data[..fits],
            "message {number} was changed on the way"
        );
        assert!(
            receive.data[fits..].iter().all(|&byte| byte == FILL),
            "receive {index} wrote beyond its end"
        );
        receive.message = Some(number);
        message.receive = Some(index);
    }

    /// Checks that MPI allows the matching.
    fn check_matching(&self) {
        for (index, receive) in self.receives.iter().enumerate() {
            let Some(number) = receive.message else {
                continue;
            };
            let got = &self.messages[number];
            // Messages may not overtake: an earlier receive got each earlier acceptable message of this sender.
            for (earlier, message) in self.messages[..number].iter().enumerate() {
                if message.from == got.from && receive.accepts(message) {
                    let ok = message.receive.is_some_and(|other| other < index);
                    assert!(
                        ok,
                        "receive {index} got message {number} before message {earlier}, got by \
                         {:?}",
                        message.receive
                    );
                }
            }
            // No earlier receive that accepts the message is still waiting.
            for (earlier, other) in self.receives[..index].iter().enumerate() {
                let waits = other.outcome.is_none() && other.accepts(got);
                assert!(
                    !waits,
                    "message {number} went to receive {index} while receive {earlier} waits"
                );
            }
        }
    }

    /// Checks that no possible match is missing.
    fn check_rest(&self, thresholds: &Thresholds) {
        for (index, receive) in
            self.receives.iter().enumerate().filter(|(_, r)| r.outcome.is_none())
        {
            let missed =
                self.messages.iter().position(|m| m.receive.is_none() && receive.accepts(m));
            assert_eq!(missed, None, "receive {index} waits and the message is there");
        }
        for (number, message) in self.messages.iter().enumerate() {
            let alone = !message.synchronous && message.data.len() as u64 <= thresholds.eager;
            let done = message.receive.is_some() || alone;
            assert!(
                message.request.is_none() || !done,
                "the send of message {number} never completes"
            );
            if message.synchronous && message.receive.is_none() {
                assert!(
                    message.request.is_some(),
                    "synchronous message {number} completed unmatched"
                );
            }
        }
    }

    /// Cancels the pending receives, and receives the remaining messages.
    fn clean_up(&mut self) {
        for receive in &self.receives {
            if let Some(id) = receive.request {
                assert!(self.world.workers[receive.at as usize].cancel_recv(id));
            }
        }
        self.collect();
        let left: Vec<(u32, usize, i32)> = self
            .messages
            .iter()
            .filter(|m| m.receive.is_none())
            .map(|m| (m.to, m.comm, m.tag))
            .collect();
        for (at, comm, tag) in left {
            self.recv(
                at,
                ANY_PEER,
                comm,
                if tag < 0 { tag } else { ANY_TAG },
                100_000,
                ReceiveForm::Plain,
            );
        }
        self.world.settle();
        self.collect();
        self.check_matching();
        assert!(self.messages.iter().all(|m| m.receive.is_some() && m.request.is_none()));
        for (rank, worker) in self.world.workers.iter_mut().enumerate() {
            let left = (worker.requests.alive(), worker.counters.violations, has_unsent(worker));
            assert_eq!(left, (0, 0, false), "rank {rank}: requests, violations, unsent");
        }
        let counts = self.world.network.counts();
        assert_eq!(
            (counts.astray, counts.unheeded),
            (0, 0),
            "sent to a closed end; sleeping peers not woken"
        );
    }
}

fn run(world: World, thresholds: Thresholds, ops: &[Op]) {
    let mut run = ProgramRun { world, messages: Vec::new(), receives: Vec::new() };
    run.world.workers.iter_mut().for_each(|worker| worker.planner.thresholds = thresholds);
    for op in ops {
        run.step(op);
    }
    run.world.settle();
    run.collect();
    run.check_matching();
    run.check_rest(&thresholds);
    run.clean_up();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn program__is_matched_as_mpi_says(
        ranks in 1_u32..5,
        conditions in conditions(),
        thresholds in thresholds(),
        ops in prop::collection::vec(op(), 1..150),
    ) {
        run(World::new(ranks, conditions), thresholds, &ops);
    }
}

proptest! {
    // Fewer cases, because each case makes its own shared memory.
    #![proptest_config(ProptestConfig { cases: 80, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn program__over_shared_memory_is_matched_as_mpi_says(
        ranks in 1_u32..5,
        single_copy in any::<bool>(),
        loopback in any::<bool>(),
        thresholds in thresholds(),
        ops in prop::collection::vec(op(), 1..400),
    ) {
        run(World::shared_with(ranks, single_copy, loopback), thresholds, &ops);
    }
}
