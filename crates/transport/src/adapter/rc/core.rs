//! Queues and tables that all connections of an interface share.
#![allow(unsafe_code)]

use super::super::port::{AdapterPort, LONG_NAP, SHORT_NAP};
use super::super::receive_buffers::ReceiveBuffers;
use super::super::send_buffers::{ClassSettings, SendBuffers};
use super::super::send_queue::SendQueue;
use super::super::stage::Stage;
use super::super::table::NumberedTable;
use super::connection::{ASSEMBLED, Connection};
use super::registrations::Registrations;
use super::wire::{HEADER, LARGEST, PACKET};
use super::{POLL, Settings};
use crate::verbs::{
    Access, Buffer, CompletionChannel, CompletionQueue, DeviceContext, Failure, PairSettings,
    QueuePair, RecvEntry, SendRequest, Service, SharedReceiveQueue, VerbsError, Wc,
};
use fastpath_base::sync::AtomicU32;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of connections that share a completion queue for sends. The queue has room for all their outstanding
/// sends, because a failure completes all sends of a connection at once.
const SHARERS: usize = 32;
/// Payload of a small send buffer, in bytes: 1 KiB and the upper layer's header.
pub(super) const SMALL: usize = (1024 + 64 + HEADER).next_multiple_of(64) - HEADER;
const _: () = assert!(SMALL >= 1024 + 64, "sends of 1 KiB are silent");
const FEW: [u32; 2] = [8, 2];

/// Event counts, for reports and tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RcCounters {
    /// Queue pairs created.
    pub connections: u64,
    /// Inline bytes that the device granted to the last queue pair.
    pub granted: u64,
    /// Polls of a send completion queue.
    pub send_polls: u64,
    /// Polls of the receive completion queue.
    pub recv_polls: u64,
    /// Completions of sends.
    pub send_completions: u64,
    /// Sends with inline data.
    pub inline: u64,
    /// Sends from a registered buffer.
    pub copied: u64,
    /// Messages sent without a header, because the header equals that of the previous message.
    pub again: u64,
    /// Packets that carry only credits.
    pub credit_packets: u64,
    /// Invalid packets, dropped.
    pub violations: u64,
    /// Connections that failed.
    pub failures: u64,
    /// Number of refused allocations of further buffers. The interface continues with the buffers that it has.
    pub refused: u64,
}

/// Completion of an operation that was posted with a cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The caller's cookie.
    pub cookie: u64,
    /// Success, or the cause of failure.
    pub result: Result<(), Failure>,
}

pub(super) struct SendCompletions {
    pub cq: Arc<CompletionQueue>,
    pub connections: usize,
    pub expected: u32,
}

/// State shared by the connections of an interface. The field order is the drop order: connections, queues, memory.
pub(super) struct Core {
    pub connections: NumberedTable<Connection>,
    pub numbers: Vec<(u32, u32)>,
    last: (u32, u32),
    pub send_queues: Vec<SendCompletions>,
    pub shared: Arc<SharedReceiveQueue>,
    pub recv_cq: Arc<CompletionQueue>,
    /// Wakes a sleeping rank; every completion queue signals it.
    pub channel: Arc<CompletionChannel>,
    pub receives: ReceiveBuffers,
    pub pool: SendBuffers,
    pub registrations: Registrations,
    pub port: AdapterPort,
    pub settings: Settings,
    pub counters: RcCounters,
    pub completions: VecDeque<Completion>,
    pub request: SendRequest,
    /// Completions of the last poll. The array is kept because initializing it costs more than an empty poll.
    pub batch: [Wc; POLL],
    pub spare: Vec<Vec<u8>>,
    pub next_cookie: u64,
    pub next_probe_ns: u64,
    pub tx_gate: bool,
    /// Whether a message omits a header equal to the previous one.
    pub repeats: bool,
}

impl Core {
    pub fn new(
        context: &Arc<DeviceContext>, port: Option<u8>, settings: Settings,
    ) -> Result<Self, VerbsError> {
        let inline = (settings.inline, settings.inline_source);
        let port = AdapterPort::new(context, port, inline)?;
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
        // Send buffers must be writable, because the adapter also writes the results of RDMA reads to them.
        let make = |bytes| port.buffer(bytes, Access::Write);
        let pool = SendBuffers::new([class(0, SMALL), class(1, LARGEST)], make)?;
        let mut core = Core {
            connections: NumberedTable::new(),
            numbers: Vec::new(),
            last: (u32::MAX, 0),
            send_queues: Vec::new(),
            shared: SharedReceiveQueue::new(&port.memory, most)?,
            recv_cq: CompletionQueue::new(context, most, Some(&channel))?,
            channel,
            receives: ReceiveBuffers::new(HEADER + PACKET),
            pool,
            registrations: Registrations::new(&port.memory),
            port,
            settings,
            counters: RcCounters::default(),
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
        Ok(core)
    }

    pub fn arm(&mut self) -> Duration {
        let failures = self.counters.failures;
        self.look_for_events();
        let mut armed = self.recv_cq.arm().is_ok();
        for queue in 0..self.send_queues.len() {
            if self.is_busy(queue) {
                armed &= self.send_queues[queue].cq.arm().is_ok();
            }
        }
        // An armed queue does not report completions from before it was armed. The caller's next poll finds them,
        // except those of failed unsignaled sends, which `look_for_failures` finds.
        let found = self.look_for_failures() || self.counters.failures != failures;
        match (found, armed) {
            (true, _) => Duration::ZERO,
            (false, true) => LONG_NAP,
            (false, false) => SHORT_NAP,
        }
    }

    fn add_receives(&mut self, buffer: Buffer, count: u32) -> Result<(), VerbsError> {
        self.receives.add(buffer, count);
        self.post_receives()
    }

    pub fn post_receives(&mut self) -> Result<(), VerbsError> {
        let shared = &self.shared;
        // SAFETY: a posted buffer belongs to the queue until it completes, and lives as long as the queue.
        let post = |entries: &[RecvEntry]| unsafe { shared.post(entries) };
        self.receives.post(post)
    }

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

    /// Adds receive buffers for one more connection: a window for each of the first connections, less for later ones.
    ///
    /// If all peers fill their windows at once, the adapter makes some peers wait and retry. With two or three peers,
    /// peers wait only while emptied buffers wait for a full batch. If memory for more buffers is refused, the
    /// connections share the existing buffers.
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

    pub fn add_connection(
        &mut self, state: Option<&'static AtomicU32>,
    ) -> Result<usize, VerbsError> {
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
            // Use the requested depth, because the completion queue was sized for it; the device may have granted more.
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

    pub fn remove_connection(&mut self, index: usize) {
        let Some(mut connection) = self.connections.remove(index) else {
            return;
        };
        self.send_queues[connection.queue].connections -= 1;
        self.send_queues[connection.queue].expected -= connection.sends.expected;
        let number = connection.pair.qpn();
        self.numbers.retain(|entry| entry.0 != number);
        self.last = (u32::MAX, 0);
        // Destroy the queue pair first: until then the adapter may read the posted buffers.
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

    #[inline]
    pub fn find_connection(&mut self, number: u32) -> Option<u32> {
        if self.last.0 != number {
            let at = self.numbers.binary_search_by_key(&number, |entry| entry.0).ok()?;
            self.last = self.numbers[at];
        }
        Some(self.last.1)
    }
}
