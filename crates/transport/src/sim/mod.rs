//! Transport within one process, with a clock that only its user advances.
//!
//! It tests the layers above: the ends of a [`Network`] exchange messages under [`Conditions`], with given delays and
//! refusals. By default messages arrive once and in order. With [`Conditions::reliable`] off, packets are lost,
//! duplicated and reordered, and [`crate::reliable`] repairs these faults below the endpoint. With
//! [`Conditions::wireup`] an endpoint carries data only after both sides have exchanged addresses. All random choices
//! follow from one seed. With [`Conditions::hardware`] messages take the time of a profile's adapters and buses.

mod adapter;
mod datapath;
mod domain;
mod endpoint;
mod iface;
mod wire;

pub use adapter::Hardware;
pub use domain::{Network, NetworkCounts};
pub use endpoint::SimEndpoint;
pub use iface::SimIface;

use crate::reliable;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Behavior of the network. Probabilities are from 0 to 1, times in virtual nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Conditions {
    /// Seed of all random choices.
    pub seed: u64,
    /// Delay from the post until the peer sees the message.
    pub delay_ns: RangeInclusive<u64>,
    /// Probability that a post is refused although there is room.
    pub refuse: f64,
    /// Probability that a post returns [`crate::Post::Wake`].
    pub wake: f64,
    /// Whether data arrives once and in order. Wire-up messages are never reliable.
    pub reliable: bool,
    /// Probability that a packet is lost.
    pub drop: f64,
    /// Probability that a packet is duplicated.
    pub double: f64,
    /// Maximum number of messages in flight in one direction.
    pub slots: usize,
    /// Largest short payload, in bytes.
    pub short: usize,
    /// Largest payload through a transport buffer, in bytes.
    pub bcopy: usize,
    /// Whether a peer's memory is accessible directly.
    pub get: bool,
    /// Whether endpoints must exchange addresses before they carry data.
    pub wireup: bool,
    /// Simulated adapters, which replace `delay_ns` (reliable networks only); `None` simulates none.
    pub hardware: Option<Hardware>,
    /// Timeouts of the reliability sublayer; its window is `slots`.
    pub retry: reliable::Settings,
    /// Longest sleep of a rank, in real time; `None` if unlimited.
    pub nap: Option<Duration>,
}

impl Default for Conditions {
    fn default() -> Self {
        Conditions {
            seed: 1,
            delay_ns: 100..=100,
            refuse: 0.0,
            wake: 0.0,
            reliable: true,
            drop: 0.0,
            double: 0.0,
            slots: 256,
            short: 48,
            bcopy: 32 * 1024,
            get: false,
            wireup: false,
            hardware: None,
            retry: reliable::Settings::default(),
            nap: None,
        }
    }
}
