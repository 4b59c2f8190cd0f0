//! The C entry points of the MPI 5 standard ABI: `libmpi_abi.so.1`.
//!
//! The exports are generated from the table of `fastpath-abigen`. Each export calls a body in `entry`, which
//! `wiring.txt` names. This crate has no other logic.

use fastpath_base::heap::Heap;

#[global_allocator]
static HEAP: Heap = Heap;

pub(crate) mod entry;
mod exports;
