//! What the connections of a process have in common: the job, its secret, and the set of sockets.

use super::greeting::Pass;
use super::socket::Epoll;
use fastpath_bootstrap::job::Job;
use fastpath_bootstrap::network::interfaces::list_addresses;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;

/// How connections behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Bytes that wait for the kernel at most, for each peer; a message of any length finds room in an empty box.
    pub outbox: usize,
    /// Whether messages wait for [`super::TcpIface::progress`], so that several go by one call of the kernel.
    pub gather: bool,
    /// Whether long messages are handed to the kernel, and taken from it, where they lie; not switched off by
    /// `FASTPATH_DISABLE`.
    pub bulk: bool,
    /// Nanoseconds that a stranger has to say who it is.
    pub stranger_ns: u64,
    /// Nanoseconds without a sign of a peer that owes one, before it is given up.
    pub silence_ns: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            outbox: 256 * 1024,
            gather: false,
            bulk: true,
            stranger_ns: 5_000_000_000,
            silence_ns: 20_000_000_000,
        }
    }
}

const LOOPBACK: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    IpAddr::V6(Ipv6Addr::LOCALHOST),
];

/// The job as its connections need it.
pub struct Domain {
    pub(super) job: &'static Job,
    pub(super) me: u32,
    pub(super) pass: Pass,
    pub(super) epoll: Rc<Epoll>,
    pub(super) settings: Settings,
    /// Addresses of this host.
    own: Vec<IpAddr>,
}

impl Domain {
    /// That of a job's rank.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn new(job: &'static Job, settings: Settings) -> io::Result<Self> {
        let found = list_addresses().unwrap_or_default().into_iter();
        let own = found.map(|found| found.address).chain(LOOPBACK).collect();
        Ok(Domain {
            job,
            me: job.rank() as u32,
            pass: Pass {
                job_id: job.job_id(),
                secret: job.secret(),
            },
            epoll: Rc::new(Epoll::new()?),
            settings,
            own,
        })
    }

    /// Whether this host has an address too.
    pub(super) fn is_own(&self, address: IpAddr) -> bool {
        self.own.contains(&address)
    }

    /// Takes this host's addresses for another one's.
    #[cfg(test)]
    pub(super) fn disown_addresses(&mut self) {
        self.own.clear();
    }

    /// Where a peer may be reached, the most likely first, and what its host is called; `None` while it has not said.
    pub(super) fn find_peer(&self, peer: u32) -> Option<(Vec<SocketAddr>, String)> {
        let card = self.job.network_card(peer as usize)?;
        let mut addresses = card.addresses;
        if !self.job.is_node_peer(peer as usize) {
            // Bridges of containers have the same address everywhere: there answers this host.
            addresses.sort_by_key(|&address| self.is_own(address));
        }
        let at = |address| SocketAddr::new(address, card.port);
        Some((addresses.into_iter().map(at).collect(), card.host))
    }
}
