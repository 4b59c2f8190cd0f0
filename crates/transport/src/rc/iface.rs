//! The interface: queues that all connections share, progress, and what has gone wrong.
#![allow(unsafe_code)]

use super::Settings;
use super::connection::{ASSEMBLED, Connection, Pool, Stage};
use super::datapath::POLL;
use super::domain::Domain;
use super::endpoint::RcEndpoint;
use super::wire::{HEADER, LARGEST, PACKET};
use crate::verbs::inline::Source;
use crate::verbs::queue::post_idle;
use crate::verbs::{
    Access, Buffer, CompletionChannel, CompletionQueue, DeviceContext, Failure, PairSettings,
    QueuePair, RecvEntry, Service, Sge, SharedReceiveQueue, VerbsError, Watcher, Wc,
};
use fastpath_base::sync::AtomicU32;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Bytes from one receive buffer to the next.
pub(super) const STRIDE: usize = (HEADER + PACKET).next_multiple_of(64);
/// Connections on one send queue: it must hold a completion of everything they have under way, which is what
/// a failure makes.
const SHARERS: usize = 32;

/// How long a rank sleeps at a time: the loss of the device may make no completion.
const LONG_NAP: Duration = Duration::from_secs(1);
/// The same where the adapter cannot wake it.
const SHORT_NAP: Duration = Duration::from_millis(1);

/// What has happened, for reports and tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Queue pairs made.
    pub connections: u64,
    /// Bytes that may go inline, as the last of them was granted.
    pub granted: u64,
    /// Polls of a send queue.
    pub send_polls: u64,
    /// Polls of the receive queue.
    pub recv_polls: u64,
    /// Completions of sends.
    pub send_completions: u64,
    /// Sends that went inline, and those from a buffer of the transport.
    pub inline: u64,
    /// See `inline`.
    pub copied: u64,
    /// Messages that went without their header, which was that of the last one.
    pub again: u64,
    /// Packets that gave credits back and nothing else.
    pub credit_packets: u64,
    /// Packets that no healthy peer sends, dropped.
    pub violations: u64,
    /// Connections that failed.
    pub failures: u64,
    /// Times that memory for more buffers was refused: it goes on with those that there are.
    pub refused: u64,
}

/// An operation that somebody waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// What the caller gave.
    pub cookie: u64,
    /// What an atomic found, 0 for others; or why it failed.
    pub result: Result<u64, Failure>,
}

/// Receive buffers that were made together.
pub(super) struct Receives {
    pub buffer: Buffer,
    /// Number of the first.
    pub first: u32,
}

/// A completion queue of sends.
pub(super) struct SendQueue {
    pub cq: Arc<CompletionQueue>,
    pub connections: usize,
    /// Completions to come.
    pub expected: u32,
}

/// Everything that the connections of an interface share. Its order is that in which it goes: connections,
/// queues, memory.
pub(super) struct Core {
    pub connections: Vec<Option<Box<Connection>>>,
    /// Queue pair numbers in order, with the connections they belong to.
    numbers: Vec<(u32, u32)>,
    /// The one looked up last.
    last: (u32, u32),
    pub send_queues: Vec<SendQueue>,
    pub shared: Arc<SharedReceiveQueue>,
    pub recv_cq: Arc<CompletionQueue>,
    /// What wakes a sleeper, where all queues report.
    channel: Arc<CompletionChannel>,
    pub receives: Vec<Receives>,
    /// Receive buffers that hold nothing and are not posted, and how many are.
    pub idle: Vec<u32>,
    pub posted: u32,
    pub pool: Pool,
    pub domain: Domain,
    pub settings: Settings,
    pub counters: Counters,
    pub completions: VecDeque<Completion>,
    /// What the last poll found: kept, since making it costs more than a poll that finds nothing.
    pub batch: [Wc; POLL],
    /// Vectors that messages were put together in.
    pub spare: Vec<Vec<u8>>,
    /// Progress without completions since the send queues were last looked at for failures.
    pub quiet: u32,
    /// Why the last failed connection did.
    pub last_error: Option<String>,
    pub next_cookie: u64,
    /// The time in nanoseconds; when peers are asked next whether they are there, 0 for a first time that is not
    /// set; and the device's changes that have been looked at.
    pub clock: fn() -> u64,
    pub next_probe_ns: u64,
    pub changes: u32,
    /// Whether send queues are polled only while completions are to come.
    pub tx_gate: bool,
    /// Whether a message with the last one's header goes without it.
    pub repeats: bool,
}

/// An adapter's port as this process uses it for reliable connections.
pub struct RcIface {
    core: Rc<RefCell<Core>>,
    /// There once the rank has slept.
    watcher: Option<Watcher>,
}

impl RcIface {
    /// An interface on a device's port: `port`, or else its first active one.
    ///
    /// # Errors
    /// No such port, none active, or the device refuses something; nothing is left behind.
    pub fn new(
        context: &Arc<DeviceContext>,
        port: Option<u8>,
        settings: Settings,
    ) -> Result<Self, VerbsError> {
        let domain = Domain::new(context, port)?;
        let limit = context.attributes().max_srq_wr.max(0) as u32;
        let most = settings.receives.max(limit.min(1 << 14));
        let channel = CompletionChannel::new(context)?;
        let mut core = Core {
            connections: Vec::new(),
            numbers: Vec::new(),
            last: (u32::MAX, 0),
            send_queues: Vec::new(),
            shared: SharedReceiveQueue::new(&domain.memory, most)?,
            recv_cq: CompletionQueue::new(context, most, Some(&channel))?,
            channel,
            receives: Vec::new(),
            idle: Vec::new(),
            posted: 0,
            pool: Pool::new(settings.buffers, LARGEST),
            domain,
            settings,
            counters: Counters::default(),
            completions: VecDeque::new(),
            batch: [Wc::default(); POLL],
            spare: Vec::new(),
            quiet: 0,
            last_error: None,
            next_cookie: 1 << 63,
            clock: fastpath_base::clock::now_ns,
            next_probe_ns: 0,
            changes: context.look().changes,
            tx_gate: true,
            repeats: true,
        };
        core.add_receives(settings.receives)?;
        let Core { pool, domain, .. } = &mut core;
        pool.make_few(|bytes, access| domain.buffer(bytes, access))?;
        Ok(RcIface {
            core: Rc::new(RefCell::new(core)),
            watcher: None,
        })
    }

    /// An endpoint with a queue pair of its own, not connected. `state` is the word that says whether
    /// the peer has left the job, where there is one.
    ///
    /// # Errors
    /// The device has no more.
    pub fn endpoint(&self, state: Option<&'static AtomicU32>) -> Result<RcEndpoint, VerbsError> {
        let index = self.core.borrow_mut().add_connection(state)?;
        Ok(RcEndpoint::new(self.core.clone(), index))
    }

    /// Connections that there are.
    pub fn connections(&self) -> u32 {
        self.core.borrow().numbers.len() as u32
    }

    /// Handles what has arrived and what is done; says whether anything was.
    pub fn progress(&mut self) -> bool {
        self.core.borrow_mut().progress()
    }

    /// To be called before a sleep, and before a last look: what comes after it calls `wake` from another thread. Says
    /// how long to sleep at most; what an adapter tells nobody of is looked for then.
    pub fn arm(&mut self, wake: impl Fn() + Send + 'static) -> Duration {
        if self.watcher.is_none() {
            let channel = self.core.borrow().channel.clone();
            match Watcher::start(channel, wake) {
                Ok(watcher) => self.watcher = Some(watcher),
                Err(_) => return SHORT_NAP,
            }
        }
        self.core.borrow_mut().arm()
    }

    /// An operation that was waited for and is done.
    pub fn take_completion(&mut self) -> Option<Completion> {
        self.core.borrow_mut().completions.pop_front()
    }

    /// Counters so far.
    pub fn counters(&self) -> Counters {
        self.core.borrow().counters
    }

    /// Why the last connection that failed did, for people.
    pub fn last_error(&self) -> Option<String> {
        self.core.borrow().last_error.clone()
    }

    /// Bytes of inline data that connections ask for, and who said so.
    pub fn asked_inline(&self) -> (u32, Source) {
        let settings = self.core.borrow().settings;
        (settings.inline, settings.inline_source)
    }

    pub(super) fn with_core(&self, act: impl FnOnce(&mut Core)) {
        act(&mut self.core.borrow_mut());
    }

    /// Runs with the memory domain.
    pub fn with_domain<T>(&self, act: impl FnOnce(&mut Domain) -> T) -> T {
        act(&mut self.core.borrow_mut().domain)
    }
}

impl Core {
    fn arm(&mut self) -> Duration {
        let failures = self.counters.failures;
        self.look_for_events();
        let mut armed = self.recv_cq.arm().is_ok();
        for queue in 0..self.send_queues.len() {
            if self.is_busy(queue) {
                armed &= self.send_queues[queue].cq.arm().is_ok();
            }
        }
        // What completed before is not reported; the caller's own look finds it, but for failures of silent sends.
        let found = self.look_for_failures() || self.counters.failures != failures;
        match (found, armed) {
            (true, _) => Duration::ZERO,
            (false, true) => LONG_NAP,
            (false, false) => SHORT_NAP,
        }
    }

    /// Makes and posts receive buffers.
    fn add_receives(&mut self, count: u32) -> Result<(), VerbsError> {
        let buffer = self.domain.buffer(count as usize * STRIDE, Access::Write)?;
        self.add_receives_in(buffer, count)
    }

    fn add_receives_in(&mut self, buffer: Buffer, count: u32) -> Result<(), VerbsError> {
        let first = self
            .receives
            .last()
            .map_or(0, |last| last.first + (last.buffer.len() / STRIDE) as u32);
        self.receives.push(Receives { buffer, first });
        self.idle.extend(first..first + count);
        self.post_receives()
    }

    /// Where a receive buffer lies, and the key of its memory.
    #[inline]
    pub fn receive(&self, number: u32) -> (*mut u8, u32) {
        let group = match &self.receives[..] {
            [only] => only,
            many => &many[many.partition_point(|group| group.first <= number) - 1],
        };
        let offset = (number - group.first) as usize * STRIDE;
        let at = group.buffer.address().wrapping_add(offset);
        (at, group.buffer.region().lkey())
    }

    /// Posts the receive buffers that are not posted.
    pub fn post_receives(&mut self) -> Result<(), VerbsError> {
        let (mut idle, mut posted) = (std::mem::take(&mut self.idle), self.posted);
        let segment_of = |number| {
            let (at, lkey) = self.receive(number);
            Sge::over(at, HEADER + PACKET, lkey)
        };
        // SAFETY: the buffers belong to the queue until they complete.
        let post = |entries: &[RecvEntry]| unsafe { self.shared.post(entries) };
        let outcome = post_idle(&mut idle, &mut posted, segment_of, post);
        (self.idle, self.posted) = (idle, posted);
        outcome
    }

    /// A queue on which one more connection can complete.
    fn send_queue(&mut self) -> Result<usize, VerbsError> {
        if let Some(at) = self
            .send_queues
            .iter()
            .position(|q| q.connections < SHARERS)
        {
            return Ok(at);
        }
        let context = self.domain.memory.context();
        let limit = context.attributes().max_cqe.max(1) as u32;
        let depth = (self.settings.depth * 2 * SHARERS as u32).min(limit);
        self.send_queues.push(SendQueue {
            cq: CompletionQueue::new(context, depth, Some(&self.channel))?,
            connections: 0,
            expected: 0,
        });
        Ok(self.send_queues.len() - 1)
    }

    /// Makes and posts the receive buffers that one more connection brings. Beyond the first connections those are
    /// fewer than its window: peers that all fill theirs at once are made to wait by the adapter, and then try again.
    /// Two or three peers may be made to wait too, while a batch of emptied buffers waits to be posted. Where there is
    /// no memory for more, the connection shares those that there are.
    fn add_receives_for_one(&mut self) -> Result<(), VerbsError> {
        let open = self.connections.iter().flatten().count() as u32 + 1;
        let buffers = self
            .receives
            .last()
            .map_or(0, |last| last.first + (last.buffer.len() / STRIDE) as u32);
        let more = match buffers < self.settings.receives_windows {
            true => self.settings.window,
            false => self.settings.receives_each,
        };
        let more = more.min(self.shared.depth().saturating_sub(buffers));
        if more == 0 || open.saturating_mul(self.settings.window) <= buffers {
            return Ok(());
        }
        match self.domain.buffer(more as usize * STRIDE, Access::Write) {
            Ok(buffer) => self.add_receives_in(buffer, more),
            Err(error) => {
                self.counters.refused += 1;
                self.last_error = Some(error.to_string());
                Ok(())
            }
        }
    }

    /// Makes a queue pair; says the connection's number.
    fn add_connection(&mut self, state: Option<&'static AtomicU32>) -> Result<usize, VerbsError> {
        self.add_receives_for_one()?;
        let queue = self.send_queue()?;
        let pair = QueuePair::new(
            &self.domain.memory,
            &PairSettings {
                service: Service::Reliable,
                send_cq: &self.send_queues[queue].cq,
                recv_cq: &self.recv_cq,
                shared: Some(&self.shared),
                send_depth: self.settings.depth,
                recv_depth: 0,
                send_segments: 2,
                inline: self.settings.inline,
                port: self.domain.port.number(),
                qkey: 0,
            },
        )?;
        self.send_queues[queue].connections += 1;
        self.counters.connections += 1;
        self.counters.granted = pair.granted_inline().into();
        let number = pair.qpn();
        let psn =
            (fastpath_base::clock::now_ns() as u32 ^ number.wrapping_mul(0x9e37_79b9)) & 0xff_ffff;
        let connection = Connection {
            inline: pair.granted_inline() as usize,
            // What was asked for, so that completions fit; more may have been granted.
            depth: self.settings.depth,
            pair,
            stage: Stage::Made,
            psn,
            posted: 0,
            done: 0,
            signaled: 0,
            expected: 0,
            slots: VecDeque::new(),
            tickets: VecDeque::new(),
            exposed: Vec::new(),
            last_header: None,
            heard: None,
            credits: 0,
            owed: 0,
            window: self.settings.window,
            inbox: VecDeque::new(),
            wholes: VecDeque::new(),
            assembly: None,
            queue,
            state,
        };
        let index = self.connections.iter().position(Option::is_none);
        let index = index.unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        self.connections[index] = Some(Box::new(connection));
        let at = self.numbers.partition_point(|entry| entry.0 < number);
        self.numbers.insert(at, (number, index as u32));
        Ok(index)
    }

    /// Ends a connection and takes back what it held.
    pub fn remove_connection(&mut self, index: usize) {
        let Some(mut connection) = self.connections[index].take() else {
            return;
        };
        self.send_queues[connection.queue].connections -= 1;
        self.send_queues[connection.queue].expected -= connection.expected;
        let number = connection.pair.qpn();
        self.numbers.retain(|entry| entry.0 != number);
        self.last = (u32::MAX, 0);
        // First the queue pair: until it is gone, the adapter may read what was posted.
        let slots = std::mem::take(&mut connection.slots);
        let tickets = std::mem::take(&mut connection.tickets);
        let inbox = std::mem::take(&mut connection.inbox);
        drop(connection);
        let answers = tickets.into_iter().filter_map(|(_, ticket)| ticket.answer);
        let slots = slots.into_iter().map(|(_, slot)| slot);
        slots.chain(answers).for_each(|slot| self.pool.give(slot));
        for inbound in inbox {
            if inbound.number != ASSEMBLED {
                self.idle.push(inbound.number);
            }
        }
    }

    /// The connection that a queue pair number belongs to.
    #[inline]
    pub fn find_connection(&mut self, number: u32) -> Option<u32> {
        if self.last.0 != number {
            let at = self
                .numbers
                .binary_search_by_key(&number, |entry| entry.0)
                .ok()?;
            self.last = self.numbers[at];
        }
        Some(self.last.1)
    }
}
