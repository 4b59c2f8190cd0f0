//! State that the interface and its endpoints share.

use super::rule::Rule;
use crate::adapter::ud::UdEndpoint;

/// Event counts, for reports and tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UpgradeCounters {
    /// Pairs that started with datagrams.
    pub pairs: u64,
    /// Pairs that use a connection in both directions.
    pub upgraded: u64,
    /// Pairs that stay with datagrams because of the limit of connections.
    pub limited: u64,
    /// Pairs that stay with datagrams because their connection could not be created.
    pub stayed: u64,
    /// Dropped wireup datagrams whose sender does not own the queue pair they came from.
    pub strangers: u64,
    /// Times that the datagram queue pair started to rest.
    pub rests: u64,
}

pub(super) struct UpgradeState {
    pub rule: Rule,
    pub upgrade_requests: Vec<u32>,
    /// Datagram ends of upgraded pairs, which still acknowledge retransmissions.
    pub parked: Vec<UdEndpoint>,
    pub on_datagrams: u32,
    pub counters: UpgradeCounters,
}
