//! Fault tolerance: how the members of a communicator agree on a value and on who has failed.
//!
//! Everything here is a pure state machine. The caller passes events in and sends the messages that come out:
//!
//! - It keeps a [`history::AgreementHistory`] for each communicator and passes it each message of an agreement and each
//!   failure of a member, also between agreements and after the communicator has been freed.
//! - It sends the messages to a member in the order in which they come out. Messages to failed members may be lost.
//! - It adds the failed members of a [`message::Decision`] to those it knows, because it may not have detected all.
//! - To shrink a communicator, each member offers a context. The decision has the failed members and the context of the
//!   lowest other member, which leads the new communicator.

pub mod agreement;
pub mod failed_set;
pub mod history;
mod member_set;
pub mod message;
mod tree;
