//! What the connections of a process have in common: the job, its secret, and the set of sockets.

use super::greeting::{HELLO, Pass, Said};
use super::socket::Epoll;
use fastpath_bootstrap::job::{Job, Origin};
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

const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

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
        let pass = Pass { job_id: job.job_id(), secret: job.secret() };
        pass.warm();
        Ok(Domain {
            job,
            me: job.rank() as u32,
            pass,
            epoll: Rc::new(Epoll::new()?),
            settings,
            own,
        })
    }

    /// Whether this side is the lower one of a pair, where both must agree on an order.
    pub(super) fn is_lower(&self, peer: u32) -> bool {
        self.origin() < self.job.origin(peer as usize)
    }

    /// Who this process is for all jobs.
    fn origin(&self) -> Origin {
        self.job.origin(self.me as usize)
    }

    /// What this process proves itself by to a peer; `None` for one that it is not connected with.
    pub(super) fn pass_to(&self, peer: u32) -> Option<Pass> {
        let rank = peer as usize;
        if !self.job.is_foreign(rank) {
            return Some(self.pass.clone());
        }
        let secret = self.job.foreign_secret(rank)?;
        let job_id = self.pass.job_id;
        Some(Pass { job_id, secret })
    }

    /// Who greets so: its pass, and its rank in this job; `None` for a stranger.
    pub(super) fn find_caller(&self, hello: &[u8; HELLO]) -> Option<(Pass, u32)> {
        let (me, size) = (self.me, self.job.present() as u32);
        let is_for_me = |said: &Said| said.to == me;
        if let Some(said) = self.pass.read_hello(hello) {
            let known = is_for_me(&said) && said.from < size && said.from != me;
            return known.then(|| (self.pass.clone(), said.from));
        }
        let all = self.job.foreign_secrets().into_iter();
        let mut passes = all.map(|(job_id, secret)| Pass { job_id, secret });
        passes.find_map(|pass| {
            let said = pass.read_hello(hello).filter(is_for_me)?;
            let origin = Origin { job: pass.job_id, rank: said.from };
            let peer = self.job.find_origin(origin)?;
            Some((pass, peer))
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

    /// What people call a peer on that host.
    pub(super) fn name_peer(&self, peer: u32, host: &str) -> String {
        match self.job.origin(peer as usize) {
            Origin { job, rank } if job != self.pass.job_id => {
                format!("rank {rank} of another job on {host}")
            }
            _ => format!("rank {peer} on {host}"),
        }
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
