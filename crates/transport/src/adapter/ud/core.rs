//! Queue pair, buffers and connections that the endpoints of an interface share.
#![allow(unsafe_code)]

use super::super::port::AdapterPort;
use super::super::receive_buffers::ReceiveBuffers;
use super::super::send_queue::SendQueue;
use super::super::stage::Stage;
use super::super::table::NumberedTable;
use super::Settings;
use super::link::{Body, UdLink};
use super::outage::Outage;
use super::pool::Pool;
use super::ways::AddressHandles;
use super::wire::{GRH, HEAD, LARGEST, packets};
use super::wireup_datagram::WireupDatagram;
use crate::reliable::{Receiver, Sender};
use crate::verbs::{
    Access, Buffer, CompletionChannel, CompletionQueue, DeviceContext, PairSettings, QueuePair,
    RecvEntry, SendRequest, Service, VerbsError,
};
use fastpath_base::sync::AtomicU32;
use fastpath_job::random_job_id;
use std::collections::VecDeque;
use std::sync::Arc;

const RECEIVES_MOST: u32 = 8192;
/// Receive buffers allocated together for further connections, so that one registration covers many.
const GROUP: u32 = 64;

/// Event counts, for reports and tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UdCounters {
    /// Connections created.
    pub connections: u64,
    /// Inline bytes granted to the queue pair.
    pub granted: u64,
    /// Address handles created.
    pub handles: u64,
    /// Message packets sent, without retransmissions.
    pub sent: u64,
    /// Packets retransmitted.
    pub resent: u64,
    /// Acknowledgements sent alone.
    pub acks: u64,
    /// Sends with inline data.
    pub inline: u64,
    /// Polls of the send completion queue.
    pub send_polls: u64,
    /// Completions of sends.
    pub send_completions: u64,
    /// Message packets received, without duplicates.
    pub received: u64,
    /// Duplicate packets.
    pub duplicates: u64,
    /// Packets that arrived before a missing packet.
    pub early: u64,
    /// Datagrams of unknown senders, of another format, or outside the window; dropped.
    pub garbage: u64,
    /// Packets in sequence that form no valid message; dropped.
    pub violations: u64,
    /// Number of receives that failed.
    pub receive_errors: u64,
    /// Number of times that no receive buffer was posted, so arrivals were lost and then retransmitted.
    pub out_of_buffer: u64,
    /// Connections that failed.
    pub failures: u64,
    /// Wireup datagrams received.
    pub wireup_datagrams: u64,
    /// Polls of the receive completion queue.
    pub recv_polls: u64,
    /// Number of times that the queue pair stopped and a restart was due.
    pub outages: u64,
    /// Refused allocations of further buffers; the interface continues with the buffers it has.
    pub refused: u64,
}

impl std::fmt::Display for UdCounters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let c = self;
        write!(
            f,
            "{} {}; {} bytes of inline data granted; {} packets sent, {} retransmitted, {} \
             separate acknowledgements; {} received, {} duplicates, {} out of order; dropped: {} \
             malformed packets, {} protocol violations, {} failed receives; no receive buffer was \
             free {} times; the queue pair stopped {} times{}",
            c.connections,
            if c.connections == 1 { "peer" } else { "peers" },
            c.granted,
            c.sent,
            c.resent,
            c.acks,
            c.received,
            c.duplicates,
            c.early,
            c.garbage,
            c.violations,
            c.receive_errors,
            c.out_of_buffer,
            c.outages,
            crate::adapter::describe_refused(c.refused)
        )
    }
}

/// State shared by the connections of an interface. The field order is the drop order: queues, memory.
pub(super) struct Core {
    pub links: NumberedTable<UdLink>,
    pub pair: QueuePair,
    pub send_cq: Arc<CompletionQueue>,
    pub recv_cq: Arc<CompletionQueue>,
    pub receives: ReceiveBuffers,
    recv_depth: u32,
    pub pool: Pool,
    pub sends: SendQueue,
    pub request: SendRequest,
    /// `busy`: connections with timers. `stirred`: whether a timer has changed. `next_due_ns`: time of the next timer.
    pub busy: Vec<u32>,
    pub stirred: bool,
    pub next_due_ns: u64,
    pub urgent: Vec<u32>,
    pub spare: Vec<Vec<u8>>,
    pub polls: Option<&'static AtomicU32>,
    pub lost: bool,
    pub heard: u64,
    pub outage: Outage,
    pub counters: UdCounters,
    pub settings: Settings,
    pub qkey: u32,
    /// Secret that wireup datagrams must carry; `None` if none are accepted. `wireup_datagrams`: those not yet taken.
    pub secret: Option<u64>,
    pub wireup_datagrams: VecDeque<WireupDatagram>,
    pub ways: AddressHandles,
    pub port: AdapterPort,
}

impl Core {
    pub fn new(
        context: &Arc<DeviceContext>, port: Option<u8>, settings: Settings,
    ) -> Result<(Self, Arc<CompletionChannel>), VerbsError> {
        let inline = (settings.inline, settings.inline_source);
        let port = AdapterPort::new(context, port, inline)?;
        let mtu = port.local.mtu_bytes();
        let limits = context.attributes();
        let most = limits.max_qp_wr.min(limits.max_cqe).max(1) as u32;
        let recv_depth = RECEIVES_MOST.min(most).max(settings.receives);
        let depth = settings.depth.max(2 * packets(LARGEST, mtu - HEAD));
        let send_cq = CompletionQueue::new(context, depth, None)?;
        let channel = CompletionChannel::new(context)?;
        let recv_cq = CompletionQueue::new(context, recv_depth, Some(&channel))?;
        // Keys with the highest bit set belong to the kernel.
        let qkey = random_job_id() as u32 & 0x7fff_ffff;
        let pair = QueuePair::new(
            &port.memory,
            &PairSettings {
                service: Service::Datagram,
                send_cq: &send_cq,
                recv_cq: &recv_cq,
                shared: None,
                send_depth: depth,
                recv_depth,
                send_segments: 2,
                inline: settings.inline,
                port: port.local.number(),
                qkey,
            },
        )?;
        let granted = pair.granted_inline().into();
        let mut core = Core {
            links: NumberedTable::new(),
            pair,
            send_cq,
            recv_cq,
            receives: ReceiveBuffers::new((GRH + mtu).next_multiple_of(64)),
            recv_depth,
            pool: Pool::new(&port, &settings, mtu)?,
            sends: SendQueue::new(depth),
            request: SendRequest::default(),
            busy: Vec::new(),
            stirred: false,
            next_due_ns: u64::MAX,
            urgent: Vec::new(),
            spare: Vec::new(),
            polls: None,
            lost: false,
            heard: 0,
            outage: Outage::default(),
            counters: UdCounters { granted, ..UdCounters::default() },
            settings,
            qkey,
            secret: None,
            wireup_datagrams: VecDeque::new(),
            ways: AddressHandles::default(),
            port,
        };
        let bytes = core.receives.bytes(settings.receives);
        let buffer = core.port.buffer(bytes, Access::Write)?;
        core.add_receives(buffer, settings.receives)?;
        core.pair.start_datagrams(0)?;
        Ok((core, channel))
    }

    fn add_receives(&mut self, buffer: Buffer, count: u32) -> Result<(), VerbsError> {
        self.receives.add(buffer, count);
        match self.outage.has_stopped() {
            true => Ok(()), // posted when the queue pair runs again
            false => self.post_receives(),
        }
    }

    pub fn post_receives(&mut self) -> Result<(), VerbsError> {
        let pair = &self.pair;
        // SAFETY: a posted buffer belongs to the queue until it completes, and lives as long as the queue.
        let post = |entries: &[RecvEntry]| unsafe { pair.post_recv(entries) };
        self.receives.post(post)
    }

    pub fn add_link(&mut self, state: Option<&'static AtomicU32>) -> Result<usize, VerbsError> {
        let (open, buffers) = (self.links.count() + 1, self.receives.count());
        let wanted = open.saturating_mul(self.settings.receives_each);
        if wanted > buffers && buffers + GROUP <= self.recv_depth {
            let made = self.port.more_buffer(self.receives.bytes(GROUP), Access::Write);
            // If memory is refused, packets without a buffer are lost and retransmitted.
            if let Some(buffer) = self.port.note(made) {
                self.add_receives(buffer, GROUP)?;
            }
        }
        self.counters.connections += 1;
        let token = random_job_id() as u32;
        let link = UdLink {
            stage: Stage::Made,
            token,
            far: None,
            chunk: 0,
            window: 0,
            sender: Sender::new(self.settings.retry, 0),
            receiver: Receiver::new(0, token),
            assembly: None,
            owed: 0,
            ack_due_ns: 0,
            silent_since_ns: 0,
            unanswered: 0,
            looked_ns: 0,
            silence_ns: 0,
            busy: false,
            urgent: false,
            state,
            polls: None,
            seen_polls: 0,
        };
        Ok(self.links.insert(link))
    }

    #[inline]
    pub fn link(&mut self, index: usize) -> &mut UdLink {
        self.links.of_endpoint(index)
    }

    pub fn remove_link(&mut self, index: usize) {
        self.release_link(index);
        self.links.remove(index);
        self.busy.retain(|&other| other as usize != index);
        self.urgent.retain(|&other| other as usize != index);
    }

    pub fn release_link(&mut self, index: usize) {
        let Some(link) = self.links.get_mut(index) else {
            return;
        };
        for packet in link.sender.abandon() {
            self.pool.release(packet.slot, self.sends.done);
        }
        for kept in link.receiver.abandon() {
            if let Body::Slot(number, _) = kept.body {
                self.receives.give(number);
            }
        }
        link.assembly = None;
    }
}
