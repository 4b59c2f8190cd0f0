//! Wire format: addresses of queue pairs, and packets.
//!
//! A message is one packet, or several, all full except the last. The immediate data of each packet holds the packet's
//! place in the message ([`PacketKind`]), and returns credits:
//!
//! ```text
//! bits 24..32   receive buffers that the sender of this packet has emptied since its last report
//! bits 21..24   PacketKind
//! bits  0..21   of a First: bytes of the whole message's payload
//! ```
//!
//! A `Whole` and a `First` begin with the message's header of 16 bytes. Other kinds of packets have only payload. The
//! header of a `HeaderElided` equals that of the last `Whole`. Omitting the header saves a network packet if the
//! payload exactly fills network packets.

pub(super) use super::super::wire::{HEADER, LARGEST, decode_header, encode_header};
use crate::contract::{ADDRESS_BYTES, Address};
use crate::verbs::path::{PORT_ADDRESS_BYTES, PortAddress};

pub(super) const PACKET: usize = 16 * 1024 + 64;
pub(super) const WINDOW_MOST: u32 = 255;

const TOTAL_BITS: u32 = 21;
const _: () = assert!(LARGEST < 1 << TOTAL_BITS);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PacketKind {
    Whole = 0,
    First = 1,
    More = 2,
    Credits = 3,
    HeaderElided = 4,
}

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

#[inline]
pub(super) fn packets(len: usize) -> u32 {
    match len {
        0..=PACKET => 1,
        _ => len.div_ceil(PACKET) as u32,
    }
}

const VERSION: u8 = 3;
const BYTES: usize = 8 + PORT_ADDRESS_BYTES;
const _: () = assert!(BYTES <= ADDRESS_BYTES);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PairAddress {
    pub qpn: u32,
    pub psn: u32,
    pub window: u32,
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
