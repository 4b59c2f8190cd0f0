//! What an interface keeps for each peer.

use super::super::stage::Stage;
use super::pool::Packet;
use super::wire::{DatagramKind, split_stream};
use crate::contract::Header;
use crate::reliable::{Receiver, Sender};
use crate::verbs::AddressHandle;
use fastpath_base::sync::{AtomicU32, Ordering};
use fastpath_bootstrap::segment::{STATE_SLEEPING, has_left};
use std::sync::Arc;

/// A packet that has arrived and whose turn has not come.
pub(super) struct Kept {
    pub kind: DatagramKind,
    pub total: u32,
    pub body: Body,
}

/// Where the stream of a packet lies.
pub(super) enum Body {
    /// In a receive buffer: its number, bytes.
    Slot(u32, u32),
    /// In memory of its own, because receive buffers were scarce.
    Copied(Vec<u8>),
}

/// A message of several packets, or a part of it.
pub(super) struct Assembly {
    /// Header and payload.
    pub data: Vec<u8>,
    pub total: usize,
}

impl Assembly {
    pub fn is_whole(&self) -> bool {
        self.data.len() == self.total
    }

    /// Header and payload of a whole one.
    pub fn message(&self) -> Option<(Header, &[u8])> {
        split_stream(&self.data)
    }
}

/// Where the peer is.
pub(super) struct Far {
    pub qpn: u32,
    pub qkey: u32,
    pub link: u32,
    pub token: u32,
    pub handle: Arc<AddressHandle>,
}

/// One peer.
pub(super) struct Link {
    pub stage: Stage,
    /// What its packets must carry.
    pub token: u32,
    pub far: Option<Far>,
    /// Bytes of a stream in one packet.
    pub chunk: usize,
    pub window: u32,
    pub sender: Sender<Packet>,
    pub receiver: Receiver<Kept>,
    /// The message of several packets whose turn it is: whole, or being put together.
    pub assembly: Option<Assembly>,
    /// Packets taken since the peer was last told.
    pub owed: u32,
    /// When it is to be told at the latest; 0 where that has not been decided.
    pub ack_due_ns: u64,
    /// Since when something is under way and nothing was heard of the peer; 0 where nothing is.
    pub silent_since_ns: u64,
    /// How often in a row the peer waited in the library and answered nothing; when it was looked last, and of which
    /// silence.
    pub unanswered: u32,
    pub looked_ns: u64,
    pub silence_ns: u64,
    /// Whether it is among those whose time is watched.
    pub busy: bool,
    /// Whether it is among those that are to be told at once.
    pub urgent: bool,
    /// Says whether the peer has left the job, where there is such a word.
    pub state: Option<&'static AtomicU32>,
    /// Grows while the peer looks for arrivals and finds none, where there is such a word; and what it was when it was
    /// read.
    pub polls: Option<&'static AtomicU32>,
    pub seen_polls: u32,
}

impl Link {
    /// Whether the peer has left the job, as far as something says so.
    pub fn has_left(&self) -> bool {
        self.state.is_some_and(|state| has_left(state.load(Ordering::Relaxed)))
    }

    /// Whether the peer waits in the library, as far as something says so: it sleeps there, or has looked for arrivals
    /// since this was last asked. Then it answers within a second.
    pub fn is_waiting(&mut self) -> bool {
        let polls = self.polls.map_or(0, |polls| polls.load(Ordering::Relaxed));
        let looked = std::mem::replace(&mut self.seen_polls, polls) != polls;
        let asleep = |state: &AtomicU32| state.load(Ordering::Relaxed) == STATE_SLEEPING;
        looked || self.state.is_some_and(asleep)
    }

    /// Whether a message lies here whose turn it is.
    #[inline]
    pub fn has_message(&self) -> bool {
        match &self.assembly {
            Some(assembly) => assembly.is_whole(),
            None => self.receiver.look().is_some_and(|kept| kept.kind != DatagramKind::Last),
        }
    }

    /// Whether all messages of the peer have been taken, and it has said that no more come this way.
    pub fn has_last(&self) -> bool {
        let last = |kept: &Kept| kept.kind == DatagramKind::Last;
        self.assembly.is_none() && self.receiver.look().is_some_and(last)
    }
}

// One for each peer that is talked to.
const _: () = assert!(size_of::<Link>() <= 384);
