//! A transport inside one process, with a clock that only its user moves.
//!
//! It is for testing what stands above transports: the ends of a [`Network`] exchange messages under
//! [`Conditions`] that name how long a message takes and how often a post is refused. By itself it
//! delivers once and in order; without that ([`Conditions::reliable`] off) packets are lost, doubled
//! and overtaken, and [`crate::reliable`] stands between them and the endpoint. With
//! [`Conditions::wireup`] an endpoint carries data only after both sides have exchanged addresses.
//! Everything random follows from one seed. With [`Conditions::hardware`] messages take the time that adapters and
//! buses of a profile take for them.

mod adapter;
mod datapath;
mod domain;
mod endpoint;
mod iface;
mod wire;

pub use adapter::Hardware;
pub use domain::{Counts, Network};
pub use endpoint::SimEndpoint;
pub use iface::SimIface;

use crate::reliable;
use std::ops::RangeInclusive;
use std::time::Duration;

/// What the network does to messages. Probabilities are from 0 to 1, times in virtual nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Conditions {
    /// Where all randomness comes from.
    pub seed: u64,
    /// From the post until the peer can see it.
    pub delay_ns: RangeInclusive<u64>,
    /// How often a post is refused although there is room.
    pub refuse: f64,
    /// How often a post answers [`crate::Post::Wake`].
    pub wake: f64,
    /// Whether data arrives once and in the order sent. Messages of the wire-up never do.
    pub reliable: bool,
    /// How often a packet is lost.
    pub drop: f64,
    /// How often a packet arrives twice.
    pub double: f64,
    /// Messages under way in one direction at most.
    pub slots: usize,
    /// Largest short payload in bytes.
    pub short: usize,
    /// Largest payload through a transport buffer, in bytes.
    pub bcopy: usize,
    /// Whether memory of a peer can be read directly.
    pub get: bool,
    /// Whether endpoints must exchange addresses first.
    pub wireup: bool,
    /// Adapters that carry the messages, in place of `delay_ns`; reliable networks only.
    pub hardware: Option<Hardware>,
    /// SpinBudget of the reliability sublayer; its window is `slots`.
    pub retry: reliable::Settings,
    /// How long a rank may sleep at a time, of real time; `None` for no limit.
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
