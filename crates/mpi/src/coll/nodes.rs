//! Collective calls in levels: within each host, between one member of each host, and within each host again.
//!
//! Bytes cross the network once for each host, not once for each rank. Each step is an algorithm of another file on a
//! [`SubFabric`], chosen as for a call of only its members. Reductions combine operands along the same tree as on one
//! host, unless their order is free ([`branches`]). Callers box the state of these calls, so that calls within one host
//! need no larger frames. VECTORS and FABRIC are defined in `coll.rs`.
//!
//! References: Karonis et al., Exploiting Hierarchy in Parallel Computer Networks to Optimize Collective Operation
//! Performance (2000); Träff, Improved MPI All-to-all Communication on a Giganet SMP Cluster (2002).
#![allow(unsafe_code)]

use super::choose::{self, JobProcessors, NodeMap};
use super::fabric::{Fabric, place};
use super::gather;
use super::local::Reduction;
use super::scratch::Scratch;
use super::vector::Vector;
use super::{allgather, allreduce, barrier, bcast, branches, reduce, tree};
use crate::common::error::Result;
use crate::objects::comm::Comm;
use crate::process::Process;
use fastpath_protocol::buffer::Buffer;
use std::alloc::Layout;
use std::ops::Range;
use std::ptr::NonNull;

#[cold]
pub(crate) fn of_comm(p: &Process, comm: &Comm) -> Option<Box<NodeMap>> {
    let worker = p.worker().ok().filter(|_| !comm.is_inter())?;
    // SAFETY: the worker lives while MPI runs.
    let job = unsafe { (*worker).job };
    let members = comm.group.world_ranks().iter();
    let hosts: Vec<u32> = members.map(|&rank| job.host(rank as usize)).collect();
    NodeMap::new(&hosts, room_here(p)).map(Box::new)
}

impl Comm {
    #[inline]
    pub(crate) fn nodes(&self, p: &Process) -> Option<&NodeMap> {
        let nodes = self.nodes.get_or_init(|| of_comm(p, self));
        nodes.as_deref()
    }
}

#[inline]
pub(super) fn room_of<'a>(p: &Process, comm: &'a Comm) -> JobProcessors<'a> {
    match comm.nodes(p) {
        Some(nodes) => JobProcessors::Hosts(&nodes.placement),
        None => room_here(p),
    }
}

/// Returns how the ranks on this host share its processors.
#[inline]
pub(super) fn room_here(p: &Process) -> JobProcessors<'static> {
    let Ok(worker) = p.worker() else {
        return JobProcessors::Own;
    };
    // SAFETY: the worker lives while MPI runs.
    JobProcessors::on_host(unsafe { (*worker).job })
}

/// Some members of a call, as a separate fabric. It uses the fabric of the whole call, so messages of a pair of members
/// keep one order in all steps.
pub(super) struct SubFabric<'f, F> {
    whole: &'f F,
    members: Members<'f>,
    rank: u32,
    room: JobProcessors<'f>,
}

enum Members<'f> {
    /// The listed ranks of the whole call, such as the members of a node.
    Listed(&'f [u32]),
    /// Heads of all nodes: the first member of each node, except for the node in field 1, whose head is in field 2.
    Heads(&'f NodeMap, u32, u32),
}

/// Parts of a collective call to which one member belongs: its node and, if it is a head, the heads of all nodes.
pub(super) struct Levels<'f, F> {
    /// Members of the node of this member.
    pub(super) node: SubFabric<'f, F>,
    /// Rank in `node` of the node's head, which communicates with other nodes.
    pub(super) head: u32,
    /// Heads of all nodes; `None` at ranks that are no head. The rank of a head is the number of its node.
    pub(super) heads: Option<SubFabric<'f, F>>,
}

/// Returns the levels of a call. `root` is the head of its node; other nodes have their first member as head.
fn levels<'f, F: Fabric>(f: &'f F, nodes: &'f NodeMap, root: u32) -> Levels<'f, F> {
    let (own, its) = (nodes.of(f.rank()), nodes.of(root));
    let members = nodes.members(own);
    let place = |member| members.partition_point(|&other| other < member) as u32;
    let node = SubFabric {
        whole: f,
        members: Members::Listed(members),
        rank: place(f.rank()),
        room: nodes.inside,
    };
    let head = if own == its { place(root) } else { 0 };
    let heads = (node.rank == head).then_some(SubFabric {
        whole: f,
        members: Members::Heads(nodes, its, root),
        rank: own,
        room: JobProcessors::Hosts(&nodes.heads),
    });
    Levels { node, head, heads }
}

impl<'f, F: Fabric> SubFabric<'f, F> {
    /// Makes a fabric of `ranks`; the caller is at index `position`.
    pub(super) fn among(whole: &'f F, ranks: &'f [u32], position: u32) -> Self {
        SubFabric { whole, members: Members::Listed(ranks), rank: position, room: whole.room() }
    }

    /// Returns a fabric of consecutive ranks of a node. The ranks of the node must all be consecutive.
    pub(super) fn narrow(
        &self, nodes: &'f NodeMap, node: u32, ranks: &Range<u32>,
    ) -> SubFabric<'f, F> {
        let first = nodes.starts[node as usize];
        let (start, end) = (ranks.start - first, ranks.end - first);
        SubFabric {
            whole: self.whole,
            members: Members::Listed(&nodes.members(node)[start as usize..end as usize]),
            rank: self.rank - start,
            room: self.room,
        }
    }

    /// Converts a rank of this fabric to the rank in the whole call.
    pub(super) fn member(&self, rank: u32) -> u32 {
        match self.members {
            Members::Listed(members) => members[rank as usize],
            Members::Heads(_, node, member) if node == rank => member,
            Members::Heads(nodes, ..) => nodes.members(rank)[0],
        }
    }
}

impl<F: Fabric> Fabric for SubFabric<'_, F> {
    type Ticket = F::Ticket;
    type Near = F::Near;

    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        match self.members {
            Members::Listed(members) => members.len() as u32,
            Members::Heads(nodes, ..) => nodes.count(),
        }
    }

    fn room(&self) -> JobProcessors<'_> {
        self.room
    }

    fn nodes(&self) -> Option<&NodeMap> {
        None
    }

    unsafe fn send(&self, to: u32, data: Buffer) -> impl Future<Output = Result> {
        // SAFETY: FABRIC.
        unsafe { self.whole.send(self.member(to), data) }
    }

    unsafe fn recv(&self, from: u32, data: Buffer) -> impl Future<Output = Result> {
        // SAFETY: FABRIC.
        unsafe { self.whole.recv(self.member(from), data) }
    }

    unsafe fn exchange(
        &self, to: u32, out: Buffer, from: u32, into: Buffer,
    ) -> impl Future<Output = Result> {
        let (to, from) = (self.member(to), self.member(from));
        // SAFETY: FABRIC.
        unsafe { self.whole.exchange(to, out, from, into) }
    }

    unsafe fn start_send(&self, to: u32, data: Buffer) -> Result<F::Ticket> {
        // SAFETY: FABRIC.
        unsafe { self.whole.start_send(self.member(to), data) }
    }

    unsafe fn start_recv(&self, from: u32, data: Buffer) -> Result<F::Ticket> {
        // SAFETY: FABRIC.
        unsafe { self.whole.start_recv(self.member(from), data) }
    }

    fn wait(&self, ticket: F::Ticket) -> impl Future<Output = Result> {
        self.whole.wait(ticket)
    }

    fn apart<T>(&self, algorithm: impl Future<Output = T>) -> impl Future<Output = T> {
        self.whole.apart(algorithm)
    }

    unsafe fn allocate(&self, layout: Layout) -> *mut u8 {
        // SAFETY: FABRIC.
        unsafe { self.whole.allocate(layout) }
    }

    unsafe fn release(&self, at: NonNull<u8>, layout: Layout) {
        // SAFETY: FABRIC.
        unsafe { self.whole.release(at, layout) }
    }

    fn put_off(&self, result: Result) -> Result {
        self.whole.put_off(result)
    }
}

/// Barrier: members of a node report to its head, the heads synchronize, and each head releases its node.
pub(super) async fn barrier<F: Fabric>(f: &F, nodes: &NodeMap) -> Result {
    let Levels { node, head, heads } = levels(f, nodes, 0);
    let nothing = Vector::raw(std::ptr::null(), 0);
    // SAFETY: messages without bytes touch no memory.
    unsafe { tree::pass_up(&node, 0, |_| nothing).await? };
    if let Some(heads) = heads {
        let how = choose::barrier(heads.size(), place(&heads));
        barrier::run_as(&heads, how).await?;
    }
    let how = choose::bcast(0, node.size(), place(&node));
    // SAFETY: messages without bytes touch no memory.
    unsafe { bcast::run_as(&node, how, nothing, head).await }
}

/// Broadcasts by nodes. Safety: see [`bcast::run`].
pub(super) async unsafe fn bcast<F: Fabric>(
    f: &F, nodes: &NodeMap, data: Vector<'_>, root: u32,
) -> Result {
    let Levels { node, head, heads } = levels(f, nodes, root);
    // SAFETY: VECTORS.
    unsafe {
        if let Some(heads) = heads {
            let how = choose::bcast(data.bytes(), heads.size(), place(&heads));
            bcast::run_as(&heads, how, data, nodes.of(root)).await?;
        }
        let how = choose::bcast(data.bytes(), node.size(), place(&node));
        bcast::run_as(&node, how, data, head).await
    }
}

/// Reduces by nodes. Safety: see [`reduce::run`].
pub(super) async unsafe fn reduce<'a, F: Fabric>(
    f: &F, nodes: &NodeMap, red: &'a Reduction<'a>, operand: Vector<'a>,
    result: Option<Vector<'a>>, root: u32,
) -> Result {
    let levels = levels(f, nodes, root);
    let size = red.size(operand.count, f.room()).along_tree();
    if nodes.placement.spread.has_branches(size) {
        let its = nodes.of(root);
        // SAFETY: VECTORS.
        return unsafe {
            branches::reduce(f, nodes, &levels, red, operand, result, |node| node == its).await
        };
    }
    let Levels { node, head, heads } = levels;
    let mut scratch = Scratch::new(f);
    let sum = match (&heads, result) {
        (None, _) => None,
        (Some(_), Some(result)) => Some(result),
        (Some(_), None) => Some(scratch.elements(red.layout, operand.count)?),
    };
    // SAFETY: VECTORS; the scratch is as long as the operand.
    unsafe {
        let how = choose::reduce(size, node.size(), place(&node));
        reduce::run_as(&node, how, red, operand, sum, head).await?;
        if let (Some(heads), Some(sum)) = (heads, sum) {
            let how = choose::reduce(size, heads.size(), place(&heads));
            reduce::run_as(&heads, how, red, sum, result, nodes.of(root)).await?;
        }
    }
    Ok(())
}

/// Runs an allreduce by nodes. Safety: see [`allreduce::run`].
pub(super) async unsafe fn allreduce<'a, F: Fabric>(
    f: &F, nodes: &NodeMap, red: &'a Reduction<'a>, operand: Vector<'a>, result: Vector<'a>,
) -> Result {
    let levels = levels(f, nodes, 0);
    let size = red.size(operand.count, f.room()).along_tree();
    // SAFETY: VECTORS.
    unsafe {
        let (node, head) = if nodes.placement.spread.has_branches(size) {
            let sum = levels.heads.is_some().then_some(result);
            branches::reduce(f, nodes, &levels, red, operand, sum, |_| true).await?;
            (levels.node, levels.head)
        } else {
            let Levels { node, head, heads } = levels;
            let how = choose::reduce(size, node.size(), place(&node));
            let sum = heads.is_some().then_some(result);
            reduce::run_as(&node, how, red, operand, sum, head).await?;
            if let Some(heads) = heads {
                let how = choose::allreduce(size, heads.size(), place(&heads));
                allreduce::run_as(&heads, how, red, result, result).await?;
            }
            (node, head)
        };
        let how = choose::bcast(size.bytes, node.size(), place(&node));
        bcast::run_as(&node, how, result, head).await
    }
}

/// Runs an allgather by nodes. The head of each node gathers the node's blocks. The heads exchange these as one piece,
/// and send all blocks to their nodes. If the blocks are one piece of memory in the order of nodes, they are used in
/// place. Otherwise they are packed in scratch memory.
///
/// # Safety
/// See [`allgather::run`].
pub(super) async unsafe fn allgather<'a, F: Fabric>(
    f: &F, nodes: &NodeMap, own: Option<Vector<'_>>, block: &impl Fn(u32) -> Vector<'a>,
    whole: Option<Vector<'a>>,
) -> Result {
    let Levels { node, head, heads } = levels(f, nodes, 0);
    let length = |node| {
        let members = nodes.members(node).iter();
        members.map(|&member| block(member).bytes()).sum::<u64>()
    };
    let ends: Vec<u64> = (0..nodes.count())
        .scan(0, |end, node| {
            *end += length(node);
            Some(*end)
        })
        .collect();
    let total = ends.last().copied().unwrap_or(0);
    let mut scratch = Scratch::new(f);
    let in_place = whole.filter(|_| nodes.placement.spread.in_blocks).and_then(|w| w.dense());
    let at = match in_place {
        Some(at) => at,
        None => scratch.room(total)?,
    };
    let piece = |node: u32| {
        let start = node.checked_sub(1).map_or(0, |before| ends[before as usize]);
        let bytes = ends[node as usize] - start;
        Vector::raw(at.wrapping_add(start as usize), bytes)
    };
    let is_even = (0..nodes.count()).all(|node| piece(node).bytes() == piece(0).bytes());
    let all = Vector::raw(at, total);
    let here = nodes.members(nodes.of(f.rank()));
    // SAFETY: VECTORS; the scratch memory has room for all blocks.
    unsafe {
        let blocks = heads.is_some().then_some(|rank: u32| block(here[rank as usize]));
        let own = match heads {
            Some(_) => own,
            None => own.or(Some(block(f.rank()))),
        };
        let bytes = || own.map_or(0, |own| own.bytes());
        let how = choose::gather_arrays(&choose::GATHERV, bytes, node.size());
        gather::run(&node, how, own, blocks, head).await?;
        if let Some(heads) = heads {
            if in_place.is_none() {
                let mut to = piece(heads.rank()).ptr;
                for &member in here {
                    block(member).pack(to);
                    to = to.wrapping_add(block(member).bytes() as usize);
                }
            }
            let how = choose::allgather(total, is_even, heads.size(), place(&heads));
            let whole = is_even.then_some(all);
            allgather::run_as(&heads, how, None, &piece, whole).await?;
        }
        let how = choose::bcast(total, node.size(), place(&node));
        bcast::run_as(&node, how, all, head).await?;
        if in_place.is_none() {
            let mut from = at;
            for &member in &nodes.members {
                block(member).unpack(from);
                from = from.wrapping_add(block(member).bytes() as usize);
            }
        }
    }
    Ok(())
}
