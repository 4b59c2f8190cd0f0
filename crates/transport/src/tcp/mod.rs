//! Sockets, between ranks that share no memory.
//!
//! Sockets carry the messages of ranks without an adapter. For ranks with an adapter, sockets carry the adapter's
//! wire-up ([`wireup`]) and detect the end of the peer.
//!
//! A pair connects at the first message from either side, and ends with one connection ([`connect`]). Each side first
//! proves that it belongs to the job ([`greeting`]). Messages are frames: a head and a payload. Frames are written at
//! once while the kernel accepts them. The remaining bytes wait in the connection's bounded outbox. Received bytes go
//! to an inbox, from which `look` returns messages. One system call polls all connections of a rank. A rank that waits
//! for one peer reads only that peer's connection.
//!
//! A rank that leaves the job sends a frame to peers that share no memory with it. A connection that ends without that
//! frame means a dead peer. A process may end when the peers' kernels have received everything. A peer whose kernel is
//! silent fails after twenty seconds: by keep-alive probes if nothing is in flight, else by checks of this library.
//! `TCP_USER_TIMEOUT` is not used: it would end connections to a peer that computes for long with a full window.
//!
//! At most 64 strangers (connections without a proved rank) are open at a time, each for at most 5 s and 64 bytes read.

mod accepting;
mod buffers;
mod callers;
mod connect;
mod core;
mod datapath;
mod dialing;
mod dials;
pub mod domain;
pub mod endpoint;
mod greeting;
pub mod iface;
mod link;
mod socket;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod watcher;
mod wire;
mod wireup;

pub use self::core::TcpCounters;
pub use domain::Settings;
pub use endpoint::TcpEndpoint;
pub use iface::TcpIface;
pub(crate) use wire::WireupHead;

/// Largest payload of one message, in bytes. Several smaller messages would each cost a system call.
pub const MAX_SINGLE: usize = wire::PAYLOAD_MOST;

/// Number of polls that take about as long as `at_memory` polls of memory; at least one. A poll is a system call of
/// some 300 ns.
pub(crate) fn polls(at_memory: u32) -> u32 {
    (at_memory / 32).max(1)
}
