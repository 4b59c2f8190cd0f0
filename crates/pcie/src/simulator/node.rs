//! What is kept of nodes, flows, messages and reads.

use std::collections::VecDeque;

use super::events::PacketPlace;
use super::line::Line;
use super::packets::Packets;
use super::{FlowCounts, FlowSpec, NodeSpec, fs};
use crate::descriptor::PostMethod;
use crate::profile::Adapter;
use crate::units::{Bytes, Time};

/// What a direction of a bus has carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Packets with data or requests.
    pub packets: u64,
    /// Bytes of data in them.
    pub data: u64,
    /// All their bytes.
    pub bytes: u64,
    /// Acknowledgements and updates of credits, 8 bytes each.
    pub answers: u64,
}

impl Tally {
    pub(super) fn count(&mut self, data: u64, bytes: u64) {
        self.packets += 1;
        self.data += data;
        self.bytes += bytes;
    }
}

/// The host's times in femtoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub post: u64,
    pub doorbell: u64,
    pub store: u64,
    pub copy: Time,
    pub read: u64,
    pub write: u64,
    pub poll: u64,
    pub send: u64,
    pub receive: u64,
}

/// A packet that waits for the network.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    pub message: u32,
    pub bytes: u32,
    pub place: PacketPlace,
    pub stalled: bool,
}

pub(super) struct Node {
    pub times: Times,
    pub packets: Packets,
    pub up: Line,
    pub down: Line,
    /// When the sending processor is free.
    pub processor: u64,
    /// When each receiving process is free.
    pub processes: Vec<u64>,
    pub adapter: Adapter,
    pub reads: VecDeque<u32>,
    pub reads_free: u32,
    // Its port.
    pub out: Line,
    pub inward: Line,
    pub out_planned: bool,
    pub outbox: VecDeque<Waiting>,
    pub buffer_free: u64,
    /// Nodes whose next packet waits for this one's buffer.
    pub callers: VecDeque<u32>,
    pub frame: Frame,
}

/// Bytes around a payload on the network.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub connected: u64,
    pub datagram: u64,
}

impl Node {
    pub fn new(spec: &NodeSpec<'_>) -> Node {
        let (host, adapter) = (spec.host, spec.adapter);
        let byte = 1e15 / spec.wire.rate.bytes_per_s();
        let overhead = |transport| u64::from(spec.wire.packet_overhead(transport));
        Node {
            times: Times {
                post: fs(host.post),
                doorbell: fs(host.doorbell),
                store: fs(host.store),
                copy: host.copy,
                read: fs(host.read),
                write: fs(host.write),
                poll: fs(host.poll),
                send: fs(adapter.send),
                receive: fs(adapter.receive),
            },
            packets: Packets::new(&spec.link),
            up: Line::of_bus(&spec.link, spec.data_link),
            down: Line::of_bus(&spec.link, spec.data_link),
            processor: 0,
            processes: Vec::new(),
            adapter: *adapter,
            reads: VecDeque::new(),
            reads_free: adapter.reads_in_flight,
            out: Line::new(byte),
            inward: Line::new(byte),
            out_planned: false,
            outbox: VecDeque::new(),
            buffer_free: u64::from(adapter.receive_buffer),
            callers: VecDeque::new(),
            frame: Frame {
                connected: overhead(crate::wire::Transport::Rc),
                datagram: overhead(crate::wire::Transport::Ud),
            },
        }
    }
}

pub(super) struct FlowState {
    pub spec: FlowSpec,
    pub counts: FlowCounts,
    /// Size, and how many are still to be posted.
    pub load: (Bytes, u64),
    /// When its pace allows the next one.
    pub next_post: u64,
    /// Receive descriptors in memory, being fetched, in the adapter.
    pub posted: u32,
    pub fetching: u32,
    pub fetched: u32,
    /// Messages posted and not gone, and packets that are ready before their turn.
    pub order: VecDeque<u32>,
    pub ready: VecDeque<(u32, u32, PacketPlace)>,
    /// Packets that wait for a receive descriptor: message, bytes, place.
    pub not_ready: VecDeque<(u32, u32, PacketPlace)>,
    /// Time of the first delivery, and the bytes delivered with it.
    pub first_delivery: Option<(u64, u64)>,
    pub last_delivery: u64,
}

impl FlowState {
    pub fn new(spec: FlowSpec) -> FlowState {
        FlowState {
            spec,
            counts: FlowCounts::default(),
            load: (Bytes(0), 0),
            next_post: 0,
            posted: spec.receives,
            fetching: 0,
            fetched: 0,
            order: VecDeque::new(),
            ready: VecDeque::new(),
            not_ready: VecDeque::new(),
            first_delivery: None,
            last_delivery: 0,
        }
    }

    /// Whether messages of this size go inline.
    pub fn is_inline(&self, size: u64) -> bool {
        self.spec.inline > 0 && size <= u64::from(self.spec.inline)
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct MessageState {
    pub flow: u32,
    pub size: u64,
    pub token: u64,
    pub posted: u64,
    pub way: PostMethod,
    pub descriptor: u32,
    pub signalled: bool,
    /// Whether its delivery is told.
    pub told: bool,
    /// Who still refers to it: sender and receiver.
    pub holders: u8,
}

/// What a read of memory is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobKind {
    Descriptor { message: u32 },
    Payload { message: u32, place: PacketPlace },
    Receives { flow: u32, count: u32 },
    Stream { stream: u32 },
}

/// A read of memory by an adapter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    pub kind: JobKind,
    /// Not asked for yet, and not yet there.
    pub unrequested: u64,
    pub missing: u64,
}

/// Reads and writes of a device without a network.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stream {
    pub node: u32,
    pub write: u64,
    pub read: u64,
    pub left: u64,
    /// Halves of pairs that are done.
    pub halves: u64,
    pub completed: u64,
    pub first: Option<u64>,
    pub last: u64,
}

impl Stream {
    pub fn new(node: usize, write: Bytes, read: Bytes, count: u64) -> Stream {
        Stream {
            node: node as u32,
            write: write.0,
            read: read.0,
            left: count,
            halves: 0,
            completed: 0,
            first: None,
            last: 0,
        }
    }
}
