//! Wire format: addresses of queue pairs, and packets.
//!
//! A message is a stream of its header, 16 bytes, and its payload. The stream is split into packets, all full except
//! the last. Each packet begins with a head of 32 bytes, all numbers little-endian:
//!
//! ```text
//!  0       version (high half) and kind
//!  1..4    0
//!  4..8    number of the connection at the receiver
//!  8..12   token of the connection, chosen by its receiver
//! 12..16   sequence number; 0 in an acknowledgement
//! 16..28   what the sender has received: `reliable::Ack`
//! 28..32   of a First: bytes of the whole stream; else 0
//! ```

pub(super) use super::super::wire::{HEADER, LARGEST, SHORT_LEAST, encode_header};
use crate::contract::{ADDRESS_BYTES, Address, Header};
use crate::reliable::Ack;
use crate::verbs::path::{PORT_ADDRESS_BYTES, PortAddress};

/// Bytes that an adapter writes before each datagram: the sender's global route, or undefined bytes.
pub(super) const GRH: usize = 40;
pub(super) const HEAD: usize = 32;
// The smallest inline size that mlx4 grants, 60 bytes, holds an acknowledgement or a message of 8 bytes.
const _: () = assert!(HEAD + HEADER + 8 <= 60);
pub(super) const STREAM: usize = HEADER + LARGEST;
/// Maximum number of packets of a message. It is reached at the smallest MTU of verbs, 256 bytes.
pub(super) const PACKETS_MOST: usize = STREAM.div_ceil(256 - HEAD);
pub(super) const WINDOW_MOST: u32 = 4096;

pub(super) const VERSION: u8 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DatagramKind {
    Whole = 0,
    First = 1,
    More = 2,
    Ack = 3,
    /// Final packet of a direction. It has a sequence number, but no message. Later messages use the reliable
    /// connection.
    Last = 4,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DatagramHead {
    pub kind: DatagramKind,
    pub link: u32,
    pub token: u32,
    pub seq: u32,
    pub ack: Ack,
    pub total: u32,
}

impl DatagramHead {
    #[inline]
    pub fn encode(&self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[0] = VERSION << 4 | self.kind as u8;
        bytes[4..8].copy_from_slice(&self.link.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.token.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.seq.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.ack.next.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.ack.held.to_le_bytes());
        bytes[28..].copy_from_slice(&self.total.to_le_bytes());
        bytes
    }

    #[inline]
    pub fn decode(packet: &[u8]) -> Option<(Self, &[u8])> {
        let (head, stream) = packet.split_first_chunk::<HEAD>()?;
        let [version, z0, z1, z2, rest @ ..] = *head;
        let word =
            |at: usize| u32::from_le_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]);
        let kind = match version ^ VERSION << 4 {
            0 => DatagramKind::Whole,
            1 => DatagramKind::First,
            2 => DatagramKind::More,
            3 => DatagramKind::Ack,
            4 => DatagramKind::Last,
            _ => return None,
        };
        let head = DatagramHead {
            kind,
            link: word(0),
            token: word(4),
            seq: word(8),
            ack: Ack { next: word(12), held: word(16) as u64 | (word(20) as u64) << 32 },
            total: word(24),
        };
        let total = head.total as usize;
        let right = match kind {
            DatagramKind::Whole => total == 0 && (HEADER..=STREAM).contains(&stream.len()),
            DatagramKind::First => {
                stream.len() >= HEADER && total > stream.len() && total <= STREAM
            }
            DatagramKind::More => total == 0 && !stream.is_empty(),
            DatagramKind::Ack => total == 0 && head.seq == 0 && stream.is_empty(),
            DatagramKind::Last => total == 0 && stream.len() == HEADER,
        };
        (right && [z0, z1, z2] == [0; 3]).then_some((head, stream))
    }
}

#[inline]
pub(super) fn packets(len: usize, chunk: usize) -> u32 {
    (HEADER + len).div_ceil(chunk) as u32
}

#[inline]
pub(super) fn split_stream(stream: &[u8]) -> Option<(Header, &[u8])> {
    let (header, payload) = stream.split_first_chunk::<HEADER>()?;
    Some((super::super::wire::decode_header(header), payload))
}

const BYTES: usize = 18 + PORT_ADDRESS_BYTES;
const _: () = assert!(BYTES <= ADDRESS_BYTES);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LinkAddress {
    pub qpn: u32,
    pub qkey: u32,
    pub link: u32,
    /// Token of the connection; also the sequence number of its first packet.
    pub token: u32,
    pub window: u32,
    pub port: PortAddress,
}

impl LinkAddress {
    pub fn encode(&self) -> Address {
        let mut bytes = [0; BYTES];
        bytes[0] = VERSION;
        bytes[1..4].copy_from_slice(&self.qpn.to_le_bytes()[..3]);
        bytes[4..8].copy_from_slice(&self.qkey.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.link.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.token.to_le_bytes());
        bytes[16..18].copy_from_slice(&(self.window as u16).to_le_bytes());
        bytes[18..].copy_from_slice(&self.port.encode());
        Address::new(&bytes).unwrap_or_default()
    }

    pub fn decode(address: &Address) -> Option<Self> {
        let bytes: &[u8; BYTES] = address.as_slice().try_into().ok()?;
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let window = u16::from_le_bytes([bytes[16], bytes[17]]) as u32;
        let right = bytes[0] == VERSION && (1..=WINDOW_MOST).contains(&window);
        right.then_some(LinkAddress {
            qpn: word(0) >> 8,
            qkey: word(4),
            link: word(8),
            token: word(12),
            window,
            port: PortAddress::decode(&bytes[18..])?,
        })
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn head(kind: DatagramKind) -> DatagramHead {
        DatagramHead {
            kind,
            link: 0x0102_0304,
            token: 0xf1f2_f3f4,
            seq: if kind == DatagramKind::Ack { 0 } else { u32::MAX },
            ack: Ack { next: 7, held: 0x8000_0000_0000_0001 },
            total: if kind == DatagramKind::First { 5000 } else { 0 },
        }
    }

    #[test]
    fn head__survives_the_wire() {
        for (kind, bytes) in [
            (DatagramKind::Whole, 16),
            (DatagramKind::First, 4064),
            (DatagramKind::More, 1),
            (DatagramKind::Ack, 0),
            (DatagramKind::Last, HEADER),
        ] {
            let mut packet = head(kind).encode().to_vec();
            packet.extend(vec![9; bytes]);
            assert_eq!(DatagramHead::decode(&packet), Some((head(kind), &vec![9; bytes][..])));
        }
    }

    #[test]
    fn head__that_contradicts_itself_is_refused() {
        let with = |head: DatagramHead, bytes: usize| {
            let mut packet = head.encode().to_vec();
            packet.extend(vec![0; bytes]);
            DatagramHead::decode(&packet).is_some()
        };
        let first = |total| DatagramHead { total, ..head(DatagramKind::First) };
        assert!(!with(head(DatagramKind::Whole), HEADER - 1), "no header");
        assert!(!with(DatagramHead { total: 1, ..head(DatagramKind::Whole) }, 100));
        assert!(!with(first(100), 100), "a First that is all");
        assert!(!with(first(STREAM as u32 + 1), 100), "too long");
        assert!(with(first(STREAM as u32), 100));
        assert!(!with(first(u32::MAX), 15));
        assert!(!with(head(DatagramKind::More), 0));
        assert!(!with(head(DatagramKind::Ack), 1));
        assert!(!with(DatagramHead { seq: 1, ..head(DatagramKind::Ack) }, 0));
    }

    #[test]
    fn packets__of_boundaries() {
        let counts = [0, 976, 977, LARGEST].map(|len| packets(len, 992));
        assert_eq!(counts, [1, 1, 2, 34]);
        assert_eq!(packets(LARGEST, 256 - HEAD) as usize, PACKETS_MOST);
    }

    proptest! {
        #[test]
        fn fuzz__packet_is_understood_or_refused(packet in prop::collection::vec(any::<u8>(), 0..120), kind in 0_u8..6) {
            let mut packet = packet;
            if let Some(first) = packet.first_mut() {
                *first = VERSION << 4 | kind;
            }
            if let Some(bytes) = packet.get_mut(1..4) {
                bytes.fill(0);
            }
            if let Some((head, stream)) = DatagramHead::decode(&packet) {
                // A decoded packet encodes to the same bytes.
                let mut again = head.encode().to_vec();
                again.extend(stream);
                prop_assert_eq!(again, packet);
                prop_assert!(head.total as usize <= STREAM);
            }
        }
    }

    #[test]
    fn fuzz__address_is_understood_or_refused() {
        crate::verbs::fake::set_conditions(Default::default());
        let context = crate::verbs::fake::open();
        let port = crate::verbs::LocalPort::choose(&context, None).unwrap().address();
        let address = LinkAddress {
            qpn: 0x12_3456,
            qkey: 0x7654_3210,
            link: 3,
            token: u32::MAX,
            window: WINDOW_MOST,
            port,
        };
        assert_eq!(LinkAddress::decode(&address.encode()), Some(address));
        let good = address.encode();
        for at in 0..good.as_slice().len() {
            for value in [0, 1, 2, 0x7f, 0xff] {
                let mut bytes = good.as_slice().to_vec();
                bytes[at] = value;
                if let Some(read) = LinkAddress::decode(&Address::new(&bytes).unwrap()) {
                    assert!((1..=WINDOW_MOST).contains(&read.window) && read.qpn < 1 << 24);
                }
            }
        }
        let short = Address::new(&good.as_slice()[1..]).unwrap();
        assert_eq!(LinkAddress::decode(&short), None);
        assert_eq!(LinkAddress::decode(&Address::default()), None);
    }
}
