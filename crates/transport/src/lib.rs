//! How bytes move between two processes.
//!
//! One folder for each transport, with the same rooms: `domain` (memory), `iface` (set-up and
//! progress), `endpoint` (connection), `wire` (what lies on the wire or in shared memory),
//! `datapath` (the hot path and nothing else). No transport knows another; `adapter` has two, which
//! share its core. [`Lane`] is the closed set that the protocol layer matches on.
// Of the tests only those of the model are built with it, and not what the others need.
#![cfg_attr(feature = "loom", allow(dead_code))]

pub mod adapter;
#[cfg(all(test, not(feature = "loom")))]
mod conformance;
pub mod contract;
pub mod interfaces;
pub mod lane;
pub mod loopback;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../../tests/fuzz/mutate.rs"]
mod mutate;
pub mod reliable;
pub mod remote;
pub mod setup;
pub mod shm;
#[cfg_attr(not(any(test, feature = "sim")), path = "without_sim.rs")]
pub mod sim;
pub mod single_copy;
pub mod tcp;
pub mod verbs;
mod wireup_mailbox;

pub use contract::{
    Address, Arrival, Capabilities, Connection, Cost, Header, Post, Remote, RemoteError,
};
pub use interfaces::Interfaces;
pub use lane::Lane;
pub use setup::ConfigureError;
pub use setup::peers::PeerClass;
