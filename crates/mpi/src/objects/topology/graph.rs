//! Graphs: each member knows the whole graph, or only its own edges.

use crate::common::consts::*;
use crate::common::error::{Error, Result};

/// Graph of `MPI_Graph_create`: for each node the end of its edges in the list of all edges, and that list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    index: Vec<i32>,
    edges: Vec<i32>,
}

impl Graph {
    /// Makes a graph with a node for each entry of `index`. Entries of `edges` beyond the last index are ignored.
    /// Errors: `MPI_ERR_ARG` for an index that descends or exceeds the edges, `MPI_ERR_RANK` for an unknown node.
    pub fn new(index: &[i32], edges: &[i32]) -> Result<Graph> {
        let mut last = 0;
        for &end in index {
            if end < last || end as usize > edges.len() {
                let message = format!(
                    "the array index has {end} after {last}: pass values that ascend from 0 to the \
                     number of edges"
                );
                return Err(Error::new(MPI_ERR_ARG, message));
            }
            last = end;
        }
        let edges = &edges[..last as usize];
        if let Some(&edge) =
            edges.iter().find(|&&edge| !usize::try_from(edge).is_ok_and(|e| e < index.len()))
        {
            let message =
                format!("an edge leads to node {edge}, but the graph has {} nodes", index.len());
            let advice = "pass nodes from 0 to the number of nodes less 1";
            return Err(Error::new(MPI_ERR_RANK, message).with_advice(Some(advice)));
        }
        Ok(Graph { index: index.to_vec(), edges: edges.to_vec() })
    }

    /// Returns the end of each node's edges.
    pub fn index(&self) -> &[i32] {
        &self.index
    }

    /// Returns all edges, node by node.
    pub fn edges(&self) -> &[i32] {
        &self.edges
    }

    /// Number of nodes.
    pub fn size(&self) -> u32 {
        self.index.len() as u32
    }

    /// Returns the neighbours of a node.
    pub fn neighbors(&self, node: u32) -> &[i32] {
        let node = node as usize;
        let start = if node == 0 { 0 } else { self.index[node - 1] };
        &self.edges[start as usize..self.index[node] as usize]
    }
}

/// Edge of a distributed graph, as seen by one of its ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// Rank of the other end.
    pub peer: i32,
    /// Weight of the edge; 1 if the graph has none.
    pub weight: i32,
}

/// Edges of one member of a distributed graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DistGraph {
    /// Edges that end at this member.
    pub sources: Vec<Edge>,
    /// Edges that start at this member.
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
