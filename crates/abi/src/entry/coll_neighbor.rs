//! Collective calls with the neighbours of a topology (MPI 5.0, section 8.6).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::arguments::{Exchange, RecvBlock, RecvBlocks, SendBlock, TypedExchange};
use super::{Count, Form};
use fastpath_mpi::coll::{self, Collective, SignificantBuffer};
use fastpath_mpi::objects::comm::Neighborhood;
use fastpath_mpi::{Process, Result};
use std::rc::Rc;

/// Runs a call among the neighbours of a communicator.
#[inline]
unsafe fn run<C: Collective + 'static>(
    p: &Process, form: Form, comm: usize, read: impl FnOnce(Rc<Neighborhood>) -> Result<C>,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { form.run(p, comm, |comm| read(Neighborhood::of(comm)?)) }
}

/// Runs a call in which all blocks have one length.
#[inline]
unsafe fn run_blocks<C: Collective + 'static>(
    p: &Process, form: Form, send: SendBlock, recv: RecvBlock, comm: usize, sends_all: bool,
    make: impl FnOnce(Rc<Neighborhood>, SignificantBuffer, SignificantBuffer) -> C,
) -> Result<()> {
    let read = |comm: &_| {
        let around = Neighborhood::of(comm)?;
        let sent = if sends_all { around.outdegree() } else { 1 };
        let (send, recv) = (send.block(p, sent)?, recv.block(p, around.indegree())?);
        Ok(make(around, send, recv))
    };
    // SAFETY: ARGUMENTS.
    unsafe { form.run(p, comm, read) }
}

pub unsafe fn neighbor_allgather(
    p: &Process, form: Form, send: SendBlock, recv: RecvBlock, comm: usize,
) -> Result<()> {
    let make = |around, send, recv| coll::NeighborAllgather { around, send, recv };
    // SAFETY: ARGUMENTS.
    unsafe { run_blocks(p, form, send, recv, comm, false, make) }
}

pub unsafe fn neighbor_allgatherv<C: Count, D: Count>(
    p: &Process, form: Form, send: SendBlock, recv: RecvBlocks<C, D>, comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        run(p, form, comm, |around| {
            let send = send.block(p, 1)?;
            let recv = recv.read(p, around.indegree())?;
            Ok(coll::NeighborAllgatherv { around, send, recv })
        })
    }
}

pub unsafe fn neighbor_alltoall(
    p: &Process, form: Form, send: SendBlock, recv: RecvBlock, comm: usize,
) -> Result<()> {
    let make = |around, send, recv| coll::NeighborAlltoall { around, send, recv };
    // SAFETY: ARGUMENTS.
    unsafe { run_blocks(p, form, send, recv, comm, true, make) }
}

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
