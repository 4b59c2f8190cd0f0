//! Allgather and alltoall (MPI 5.0, sections 6.7 and 6.8).
//!
//! **ARGUMENTS.** What pointers among the arguments point to: see the module above.
#![allow(unsafe_code)]

use super::arguments::{RecvBlock, SendBlock};
use super::coll::read_blocks;
use super::{Count, Form, read_counts};
use core::ffi::c_void;
use fastpath_mpi::coll::{self, TypedBlocks};
use fastpath_mpi::consts::{MPI_ERR_ARG, MPI_IN_PLACE};
use fastpath_mpi::{Error, Process, Result};

fn is_in_place(buf: *const c_void) -> bool {
    buf as usize == MPI_IN_PLACE
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

/// `MPI_Allgather` in its three forms.
///
/// # Safety
/// The buffers are as counts and datatypes say.
pub unsafe fn allgather(
    p: &Process, form: Form, send: SendBlock, recv: RecvBlock, comm: usize,
) -> Result<()> {
    if form.is_blocking() && coll::skip_empty(comm, send.shape(), recv.shape(), 0) {
        return Ok(());
    }
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |_| {
            let send = send.side(p, true)?;
            let recv = recv.block(p)?;
            Ok(coll::Allgather { send, recv })
        })
    }
}

/// `MPI_Allgatherv` in its three forms.
///
/// # Safety
/// The buffers are as counts and datatypes say; the arrays have an entry for each rank.
pub unsafe fn allgatherv<C: Count, D: Count>(
    p: &Process, form: Form, send: SendBlock, recvbuf: *mut c_void, recvcounts: *const C,
    displs: *const D, recvtype: usize, comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |comm| {
            let send = send.side(p, true)?;
            let recv = read_blocks(
                p,
                comm.peer_count(),
                recvbuf,
                (recvcounts, displs),
                recvtype,
            )?;
            Ok(coll::Allgatherv { send, recv })
        })
    }
}

/// `MPI_Alltoall` in its three forms.
///
/// # Safety
/// The buffers are as counts and datatypes say.
pub unsafe fn alltoall(
    p: &Process, form: Form, send: SendBlock, recv: RecvBlock, comm: usize,
) -> Result<()> {
    if form.is_blocking() && coll::skip_empty(comm, send.shape(), recv.shape(), 0) {
        return Ok(());
    }
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |_| {
            let send = send.side(p, true)?;
            let recv = recv.block(p)?;
            Ok(coll::Alltoall { send, recv })
        })
    }
}

/// `MPI_Alltoallv` in its three forms.
///
/// # Safety
/// The buffers are as counts and datatypes say; the arrays have an entry for each rank.
pub unsafe fn alltoallv<C: Count, D: Count>(
    p: &Process, form: Form, sendbuf: *const c_void, sendcounts: *const C, sdispls: *const D,
    sendtype: usize, recvbuf: *mut c_void, recvcounts: *const C, rdispls: *const D,
    recvtype: usize, comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |comm| {
            let ranks = comm.peer_count();
            let send = match is_in_place(sendbuf) {
                true => None,
                false => Some(read_blocks(
                    p,
                    ranks,
                    sendbuf,
                    (sendcounts, sdispls),
                    sendtype,
                )?),
            };
            let recv = read_blocks(p, ranks, recvbuf, (recvcounts, rdispls), recvtype)?;
            Ok(coll::Alltoallv { send, recv })
        })
    }
}

/// `MPI_Alltoallw` in its three forms.
///
/// # Safety
/// The buffers are as counts and datatypes say; the arrays have an entry for each rank.
pub unsafe fn alltoallw<C: Count, D: Count>(
    p: &Process, form: Form, sendbuf: *const c_void, sendcounts: *const C, sdispls: *const D,
    sendtypes: *const usize, recvbuf: *mut c_void, recvcounts: *const C, rdispls: *const D,
    recvtypes: *const usize, comm: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        form.run(p, comm, |comm| {
            let ranks = comm.peer_count();
            let send = match is_in_place(sendbuf) {
                true => None,
                false => Some(read_typed_blocks(
                    p,
                    ranks,
                    sendbuf,
                    (sendcounts, sdispls),
                    sendtypes,
                )?),
            };
            let recv = read_typed_blocks(p, ranks, recvbuf, (recvcounts, rdispls), recvtypes)?;
            Ok(coll::Alltoallw { send, recv })
        })
    }
}
