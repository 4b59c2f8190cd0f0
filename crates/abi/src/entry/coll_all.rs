//! Allgather and alltoall (MPI 5.0, sections 6.7 and 6.8).
#![allow(unsafe_code)]

use super::coll::{Blocks, Side};
use super::{Count, read_counts};
use core::ffi::c_void;
use fastpath_mpi::channel::Channel;
use fastpath_mpi::coll::{self, Arrays};
use fastpath_mpi::consts::{MPI_ERR_ARG, MPI_IN_PLACE};
use fastpath_mpi::datatype::Datatype;
use fastpath_mpi::{Error, Process, Result};
use std::rc::Rc;

fn is_in_place(buf: *const c_void) -> bool {
    buf as usize == MPI_IN_PLACE
}

/// `MPI_Allgather`
///
/// # Safety
/// The buffers are as counts and datatypes say.
pub unsafe fn allgather(
    p: &Process,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: usize,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: usize,
    comm: usize,
) -> Result<()> {
    if coll::skip_empty(comm, (sendcount, sendtype), (recvcount, recvtype), 0) {
        return Ok(());
    }
    let comm = p.comm(comm)?;
    let f = coll::open(p, &comm)?;
    let send = Side::new(p, true, sendbuf, sendcount, sendtype)?;
    let recvtype = p.datatype(recvtype)?;
    // SAFETY: by the contract of this function.
    unsafe { coll::allgather(&f, send.to_send(), (recvbuf.cast(), recvcount, &recvtype)) }
}

/// `MPI_Allgatherv`
///
/// # Safety
/// The buffers are as counts and datatypes say; the arrays have an entry for each rank.
pub unsafe fn allgatherv<C: Count, D: Count>(
    p: &Process,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: usize,
    recvbuf: *mut c_void,
    recvcounts: *const C,
    displs: *const D,
    recvtype: usize,
    comm: usize,
) -> Result<()> {
    let comm = p.comm(comm)?;
    let f = coll::open(p, &comm)?;
    let send = Side::new(p, true, sendbuf, sendcount, sendtype)?;
    // SAFETY: by the contract of this function.
    unsafe {
        let recv = Blocks::read(&f, recvbuf, (recvcounts, displs), recvtype)?;
        coll::allgatherv(&f, send.to_send(), recv.array())
    }
}

/// `MPI_Alltoall`
///
/// # Safety
/// The buffers are as counts and datatypes say.
pub unsafe fn alltoall(
    p: &Process,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: usize,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: usize,
    comm: usize,
) -> Result<()> {
    if coll::skip_empty(comm, (sendcount, sendtype), (recvcount, recvtype), 0) {
        return Ok(());
    }
    let comm = p.comm(comm)?;
    let f = coll::open(p, &comm)?;
    let send = Side::new(p, true, sendbuf, sendcount, sendtype)?;
    let recvtype = p.datatype(recvtype)?;
    // SAFETY: by the contract of this function.
    unsafe { coll::alltoall(&f, send.to_send(), (recvbuf.cast(), recvcount, &recvtype)) }
}

/// `MPI_Alltoallv`
///
/// # Safety
/// The buffers are as counts and datatypes say; the arrays have an entry for each rank.
pub unsafe fn alltoallv<C: Count, D: Count>(
    p: &Process,
    sendbuf: *const c_void,
    sendcounts: *const C,
    sdispls: *const D,
    sendtype: usize,
    recvbuf: *mut c_void,
    recvcounts: *const C,
    rdispls: *const D,
    recvtype: usize,
    comm: usize,
) -> Result<()> {
    let comm = p.comm(comm)?;
    let f = coll::open(p, &comm)?;
    // SAFETY: by the contract of this function.
    unsafe {
        let send = match is_in_place(sendbuf) {
            true => None,
            false => Some(Blocks::read(&f, sendbuf, (sendcounts, sdispls), sendtype)?),
        };
        let recv = Blocks::read(&f, recvbuf, (recvcounts, rdispls), recvtype)?;
        coll::alltoallv(&f, send.as_ref().map(Blocks::array), recv.array())
    }
}

/// A buffer with a count, a displacement and a datatype for each rank.
struct TypedBlocks {
    buf: *mut u8,
    counts: Vec<i64>,
    displacements: Vec<i64>,
    datatypes: Vec<Rc<Datatype>>,
}

impl TypedBlocks {
    /// # Safety
    /// The arrays are null or have an entry for each rank of the communicator.
    unsafe fn read<C: Count, D: Count>(
        f: &Channel<'_>,
        buf: *const c_void,
        (counts, displacements): (*const C, *const D),
        datatypes: *const usize,
    ) -> Result<TypedBlocks> {
        if datatypes.is_null() {
            return Err(Error::new(MPI_ERR_ARG, "the array of datatypes is null"));
        }
        let ranks = f.comm.size();
        // SAFETY: by the contract of this function.
        unsafe {
            Ok(TypedBlocks {
                buf: buf.cast::<u8>().cast_mut(),
                counts: read_counts("the array of counts", counts, ranks.into())?,
                displacements: read_counts(
                    "the array of displacements",
                    displacements,
                    ranks.into(),
                )?,
                datatypes: (0..ranks as usize)
                    .map(|rank| f.process.datatype(datatypes.add(rank).read()))
                    .collect::<Result<_>>()?,
            })
        }
    }

    fn arrays(&self) -> Arrays<'_> {
        Arrays {
            buf: self.buf,
            counts: &self.counts,
            displacements: &self.displacements,
            datatypes: &self.datatypes,
        }
    }
}

/// `MPI_Alltoallw`
///
/// # Safety
/// The buffers are as counts and datatypes say; the arrays have an entry for each rank.
pub unsafe fn alltoallw<C: Count, D: Count>(
    p: &Process,
    sendbuf: *const c_void,
    sendcounts: *const C,
    sdispls: *const D,
    sendtypes: *const usize,
    recvbuf: *mut c_void,
    recvcounts: *const C,
    rdispls: *const D,
    recvtypes: *const usize,
    comm: usize,
) -> Result<()> {
    let comm = p.comm(comm)?;
    let f = coll::open(p, &comm)?;
    // SAFETY: by the contract of this function.
    unsafe {
        let send = match is_in_place(sendbuf) {
            true => None,
            false => Some(TypedBlocks::read(
                &f,
                sendbuf,
                (sendcounts, sdispls),
                sendtypes,
            )?),
        };
        let recv = TypedBlocks::read(&f, recvbuf, (recvcounts, rdispls), recvtypes)?;
        coll::alltoallw(&f, send.as_ref().map(TypedBlocks::arrays), recv.arrays())
    }
}
