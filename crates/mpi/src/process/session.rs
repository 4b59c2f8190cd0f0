//! Sessions as the process keeps them.

use crate::common::consts::{MPI_ERR_SESSION, MPI_SESSION_NULL};
use crate::common::table::Handled;
use crate::objects::attached::BufferCell;
use crate::objects::comm::Comm;
use fastpath_base::sync::{AtomicU32, Ordering};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A session.
pub struct Session {
    /// Handle of the error handler.
    pub errhandler: Cell<usize>,
    /// The thread level provided.
    pub(crate) level: i32,
    /// The buffer attached to it.
    pub(crate) buffer: BufferCell,
}

impl Handled for Session {
    const NOUN: &'static str = "session";
    const NULL: (usize, &'static str) = (MPI_SESSION_NULL, "MPI_SESSION_NULL");
    const CLASS: i32 = MPI_ERR_SESSION;
}

/// What sessions have done to the process.
pub(crate) struct Use {
    /// Sessions that were initialised and not finalised.
    pub(crate) open: AtomicU32,
    /// The process that has begun its first one; 0 for none.
    pub(crate) begun_by: AtomicU32,
    /// `MPI_COMM_WORLD` and `MPI_COMM_SELF` of a world model that was finalised: requests may still name them.
    kept: RefCell<Vec<Rc<Comm>>>,
}

impl Use {
    /// There was none.
    pub const fn new() -> Self {
        Use { open: AtomicU32::new(0), begun_by: AtomicU32::new(0), kept: RefCell::new(Vec::new()) }
    }

    /// Whether there was one.
    pub fn is_begun(&self) -> bool {
        self.begun_by.load(Ordering::Relaxed) != 0
    }

    /// Sessions that were initialised and not finalised.
    pub fn open(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }

    /// Keeps a communicator of the world model to the end.
    pub fn keep(&self, comm: Rc<Comm>) {
        self.kept.borrow_mut().push(comm);
    }
}
