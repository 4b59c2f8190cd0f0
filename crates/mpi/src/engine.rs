//! What a running process talks with: the job and the worker.

/// The job and the worker of a process between `MPI_Init` and `MPI_Finalize`.
pub struct Engine {}
