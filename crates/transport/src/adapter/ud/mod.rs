//! Datagrams of RDMA adapters: one queue pair for all peers, made reliable by the library.
//!
//! A message is split into packets of the path's size. Each packet has a sequence number, and an acknowledgement for
//! the other direction. Lost packets are retransmitted (`reliable`). A packet stays in its send buffer until its
//! receiver has taken it. At the receiver it stays in its receive buffer until all packets before it have been
//! processed. Only a message of several packets is copied a second time, at its receiver. Each known peer costs a few
//! hundred bytes. Beyond about a hundred peers, each also costs two receive buffers. Other memory grows with
//! outstanding messages.
//!
//! Arrivals are not trusted. A packet with a wrong token or sending queue pair is dropped ([`UdCounters::garbage`]).
//!
//! Receive buffers posted in batches, and few signaled sends, are taken from RAMCloud's datagram driver.

mod addresses;
mod arrivals;
mod core;
mod datapath;
pub mod endpoint;
pub mod iface;
mod link;
mod outage;
mod pool;
mod slow_path;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod timers;
mod ways;
mod wire;
mod wireup;
pub mod wireup_datagram;

pub use self::core::UdCounters;
pub(crate) use addresses::RankAddresses;
pub use endpoint::UdEndpoint;
pub use iface::UdIface;
pub use wireup_datagram::WireupDatagram;

use crate::reliable;
use crate::verbs::inline::{DEFAULT_INLINE, Source};

/// Settings of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Maximum number of unacknowledged packets to one peer, 1 to 4096. The window always holds the largest message.
    pub window: u32,
    /// Number of receive buffers at the start, at least 64. Each holds one packet.
    pub receives: u32,
    /// Number of receive buffers that each connection adds, if the first ones do not suffice.
    pub receives_each: u32,
    /// Maximum number of outstanding sends, at least 32.
    pub depth: u32,
    /// Number of send buffers of one allocation: of those for one packet, and of those for several.
    pub buffers: [u32; 2],
    /// Maximum number of allocations of each kind of send buffer.
    pub groups: u32,
    /// Requested inline bytes.
    pub inline: u32,
    /// Source of `inline`.
    pub inline_source: Source,
    /// Delay until an acknowledgement is sent alone, in nanoseconds.
    pub ack_delay_ns: u64,
    /// Retransmission settings. The window of these settings is replaced by `window`.
    pub retry: reliable::Settings,
    /// A peer of unknown state counts as failed after this many nanoseconds without an answer. Peers answer only while
    /// they are in the library.
    pub give_up_ns: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            window: 64,
            receives: 256,
            receives_each: 2,
            depth: 256,
            buffers: [256, 16],
            groups: 16,
            inline: DEFAULT_INLINE,
            inline_source: Source::Default,
            ack_delay_ns: 50_000,
            retry: reliable::Settings {
                window: 64,
                first_timeout_ns: 10_000_000,
                min_timeout_ns: 4_000_000,
                max_timeout_ns: 100_000_000,
                rest_timeout_ns: 1_000_000_000,
            },
            give_up_ns: 60_000_000_000,
        }
    }
}
