//! State that the connections of a process share: job, secret, and epoll instance.

use super::greeting::{HELLO, Pass, VerifiedGreeting};
use super::socket::Epoll;
use fastpath_job::network::interfaces::list_addresses;
use fastpath_job::{Job, Origin};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;

/// Settings of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Maximum number of bytes for each peer that wait for the kernel. An empty outbox accepts a message of any length.
    pub outbox: usize,
    /// Whether messages wait for [`super::TcpIface::progress`], so that one system call sends several.
    pub gather: bool,
    /// Whether long messages are copied directly between user memory and the kernel. Disabled by `FASTPATH_DISABLE`.
    pub bulk: bool,
    /// Nanoseconds in which a stranger must prove its rank.
    pub stranger_ns: u64,
    /// Nanoseconds of silence after which a peer that owes an acknowledgement has failed.
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

/// Sender of a hello.
pub(super) enum HelloSender {
    /// A rank by number, and the secret of the pair.
    Rank(Pass, u32),
    /// A spawned rank of this job that this host's launcher has not added yet. Other hosts may start it earlier.
    FutureRank(u32),
    /// A process that is no rank, or a rank that has dialed the wrong process.
    Stranger,
}

/// Job of the connections.
pub struct Domain {
    pub(super) job: &'static Job,
    pub(super) me: u32,
    pub(super) pass: Pass,
    pub(super) epoll: Rc<Epoll>,
    pub(super) settings: Settings,
    own: Vec<IpAddr>,
}

impl Domain {
    /// Creates the state of a job's rank.
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

    /// Whether this side has the lower rank of a pair; both sides agree.
    pub(super) fn is_lower(&self, peer: u32) -> bool {
        self.origin() < self.job.origin(peer as usize)
    }

    fn origin(&self) -> Origin {
        self.job.origin(self.me as usize)
    }

    /// Secret for greetings to a peer; `None` for a rank of another job without a shared secret.
    pub(super) fn pass_to(&self, peer: u32) -> Option<Pass> {
        let rank = peer as usize;
        if !self.job.is_foreign(rank) {
            return Some(self.pass.clone());
        }
        let secret = self.job.foreign_secret(rank)?;
        let job_id = self.pass.job_id;
        Some(Pass { job_id, secret })
    }

    /// Finds the sender of a hello.
    pub(super) fn find_caller(&self, hello: &[u8; HELLO]) -> HelloSender {
        let me = self.me;
        if let Some(said) = self.pass.read_hello(hello) {
            return match said.from {
                from if said.to != me || from == me => HelloSender::Stranger,
                from if self.is_present(from) => HelloSender::Rank(self.pass.clone(), from),
                from if (from as usize) < self.job.segment().capacity() => {
                    HelloSender::FutureRank(from)
                }
                _ => HelloSender::Stranger,
            };
        }
        let of_other_job = self.find_foreign_caller(hello);
        of_other_job.map_or(HelloSender::Stranger, |(pass, peer)| HelloSender::Rank(pass, peer))
    }

    /// Whether the launcher of this host has added a rank of this job.
    pub(super) fn is_present(&self, rank: u32) -> bool {
        (rank as usize) < self.job.present()
    }

    fn find_foreign_caller(&self, hello: &[u8; HELLO]) -> Option<(Pass, u32)> {
        let is_for_me = |said: &VerifiedGreeting| said.to == self.me;
        let all = self.job.foreign_secrets().into_iter();
        let mut passes = all.map(|(job_id, secret)| Pass { job_id, secret });
        passes.find_map(|pass| {
            let said = pass.read_hello(hello).filter(is_for_me)?;
            let origin = Origin { job: pass.job_id, rank: said.from };
            let peer = self.job.find_origin(origin)?;
            Some((pass, peer))
        })
    }

    pub(super) fn is_own(&self, address: IpAddr) -> bool {
        self.own.contains(&address)
    }

    #[cfg(test)]
    pub(super) fn disown_addresses(&mut self) {
        self.own.clear();
    }

    pub(super) fn name_peer(&self, peer: u32, host: &str) -> String {
        match self.job.origin(peer as usize) {
            Origin { job, rank } if job != self.pass.job_id => {
                format!("rank {rank} of another job on {host}")
            }
            _ => format!("rank {peer} on {host}"),
        }
    }

    /// Addresses of a peer, the most likely first, and its host's name; `None` if it has not published them.
    pub(super) fn find_peer(&self, peer: u32) -> Option<(Vec<SocketAddr>, String)> {
        let card = self.job.network_card(peer as usize)?;
        let mut addresses = card.addresses;
        if !self.job.is_node_peer(peer as usize) {
            // Try own addresses last: container bridges have one address on all hosts, so dials would lead back here.
            addresses.sort_by_key(|&address| self.is_own(address));
        }
        let at = |address| SocketAddr::new(address, card.port);
        Some((addresses.into_iter().map(at).collect(), card.host))
    }
}
