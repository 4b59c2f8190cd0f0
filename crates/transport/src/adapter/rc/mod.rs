//! Reliable connections of RDMA adapters: one queue pair for each connected peer.
//!
//! A message is sent into receive buffers that all connections share. Small messages are sent inline, larger messages
//! from transport buffers in packets of 16 KiB. Credits bound the packets at each peer, so a peer that does not receive
//! delays only its own senders. One-sided operations access a peer's memory directly, by its rkey.
//!
//! Few sends are signaled: one in [`Settings::depth`] / 4, and each operation that is reported. A completion frees the
//! entries of all sends before it. Send queues are polled only while completions are outstanding.

mod arrivals;
mod connection;
mod core;
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

pub use self::core::{Completion, RcCounters};
pub use endpoint::RcEndpoint;
pub use iface::RcIface;

const POLL: usize = 16;
/// Largest payload of one message, in bytes. A larger message would cost more to copy than it saves by fewer posts.
pub const MAX_SINGLE: usize = 16 * 1024;
const _: () = assert!(MAX_SINGLE < wire::PACKET);

use crate::verbs::RetryConfig;
use crate::verbs::inline::{DEFAULT_INLINE, Source};

/// Settings of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Maximum number of packets from one peer that have not been taken, 8 to 255.
    pub window: u32,
    /// Number of receive buffers at the start, at least twice the window. All connections share them. Each has 16 KiB.
    pub receives: u32,
    /// Number of receive buffers up to which each new connection adds a full window.
    pub receives_windows: u32,
    /// Number of receive buffers that each later connection adds.
    pub receives_each: u32,
    /// Maximum number of outstanding sends of one connection, at least 16.
    pub depth: u32,
    /// Number of small and of large send buffers. All connections share them.
    pub buffers: [u32; 2],
    /// Requested inline bytes.
    pub inline: u32,
    /// Source of `inline`.
    pub inline_source: Source,
    /// Maximum number of completions taken by one poll, 1 to 16.
    pub batch: usize,
    /// Retries and timeouts of connections.
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
            batch: POLL,
            retry_config: RetryConfig::default(),
        }
    }
}
