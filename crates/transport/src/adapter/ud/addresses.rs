//! Addresses of other ranks' datagram queue pairs, and wireup datagrams to them.

use super::{UdIface, WireupDatagram, wireup_datagram};
use crate::contract::Address;
use fastpath_job::Job;
use std::collections::BTreeMap;

pub(crate) struct RankAddresses {
    job: &'static Job,
    told: BTreeMap<u32, Address>,
    pub strangers: u64,
}

impl RankAddresses {
    pub fn open(ud: &mut UdIface, job: &'static Job) -> Self {
        let own = ud.open_wireup_datagrams(job.job_id());
        job.own_page().iface_address.store(own.as_slice());
        RankAddresses { job, told: BTreeMap::new(), strangers: 0 }
    }

    pub fn find(&self, rank: u32) -> Option<Address> {
        let on_page = || Address::new(&self.job.rank_page(rank as usize)?.iface_address.load()?);
        self.told.get(&rank).copied().or_else(on_page)
    }

    pub fn own(&self) -> Address {
        self.find(self.job.rank() as u32).unwrap_or_default()
    }

    /// Stores the address of a rank on another node. The address never changes.
    pub fn learn(&mut self, rank: u32, address: Address) {
        self.told.entry(rank).or_insert(address);
    }

    pub fn send(&self, ud: &mut UdIface, peer: u32, step: u8, address: Address) -> bool {
        let Some(to) = self.find(peer) else {
            return false;
        };
        let datagram = WireupDatagram { qpn: 0, rank: self.job.rank() as u32, step, address };
        ud.send_wireup_datagram(&to, &datagram)
    }

    /// Takes the next wireup datagram: sender, step, address. Drops those that the claimed sender's queue pair did not
    /// send.
    pub fn take(&mut self, ud: &mut UdIface) -> Option<(u32, u8, Address)> {
        loop {
            let read = ud.take_wireup_datagram()?;
            let own = self.find(read.rank);
            if own.as_ref().and_then(wireup_datagram::qpn_of) == Some(read.qpn) {
                return Some((read.rank, read.step, read.address));
            }
            self.strangers += 1;
        }
    }
}
