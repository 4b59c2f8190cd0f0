//! A rank's interface: who calls, what has arrived, and the messages of the wire-up.

use super::domain::Network;
use super::endpoint::SimEndpoint;
use super::wire::Datagram;
use crate::contract::Address;
use std::time::Duration;

/// The interface of one rank.
pub struct SimIface {
    network: Network,
    me: u32,
}

impl SimIface {
    pub(super) fn new(network: Network, me: u32) -> Self {
        SimIface { network, me }
    }

    /// Whether `peer` has left.
    pub fn has_left(&self, peer: u32) -> bool {
        self.network.0.borrow().ports[peer as usize].gone
    }

    /// An endpoint to `peer`, open in neither direction.
    pub fn endpoint(&self, peer: u32) -> SimEndpoint {
        SimEndpoint::new(self.network.clone(), self.me, peer)
    }

    /// The time, in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.network.now_ns()
    }

    /// Calls `found` with each peer that has connected since the last time.
    pub fn accept(&mut self, found: impl FnMut(u32)) {
        let callers =
            std::mem::take(&mut self.network.0.borrow_mut().ports[self.me as usize].callers);
        callers.into_iter().for_each(found);
    }

    /// Handles what has arrived and what is due; says whether anything had arrived.
    pub fn progress(&mut self) -> bool {
        let mut fabric = self.network.0.borrow_mut();
        !fabric.conditions.reliable && fabric.progress(self.me)
    }

    /// Sends a message of the wire-up. It may be lost.
    pub fn send_wireup(&self, peer: u32, step: u8, address: Address) {
        let datagram = Datagram { step, address };
        self.network.0.borrow_mut().send_badly(peer, self.me, datagram, |port| &mut port.datagrams);
    }

    /// How long a rank may sleep at a time.
    pub fn nap(&self) -> Option<Duration> {
        self.network.0.borrow().conditions.nap
    }

    /// Whether the wire-up interface signals an arrival. Costs less than a poll.
    pub fn wireup_signals(&self) -> bool {
        let fabric = self.network.0.borrow();
        let first = fabric.ports[self.me as usize].datagrams.first_key_value();
        first.is_some_and(|(at, _)| at.0 <= fabric.now_ns)
    }

    /// Polls the wire-up interface: sender, step and address of a message.
    pub fn receive_wireup(&mut self) -> Option<(u32, u8, Address)> {
        let mut fabric = self.network.0.borrow_mut();
        let now = fabric.now_ns;
        let port = &mut fabric.ports[self.me as usize];
        port.wireup_polls += 1;
        let entry = port.datagrams.first_entry().filter(|entry| entry.key().0 <= now)?;
        let (from, Datagram { step, address }) = entry.remove();
        Some((from, step, address))
    }
}
