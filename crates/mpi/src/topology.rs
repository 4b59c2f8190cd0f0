//! Virtual topologies of communicators (MPI-5.0 chapter 8).
