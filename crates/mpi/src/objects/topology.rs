//! Virtual topologies of communicators (MPI-5.0 chapter 8).

mod cart;
mod dims;
mod graph;

pub use cart::Cart;
pub use dims::create_dims;
pub use graph::{DistGraph, Edge, Graph};

use crate::common::consts::*;
use crate::common::error::{Error, Result};

/// The structure of a communicator.
#[derive(Debug)]
pub enum Topology {
    /// A Cartesian grid.
    Cart(Cart),
    /// A graph that every member knows.
    Graph(Graph),
    /// A graph in which every member knows its neighbours.
    DistGraph(DistGraph),
}

impl Topology {
    /// `MPI_CART`, `MPI_GRAPH` or `MPI_DIST_GRAPH`.
    pub fn kind(&self) -> i32 {
        match self {
            Topology::Cart(_) => MPI_CART,
            Topology::Graph(_) => MPI_GRAPH,
            Topology::DistGraph(_) => MPI_DIST_GRAPH,
        }
    }

    /// The neighbours that the process of rank `rank`, the caller, receives from in a neighbourhood
    /// collective, in its order; `MPI_PROC_NULL` beyond the edge of a grid (MPI-5.0 section 8.6).
    pub fn sources(&self, rank: u32) -> Vec<i32> {
        match self {
            Topology::Cart(cart) => cart.neighbors(rank),
            Topology::Graph(graph) => graph.neighbors(rank).to_vec(),
            Topology::DistGraph(graph) => graph.sources.iter().map(|edge| edge.peer).collect(),
        }
    }

    /// The neighbours that the process of rank `rank`, the caller, sends to, in the same way.
    pub fn destinations(&self, rank: u32) -> Vec<i32> {
        match self {
            Topology::DistGraph(graph) => graph.destinations.iter().map(|edge| edge.peer).collect(),
            _ => self.sources(rank),
        }
    }

    /// The grid.
    ///
    /// # Errors
    /// `MPI_ERR_TOPOLOGY` for another kind.
    pub fn cart(&self) -> Result<&Cart> {
        match self {
            Topology::Cart(cart) => Ok(cart),
            _ => Err(Error::new(
                MPI_ERR_TOPOLOGY,
                "the communicator has a graph, not a Cartesian grid",
            )),
        }
    }

    /// The graph.
    ///
    /// # Errors
    /// `MPI_ERR_TOPOLOGY` for another kind.
    pub fn graph(&self) -> Result<&Graph> {
        match self {
            Topology::Graph(graph) => Ok(graph),
            _ => Err(Error::new(
                MPI_ERR_TOPOLOGY,
                "the communicator has no graph of MPI_Graph_create",
            )),
        }
    }

    /// The distributed graph.
    ///
    /// # Errors
    /// `MPI_ERR_TOPOLOGY` for another kind.
    pub fn dist_graph(&self) -> Result<&DistGraph> {
        match self {
            Topology::DistGraph(graph) => Ok(graph),
            _ => Err(Error::new(MPI_ERR_TOPOLOGY, "the communicator has no distributed graph")),
        }
    }
}
