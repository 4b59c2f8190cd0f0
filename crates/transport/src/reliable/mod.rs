//! Reliability above datagrams that may be lost, doubled and reordered: sequence numbers, cumulative
//! and selective acknowledgements, retransmission.
//!
//! Pure: packets and time come in as arguments, what to send comes out. [`Sender`] and [`Receiver`]
//! are the two ends of one direction; a datagram transport keeps one of each per peer.
//!
//! The receiver keeps what arrived early, and counts a message as acknowledged when its user has
//! taken it. The window therefore bounds what lies at the receiver, and a receiver that does not
//! take holds the sender back without a message being dropped for it.

mod receiver;
mod round_trip;
mod sender;
#[cfg(test)]
mod tests;

pub use receiver::{Accepted, Receiver};
pub use sender::Sender;

/// What a receiver tells its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ack {
    /// Everything before this sequence number has been taken.
    pub next: u32,
    /// Bit `i`: `next + i` has arrived and is kept.
    pub held: u64,
}

/// How patient a sender is. Times in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Most messages that are sent and not acknowledged, 1 to 2^30.
    pub window: u32,
    /// Time until the first retransmission, before any round trip has been measured.
    pub first_timeout_ns: u64,
    /// Least time until a retransmission.
    pub min_timeout_ns: u64,
    /// Most time between two retransmissions of one message while the receiver is heard of.
    pub max_timeout_ns: u64,
    /// The same while nothing is heard of it: it computes, and cannot answer. At least the one above.
    pub rest_timeout_ns: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            window: 64,
            first_timeout_ns: 1_000_000,
            min_timeout_ns: 20_000,
            max_timeout_ns: 100_000_000,
            rest_timeout_ns: 1_000_000_000,
        }
    }
}
