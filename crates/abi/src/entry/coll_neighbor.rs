//! Collective calls with the neighbours of a topology (MPI 5.0, section 8.6).
//!
//! **ARGUMENTS.** What pointers among the arguments point to: see the module above.
#![allow(unsafe_code)]

use super::arguments::{RecvBlock, SendBlock};
use super::coll::read_blocks;
use super::coll_all::read_typed_blocks;
use super::{Count, Form};
use core::ffi::c_void;
use fastpath_mpi::coll::{self, Neighborhood};
use fastpath_mpi::{Process, Result};

/// `MPI_Neighbor_allgather` in its three forms.
///
/// # Safety
/// The buffers are as counts and datatypes say.
pub unsafe fn neighbor_allgather(
    p: &Process, form: Form, send: SendBlock, recv: RecvBlock, comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |comm| {
            let around = Neighborhood::of(comm)?;
            let send = send.block(p)?;
            let recv = recv.block(p)?;
            Ok(coll::NeighborAllgather { around, send, recv })
        })
    }
}

/// `MPI_Neighbor_allgatherv` in its three forms.
///
/// # Safety
/// The buffers are as counts and datatypes say; the arrays have an entry for each neighbour.
pub unsafe fn neighbor_allgatherv<C: Count, D: Count>(
    p: &Process, form: Form, send: SendBlock, recvbuf: *mut c_void, recvcounts: *const C,
    displs: *const D, recvtype: usize, comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |comm| {
            let around = Neighborhood::of(comm)?;
            let send = send.block(p)?;
            let sources = around.indegree();
            let recv = read_blocks(p, sources, recvbuf, (recvcounts, displs), recvtype)?;
            Ok(coll::NeighborAllgatherv { around, send, recv })
        })
    }
}

/// `MPI_Neighbor_alltoall` in its three forms.
///
/// # Safety
/// The buffers are as counts and datatypes say.
pub unsafe fn neighbor_alltoall(
    p: &Process, form: Form, send: SendBlock, recv: RecvBlock, comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |comm| {
            let around = Neighborhood::of(comm)?;
            let send = send.block(p)?;
            let recv = recv.block(p)?;
            Ok(coll::NeighborAlltoall { around, send, recv })
        })
    }
}

/// `MPI_Neighbor_alltoallv` in its three forms.
///
/// # Safety
/// The buffers are as counts and datatypes say; the arrays have an entry for each neighbour.
pub unsafe fn neighbor_alltoallv<C: Count, D: Count>(
    p: &Process, form: Form, sendbuf: *const c_void, sendcounts: *const C, sdispls: *const D,
    sendtype: usize, recvbuf: *mut c_void, recvcounts: *const C, rdispls: *const D,
    recvtype: usize, comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |comm| {
            let around = Neighborhood::of(comm)?;
            let (sources, destinations) = (around.indegree(), around.outdegree());
            let send = read_blocks(p, destinations, sendbuf, (sendcounts, sdispls), sendtype)?;
            let recv = read_blocks(p, sources, recvbuf, (recvcounts, rdispls), recvtype)?;
            Ok(coll::NeighborAlltoallv { around, send, recv })
        })
    }
}

/// `MPI_Neighbor_alltoallw` in its three forms.
///
/// # Safety
/// The buffers are as counts and datatypes say; the arrays have an entry for each neighbour.
pub unsafe fn neighbor_alltoallw<C: Count>(
    p: &Process, form: Form, sendbuf: *const c_void, sendcounts: *const C, sdispls: *const isize,
    sendtypes: *const usize, recvbuf: *mut c_void, recvcounts: *const C, rdispls: *const isize,
    recvtypes: *const usize, comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |comm| {
            let around = Neighborhood::of(comm)?;
            let (sources, destinations) = (around.indegree(), around.outdegree());
            let send =
                read_typed_blocks(p, destinations, sendbuf, (sendcounts, sdispls), sendtypes)?;
            let recv = read_typed_blocks(p, sources, recvbuf, (recvcounts, rdispls), recvtypes)?;
            Ok(coll::NeighborAlltoallw { around, send, recv })
        })
    }
}
