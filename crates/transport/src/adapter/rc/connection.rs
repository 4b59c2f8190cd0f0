//! What an interface keeps for each peer.

use super::super::send_buffers::Slot;
use super::super::send_queue::SendQueue;
use super::super::stage::Stage;
use super::wire::{PacketKind, Tag};
use crate::contract::{Header, Post};
use crate::verbs::{MemoryRegion, Operation, QueuePair};
use fastpath_base::sync::{AtomicU32, Ordering};
use fastpath_bootstrap::segment::has_left;
use std::collections::VecDeque;
use std::sync::Arc;

/// A message that has arrived and not been taken. Plain numbers: it is copied out when it is shown and when it is
/// taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inbound {
    pub header: Header,
    /// Its payload, in the receive buffer or in its turn of [`Connection::wholes`].
    pub data: *const u8,
    pub len: u32,
    /// Number of the receive buffer, or [`ASSEMBLED`].
    pub number: u32,
    /// Packets it came in.
    pub packets: u32,
}

/// In place of a receive buffer's number: the message was put together from several.
pub(super) const ASSEMBLED: u32 = u32::MAX;

/// A message of which a part has arrived.
pub(super) struct Assembly {
    pub header: Header,
    pub data: Vec<u8>,
    pub total: usize,
    pub packets: u32,
}

/// Somebody waits for the completion of an operation.
pub(super) struct Ticket {
    /// What the user knows it by.
    pub cookie: u64,
    /// Where what is read comes to, and where the user wants it.
    pub landing: Option<Landing>,
    /// Memory of the user that must stay registered meanwhile.
    pub _region: Option<Arc<MemoryRegion>>,
}

/// Bytes that are read into a buffer of the transport, and copied to memory of the user.
pub(super) struct Landing {
    pub slot: Slot,
    pub to: *mut u8,
    pub len: usize,
}

/// One peer.
pub(super) struct Connection {
    pub pair: QueuePair,
    pub stage: Stage,
    /// Sequence number of the first packet, 24 bits.
    pub psn: u32,
    /// Bytes that may go inline.
    pub inline: usize,
    pub sends: SendQueue,
    /// Send buffers in use: each is free again when the send with its number is done.
    pub slots: VecDeque<(u32, Slot)>,
    /// Operations somebody waits for, in order.
    pub tickets: VecDeque<(u32, Ticket)>,
    /// Memory that the peer may read, one for each message that it has been told of.
    pub exposed: Vec<Arc<MemoryRegion>>,
    /// Headers of the last message in one packet, each way: another one with the same goes without.
    pub last_header: Option<Header>,
    pub heard: Option<Header>,
    /// Packets that the peer has room for.
    pub credits: u32,
    /// Packets taken of which the peer has not been told.
    pub owed: u32,
    /// Packets that the peer may have here.
    pub window: u32,
    pub inbox: VecDeque<Inbound>,
    /// The payloads of the assembled ones among them, in order.
    pub wholes: VecDeque<Vec<u8>>,
    pub assembly: Option<Assembly>,
    /// Which of the interface's send queues it completes on.
    pub queue: usize,
    /// Says whether the peer has left the job, where there is such a word.
    pub state: Option<&'static AtomicU32>,
}

impl Connection {
    /// Room in the send queue, but for the one place kept for what the transport itself must say.
    #[inline]
    pub fn room(&self) -> u32 {
        self.sends.room().saturating_sub(1)
    }

    /// Whether a message of so many packets could be sent now; `PeerGone` where never again.
    #[inline]
    pub fn admit(&self, packets: u32) -> Post {
        self.stage.admit(self.credits >= packets && self.room() >= packets)
    }

    /// What a packet is posted as: its immediate data tells the peer what is owed to it.
    #[inline]
    pub fn tag(&mut self, kind: PacketKind, total: usize) -> Operation<'static> {
        let (credits, total) = (std::mem::take(&mut self.owed), total as u32);
        let tag = Tag { kind, credits, total };
        Operation::SendImmediate(tag.encode())
    }

    /// Packets taken that are worth a packet to the peer, where nothing else is to be told.
    #[inline]
    pub fn worth_telling(&self) -> u32 {
        self.window / 4
    }

    /// Whether the peer's own word says that it has left; what it sent may still be on its way.
    pub fn is_said_to_have_left(&self) -> bool {
        self.state.is_some_and(|state| has_left(state.load(Ordering::Relaxed)))
    }
}
