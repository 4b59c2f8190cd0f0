//! Transports that a job may use.

use crate::adapter::AdapterTransport;
use crate::shm::ring_tuning::RingTuning;
use fastpath_base::config::{Config, Key};
use fastpath_job::Job;

/// Permitted transports, and optimizations within them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowed {
    /// Whether messages of a rank to itself stay in private memory.
    pub loopback: bool,
    /// Whether single copies by system calls (cross-memory attach) are permitted.
    pub cma: bool,
    /// Limits of the optimizations of shared-memory rings.
    pub ring_tuning: RingTuning,
    /// Whether ranks of a host communicate by shared memory.
    pub shm: bool,
    /// Adapter transport to peers without shared memory; `None` if no adapter is used.
    pub adapter: Option<AdapterTransport>,
    /// Whether sockets lead to peers without shared memory, if no adapter is used.
    pub tcp: bool,
    /// Whether pairs on different nodes that the adapter does not connect may use sockets instead.
    pub fall_back: bool,
}

/// Transport to peers that share no memory with this rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkTransport {
    /// An adapter.
    Adapter(AdapterTransport),
    /// Sockets.
    Tcp,
}

impl Default for Allowed {
    fn default() -> Self {
        Allowed {
            loopback: true,
            cma: true,
            ring_tuning: RingTuning::default(),
            shm: true,
            adapter: None,
            tcp: false,
            fall_back: false,
        }
    }
}

impl Allowed {
    /// Permissions as a number; two ranks reach each other only if their numbers are equal.
    pub fn code(&self) -> u32 {
        let adapter = self.adapter.map_or(0, |by| by as u32 + 1);
        self.shm as u32 | adapter << 1 | (self.tcp as u32) << 3
    }

    /// Transport to peers without shared memory, an adapter if permitted; `None` if neither is permitted.
    pub fn outside(&self) -> Option<NetworkTransport> {
        let adapter = self.adapter.map(NetworkTransport::Adapter);
        adapter.or(self.tcp.then_some(NetworkTransport::Tcp))
    }

    /// Whether this rank reaches `peer` by an adapter or sockets. Both ranks of a pair compute the same answer.
    pub(crate) fn leads_outside(&self, job: &Job, peer: usize) -> bool {
        self.outside().is_some() && peer != job.rank() && (!self.shm || job.is_remote(peer))
    }
}

/// Whether `FASTPATH_TRANSPORTS` lists a transport.
pub fn is_listed(config: &Config, name: &str) -> bool {
    let listed = config.list(Key::Transports);
    listed.is_empty() || listed.iter().any(|word| word == "all" || word == name)
}
