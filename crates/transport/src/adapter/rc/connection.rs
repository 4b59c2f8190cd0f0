//! State of one connection.

use super::super::send_buffers::BufferSlot;
use super::super::send_queue::SendQueue;
use super::super::stage::Stage;
use super::wire::{PacketKind, Tag};
use crate::contract::{Header, Post};
use crate::verbs::{MemoryRegion, QueuePair, SendOperation};
use fastpath_base::sync::{AtomicU32, Ordering};
use fastpath_segment::has_left;
use std::collections::VecDeque;
use std::sync::Arc;

/// Message that has arrived and has not been taken. It holds plain numbers, because `look` copies it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inbound {
    pub header: Header,
    pub data: *const u8,
    pub len: u32,
    /// Number of the receive buffer, or [`ASSEMBLED`].
    pub number: u32,
    pub packets: u32,
}

pub(super) const ASSEMBLED: u32 = u32::MAX;

pub(super) struct Assembly {
    pub header: Header,
    pub data: Vec<u8>,
    pub total: usize,
    pub packets: u32,
}

pub(super) const UNREPORTED: u64 = 0;

pub(super) struct Ticket {
    pub cookie: u64,
    pub landing: Option<BounceRead>,
    /// Registration of user memory, held until the completion; `None` if the operation uses none.
    pub _region: Option<Arc<MemoryRegion>>,
}

pub(super) struct BounceRead {
    pub slot: BufferSlot,
    pub to: *mut u8,
    pub len: usize,
}

pub(super) struct Connection {
    pub pair: QueuePair,
    pub stage: Stage,
    /// Sequence number of the first packet, 24 bits.
    pub psn: u32,
    pub inline: usize,
    pub sends: SendQueue,
    pub slots: VecDeque<(u32, BufferSlot)>,
    /// Operations with a ticket, in order of their send numbers.
    pub tickets: VecDeque<(u32, Ticket)>,
    /// Registered memory that the peer may read: one region for each message that was announced to it.
    pub exposed: Vec<Arc<MemoryRegion>>,
    /// Headers of the last single-packet message sent and the last received. A message with the same header omits it.
    pub last_header: Option<Header>,
    pub heard: Option<Header>,
    pub credits: u32,
    pub owed: u32,
    /// Maximum number of packets that the peer may have outstanding to this rank.
    pub window: u32,
    pub inbox: VecDeque<Inbound>,
    /// Payloads of the assembled messages in `inbox`, in arrival order.
    pub wholes: VecDeque<Vec<u8>>,
    pub assembly: Option<Assembly>,
    pub queue: usize,
    /// State word of the peer; `None` if it is unknown.
    pub state: Option<&'static AtomicU32>,
}

impl Connection {
    /// Number of free entries of the send queue, without the entry reserved for credits.
    #[inline]
    pub fn room(&self) -> u32 {
        self.sends.room().saturating_sub(1)
    }

    #[inline]
    pub fn admit(&self, packets: u32) -> Post {
        self.stage.admit(self.credits >= packets && self.room() >= packets)
    }

    /// Send operation for a packet; its immediate data returns the credits owed to the peer.
    #[inline]
    pub fn tag(&mut self, kind: PacketKind, total: usize) -> SendOperation<'static> {
        let (credits, total) = (std::mem::take(&mut self.owed), total as u32);
        let tag = Tag { kind, credits, total };
        SendOperation::SendImmediate(tag.encode())
    }

    /// Number of owed credits at which a packet is sent only to return them.
    #[inline]
    pub fn worth_telling(&self) -> u32 {
        self.window / 4
    }

    pub fn is_said_to_have_left(&self) -> bool {
        self.state.is_some_and(|state| has_left(state.load(Ordering::Relaxed)))
    }
}
