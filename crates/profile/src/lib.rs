//! The profiling library (`FASTPATH_PROFILE`): calls, bytes and time of MPI, by function and by call site.
//!
//! `mpiexec` preloads this library into the ranks. It defines the functions of the standard that communicate, and calls
//! their `PMPI_X` (MPI 5.0, section 15.2). The MPI library knows nothing of it, so a job without a profile costs
//! nothing. `MPI_Finalize` gathers the records of all ranks, and rank 0 writes the report.
//!
//! | module | contents |
//! |---|---|
//! | [`functions`] | the generated functions |
//! | [`library`] | the MPI library that serves them |
//! | [`record`] | the table of calls of this process |
//! | [`bytes`] | numbers of bytes that a call passes |
//! | [`site`] | call sites |
//! | [`lifecycle`] | start and end of MPI |
//! | [`report`] | the merged records of all ranks |
//! | [`place`] | functions and lines of call sites |
//! | [`text`], [`html`] | the report for readers |

mod bytes;
mod functions;
mod html;
mod library;
mod lifecycle;
mod place;
mod record;
mod report;
mod site;
mod text;
