//! How two ranks that share no memory find out whether their adapters reach each other. Pure.
//!
//! Each tells the other by the network where its queue pair for datagrams is. From then on each message of the wire-up
//! goes twice: as a datagram, and by the network. A datagram that comes proves the way. Where [`UNSEEN_MOST`] have come
//! by the network and none as a datagram, no way leads here.

use crate::contract::Address;

/// Messages whose datagrams have been lost, after which no other is waited for. They are sent ever later, 2 to 128 ms
/// apart: about a second passes.
pub(super) const UNSEEN_MOST: u32 = 12;

/// Time between two messages that count.
const APART_NS: u64 = 1_000_000;

/// What is known of a peer.
#[derive(Debug, Default)]
pub(super) struct Meeting {
    /// Whether the peer has been told where this rank's queue pair is.
    pub is_told: bool,
    /// Whether a datagram of the peer has come.
    pub is_proven: bool,
    /// The last message to the peer, until it is known where its queue pair is.
    pub waiting: Option<(u8, Address)>,
    /// The last step that went by the network alone: there nothing is lost, so that it need not be repeated.
    pub sent: Option<u8>,
    /// Messages that came by the network and were sent as datagrams too, and when the last one came.
    unseen: u32,
    last_ns: u64,
}

impl Meeting {
    /// A message has come by the network, and was sent as a datagram too where `also` says so. Whether no datagram can
    /// be hoped for. Those that come at once count as one: they came while this process computed, and the room for
    /// datagrams may have been full then.
    pub fn is_vain(&mut self, also: bool, now_ns: u64) -> bool {
        let is_another = self.unseen == 0 || now_ns.saturating_sub(self.last_ns) >= APART_NS;
        if also && is_another && !self.is_proven {
            self.unseen += 1;
            self.last_ns = now_ns;
        }
        !self.is_proven && self.unseen >= UNSEEN_MOST
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn way__is_vain_after_many_datagrams_that_did_not_come() {
        let mut meeting = Meeting::default();
        // What could not be sent as a datagram proves nothing.
        assert!((0..100).all(|i| !meeting.is_vain(false, i * APART_NS)));
        // Nor do many at once.
        assert!((0..100).all(|i| !meeting.is_vain(true, i)));
        let times = (2..=UNSEEN_MOST as u64).map(|i| i * APART_NS);
        let vain: Vec<bool> = times.map(|now| meeting.is_vain(true, now)).collect();
        assert_eq!(vain.iter().filter(|&&vain| vain).count(), 1);
        assert_eq!(vain.last(), Some(&true));
    }

    #[test]
    fn way__that_is_proven_is_never_vain() {
        let mut meeting = Meeting::default();
        assert!(!meeting.is_vain(true, 0));
        meeting.is_proven = true;
        assert!((0..100).all(|i| !meeting.is_vain(true, i * APART_NS)));
    }
}
