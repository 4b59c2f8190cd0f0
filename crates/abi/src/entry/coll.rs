//! Barrier, broadcast, gather and scatter (MPI 5.0, sections 6.3 to 6.7), and what the entry points of collective
//! calls share.
//!
//! **ARGUMENTS.** What pointers among the arguments point to: see the module above.
#![allow(unsafe_code)]

use super::arguments::{RecvBlock, RecvBlocks, SendBlock};
use super::{Count, Form, read_counts};
use core::ffi::{c_int, c_void};
use fastpath_mpi::coll::pair::{self, PairCall};
use fastpath_mpi::coll::{self, Block, Blocks, TypedBlocks};
use fastpath_mpi::common::consts::{MPI_BYTE, MPI_ERR_ARG, MPI_PROC_NULL, MPI_ROOT, MPI_SUCCESS};
use fastpath_mpi::common::lock;
use fastpath_mpi::objects::comm::Comm;
use fastpath_mpi::process::errhandler::{Scope, raise};
use fastpath_mpi::{Error, Process, Result, process};

/// A buffer that always counts.
pub(crate) fn read_block(
    p: &Process, buf: *mut c_void, count: i64, datatype: usize,
) -> Result<Block> {
    Ok(Block { buf: buf.cast(), count, datatype: p.datatype(datatype)? })
}

/// A buffer with a count and a displacement for each of so many partners.
///
/// # Safety
/// The arrays are null or have an entry for each.
pub(crate) unsafe fn read_blocks<C: Count, D: Count>(
    p: &Process, partners: u32, buf: *const c_void, (counts, displacements): (*const C, *const D),
    datatype: usize,
) -> Result<Blocks> {
    let partners = i64::from(partners);
    // SAFETY: ARGUMENTS.
    unsafe {
        Ok(Blocks {
            buf: buf.cast::<u8>().cast_mut(),
            counts: read_counts("the array of counts", counts, partners)?,
            displacements: read_counts("the array of displacements", displacements, partners)?,
            datatype: p.datatype(datatype)?,
        })
    }
}

/// A buffer with a count, a displacement and a datatype for each of so many partners.
///
/// # Safety
/// The arrays are null or have an entry for each.
pub(crate) unsafe fn read_typed_blocks<C: Count, D: Count>(
    p: &Process, partners: u32, buf: *const c_void, (counts, displacements): (*const C, *const D),
    datatypes: *const usize,
) -> Result<TypedBlocks> {
    if datatypes.is_null() && partners != 0 {
        return Err(Error::new(MPI_ERR_ARG, "the array of datatypes is null"));
    }
    let count = i64::from(partners);
    // SAFETY: ARGUMENTS.
    unsafe {
        Ok(TypedBlocks {
            buf: buf.cast::<u8>().cast_mut(),
            counts: read_counts("the array of counts", counts, count)?,
            displacements: read_counts("the array of displacements", displacements, count)?,
            datatypes: (0..partners as usize)
                .map(|partner| p.datatype(datatypes.add(partner).read()))
                .collect::<Result<_>>()?,
        })
    }
}

/// Whether the calling process is the root; a wrong root is refused later.
fn is_root(comm: &Comm, root: c_int) -> bool {
    match comm.is_inter() {
        false => u32::try_from(root) == Ok(comm.rank),
        true => root == MPI_ROOT,
    }
}

/// Whether the calling process gives the root something, or gets something from it: on an intercommunicator no member
/// of the root's group does.
fn is_partner(comm: &Comm, root: c_int) -> bool {
    !comm.is_inter() || root >= 0
}

/// The handle of a datatype that counts unless the process has no part in the call.
pub(crate) fn used_type(comm: &Comm, root: c_int, datatype: usize) -> usize {
    match comm.is_inter() && root == MPI_PROC_NULL {
        true => MPI_BYTE,
        false => datatype,
    }
}

/// The code of a result; an error goes to the communicator's handler.
pub(crate) fn finish(result: Result<()>, name: &'static str, comm: usize) -> c_int {
    match result {
        Ok(()) => MPI_SUCCESS,
        Err(error) => raise(None, Scope::Comm(comm), name, error),
    }
}

/// `MPI_Barrier`
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
        // SAFETY: no memory is touched.
        PairCall::Waiting(missing) => unsafe {
            missing.receive("MPI_Barrier", comm, core::ptr::null_mut(), 0)
        },
        _ => barrier_many(comm),
    };
    finish(result, "MPI_Barrier", comm)
}

fn barrier_many(comm: usize) -> Result<()> {
    let p = process::enter("MPI_Barrier", false)?;
    // Below that level two ranks have tried it before.
    match lock::is_enabled() && pair::meet(&p, &*p.comm(comm)?)? {
        true => Ok(()),
        // SAFETY: no memory is touched.
        false => unsafe { ibarrier(&p, Form::Blocking, comm) },
    }
}

/// `MPI_Ibarrier`, `MPI_Barrier_init`
///
/// # Safety
/// The request in the form is null or a variable.
pub unsafe fn ibarrier(p: &Process, form: Form, comm: usize) -> Result<()> {
    // SAFETY: no memory is touched.
    unsafe {
        match pair::make_barrier(p, form, comm) {
            Some(made) => made,
            None => form.run(p, comm, |_| Ok(coll::Barrier)),
        }
    }
}

/// `MPI_Bcast` in its three forms.
///
/// # Safety
/// The buffer is as count and datatype say.
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
            let data = read_block(p, buffer, count, datatype)?;
            Ok(coll::Bcast { data, root })
        })
    }
}

/// `MPI_Gather` in its three forms.
///
/// # Safety
/// The buffers are as counts and datatypes say.
pub unsafe fn gather(
    p: &Process, form: Form, send: SendBlock, recv: RecvBlock, root: c_int, comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |comm| {
            let used = is_partner(comm, root);
            let send = send.side(p, used)?;
            let used = is_root(comm, root);
            let recv = recv.side(p, used)?;
            Ok(coll::Gather { send, recv, root })
        })
    }
}

/// `MPI_Gatherv` in its three forms.
///
/// # Safety
/// The buffers are as counts and datatypes say; at the root the arrays have an entry for each rank.
pub unsafe fn gatherv<C: Count, D: Count>(
    p: &Process, form: Form, send: SendBlock, recv: RecvBlocks<C, D>, root: c_int, comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |comm| {
            let used = is_partner(comm, root);
            let send = send.side(p, used)?;
            let recv = match is_root(comm, root) {
                true => Some(recv.read(p, comm.peer_count())?),
                false => None,
            };
            Ok(coll::Gatherv { send, recv, root })
        })
    }
}

/// `MPI_Scatter` in its three forms.
///
/// # Safety
/// The buffers are as counts and datatypes say.
pub unsafe fn scatter(
    p: &Process, form: Form, send: SendBlock, recv: RecvBlock, root: c_int, comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |comm| {
            let used = is_root(comm, root);
            let send = send.side(p, used)?;
            let used = is_partner(comm, root);
            let recv = recv.side(p, used)?;
            Ok(coll::Scatter { send, recv, root })
        })
    }
}

/// `MPI_Scatterv` in its three forms.
///
/// # Safety
/// The buffers are as counts and datatypes say; at the root the arrays have an entry for each rank.
pub unsafe fn scatterv<C: Count, D: Count>(
    p: &Process, form: Form, sendbuf: *const c_void, sendcounts: *const C, displs: *const D,
    sendtype: usize, recv: RecvBlock, root: c_int, comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |comm| {
            let arrays = (sendcounts, displs);
            let send = match is_root(comm, root) {
                true => Some(read_blocks(p, comm.peer_count(), sendbuf, arrays, sendtype)?),
                false => None,
            };
            let used = is_partner(comm, root);
            let recv = recv.side(p, used)?;
            Ok(coll::Scatterv { send, recv, root })
        })
    }
}
