//! Communicators: a group, a context that keeps its messages apart, and what users attach to it.

pub mod contexts;

use crate::group::Group;
use fastpath_protocol::tag::Context;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Kinds of memory whose addresses may be passed (MPI-5.0 section 12.4.3).
pub const MEMORY_KINDS: &str = "system,mpi";

/// A communicator (MPI-5.0 chapter 7).
pub struct Comm {
    /// Its handle, for messages and for the table.
    pub handle: Cell<usize>,
    /// What keeps its messages apart from those of other communicators.
    pub context: Context,
    /// The local group.
    pub group: Rc<Group>,
    /// The other side of an intercommunicator.
    pub remote_group: Option<Rc<Group>>,
    /// The calling process's rank in the local group.
    pub rank: u32,
    /// As `MPI_Comm_set_name` left it.
    pub name: RefCell<String>,
    /// Handle of the error handler.
    pub errhandler: Cell<usize>,
    /// Cartesian or graph structure (`topology` owns the type).
    pub topology: RefCell<Option<Rc<dyn Any>>>,
    /// Cached attributes (`attribute` owns the type).
    pub attributes: RefCell<Option<Box<dyn Any>>>,
    /// Hints given at creation or by `MPI_Comm_set_info`: key and value.
    pub hints: RefCell<Vec<(String, String)>>,
    /// Number of the next collective call, the same on all members.
    pub collective_sequence: Cell<u32>,
}

impl Comm {
    /// Number of processes in the local group.
    pub fn size(&self) -> u32 {
        self.group.size()
    }

    /// Number of processes a message can be sent to: the remote group of an intercommunicator.
    pub fn peer_count(&self) -> u32 {
        self.peer_group().size()
    }

    /// The group that destination and source ranks refer to.
    pub fn peer_group(&self) -> &Group {
        self.remote_group.as_deref().unwrap_or(&self.group)
    }

    /// Whether this is an intercommunicator.
    pub fn is_inter(&self) -> bool {
        self.remote_group.is_some()
    }
}
