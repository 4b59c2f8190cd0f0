//! Messages and one-sided operations: worker, endpoint, tag matching, eager and rendezvous.
//!
//! The files are in three layers, without a cycle (checked by `scripts/lint`):
//! 1. state and pure types that do not use a worker: `matching`, `request`, `unexpected`, `endpoint`, `learning`,
//!    `selection`, `rma`, `wait_policy`, `wire` and others
//! 2. `worker`, which holds them
//! 3. operations of a worker: `plan`, `send`, `recv`, `protocols`, `one_sided`, `progress`, `waiting` and others

mod advice;
pub mod background;
pub mod buffer;
mod configure;
mod connecting;
pub mod counters;
pub mod decide;
pub mod endpoint;
pub mod flood;
pub mod learning;
pub mod matching;
pub mod memory;
pub mod notices;
mod one_sided;
mod peer_exit;
mod peers;
pub mod plan;
pub mod progress;
pub mod protocols;
mod queued;
mod recall;
pub mod recv;
pub mod report;
pub mod request;
pub mod rma;
pub mod selection;
pub mod send;
mod short_arrivals;
pub mod snapshot;
pub mod tag;
pub mod unexpected;
pub mod wait_policy;
pub mod waiting;
pub mod wire;
pub mod wireup;
pub mod worker;

pub use endpoint::Endpoint;
pub use fastpath_base::layout;
pub use request::{Fault, Request, RequestId, RequestState};
pub use send::{SendArgs, StartOutcome};
pub use worker::Worker;
