//! Functions of parts that the process cannot name: error handlers of windows and files, whose folders come later, and
//! communicators hidden after failures.

use super::Process;
use crate::common::error::Result;
use crate::objects::comm::Comm;
use std::rc::Rc;

type Finder = fn(&Process, usize) -> Option<usize>;

/// Functions that find error handlers and communicators; set by initialisation.
#[derive(Clone, Copy)]
pub struct Finders {
    /// Finds the error handlers of windows.
    pub win: Finder,
    /// Finds the error handlers of files.
    pub file: Finder,
    /// Finds a communicator that is hidden or does not exist.
    pub comm: fn(&Process, usize) -> Result<Rc<Comm>>,
}

impl Finders {
    /// Functions before initialisation, when there are no windows and files.
    pub const NONE: Finders =
        Finders { win: |_, _| None, file: |_, _| None, comm: |p, comm| p.comms.find(comm) };
}
