//! WireupDatagrams: datagrams outside of any connection, by which connections are made. They may be lost, doubled and
//! overtaken.
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
#![allow(unsafe_code)]

use super::iface::Core;
use super::pool::Packet;
use super::wire::{HEAD, LinkAddress, VERSION};
use crate::contract::{ADDRESS_BYTES, Address};
use crate::verbs::{Operation, PortAddress, VerbsError};

const MARK: u8 = VERSION << 4 | 0xf;
const BEFORE: usize = 16;
const MOST: usize = BEFORE + ADDRESS_BYTES;
/// WireupDatagrams that wait to be read at most; those who wrote what is dropped ask again.
const KEPT: usize = 1024;

/// What somebody who knows the job's secret has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireupDatagram {
    /// The queue pair it came from.
    pub qpn: u32,
    /// The rank that its writer says it is.
    pub rank: u32,
    /// The step of the wire-up.
    pub step: u8,
    /// The address.
    pub address: Address,
}

impl WireupDatagram {
    /// As it travels, and how many bytes of it count; at least those of a packet's head.
    fn encode(&self, secret: u64) -> ([u8; MOST], usize) {
        let mut bytes = [0; MOST];
        let address = self.address.as_slice();
        bytes[..3].copy_from_slice(&[MARK, self.step, address.len() as u8]);
        bytes[4..8].copy_from_slice(&self.rank.to_le_bytes());
        bytes[8..16].copy_from_slice(&secret.to_le_bytes());
        bytes[BEFORE..BEFORE + address.len()].copy_from_slice(address);
        (bytes, (BEFORE + address.len()).max(HEAD))
    }

    /// What arrived from queue pair `qpn`; `None` for what is no wireup_datagram, or carries another secret.
    fn decode(bytes: &[u8], qpn: u32, secret: u64) -> Option<Self> {
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

/// What peers must know to write wireup datagrams to a queue pair: no connection is named.
pub(super) fn iface_address(qpn: u32, qkey: u32, port: PortAddress) -> Address {
    let nobody = LinkAddress { qpn, qkey, link: 0, token: 0, window: 1, port };
    nobody.encode()
}

/// The number of the queue pair that an interface address names.
pub fn qpn_of(iface_address: &Address) -> Option<u32> {
    LinkAddress::decode(iface_address).map(|to| to.qpn)
}

impl Core {
    /// Keeps what has arrived if it is a wireup datagram of this job; says whether it is.
    #[cold]
    pub fn keep_wireup_datagram(&mut self, datagram: &[u8], from: u32) -> bool {
        let read = self.secret.and_then(|secret| WireupDatagram::decode(datagram, from, secret));
        let Some(wireup_datagram) = read else {
            return false;
        };
        self.counters.wireup_datagrams += 1;
        if self.wireup_datagrams.len() < KEPT {
            self.wireup_datagrams.push_back(wireup_datagram);
        }
        true
    }

    /// Sends a wireup_datagram to the queue pair that `iface_address` names; false where there is no room, or no way.
    pub fn send_wireup_datagram(
        &mut self, iface_address: &Address, wireup_datagram: &WireupDatagram,
    ) -> Result<bool, VerbsError> {
        let (Some(to), Some(secret)) = (LinkAddress::decode(iface_address), self.secret) else {
            return Ok(false);
        };
        let (handle, _) = self.ways.find(&self.port, &to.port)?;
        if self.lost || (self.sends.room() == 0 && !self.make_queue_room(1)) {
            return Ok(false);
        }
        let Some(slot) = self.take_slot(false, 1) else {
            return Ok(false);
        };
        let (bytes, len) = wireup_datagram.encode(secret);
        let packet = Packet::alone(slot, len - HEAD);
        let (segments, count) = self.pool.write_wireup_datagram(&packet, &bytes[..len]);
        self.pool.note_post(slot, self.sends.posted);
        let operation =
            Operation::Datagram { ah: &handle, qpn: to.qpn, qkey: to.qkey, immediate: None };
        let (flags, id) = (self.next_flags(), self.sends.posted as u64);
        // SAFETY: the buffer stays as it is until the send is known to be done.
        let outcome = unsafe {
            let (pair, request) = (&self.pair, &mut self.request);
            pair.post_patched(request, id, &operation, &segments[..count], flags)
        };
        let posted = self.note_posted(flags, outcome);
        // Nobody waits for it: the buffer is free when the send is done.
        self.pool.release(slot, self.sends.done);
        Ok(posted)
    }
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
