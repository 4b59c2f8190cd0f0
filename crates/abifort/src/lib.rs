//! The Fortran entry points of MPI 5.0 over the C functions of the standard ABI: `libmpifort_abi.so.1`.
//!
//! One library serves every compiler, because it has no Fortran code: it takes arguments as Fortran compilers pass
//! them.
//!
//! * Every argument is an address. The length of a string follows all other arguments.
//! * An absent `ierror` is a null pointer.
//! * A handle is an INTEGER, or a TYPE whose only component is one.
//! * A choice buffer is the address of its first element in `mpif.h` and module `mpi`, and a C descriptor
//!   (Fortran 2018, section 18.5) in `mpi_f08`.
//!
//! The library uses functions of the C ABI alone, so it runs over any `libmpi_abi.so.1`. `mpi_x_` calls `MPI_X` and
//! `pmpi_x_` calls `PMPI_X`, so that a profiling tool written in C sees each call once (MPI 5.0, section 15.2.1).
//! The entry points are generated from the tables of `fastpath-abigen`; those in `handwritten` are not.
//!
//! ARGUMENTS: an entry point may assume that a caller passes what the standard asks of it: every address is valid for
//! the access that its argument is for, or is a special address where the standard allows one.

mod convert;
mod ffi;
mod handwritten;
mod library;
mod refusal;
mod section;
mod shims;
mod special_addresses;
mod text;
