//! Graphs: one that every member knows as a whole, and one in which every member knows its own edges.

use crate::common::consts::*;
use crate::common::error::{Error, Result};

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
        if let Some(&edge) =
            edges.iter().find(|&&edge| !usize::try_from(edge).is_ok_and(|e| e < index.len()))
        {
            let message = format!("an edge leads to node {edge}: there are {} nodes", index.len());
            return Err(Error::new(MPI_ERR_RANK, message));
        }
        Ok(Graph { index: index.to_vec(), edges: edges.to_vec() })
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

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

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
}
