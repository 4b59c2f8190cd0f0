//! Two ends in one process on the fake adapter, whose clock and faults tests move.

use super::*;
use crate::adapter::rc::{RcIface, Settings as RcSettings};
use crate::adapter::ud::testing::{connect, run_until};
use crate::adapter::ud::{Settings as UdSettings, UdIface};
use crate::contract::*;
use crate::verbs::fake;
use fastpath_bootstrap::job::Job;

/// The interfaces of `ranks` ranks.
pub(crate) fn open(ranks: usize, rc: RcSettings, ud: UdSettings) -> Vec<UpgradeIface> {
    fake::set_conditions(fake::Conditions::default());
    let context = fake::open();
    let jobs: &'static [Job] = Job::in_process(ranks).unwrap().leak();
    let open = |job| {
        let datagrams = UdIface::new(&context, None, ud).unwrap();
        datagrams.use_clock(fake::now_ns);
        let connections = RcIface::new(&context, None, rc).unwrap();
        UpgradeIface::new(datagrams, connections, job)
    };
    jobs.iter().map(open).collect()
}

/// Two interfaces with one pair between them, which lives on datagrams.
pub(crate) struct UpgradePair {
    pub ends: [UpgradeEndpoint; 2],
    pub ifaces: [UpgradeIface; 2],
}

impl UpgradePair {
    pub fn new(rc: RcSettings, ud: UdSettings) -> Self {
        let ifaces: [UpgradeIface; 2] = open(2, rc, ud).try_into().ok().unwrap();
        let mut ends = [ifaces[0].endpoint(1, None).unwrap(), ifaces[1].endpoint(0, None).unwrap()];
        let [one, two] = &mut ends;
        let connected = connect(one.datagrams(), two.datagrams());
        assert!(connected);
        UpgradePair { ends, ifaces }
    }

    /// Both ends of the connection are made and opened; what is sent still goes as datagrams.
    pub fn open_connection(&mut self) {
        for (iface, end) in self.ifaces.iter().zip(&mut self.ends) {
            iface.prepare(end).unwrap();
        }
        let addresses = [1, 0].map(|from: usize| self.ends[from].upgrade_address());
        for (end, address) in self.ends.iter_mut().zip(&addresses) {
            assert!(end.open_upgrade(address));
        }
    }

    pub fn progress(&mut self) {
        self.ifaces.iter_mut().for_each(|iface| {
            iface.progress(false, || ());
        });
    }

    pub fn pass(&self) {
        pass(&self.ifaces);
    }

    /// Makes progress, and lets time pass where that brings nothing, until `done` says so.
    pub fn until(&mut self, what: &str, done: impl FnMut(&mut Self) -> bool) {
        run_until(self, Self::progress, Self::pass, done, |_| what.to_owned());
    }
}

/// Lets time pass until something is due.
pub(crate) fn pass(ifaces: &[UpgradeIface]) {
    let due = |iface: &UpgradeIface| iface.parts().0.next_due_ns();
    fake::advance_to(ifaces.iter().map(due).min().unwrap_or(u64::MAX));
}

impl UpgradeEndpoint {
    /// All that the peer's sends have done here.
    pub(crate) fn fingerprint(&mut self) -> Vec<u8> {
        let mut seen = self.datagrams().fingerprint();
        if let Some(rc) = self.connection() {
            seen.extend(rc.fingerprint());
        }
        seen
    }
}

/// A message of so many bytes that can be told from all others of its direction.
pub(crate) fn message(number: u32, len: usize) -> (Header, Vec<u8>) {
    let header = Header::new(number as u8, number, !number as u64);
    let data = (0..len).map(|i| (i as u32 ^ number.wrapping_mul(0x9e37)) as u8);
    (header, data.collect())
}
