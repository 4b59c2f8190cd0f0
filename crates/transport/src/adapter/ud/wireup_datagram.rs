//! Wireup datagrams, which establish connections and are themselves sent without one. They may be lost, duplicated or
//! reordered.
//!
//! ```text
//!  0       version (high half) and 0xf
//!  1       step of the wire-up
//!  2       bytes of the address
//!  3       0
//!  4..8    rank of the sender
//!  8..16   secret of the job
//! 16..     address
//! ```

use super::wire::{HEAD, LinkAddress, VERSION};
use crate::contract::{ADDRESS_BYTES, Address};
use crate::verbs::PortAddress;

const MARK: u8 = VERSION << 4 | 0xf;
const BEFORE: usize = 16;
const MOST: usize = BEFORE + ADDRESS_BYTES;

/// Wireup datagram whose sender knows the job's secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireupDatagram {
    /// Number of the queue pair that sent the datagram.
    pub qpn: u32,
    /// Rank that the sender claims.
    pub rank: u32,
    /// Step of the wire-up.
    pub step: u8,
    /// Address of the sender.
    pub address: Address,
}

impl WireupDatagram {
    pub(super) fn encode(&self, secret: u64) -> ([u8; MOST], usize) {
        let mut bytes = [0; MOST];
        let address = self.address.as_slice();
        bytes[..3].copy_from_slice(&[MARK, self.step, address.len() as u8]);
        bytes[4..8].copy_from_slice(&self.rank.to_le_bytes());
        bytes[8..16].copy_from_slice(&secret.to_le_bytes());
        bytes[BEFORE..BEFORE + address.len()].copy_from_slice(address);
        (bytes, (BEFORE + address.len()).max(HEAD))
    }

    pub(super) fn decode(bytes: &[u8], qpn: u32, secret: u64) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<BEFORE>()?;
        let [MARK, step, len, 0, r0, r1, r2, r3, proof @ ..] = *head else {
            return None;
        };
        if u64::from_le_bytes(proof) != secret {
            return None;
        }
        Some(WireupDatagram {
            qpn,
            rank: u32::from_le_bytes([r0, r1, r2, r3]),
            step,
            address: Address::new(rest.get(..len as usize)?)?,
        })
    }
}

pub(super) fn iface_address(qpn: u32, qkey: u32, port: PortAddress) -> Address {
    LinkAddress { qpn, qkey, link: 0, token: 0, window: 1, port }.encode()
}

/// Queue pair number of an interface address; `None` if the address is invalid.
pub fn qpn_of(iface_address: &Address) -> Option<u32> {
    LinkAddress::decode(iface_address).map(|to| to.qpn)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wireup_datagram(len: usize) -> WireupDatagram {
        WireupDatagram {
            qpn: 77,
            rank: 0x0102_0304,
            step: 2,
            address: Address::new(&vec![9; len]).unwrap(),
        }
    }

    #[test]
    fn wireup_datagram__survives_the_wire() {
        for len in [0, 1, 20, ADDRESS_BYTES] {
            let (bytes, used) = wireup_datagram(len).encode(u64::MAX - 3);
            assert!((HEAD..=MOST).contains(&used));
            let read = WireupDatagram::decode(&bytes[..used], 77, u64::MAX - 3);
            assert_eq!(read, Some(wireup_datagram(len)));
        }
    }

    #[test]
    fn wireup_datagram__without_the_secret_is_nothing() {
        let (bytes, used) = wireup_datagram(30).encode(5);
        assert_eq!(WireupDatagram::decode(&bytes[..used], 77, 6), None);
        assert_eq!(WireupDatagram::decode(&bytes[..40], 77, 5), None, "cut short");
    }

    proptest! {
        #[test]
        fn fuzz__wireup_datagram_is_understood_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..120), marked: bool) {
            if let (Some(first), true) = (bytes.first_mut(), marked) {
                *first = MARK;
            }
            let secret = bytes.get(8..16).map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap()));
            if let Some(read) = WireupDatagram::decode(&bytes, 1, secret) {
                let (again, used) = read.encode(secret);
                let len = (BEFORE + read.address.as_slice().len()).min(used);
                prop_assert_eq!(&again[..len], &bytes[..len]);
            }
        }
    }
}
