//! What MPI means: communicator, group, datatype, operation, request.
//!
//! Functions take Rust types and return [`Result`]; error classes are assigned only here. The C entry points of crate
//! `abi` decode handles and call in; nothing here knows a transport.

mod attached;
pub mod attribute;
mod background;
pub mod buffered;
mod caller;
pub mod channel;
pub mod check;
pub mod coll;
mod coll_choice;
pub mod comm;
pub mod comm_creation;
pub mod consts;
pub mod crash;
pub mod datatype;
pub mod dynamic;
pub mod environment;
pub mod errhandler;
pub mod error;
mod exhausted;
pub mod file;
pub mod finalize;
pub mod fortran;
pub mod group;
pub mod hot;
pub mod info;
pub mod init;
pub mod lock;
mod meeting;
pub mod memory;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../../tests/fuzz/mutate.rs"]
mod mutate;
pub mod op;
pub mod operation;
pub mod p2p;
pub mod p2p_slow;
pub mod partitioned;
pub mod places;
pub mod probe;
pub mod process;
pub mod request;
pub mod session;
mod shared_buffers;
mod spare_blocks;
pub mod status;
pub mod table;
pub mod tool;
pub mod topology;
pub mod topology_creation;
pub mod traced;
pub mod win;
mod word_exchange;

pub use error::{Error, Result};
pub use process::Process;
