//! Events and their queue.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PacketPlace {
    pub first: bool,
    pub last: bool,
}

/// A packet towards the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UpPacket {
    /// Request for some bytes of a job.
    Request { job: u32, bytes: u32 },
    /// Data of a message; `end` holds the buffered bytes of a network packet that ends here.
    Payload { message: u32, end: Option<u32>, last: bool },
    /// A completion entry for the receiver of a message.
    Entry { message: u32 },
    /// A completion entry for a sender, which is not simulated further.
    SendEntry,
    /// Data of a stream, and whether it ends a write.
    Stream { stream: u32, end: bool },
}

/// A packet towards the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DownPacket {
    /// Data of a job, and whether it ends a request.
    Completion { job: u32, bytes: u32, end: bool },
    /// The last store that posts a message.
    Doorbell { message: u32 },
    /// An earlier store of the post.
    Chunk,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SimEvent {
    Store {
        node: u32,
        bytes: u32,
        message: Option<u32>,
    },
    Up {
        node: u32,
        packet: UpPacket,
    },
    Down {
        node: u32,
        packet: DownPacket,
    },
    /// An answer of the data-link layer is due: an acknowledgement or a credit update.
    Answer {
        node: u32,
        up: bool,
        update: bool,
    },
    Memory {
        node: u32,
        job: u32,
        bytes: u32,
    },
    /// A packet is ready for the network.
    Launch {
        message: u32,
        bytes: u32,
        place: PacketPlace,
    },
    /// The network takes the next packet.
    LineFree {
        node: u32,
    },
    /// The receiving adapter has processed a packet.
    Received {
        message: u32,
        bytes: u32,
        place: PacketPlace,
    },
    /// The sending adapter has received the acknowledgement of the message.
    Acknowledged {
        message: u32,
    },
    /// The receiver's processor can see the message.
    Visible {
        message: u32,
    },
    /// The receiver has finished with the message.
    Done {
        message: u32,
    },
}

struct QueuedEvent {
    at: u64,
    order: u64,
    event: SimEvent,
}

impl PartialEq for QueuedEvent {
    fn eq(&self, other: &QueuedEvent) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for QueuedEvent {}

impl PartialOrd for QueuedEvent {
    fn partial_cmp(&self, other: &QueuedEvent) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for QueuedEvent {
    fn cmp(&self, other: &QueuedEvent) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// Queue of events by time; events of one time are in the order of planning. Times are in femtoseconds.
#[derive(Default)]
pub(super) struct EventQueue {
    pub now: u64,
    heap: BinaryHeap<Reverse<QueuedEvent>>,
    planned: u64,
}

impl EventQueue {
    pub fn plan(&mut self, at: u64, event: SimEvent) {
        debug_assert!(at >= self.now);
        self.planned += 1;
        let order = self.planned;
        self.heap.push(Reverse(QueuedEvent { at, order, event }));
    }

    pub fn next(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    /// Takes the next event if it is due by `until`, and sets the time to it.
    pub fn pop_until(&mut self, until: u64) -> Option<SimEvent> {
        if self.next()? > until {
            return None;
        }
        let Reverse(entry) = self.heap.pop()?;
        self.now = entry.at;
        Some(entry.event)
    }
}
