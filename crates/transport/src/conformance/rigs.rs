//! Rigs for the transports under test.

use super::*;
use crate::adapter::rc::testing::RcPair;
use crate::adapter::rc::{RcEndpoint, Settings as RcSettings};
use crate::adapter::testing::connect;
use crate::adapter::ud::testing::UdPair;
use crate::adapter::ud::{Settings as UdSettings, UdEndpoint};
use crate::adapter::upgrade::UpgradeEndpoint;
use crate::adapter::upgrade::testing::UpgradePair;
use crate::contract::Connection;
use crate::loopback::LoopbackEndpoint;
use crate::reliable::Settings;
use crate::shm::testing::ShmPair;
use crate::sim::{Conditions, Hardware, Network, SimEndpoint, SimIface};
use crate::tcp::testing::TcpPair;
use crate::tcp::{Settings as TcpSettings, TcpEndpoint};
use crate::verbs::fake;
use fastpath_pcie::profile;

conform!(loopback, LoopbackEndpoint);
conform!(shm, ShmPair);
conform!(sim, SimPair<0>);
conform!(sim_narrow, SimPair<1>);
conform!(sim_lossy, SimPair<2>);
conform!(sim_wired_up, SimPair<3>);
conform!(sim_hardware, SimPair<4>);
conform!(rc, RcRig<0>);
conform!(rc_narrow, RcRig<1>);
conform!(ud, UdRig<0>);
conform!(ud_narrow, UdRig<1>);
conform!(ud_lossy, UdRig<2>);
conform!(tcp, TcpRig<0>);
conform!(tcp_narrow, TcpRig<1>);
conform!(upgrade, UpgradeRig<0>);
conform!(upgrade_lossy, UpgradeRig<1>);
conform!(upgraded, UpgradeRig<2>);

impl Rig for LoopbackEndpoint {
    type End = Self;
    const LIMITED: bool = false;

    fn new(_: Start) -> Self {
        LoopbackEndpoint::new()
    }
    fn tx(&mut self) -> &mut Self {
        self
    }
    fn rx(&mut self) -> &mut Self {
        self
    }
    fn settle(&mut self) {}
    fn return_credits(&mut self) {}
    fn observe(&mut self) -> Vec<u8> {
        look(self).map(|sent| sent.data).unwrap_or_default()
    }
}

/// Two ends over a simulated network; `FAULTS` selects its conditions.
struct SimPair<const FAULTS: u32> {
    network: Network,
    ends: [SimEndpoint; 2],
    ifaces: [SimIface; 2],
}

fn conditions(faults: u32, seed: u64) -> Conditions {
    let base =
        Conditions { seed, wake: 0.1, delay_ns: 10..=900, slots: 64, ..Conditions::default() };
    match faults {
        0 => base,
        1 => Conditions { slots: 5, ..base },
        2 => Conditions {
            reliable: false,
            drop: 0.2,
            double: 0.2,
            slots: 32,
            retry: Settings { min_timeout_ns: 2000, ..Settings::default() },
            ..base
        },
        3 => Conditions { wireup: true, ..base },
        _ => {
            let (host, adapter) = (&profile::HOSTS[0], &profile::ADAPTERS[1]);
            let hardware = Hardware::new(host, adapter, 400).unwrap();
            Conditions { hardware: Some(hardware), ..base }
        }
    }
}

impl<const FAULTS: u32> SimPair<FAULTS> {
    fn progress(&mut self) {
        for iface in &mut self.ifaces {
            iface.progress();
        }
    }
}

impl<const FAULTS: u32> Rig for SimPair<FAULTS> {
    type End = SimEndpoint;

    fn new(start: Start) -> Self {
        let network = Network::new(2, conditions(FAULTS, start.messages as u64));
        let ifaces = [network.iface(0), network.iface(1)];
        let mut ends = [ifaces[0].endpoint(1), ifaces[1].endpoint(0)];
        let [one, two] = &mut ends;
        assert!(!one.wants_wireup() || connect(one, two));
        for end in &mut ends {
            end.connect();
            end.open_receive();
            end.set_ready();
        }
        SimPair { network, ends, ifaces }
    }
    fn tx(&mut self) -> &mut SimEndpoint {
        &mut self.ends[0]
    }
    fn rx(&mut self) -> &mut SimEndpoint {
        &mut self.ends[1]
    }
    fn settle(&mut self) {
        for _ in 0..1_000_000 {
            self.progress();
            // Stop when no message is queued or in flight, when one is visible, or when the network has no further
            // event.
            if self.ends[0].is_drained()
                || self.ends[1].look().is_some()
                || !self.network.advance_to_next()
            {
                return;
            }
        }
        panic!("the network never comes to rest");
    }
    fn return_credits(&mut self) {
        self.ends[1].return_credits();
        for _ in 0..20 {
            self.progress();
            self.network.advance(500);
        }
    }
    fn observe(&mut self) -> Vec<u8> {
        self.network.fingerprint(0, 1).to_le_bytes().to_vec()
    }
}

/// Maximum number of polls until a peer's adapter reports data that is already in the peer's memory.
const ATTEMPTS: u32 = 100;

/// Two ends on an RDMA adapter. `ROOM` selects how much room for messages there is.
struct RcRig<const ROOM: u32>(RcPair);

impl<const ROOM: u32> Rig for RcRig<ROOM> {
    type End = RcEndpoint;

    fn new(start: Start) -> Self {
        let settings = match ROOM {
            0 => RcSettings::default(),
            _ => RcSettings {
                window: 8,
                receives: 16,
                depth: 16,
                buffers: [4, 2],
                inline: 0,
                ..RcSettings::default()
            },
        };
        let mut pair = RcPair::new(settings);
        pair.start_at(start.messages);
        RcRig(pair)
    }
    fn tx(&mut self) -> &mut RcEndpoint {
        &mut self.0.ends[0]
    }
    fn rx(&mut self) -> &mut RcEndpoint {
        &mut self.0.ends[1]
    }
    fn settle(&mut self) {
        self.0.until("the network to come to rest", |pair| {
            pair.ends[1].look().is_some() || pair.ends[0].is_drained()
        });
        // The peer's adapter reports data that is already in the peer's memory within a few polls.
        for _ in 0..ATTEMPTS {
            if self.0.ends[1].look().is_some() || self.0.has_all_arrived() {
                return;
            }
        }
    }
    fn return_credits(&mut self) {
        self.0.ends[1].return_all_credits();
        self.0.until("the credits to arrive", |pair| {
            pair.ends[0].is_drained() && pair.ends[1].is_drained()
        });
        for _ in 0..ATTEMPTS {
            if self.0.has_all_arrived() {
                return;
            }
            self.0.progress();
        }
    }
    fn observe(&mut self) -> Vec<u8> {
        // Make progress that frees no room for the sender.
        for _ in 0..ATTEMPTS {
            if self.0.has_all_arrived() {
                break;
            }
            self.0.ifaces[1].progress();
        }
        self.0.ends[1].fingerprint()
    }
}

/// Two ends with datagrams of an RDMA adapter. `KIND` 1 has little room; `KIND` 2 has a fake wire that loses packets.
struct UdRig<const KIND: u32>(UdPair);

impl<const KIND: u32> Rig for UdRig<KIND> {
    type End = UdEndpoint;

    fn new(start: Start) -> Self {
        let settings = match KIND {
            1 => UdSettings {
                window: 4,
                receives: 64,
                depth: 32,
                buffers: [4, 2],
                groups: 1,
                inline: 0,
                ..UdSettings::default()
            },
            _ => UdSettings::default(),
        };
        let rig = UdRig(UdPair::starting_at(settings, start.messages));
        if KIND == 2 {
            fake::set_bad_network();
        }
        rig
    }
    fn tx(&mut self) -> &mut UdEndpoint {
        &mut self.0.ends[0]
    }
    fn rx(&mut self) -> &mut UdEndpoint {
        &mut self.0.ends[1]
    }
    fn settle(&mut self) {
        self.0.until("the network to come to rest", |pair| {
            pair.ends[1].look().is_some() || pair.ends[0].is_drained()
        });
        self.0.until("what is under way to arrive", UdPair::has_all_arrived);
    }
    fn return_credits(&mut self) {
        self.0.until("what is under way to arrive", UdPair::has_all_arrived);
        let taken = |pair: &mut UdPair| pair.ends[0].knows_all_taken(&pair.ends[1]);
        self.0.until("the news to arrive", taken);
    }
    fn observe(&mut self) -> Vec<u8> {
        // Make no progress, because progress would free room for the sender.
        let mut seen = self.0.ends[1].fingerprint();
        seen.extend(self.0.ifaces[0].counters().sent.to_le_bytes());
        seen
    }
}

/// Two ends of a pair that upgrades: `KIND` 0 after a few messages, `KIND` 1 so too on a lossy wire, `KIND` 2 at once.
struct UpgradeRig<const KIND: u32> {
    pair: UpgradePair,
    settled: u32,
}

impl<const KIND: u32> UpgradeRig<KIND> {
    fn upgrade(&mut self) {
        match self.settled {
            20 => self.pair.open_connection(),
            24 => self.pair.ends[0].finish_upgrade(),
            28 => self.pair.ends[1].finish_upgrade(),
            _ => {}
        }
    }
}

impl<const KIND: u32> Rig for UpgradeRig<KIND> {
    type End = UpgradeEndpoint;

    fn new(_: Start) -> Self {
        let mut pair = UpgradePair::new(RcSettings::default(), UdSettings::default());
        if KIND == 1 {
            fake::set_bad_network();
        }
        if KIND == 2 {
            pair.open_connection();
            pair.ends.iter_mut().for_each(|end| end.finish_upgrade());
        }
        let settled = if KIND == 2 { 100 } else { 0 };
        UpgradeRig { pair, settled }
    }
    fn tx(&mut self) -> &mut UpgradeEndpoint {
        &mut self.pair.ends[0]
    }
    fn rx(&mut self) -> &mut UpgradeEndpoint {
        &mut self.pair.ends[1]
    }
    fn settle(&mut self) {
        self.settled += 1;
        self.upgrade();
        self.pair.until("the network to come to rest", |pair| {
            pair.ends[1].look().is_some() || pair.ends[0].is_drained()
        });
        self.pair.until("what is under way to arrive", |pair| pair.ends[0].has_arrived());
    }
    fn return_credits(&mut self) {
        // Acknowledgements of datagrams and credits of the connection both return room.
        for _ in 0..8 {
            self.pair.ends[1].return_credits();
            self.pair.ends[1].return_all_credits();
            (0..12).for_each(|_| self.pair.progress());
            self.pair.pass();
        }
    }
    fn observe(&mut self) -> Vec<u8> {
        self.pair.ends[1].fingerprint()
    }
}

/// Two ends of a connection over the loopback device. Messages wait for progress, so that room does not depend on the
/// kernel. `ROOM` selects how much room there is.
struct TcpRig<const ROOM: u32>(TcpPair);

impl<const ROOM: u32> Rig for TcpRig<ROOM> {
    type End = TcpEndpoint;

    fn new(_: Start) -> Self {
        TcpRig(TcpPair::new(TcpSettings {
            gather: true,
            outbox: [256 * 1024, 1000][ROOM as usize],
            ..TcpSettings::default()
        }))
    }
    fn tx(&mut self) -> &mut TcpEndpoint {
        &mut self.0.ends[0]
    }
    fn rx(&mut self) -> &mut TcpEndpoint {
        &mut self.0.ends[1]
    }
    fn settle(&mut self) {
        self.0.settle();
    }
    fn return_credits(&mut self) {
        self.0.progress();
    }
    fn observe(&mut self) -> Vec<u8> {
        self.0.observe()
    }
}
