//! What a message is: worker, endpoint, tag matching, eager and rendezvous.

pub mod background;
pub mod buffer;
mod connecting;
pub mod endpoint;
pub mod flood;
pub mod learning;
pub mod matching;
pub mod memory;
mod peer_exit;
mod peers;
pub mod progress;
pub mod protocols;
mod queued;
mod recall;
pub mod recv;
pub mod request;
pub mod rma;
pub mod selection;
pub mod send;
mod short_arrivals;
pub mod snapshot;
pub mod tag;
pub mod unexpected;
pub mod waiting;
pub mod wire;
pub mod wireup;
pub mod worker;

pub use endpoint::Endpoint;
pub use fastpath_base::layout;
pub use request::{Fault, Request, RequestId, State};
pub use send::{SendArgs, Started};
pub use worker::Worker;
