//! Error handlers.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::c_int;

/// Kind of object that a user's error handler is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandlerKind {
    /// Communicators.
    Comm,
    /// Windows.
    Win,
    /// Files.
    File,
    /// Sessions.
    Session,
}

/// User's error handler. Its arguments are the object's handle and the error code. The standard allows further
/// arguments; this library passes none.
pub(crate) type Function = unsafe extern "C" fn(*mut usize, *mut c_int, ...);

#[derive(Debug, Clone, Copy)]
pub(crate) enum ErrorAction {
    /// `MPI_ERRORS_ARE_FATAL` and `MPI_ERRORS_ABORT`: ends the job.
    End,
    Return,
    Call(HandlerKind, Function),
}

/// An error handler.
#[derive(Debug)]
pub struct Errhandler {
    pub(crate) action: ErrorAction,
    /// Number of handles that the user holds: one from creation, and one from each query.
    pub(crate) held: Cell<usize>,
    /// Number of objects that use the handler.
    pub(crate) attached: Cell<usize>,
}

impl Errhandler {
    pub(crate) fn new(action: ErrorAction) -> Self {
        Errhandler { action, held: Cell::new(1), attached: Cell::new(0) }
    }
}
