//! Declarations of the MPI 5.0 standard ABI: every constant, handle and callback type, and every function as `MPI_X`
//! and as `PMPI_X`. They are text, generated from the table of Fastpath's library, so no libclang is needed.
//!
//! The crate links `libmpi_abi` of Fastpath or of another MPI with the standard ABI. The build script takes the folder
//! of the library from `$MPICC -show` if `MPICC` is set. Otherwise it takes the folder from the first of `mpicc -show`,
//! `mpicc_abi -show` and `pkg-config --libs mpi` that names the library.
//!
//! ```no_run
//! use fastpath_mpi_sys::*;
//! use std::ptr::null_mut;
//!
//! let mut rank = 0;
//! // SAFETY: `rank` lives during the call, and MPI is initialized once.
//! unsafe {
//!     MPI_Init(null_mut(), null_mut());
//!     MPI_Comm_rank(MPI_COMM_WORLD, &mut rank);
//!     MPI_Finalize();
//! }
//! println!("rank {rank}");
//! ```
//!
//! `examples/ring.rs` has a safe layer on top.
//!
//! - **Run path.** Cargo sets the run path of the library only in the programs of this crate. Other programs need
//!   `LD_LIBRARY_PATH`, or these lines in their `build.rs`:
//!
//!   ```no_run
//!   let folder = std::env::var("DEP_MPI_ABI_LIBDIR").unwrap_or_default();
//!   println!("cargo::rustc-link-arg=-Wl,-rpath,{folder}");
//!   ```
//! - **Handles** are pointers that a program may not dereference. They compare by value
//! - **Callbacks** are `Option`s of functions; `None` stands for the null functions. `MPI_COMM_DUP_FN` and the other
//!   predefined functions that are not null are Rust functions, which return the value
//! - **Not declared**: names that the header defines as inline functions, and names that MPI-3.0 removed. Instead of
//!   `MPI_Comm_f2c`, use `MPI_Comm_fromint`
#![no_std]

#[rustfmt::skip]
mod abi;
pub use abi::*;
