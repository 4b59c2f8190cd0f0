//! Allgather and alltoall (MPI 5.0, sections 6.7 and 6.8).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::arguments::{Exchange, RecvBlock, RecvBlocks, SendBlock, TypedExchange};
use super::{Count, Form};
use core::ffi::c_void;
use fastpath_mpi::coll::{self, Collective, CollectiveBuffer, SignificantBuffer};
use fastpath_mpi::common::consts::MPI_IN_PLACE;
use fastpath_mpi::{Process, Result};

/// Returns the send buffer, read by `read`; `None` if `buf` is `MPI_IN_PLACE`.
fn unless_in_place<B>(buf: *const c_void, read: impl FnOnce() -> Result<B>) -> Result<Option<B>> {
    match buf as usize {
        MPI_IN_PLACE => Ok(None),
        _ => read().map(Some),
    }
}

/// Runs a call in which all blocks have one length.
#[inline]
unsafe fn run_blocks<C: Collective + 'static>(
    p: &Process, form: Form, send: SendBlock, recv: RecvBlock, comm: usize, sends_all: bool,
    make: impl FnOnce(CollectiveBuffer, SignificantBuffer) -> C,
) -> Result<()> {
    if form.is_blocking() && coll::skip_empty(comm, send.shape(), recv.shape(), 0) {
        return Ok(());
    }
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |comm| {
            let ranks = comm.peer_count();
            let send = send.side(p, true, if sends_all { ranks } else { 1 })?;
            Ok(make(send, recv.block(p, ranks)?))
        })
    }
}

pub unsafe fn allgather(
    p: &Process, form: Form, send: SendBlock, recv: RecvBlock, comm: usize,
) -> Result<()> {
    let make = |send, recv| coll::Allgather { send, recv };
    // SAFETY: ARGUMENTS.
    unsafe { run_blocks(p, form, send, recv, comm, false, make) }
}

pub unsafe fn allgatherv<C: Count, D: Count>(
    p: &Process, form: Form, send: SendBlock, recv: RecvBlocks<C, D>, comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |comm| {
            let send = send.side(p, true, 1)?;
            let recv = recv.read(p, comm.peer_count())?;
            Ok(coll::Allgatherv { send, recv })
        })
    }
}

pub unsafe fn alltoall(
    p: &Process, form: Form, send: SendBlock, recv: RecvBlock, comm: usize,
) -> Result<()> {
    let make = |send, recv| coll::Alltoall { send, recv };
    // SAFETY: ARGUMENTS.
    unsafe { run_blocks(p, form, send, recv, comm, true, make) }
}

pub unsafe fn alltoallv<C: Count, D: Count>(
    p: &Process, form: Form, call: Exchange<C, D>, comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |comm| {
            let send = unless_in_place(call.sendbuf, || call.given(p, comm.peer_count()))?;
            let recv = call.taken(p, comm.peer_count())?;
            Ok(coll::Alltoallv { send, recv })
        })
    }
}

pub unsafe fn alltoallw<C: Count, D: Count>(
    p: &Process, form: Form, call: TypedExchange<C, D>, comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |comm| {
            let send = unless_in_place(call.sendbuf, || call.given(p, comm.peer_count()))?;
            let recv = call.taken(p, comm.peer_count())?;
            Ok(coll::Alltoallw { send, recv })
        })
    }
}
