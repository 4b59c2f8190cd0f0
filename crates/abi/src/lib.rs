//! The C entry points of the MPI 5 standard ABI: `libmpi_abi.so.1`.
//!
//! Nothing here holds logic. The exports are generated from the table of `fastpath-abigen`; each
//! calls the body of its name in `entry`, or says that it is not implemented.

pub(crate) mod entry;
mod exports;
