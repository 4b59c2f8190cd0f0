//! The MPI standard ABI as a table, and what is generated from it: the C header, the constants for
//! Rust, the exported entry points and the program that checks the header.
//!
//! The table is in `table/` of this crate. Build scripts of `fastpath-mpi` and `fastpath-abi` use
//! this crate; nothing of it is in the built library.

pub mod asserts;
pub mod consts;
pub mod coverage;
pub mod exports;
mod file_access;
pub mod header;
mod interop;
pub mod model;
mod parse;
mod removed;
pub mod scan;

pub use model::Table;
pub use parse::ParseError;
