//! What travels on a connection after the greeting: frames, one after the other.

use crate::contract::{ADDRESS_BYTES, Header};
use fastpath_bootstrap::segment::Phase;

/// Bytes before each payload.
pub(super) const HEAD: usize = 24;
/// Longest payload, in bytes.
pub(super) const PAYLOAD_MOST: usize = 64 * 1024;
/// Longest payload of what is taken as it comes, in bytes: other messages to the same peer wait for the end of it.
pub(super) const BULK_MOST: usize = 256 * 1024;

const MESSAGE: u8 = 0;
const PHASE: u8 = 1;
const BULK: u8 = 2;
const WIREUP: u8 = 3;

/// What a head says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frame {
    /// An active message, and the length of its payload in bytes.
    Message(Header, usize),
    /// The same of a message whose receiver has a place for it: it may be taken as it comes.
    Bulk(Header, usize),
    /// How far the sender has come with leaving the job; no payload.
    Phase(Phase),
    /// A message of the wire-up of an adapter's lane, and the length of its address in bytes.
    Wireup(WireupHead, usize),
}

/// What a message of the wire-up says beside its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WireupHead {
    /// The step of the state machine.
    pub step: u8,
    /// A number for the transport that the sender's lane is of; 0: it has none but this connection.
    pub by: u8,
    /// It has been sent by the adapter too.
    pub also: bool,
}

impl WireupHead {
    /// One that goes by the network alone.
    pub fn plain(step: u8, by: u8) -> Self {
        let also = false;
        WireupHead { step, by, also }
    }
}

impl Frame {
    /// Bytes of head and payload.
    pub fn total(&self) -> usize {
        match self {
            Frame::Message(_, len) | Frame::Bulk(_, len) | Frame::Wireup(_, len) => HEAD + len,
            Frame::Phase(_) => HEAD,
        }
    }

    /// The head, in little endian: length, id, kind, aux, imm, zero, key.
    pub fn encode(&self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        match *self {
            Frame::Message(header, len) | Frame::Bulk(header, len) => {
                let Header { id, imm, key, aux } = header;
                head[..4].copy_from_slice(&(len as u32).to_le_bytes());
                let is_bulk = matches!(self, Frame::Bulk(..));
                (head[4], head[5]) = (id, if is_bulk { BULK } else { MESSAGE });
                head[6..8].copy_from_slice(&aux.to_le_bytes());
                head[8..12].copy_from_slice(&imm.to_le_bytes());
                head[16..].copy_from_slice(&key.to_le_bytes());
            }
            Frame::Phase(phase) => (head[4], head[5]) = (phase as u8, PHASE),
            Frame::Wireup(WireupHead { step, by, also }, len) => {
                (head[0], head[4], head[5]) = (len as u8, step, WIREUP);
                (head[6], head[7]) = (by, also.into());
            }
        }
        head
    }

    /// What a head says; `None` for what no peer of this release writes.
    pub fn decode(head: &[u8; HEAD]) -> Option<Frame> {
        let [l0, l1, l2, l3, id, kind, a0, a1, i0, i1, i2, i3, 0, 0, 0, 0, key @ ..] = *head else {
            return None;
        };
        let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        let (aux, imm) = (u16::from_le_bytes([a0, a1]), u32::from_le_bytes([i0, i1, i2, i3]));
        let key = u64::from_le_bytes(key);
        match kind {
            MESSAGE if len <= PAYLOAD_MOST => {
                Some(Frame::Message(Header { id, imm, key, aux }, len))
            }
            BULK if len <= BULK_MOST => Some(Frame::Bulk(Header { id, imm, key, aux }, len)),
            PHASE if (len, aux, imm, key) == (0, 0, 0, 0) => {
                let phases = [Phase::Silent, Phase::Settled, Phase::Finalized];
                let phase = phases.into_iter().find(|&phase| phase as u8 == id)?;
                Some(Frame::Phase(phase))
            }
            WIREUP if len <= ADDRESS_BYTES && (imm, key) == (0, 0) && a1 <= 1 => {
                let (step, by, also) = (id, a0, a1 == 1);
                Some(Frame::Wireup(WireupHead { step, by, also }, len))
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
            Frame::Message(header, PAYLOAD_MOST),
            Frame::Message(Header::default(), 0),
            Frame::Bulk(header, BULK_MOST),
            Frame::Phase(Phase::Silent),
            Frame::Phase(Phase::Finalized),
            Frame::Wireup(wireup(0x12, 3, true), ADDRESS_BYTES),
            Frame::Wireup(wireup(1, 0, false), 0),
        ] {
            assert_eq!(Frame::decode(&frame.encode()), Some(frame));
        }
    }

    #[test]
    fn decode__refuses_what_no_peer_writes() {
        let good = Frame::Message(Header::default(), 1).encode();
        let changed = |at: usize, to: u8| {
            let mut head = good;
            head[at] = to;
            Frame::decode(&head)
        };
        assert!(changed(0, 9).is_some());
        for (at, to) in [(3, 1), (5, 4), (5, PHASE), (12, 1), (15, 1)] {
            assert_eq!(changed(at, to), None, "byte {at}");
        }
        let mut long = Frame::Wireup(wireup(1, 1, false), ADDRESS_BYTES).encode();
        long[0] += 1;
        assert_eq!(Frame::decode(&long), None);
    }
}
