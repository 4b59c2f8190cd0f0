//! Interface of a rank: new connections, arrivals, and wire-up messages.

use super::domain::Network;
use super::endpoint::SimEndpoint;
use super::wire::Datagram;
use crate::contract::Address;
use std::time::Duration;

/// Interface of one rank.
pub struct SimIface {
    network: Network,
    me: u32,
}

impl Network {
    /// Creates the interface of a rank.
    pub fn iface(&self, rank: u32) -> SimIface {
        SimIface { network: self.clone(), me: rank }
    }
}

impl SimIface {
    /// Whether `peer` has left.
    pub fn has_left(&self, peer: u32) -> bool {
        self.network.0.borrow().ports[peer as usize].gone
    }

    /// Creates an endpoint to `peer`, open in neither direction.
    pub fn endpoint(&self, peer: u32) -> SimEndpoint {
        SimEndpoint::new(self.network.clone(), self.me, peer)
    }

    /// Virtual time, in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.network.now_ns()
    }

    /// Calls `found` with each peer that has connected since the last call.
    pub fn accept(&mut self, found: impl FnMut(u32)) {
        let callers =
            std::mem::take(&mut self.network.0.borrow_mut().ports[self.me as usize].callers);
        callers.into_iter().for_each(found);
    }

    /// Processes arrivals and timers; returns whether there were arrivals.
    pub fn progress(&mut self) -> bool {
        let mut fabric = self.network.0.borrow_mut();
        !fabric.conditions.reliable && fabric.progress(self.me)
    }

    /// Sends a wire-up message, which may be lost.
    pub fn send_wireup(&self, peer: u32, step: u8, address: Address) {
        let datagram = Datagram { step, address };
        self.network.0.borrow_mut().send_badly(peer, self.me, datagram, |port| &mut port.datagrams);
    }

    /// Longest sleep of a rank; `None` if unlimited.
    pub fn nap(&self) -> Option<Duration> {
        self.network.0.borrow().conditions.nap
    }

    /// Whether the wire-up interface signals an arrival. Costs less than a poll.
    pub fn wireup_signals(&self) -> bool {
        let fabric = self.network.0.borrow();
        let first = fabric.ports[self.me as usize].datagrams.first_key_value();
        first.is_some_and(|(at, _)| at.0 <= fabric.now_ns)
    }

    /// Takes the next wire-up message: sender, step, address. `None` if there is none.
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
