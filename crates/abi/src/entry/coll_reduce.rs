//! Reductions (MPI 5.0, sections 6.9 to 6.11).
#![allow(unsafe_code)]

use super::coll::finish;
use super::{Count, read_counts};
use core::ffi::{c_int, c_void};
use fastpath_mpi::coll;
use fastpath_mpi::consts::MPI_SUCCESS;
use fastpath_mpi::{Process, Result, process};

/// `MPI_Reduce`
///
/// # Safety
/// The buffers are as count and datatype say.
pub unsafe fn reduce(
    p: &Process,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: usize,
    op: usize,
    root: c_int,
    comm: usize,
) -> Result<()> {
    let comm = p.comm(comm)?;
    let f = coll::open(p, &comm)?;
    let (layout, op) = (p.datatype(datatype)?, p.op(op)?);
    // SAFETY: by the contract of this function.
    unsafe {
        coll::reduce(
            &f,
            (sendbuf.cast(), recvbuf.cast()),
            count,
            (&layout, datatype),
            &op,
            root,
        )
    }
}

/// `MPI_Allreduce`
///
/// # Safety
/// The buffers are as count and datatype say.
#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn allreduce(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: usize,
    op: usize,
    comm: usize,
) -> c_int {
    // SAFETY: by the contract of this function.
    unsafe {
        match coll::pair::allreduce(sendbuf.cast(), recvbuf.cast(), count, datatype, op, comm) {
            Some(Ok(())) => MPI_SUCCESS,
            Some(Err(error)) => finish(Err(error), "MPI_Allreduce", comm),
            None => {
                let result = allreduce_many(sendbuf, recvbuf, count, datatype, op, comm);
                finish(result, "MPI_Allreduce", comm)
            }
        }
    }
}

/// # Safety
/// As [`allreduce`].
#[inline(never)]
unsafe fn allreduce_many(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: usize,
    op: usize,
    comm: usize,
) -> Result<()> {
    let p = process::enter("MPI_Allreduce", false)?;
    let comm = p.comm(comm)?;
    let f = coll::open(&p, &comm)?;
    let (layout, op) = (p.datatype(datatype)?, p.op(op)?);
    // SAFETY: by the contract of this function.
    unsafe {
        coll::allreduce(
            &f,
            (sendbuf.cast(), recvbuf.cast()),
            count,
            (&layout, datatype),
            &op,
        )
    }
}

/// `MPI_Reduce_scatter`
///
/// # Safety
/// The buffers are as counts and datatype say; the array has an entry for each rank.
pub unsafe fn reduce_scatter<C: Count>(
    p: &Process,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcounts: *const C,
    datatype: usize,
    op: usize,
    comm: usize,
) -> Result<()> {
    let comm = p.comm(comm)?;
    let f = coll::open(p, &comm)?;
    let (layout, op) = (p.datatype(datatype)?, p.op(op)?);
    // SAFETY: by the contract of this function.
    unsafe {
        let counts = read_counts("recvcounts", recvcounts, comm.size().into())?;
        coll::reduce_scatter(
            &f,
            (sendbuf.cast(), recvbuf.cast()),
            &counts,
            (&layout, datatype),
            &op,
        )
    }
}

/// `MPI_Reduce_scatter_block`
///
/// # Safety
/// The buffers are as count and datatype say.
pub unsafe fn reduce_scatter_block(
    p: &Process,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcount: i64,
    datatype: usize,
    op: usize,
    comm: usize,
) -> Result<()> {
    let comm = p.comm(comm)?;
    let f = coll::open(p, &comm)?;
    let (layout, op) = (p.datatype(datatype)?, p.op(op)?);
    let buffers = (sendbuf.cast(), recvbuf.cast());
    // SAFETY: by the contract of this function.
    unsafe { coll::reduce_scatter_block(&f, buffers, recvcount, (&layout, datatype), &op) }
}

/// `MPI_Scan`
///
/// # Safety
/// The buffers are as count and datatype say.
pub unsafe fn scan(
    p: &Process,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: usize,
    op: usize,
    comm: usize,
) -> Result<()> {
    let comm = p.comm(comm)?;
    let f = coll::open(p, &comm)?;
    let (layout, op) = (p.datatype(datatype)?, p.op(op)?);
    // SAFETY: by the contract of this function.
    unsafe {
        coll::scan(
            &f,
            (sendbuf.cast(), recvbuf.cast()),
            count,
            (&layout, datatype),
            &op,
        )
    }
}

/// `MPI_Exscan`
///
/// # Safety
/// The buffers are as count and datatype say.
pub unsafe fn exscan(
    p: &Process,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: usize,
    op: usize,
    comm: usize,
) -> Result<()> {
    let comm = p.comm(comm)?;
    let f = coll::open(p, &comm)?;
    let (layout, op) = (p.datatype(datatype)?, p.op(op)?);
    // SAFETY: by the contract of this function.
    unsafe {
        coll::exscan(
            &f,
            (sendbuf.cast(), recvbuf.cast()),
            count,
            (&layout, datatype),
            &op,
        )
    }
}

/// `MPI_Reduce_local`
///
/// # Safety
/// The buffers are as count and datatype say.
pub unsafe fn reduce_local(
    p: &Process,
    inbuf: *const c_void,
    inoutbuf: *mut c_void,
    count: i64,
    datatype: usize,
    op: usize,
) -> Result<()> {
    let (layout, op) = (p.datatype(datatype)?, p.op(op)?);
    // SAFETY: by the contract of this function.
    unsafe {
        coll::reduce_local(
            inbuf.cast(),
            inoutbuf.cast(),
            count,
            (&layout, datatype),
            &op,
        )
    }
}
