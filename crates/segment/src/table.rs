//! Table of the ranks of a job on several nodes: a rank's place, or its network address.

use crate::card::Card;
#[cfg(not(feature = "loom"))]
use crate::layout::ENTRY_BYTES;
use crate::layout::{CARD_BYTES, MAX_RANKS};
use fastpath_base::sync::{AtomicU32, Ordering};

/// Position of the port in a card (`NetworkCard`). All other bytes are equal in the cards of a node's ranks.
const PORT: std::ops::Range<usize> = 1..3;

const ELSEWHERE: u32 = u32::MAX;
const GONE: u32 = u32::MAX - 1;
const ENDED: u32 = u32::MAX - 2;
const DIED: u32 = u32::MAX - 3;

/// Location of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankLocation {
    /// In this memory, at the given place.
    Here(usize),
    /// On another node.
    Elsewhere,
    /// On another node, and given up.
    Gone,
    /// At no place: the rank has finalized MPI and ended, and its place may be another rank's.
    Ended,
    /// At no place: the rank has died, and its place may be another rank's.
    Died,
    /// Unknown: the rank does not exist yet.
    Unknown,
}

/// Table entry of a rank. All zeros before the rank exists.
#[repr(C)]
#[derive(Debug)]
pub struct RankEntry {
    /// Place of the rank plus 1, or a mark ([`ELSEWHERE`], [`GONE`], [`ENDED`], [`DIED`]); 0 until the rank is added.
    place: AtomicU32,
    host: AtomicU32,
    /// Number of the card with the addresses, plus 1; 0 until the card is known.
    card: AtomicU32,
    /// Port of the rank, in the byte order of a card.
    port: AtomicU32,
}

/// Common part of the cards of several ranks: the bytes of one card, without its port.
pub type Common = Card<24>;

#[cfg(not(feature = "loom"))]
const _: () = {
    assert!(size_of::<RankEntry>() == ENTRY_BYTES);
    assert!(size_of::<Common>() == CARD_BYTES);
};

impl RankEntry {
    /// Returns the location of the rank. A value that is never written counts as unknown.
    pub fn place(&self) -> RankLocation {
        // ORDERING: partner is the release store in `set_place`.
        match self.place.load(Ordering::Acquire) {
            ELSEWHERE => RankLocation::Elsewhere,
            GONE => RankLocation::Gone,
            ENDED => RankLocation::Ended,
            DIED => RankLocation::Died,
            place if (1..=MAX_RANKS as u32).contains(&place) => {
                RankLocation::Here(place as usize - 1)
            }
            _ => RankLocation::Unknown,
        }
    }

    /// Stores the location of the rank. A new rank becomes visible only by a later store to `JobHeader::present`.
    pub fn set_place(&self, at: RankLocation) {
        let place = match at {
            RankLocation::Here(place) => place as u32 + 1,
            RankLocation::Elsewhere => ELSEWHERE,
            RankLocation::Gone => GONE,
            RankLocation::Ended => ENDED,
            RankLocation::Died => DIED,
            RankLocation::Unknown => 0,
        };
        // ORDERING: publishes the page that represents the rank from now on; partner is the acquire load in `place`.
        self.place.store(place, Ordering::Release);
    }

    pub fn host(&self) -> u32 {
        self.host.load(Ordering::Relaxed)
    }

    pub fn set_host(&self, host: u32) {
        self.host.store(host, Ordering::Relaxed);
    }

    /// Returns the number of the card, and the port.
    pub fn card(&self) -> Option<(usize, [u8; 2])> {
        // ORDERING: partner is the release store in `set_card`.
        let card = self.card.load(Ordering::Acquire).checked_sub(1)?;
        let port = self.port.load(Ordering::Relaxed) as u16;
        Some((card as usize, port.to_be_bytes()))
    }

    /// Stores the number of the rank's card, and the port.
    pub fn set_card(&self, card: usize, port: [u8; 2]) {
        let port = u16::from_be_bytes(port);
        self.port.store(u32::from(port), Ordering::Relaxed);
        // ORDERING: publishes the port, and the card's bytes; partner is the acquire load in `card`.
        self.card.store(card as u32 + 1, Ordering::Release);
    }
}

/// Splits a card into the card without its port, and the port; `None` if the length is not that of a card.
pub fn split_card(card: &[u8]) -> Option<(Vec<u8>, [u8; 2])> {
    let port = card.get(PORT)?.try_into().ok()?;
    let mut common = card.to_vec();
    common[PORT].fill(0);
    (card.len() <= CARD_BYTES - 8).then_some((common, port))
}

/// Joins a card and its port; see [`split_card`].
pub fn join_card(mut common: Vec<u8>, port: [u8; 2]) -> Option<Vec<u8>> {
    common.get_mut(PORT)?.copy_from_slice(&port);
    Some(common)
}
