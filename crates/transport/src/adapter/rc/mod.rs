//! Reliable connections of RDMA adapters: one queue pair for each peer that is talked to.
//!
//! Messages are sends into receive buffers that all connections share; what fits goes inline, the rest
//! from buffers of the transport, in packets of 16 KiB. Each side counts how many packets it may have at the
//! other (credits), so that a peer that does not take holds its sender back and no other. Memory of a peer is
//! written, read and changed directly, given a key.
//!
//! Sends complete in silence but for a few ([`Settings::depth`] / 4 apart, and those somebody waits for); one
//! completion returns the room of all before it. The send queue is polled only while something is outstanding.

mod arrivals;
mod connection;
mod datapath;
pub mod endpoint;
pub mod iface;
pub mod registrations;
mod remote;
mod slow_path;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod watch;
mod wire;

pub use endpoint::RcEndpoint;
pub use iface::{Completion, Counters, RcIface};

/// Bytes of payload up to which a message goes as one: more posts cost more than the copies of one.
pub const MAX_SINGLE: usize = 16 * 1024;
const _: () = assert!(MAX_SINGLE < wire::PACKET);

use crate::verbs::RetryConfig;
use crate::verbs::inline::{DEFAULT_INLINE, Source};

/// How an interface is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Packets of one peer that may lie here untaken, 8 to 255.
    pub window: u32,
    /// Receive buffers for all connections at first, each of 16 KiB; at least twice the window.
    pub receives: u32,
    /// Receive buffers up to which each connection adds a window, once the first ones are spoken for.
    pub receives_windows: u32,
    /// Receive buffers that each further connection adds.
    pub receives_each: u32,
    /// Sends of one connection under way, 16 or more.
    pub depth: u32,
    /// Small and large send buffers for all connections.
    pub buffers: [u32; 2],
    /// Bytes of inline data asked for.
    pub inline: u32,
    /// Who said so.
    pub inline_source: Source,
    /// Completions taken by one poll, 1 to 16.
    pub batch: usize,
    /// How long connections try.
    pub retry_config: RetryConfig,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            window: 32,
            receives: 64,
            receives_windows: 128,
            receives_each: 8,
            depth: 128,
            buffers: [128, 16],
            inline: DEFAULT_INLINE,
            inline_source: Source::Default,
            batch: datapath::POLL,
            retry_config: RetryConfig::default(),
        }
    }
}
