//! Fault tolerance: what a process knows of failed ranks, and how the members of a communicator agree on it.
//!
//! Everything here is a pure state machine. The caller passes events in and sends the messages that come out.

pub mod agreement;
pub mod failed_set;
pub mod failure_log;
pub mod history;
pub mod message;
mod tree;
