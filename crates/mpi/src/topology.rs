//! Virtual topologies of communicators (MPI-5.0 chapter 8).

/// The structure of a communicator.
#[derive(Debug)]
pub enum Topology {}
