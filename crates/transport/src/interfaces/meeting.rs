//! Test whether the adapters of two ranks on different nodes reach each other. No I/O.
//!
//! Each rank sends the address of its datagram queue pair through a socket. Then each wire-up message is sent twice: as
//! a datagram, and through the socket. A datagram that arrives proves the path. There is no path if [`UNSEEN_MOST`]
//! messages have arrived through the socket and none as a datagram.

use crate::contract::Address;

/// This many lost datagrams prove that there is no path. They are 2 to 128 ms apart, about a second in total.
pub(super) const UNSEEN_MOST: u32 = 12;

const APART_NS: u64 = 1_000_000;

#[derive(Debug, Default)]
pub(super) struct Meeting {
    pub is_told: bool,
    pub is_proven: bool,
    /// Last message to the peer, kept while the peer's queue pair address is unknown. It is sent again when the address
    /// arrives.
    pub waiting: Option<(u8, Address)>,
    /// Last step sent through the socket alone. The step is not repeated, because a socket loses no message.
    pub sent: Option<u8>,
    /// `unseen`: number of messages through the socket whose datagrams are missing. `last_ns`: arrival of the last one.
    unseen: u32,
    last_ns: u64,
}

impl Meeting {
    /// Counts a message that arrived through the socket. `also`: whether it was sent as a datagram too. Returns true if
    /// datagrams have no path.
    ///
    /// Messages that arrive together count once, because one cause may have lost all their datagrams: receive buffers
    /// that were full while this process computed.
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
        // A message that was not sent as a datagram proves nothing.
        assert!((0..100).all(|i| !meeting.is_vain(false, i * APART_NS)));
        // Many messages at one time prove nothing either.
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
