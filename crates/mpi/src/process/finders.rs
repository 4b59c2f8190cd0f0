//! Look-up of the error handlers of windows and files, whose types this folder cannot name: their folders come later.

use super::Process;

type Finder = fn(&Process, usize) -> Option<usize>;

/// Functions that find the error handlers of windows and files; set by initialisation.
#[derive(Clone, Copy)]
pub struct Finders {
    /// Finds the error handlers of windows.
    pub win: Finder,
    /// Finds the error handlers of files.
    pub file: Finder,
}

impl Finders {
    /// Functions before initialisation, when there are no windows and files.
    pub const NONE: Finders = Finders { win: |_, _| None, file: |_, _| None };
}
