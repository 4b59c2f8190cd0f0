//! What travels: addresses of queue pairs, and packets.
//!
//! A message is one packet, or several of which all but the last are full. The immediate data of each says which part
//! of a message it is ([`PacketKind`]) and gives receive buffers back:
//!
//! ```text
//! bits 24..32   receive buffers that the sender of this packet has emptied since it last said so
//! bits 21..24   PacketKind
//! bits  0..21   of a First: bytes of the whole message's payload
//! ```
//!
//! A Whole and a First begin with the message's header, 16 bytes; the others are payload only. A HeaderElided has the
//! header of the last Whole: with a header of its own, a payload of whole packets of the network would need one more.

pub(super) use super::super::wire::{HEADER, LARGEST, decode_header, encode_header};
use crate::contract::{ADDRESS_BYTES, Address};
use crate::verbs::path::{PORT_ADDRESS_BYTES, PortAddress};

/// Bytes of payload in one packet at most: 16 KiB, and what the layer above puts before them.
pub(super) const PACKET: usize = 16 * 1024 + 64;
/// Packets of one connection that may lie at its receiver at most: what fits the immediate data.
pub(super) const WINDOW_MOST: u32 = 255;

/// Bits of the immediate data for a length.
const TOTAL_BITS: u32 = 21;
const _: () = assert!(LARGEST < 1 << TOTAL_BITS);

/// Which part of a message a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PacketKind {
    /// A message in one packet.
    Whole = 0,
    /// The first of several.
    First = 1,
    /// Any further one.
    More = 2,
    /// No message: buffers are given back.
    Credits = 3,
    /// A message in one packet, without its header.
    HeaderElided = 4,
}

/// The immediate data of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tag {
    pub kind: PacketKind,
    pub credits: u32,
    pub total: u32,
}

impl Tag {
    pub fn encode(self) -> u32 {
        debug_assert!(self.credits <= WINDOW_MOST && self.total < 1 << TOTAL_BITS);
        self.credits << 24 | (self.kind as u32) << TOTAL_BITS | self.total
    }

    /// What a peer wrote; `None` where that is no packet of ours.
    pub fn decode(word: u32) -> Option<Self> {
        let kind = match word >> TOTAL_BITS & 7 {
            0 => PacketKind::Whole,
            1 => PacketKind::First,
            2 => PacketKind::More,
            3 => PacketKind::Credits,
            4 => PacketKind::HeaderElided,
            _ => return None,
        };
        Some(Tag { kind, credits: word >> 24, total: word & ((1 << TOTAL_BITS) - 1) })
    }
}

/// Packets of a message with so many bytes of payload.
#[inline]
pub(super) fn packets(len: usize) -> u32 {
    match len {
        0..=PACKET => 1,
        _ => len.div_ceil(PACKET) as u32,
    }
}

/// Says which form of address and packets this is.
const VERSION: u8 = 3;
const BYTES: usize = 8 + PORT_ADDRESS_BYTES;
const _: () = assert!(BYTES <= ADDRESS_BYTES);

/// Where one end of a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PairAddress {
    /// Number of the queue pair, 24 bits.
    pub qpn: u32,
    /// Sequence number of its first packet, 24 bits.
    pub psn: u32,
    /// Packets that may lie there untaken, 1 to [`WINDOW_MOST`].
    pub window: u32,
    /// Its port.
    pub port: PortAddress,
}

impl PairAddress {
    pub fn encode(&self) -> Address {
        let mut bytes = [0; BYTES];
        bytes[0] = VERSION;
        bytes[1..4].copy_from_slice(&self.qpn.to_le_bytes()[..3]);
        bytes[4..7].copy_from_slice(&self.psn.to_le_bytes()[..3]);
        bytes[7] = self.window as u8;
        bytes[8..].copy_from_slice(&self.port.encode());
        Address::new(&bytes).unwrap_or_default()
    }

    /// What a peer wrote; `None` where that is no address.
    pub fn decode(address: &Address) -> Option<Self> {
        let bytes: &[u8; BYTES] = address.as_slice().try_into().ok()?;
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], 0]);
        let right = bytes[0] == VERSION && bytes[7] != 0;
        right.then_some(PairAddress {
            qpn: number(1),
            psn: number(4),
            window: bytes[7] as u32,
            port: PortAddress::decode(&bytes[8..])?,
        })
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn tag__survives_the_wire() {
        for kind in [
            PacketKind::Whole,
            PacketKind::First,
            PacketKind::More,
            PacketKind::Credits,
            PacketKind::HeaderElided,
        ] {
            for credits in [0, 1, WINDOW_MOST] {
                for total in [0, 1, LARGEST as u32, (1 << TOTAL_BITS) - 1] {
                    let tag = Tag { kind, credits, total };
                    assert_eq!(Tag::decode(tag.encode()), Some(tag));
                }
            }
        }
        for unknown in 5..8 {
            assert_eq!(Tag::decode(unknown << TOTAL_BITS), None);
        }
    }

    #[test]
    fn packets__of_boundaries() {
        let counts = [0, 1, PACKET, PACKET + 1, LARGEST].map(packets);
        assert_eq!(counts, [1, 1, 1, 2, 2]);
    }

    #[test]
    fn fuzz__address_is_understood_or_refused() {
        crate::verbs::fake::set_conditions(Default::default());
        let context = crate::verbs::fake::open();
        let port = crate::verbs::LocalPort::choose(&context, None).unwrap().address();
        let address = PairAddress { qpn: 0x12_3456, psn: 0xff_ffff, window: 64, port };
        assert_eq!(PairAddress::decode(&address.encode()), Some(address));
        let good = address.encode();
        for at in 0..good.as_slice().len() {
            for value in [0, 1, 2, 0x7f, 0xff] {
                let mut bytes = good.as_slice().to_vec();
                bytes[at] = value;
                if let Some(read) = PairAddress::decode(&Address::new(&bytes).unwrap()) {
                    assert!(read.window > 0 && read.qpn < 1 << 24);
                }
            }
        }
        assert_eq!(PairAddress::decode(&Address::new(&good.as_slice()[1..]).unwrap()), None);
        assert_eq!(PairAddress::decode(&Address::default()), None);
    }
}
