//! The interface: the queue pair, its buffers and connections, progress.
#![allow(unsafe_code)]

use super::super::port::{LONG_NAP, Port, SHORT_NAP, Waker};
use super::super::receive_buffers::ReceiveBuffers;
use super::super::send_queue::SendQueue;
use super::super::shared::Shared;
use super::super::stage::Stage;
use super::super::table::Table;
use super::Settings;
use super::endpoint::UdEndpoint;
use super::link::{Body, Link};
use super::outage::Outage;
use super::pool::Pool;
use super::ways::Ways;
use super::wire::{GRH, HEAD, LARGEST, packets};
use super::wireup_datagram::WireupDatagram;
use crate::contract::Address;
use crate::reliable::{Receiver, Sender};
use crate::verbs::{
    Access, Buffer, CompletionChannel, CompletionQueue, DeviceContext, PairSettings, QueuePair,
    RecvEntry, SendRequest, Service, VerbsError,
};
use fastpath_base::sync::AtomicU32;
use fastpath_bootstrap::job::random_job_id;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Receive buffers at most.
const RECEIVES_MOST: u32 = 8192;
/// Receive buffers made at once for further connections: one registration serves many.
const GROUP: u32 = 64;

/// What has happened, for reports and tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections made.
    pub connections: u64,
    /// Bytes that may go inline, as the queue pair was granted.
    pub granted: u64,
    /// Ways to ports made.
    pub handles: u64,
    /// Packets of messages sent, each once.
    pub sent: u64,
    /// Packets sent again.
    pub resent: u64,
    /// Acknowledgements sent by themselves.
    pub acks: u64,
    /// Sends that went inline.
    pub inline: u64,
    /// Polls of the send queue.
    pub send_polls: u64,
    /// Completions of sends.
    pub send_completions: u64,
    /// Packets of messages that arrived, for the first time.
    pub received: u64,
    /// Packets that were here already.
    pub duplicates: u64,
    /// Packets that came before one that was missing.
    pub early: u64,
    /// Datagrams of nobody known, of another form, or beyond what may be under way; dropped.
    pub garbage: u64,
    /// Packets in sequence that make no message, which no healthy peer sends; dropped.
    pub violations: u64,
    /// Receives that failed.
    pub receive_errors: u64,
    /// Times that no receive buffer was left: what arrived then was lost, and sent again.
    pub out_of_buffer: u64,
    /// Connections that failed.
    pub failures: u64,
    /// WireupDatagrams of the wire-up that arrived.
    pub wireup_datagrams: u64,
    /// Polls of the receive queue.
    pub recv_polls: u64,
    /// Times that the queue pair had stopped, to be started anew.
    pub outages: u64,
    /// Times that memory for more buffers was refused: it goes on with those that there are.
    pub refused: u64,
}

/// One line for people: what was lost, and what that cost.
impl std::fmt::Display for Counters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let c = self;
        write!(
            f,
            "{} {}; {} bytes of inline data granted; {} packets sent, {} again, {} \
             acknowledgements alone; {} received, {} duplicates, {} early; \
             dropped: {} garbage, {} violations, {} failed receives; {} times out of receive \
             buffers, {} times stopped{}",
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
            super::super::counts::describe_refused(c.refused)
        )
    }
}

/// Everything that the connections of an interface share. Its order is that in which it goes: queues, memory.
pub(super) struct Core {
    pub links: Table<Link>,
    pub pair: QueuePair,
    pub send_cq: Arc<CompletionQueue>,
    pub recv_cq: Arc<CompletionQueue>,
    pub receives: ReceiveBuffers,
    /// Receive buffers that may be posted.
    recv_depth: u32,
    pub pool: Pool,
    pub sends: SendQueue,
    /// What every send is posted by.
    pub request: SendRequest,
    /// Connections whose time is watched; whether there are news of them; when one of them is due.
    pub busy: Vec<u32>,
    pub stirred: bool,
    pub next_due_ns: u64,
    /// Connections whose peers are to be told at once.
    pub urgent: Vec<u32>,
    /// Vectors that messages were put together in.
    pub spare: Vec<Vec<u8>>,
    /// Tells peers that this rank looks for what they send.
    pub polls: Option<&'static AtomicU32>,
    /// Whether the device or the queue pair has gone.
    pub lost: bool,
    /// Datagrams of peers.
    pub heard: u64,
    pub outage: Outage,
    pub counters: Counters,
    pub settings: Settings,
    pub qkey: u32,
    /// What wireup datagrams of the wire-up carry, where they are taken, and those that have come.
    pub secret: Option<u64>,
    pub wireup_datagrams: VecDeque<WireupDatagram>,
    pub ways: Ways,
    pub port: Port,
}

/// An adapter's port as this process uses it for datagrams.
pub struct UdIface {
    core: Shared<Core>,
    waker: Waker,
}

impl UdIface {
    /// An interface on a device's port: `port`, or else its first active one.
    ///
    /// # Errors
    /// No such port, none active, or the device refuses something; nothing is left behind.
    pub fn new(
        context: &Arc<DeviceContext>, port: Option<u8>, settings: Settings,
    ) -> Result<Self, VerbsError> {
        let inline = (settings.inline, settings.inline_source);
        let port = Port::new(context, port, inline)?;
        let mtu = port.local.mtu_bytes();
        let limits = context.attributes();
        let most = limits.max_qp_wr.min(limits.max_cqe).max(1) as u32;
        let recv_depth = RECEIVES_MOST.min(most).max(settings.receives);
        let depth = settings.depth.max(2 * packets(LARGEST, mtu - HEAD));
        let send_cq = CompletionQueue::new(context, depth, None)?;
        let channel = CompletionChannel::new(context)?;
        let recv_cq = CompletionQueue::new(context, recv_depth, Some(&channel))?;
        // Keys with the highest bit set are the kernel's.
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
            links: Table::new(),
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
            counters: Counters { granted, ..Counters::default() },
            settings,
            qkey,
            secret: None,
            wireup_datagrams: VecDeque::new(),
            ways: Ways::default(),
            port,
        };
        let bytes = core.receives.bytes(settings.receives);
        let buffer = core.port.buffer(bytes, Access::Write)?;
        core.add_receives(buffer, settings.receives)?;
        core.pair.start_datagrams(0)?;
        Ok(UdIface { core: Shared::new(core), waker: Waker::new(channel) })
    }

    /// An endpoint that is not connected. `state` is the word that says whether the peer has left the job, where
    /// there is one.
    ///
    /// # Errors
    /// No memory for receive buffers.
    pub fn endpoint(&self, state: Option<&'static AtomicU32>) -> Result<UdEndpoint, VerbsError> {
        let index = self.core.borrow_mut().add_link(state)?;
        Ok(UdEndpoint::new(self.core.clone(), index))
    }

    /// From now on `polls` counts the polls of this interface that find no arrival.
    pub fn tell_polls(&self, polls: &'static AtomicU32) {
        self.core.borrow_mut().polls = Some(polls);
    }

    /// Handles what has arrived and what is due; says whether anything had arrived.
    pub fn progress(&mut self) -> bool {
        // SAFETY: ONE CALL AT A TIME: progress is the transport's own.
        unsafe { self.core.core() }.progress()
    }

    /// To be called before a sleep, and before a last look: what comes after it calls `wake` from another thread. Says
    /// how long to sleep at most: until something must be sent again, or the device's loss is looked for.
    pub fn arm(&mut self, wake: impl Fn() + Send + 'static) -> Duration {
        let nap = if self.watch(wake) { LONG_NAP } else { SHORT_NAP };
        let core = &mut *self.core.borrow_mut();
        core.until_event().min(core.until_due()).min(nap)
    }

    /// Lets the next arrival call `wake` (that of the first call of this) from another thread; false where nothing can.
    pub fn watch(&mut self, wake: impl Fn() + Send + 'static) -> bool {
        self.waker.start(wake) && self.core.borrow().recv_cq.arm().is_ok()
    }

    /// Whether time must be watched: something is under way, or a peer is to be told something.
    pub fn is_busy(&self) -> bool {
        let core = self.core.borrow();
        let waiting = core.sends.expected > 0 || core.outage.is_on();
        !core.busy.is_empty() || waiting || !core.wireup_datagrams.is_empty()
    }

    /// Takes wireup datagrams from now on: those that carry `secret`. Returns what peers must know to write them.
    pub fn open_wireup_datagrams(&mut self, secret: u64) -> Address {
        let mut core = self.core.borrow_mut();
        core.secret = Some(secret);
        let port = core.port.local.address();
        super::wireup_datagram::iface_address(core.pair.qpn(), core.qkey, port)
    }

    /// Sends a wireup datagram to the one whose card is given; false where it did not leave.
    pub fn send_wireup_datagram(
        &mut self, iface_address: &Address, wireup_datagram: &WireupDatagram,
    ) -> bool {
        let mut core = self.core.borrow_mut();
        let sent = core.send_wireup_datagram(iface_address, wireup_datagram);
        core.port.note(sent).unwrap_or(false)
    }

    /// A wireup datagram that has come.
    pub fn take_wireup_datagram(&mut self) -> Option<WireupDatagram> {
        self.core.borrow_mut().wireup_datagrams.pop_front()
    }

    /// Whether a wireup datagram has come.
    pub fn has_wireup_datagrams(&self) -> bool {
        !self.core.borrow().wireup_datagrams.is_empty()
    }

    /// Counters so far.
    pub fn counters(&self) -> Counters {
        let core = self.core.borrow();
        Counters { handles: core.ways.count() as u64, refused: core.port.refused, ..core.counters }
    }

    /// Runs with the port.
    pub(in super::super) fn with_port<T>(&self, act: impl FnOnce(&Port) -> T) -> T {
        act(&self.core.borrow().port)
    }

    /// Why the last connection that failed did, for people.
    pub fn last_error(&self) -> Option<String> {
        self.core.borrow().port.last_error.clone()
    }

    #[cfg(test)]
    pub(super) fn core(&self) -> &std::cell::RefCell<Core> {
        &self.core
    }
}

impl Core {
    /// Posts more receive buffers, in memory that was made for them.
    fn add_receives(&mut self, buffer: Buffer, count: u32) -> Result<(), VerbsError> {
        self.receives.add(buffer, count);
        match self.outage.has_stopped() {
            true => Ok(()), // they are posted when the queue pair runs again
            false => self.post_receives(),
        }
    }

    /// Posts the receive buffers that are not posted.
    pub fn post_receives(&mut self) -> Result<(), VerbsError> {
        let pair = &self.pair;
        // SAFETY: the buffers belong to the queue until they complete, and live as long as it.
        let post = |entries: &[RecvEntry]| unsafe { pair.post_recv(entries) };
        self.receives.post(post)
    }

    /// Makes a connection; says its number.
    fn add_link(&mut self, state: Option<&'static AtomicU32>) -> Result<usize, VerbsError> {
        let (open, buffers) = (self.links.count() + 1, self.receives.count());
        let wanted = open.saturating_mul(self.settings.receives_each);
        if wanted > buffers && buffers + GROUP <= self.recv_depth {
            let made = self.port.more_buffer(self.receives.bytes(GROUP), Access::Write);
            // What finds no buffer is lost, and sent again.
            if let Some(buffer) = self.port.note(made) {
                self.add_receives(buffer, GROUP)?;
            }
        }
        self.counters.connections += 1;
        let token = random_job_id() as u32;
        let link = Link {
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
    pub fn link(&mut self, index: usize) -> &mut Link {
        self.links.of_endpoint(index)
    }

    /// Ends a connection and takes back what it held.
    pub fn remove_link(&mut self, index: usize) {
        self.release_link(index);
        self.links.remove(index);
        self.busy.retain(|&other| other as usize != index);
        self.urgent.retain(|&other| other as usize != index);
    }

    /// Takes back the buffers that a connection holds, of both directions.
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
