//! The C entry points of the MPI 5 standard ABI.
