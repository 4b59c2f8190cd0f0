//! Datagrams of RDMA adapters: one queue pair for all peers, reliable by the library's own doing.
//!
//! A message is cut into packets of the path's size. Each carries a sequence number, and what its sender has received
//! of the other direction; what is lost is sent again (`reliable`). A packet stays where it was sent from until its
//! receiver has taken it, and where it has arrived until its turn comes, so that nothing is copied twice but messages
//! of several packets at their receiver. Memory grows with what is under way and hardly with the peers that are known:
//! a peer costs a few hundred bytes, and two receive buffers once there are more than a hundred.
//!
//! What arrives is not trusted: a packet that does not carry the token of its connection, or comes from another
//! queue pair than the peer's, is counted and dropped ([`Counters::garbage`]).
//!
//! Taken from RAMCloud's driver for datagrams: receive buffers posted in batches, few sends that report.

mod addresses;
mod arrivals;
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
pub mod wireup_datagram;

pub(crate) use addresses::RankAddresses;
pub use endpoint::UdEndpoint;
pub use iface::{Counters, UdIface};
pub use wireup_datagram::WireupDatagram;

use crate::reliable;
use crate::verbs::inline::{DEFAULT_INLINE, Source};

/// How an interface is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Packets under way to one peer and not taken there, 1 to 4096. Where a message of full length has more, so many.
    pub window: u32,
    /// Receive buffers at first, each of one packet; 64 or more.
    pub receives: u32,
    /// Receive buffers for each connection, once the first ones do not reach.
    pub receives_each: u32,
    /// Sends under way, 32 or more.
    pub depth: u32,
    /// Send buffers made at once, of those for one packet and of those for several.
    pub buffers: [u32; 2],
    /// How often so many are made at most.
    pub groups: u32,
    /// Bytes of inline data asked for.
    pub inline: u32,
    /// Who said so.
    pub inline_source: Source,
    /// Nanoseconds until an acknowledgement goes by itself.
    pub ack_delay_ns: u64,
    /// When packets are sent again. The window is the one above.
    pub retry: reliable::Settings,
    /// Nanoseconds without an answer after which a peer counts as gone, where nothing else says whether it lives: a
    /// peer answers only while it is in the library.
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
