//! Reliability over datagrams that may be lost, duplicated and reordered: sequence numbers, cumulative and selective
//! acknowledgements, retransmission.
//!
//! No I/O: packets and time are arguments, and results are packets to send. [`Sender`] and [`Receiver`] are the two
//! ends of one direction. A datagram transport has one of each for each peer.
//!
//! The receiver stores early arrivals, and acknowledges a message after its user has taken it. The window therefore
//! bounds the messages stored at the receiver. A receiver that takes none blocks its sender, and no message is dropped.

mod receiver;
mod round_trip;
mod sender;
#[cfg(test)]
mod tests;

pub use receiver::{ArrivalOutcome, Receiver};
pub use sender::Sender;

/// Acknowledgement from a receiver to its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ack {
    /// Sequence number of the first message that has not been taken.
    pub next: u32,
    /// Bit `i` is set if `next + i` has arrived and has not been taken.
    pub held: u64,
}

/// Window of a sender, in messages, and its timeouts, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Maximum number of unacknowledged messages, 1 to 2^30.
    pub window: u32,
    /// Time until the first retransmission, before a round trip has been measured.
    pub first_timeout_ns: u64,
    /// Shortest time until a retransmission.
    pub min_timeout_ns: u64,
    /// Longest time between two retransmissions of a message, while acknowledgements arrive.
    pub max_timeout_ns: u64,
    /// Longest time between two retransmissions of a message while nothing arrives because the receiver computes. At
    /// least `max_timeout_ns`.
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
