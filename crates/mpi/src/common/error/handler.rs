//! Error handlers as the process keeps them.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::c_int;

/// The kind of object whose errors a user's error handler takes.
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

/// A user's error handler: the object's handle, the error code, and arguments that the standard leaves to
/// implementations; this one passes none.
pub(crate) type Function = unsafe extern "C" fn(*mut usize, *mut c_int, ...);

/// What an error handler does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Action {
    /// `MPI_ERRORS_ARE_FATAL`, `MPI_ERRORS_ABORT`: the job ends.
    End,
    /// `MPI_ERRORS_RETURN`
    Return,
    /// The user's function.
    Call(HandlerKind, Function),
}

/// An error handler.
#[derive(Debug)]
pub struct Errhandler {
    /// What it does.
    pub(crate) action: Action,
    /// Handles that the user holds: one from creation, one from each query.
    pub(crate) held: Cell<usize>,
    /// Objects that have it.
    pub(crate) attached: Cell<usize>,
}

impl Errhandler {
    /// One that the user holds once.
    pub(crate) fn new(action: Action) -> Self {
        Errhandler { action, held: Cell::new(1), attached: Cell::new(0) }
    }
}
