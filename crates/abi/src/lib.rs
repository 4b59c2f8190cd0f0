//! The C entry points of the MPI 5 standard ABI: `libmpi_abi.so.1`.
//!
//! Nothing here holds logic. The exports are generated from the table of `fastpath-abigen`; each
//! calls the body of its name in `entry`, or says that it is not implemented.

use fastpath_base::heap::Heap;

#[global_allocator]
static HEAP: Heap = Heap;

pub(crate) mod entry;
mod exports;
