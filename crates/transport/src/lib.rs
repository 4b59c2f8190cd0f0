//! Transports between two processes.
//!
//! Each transport is a folder with these files: `iface` (setup and progress), `endpoint` (connection), `wire` (format
//! on the wire or in shared memory), `datapath` (only the hot path). `loopback`, a queue in private memory, has only
//! `endpoint`. `shm`, `sim` and `tcp` also have `domain` (memory). No transport uses another; `adapter` holds two with
//! a common core. The protocol layer matches on [`Lane`], the closed set of endpoints.
// With `loom`, only the tests of the model are built, so other code is unused.
#![cfg_attr(feature = "loom", allow(dead_code))]

pub mod adapter;
pub mod allowed;
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

pub use contract::{
    Address, Arrival, Capabilities, Connection, Cost, Header, Method, Post, PostOutcome, Remote,
    RemoteBlock, RemoteError,
};
pub use interfaces::Interfaces;
pub use lane::Lane;
pub use setup::ConfigureError;
pub use setup::peers::PeerClass;
