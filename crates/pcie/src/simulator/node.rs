//! State of nodes, flows, messages and reads.

use std::collections::VecDeque;

use super::events::PacketPlace;
use super::line::SerialLine;
use super::packets::Packets;
use super::{FlowCounts, FlowSpec, NodeSpec, fs};
use crate::descriptor::PostMethod;
use crate::profile::Adapter;
use crate::units::{Bytes, Time};

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

#[derive(Debug, Clone, Copy)]
pub(super) struct WaitingPacket {
    pub message: u32,
    pub bytes: u32,
    pub place: PacketPlace,
    pub stalled: bool,
}

pub(super) struct Node {
    pub times: Times,
    pub packets: Packets,
    pub up: SerialLine,
    pub down: SerialLine,
    /// Time at which the sending processor is free.
    pub processor: u64,
    /// Time at which each receiving process is free.
    pub processes: Vec<u64>,
    pub adapter: Adapter,
    pub reads: VecDeque<u32>,
    pub reads_free: u32,
    pub out: SerialLine,
    pub inward: SerialLine,
    pub out_planned: bool,
    pub outbox: VecDeque<WaitingPacket>,
    pub buffer_free: u64,
    /// Nodes whose next packet waits for this node's buffer.
    pub callers: VecDeque<u32>,
    pub frame: FrameBytes,
}

/// Bytes around a payload on the network.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameBytes {
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
            up: SerialLine::of_bus(&spec.link, spec.data_link),
            down: SerialLine::of_bus(&spec.link, spec.data_link),
            processor: 0,
            processes: Vec::new(),
            adapter: *adapter,
            reads: VecDeque::new(),
            reads_free: adapter.reads_in_flight,
            out: SerialLine::new(byte),
            inward: SerialLine::new(byte),
            out_planned: false,
            outbox: VecDeque::new(),
            buffer_free: u64::from(adapter.receive_buffer),
            callers: VecDeque::new(),
            frame: FrameBytes {
                connected: overhead(crate::wire::Transport::Rc),
                datagram: overhead(crate::wire::Transport::Ud),
            },
        }
    }
}

pub(super) struct FlowState {
    pub spec: FlowSpec,
    pub counts: FlowCounts,
    /// Size of the load's messages, and number of messages still to post.
    pub load: (Bytes, u64),
    /// Earliest time of the next post, by the pace.
    pub next_post: u64,
    /// Number of receive descriptors posted in memory, of those being fetched, and of those in the adapter.
    pub posted: u32,
    pub fetching: u32,
    pub fetched: u32,
    /// Posted messages that have not left, in the order of their posts.
    pub order: VecDeque<u32>,
    /// Packets that are ready before their turn.
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

    /// Whether messages of `size` bytes are inline.
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
    /// Whether [`super::Simulator::take_delivery`] returns the message's delivery.
    pub told: bool,
    /// Number of references: sender and receiver.
    pub holders: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobKind {
    Descriptor { message: u32 },
    Payload { message: u32, place: PacketPlace },
    Receives { flow: u32, count: u32 },
    Stream { stream: u32 },
}

#[derive(Debug, Clone, Copy)]
pub(super) struct AdapterJob {
    pub kind: JobKind,
    /// Bytes not requested yet, and bytes not arrived yet.
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
    /// Number of finished writes plus finished reads. The stream consists of pairs of one write and one read; if
    /// `write` or `read` is 0, each pair has only the other.
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
