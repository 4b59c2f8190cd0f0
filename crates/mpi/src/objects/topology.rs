//! Virtual topologies of communicators (MPI-5.0 chapter 8).

mod cart;
mod dims;
mod graph;

pub use cart::Cart;
pub use dims::create_dims;
pub use graph::{DistGraph, Edge, Graph};

use crate::common::consts::*;
use crate::common::error::{Error, Result};

/// Topology of a communicator.
#[derive(Debug)]
pub enum Topology {
    /// A Cartesian grid.
    Cart(Cart),
    /// Graph of which each member knows all edges.
    Graph(Graph),
    /// Graph of which each member knows only its own edges.
    DistGraph(DistGraph),
}

impl Topology {
    /// Returns `MPI_CART`, `MPI_GRAPH` or `MPI_DIST_GRAPH`.
    pub fn kind(&self) -> i32 {
        match self {
            Topology::Cart(_) => MPI_CART,
            Topology::Graph(_) => MPI_GRAPH,
            Topology::DistGraph(_) => MPI_DIST_GRAPH,
        }
    }

    /// Returns the sources of the calling process, of rank `rank`, in the order of a neighborhood collective. A source
    /// beyond the edge of a grid is `MPI_PROC_NULL` (MPI-5.0 section 8.6).
    pub fn sources(&self, rank: u32) -> Vec<i32> {
        match self {
            Topology::Cart(cart) => cart.neighbors(rank),
            Topology::Graph(graph) => graph.neighbors(rank).to_vec(),
            Topology::DistGraph(graph) => graph.sources.iter().map(|edge| edge.peer).collect(),
        }
    }

    /// Returns the destinations of the calling process, of rank `rank`; see [`Topology::sources`].
    pub fn destinations(&self, rank: u32) -> Vec<i32> {
        match self {
            Topology::DistGraph(graph) => graph.destinations.iter().map(|edge| edge.peer).collect(),
            _ => self.sources(rank),
        }
    }

    /// Returns the grid. Errors: `MPI_ERR_TOPOLOGY` for another kind.
    pub fn cart(&self) -> Result<&Cart> {
        match self {
            Topology::Cart(cart) => Ok(cart),
            _ => Err(Error::new(
                MPI_ERR_TOPOLOGY,
                "the communicator has a graph, not a Cartesian grid",
            )),
        }
    }

    /// Returns the graph. Errors: `MPI_ERR_TOPOLOGY` for another kind.
    pub fn graph(&self) -> Result<&Graph> {
        match self {
            Topology::Graph(graph) => Ok(graph),
            _ => Err(Error::new(
                MPI_ERR_TOPOLOGY,
                "the communicator has no graph of MPI_Graph_create",
            )),
        }
    }

    /// Returns the distributed graph. Errors: `MPI_ERR_TOPOLOGY` for another kind.
    pub fn dist_graph(&self) -> Result<&DistGraph> {
        match self {
            Topology::DistGraph(graph) => Ok(graph),
            _ => Err(Error::new(MPI_ERR_TOPOLOGY, "the communicator has no distributed graph")),
        }
    }
}
