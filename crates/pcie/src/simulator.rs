//! Buses and adapters simulated packet by packet, with a clock of their own.
//!
//! Nothing here uses the formulas of [`crate::formulas`]: packets are cut one by one, a direction is a
//! line on which one packet follows another, answers are sent when they fall due. That both agree where they
//! must is a test. What is simulated: both directions of each bus; doorbells and BlueFlame; reads of
//! descriptors and payload, with a limit on how many are under way; packets on the network, with
//! credits of the receiving adapter's buffer; receive descriptors, fetched in batches, waited for (reliable
//! connections) or missed (datagrams); writes of payload and completion entries; processes that take
//! one message after another. Not simulated: bit errors, the root complex's own flow control beyond
//! its updates on the link, acknowledgements' bytes on the network.

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
use events::{Event, Queue};
pub use node::Tally;
use node::{FlowState, Job, MessageState, Node, Stream};

/// A host with its bus and adapter.
#[derive(Debug, Clone, Copy)]
pub struct NodeSpec<'a> {
    /// The host's times.
    pub host: &'a Host,
    /// The adapter.
    pub adapter: &'a Adapter,
    /// The bus between.
    pub link: Link,
    /// The adapter's port.
    pub wire: Wire,
    /// Whether the data-link layer's packets and skips take their share.
    pub data_link: bool,
}

/// A queue pair from one node to another.
#[derive(Debug, Clone, Copy)]
pub struct FlowSpec {
    /// The sending node.
    pub from: usize,
    /// The receiving node.
    pub to: usize,
    /// Which process of the receiving node takes the messages; processes work one message at a time.
    pub process: usize,
    /// How messages travel.
    pub transport: Transport,
    /// What is done with them.
    pub verb: Verb,
    /// Bytes of payload in a packet of the network.
    pub mtu: u32,
    /// Messages of up to so many bytes go inline; 0: none.
    pub inline: u32,
    /// Every N-th send is signalled.
    pub signal_every: u32,
    /// Receive descriptors that the process keeps posted.
    pub receives: u32,
    /// Receive descriptors that the adapter fetches at once.
    pub receive_batch: u32,
    /// What the receiving process does with each message, beyond noticing it.
    pub work: Time,
    /// What that becomes for messages that have waited, if it changes.
    pub cold: Option<Cold>,
    /// Least time between two posts of a load.
    pub pace: Time,
    /// Cables and switches.
    pub hops: Time,
}

impl FlowSpec {
    /// A flow of sends over a reliable connection with the field's usual depths, nothing inline.
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

/// A receiver that falls behind and then takes longer: what it works on has left its caches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cold {
    /// A message that waited longer than this costs more.
    pub after: Time,
    /// What the process does with it, beyond noticing it.
    pub work: Time,
}

/// A message that its receiver has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Delivery {
    /// Its flow.
    pub flow: usize,
    /// What [`Simulator::post`] was given to know it by.
    pub token: u64,
    /// Bytes of payload.
    pub size: Bytes,
    /// When it was posted.
    pub posted: Time,
    /// When the receiver had it.
    pub delivered: Time,
}

/// What has become of a flow's messages so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowCounts {
    /// Posted.
    pub posted: u64,
    /// Taken by the receiving process.
    pub delivered: u64,
    /// Datagrams for which no receive descriptor was there.
    pub dropped: u64,
    /// Bytes of payload delivered.
    pub bytes: u64,
    /// Packets that waited because the receiving adapter's buffer was full.
    pub stalled: u64,
    /// Messages on a connection that waited for a receive descriptor.
    pub not_ready: u64,
}

/// The simulation.
pub struct Simulator {
    queue: Queue,
    nodes: Vec<Node>,
    flows: Vec<FlowState>,
    messages: Vec<MessageState>,
    free_messages: Vec<u32>,
    jobs: Vec<Job>,
    free_jobs: Vec<u32>,
    streams: Vec<Stream>,
    deliveries: VecDeque<Delivery>,
    packets: u64,
}

/// Femtoseconds of a time.
fn fs(time: Time) -> u64 {
    (time.ns() * 1e6).round() as u64
}

fn time(fs: u64) -> Time {
    Time::from_ns(fs as f64 / 1e6)
}

impl Simulator {
    /// Nodes at time 0.
    pub fn new(nodes: &[NodeSpec<'_>]) -> Simulator {
        Simulator {
            queue: Queue::default(),
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

    /// Connects two nodes; the flow's number.
    ///
    /// # Panics
    /// The flow's MTU is 0, or its packets are larger than the receiving adapter's buffer: they would never arrive.
    pub fn add_flow(&mut self, spec: FlowSpec) -> usize {
        assert!(spec.mtu > 0, "an MTU of 0");
        let frame = self.nodes[spec.from].frame;
        let buffer = u64::from(self.nodes[spec.to].adapter.receive_buffer);
        // Inline data goes in one packet; the first of a write names an address.
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

    /// Keeps `depth` messages of `size` under way until `count` have been posted. Their deliveries are
    /// counted and not told.
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

    /// Lets a node's device read and write memory without a network: `count` times `write` and `read` bytes,
    /// `depth` such pairs under way. The stream's number.
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

    /// The clock.
    pub fn now(&self) -> Time {
        time(self.queue.now)
    }

    /// When something happens next by itself.
    pub fn next_event(&self) -> Option<Time> {
        self.queue.next().map(time)
    }

    /// Lets everything up to `until` happen, and the clock stand there.
    pub fn run_until(&mut self, until: Time) {
        let until = fs(until);
        while let Some(event) = self.queue.pop_until(until) {
            self.handle(event);
        }
        self.queue.now = self.queue.now.max(until);
    }

    /// Lets time pass until a message is delivered, at most until `until`; false where none was.
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

    /// Lets time pass until nothing more happens by itself.
    pub fn run(&mut self) {
        while let Some(event) = self.queue.pop_until(u64::MAX) {
            self.handle(event);
        }
    }

    /// The next message delivered, in the order of delivery.
    pub fn take_delivery(&mut self) -> Option<Delivery> {
        self.deliveries.pop_front()
    }

    /// What has become of a flow's messages.
    pub fn counts(&self, flow: usize) -> FlowCounts {
        self.flows[flow].counts
    }

    /// Payload a second of all flows together, between the first and the last delivery of any.
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

    /// Payload a second of a flow between its first and its last delivery. Windows of several flows
    /// need not coincide: their rates do not add up ([`Simulator::total_rate`]).
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

    /// What a node's bus has carried: from the device to the host, and back.
    pub fn tallies(&self, node: usize) -> (Tally, Tally) {
        (self.nodes[node].up.tally, self.nodes[node].down.tally)
    }

    /// Packets simulated so far, on buses and network.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// When a stream's pairs were completed: the first, the last, and how many after the first.
    pub fn stream_span(&self, stream: usize) -> Option<(Time, Time, u64)> {
        let stream = &self.streams[stream];
        let first = stream.first?;
        Some((time(first), time(stream.last), stream.completed - 1))
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Store { node, bytes, message } => self.store(node, bytes, message),
            Event::Up { node, packet } => self.arrive_at_host(node, packet),
            Event::Down { node, packet } => self.arrive_at_adapter(node, packet),
            Event::Answer { node, up, update } => self.answer(node, up, update),
            Event::Memory { node, job, bytes } => self.complete_read(node, job, bytes),
            Event::Launch { message, bytes, place } => self.launch(message, bytes, place),
            Event::LineFree { node } => self.transmit(node),
            Event::Received { message, bytes, place } => self.receive(message, bytes, place),
            Event::Acknowledged { message } => self.acknowledge(message),
            Event::Visible { message } => self.take_up(message),
            Event::Done { message } => self.finish(message),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
