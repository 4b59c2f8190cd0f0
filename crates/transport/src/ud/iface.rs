//! The interface: the queue pair, its buffers and connections, progress.
#![allow(unsafe_code)]

use super::Settings;
use super::domain::Domain;
use super::endpoint::UdEndpoint;
use super::link::{Body, Link, Stage};
use super::outage::Outage;
use super::pool::Pool;
use super::wire::{GRH, HEAD, LARGEST, packets};
use super::wireup_datagram::WireupDatagram;
use crate::contract::Address;
use crate::reliable::{Receiver, Sender};
use crate::verbs::inline::Source;
use crate::verbs::queue::post_idle;
use crate::verbs::{
    Access, Buffer, CompletionChannel, CompletionQueue, DeviceContext, PairSettings, QueuePair,
    RecvEntry, Service, Sge, VerbsError, Watcher,
};
use fastpath_base::sync::AtomicU32;
use fastpath_bootstrap::job::random_job_id;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Receive buffers at most.
const RECEIVES_MOST: u32 = 8192;
/// How long a rank sleeps at a time: the loss of the device may make no completion.
const LONG_NAP: Duration = Duration::from_secs(1);
/// The same where the adapter cannot wake it.
const SHORT_NAP: Duration = Duration::from_millis(1);
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
            crate::adapter::describe_refused(c.refused)
        )
    }
}

/// Receive buffers that were made together.
pub(super) struct Receives {
    pub buffer: Buffer,
    /// Number of the first.
    pub first: u32,
}

/// Everything that the connections of an interface share. Its order is that in which it goes: queues, memory.
pub(super) struct Core {
    pub links: Vec<Option<Box<Link>>>,
    pub pair: QueuePair,
    pub send_cq: Arc<CompletionQueue>,
    pub recv_cq: Arc<CompletionQueue>,
    pub receives: Vec<Receives>,
    /// Bytes from one receive buffer to the next.
    stride: usize,
    /// Receive buffers that may be posted, that there are, that are posted, and that hold nothing and are not.
    recv_depth: u32,
    pub buffers: u32,
    pub posted_receives: u32,
    pub idle: Vec<u32>,
    pub pool: Pool,
    /// Sends posted and sends known to be done, both counted from the same start.
    pub posted: u32,
    pub done: u32,
    /// How many had been posted after the last one whose success is reported, and reports to come.
    pub signaled: u32,
    pub expected: u32,
    pub depth: u32,
    /// Connections whose time is watched; whether there are news of them; when one of them is due.
    pub busy: Vec<u32>,
    pub stirred: bool,
    pub next_due_ns: u64,
    /// Connections whose peers are to be told at once.
    pub urgent: Vec<u32>,
    /// Vectors that messages were put together in.
    pub spare: Vec<Vec<u8>>,
    /// Progress that found nothing, in a row.
    pub quiet: u32,
    /// Tells peers that this rank looks for what they send.
    pub polls: Option<&'static AtomicU32>,
    /// Whether the device or the queue pair has gone.
    pub lost: bool,
    /// Datagrams of peers.
    pub heard: u64,
    pub outage: Outage,
    /// Why the last failed connection did.
    pub last_error: Option<String>,
    pub counters: Counters,
    pub settings: Settings,
    pub qkey: u32,
    /// The time in nanoseconds.
    pub clock: fn() -> u64,
    /// What wireup datagrams of the wire-up carry, where they are taken, and those that have come.
    pub secret: Option<u64>,
    pub wireup_datagrams: VecDeque<WireupDatagram>,
    /// What wakes a sleeper.
    channel: Arc<CompletionChannel>,
    pub domain: Domain,
}

/// An adapter's port as this process uses it for datagrams.
pub struct UdIface {
    core: Rc<RefCell<Core>>,
    /// There once somebody has asked to be woken.
    watcher: Option<Watcher>,
}

impl UdIface {
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
        let mtu = domain.port.mtu_bytes();
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
            &domain.memory,
            &PairSettings {
                service: Service::Datagram,
                send_cq: &send_cq,
                recv_cq: &recv_cq,
                shared: None,
                send_depth: depth,
                recv_depth,
                send_segments: 2,
                inline: settings.inline,
                port: domain.port.number(),
                qkey,
            },
        )?;
        let granted = pair.granted_inline().into();
        let mut core = Core {
            links: Vec::new(),
            pair,
            send_cq,
            recv_cq,
            receives: Vec::new(),
            stride: (GRH + mtu).next_multiple_of(64),
            recv_depth,
            buffers: 0,
            posted_receives: 0,
            idle: Vec::new(),
            pool: Pool::new(settings.buffers, settings.groups, mtu),
            posted: 0,
            done: 0,
            signaled: 0,
            expected: 0,
            depth,
            busy: Vec::new(),
            stirred: false,
            next_due_ns: u64::MAX,
            urgent: Vec::new(),
            spare: Vec::new(),
            quiet: 0,
            polls: None,
            lost: false,
            heard: 0,
            outage: Outage::default(),
            last_error: None,
            counters: Counters {
                granted,
                ..Counters::default()
            },
            settings,
            qkey,
            clock: fastpath_base::clock::now_ns,
            secret: None,
            wireup_datagrams: VecDeque::new(),
            channel,
            domain,
        };
        core.add_receives(settings.receives)?;
        let Core { pool, domain, .. } = &mut core;
        pool.make_few(|bytes, access| domain.buffer(bytes, access))?;
        core.pair.start_datagrams(0)?;
        Ok(UdIface {
            core: Rc::new(RefCell::new(core)),
            watcher: None,
        })
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

    /// From now on `looks` grows while this interface looks for arrivals and finds none.
    pub fn tell_polls(&self, polls: &'static AtomicU32) {
        self.core.borrow_mut().polls = Some(polls);
    }

    /// Handles what has arrived and what is due; says whether anything had arrived.
    pub fn progress(&mut self) -> bool {
        self.core.borrow_mut().progress()
    }

    /// To be called before a sleep, and before a last look: what comes after it calls `wake` from another thread. Says
    /// how long to sleep at most: until something must be sent again, or the device's loss is looked for.
    pub fn arm(&mut self, wake: impl Fn() + Send + 'static) -> Duration {
        let nap = if self.watch(wake) {
            LONG_NAP
        } else {
            SHORT_NAP
        };
        let core = &mut *self.core.borrow_mut();
        core.until_event().min(core.until_due()).min(nap)
    }

    /// Lets the next arrival call `wake` (that of the first call of this) from another thread; false where nothing can.
    pub fn watch(&mut self, wake: impl Fn() + Send + 'static) -> bool {
        if self.watcher.is_none() {
            let channel = self.core.borrow().channel.clone();
            self.watcher = Watcher::start(channel, wake).ok();
        }
        self.watcher.is_some() && self.core.borrow().recv_cq.arm().is_ok()
    }

    /// Whether time must be watched: something is under way, or a peer is to be told something.
    pub fn is_busy(&self) -> bool {
        let core = self.core.borrow();
        let waiting = core.expected > 0 || core.outage.is_on();
        !core.busy.is_empty() || waiting || !core.wireup_datagrams.is_empty()
    }

    /// Takes wireup datagrams from now on: those that carry `secret`. Returns what peers must know to write them.
    pub fn open_wireup_datagrams(&mut self, secret: u64) -> Address {
        let mut core = self.core.borrow_mut();
        core.secret = Some(secret);
        super::wireup_datagram::iface_address(
            core.pair.qpn(),
            core.qkey,
            core.domain.port.address(),
        )
    }

    /// Sends a wireup datagram to the one whose card is given; false where it did not leave.
    pub fn send_wireup_datagram(
        &mut self,
        iface_address: &Address,
        wireup_datagram: &WireupDatagram,
    ) -> bool {
        let mut core = self.core.borrow_mut();
        core.send_wireup_datagram(iface_address, wireup_datagram)
            .unwrap_or_else(|error| {
                core.last_error = Some(error.to_string());
                false
            })
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
        Counters {
            handles: core.domain.handles() as u64,
            ..core.counters
        }
    }

    /// Why the last connection that failed did, for people.
    pub fn last_error(&self) -> Option<String> {
        self.core.borrow().last_error.clone()
    }

    /// Name of the device, and number of the port.
    pub fn port_name(&self) -> (String, u8) {
        self.core.borrow().domain.port_name()
    }

    /// Device, port and packet size, for people.
    pub fn describe(&self) -> String {
        self.core.borrow().domain.describe()
    }

    /// Bytes of inline data that were asked for, and who said so.
    pub fn asked_inline(&self) -> (u32, Source) {
        let settings = self.core.borrow().settings;
        (settings.inline, settings.inline_source)
    }

    #[cfg(test)]
    pub(super) fn core(&self) -> &RefCell<Core> {
        &self.core
    }
}

impl Core {
    /// Makes and posts receive buffers.
    fn add_receives(&mut self, count: u32) -> Result<(), VerbsError> {
        let buffer = self.make_receives(count)?;
        self.add_receives_in(buffer, count)
    }

    fn make_receives(&self, count: u32) -> Result<Buffer, VerbsError> {
        let bytes = count as usize * self.stride;
        self.domain.buffer(bytes, Access::Write)
    }

    fn add_receives_in(&mut self, buffer: Buffer, count: u32) -> Result<(), VerbsError> {
        let first = self.buffers;
        self.receives.push(Receives { buffer, first });
        self.buffers += count;
        self.idle.extend(first..first + count);
        match self.outage.has_stopped() {
            true => Ok(()), // they are posted when the queue pair runs again
            false => self.post_receives(),
        }
    }

    /// Where a receive buffer lies, and the key of its memory.
    #[inline]
    pub fn receive(&self, number: u32) -> (*mut u8, u32) {
        let group = match &self.receives[..] {
            [only] => only,
            many => &many[many.partition_point(|group| group.first <= number) - 1],
        };
        let offset = (number - group.first) as usize * self.stride;
        let at = group.buffer.address().wrapping_add(offset);
        (at, group.buffer.region().lkey())
    }

    /// Bytes of a receive buffer that the adapter may write.
    #[inline]
    pub fn receive_len(&self) -> usize {
        self.stride
    }

    /// Posts the receive buffers that are not posted.
    pub fn post_receives(&mut self) -> Result<(), VerbsError> {
        let (mut idle, mut posted) = (std::mem::take(&mut self.idle), self.posted_receives);
        let segment_of = |number| {
            let (at, lkey) = self.receive(number);
            Sge::over(at, self.stride, lkey)
        };
        // SAFETY: the buffers belong to the queue until they complete.
        let post = |entries: &[RecvEntry]| unsafe { self.pair.post_recv(entries) };
        let outcome = post_idle(&mut idle, &mut posted, segment_of, post);
        (self.idle, self.posted_receives) = (idle, posted);
        outcome
    }

    /// Makes a connection; says its number.
    fn add_link(&mut self, state: Option<&'static AtomicU32>) -> Result<usize, VerbsError> {
        let open = self.links.iter().flatten().count() as u32 + 1;
        let wanted = open.saturating_mul(self.settings.receives_each);
        if wanted > self.buffers && self.buffers + GROUP <= self.recv_depth {
            match self.make_receives(GROUP) {
                Ok(buffer) => self.add_receives_in(buffer, GROUP)?,
                // What finds no buffer is lost, and sent again.
                Err(error) => {
                    self.counters.refused += 1;
                    self.last_error = Some(error.to_string());
                }
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
        let index = self.links.iter().position(Option::is_none);
        let index = index.unwrap_or_else(|| {
            self.links.push(None);
            self.links.len() - 1
        });
        self.links[index] = Some(Box::new(link));
        Ok(index)
    }

    #[inline]
    pub fn link(&mut self, index: usize) -> &mut Link {
        match self.links.get_mut(index) {
            Some(Some(link)) => link,
            _ => unreachable!("an endpoint without its connection"),
        }
    }

    /// Ends a connection and takes back what it held.
    pub fn remove_link(&mut self, index: usize) {
        self.release_link(index);
        self.links[index] = None;
        self.busy.retain(|&other| other as usize != index);
        self.urgent.retain(|&other| other as usize != index);
    }

    /// Takes back the buffers that a connection holds, of both directions.
    pub fn release_link(&mut self, index: usize) {
        let Some(Some(link)) = self.links.get_mut(index) else {
            return;
        };
        for packet in link.sender.abandon() {
            self.pool.release(packet.slot, self.done);
        }
        for kept in link.receiver.abandon() {
            if let Body::Slot(number, _) = kept.body {
                self.idle.push(number);
            }
        }
        link.assembly = None;
    }
}
