//! Graphs: one that every member knows as a whole, and one of which every member knows its edges.

use super::Topology;
use super::cart::publish_with;
use crate::channel::Channel;
use crate::comm::{Comm, agree, create};
use crate::consts::*;
use crate::error::{Error, Result};
use crate::process::Process;

/// A graph as `MPI_Graph_create` takes it: where the edges of each node end, and the edges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    index: Vec<i32>,
    edges: Vec<i32>,
}

impl Graph {
    /// A graph with as many nodes as `index` has entries; `edges` may have more than are used.
    ///
    /// # Errors
    /// `MPI_ERR_ARG` for an index that descends or goes beyond the edges, `MPI_ERR_RANK` for an edge
    /// to a node that is not there.
    pub fn new(index: &[i32], edges: &[i32]) -> Result<Graph> {
        let mut last = 0;
        for &end in index {
            if end < last || end as usize > edges.len() {
                let message = format!(
                    "the index has {end} after {last}: it must ascend from 0 to the number of edges"
                );
                return Err(Error::new(MPI_ERR_ARG, message));
            }
            last = end;
        }
        let edges = &edges[..last as usize];
        if let Some(&edge) = edges
            .iter()
            .find(|&&edge| !usize::try_from(edge).is_ok_and(|e| e < index.len()))
        {
            let message = format!(
                "an edge leads to node {edge}: there are {} nodes",
                index.len()
            );
            return Err(Error::new(MPI_ERR_RANK, message));
        }
        Ok(Graph {
            index: index.to_vec(),
            edges: edges.to_vec(),
        })
    }

    /// For each node, where its edges end.
    pub fn index(&self) -> &[i32] {
        &self.index
    }

    /// All edges, node by node.
    pub fn edges(&self) -> &[i32] {
        &self.edges
    }

    /// Number of nodes.
    pub fn size(&self) -> u32 {
        self.index.len() as u32
    }

    /// The neighbours of a node of the graph.
    pub fn neighbors(&self, node: u32) -> &[i32] {
        let node = node as usize;
        let start = if node == 0 { 0 } else { self.index[node - 1] };
        &self.edges[start as usize..self.index[node] as usize]
    }
}

/// An edge of a distributed graph as one of its ends sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// Rank of the other end.
    pub peer: i32,
    /// Its weight; 1 where the graph has none.
    pub weight: i32,
}

/// The edges of one member of a distributed graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DistGraph {
    /// Edges that end here.
    pub sources: Vec<Edge>,
    /// Edges that start here.
    pub destinations: Vec<Edge>,
    /// Whether the user gave weights.
    pub weighted: bool,
}

/// `MPI_Graph_create`: ranks are not reordered. `MPI_COMM_NULL` on processes beyond the graph, on all
/// where it has no nodes.
///
/// # Errors
/// As [`Graph::new`]; `MPI_ERR_ARG` for more nodes than the communicator has processes.
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

/// `MPI_Graph_map`: the rank stays, `MPI_UNDEFINED` beyond the graph.
///
/// # Errors
/// As [`create_graph`].
pub fn map_graph(comm: &Comm, index: &[i32], edges: &[i32]) -> Result<i32> {
    let graph = check_graph(comm, index, edges)?;
    Ok(if comm.rank < graph.size() {
        comm.rank as i32
    } else {
        MPI_UNDEFINED
    })
}

fn check_graph(comm: &Comm, index: &[i32], edges: &[i32]) -> Result<Graph> {
    comm.require_intra()?;
    if index.len() > comm.size() as usize {
        let message = format!(
            "the graph has {} nodes, the communicator only {} processes",
            index.len(),
            comm.size()
        );
        return Err(Error::new(MPI_ERR_ARG, message));
    }
    Graph::new(index, edges)
}

/// `MPI_Dist_graph_create_adjacent`: every process gives its own edges. Ranks are not reordered.
///
/// # Errors
/// `MPI_ERR_RANK` for a neighbour that the communicator does not have, `MPI_ERR_ARG` for a negative
/// weight.
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

/// `MPI_Dist_graph_create`: every process gives any edges, as source, destination and weight; both
/// ends get to know them. Ranks are not reordered.
///
/// # Errors
/// `MPI_ERR_RANK` for an end that the communicator does not have, `MPI_ERR_ARG` for a negative
/// weight; those of communication.
pub fn create_dist_graph(
    p: &Process,
    parent: &Comm,
    edges: &[(i32, i32, i32)],
    weighted: bool,
) -> Result<usize> {
    parent.require_intra()?;
    for &(source, destination, weight) in edges {
        check_end(parent, source)?;
        check_end(parent, destination)?;
        check_weight(weight)?;
    }
    crate::coll::compare_calls(p, parent)?;
    let graph = distribute(&Channel::next(p, parent), edges, weighted)?;
    publish_graph(p, parent, graph)
}

/// Tells each end of the edges about them: everybody sends to everybody else.
fn distribute(
    members: &impl agree::Members,
    edges: &[(i32, i32, i32)],
    weighted: bool,
) -> Result<DistGraph> {
    let (me, size) = (members.rank(), members.size());
    let mut graph = DistGraph {
        sources: Vec::new(),
        destinations: Vec::new(),
        weighted,
    };
    graph.read(me, &select_edges(edges, me));
    for distance in 1..size {
        let (to, from) = ((me + distance) % size, (me + size - distance) % size);
        let out = select_edges(edges, to);
        let mut count = [0];
        members.exchange(to, &[out.len() as u64], from, &mut count)?;
        let mut into = vec![0; count[0] as usize];
        members.exchange(to, &out, from, &mut into)?;
        graph.read(me, &into);
    }
    Ok(graph)
}

/// The edges that start or end at `rank`, three numbers in two words each.
fn select_edges(edges: &[(i32, i32, i32)], rank: u32) -> Vec<u64> {
    let rank = rank as i32;
    let touching = edges
        .iter()
        .filter(|(source, destination, _)| *source == rank || *destination == rank);
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
            let (source, destination, weight) = (
                (pair[0] >> 32) as i32,
                pair[0] as u32 as i32,
                pair[1] as u32 as i32,
            );
            if destination == me as i32 {
                self.sources.push(Edge {
                    peer: source,
                    weight,
                });
            }
            if source == me as i32 {
                self.destinations.push(Edge {
                    peer: destination,
                    weight,
                });
            }
        }
    }
}

fn check_end(comm: &Comm, rank: i32) -> Result {
    if u32::try_from(rank).is_ok_and(|rank| rank < comm.size()) {
        return Ok(());
    }
    let message = format!(
        "rank {rank} is not in the communicator, which has ranks 0 to {}",
        comm.size() - 1
    );
    Err(Error::new(MPI_ERR_RANK, message))
}

fn check_weight(weight: i32) -> Result {
    match weight {
        0.. => Ok(()),
        _ => Err(Error::new(
            MPI_ERR_ARG,
            format!("the weight {weight} is negative"),
        )),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::comm::agree::Members;
    use crate::comm::agree::tests::run;

    fn code<T: std::fmt::Debug>(result: Result<T>) -> i32 {
        result.unwrap_err().code()
    }

    #[test]
    fn graph__of_the_standards_example() {
        let graph = Graph::new(&[2, 3, 4, 6], &[1, 3, 0, 3, 0, 2]).unwrap();
        let neighbors: Vec<&[i32]> = (0..4).map(|node| graph.neighbors(node)).collect();
        assert_eq!(neighbors, [&[1, 3][..], &[0], &[3], &[0, 2]]);
        assert_eq!(Graph::new(&[], &[]).unwrap().size(), 0);
    }

    #[test]
    fn graph__is_checked() {
        assert_eq!(code(Graph::new(&[2, 1], &[0, 1])), MPI_ERR_ARG);
        assert_eq!(code(Graph::new(&[-1], &[])), MPI_ERR_ARG);
        assert_eq!(code(Graph::new(&[1, 3], &[0, 1])), MPI_ERR_ARG);
        assert_eq!(code(Graph::new(&[1], &[1])), MPI_ERR_RANK);
        assert_eq!(code(Graph::new(&[1], &[-1])), MPI_ERR_RANK);
    }

    #[test]
    fn distribute__tells_both_ends() {
        let edge = |peer, weight| Edge { peer, weight };
        // Rank 0 gives a ring of 4 with itself as a double edge, the others give nothing but rank 2.
        let graphs = run(4, |m| {
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
        assert_eq!(
            graphs[0].destinations,
            [edge(1, 10), edge(0, 14), edge(0, 20)]
        );
        assert_eq!(
            (graphs[3].sources.clone(), graphs[3].destinations.clone()),
            (vec![edge(2, 12)], vec![edge(0, 13)])
        );
    }
}
