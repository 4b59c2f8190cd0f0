//! Communicators: a group, a context that separates its messages, and objects that users attach (MPI-5.0 chapter 7).

pub mod contexts;
mod entry;
pub(crate) mod faults;
pub mod freed;
pub mod hints;
mod neighborhood;

use crate::coll_choice::NodeMap;
use crate::common::consts::*;
use crate::common::debugger::ListedCommunicator;
use crate::common::error::{Error, Result};
use crate::common::table::HandleKind;
use crate::objects::attribute::{Attributes, Holder, KeyvalKind};
use crate::objects::group::Group;
use crate::objects::shared_buffers::MappedBuffers;
use crate::objects::shared_lines::MappedLines;
use crate::objects::topology::Topology;
use contexts::ContextBlock;
pub use entry::HotComm;
use fastpath_base::host_topology::RankGroups;
use fastpath_protocol::Endpoint;
use fastpath_protocol::tag::Context;
use faults::CommFaults;
pub use neighborhood::Neighborhood;
use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::rc::Rc;

/// Internal tag of the first collective call on a communicator. Tags of later calls are below it.
pub(crate) const FIRST_TAG: i32 = -16;

/// A communicator (MPI-5.0 chapter 7).
pub struct Comm {
    /// Entry in the list for debuggers, once the communicator has a handle. It refers to the group.
    listed: OnceCell<ListedCommunicator>,
    /// Handle of the communicator.
    pub handle: Cell<usize>,
    /// Context, which separates its messages from those of other communicators.
    pub context: Context,
    /// The local group.
    pub group: Rc<Group>,
    /// Remote group; `None` for an intracommunicator.
    pub remote_group: Option<Rc<Group>>,
    /// Local group of an intercommunicator, as a communicator without a handle; otherwise `None`.
    pub(crate) local: Option<Rc<Comm>>,
    /// The calling process's rank in the local group.
    pub rank: u32,
    /// Name set by `MPI_Comm_set_name`.
    pub name: RefCell<String>,
    made_by: &'static str,
    /// Handle of the error handler.
    pub errhandler: Cell<usize>,
    /// Virtual topology, if there is one.
    pub topology: RefCell<Option<Rc<Topology>>>,
    /// Cached attributes.
    pub attributes: Attributes,
    /// Hints given at creation or by `MPI_Comm_set_info`: key and value.
    pub hints: RefCell<Vec<(String, String)>>,
    /// Session of the communicator; 0 for the world model.
    pub(crate) session: Cell<usize>,
    pub(crate) buffer: crate::objects::attached::BufferCell,
    /// Number of the next collective call, equal on all members.
    pub collective_sequence: Cell<u64>,
    /// Number of the next persistent collective call, equal on all members.
    pub(crate) persistent_sequence: Cell<u64>,
    /// Number of the next tag for partitions that this process sends.
    pub(crate) partition_tags: Cell<u32>,
    /// Contexts for duplicates, equal on all members.
    pub spares: Cell<ContextBlock>,
    /// Whether the rank's page counts the communicator ([`fastpath_job::Job::note_link`]), because the communicator has
    /// ranks of other worlds of the job.
    pub(crate) is_link: Cell<bool>,
    /// Distribution of members over hosts, once a collective call has computed it; `None` if all share one host.
    pub(crate) nodes: OnceCell<Option<Box<NodeMap>>>,
    /// Members on this host by shared hardware, once [`Comm::host_groups`] has computed them.
    pub(crate) host_groups: OnceCell<Box<RankGroups>>,
    /// Buffers that members share, once a collective call has made them; `None` if they could not be made.
    pub(crate) mapped: OnceCell<Option<Box<MappedBuffers>>>,
    /// Lines that members share, once a collective call has made them; `None` if they could not be made.
    pub(crate) lines: OnceCell<Option<Box<MappedLines>>>,
    /// Whether all members began in one world, once a collective call has found out.
    pub(crate) is_one_world: OnceCell<bool>,
    /// Neighbours in the topology, once a call has computed them.
    pub(crate) neighbors: OnceCell<Rc<Neighborhood>>,
    /// Failures of members.
    pub(crate) faults: CommFaults,
    /// Endpoint of each rank that a message can be sent to.
    pub endpoints: Box<[*mut Endpoint]>,
}

impl HandleKind for Comm {
    const NOUN: &'static str = "communicator";
    const NULL: (usize, &'static str) = (MPI_COMM_NULL, "MPI_COMM_NULL");
    const CLASS: i32 = MPI_ERR_COMM;
}

impl Comm {
    /// Kind of the topology; `MPI_UNDEFINED` without one.
    pub fn topology_kind(&self) -> i32 {
        self.topology.borrow().as_ref().map_or(MPI_UNDEFINED, |topology| topology.kind())
    }

    /// Returns the topology. Errors: `MPI_ERR_TOPOLOGY` if there is none.
    pub fn find_topology(&self) -> Result<Rc<Topology>> {
        let found = self.topology.borrow().clone();
        found.ok_or_else(|| Error::new(MPI_ERR_TOPOLOGY, "the communicator has no topology"))
    }

    /// Returns the communicator as the holder of attributes.
    pub fn holder(&self) -> Holder<'_> {
        Holder { kind: KeyvalKind::Comm, handle: self.handle.get(), attributes: &self.attributes }
    }

    /// Makes a communicator without a handle. Its error handler is `MPI_ERRORS_ARE_FATAL`. `rank` is the calling
    /// process's rank in `group`, and `made_by` the creating MPI call. `endpoint` returns the endpoint of a world rank.
    pub(crate) fn with_endpoints(
        made_by: &'static str, endpoint: &impl Fn(u32) -> Option<*mut Endpoint>, context: Context,
        group: Rc<Group>, remote_group: Option<Rc<Group>>, rank: u32,
    ) -> Self {
        let spares = if context == Context::WORLD {
            ContextBlock::WORLD_SPARES
        } else {
            ContextBlock::EMPTY
        };
        let session = Cell::new(group.session());
        let of_group = |group: &Rc<Group>| {
            Comm::with_endpoints(made_by, endpoint, context, group.clone(), None, rank)
        };
        let local = remote_group.is_some().then(|| Rc::new(of_group(&group)));
        let peers = remote_group.as_ref().unwrap_or(&group);
        let endpoints = peers.world_ranks().iter().filter_map(|&peer| endpoint(peer)).collect();
        Comm {
            listed: OnceCell::new(),
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
            host_groups: OnceCell::new(),
            mapped: OnceCell::new(),
            lines: OnceCell::new(),
            is_one_world: OnceCell::new(),
            neighbors: OnceCell::new(),
            faults: CommFaults::default(),
            endpoints,
        }
    }

    /// Title of the communicator in messages: its name or, without a name, the call that made it.
    pub fn title(&self) -> String {
        let mut title = String::new();
        let _ = self.write_title(&mut title);
        title
    }

    /// Sets the name (`MPI_Comm_set_name`).
    pub fn set_name(&self, name: String) {
        if let Some(listed) = self.listed.get() {
            listed.rename(&name);
        }
        self.name.replace(name);
    }

    /// Adds the communicator, which has a handle, to the list for debuggers.
    pub(crate) fn list(&self) {
        self.listed.get_or_init(|| {
            let peers = self.peer_group().world_ranks();
            ListedCommunicator::new(self.context, peers, self.rank, &self.title())
        });
    }

    /// Writes the title into a text; see [`Comm::title`].
    pub fn write_title(&self, text: &mut impl fmt::Write) -> fmt::Result {
        let name = self.name.borrow();
        match name.is_empty() {
            true => write!(text, "made by {}", self.made_by),
            false => text.write_str(&name),
        }
    }

    /// `MPI_Comm_set_info`: stores the hints that this library supports.
    pub fn set_hints(&self, given: Vec<(String, String)>) {
        hints::merge(&mut self.hints.borrow_mut(), hints::select(given));
    }

    /// Number of processes in the local group.
    pub fn size(&self) -> u32 {
        self.group.size()
    }

    /// Number of processes that can receive messages: the size of the remote group of an intercommunicator.
    pub fn peer_count(&self) -> u32 {
        self.peer_group().size()
    }

    /// Group that destination and source ranks refer to.
    pub fn peer_group(&self) -> &Group {
        self.remote_group.as_deref().unwrap_or(&self.group)
    }

    /// Returns the rank in the peer group of the process with world rank `world`. If the process is not in that group,
    /// returns `world`.
    pub fn peer_rank(&self, world: u32) -> i32 {
        let ranks = self.peer_group().world_ranks();
        ranks.iter().position(|&rank| rank == world).map_or(world as i32, |rank| rank as i32)
    }

    /// Returns whether this is an intercommunicator.
    pub fn is_inter(&self) -> bool {
        self.remote_group.is_some()
    }

    /// The calling process's rank in the world.
    pub fn my_world_rank(&self) -> u32 {
        self.group.world_ranks().get(self.rank as usize).copied().unwrap_or(0)
    }

    /// Refuses an intercommunicator. Errors: `MPI_ERR_COMM`.
    pub fn require_intra(&self) -> Result {
        match self.remote_group {
            Some(_) => Err(Error::new(MPI_ERR_COMM, "the communicator is an intercommunicator")
                .with_advice(Some("pass an intracommunicator"))),
            None => Ok(()),
        }
    }

    /// Returns the local group as a communicator. Errors: `MPI_ERR_COMM` for an intracommunicator.
    pub(crate) fn find_local(&self) -> Result<&Rc<Comm>> {
        self.remote()?;
        let text = "an intercommunicator without a local group";
        self.local.as_ref().ok_or_else(|| Error::new(MPI_ERR_INTERN, text))
    }

    /// Returns the remote group of an intercommunicator. Errors: `MPI_ERR_COMM` for an intracommunicator.
    pub fn remote(&self) -> Result<&Rc<Group>> {
        self.remote_group.as_ref().ok_or_else(|| {
            Error::new(
                MPI_ERR_COMM,
                "the communicator is an intracommunicator, which has no remote group",
            )
            .with_advice(Some("pass an intercommunicator"))
        })
    }

    /// Returns `MPI_IDENT` if both are one object, `MPI_CONGRUENT` for equal processes in equal order, `MPI_SIMILAR`
    /// for equal processes in another order, and otherwise `MPI_UNEQUAL`.
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
