//! Simulated time of an RDMA adapter and its bus.
//!
//! With [`Conditions::hardware`](super::Conditions::hardware) each rank has a host, a bus and an adapter of
//! `fastpath_pcie`'s simulator. The time of a message follows from them, with contention on bus and wire. A message
//! goes inline if it fits the granted size, as in the verbs transports.

use fastpath_pcie::descriptor::grant;
use fastpath_pcie::formulas::latency::Path;
use fastpath_pcie::profile::{Adapter, Host};
use fastpath_pcie::simulator::{FlowSpec, NodeSpec, Simulator};
use fastpath_pcie::wire::{Transport, Wire};
use fastpath_pcie::{Bytes, Link, LinkError, Time};

use crate::contract::Header;

/// Hardware of every rank, and the network between two ranks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hardware {
    /// Host of each rank.
    pub host: Host,
    /// Adapter of each host.
    pub adapter: Adapter,
    /// Bus between host and adapter.
    pub link: Link,
    /// Network link.
    pub wire: Wire,
    /// Delay of cables and switches.
    pub hops: Time,
    /// Inline bytes granted to a queue pair, header included.
    pub inline: u32,
}

impl Hardware {
    /// Creates hardware of these profiles, with the usual bus and network. Queue pairs request `inline` inline bytes.
    ///
    /// # Errors
    /// The adapter has no descriptor of that size.
    pub fn new(host: &Host, adapter: &Adapter, inline: u32) -> Result<Hardware, LinkError> {
        let Path { link, wire, hops, .. } = Path::new(host, adapter)?;
        Ok(Hardware {
            host: *host,
            adapter: *adapter,
            link,
            wire,
            hops,
            inline: grant(adapter.family, Transport::Rc, inline, 1)?.inline,
        })
    }
}

const HEADER: usize = size_of::<Header>();

pub(super) struct Machines {
    simulator: Simulator,
    ranks: u32,
    under_way: u64,
}

impl Machines {
    pub fn new(ranks: u32, hardware: &Hardware) -> Machines {
        let node = NodeSpec {
            host: &hardware.host,
            adapter: &hardware.adapter,
            link: hardware.link,
            wire: hardware.wire,
            data_link: true,
        };
        let mut simulator = Simulator::new(&vec![node; ranks as usize]);
        for pair in 0..ranks * ranks {
            let (from, to) = ((pair / ranks) as usize, (pair % ranks) as usize);
            simulator.add_flow(FlowSpec {
                hops: hardware.hops,
                inline: hardware.inline,
                ..FlowSpec::new(from, to)
            });
        }
        Machines { simulator, ranks, under_way: 0 }
    }

    pub fn post(&mut self, now: u64, from: u32, to: u32, payload: usize) {
        self.simulator.run_until(ns(now));
        let flow = (from * self.ranks + to) as usize;
        self.simulator.post(flow, Bytes((HEADER + payload) as u64), 0);
        self.under_way += 1;
    }

    pub fn next_delivery(&mut self, until: u64) -> Option<u64> {
        let delivered = self.under_way > 0 && self.simulator.run_to_delivery(ns(until));
        delivered.then(|| self.simulator.now().ns().ceil() as u64)
    }

    pub fn take_delivered(&mut self, now: u64) -> Vec<(u32, u32, u64)> {
        self.simulator.run_until(ns(now));
        let mut delivered = Vec::new();
        while let Some(delivery) = self.simulator.take_delivery() {
            self.under_way -= 1;
            let (flow, at) = (delivery.flow as u32, delivery.delivered.ns().ceil() as u64);
            delivered.push((flow / self.ranks, flow % self.ranks, at));
        }
        delivered
    }
}

fn ns(at: u64) -> Time {
    // The time is bounded, but the bound is later than any time that a test reaches.
    Time::from_ns(at.min(1 << 43) as f64)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::{Conditions, Network, SimEndpoint};
    use super::*;
    use crate::contract::{Connection, Endpoint, Post};
    use fastpath_pcie::profile::{adapter, host};

    fn pair(inline: u32) -> (Network, SimEndpoint, SimEndpoint) {
        let (host, adapter) = (host("2009").unwrap(), adapter("connectx").unwrap());
        let conditions = Conditions {
            hardware: Some(Hardware::new(host, adapter, inline).unwrap()),
            ..Conditions::default()
        };
        let network = Network::new(2, conditions);
        let (mut a, mut b) = (network.iface(0).endpoint(1), network.iface(1).endpoint(0));
        a.connect();
        b.open_receive();
        (network, a, b)
    }

    fn one_way(inline: u32, size: usize) -> u64 {
        let (network, mut a, mut b) = pair(inline);
        network.advance(10_000);
        let start = network.now_ns();
        let header = Header::new(1, 2, 3);
        assert_eq!(send(&mut a, header, size), Post::Done);
        while b.look().is_none() {
            assert!(network.advance_to_next());
        }
        let arrival = b.look().unwrap();
        assert_eq!((arrival.header.key, arrival.len()), (3, size));
        network.now_ns() - start
    }

    #[allow(unsafe_code)]
    fn send(endpoint: &mut SimEndpoint, header: Header, size: usize) -> Post {
        let bytes = vec![7u8; size];
        match size <= endpoint.capabilities().short {
            // SAFETY: `bytes` lives until the call returns.
            true => unsafe { endpoint.am_short(header, bytes.as_ptr(), size) },
            // SAFETY: `to` has room for `size` bytes.
            false => endpoint.am_bcopy(header, size, |to| unsafe { to.write_bytes(7, size) }),
        }
    }

    #[test]
    fn serial_reads__are_none_one_or_two() {
        // Header (16 bytes) and payload go through BlueFlame up to 224 bytes, and inline up to the granted 448 bytes.
        let read = host("2009").unwrap().read.ns();
        let (none, one) = (one_way(400, 208) as f64, one_way(400, 209) as f64);
        assert!(one - none > 0.4 * read, "{none} {one}");
        assert!(one_way(400, 208) - one_way(400, 207) < 10);
        let (inside, outside) = (one_way(400, 432) as f64, one_way(400, 433) as f64);
        assert!((outside - inside - read).abs() < 0.4 * read, "{inside} {outside}");
        let (inline, read_twice) = (one_way(400, 8) as f64, one_way(0, 13) as f64);
        assert!((read_twice - inline - 2.0 * read).abs() < 0.3 * read, "{inline} {read_twice}");
    }

    #[test]
    fn messages__keep_their_order_and_share_the_bus() {
        let (network, mut a, mut b) = pair(400);
        let sizes = [30_000, 8, 500, 0, 432];
        for (i, &size) in sizes.iter().enumerate() {
            let header = Header::new(1, i as u32, 0);
            assert_eq!(send(&mut a, header, size), Post::Done);
        }
        for (i, &size) in sizes.iter().enumerate() {
            while b.look().is_none() {
                assert!(network.advance_to_next());
            }
            let arrival = b.look().unwrap();
            assert_eq!((arrival.header.imm, arrival.len()), (i as u32, size));
            b.take();
        }
        assert!(!network.advance_to_next());
    }
}
