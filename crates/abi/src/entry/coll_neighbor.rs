//! Collective calls with the neighbours of a topology (MPI 5.0, section 8.6).
//!
//! **ARGUMENTS.** What pointers among the arguments point to: see the module above.
#![allow(unsafe_code)]

use super::arguments::{Exchange, RecvBlock, RecvBlocks, SendBlock, TypedExchange};
use super::{Count, Form};
use fastpath_mpi::coll::{self, Block, Collective};
use fastpath_mpi::objects::comm::Neighborhood;
use fastpath_mpi::{Process, Result};
use std::rc::Rc;

/// A call among the neighbours of a communicator, made of what is read for them.
///
/// # Safety
/// The buffers are as counts and datatypes say.
#[inline]
unsafe fn run<C: Collective + 'static>(
    p: &Process, form: Form, comm: usize, read: impl FnOnce(Rc<Neighborhood>) -> Result<C>,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { form.run(p, comm, |comm| read(Neighborhood::of(comm)?)) }
}

/// A call in which all blocks have one length.
///
/// # Safety
/// The buffers are as counts and datatypes say.
#[inline]
unsafe fn run_blocks<C: Collective + 'static>(
    p: &Process, form: Form, send: SendBlock, recv: RecvBlock, comm: usize,
    make: impl FnOnce(Rc<Neighborhood>, Block, Block) -> C,
) -> Result<()> {
    let read = |comm: &_| Ok(make(Neighborhood::of(comm)?, send.block(p)?, recv.block(p)?));
    // SAFETY: ARGUMENTS.
    unsafe { form.run(p, comm, read) }
}

/// `MPI_Neighbor_allgather` in its three forms.
///
/// # Safety
/// The buffers are as counts and datatypes say.
pub unsafe fn neighbor_allgather(
    p: &Process, form: Form, send: SendBlock, recv: RecvBlock, comm: usize,
) -> Result<()> {
    let make = |around, send, recv| coll::NeighborAllgather { around, send, recv };
    // SAFETY: ARGUMENTS.
    unsafe { run_blocks(p, form, send, recv, comm, make) }
}

/// `MPI_Neighbor_allgatherv` in its three forms.
///
/// # Safety
/// The buffers are as counts and datatypes say; the arrays have an entry for each neighbour.
pub unsafe fn neighbor_allgatherv<C: Count, D: Count>(
    p: &Process, form: Form, send: SendBlock, recv: RecvBlocks<C, D>, comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        run(p, form, comm, |around| {
            let send = send.block(p)?;
            let recv = recv.read(p, around.indegree())?;
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
    let make = |around, send, recv| coll::NeighborAlltoall { around, send, recv };
    // SAFETY: ARGUMENTS.
    unsafe { run_blocks(p, form, send, recv, comm, make) }
}

/// `MPI_Neighbor_alltoallv` in its three forms.
///
/// # Safety
/// The buffers are as counts and datatypes say; the arrays have an entry for each neighbour.
pub unsafe fn neighbor_alltoallv<C: Count, D: Count>(
    p: &Process, form: Form, call: Exchange<C, D>, comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        run(p, form, comm, |around| {
            let send = call.given(p, around.outdegree())?;
            let recv = call.taken(p, around.indegree())?;
            Ok(coll::NeighborAlltoallv { around, send, recv })
        })
    }
}

/// `MPI_Neighbor_alltoallw` in its three forms.
///
/// # Safety
/// The buffers are as counts and datatypes say; the arrays have an entry for each neighbour.
pub unsafe fn neighbor_alltoallw<C: Count>(
    p: &Process, form: Form, call: TypedExchange<C, isize>, comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        run(p, form, comm, |around| {
            let send = call.given(p, around.outdegree())?;
            let recv = call.taken(p, around.indegree())?;
            Ok(coll::NeighborAlltoallw { around, send, recv })
        })
    }
}
