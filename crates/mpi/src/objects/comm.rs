//! Communicators: a group, a context that keeps its messages apart, and what users attach to it
//! (MPI-5.0 chapter 7).

pub mod contexts;
mod entry;
pub mod freed;
pub mod hints;
mod neighborhood;
pub(crate) mod spread;

use crate::coll_choice::Nodes;
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::common::places;
use crate::common::table::Handled;
use crate::objects::attribute::{Attributes, Holder, KeyvalKind};
use crate::objects::group::Group;
use crate::objects::shared_buffers::Mapped;
use crate::objects::topology::Topology;
use contexts::Block;
pub use entry::HotComm;
use fastpath_protocol::Endpoint;
use fastpath_protocol::tag::Context;
pub use neighborhood::Neighborhood;
use spread::Spread;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

/// The internal tag of the first collective call on a communicator; those of later ones are below.
pub(crate) const FIRST_TAG: i32 = -16;

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
    /// The local group of an intercommunicator as a communicator, which no handle names.
    pub(crate) local: Option<Rc<Comm>>,
    /// The calling process's rank in the local group.
    pub rank: u32,
    /// As `MPI_Comm_set_name` left it.
    pub name: RefCell<String>,
    /// The MPI call that made it.
    made_by: &'static str,
    /// Handle of the error handler.
    pub errhandler: Cell<usize>,
    /// Cartesian or graph structure.
    pub topology: RefCell<Option<Rc<Topology>>>,
    /// Cached attributes.
    pub attributes: Attributes,
    /// Hints given at creation or by `MPI_Comm_set_info`: key and value.
    pub hints: RefCell<Vec<(String, String)>>,
    /// The session that it comes from; 0 for the world model.
    pub(crate) session: Cell<usize>,
    /// The buffer attached to it.
    pub(crate) buffer: crate::objects::attached::BufferCell,
    /// Number of the next collective call, the same on all members.
    pub collective_sequence: Cell<u32>,
    /// Number of the next persistent collective call, the same on all members.
    pub(crate) persistent_sequence: Cell<u32>,
    /// Number of the next tag for partitions that this process sends.
    pub(crate) partition_tags: Cell<u32>,
    /// Contexts for duplicates, the same on all members.
    pub spares: Cell<Block>,
    /// The rank's page counts it, since it has ranks of other worlds of the job.
    pub(crate) is_link: Cell<bool>,
    /// Which members share a host, once a collective call has asked; none where all do.
    pub(crate) nodes: OnceCell<Option<Box<Nodes>>>,
    /// The buffers that its members share, once a collective call has made them; none where that failed.
    pub(crate) mapped: OnceCell<Option<Box<Mapped>>>,
    /// Whom the topology makes the neighbours, once a call asks.
    pub(crate) neighbors: OnceCell<Rc<Neighborhood>>,
    /// Endpoint of each rank that a message can be sent to, in the first worker: of collective calls and, at place 0,
    /// of all messages.
    pub endpoints: Box<[*mut Endpoint]>,
    /// Which worker carries the messages between two ranks ([`crate::common::places`]).
    pub place: u32,
    /// Which workers do, where its messages are spread over several.
    pub(crate) spread: Option<Box<Spread>>,
    /// The endpoints in that one, where it is a further worker.
    pub(crate) own_endpoints: Option<Box<[*mut Endpoint]>>,
}

impl Handled for Comm {
    const NOUN: &'static str = "communicator";
    const NULL: (usize, &'static str) = (MPI_COMM_NULL, "MPI_COMM_NULL");
    const CLASS: i32 = MPI_ERR_COMM;
}

impl Comm {
    /// The kind of its topology; `MPI_UNDEFINED` without one.
    pub fn topology_kind(&self) -> i32 {
        self.topology.borrow().as_ref().map_or(MPI_UNDEFINED, |topology| topology.kind())
    }

    /// Its topology, to be asked for what only one kind has.
    ///
    /// # Errors
    /// `MPI_ERR_TOPOLOGY` where it has none.
    pub fn find_topology(&self) -> Result<Rc<Topology>> {
        let found = self.topology.borrow().clone();
        found.ok_or_else(|| Error::new(MPI_ERR_TOPOLOGY, "the communicator has no topology"))
    }

    /// It as the holder of attributes.
    pub fn holder(&self) -> Holder<'_> {
        Holder { kind: KeyvalKind::Comm, handle: self.handle.get(), attributes: &self.attributes }
    }

    /// A communicator without a handle, with `MPI_ERRORS_ARE_FATAL`. `rank` is the calling process's
    /// rank in `group`, `made_by` the call that makes it, `endpoint` gives that of a rank of the world.
    pub(crate) fn with_endpoints(
        made_by: &'static str, endpoint: &impl Fn(u32) -> Option<*mut Endpoint>, context: Context,
        group: Rc<Group>, remote_group: Option<Rc<Group>>, rank: u32,
    ) -> Self {
        let spares = if context == Context::WORLD { Block::WORLD_SPARES } else { Block::EMPTY };
        let session = Cell::new(group.session());
        let of_group = |group: &Rc<Group>| {
            Comm::with_endpoints(made_by, endpoint, context, group.clone(), None, rank)
        };
        let local = remote_group.is_some().then(|| Rc::new(of_group(&group)));
        let peers = remote_group.as_ref().unwrap_or(&group);
        let endpoints = peers.world_ranks().iter().filter_map(|&peer| endpoint(peer)).collect();
        Comm {
            handle: Cell::new(MPI_COMM_NULL),
            context,
            group,
            remote_group,
            local,
            rank,
            name: RefCell::default(),
            made_by,
            errhandler: Cell::new(MPI_ERRORS_ARE_FATAL),
            session,
            buffer: Cell::new(None),
            topology: RefCell::default(),
            attributes: Attributes::default(),
            hints: RefCell::default(),
            collective_sequence: Cell::new(0),
            persistent_sequence: Cell::new(0),
            partition_tags: Cell::new(0),
            spares: Cell::new(spares),
            is_link: Cell::new(false),
            nodes: OnceCell::new(),
            mapped: OnceCell::new(),
            neighbors: OnceCell::new(),
            endpoints,
            place: 0,
            spread: None,
            own_endpoints: None,
        }
    }

    /// Endpoint of each rank, for messages between two ranks.
    pub(crate) fn direct_endpoints(&self) -> &[*mut Endpoint] {
        self.own_endpoints.as_deref().unwrap_or(&self.endpoints)
    }

    /// What a person would call it: by its name or, where it has none, by how it was made.
    pub fn title(&self) -> String {
        let name = self.name.borrow();
        match name.is_empty() {
            true => format!("made by {}", self.made_by),
            false => name.clone(),
        }
    }

    /// Tells a further worker what its notes call this communicator.
    pub fn tell_title(&self) {
        if self.place != 0 {
            places::keep_title(self.handle.get(), Some(self.title()));
        }
    }

    /// `MPI_Comm_set_info`: takes hints that are known. What its messages are spread by stays.
    pub fn set_hints(&self, given: Vec<(String, String)>) {
        let mut given = hints::select(given);
        if let Some(spread) = &self.spread {
            given.retain(|(key, _)| !spread.needs(key));
        }
        hints::merge(&mut self.hints.borrow_mut(), given);
    }

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

    /// The rank by which messages reach the process of rank `world` in the world; that one where it is no member.
    pub fn peer_rank(&self, world: u32) -> i32 {
        let ranks = self.peer_group().world_ranks();
        ranks.iter().position(|&rank| rank == world).map_or(world as i32, |rank| rank as i32)
    }

    /// Whether this is an intercommunicator.
    pub fn is_inter(&self) -> bool {
        self.remote_group.is_some()
    }

    /// The calling process's rank in the world.
    pub fn my_world_rank(&self) -> u32 {
        self.group.world_ranks().get(self.rank as usize).copied().unwrap_or(0)
    }

    /// Refuses an intercommunicator.
    ///
    /// # Errors
    /// `MPI_ERR_COMM`.
    pub fn require_intra(&self) -> Result {
        match self.remote_group {
            Some(_) => Err(Error::new(
                MPI_ERR_COMM,
                "the communicator is an intercommunicator: pass an intracommunicator",
            )),
            None => Ok(()),
        }
    }

    /// The local group of an intercommunicator as a communicator.
    ///
    /// # Errors
    /// `MPI_ERR_COMM` for an intracommunicator.
    pub(crate) fn find_local(&self) -> Result<&Rc<Comm>> {
        self.remote()?;
        let text = "an intercommunicator without a local group";
        self.local.as_ref().ok_or_else(|| Error::new(MPI_ERR_INTERN, text))
    }

    /// The remote group of an intercommunicator.
    ///
    /// # Errors
    /// `MPI_ERR_COMM` for an intracommunicator.
    pub fn remote(&self) -> Result<&Rc<Group>> {
        self.remote_group.as_ref().ok_or_else(|| {
            Error::new(
                MPI_ERR_COMM,
                "the communicator is an intracommunicator: it has no remote group",
            )
        })
    }

    /// `MPI_IDENT` (the same object), `MPI_CONGRUENT` (same processes in the same order),
    /// `MPI_SIMILAR` (in another order) or `MPI_UNEQUAL`.
    pub fn compare(&self, other: &Comm) -> i32 {
        if std::ptr::eq(self, other) {
            return MPI_IDENT;
        }
        let mut result = self.group.compare(&other.group);
        match (&self.remote_group, &other.remote_group) {
            (None, None) => {}
            (Some(remote), Some(other)) => {
                let there = remote.compare(other);
                if result == MPI_UNEQUAL || there == MPI_UNEQUAL {
                    result = MPI_UNEQUAL;
                } else if there == MPI_SIMILAR {
                    result = MPI_SIMILAR;
                }
            }
            _ => result = MPI_UNEQUAL,
        }
        if result == MPI_IDENT { MPI_CONGRUENT } else { result }
    }
}
