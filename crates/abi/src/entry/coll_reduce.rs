//! Reductions (MPI 5.0, sections 6.9 to 6.11).
//!
//! **ARGUMENTS.** What pointers among the arguments point to: see the module above.
#![allow(unsafe_code)]

use super::coll::{finish, used_type};
use super::{Count, Form, read_counts};
use core::ffi::{c_int, c_void};
use fastpath_mpi::coll::{self, Operands};
use fastpath_mpi::consts::{MPI_PROC_NULL, MPI_SUCCESS, MPI_SUM};
use fastpath_mpi::{Process, Result, process};

/// `MPI_Reduce` in its three forms.
///
/// # Safety
/// The buffers are as count and datatype say.
pub unsafe fn reduce(
    p: &Process,
    form: Form,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: usize,
    op: usize,
    root: c_int,
    comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |comm| {
            let idle = comm.is_inter() && root == MPI_PROC_NULL;
            let op = if idle { MPI_SUM } else { op };
            let datatype = used_type(comm, root, datatype);
            let operands = Operands::new(p, sendbuf.cast(), recvbuf.cast(), datatype, op)?;
            Ok(coll::Reduce {
                operands,
                count,
                root,
            })
        })
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
    // SAFETY: ARGUMENTS.
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
    // SAFETY: ARGUMENTS.
    unsafe {
        iallreduce(
            &p,
            Form::Blocking,
            sendbuf,
            recvbuf,
            count,
            datatype,
            op,
            comm,
        )
    }
}

/// `MPI_Allreduce` in its three forms.
///
/// # Safety
/// The buffers are as count and datatype say.
pub unsafe fn iallreduce(
    p: &Process,
    form: Form,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: usize,
    op: usize,
    comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |_| {
            let operands = Operands::new(p, sendbuf.cast(), recvbuf.cast(), datatype, op)?;
            Ok(coll::Allreduce { operands, count })
        })
    }
}

/// `MPI_Reduce_scatter` in its three forms.
///
/// # Safety
/// The buffers are as counts and datatype say; the array has an entry for each rank.
pub unsafe fn reduce_scatter<C: Count>(
    p: &Process,
    form: Form,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcounts: *const C,
    datatype: usize,
    op: usize,
    comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |comm| {
            let operands = Operands::new(p, sendbuf.cast(), recvbuf.cast(), datatype, op)?;
            let counts = read_counts("recvcounts", recvcounts, comm.size().into())?;
            Ok(coll::ReduceScatter { operands, counts })
        })
    }
}

/// `MPI_Reduce_scatter_block` in its three forms.
///
/// # Safety
/// The buffers are as count and datatype say.
pub unsafe fn reduce_scatter_block(
    p: &Process,
    form: Form,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcount: i64,
    datatype: usize,
    op: usize,
    comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |_| {
            let operands = Operands::new(p, sendbuf.cast(), recvbuf.cast(), datatype, op)?;
            Ok(coll::ReduceScatterBlock {
                operands,
                count: recvcount,
            })
        })
    }
}

/// `MPI_Scan` in its three forms.
///
/// # Safety
/// The buffers are as count and datatype say.
pub unsafe fn scan(
    p: &Process,
    form: Form,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: usize,
    op: usize,
    comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |_| {
            let operands = Operands::new(p, sendbuf.cast(), recvbuf.cast(), datatype, op)?;
            Ok(coll::Scan { operands, count })
        })
    }
}

/// `MPI_Exscan` in its three forms.
///
/// # Safety
/// The buffers are as count and datatype say.
pub unsafe fn exscan(
    p: &Process,
    form: Form,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: usize,
    op: usize,
    comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |_| {
            let operands = Operands::new(p, sendbuf.cast(), recvbuf.cast(), datatype, op)?;
            Ok(coll::Exscan { operands, count })
        })
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
    // SAFETY: ARGUMENTS.
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
