//! Messages of a rank to itself: a queue in private memory.
pub mod endpoint;

pub use endpoint::LoopbackEndpoint;
