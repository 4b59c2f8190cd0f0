//! Connections of the kernel's network, between ranks that share no memory.
//!
//! They carry the messages of ranks without an adapter. Of ranks with one they carry what the adapter needs to begin
//! ([`wireup`]), and tell of the peer's end.
//!
//! A pair connects when the first message goes, from whichever side, and ends with one connection ([`connect`]); each
//! side proves first that it is of the job ([`greeting`]). Messages travel as frames, a head and a payload. They leave
//! at once while the kernel takes them; what it does not take waits in a bounded box of the connection and goes as it
//! makes room. What comes is read into a box as well, and shown there. A rank asks the kernel for all of its
//! connections by one call, and while it waits for one peer, reads from that one alone.
//!
//! A rank that leaves the job says so by a frame to those that share no memory with it; a connection that ends without
//! one is a dead peer. A process may end as soon as the peers' kernels have all that it sent: nothing of it is lost
//! then. A peer whose kernel is not heard is given up after twenty seconds, by the kernel's own questions where nothing
//! is under way and by ours where something is. `TCP_USER_TIMEOUT` is not used: it ends connections to a peer that
//! computes for long while its window is full.
//!
//! What strangers send costs them a connection: nobody reads more of them than 64 bytes, for 5 seconds, and 64 of them
//! at once.

mod buffers;
mod callers;
mod connect;
mod datapath;
mod dialing;
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

pub use domain::Settings;
pub use endpoint::TcpEndpoint;
pub use iface::{Counters, TcpIface};
pub(crate) use wire::WireupHead;

/// Payload of one message up to which it does better than several, in bytes: each costs a call of the kernel.
pub const MAX_SINGLE: usize = wire::PAYLOAD_MOST;

/// Polls that take about as long as so many of memory, at least one: each is a call of the kernel, of some 300 ns.
pub(crate) fn polls(at_memory: u32) -> u32 {
    (at_memory / 32).max(1)
}
