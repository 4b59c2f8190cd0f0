//! Creation of communicators with a topology.

use crate::coll::compare_calls;
use crate::coll::words::Members;
use crate::comm_creation::{create, publish};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::objects::comm::Comm;
use crate::objects::group::Group;
use crate::objects::topology::{Cart, DistGraph, Edge, Graph, Topology};
use crate::p2p::channel::Channel;
use crate::process::Process;
use std::rc::Rc;

/// `MPI_Cart_create`, without reordering of ranks. Returns `MPI_COMM_NULL` to ranks beyond the grid. Errors: see
/// [`Cart::new`]; errors of communication.
pub fn create_cart(p: &Process, parent: &Comm, dims: &[i32], periods: &[bool]) -> Result<usize> {
    parent.require_intra()?;
    let cart = Cart::new(dims, periods, parent.size())?;
    match create::create_of_first(p, parent, cart.size())? {
        None => Ok(MPI_COMM_NULL),
        Some(comm) => publish_with(p, comm, Topology::Cart(cart)),
    }
}

/// `MPI_Cart_map`: returns the process's own rank, or `MPI_UNDEFINED` beyond the grid. Errors: see [`Cart::new`].
pub fn map_cart(comm: &Comm, dims: &[i32], periods: &[bool]) -> Result<i32> {
    comm.require_intra()?;
    // A grid with an extent of 0 has no process. It is an error only in MPI_Cart_create.
    if dims.contains(&0) && dims.iter().all(|&dim| dim >= 0) {
        return Ok(MPI_UNDEFINED);
    }
    let cart = Cart::new(dims, periods, comm.size())?;
    Ok(if comm.rank < cart.size() { comm.rank as i32 } else { MPI_UNDEFINED })
}

/// `MPI_Cart_sub`. Errors: those of communication.
pub fn create_sub(p: &Process, parent: &Comm, cart: &Cart, remain: &[bool]) -> Result<usize> {
    compare_calls(p, parent)?;
    let (part, ranks) = cart.slice(parent.rank, remain);
    let group: Group = parent.group.include(&ranks)?;
    let channel = Channel::next(p, parent);
    let comm = create::create_among(p, parent, &channel, Rc::new(group))?;
    publish_with(p, comm, Topology::Cart(part))
}

fn publish_with(p: &Process, comm: Comm, topology: Topology) -> Result<usize> {
    comm.topology.replace(Some(Rc::new(topology)));
    publish(p, comm)
}

/// `MPI_Graph_create`, without reordering of ranks. Returns `MPI_COMM_NULL` to ranks beyond the graph. Errors: see
/// [`Graph::new`]; `MPI_ERR_ARG` for more nodes than processes.
pub fn create_graph(p: &Process, parent: &Comm, index: &[i32], edges: &[i32]) -> Result<usize> {
    let graph = check_graph(parent, index, edges)?;
    if graph.size() == 0 {
        return Ok(MPI_COMM_NULL);
    }
    match create::create_of_first(p, parent, graph.size())? {
        None => Ok(MPI_COMM_NULL),
        Some(comm) => publish_with(p, comm, Topology::Graph(graph)),
    }
}

/// `MPI_Graph_map`: returns the process's own rank, or `MPI_UNDEFINED` beyond the graph. Errors: see [`create_graph`].
pub fn map_graph(comm: &Comm, index: &[i32], edges: &[i32]) -> Result<i32> {
    let graph = check_graph(comm, index, edges)?;
    Ok(if comm.rank < graph.size() { comm.rank as i32 } else { MPI_UNDEFINED })
}

fn check_graph(comm: &Comm, index: &[i32], edges: &[i32]) -> Result<Graph> {
    comm.require_intra()?;
    if index.len() > comm.size() as usize {
        let message = format!(
            "the graph has {} nodes, but the communicator has only {} processes: use a smaller \
             graph",
            index.len(),
            comm.size()
        );
        return Err(Error::new(MPI_ERR_ARG, message));
    }
    Graph::new(index, edges)
}

/// `MPI_Dist_graph_create_adjacent`, without reordering: each process passes its own edges. Errors: `MPI_ERR_RANK` for
/// a neighbour outside the communicator, `MPI_ERR_ARG` for a negative weight.
pub fn create_adjacent(p: &Process, parent: &Comm, graph: DistGraph) -> Result<usize> {
    parent.require_intra()?;
    for &edge in graph.sources.iter().chain(&graph.destinations) {
        check_end(parent, edge.peer)?;
        check_weight(edge.weight)?;
    }
    publish_graph(p, parent, graph)
}

fn publish_graph(p: &Process, parent: &Comm, graph: DistGraph) -> Result<usize> {
    match create::create_of_first(p, parent, parent.size())? {
        None => Ok(MPI_COMM_NULL),
        Some(comm) => publish_with(p, comm, Topology::DistGraph(graph)),
    }
}

/// `MPI_Dist_graph_create`, without reordering: each process passes any edges, as source, destination and weight.
/// Errors: `MPI_ERR_RANK` for an invalid end, `MPI_ERR_ARG` for a negative weight; errors of communication.
pub fn create_dist_graph(
    p: &Process, parent: &Comm, edges: &[(i32, i32, i32)], weighted: bool,
) -> Result<usize> {
    parent.require_intra()?;
    for &(source, destination, weight) in edges {
        check_end(parent, source)?;
        check_end(parent, destination)?;
        check_weight(weight)?;
    }
    compare_calls(p, parent)?;
    let graph = distribute(&Channel::next(p, parent), edges, weighted)?;
    publish_graph(p, parent, graph)
}

/// Sends each edge to the ranks at its ends. Every rank sends a message to every other rank.
fn distribute(
    members: &impl Members, edges: &[(i32, i32, i32)], weighted: bool,
) -> Result<DistGraph> {
    let (me, size) = (members.rank(), members.size());
    let mut graph = DistGraph { sources: Vec::new(), destinations: Vec::new(), weighted };
    graph.read(me, &select_edges(edges, me));
    for distance in 1..size {
        let (to, from) = ((me + distance) % size, (me + size - distance) % size);
        let out = select_edges(edges, to);
        let mut count = [0];
        members.exchange_words(to, &[out.len() as u64], from, &mut count)?;
        let mut into = vec![0; count[0] as usize];
        members.exchange_words(to, &out, from, &mut into)?;
        graph.read(me, &into);
    }
    Ok(graph)
}

/// Encodes the edges that start or end at `rank`, as three numbers in two words.
fn select_edges(edges: &[(i32, i32, i32)], rank: u32) -> Vec<u64> {
    let rank = rank as i32;
    let touching =
        edges.iter().filter(|(source, destination, _)| *source == rank || *destination == rank);
    touching
        .flat_map(|&(source, destination, weight)| {
            [
                u64::from(source as u32) << 32 | u64::from(destination as u32),
                u64::from(weight as u32),
            ]
        })
        .collect()
}

impl DistGraph {
    fn read(&mut self, me: u32, words: &[u64]) {
        for pair in words.chunks_exact(2) {
            let (source, destination, weight) =
                ((pair[0] >> 32) as i32, pair[0] as u32 as i32, pair[1] as u32 as i32);
            if destination == me as i32 {
                self.sources.push(Edge { peer: source, weight });
            }
            if source == me as i32 {
                self.destinations.push(Edge { peer: destination, weight });
            }
        }
    }
}

fn check_end(comm: &Comm, rank: i32) -> Result {
    if u32::try_from(rank).is_ok_and(|rank| rank < comm.size()) {
        return Ok(());
    }
    let message =
        format!("rank {rank} is not in the communicator, which has ranks 0 to {}", comm.size() - 1);
    Err(Error::new(MPI_ERR_RANK, message))
}

fn check_weight(weight: i32) -> Result {
    match weight {
        0.. => Ok(()),
        _ => {
            Err(Error::new(MPI_ERR_ARG, format!("the weight {weight} is negative: pass 0 or more")))
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::coll::fabric::Fabric;
    use crate::coll::simulator::{self, Mode};

    #[test]
    fn distribute__tells_both_ends() {
        let edge = |peer, weight| Edge { peer, weight };
        // Rank 0 passes a ring of 4 ranks and an edge to itself. Rank 2 passes one more edge, others none.
        let graphs = simulator::run(4, Mode::Rendezvous, |m| {
            let edges = match m.rank() {
                0 => vec![(0, 1, 10), (1, 2, 11), (2, 3, 12), (3, 0, 13), (0, 0, 14)],
                2 => vec![(0, 0, 20)],
                _ => vec![],
            };
            distribute(m, &edges, true).unwrap()
        });
        assert_eq!(graphs[1].sources, [edge(0, 10)]);
        assert_eq!(graphs[1].destinations, [edge(2, 11)]);
        assert_eq!(graphs[0].sources, [edge(3, 13), edge(0, 14), edge(0, 20)]);
        assert_eq!(graphs[0].destinations, [edge(1, 10), edge(0, 14), edge(0, 20)]);
        assert_eq!(
            (graphs[3].sources.clone(), graphs[3].destinations.clone()),
            (vec![edge(2, 12)], vec![edge(0, 13)])
        );
    }
}
