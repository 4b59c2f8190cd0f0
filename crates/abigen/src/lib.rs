//! The MPI standard ABI as a table, and code generated from it. The products are the C header, the constants for Rust,
//! the declarations of crate `fastpath-mpi-sys`, the exported entry points and the program that checks the header.
//!
//! The table is in `table/` of this crate. Build scripts of `fastpath-mpi` and `fastpath-abi` use this crate; the built
//! library contains nothing of it.

pub mod asserts;
pub mod consts;
pub mod declarations;
pub mod exports;
pub mod fortran;
pub mod header;
mod interop;
pub mod model;
mod parse;
pub mod profile;
mod removed;
pub mod scan;
pub mod wiring;

pub use model::Table;
pub use parse::ParseError;
