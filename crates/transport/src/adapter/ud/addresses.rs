//! Where the queue pairs for datagrams of the other ranks are, and the wireup datagrams that go there.

use super::{UdIface, WireupDatagram, wireup_datagram};
use crate::contract::Address;
use fastpath_bootstrap::job::Job;
use std::collections::BTreeMap;

/// What a rank knows of the others' queue pairs.
pub(crate) struct RankAddresses {
    job: &'static Job,
    /// Those that have been told by the network; the others are on the ranks' pages.
    told: BTreeMap<u32, Address>,
    /// Datagrams of ranks that do not own the queue pair they came from; dropped.
    pub strangers: u64,
}

impl RankAddresses {
    /// Takes wireup datagrams from now on, and says on the rank's page where.
    pub fn open(ud: &mut UdIface, job: &'static Job) -> Self {
        let own = ud.open_wireup_datagrams(job.job_id());
        job.own_page().iface_address.store(own.as_slice());
        RankAddresses { job, told: BTreeMap::new(), strangers: 0 }
    }

    /// Where a rank's queue pair is; `None` while that is not known.
    pub fn find(&self, rank: u32) -> Option<Address> {
        let on_page = || Address::new(&self.job.rank_page(rank as usize)?.iface_address.load()?);
        self.told.get(&rank).copied().or_else(on_page)
    }

    /// Where that of this rank is.
    pub fn own(&self) -> Address {
        self.find(self.job.rank() as u32).unwrap_or_default()
    }

    /// A rank that shares no memory with this one has told where its queue pair is. It stays there.
    pub fn learn(&mut self, rank: u32, address: Address) {
        self.told.entry(rank).or_insert(address);
    }

    /// Sends a wireup datagram to a rank; false where it did not leave, for one because it is not known where to.
    pub fn send(&self, ud: &mut UdIface, peer: u32, step: u8, address: Address) -> bool {
        let Some(to) = self.find(peer) else {
            return false;
        };
        let datagram = WireupDatagram { qpn: 0, rank: self.job.rank() as u32, step, address };
        ud.send_wireup_datagram(&to, &datagram)
    }

    /// A wireup datagram that has come: sender, step, address. What says it is from a rank and comes from another queue
    /// pair than that rank's is dropped.
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
