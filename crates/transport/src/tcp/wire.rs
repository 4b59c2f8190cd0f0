//! Wire format after the greeting: a sequence of frames.

use crate::contract::{ADDRESS_BYTES, Address, Header};
use fastpath_segment::RankPhase;

pub(super) const HEAD: usize = 24;
pub(super) const PAYLOAD_MOST: usize = 64 * 1024;
pub(super) const BULK_MOST: usize = 256 * 1024;

const MESSAGE: u8 = 0;
const PHASE: u8 = 1;
const BULK: u8 = 2;
const WIREUP: u8 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TcpFrame {
    Message(Header, usize),
    /// Active message whose receiver has a buffer for it, so it may be streamed: its header and its payload bytes.
    Bulk(Header, usize),
    /// Phase of the sender in leaving the job; no payload.
    Phase(RankPhase),
    Wireup(WireupHead, usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WireupHead {
    pub step: u8,
    /// Number of the sender's adapter transport; 0 if it has only sockets.
    pub by: u8,
    /// Whether the sender has also sent this message as a datagram of its adapter.
    pub also: bool,
}

pub(crate) type ReceivedWireup = (u32, WireupHead, Address);

impl WireupHead {
    pub fn plain(step: u8, by: u8) -> Self {
        let also = false;
        WireupHead { step, by, also }
    }
}

impl TcpFrame {
    pub fn total(&self) -> usize {
        match self {
            TcpFrame::Message(_, len) | TcpFrame::Bulk(_, len) | TcpFrame::Wireup(_, len) => {
                HEAD + len
            }
            TcpFrame::Phase(_) => HEAD,
        }
    }

    /// Encodes the head, in little endian: length, id, kind, aux, imm, zero, key.
    pub fn encode(&self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        match *self {
            TcpFrame::Message(header, len) | TcpFrame::Bulk(header, len) => {
                let Header { id, imm, key, aux } = header;
                head[..4].copy_from_slice(&(len as u32).to_le_bytes());
                let is_bulk = matches!(self, TcpFrame::Bulk(..));
                (head[4], head[5]) = (id, if is_bulk { BULK } else { MESSAGE });
                head[6..8].copy_from_slice(&aux.to_le_bytes());
                head[8..12].copy_from_slice(&imm.to_le_bytes());
                head[16..].copy_from_slice(&key.to_le_bytes());
            }
            TcpFrame::Phase(phase) => (head[4], head[5]) = (phase as u8, PHASE),
            TcpFrame::Wireup(WireupHead { step, by, also }, len) => {
                (head[0], head[4], head[5]) = (len as u8, step, WIREUP);
                (head[6], head[7]) = (by, also.into());
            }
        }
        head
    }

    pub fn decode(head: &[u8; HEAD]) -> Option<TcpFrame> {
        let [l0, l1, l2, l3, id, kind, a0, a1, i0, i1, i2, i3, 0, 0, 0, 0, key @ ..] = *head else {
            return None;
        };
        let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        let (aux, imm) = (u16::from_le_bytes([a0, a1]), u32::from_le_bytes([i0, i1, i2, i3]));
        let key = u64::from_le_bytes(key);
        match kind {
            MESSAGE if len <= PAYLOAD_MOST => {
                Some(TcpFrame::Message(Header { id, imm, key, aux }, len))
            }
            BULK if len <= BULK_MOST => Some(TcpFrame::Bulk(Header { id, imm, key, aux }, len)),
            PHASE if (len, aux, imm, key) == (0, 0, 0, 0) => {
                let phases = [RankPhase::Silent, RankPhase::Settled, RankPhase::Finalized];
                let phase = phases.into_iter().find(|&phase| phase as u8 == id)?;
                Some(TcpFrame::Phase(phase))
            }
            WIREUP if len <= ADDRESS_BYTES && (imm, key) == (0, 0) && a1 <= 1 => {
                let (step, by, also) = (id, a0, a1 == 1);
                Some(TcpFrame::Wireup(WireupHead { step, by, also }, len))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn wireup(step: u8, by: u8, also: bool) -> WireupHead {
        WireupHead { step, by, also }
    }

    #[test]
    fn frames__round_trip() {
        let header = Header { aux: 0xbeef, ..Header::new(0xff, u32::MAX - 1, u64::MAX - 2) };
        for frame in [
            TcpFrame::Message(header, PAYLOAD_MOST),
            TcpFrame::Message(Header::default(), 0),
            TcpFrame::Bulk(header, BULK_MOST),
            TcpFrame::Phase(RankPhase::Silent),
            TcpFrame::Phase(RankPhase::Finalized),
            TcpFrame::Wireup(wireup(0x12, 3, true), ADDRESS_BYTES),
            TcpFrame::Wireup(wireup(1, 0, false), 0),
        ] {
            assert_eq!(TcpFrame::decode(&frame.encode()), Some(frame));
        }
    }

    #[test]
    fn decode__refuses_what_no_peer_writes() {
        let good = TcpFrame::Message(Header::default(), 1).encode();
        let changed = |at: usize, to: u8| {
            let mut head = good;
            head[at] = to;
            TcpFrame::decode(&head)
        };
        assert!(changed(0, 9).is_some());
        for (at, to) in [(3, 1), (5, 4), (5, PHASE), (12, 1), (15, 1)] {
            assert_eq!(changed(at, to), None, "byte {at}");
        }
        let mut long = TcpFrame::Wireup(wireup(1, 1, false), ADDRESS_BYTES).encode();
        long[0] += 1;
        assert_eq!(TcpFrame::decode(&long), None);
    }
}
