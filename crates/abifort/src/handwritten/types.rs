//! Lengths of arrays that no argument gives.
#![allow(unsafe_code)]

use crate::convert::{comm_from, datatype_from};
use crate::ffi;
use crate::special_addresses;
use core::ffi::{c_int, c_void};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Number of dimensions of a Cartesian communicator; 0 in an error, which the call itself reports.
pub fn cartesian_dimensions(comm: c_int) -> c_int {
    let (mut kind, mut dimensions) = (0, 0);
    let comm = comm_from(comm);
    // SAFETY: addresses of local variables.
    unsafe {
        if ffi::PMPI_Topo_test(comm, &mut kind) == 0 && kind == CART {
            ffi::PMPI_Cartdim_get(comm, &mut dimensions);
        }
    }
    dimensions
}

/// Results for which a call gets memory without a question about their number. The question would be an error of its
/// own if the handle is invalid.
const USUAL_RESULTS: i64 = 1024;

/// Room for results of MPI_Cart_get, of which the program takes `most`.
pub fn room_for_dimensions(comm: c_int, most: c_int) -> c_int {
    if i64::from(most) <= USUAL_RESULTS { most } else { most.min(cartesian_dimensions(comm)) }
}

/// Room for datatypes of MPI_Type_get_contents, of which the program takes `most`.
pub fn room_for_types(datatype: c_int, most: i64) -> i64 {
    if most <= USUAL_RESULTS {
        return most;
    }
    let (mut integers, mut addresses, mut counts, mut types, mut combiner) = (0, 0, 0, 0, 0);
    // SAFETY: addresses of local variables. In an error the number stays 0, and the call itself reports the error.
    unsafe {
        ffi::PMPI_Type_get_envelope_c(
            datatype_from(datatype),
            &mut integers,
            &mut addresses,
            &mut counts,
            &mut types,
            &mut combiner,
        )
    };
    types.min(most)
}

/// Kinds of topologies.
const CART: c_int = 211;
const GRAPH: c_int = 212;
const DIST_GRAPH: c_int = 213;

/// The datatypes of MPI_Alltoallw or MPI_Neighbor_alltoallw, one for each peer. They are not read where the buffer is
/// MPI_IN_PLACE.
///
/// # Safety
/// `types` is valid for reads of as many values as the communicator has peers.
pub unsafe fn peer_types(
    types: *mut c_int, comm: c_int, is_neighbor: bool, is_send: bool, sendbuf: *mut c_void,
) -> Vec<usize> {
    if is_send && special_addresses::is_in_place(sendbuf) {
        return vec![0];
    }
    let peers = peers(comm_from(comm), is_neighbor, is_send);
    // SAFETY: by this function's contract.
    (0..peers).map(|i| datatype_from(unsafe { *types.add(i) })).chain([0]).collect()
}

/// Number of processes that this one sends to, or receives from.
fn peers(comm: usize, is_neighbor: bool, is_send: bool) -> usize {
    let (mut count, mut other, mut kind) = (0, 0, 0);
    // SAFETY: addresses of local variables. The call itself reports an error of the communicator.
    unsafe {
        if !is_neighbor {
            if ffi::PMPI_Comm_test_inter(comm, &mut other) == 0 {
                match other {
                    0 => ffi::PMPI_Comm_size(comm, &mut count),
                    _ => ffi::PMPI_Comm_remote_size(comm, &mut count),
                };
            }
        } else if ffi::PMPI_Topo_test(comm, &mut kind) == 0 {
            match kind {
                CART => {
                    ffi::PMPI_Cartdim_get(comm, &mut count);
                    count *= 2;
                }
                GRAPH => {
                    ffi::PMPI_Comm_rank(comm, &mut other);
                    ffi::PMPI_Graph_neighbors_count(comm, other, &mut count);
                }
                DIST_GRAPH => {
                    let (mut sources, mut destinations) = (0, 0);
                    ffi::PMPI_Dist_graph_neighbors_count(
                        comm,
                        &mut sources,
                        &mut destinations,
                        &mut other,
                    );
                    count = if is_send { destinations } else { sources };
                }
                _ => {}
            }
        }
    }
    usize::try_from(count).unwrap_or(0)
}

/// Datatypes that MPI may read until a request has ended, by the request. MPI reuses the handle of a request only after
/// the request has ended, so an entry is freed when its handle comes again.
static KEPT: Mutex<Option<HashMap<usize, Vec<Vec<usize>>>>> = Mutex::new(None);

/// Keeps `types` until `request` has ended.
pub fn keep_types(types: Vec<usize>, request: usize) {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let lists = kept.get_or_insert_with(HashMap::new).entry(request).or_default();
    // Two lists belong to one request: those to send and those to receive.
    if lists.len() >= 2 {
        lists.clear();
    }
    lists.push(types);
}
