//! `mpiexec`: starts the ranks of a job, watches them, and cleans up after them.
fn main() {}
