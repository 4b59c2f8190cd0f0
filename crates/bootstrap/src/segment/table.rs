//! What a node's memory holds of each rank of a job on several nodes: its place, or how it is reached.

use super::card::Card;
#[cfg(not(feature = "loom"))]
use super::layout::ENTRY_BYTES;
use super::layout::{CARD_BYTES, MAX_RANKS};
use fastpath_base::sync::{AtomicU32, Ordering};

/// Where the port is in a card (`NetworkCard`): all else the ranks of a node have in common.
const PORT: std::ops::Range<usize> = 1..3;

/// A rank of another node, in place of its place.
const ELSEWHERE: u32 = u32::MAX;
/// A rank of another node that is not wanted any more.
const GONE: u32 = u32::MAX - 1;
/// A rank that had finalized MPI when its place was taken from it.
const ENDED: u32 = u32::MAX - 2;
/// A rank that had died before its place was taken from it.
const DIED: u32 = u32::MAX - 3;

/// Where a rank is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Here, at that place.
    Here(usize),
    /// On another node.
    Elsewhere,
    /// There, and it is not wanted any more.
    Gone,
    /// Nowhere: it has finalized MPI and ended, and its place may be another rank's.
    Ended,
    /// Nowhere: it has died, and its place may be another rank's.
    Died,
    /// That is not known: there is no such rank yet.
    Unknown,
}

/// A rank of the job. All zeros before it is there.
#[repr(C)]
#[derive(Debug)]
pub struct Entry {
    /// Place of the rank plus 1, [`ELSEWHERE`], [`GONE`], [`ENDED`] or [`DIED`]; 0 until the rank is added.
    place: AtomicU32,
    /// Number of its host.
    host: AtomicU32,
    /// Number of the card with its addresses, plus 1; 0 until it has one.
    card: AtomicU32,
    /// The port that it listens on, as it is in a card.
    port: AtomicU32,
}

/// What the cards of several ranks have in common: the bytes of one, whose port does not count.
pub type Common = Card<24>;

#[cfg(not(feature = "loom"))]
const _: () = {
    assert!(size_of::<Entry>() == ENTRY_BYTES);
    assert!(size_of::<Common>() == CARD_BYTES);
};

impl Entry {
    /// Where the rank is. A value that is never written counts as unknown.
    pub fn place(&self) -> At {
        // ORDERING: partner is the release store in `set_place`.
        match self.place.load(Ordering::Acquire) {
            ELSEWHERE => At::Elsewhere,
            GONE => At::Gone,
            ENDED => At::Ended,
            DIED => At::Died,
            place if (1..=MAX_RANKS as u32).contains(&place) => At::Here(place as usize - 1),
            _ => At::Unknown,
        }
    }

    /// Says where the rank is. It is published by what says that the rank is there.
    pub fn set_place(&self, at: At) {
        let place = match at {
            At::Here(place) => place as u32 + 1,
            At::Elsewhere => ELSEWHERE,
            At::Gone => GONE,
            At::Ended => ENDED,
            At::Died => DIED,
            At::Unknown => 0,
        };
        // ORDERING: publishes the page that stands for the rank from now on; partner is the acquire load in `place`.
        self.place.store(place, Ordering::Release);
    }

    /// Number of the host of a rank that is elsewhere.
    pub fn host(&self) -> u32 {
        self.host.load(Ordering::Relaxed)
    }

    /// Writes it.
    pub fn set_host(&self, host: u32) {
        self.host.store(host, Ordering::Relaxed);
    }

    /// Number of the card, and the port.
    pub fn card(&self) -> Option<(usize, [u8; 2])> {
        // ORDERING: partner is the release store in `set_card`.
        let card = self.card.load(Ordering::Acquire).checked_sub(1)?;
        let port = self.port.load(Ordering::Relaxed) as u16;
        Some((card as usize, port.to_be_bytes()))
    }

    /// Says which card holds for the rank, but for its port.
    pub fn set_card(&self, card: usize, port: [u8; 2]) {
        let port = u16::from_be_bytes(port);
        self.port.store(u32::from(port), Ordering::Relaxed);
        // ORDERING: publishes the port, and the card's bytes; partner is the acquire load in `card`.
        self.card.store(card as u32 + 1, Ordering::Release);
    }
}

/// A card's port, and the card without it; None for what is too short or too long to be one.
pub fn split_card(card: &[u8]) -> Option<(Vec<u8>, [u8; 2])> {
    let port = card.get(PORT)?.try_into().ok()?;
    let mut common = card.to_vec();
    common[PORT].fill(0);
    (card.len() <= CARD_BYTES - 8).then_some((common, port))
}

/// The reverse.
pub fn join_card(mut common: Vec<u8>, port: [u8; 2]) -> Option<Vec<u8>> {
    common.get_mut(PORT)?.copy_from_slice(&port);
    Some(common)
}
