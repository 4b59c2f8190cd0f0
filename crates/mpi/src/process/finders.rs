//! Look-up of error handlers of objects that later layers own.

use super::Process;

type Finder = fn(&Process, usize) -> Option<usize>;

/// Functions that find error handlers of objects of later layers; set by initialisation.
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
