//! Start and end of MPI in a process: `MPI_Init`, `MPI_Finalize`, sessions.

mod exit;
pub mod finalize;
pub mod init;
pub mod session;
