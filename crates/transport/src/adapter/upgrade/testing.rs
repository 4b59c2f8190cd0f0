//! Two ends in one process on the fake adapter, with its clock and faults.

use super::*;
use crate::adapter::rc::{RcIface, Settings as RcSettings};
use crate::adapter::testing::{AdapterPair, PairIface, connect};
use crate::adapter::ud::{Settings as UdSettings, UdIface};
use crate::contract::*;
use crate::verbs::fake;
use fastpath_job::Job;

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

pub(crate) type UpgradePair = AdapterPair<UpgradeIface>;

impl PairIface for UpgradeIface {
    type End = UpgradeEndpoint;

    fn poll(&mut self) {
        self.progress(false, || ());
    }

    fn due_ns(&self) -> u64 {
        self.parts().0.due_ns()
    }

    fn describe(&self) -> String {
        self.parts().0.describe()
    }
}

impl UpgradePair {
    pub fn new(rc: RcSettings, ud: UdSettings) -> Self {
        let ifaces: [UpgradeIface; 2] = open(2, rc, ud).try_into().ok().unwrap();
        let mut ends = [ifaces[0].endpoint(1, None).unwrap(), ifaces[1].endpoint(0, None).unwrap()];
        let [one, two] = &mut ends;
        let connected = connect(one.datagrams(), two.datagrams());
        assert!(connected);
        UpgradePair { ends, ifaces, real: false }
    }

    /// Creates and opens both ends of the connection; sends still use datagrams.
    pub fn open_connection(&mut self) {
        for (iface, end) in self.ifaces.iter().zip(&mut self.ends) {
            iface.prepare(end).unwrap();
        }
        let addresses = [1, 0].map(|from: usize| self.ends[from].upgrade_address());
        for (end, address) in self.ends.iter_mut().zip(&addresses) {
            assert!(end.open_upgrade(address));
        }
    }
}

impl UpgradeEndpoint {
    pub(crate) fn fingerprint(&mut self) -> Vec<u8> {
        let mut seen = self.datagrams().fingerprint();
        if let Some(rc) = self.connection() {
            seen.extend(rc.fingerprint());
        }
        seen
    }
}

pub(crate) fn message(number: u32, len: usize) -> (Header, Vec<u8>) {
    let header = Header::new(number as u8, number, !number as u64);
    let data = (0..len).map(|i| (i as u32 ^ number.wrapping_mul(0x9e37)) as u8);
    (header, data.collect())
}
