//! State of one connection.

use super::super::stage::Stage;
use super::pool::Packet;
use super::wire::{DatagramKind, split_stream};
use crate::contract::Header;
use crate::reliable::{Receiver, Sender};
use crate::verbs::AddressHandle;
use fastpath_base::sync::{AtomicU32, Ordering};
use fastpath_segment::{STATE_SLEEPING, has_left};
use std::sync::Arc;

pub(super) struct ReorderedPacket {
    pub kind: DatagramKind,
    pub total: u32,
    pub body: Body,
}

pub(super) enum Body {
    Slot(u32, u32),
    Copied(Vec<u8>),
}

pub(super) struct Assembly {
    pub data: Vec<u8>,
    pub total: usize,
}

impl Assembly {
    pub fn is_whole(&self) -> bool {
        self.data.len() == self.total
    }

    pub fn message(&self) -> Option<(Header, &[u8])> {
        split_stream(&self.data)
    }
}

pub(super) struct PeerAddress {
    pub qpn: u32,
    pub qkey: u32,
    pub link: u32,
    pub token: u32,
    pub handle: Arc<AddressHandle>,
}

pub(super) struct UdLink {
    pub stage: Stage,
    pub token: u32,
    pub far: Option<PeerAddress>,
    pub chunk: usize,
    pub window: u32,
    pub sender: Sender<Packet>,
    pub receiver: Receiver<ReorderedPacket>,
    pub assembly: Option<Assembly>,
    pub owed: u32,
    pub ack_due_ns: u64,
    /// Start of the current silence of a peer to which packets are outstanding; 0 if none are.
    pub silent_since_ns: u64,
    /// `unanswered`: successive checks in which a waiting peer acknowledged nothing. `looked_ns`: time of the last
    /// check. `silence_ns`: `silent_since_ns` at that check.
    pub unanswered: u32,
    pub looked_ns: u64,
    pub silence_ns: u64,
    pub busy: bool,
    pub urgent: bool,
    /// State word of the peer; `None` if it is unknown.
    pub state: Option<&'static AtomicU32>,
    /// Counter of the peer's polls; `None` if the peer is on another node. `seen_polls`: the last value read from it.
    pub polls: Option<&'static AtomicU32>,
    pub seen_polls: u32,
}

impl UdLink {
    pub fn has_left(&self) -> bool {
        self.state.is_some_and(|state| has_left(state.load(Ordering::Relaxed)))
    }

    /// Whether the peer waits in the library: it sleeps, or polled since the last call. A waiting peer answers within a
    /// second.
    pub fn is_waiting(&mut self) -> bool {
        let polls = self.polls.map_or(0, |polls| polls.load(Ordering::Relaxed));
        let looked = std::mem::replace(&mut self.seen_polls, polls) != polls;
        let asleep = |state: &AtomicU32| state.load(Ordering::Relaxed) == STATE_SLEEPING;
        looked || self.state.is_some_and(asleep)
    }

    #[inline]
    pub fn has_message(&self) -> bool {
        match &self.assembly {
            Some(assembly) => assembly.is_whole(),
            None => self.receiver.look().is_some_and(|kept| kept.kind != DatagramKind::Last),
        }
    }

    pub fn has_last(&self) -> bool {
        let last = |kept: &ReorderedPacket| kept.kind == DatagramKind::Last;
        self.assembly.is_none() && self.receiver.look().is_some_and(last)
    }
}

const _: () = assert!(size_of::<UdLink>() <= 384);
