//! Packet-level simulation of buses and adapters, with simulated time.
//!
//! The simulation does not use [`crate::formulas`]. Packets are split one by one, each direction is a line on which one
//! packet follows another, and answers are sent when they are due. Tests check that simulation and formulas agree where
//! they must.
//!
//! Simulated on each bus: both directions, doorbells and BlueFlame, reads of descriptors and payload with a limit on
//! outstanding reads, and writes of payload and completion entries. Simulated beyond the bus: network packets with
//! credits of the receiving adapter's buffer, and processes that take one message after another. Receive descriptors
//! are fetched in batches. Reliable connections wait for a descriptor, and datagrams without one are lost.
//!
//! Not simulated: bit errors, flow control of the root complex beyond its updates on the link, and the bytes of
//! acknowledgements on the network.

mod adapter;
mod bus;
mod events;
mod line;
mod node;
mod packets;

use std::collections::VecDeque;

use crate::descriptor::REMOTE_ADDRESS;
use crate::link::Link;
use crate::profile::{Adapter, Host};
use crate::units::{Bytes, Rate, Time};
use crate::wire::{Transport, Verb, Wire};
use events::{EventQueue, SimEvent};
pub use line::Tally;
use node::{AdapterJob, FlowState, MessageState, Node, Stream};

/// A host with its bus and adapter.
#[derive(Debug, Clone, Copy)]
pub struct NodeSpec<'a> {
    /// Times of the host.
    pub host: &'a Host,
    /// The adapter.
    pub adapter: &'a Adapter,
    /// The bus between host and adapter.
    pub link: Link,
    /// Port of the adapter.
    pub wire: Wire,
    /// Whether the data-link layer's packets and skips are simulated.
    pub data_link: bool,
}

/// A queue pair from one node to another.
#[derive(Debug, Clone, Copy)]
pub struct FlowSpec {
    /// The sending node.
    pub from: usize,
    /// The receiving node.
    pub to: usize,
    /// Number of the receiving node's process that takes the messages; a process handles one message at a time.
    pub process: usize,
    /// Transport of the messages.
    pub transport: Transport,
    /// Operation of the messages.
    pub verb: Verb,
    /// Payload of a network packet, in bytes.
    pub mtu: u32,
    /// Largest message, in bytes, sent inline; 0 disables inlining.
    pub inline: u32,
    /// Every N-th send is signalled.
    pub signal_every: u32,
    /// Number of receive descriptors that the process keeps posted.
    pub receives: u32,
    /// Number of receive descriptors that the adapter fetches at once.
    pub receive_batch: u32,
    /// Time that each message takes the receiving process, in addition to the poll that finds it.
    pub work: Time,
    /// Replacement of `work` for messages that have waited; `None` if `work` applies to them too.
    pub cold: Option<Cold>,
    /// Minimum time between two posts of a load ([`Simulator::load`]).
    pub pace: Time,
    /// Latency of cables and switches.
    pub hops: Time,
}

impl FlowSpec {
    /// Creates a flow of sends over a reliable connection with usual depths, nothing inline.
    pub fn new(from: usize, to: usize) -> FlowSpec {
        FlowSpec {
            from,
            to,
            process: 0,
            transport: Transport::Rc,
            verb: Verb::Send,
            mtu: 4096,
            inline: 0,
            signal_every: 1,
            receives: 512,
            receive_batch: 16,
            work: Time::ZERO,
            cold: None,
            pace: Time::ZERO,
            hops: Time::from_ns(100.0),
        }
    }
}

/// Slowdown of a receiver that has fallen behind, because its data has left its caches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cold {
    /// Waiting time from which a message takes the receiver longer.
    pub after: Time,
    /// Time that the receiving process spends on a message that has waited longer than `after`, in addition to the poll
    /// that finds the message.
    pub work: Time,
}

/// A delivered message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Delivery {
    /// Number of the flow.
    pub flow: usize,
    /// Token given to [`Simulator::post`].
    pub token: u64,
    /// Payload.
    pub size: Bytes,
    /// Time of the post.
    pub posted: Time,
    /// Time of the delivery.
    pub delivered: Time,
}

/// Counts of a flow's messages so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowCounts {
    /// Posted messages.
    pub posted: u64,
    /// Messages taken by the receiving process.
    pub delivered: u64,
    /// Datagrams without a receive descriptor.
    pub dropped: u64,
    /// Delivered payload, in bytes.
    pub bytes: u64,
    /// Packets that waited because the receiving adapter's buffer was full.
    pub stalled: u64,
    /// Messages on a connection that waited for a receive descriptor.
    pub not_ready: u64,
}

/// The simulation.
pub struct Simulator {
    queue: EventQueue,
    nodes: Vec<Node>,
    flows: Vec<FlowState>,
    messages: Vec<MessageState>,
    free_messages: Vec<u32>,
    jobs: Vec<AdapterJob>,
    free_jobs: Vec<u32>,
    streams: Vec<Stream>,
    deliveries: VecDeque<Delivery>,
    packets: u64,
}

fn fs(time: Time) -> u64 {
    (time.ns() * 1e6).round() as u64
}

fn time(fs: u64) -> Time {
    Time::from_ns(fs as f64 / 1e6)
}

impl Simulator {
    /// Creates nodes at time 0.
    pub fn new(nodes: &[NodeSpec<'_>]) -> Simulator {
        Simulator {
            queue: EventQueue::default(),
            nodes: nodes.iter().map(Node::new).collect(),
            flows: Vec::new(),
            messages: Vec::new(),
            free_messages: Vec::new(),
            jobs: Vec::new(),
            free_jobs: Vec::new(),
            streams: Vec::new(),
            deliveries: VecDeque::new(),
            packets: 0,
        }
    }

    /// Connects two nodes; returns the flow's number.
    ///
    /// # Panics
    /// The flow's MTU is 0, or its packets are larger than the receiving adapter's buffer: they would never arrive.
    pub fn add_flow(&mut self, spec: FlowSpec) -> usize {
        assert!(spec.mtu > 0, "an MTU of 0");
        let frame = self.nodes[spec.from].frame;
        let buffer = u64::from(self.nodes[spec.to].adapter.receive_buffer);
        // Inline data goes in one packet; the first packet of a write has an address.
        let around = frame.connected.max(frame.datagram) + u64::from(REMOTE_ADDRESS);
        let largest = around + u64::from(spec.mtu.max(spec.inline));
        assert!(
            largest <= buffer,
            "packets of {largest} B never fit the receiver's buffer of {buffer} B"
        );
        self.flows.push(FlowState::new(spec));
        let flow = self.flows.len() - 1;
        let processes = &mut self.nodes[spec.to].processes;
        processes.resize(processes.len().max(spec.process + 1), 0);
        if spec.verb == Verb::Send {
            self.fetch_receives(flow);
        }
        flow
    }

    /// Posts a message now.
    pub fn post(&mut self, flow: usize, size: Bytes, token: u64) {
        let at = self.queue.now;
        self.post_at(flow, size, token, at);
    }

    /// Keeps `depth` messages of `size` in flight until `count` are posted. Their deliveries are counted, not returned.
    pub fn load(&mut self, flow: usize, size: Bytes, count: u64, depth: u32) {
        let state = &mut self.flows[flow];
        state.load = (size, count);
        for _ in 0..depth {
            self.post_next(flow);
        }
    }

    /// Changes the least time between two posts of a flow's load.
    pub fn set_pace(&mut self, flow: usize, pace: Time) {
        self.flows[flow].spec.pace = pace;
    }

    /// Lets a node's device write and read memory without a network: `count` pairs of `write` and `read` bytes, `depth`
    /// pairs in flight. Returns the stream's number.
    pub fn stream(
        &mut self, node: usize, write: Bytes, read: Bytes, count: u64, depth: u32,
    ) -> usize {
        self.streams.push(Stream::new(node, write, read, count));
        let stream = self.streams.len() - 1;
        for _ in 0..depth {
            self.issue_pair(stream);
        }
        stream
    }

    /// Current simulated time.
    pub fn now(&self) -> Time {
        time(self.queue.now)
    }

    /// Time of the next event.
    pub fn next_event(&self) -> Option<Time> {
        self.queue.next().map(time)
    }

    /// Runs all events up to `until`, and sets the time to `until`.
    pub fn run_until(&mut self, until: Time) {
        let until = fs(until);
        while let Some(event) = self.queue.pop_until(until) {
            self.handle(event);
        }
        self.queue.now = self.queue.now.max(until);
    }

    /// Runs until a message is delivered, at most until `until`; false if none was.
    pub fn run_to_delivery(&mut self, until: Time) -> bool {
        let until = fs(until);
        while self.deliveries.is_empty() {
            match self.queue.pop_until(until) {
                Some(event) => self.handle(event),
                None => return false,
            }
        }
        true
    }

    /// Runs until there are no more events.
    pub fn run(&mut self) {
        while let Some(event) = self.queue.pop_until(u64::MAX) {
            self.handle(event);
        }
    }

    /// Takes the next delivered message, in the order of delivery.
    pub fn take_delivery(&mut self) -> Option<Delivery> {
        self.deliveries.pop_front()
    }

    /// Returns the counts of a flow's messages.
    pub fn counts(&self, flow: usize) -> FlowCounts {
        self.flows[flow].counts
    }

    /// Payload rate of all flows together, between the first and the last delivery of any flow.
    pub fn total_rate(&self) -> Rate {
        let started = self.flows.iter().filter_map(|f| f.first_delivery);
        let Some((first, bytes)) = started.min() else {
            return Rate::default();
        };
        let last = self.flows.iter().map(|f| f.last_delivery).max();
        let sum: u64 = self.flows.iter().map(|f| f.counts.bytes).sum();
        let seconds = (last.unwrap_or(first) - first) as f64 / 1e15;
        match seconds > 0.0 {
            true => Rate::from_bytes_per_s((sum - bytes) as f64 / seconds),
            false => Rate::default(),
        }
    }

    /// Payload rate of a flow between its first and last delivery. The rates of several flows do not add up, because
    /// their times differ; see [`Simulator::total_rate`].
    pub fn rate(&self, flow: usize) -> Rate {
        let state = &self.flows[flow];
        let (Some((first, bytes)), last) = (state.first_delivery, state.last_delivery) else {
            return Rate::default();
        };
        let seconds = (last - first) as f64 / 1e15;
        match seconds > 0.0 {
            true => Rate::from_bytes_per_s((state.counts.bytes - bytes) as f64 / seconds),
            false => Rate::default(),
        }
    }

    /// Traffic of a node's bus so far: from the device to the host, and from the host to the device.
    pub fn tallies(&self, node: usize) -> (Tally, Tally) {
        (self.nodes[node].up.tally, self.nodes[node].down.tally)
    }

    /// Number of packets simulated so far, on buses and network.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns the completion times of a stream's first and last pair, and the number of pairs after the first.
    pub fn stream_span(&self, stream: usize) -> Option<(Time, Time, u64)> {
        let stream = &self.streams[stream];
        let first = stream.first?;
        Some((time(first), time(stream.last), stream.completed - 1))
    }

    fn handle(&mut self, event: SimEvent) {
        match event {
            SimEvent::Store { node, bytes, message } => self.store(node, bytes, message),
            SimEvent::Up { node, packet } => self.arrive_at_host(node, packet),
            SimEvent::Down { node, packet } => self.arrive_at_adapter(node, packet),
            SimEvent::Answer { node, up, update } => self.answer(node, up, update),
            SimEvent::Memory { node, job, bytes } => self.complete_read(node, job, bytes),
            SimEvent::Launch { message, bytes, place } => self.launch(message, bytes, place),
            SimEvent::LineFree { node } => self.transmit(node),
            SimEvent::Received { message, bytes, place } => self.receive(message, bytes, place),
            SimEvent::Acknowledged { message } => self.acknowledge(message),
            SimEvent::Visible { message } => self.take_up(message),
            SimEvent::Done { message } => self.finish(message),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
