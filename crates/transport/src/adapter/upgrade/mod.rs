//! Datagrams and reliable connections of one adapter. A pair starts with datagrams, which need no resources for each
//! pair. It gets a queue pair when that is worth its cost ([`Rule`]).
//!
//! Each direction changes on its own. The last datagram of a direction is a final packet (`UdEndpoint::send_last`);
//! later messages use the connection. The receiver takes messages of the connection only after the final packet. The
//! order of messages is kept, and only messages after the change wait.
//!
//! Wireup datagrams (`ud::wireup_datagram`) to the datagram queue pair establish both kinds of connections. Each rank
//! publishes only the address of that queue pair, on its page of the job's memory.
//!
//! The datagram queue pair is polled only while pairs need it, packets are outstanding, or a connection is being made.
//! Otherwise it rests: the adapter reports an arrival, and one load detects it.

pub mod endpoint;
pub mod iface;
pub mod rule;
mod shared;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use endpoint::UpgradeEndpoint;
pub use iface::{Refusal, UpgradeIface};
pub use rule::Rule;
pub use shared::UpgradeCounters;
