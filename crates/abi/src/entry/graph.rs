//! Graph topologies (MPI 5.0, section 8.5).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::cart::{check_rank, write_array};
use super::{read_array, store};
use core::ffi::c_int;
use fastpath_mpi::comm_creation::topology::{
    create_adjacent, create_dist_graph, create_graph, map_graph,
};
use fastpath_mpi::common::consts::{MPI_ERR_ARG, MPI_UNWEIGHTED, MPI_WEIGHTS_EMPTY};
use fastpath_mpi::objects::topology::{DistGraph, Edge};
use fastpath_mpi::{Error, Process, Result};

/// # Safety
/// `indx` is null or has `nnodes` elements, `edges` is null or has as many elements as the last
/// element of `indx` states; `comm_graph` is null or a variable.
pub unsafe fn graph_create(
    p: &Process, comm_old: usize, nnodes: c_int, indx: *const c_int, edges: *const c_int,
    _reorder: c_int,
) -> Result<usize> {
    let comm = p.comm(comm_old)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        let (index, edges) = read_graph(nnodes, indx, edges)?;
        create_graph(p, &comm, index, edges)
    }
}

pub unsafe fn graph_map(
    p: &Process, comm: usize, nnodes: c_int, indx: *const c_int, edges: *const c_int,
) -> Result<c_int> {
    let comm = p.comm(comm)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        let (index, edges) = read_graph(nnodes, indx, edges)?;
        map_graph(&comm, index, edges)
    }
}

pub unsafe fn graphdims_get(
    p: &Process, comm: usize, nnodes: *mut c_int, nedges: *mut c_int,
) -> Result<()> {
    let topology = p.comm(comm)?.find_topology()?;
    let graph = topology.graph()?;
    // SAFETY: ARGUMENTS.
    unsafe {
        store(nnodes, graph.index().len() as c_int)?;
        store(nedges, graph.edges().len() as c_int)
    }
}

pub unsafe fn graph_get(
    p: &Process, comm: usize, maxindex: c_int, maxedges: c_int, indx: *mut c_int, edges: *mut c_int,
) -> Result<()> {
    let topology = p.comm(comm)?.find_topology()?;
    let graph = topology.graph()?;
    // SAFETY: ARGUMENTS.
    unsafe {
        write_array(graph.index(), indx, maxindex)?;
        write_array(graph.edges(), edges, maxedges)
    }
}

pub fn graph_neighbors_count(p: &Process, comm: usize, rank: c_int) -> Result<c_int> {
    let comm = p.comm(comm)?;
    let topology = comm.find_topology()?;
    let neighbors = topology.graph()?.neighbors(check_rank(&comm, rank)?);
    Ok(neighbors.len() as c_int)
}

pub unsafe fn graph_neighbors(
    p: &Process, comm: usize, rank: c_int, maxneighbors: c_int, neighbors: *mut c_int,
) -> Result<()> {
    let comm = p.comm(comm)?;
    let topology = comm.find_topology()?;
    let found = topology.graph()?.neighbors(check_rank(&comm, rank)?);
    let count = found.len().min(usize::try_from(maxneighbors).unwrap_or(0));
    // SAFETY: ARGUMENTS.
    unsafe { write_array(&found[..count], neighbors, maxneighbors) }
}

/// # Safety
/// The arrays are null or constants or have as many elements as the degrees state;
/// `comm_dist_graph` is null or a variable.
pub unsafe fn dist_graph_create_adjacent(
    p: &Process, comm_old: usize, indegree: c_int, sources: *const c_int,
    sourceweights: *const c_int, outdegree: c_int, destinations: *const c_int,
    destweights: *const c_int, _info: usize, _reorder: c_int,
) -> Result<usize> {
    let comm = p.comm(comm_old)?;
    let graph = DistGraph {
        // SAFETY: ARGUMENTS.
        sources: unsafe { read_edges(indegree, sources, sourceweights) }?,
        // SAFETY: ARGUMENTS.
        destinations: unsafe { read_edges(outdegree, destinations, destweights) }?,
        weighted: !is_unweighted(sourceweights) && !is_unweighted(destweights),
    };
    create_adjacent(p, &comm, graph)
}

/// # Safety
/// `sources` and `degrees` are null or have `n` elements; `destinations` and `weights` are null or
/// constants or have as many elements as the sum of `degrees`; `comm_dist_graph` is null or a
/// variable.
pub unsafe fn dist_graph_create(
    p: &Process, comm_old: usize, n: c_int, sources: *const c_int, degrees: *const c_int,
    destinations: *const c_int, weights: *const c_int, _info: usize, _reorder: c_int,
) -> Result<usize> {
    let comm = p.comm(comm_old)?;
    // SAFETY: ARGUMENTS.
    let (sources, degrees) = unsafe { (read_array(sources, n)?, read_array(degrees, n)?) };
    let mut total: c_int = 0;
    for &degree in degrees {
        let sum = if degree < 0 { None } else { total.checked_add(degree) };
        total = sum.ok_or_else(|| {
            Error::new(
                MPI_ERR_ARG,
                format!(
                    "the degree {degree} is negative, or the sum of the degrees exceeds 2^31 - 1: \
                     pass degrees of 0 or more, or fewer edges"
                ),
            )
        })?;
    }
    // SAFETY: ARGUMENTS.
    let ends = unsafe { read_edges(total, destinations, weights) }?;
    let starts =
        sources.iter().zip(degrees).flat_map(|(&source, &degree)| (0..degree).map(move |_| source));
    let edges: Vec<_> =
        starts.zip(&ends).map(|(source, end)| (source, end.peer, end.weight)).collect();
    create_dist_graph(p, &comm, &edges, !is_unweighted(weights))
}

pub unsafe fn dist_graph_neighbors_count(
    p: &Process, comm: usize, indegree: *mut c_int, outdegree: *mut c_int, weighted: *mut c_int,
) -> Result<()> {
    let topology = p.comm(comm)?.find_topology()?;
    let graph = topology.dist_graph()?;
    // SAFETY: ARGUMENTS.
    unsafe {
        store(indegree, graph.sources.len() as c_int)?;
        store(outdegree, graph.destinations.len() as c_int)?;
        store(weighted, graph.weighted.into())
    }
}

/// # Safety
/// The arrays are null or constants or have as many elements as the maxima state.
pub unsafe fn dist_graph_neighbors(
    p: &Process, comm: usize, maxindegree: c_int, sources: *mut c_int, sourceweights: *mut c_int,
    maxoutdegree: c_int, destinations: *mut c_int, destweights: *mut c_int,
) -> Result<()> {
    let topology = p.comm(comm)?.find_topology()?;
    let graph = topology.dist_graph()?;
    // SAFETY: ARGUMENTS.
    unsafe {
        write_edges(&graph.sources, graph.weighted, maxindegree, sources, sourceweights)?;
        write_edges(&graph.destinations, graph.weighted, maxoutdegree, destinations, destweights)
    }
}

/// Returns the index and the edges of a caller's graph. The last entry of the index is the number of edges.
unsafe fn read_graph<'a>(
    nnodes: c_int, indx: *const c_int, edges: *const c_int,
) -> Result<(&'a [c_int], &'a [c_int])> {
    // SAFETY: ARGUMENTS.
    unsafe {
        let index = read_array(indx, nnodes)?;
        let edges = read_array(edges, index.last().copied().unwrap_or(0))?;
        Ok((index, edges))
    }
}

fn is_unweighted(weights: *const c_int) -> bool {
    weights.addr() == MPI_UNWEIGHTED
}

/// Returns the edges of one direction. Their weight is 1 if the caller passes no weights.
///
/// # Safety
/// The arrays are null or constants or have `count` elements.
unsafe fn read_edges(
    count: c_int, peers: *const c_int, weights: *const c_int,
) -> Result<Vec<Edge>> {
    let is_constant = is_unweighted(weights) || weights.addr() == MPI_WEIGHTS_EMPTY;
    // SAFETY: ARGUMENTS.
    let peers = unsafe { read_array(peers, count) }?;
    if weights.addr() == MPI_WEIGHTS_EMPTY && count > 0 {
        let message = format!(
            "the weights are MPI_WEIGHTS_EMPTY, but there are {count} edges: pass a weight for each"
        );
        return Err(Error::new(MPI_ERR_ARG, message));
    }
    let weights = if is_constant {
        &[]
    } else {
        // SAFETY: ARGUMENTS.
        unsafe { read_array(weights, count) }?
    };
    let weights = weights.iter().copied().chain(core::iter::repeat(1));
    Ok(peers.iter().zip(weights).map(|(&peer, weight)| Edge { peer, weight }).collect())
}

/// Writes the first edges of one direction, at most `room`. Writes the weights of these edges too, if the graph has
/// weights and the caller has an array for them.
///
/// # Safety
/// The arrays are null or constants or have `room` elements.
unsafe fn write_edges(
    edges: &[Edge], weighted: bool, room: c_int, peers: *mut c_int, weights: *mut c_int,
) -> Result<()> {
    let count = edges.len().min(usize::try_from(room).unwrap_or(0));
    let list = |value: fn(&Edge) -> c_int| edges[..count].iter().map(value).collect::<Vec<_>>();
    // SAFETY: ARGUMENTS.
    unsafe {
        write_array(&list(|edge| edge.peer), peers, room)?;
        if weighted && !is_unweighted(weights) && weights.addr() != MPI_WEIGHTS_EMPTY {
            write_array(&list(|edge| edge.weight), weights, room)?;
        }
    }
    Ok(())
}
