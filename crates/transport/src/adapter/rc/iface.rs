//! The interface: queues that all connections share, progress, and what has gone wrong.
#![allow(unsafe_code)]

use super::super::port::{LONG_NAP, Port, SHORT_NAP, Waker};
use super::super::receive_buffers::ReceiveBuffers;
use super::super::send_buffers::{ClassSettings, SendBuffers};
use super::super::send_queue::SendQueue;
use super::super::shared::Shared;
use super::super::stage::Stage;
use super::super::table::Table;
use super::Settings;
use super::connection::{ASSEMBLED, Connection};
use super::datapath::POLL;
use super::endpoint::RcEndpoint;
use super::registrations::Registrations;
use super::wire::{HEADER, LARGEST, PACKET};
use crate::verbs::{
    Access, Buffer, CompletionChannel, CompletionQueue, DeviceContext, Failure, PairSettings,
    QueuePair, RecvEntry, SendRequest, Service, SharedReceiveQueue, VerbsError, Wc,
};
use fastpath_base::sync::AtomicU32;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Connections on one completion queue: it must hold a completion of everything they have under way, which is what
/// a failure makes.
const SHARERS: usize = 32;
/// Payload of a small send buffer: 1 KiB, and what the layer above puts before it.
pub(super) const SMALL: usize = (1024 + 64 + HEADER).next_multiple_of(64) - HEADER;
const _: () = assert!(SMALL >= 1024 + 64, "sends of 1 KiB are silent");
/// Small and large send buffers that are there from the start.
const FEW: [u32; 2] = [8, 2];

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
    /// Whether it was done, or why it failed.
    pub result: Result<(), Failure>,
}

/// A completion queue of sends.
pub(super) struct SendCompletions {
    pub cq: Arc<CompletionQueue>,
    pub connections: usize,
    /// Completions to come.
    pub expected: u32,
}

/// Everything that the connections of an interface share. Its order is that in which it goes: connections,
/// queues, memory.
pub(super) struct Core {
    pub connections: Table<Connection>,
    /// Queue pair numbers in order, with the connections they belong to.
    numbers: Vec<(u32, u32)>,
    /// The one looked up last.
    last: (u32, u32),
    pub send_queues: Vec<SendCompletions>,
    pub shared: Arc<SharedReceiveQueue>,
    pub recv_cq: Arc<CompletionQueue>,
    /// What wakes a sleeper, where all queues report.
    channel: Arc<CompletionChannel>,
    pub receives: ReceiveBuffers,
    pub pool: SendBuffers,
    pub registrations: Registrations,
    pub port: Port,
    pub settings: Settings,
    pub counters: Counters,
    pub completions: VecDeque<Completion>,
    /// What every send is posted by.
    pub request: SendRequest,
    /// What the last poll found: kept, since making it costs more than a poll that finds nothing.
    pub batch: [Wc; POLL],
    /// Vectors that messages were put together in.
    pub spare: Vec<Vec<u8>>,
    pub next_cookie: u64,
    /// When peers are asked next whether they are there, in nanoseconds, 0 for a first time that is not set.
    pub next_probe_ns: u64,
    /// Whether send queues are polled only while completions are to come.
    pub tx_gate: bool,
    /// Whether a message with the last one's header goes without it.
    pub repeats: bool,
}

/// An adapter's port as this process uses it for reliable connections.
pub struct RcIface {
    core: Shared<Core>,
    waker: Waker,
}

impl RcIface {
    /// An interface on a device's port: `port`, or else its first active one.
    ///
    /// # Errors
    /// No such port, none active, or the device refuses something; nothing is left behind.
    pub fn new(
        context: &Arc<DeviceContext>, port: Option<u8>, settings: Settings,
    ) -> Result<Self, VerbsError> {
        let inline = (settings.inline, settings.inline_source);
        let port = Port::new(context, port, inline)?;
        let limit = context.attributes().max_srq_wr.max(0) as u32;
        let most = settings.receives.max(limit.min(1 << 14));
        let channel = CompletionChannel::new(context)?;
        let class = |class: usize, payload: usize| {
            let few = FEW[class].min(settings.buffers[class]);
            ClassSettings {
                bytes: HEADER + payload,
                few,
                group: settings.buffers[class] - few,
                groups: 1,
                kept: 0,
            }
        };
        // What is read comes there too.
        let make = |bytes| port.buffer(bytes, Access::Write);
        let pool = SendBuffers::new([class(0, SMALL), class(1, LARGEST)], make)?;
        let mut core = Core {
            connections: Table::new(),
            numbers: Vec::new(),
            last: (u32::MAX, 0),
            send_queues: Vec::new(),
            shared: SharedReceiveQueue::new(&port.memory, most)?,
            recv_cq: CompletionQueue::new(context, most, Some(&channel))?,
            channel: channel.clone(),
            receives: ReceiveBuffers::new(HEADER + PACKET),
            pool,
            registrations: Registrations::new(&port.memory),
            port,
            settings,
            counters: Counters::default(),
            completions: VecDeque::new(),
            request: SendRequest::default(),
            batch: [Wc::default(); POLL],
            spare: Vec::new(),
            next_cookie: 1 << 63,
            next_probe_ns: 0,
            tx_gate: true,
            repeats: true,
        };
        let bytes = core.receives.bytes(settings.receives);
        let buffer = core.port.buffer(bytes, Access::Write)?;
        core.add_receives(buffer, settings.receives)?;
        Ok(RcIface { core: Shared::new(core), waker: Waker::new(channel) })
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
        // SAFETY: ONE CALL AT A TIME: progress is the transport's own.
        unsafe { self.core.core() }.progress()
    }

    /// To be called before a sleep, and before a last look: what comes after it calls `wake` from another thread. Says
    /// how long to sleep at most; what an adapter tells nobody of is looked for then.
    pub fn arm(&mut self, wake: impl Fn() + Send + 'static) -> Duration {
        match self.waker.start(wake) {
            true => self.core.borrow_mut().arm(),
            false => SHORT_NAP,
        }
    }

    /// An operation that was waited for and is done.
    pub fn take_completion(&mut self) -> Option<Completion> {
        self.core.borrow_mut().completions.pop_front()
    }

    /// Counters so far.
    pub fn counters(&self) -> Counters {
        let core = self.core.borrow();
        Counters { refused: core.port.refused, ..core.counters }
    }

    /// Runs with the port.
    pub(in super::super) fn with_port<T>(&self, act: impl FnOnce(&Port) -> T) -> T {
        act(&self.core.borrow().port)
    }

    /// Why the last connection that failed did, for people.
    pub fn last_error(&self) -> Option<String> {
        self.core.borrow().port.last_error.clone()
    }

    pub(super) fn with_core<T>(&self, act: impl FnOnce(&mut Core) -> T) -> T {
        act(&mut self.core.borrow_mut())
    }

    /// Runs with the registrations of the program's memory.
    pub fn with_registrations<T>(&self, act: impl FnOnce(&mut Registrations) -> T) -> T {
        self.with_core(|core| act(&mut core.registrations))
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

    /// Posts more receive buffers, in memory that was made for them.
    fn add_receives(&mut self, buffer: Buffer, count: u32) -> Result<(), VerbsError> {
        self.receives.add(buffer, count);
        self.post_receives()
    }

    /// Posts the receive buffers that are not posted.
    pub fn post_receives(&mut self) -> Result<(), VerbsError> {
        let shared = &self.shared;
        // SAFETY: the buffers belong to the queue until they complete, and live as long as it.
        let post = |entries: &[RecvEntry]| unsafe { shared.post(entries) };
        self.receives.post(post)
    }

    /// A queue on which one more connection can complete.
    fn send_queue(&mut self) -> Result<usize, VerbsError> {
        if let Some(at) = self.send_queues.iter().position(|q| q.connections < SHARERS) {
            return Ok(at);
        }
        let context = self.port.memory.context();
        let limit = context.attributes().max_cqe.max(1) as u32;
        let depth = (self.settings.depth * 2 * SHARERS as u32).min(limit);
        self.send_queues.push(SendCompletions {
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
        let (open, buffers) = (self.connections.count() + 1, self.receives.count());
        let more = match buffers < self.settings.receives_windows {
            true => self.settings.window,
            false => self.settings.receives_each,
        };
        let more = more.min(self.shared.depth().saturating_sub(buffers));
        if more == 0 || open.saturating_mul(self.settings.window) <= buffers {
            return Ok(());
        }
        let made = self.port.more_buffer(self.receives.bytes(more), Access::Write);
        match self.port.note(made) {
            Some(buffer) => self.add_receives(buffer, more),
            None => Ok(()),
        }
    }

    /// Makes a queue pair; says the connection's number.
    fn add_connection(&mut self, state: Option<&'static AtomicU32>) -> Result<usize, VerbsError> {
        self.add_receives_for_one()?;
        let queue = self.send_queue()?;
        let pair = QueuePair::new(
            &self.port.memory,
            &PairSettings {
                service: Service::Reliable,
                send_cq: &self.send_queues[queue].cq,
                recv_cq: &self.recv_cq,
                shared: Some(&self.shared),
                send_depth: self.settings.depth,
                recv_depth: 0,
                send_segments: 2,
                inline: self.settings.inline,
                port: self.port.local.number(),
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
            sends: SendQueue::new(self.settings.depth),
            pair,
            stage: Stage::Made,
            psn,
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
        let index = self.connections.insert(connection);
        let at = self.numbers.partition_point(|entry| entry.0 < number);
        self.numbers.insert(at, (number, index as u32));
        Ok(index)
    }

    /// Ends a connection and takes back what it held.
    pub fn remove_connection(&mut self, index: usize) {
        let Some(mut connection) = self.connections.remove(index) else {
            return;
        };
        self.send_queues[connection.queue].connections -= 1;
        self.send_queues[connection.queue].expected -= connection.sends.expected;
        let number = connection.pair.qpn();
        self.numbers.retain(|entry| entry.0 != number);
        self.last = (u32::MAX, 0);
        // First the queue pair: until it is gone, the adapter may read what was posted.
        let slots = std::mem::take(&mut connection.slots);
        let tickets = std::mem::take(&mut connection.tickets);
        let inbox = std::mem::take(&mut connection.inbox);
        drop(connection);
        let landings = tickets.into_iter().filter_map(|(_, ticket)| ticket.landing);
        let slots = slots.into_iter().map(|(_, slot)| slot);
        slots.chain(landings.map(|landing| landing.slot)).for_each(|slot| self.pool.give(slot));
        for inbound in inbox {
            if inbound.number != ASSEMBLED {
                self.receives.give(inbound.number);
            }
        }
    }

    /// The connection that a queue pair number belongs to.
    #[inline]
    pub fn find_connection(&mut self, number: u32) -> Option<u32> {
        if self.last.0 != number {
            let at = self.numbers.binary_search_by_key(&number, |entry| entry.0).ok()?;
            self.last = self.numbers[at];
        }
        Some(self.last.1)
    }
}
