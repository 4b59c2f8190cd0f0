//! What happens, and when.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Where in its message a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PacketPlace {
    pub first: bool,
    pub last: bool,
}

/// A packet towards the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UpPacket {
    /// Asks for so many bytes of a job.
    Request { job: u32, bytes: u32 },
    /// Data of a message; `end` of a packet of the network of `buffered` bytes.
    Payload { message: u32, end: Option<u32>, last: bool },
    /// A completion entry for the receiver of a message.
    Entry { message: u32 },
    /// A completion entry for a sender, who is not simulated further.
    SendEntry,
    /// Data of a stream; the end of a write, or not.
    Stream { stream: u32, end: bool },
}

/// A packet towards the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DownPacket {
    /// Data of a job; the end of a request, or not.
    Completion { job: u32, bytes: u32, end: bool },
    /// The last store that posts a message.
    Doorbell { message: u32 },
    /// An earlier store of it.
    Chunk,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// The processor writes to the device.
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
    /// An answer of the data-link layer falls due: an acknowledgement or an update of credits.
    Answer {
        node: u32,
        up: bool,
        update: bool,
    },
    /// Memory answers a request.
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
    /// The receiving adapter has looked at a packet.
    Received {
        message: u32,
        bytes: u32,
        place: PacketPlace,
    },
    /// The sending adapter knows that the message is there.
    Acknowledged {
        message: u32,
    },
    /// The receiver's processor can see the message.
    Visible {
        message: u32,
    },
    /// The receiver has done with it.
    Done {
        message: u32,
    },
}

struct Entry {
    at: u64,
    order: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// Events by time; of one time in the order in which they were planned. Times in femtoseconds.
#[derive(Default)]
pub(super) struct Queue {
    pub now: u64,
    heap: BinaryHeap<Reverse<Entry>>,
    planned: u64,
}

impl Queue {
    pub fn plan(&mut self, at: u64, event: Event) {
        debug_assert!(at >= self.now);
        self.planned += 1;
        let order = self.planned;
        self.heap.push(Reverse(Entry { at, order, event }));
    }

    pub fn next(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    /// The next event if it happens up to `until`; the clock goes there.
    pub fn pop_until(&mut self, until: u64) -> Option<Event> {
        if self.next()? > until {
            return None;
        }
        let Reverse(entry) = self.heap.pop()?;
        self.now = entry.at;
        Some(entry.event)
    }
}
