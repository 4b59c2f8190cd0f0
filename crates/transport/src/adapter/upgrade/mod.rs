//! Datagrams and reliable connections of one adapter: a pair begins with datagrams, for which it needs nothing of its
//! own, and gets a queue pair when it talks so much that one is worth what it costs ([`Rule`]).
//!
//! Each direction changes by itself. The last datagram message of a direction says so
//! (`UdEndpoint::send_last`); what follows goes by the connection, and its receiver takes nothing from there before it
//! has taken that word. So order is kept, and nothing waits for the change but what comes after it.
//!
//! Connections of both kinds are made by wireup datagrams (`ud::wireup_datagram`) to the datagram queue pair, whose
//! address each rank publishes in its page of the job's memory: nothing else is exchanged there.
//!
//! The datagram queue pair is polled only while pairs live on it, something of it is under way, or a connection is
//! being made. Otherwise it rests: the adapter tells of an arrival, and one load finds out.

pub mod endpoint;
pub mod iface;
pub mod rule;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use endpoint::UpgradeEndpoint;
pub use iface::{Counters, Refusal, UpgradeIface};
pub use rule::Rule;
