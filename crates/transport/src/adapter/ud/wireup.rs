//! Wireup datagrams on the queue pair of an interface.
#![allow(unsafe_code)]

use super::core::Core;
use super::pool::Packet;
use super::wire::{HEAD, LinkAddress};
use super::wireup_datagram::WireupDatagram;
use crate::contract::Address;
use crate::verbs::{SendOperation, VerbsError};

/// Maximum number of stored wireup datagrams. Further datagrams are dropped, and their senders repeat them.
const KEPT: usize = 1024;

impl Core {
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
            SendOperation::Datagram { ah: &handle, qpn: to.qpn, qkey: to.qkey, immediate: None };
        let (flags, id) = (self.next_flags(), self.sends.posted as u64);
        // SAFETY: the buffer is not changed until the send is known to be complete.
        let outcome = unsafe {
            let (pair, request) = (&self.pair, &mut self.request);
            pair.post_patched(request, id, &operation, &segments[..count], flags)
        };
        let posted = self.note_posted(flags, outcome);
        // No acknowledgement follows, so the buffer is free when the send completes.
        self.pool.release(slot, self.sends.done);
        Ok(posted)
    }
}
