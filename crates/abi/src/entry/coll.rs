//! Barrier, broadcast, gather and scatter (MPI 5.0, sections 6.3 to 6.7).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::arguments::{RecvBlock, RecvBlocks, SendBlock, read_block, read_blocks};
use super::{Count, Form};
use core::ffi::{c_int, c_void};
use fastpath_mpi::coll;
use fastpath_mpi::coll::Use;
use fastpath_mpi::coll::pair::{self, PairCall};
use fastpath_mpi::common::consts::{MPI_BYTE, MPI_PROC_NULL, MPI_ROOT, MPI_SUCCESS};
use fastpath_mpi::common::lock;
use fastpath_mpi::objects::comm::Comm;
use fastpath_mpi::process::errhandler::{Scope, raise};
use fastpath_mpi::{Process, Result, process};

/// Returns whether the calling process is the root. An invalid `root` is no error here; it is reported later.
pub(crate) fn is_root(comm: &Comm, root: c_int) -> bool {
    match comm.is_inter() {
        false => u32::try_from(root) == Ok(comm.rank),
        true => root == MPI_ROOT,
    }
}

/// Returns whether the calling process exchanges data with the root. In an intercommunicator, the processes of the
/// root's own group do not exchange data with it.
pub(crate) fn is_partner(comm: &Comm, root: c_int) -> bool {
    !comm.is_inter() || root >= 0
}

/// Returns the datatype's handle, or `MPI_BYTE` if the process takes no part in the call.
pub(crate) fn used_type(comm: &Comm, root: c_int, datatype: usize) -> usize {
    match comm.is_inter() && root == MPI_PROC_NULL {
        true => MPI_BYTE,
        false => datatype,
    }
}

/// Returns the code of a result. An error is raised on the communicator.
pub(crate) fn finish(result: Result<()>, name: &'static str, comm: usize) -> c_int {
    match result {
        Ok(()) => MPI_SUCCESS,
        Err(error) => raise(None, Scope::Comm(comm), name, error),
    }
}

#[inline(always)] // `fastpath bench instructions` counts it
pub fn barrier(comm: usize) -> c_int {
    match pair::barrier(comm) {
        PairCall::Done => MPI_SUCCESS,
        other => barrier_slow(other, comm),
    }
}

#[inline(never)]
fn barrier_slow(outcome: PairCall, comm: usize) -> c_int {
    let result = match outcome {
        // SAFETY: the receive `missing` has no buffer.
        PairCall::Waiting(missing) => unsafe {
            missing.receive("MPI_Barrier", comm, core::ptr::null_mut(), 0)
        },
        _ => barrier_many(comm),
    };
    finish(result, "MPI_Barrier", comm)
}

fn barrier_many(comm: usize) -> Result<()> {
    let p = process::enter("MPI_Barrier", false)?;
    // Below `MPI_THREAD_MULTIPLE`, `barrier` has already tried the immediate path of two ranks. At that level, which
    // needs the lock, try the path here, inside MPI.
    match lock::is_enabled() && pair::meet(&p, &*p.comm(comm)?)? {
        true => Ok(()),
        // SAFETY: a blocking barrier has neither buffer nor request.
        false => unsafe { ibarrier(&p, Form::Blocking, comm) },
    }
}

/// Serves `MPI_Ibarrier` and `MPI_Barrier_init`.
///
/// # Safety
/// The request in the form is null or a variable.
pub unsafe fn ibarrier(p: &Process, form: Form, comm: usize) -> Result<()> {
    // SAFETY: a barrier has no buffer; the request is valid by this function's contract.
    unsafe {
        match pair::make_barrier(p, form, comm) {
            Some(made) => made,
            None => form.run(p, comm, |_| Ok(coll::Barrier)),
        }
    }
}

pub unsafe fn bcast(
    p: &Process, form: Form, buffer: *mut c_void, count: i64, datatype: usize, root: c_int,
    comm: usize,
) -> Result<()> {
    if form.is_blocking() && coll::skip_empty(comm, (count, datatype), (count, datatype), root) {
        return Ok(());
    }
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |comm| {
            let datatype = used_type(comm, root, datatype);
            let used = if is_root(comm, root) { Use::Input } else { Use::Output };
            let data = read_block(p, buffer, count, datatype)?.staged(p, 1, used)?;
            Ok(coll::Bcast { data, root })
        })
    }
}

pub unsafe fn gather(
    p: &Process, form: Form, send: SendBlock, recv: RecvBlock, root: c_int, comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |comm| {
            let used = is_partner(comm, root);
            let send = send.side(p, used, 1)?;
            let used = is_root(comm, root);
            let recv = recv.side(p, used, comm.peer_count())?;
            Ok(coll::Gather { send, recv, root })
        })
    }
}

pub unsafe fn gatherv<C: Count, D: Count>(
    p: &Process, form: Form, send: SendBlock, recv: RecvBlocks<C, D>, root: c_int, comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |comm| {
            let used = is_partner(comm, root);
            let send = send.side(p, used, 1)?;
            let recv = match is_root(comm, root) {
                true => Some(recv.read(p, comm.peer_count())?),
                false => None,
            };
            Ok(coll::Gatherv { send, recv, root })
        })
    }
}

pub unsafe fn scatter(
    p: &Process, form: Form, send: SendBlock, recv: RecvBlock, root: c_int, comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |comm| {
            let used = is_root(comm, root);
            let send = send.side(p, used, comm.peer_count())?;
            let used = is_partner(comm, root);
            let recv = recv.side(p, used, 1)?;
            Ok(coll::Scatter { send, recv, root })
        })
    }
}

pub unsafe fn scatterv<C: Count, D: Count>(
    p: &Process, form: Form, sendbuf: *const c_void, sendcounts: *const C, displs: *const D,
    sendtype: usize, recv: RecvBlock, root: c_int, comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |comm| {
            let arrays = (sendcounts, displs);
            let send = match is_root(comm, root) {
                true => {
                    let send = read_blocks(p, comm.peer_count(), sendbuf, arrays, sendtype)?;
                    Some(send.staged(p, Use::Input)?)
                }
                false => None,
            };
            let used = is_partner(comm, root);
            let recv = recv.side(p, used, 1)?;
            Ok(coll::Scatterv { send, recv, root })
        })
    }
}
