//! Sessions of the process.

use crate::common::consts::{MPI_ERR_SESSION, MPI_SESSION_NULL};
use crate::common::table::HandleKind;
use crate::objects::attached::BufferCell;
use crate::objects::comm::Comm;
use fastpath_base::sync::{AtomicU32, Ordering};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// State of an MPI session (MPI 5.0, 11.3).
pub struct Session {
    /// Handle of the error handler.
    pub errhandler: Cell<usize>,
    pub(crate) level: i32,
    pub(crate) buffer: BufferCell,
}

impl HandleKind for Session {
    const NOUN: &'static str = "session";
    const NULL: (usize, &'static str) = (MPI_SESSION_NULL, "MPI_SESSION_NULL");
    const CLASS: i32 = MPI_ERR_SESSION;
}

/// Use of the process by sessions.
pub(crate) struct Use {
    /// Number of sessions that were initialised and not finalised.
    pub(crate) open: AtomicU32,
    /// Process id at the start of the first session; 0 for none.
    pub(crate) begun_by: AtomicU32,
    /// `MPI_COMM_WORLD` and `MPI_COMM_SELF` of a finalised world model. Requests may still name them.
    kept: RefCell<Vec<Rc<Comm>>>,
}

impl Use {
    pub const fn new() -> Self {
        Use { open: AtomicU32::new(0), begun_by: AtomicU32::new(0), kept: RefCell::new(Vec::new()) }
    }

    /// Returns whether there has been a session.
    pub fn is_begun(&self) -> bool {
        self.begun_by.load(Ordering::Relaxed) != 0
    }

    pub fn open(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }

    /// Drops the kept communicators.
    pub fn drop_all(&self) {
        self.kept.take();
    }

    pub fn keep(&self, comm: Rc<Comm>) {
        self.kept.borrow_mut().push(comm);
    }
}
