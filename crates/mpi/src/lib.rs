//! MPI semantics: communicator, group, datatype, operation, request.
//!
//! Functions take Rust types and return [`Result`]. Only this crate assigns error classes. The C entry points of crate
//! `abi` decode handles and call this crate, which knows no transport.
//!
//! Each folder uses itself and the folders before it:
//!
//! | folder | content |
//! |---|---|
//! | [`common`] | constants, errors, statuses, handles, the lock |
//! | `coll_choice` | selection of collective algorithms: a cost model without state |
//! | [`objects`] | groups, datatypes, operations, communicators and their tables of the immediate path |
//! | [`ft`] | what is known of failed ranks, agreement in spite of failures |
//! | [`check`] | `FASTPATH_CHECK=1`, and call sites of the program |
//! | [`process`] | the static that holds every table, error handlers, crash reports |
//! | [`p2p`] | messages: the immediate path, the full path, requests, probes, channels of collective calls |
//! | [`coll`] | collective calls |
//! | [`comm_creation`] | creation of communicators, which is collective |
//! | [`recovery`] | agreement and repair of communicators after failures |
//! | [`rma`] | windows |
//! | [`io`] | files |
//! | [`dynamic`] | spawn, ports, connected jobs |
//! | [`tool`] | the tool interface, and traces |
//! | [`lifecycle`] | `MPI_Init`, `MPI_Finalize`, sessions |
//!
//! `scripts/lint` checks this order, and that the files of a folder use each other without a cycle.

pub mod check;
pub mod coll;
mod coll_choice;
pub mod comm_creation;
pub mod common;
pub mod dynamic;
pub mod ft;
pub mod io;
pub mod lifecycle;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../../tests/fuzz/mutate.rs"]
mod mutate;
pub mod objects;
pub mod p2p;
pub mod process;
pub mod recovery;
pub mod rma;
pub mod tool;

pub use common::error::{Error, Result};
pub use process::Process;
