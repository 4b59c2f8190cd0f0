//! Reductions (MPI 5.0, sections 6.9 to 6.11).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::arguments::Reduction;
use super::coll::{finish, is_partner, is_root, used_type};
use super::{Count, Form, read_counts};
use core::ffi::{c_int, c_void};
use fastpath_mpi::coll::{self, Operands};
use fastpath_mpi::common::consts::{MPI_PROC_NULL, MPI_SUCCESS, MPI_SUM};
use fastpath_mpi::objects::staging::{CallCopies, Use};
use fastpath_mpi::{Process, Result, process};

pub unsafe fn reduce(
    p: &Process, form: Form, call: Reduction, root: c_int, comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |comm| {
            let idle = comm.is_inter() && root == MPI_PROC_NULL;
            let op = if idle { MPI_SUM } else { call.op };
            let datatype = used_type(comm, root, call.datatype);
            let call = Reduction { datatype, op, ..call };
            let count = call.count;
            let sent = if is_partner(comm, root) { count } else { 0 };
            let received = if is_root(comm, root) { count } else { 0 };
            let operands = call.operands_of(p, sent, received)?;
            Ok(coll::Reduce { operands, count, root })
        })
    }
}

#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn allreduce(
    sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: usize, op: usize,
    comm: usize,
) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe {
        match coll::pair::allreduce(sendbuf.cast(), recvbuf.cast(), count, datatype, op, comm) {
            Some(Ok(())) => MPI_SUCCESS,
            Some(Err(error)) => finish(Err(error), "MPI_Allreduce", comm),
            None => {
                let call = Reduction { sendbuf, recvbuf, count, datatype, op };
                let result = allreduce_many(call, comm);
                finish(result, "MPI_Allreduce", comm)
            }
        }
    }
}

/// # Safety
/// The contract is that of [`allreduce`].
#[inline(never)]
unsafe fn allreduce_many(call: Reduction, comm: usize) -> Result<()> {
    let p = process::enter("MPI_Allreduce", false)?;
    let Reduction { sendbuf, recvbuf, count, datatype, op } = call;
    let (send, recv) = (sendbuf.cast(), recvbuf.cast());
    // SAFETY: ARGUMENTS.
    unsafe {
        match coll::pair::allreduce_inside(&p, send, recv, count, datatype, op, comm) {
            Some(result) => result,
            None => iallreduce(&p, Form::Blocking, call, comm),
        }
    }
}

/// Serves `MPI_Allreduce` in its three forms.
pub unsafe fn iallreduce(p: &Process, form: Form, call: Reduction, comm: usize) -> Result<()> {
    let Reduction { sendbuf, recvbuf, count, datatype, op } = call;
    let (buffers, data) = ((sendbuf.cast(), recvbuf.cast()), (count, datatype, op));
    // SAFETY: ARGUMENTS.
    unsafe {
        if let Some(made) = coll::pair::make_allreduce(p, form, buffers, data, comm) {
            return made;
        }
        form.run(p, comm, |_| {
            let (operands, count) = (call.operands(p)?, call.count);
            Ok(coll::Allreduce { operands, count })
        })
    }
}

pub unsafe fn reduce_scatter<C: Count>(
    p: &Process, form: Form, sendbuf: *const c_void, recvbuf: *mut c_void, recvcounts: *const C,
    datatype: usize, op: usize, comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |comm| {
            let operands = Operands::new(p, sendbuf.cast(), recvbuf.cast(), datatype, op)?;
            let counts = read_counts("recvcounts", recvcounts, comm.size().into())?;
            let own = counts.get(comm.rank as usize).copied().unwrap_or(0);
            let all = counts.iter().fold(0_i64, |sum, &count| sum.saturating_add(count));
            let operands = operands.staged(p, all, own)?;
            Ok(coll::ReduceScatter::new(operands, counts))
        })
    }
}

pub unsafe fn reduce_scatter_block(
    p: &Process, form: Form, sendbuf: *const c_void, recvbuf: *mut c_void, recvcount: i64,
    datatype: usize, op: usize, comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |comm| {
            let operands = Operands::new(p, sendbuf.cast(), recvbuf.cast(), datatype, op)?;
            let all = recvcount.saturating_mul(comm.size().into());
            let operands = operands.staged(p, all, recvcount)?;
            Ok(coll::ReduceScatterBlock { operands, count: recvcount })
        })
    }
}

pub unsafe fn scan(p: &Process, form: Form, call: Reduction, comm: usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |_| {
            let (operands, count) = (call.operands(p)?, call.count);
            Ok(coll::Scan { operands, count })
        })
    }
}

pub unsafe fn exscan(p: &Process, form: Form, call: Reduction, comm: usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |_| {
            let (operands, count) = (call.operands(p)?, call.count);
            Ok(coll::Exscan { operands, count })
        })
    }
}

pub unsafe fn reduce_local(
    p: &Process, inbuf: *const c_void, inoutbuf: *mut c_void, count: i64, datatype: usize,
    op: usize,
) -> Result<()> {
    let (layout, op) = (p.datatype(datatype)?, p.op(op)?);
    // SAFETY: ARGUMENTS.
    unsafe {
        let mut copies = CallCopies::default();
        let (left, right) = (inbuf.cast_mut().cast(), inoutbuf.cast());
        let left = copies.add_elements(left, count, &layout, Use::Input)?;
        let right = copies.add_elements(right, count, &layout, Use::Output)?;
        coll::reduce_local(left, right, count, (&layout, datatype), &op)?;
        copies.store()
    }
}
