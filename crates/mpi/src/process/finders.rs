//! What finds the error handlers of objects that are not known here.

use super::Process;

/// Finds the error handler of an object by its handle.
type Finder = fn(&Process, usize) -> Option<usize>;

/// What finds the error handlers of objects that are not known here; set when MPI is initialised.
#[derive(Clone, Copy)]
pub struct Finders {
    /// Of windows.
    pub win: Finder,
    /// Of files.
    pub file: Finder,
}

impl Finders {
    /// There are no such objects yet.
    pub const NONE: Finders = Finders { win: |_, _| None, file: |_, _| None };
}
