//! Barrier, broadcast, gather and scatter (MPI 5.0, sections 6.3 to 6.7), and what the entry points of collective
//! calls share.
//!
//! A call takes its place among the collective calls of the communicator ([`coll::open`]) before it looks at the
//! other arguments, so that the ranks stay in step when one of them refuses a call.
#![allow(unsafe_code)]

use super::{Count, read_counts};
use core::ffi::{c_int, c_void};
use fastpath_mpi::channel::Channel;
use fastpath_mpi::coll::pair::{self, Outcome};
use fastpath_mpi::coll::{self, Array};
use fastpath_mpi::consts::{MPI_IN_PLACE, MPI_SUCCESS};
use fastpath_mpi::datatype::Datatype;
use fastpath_mpi::errhandler::{Scope, raise};
use fastpath_mpi::{Process, Result, process};
use std::rc::Rc;

/// A buffer whose datatype counts only where `used`, and not where it is `MPI_IN_PLACE`.
pub(crate) struct Side {
    buf: *mut u8,
    count: i64,
    datatype: Option<Rc<Datatype>>,
}

impl Side {
    pub(crate) fn new(
        p: &Process,
        used: bool,
        buf: *const c_void,
        count: i64,
        datatype: usize,
    ) -> Result<Side> {
        let used = used && buf as usize != MPI_IN_PLACE;
        let datatype = if used {
            Some(p.datatype(datatype)?)
        } else {
            None
        };
        Ok(Side {
            buf: buf.cast::<u8>().cast_mut(),
            count,
            datatype,
        })
    }

    pub(crate) fn to_send(&self) -> (*const u8, i64, Option<&Datatype>) {
        (self.buf.cast_const(), self.count, self.datatype.as_deref())
    }

    pub(crate) fn to_recv(&self) -> (*mut u8, i64, Option<&Datatype>) {
        (self.buf, self.count, self.datatype.as_deref())
    }
}

/// A buffer with a count and a displacement for each rank.
pub(crate) struct Blocks {
    buf: *mut u8,
    counts: Vec<i64>,
    displacements: Vec<i64>,
    datatype: Rc<Datatype>,
}

impl Blocks {
    /// # Safety
    /// The arrays are null or have an entry for each rank of the communicator.
    pub(crate) unsafe fn read<C: Count, D: Count>(
        f: &Channel<'_>,
        buf: *const c_void,
        (counts, displacements): (*const C, *const D),
        datatype: usize,
    ) -> Result<Blocks> {
        let ranks = i64::from(f.comm.size());
        // SAFETY: by the contract of this function.
        unsafe {
            Ok(Blocks {
                buf: buf.cast::<u8>().cast_mut(),
                counts: read_counts("the array of counts", counts, ranks)?,
                displacements: read_counts("the array of displacements", displacements, ranks)?,
                datatype: f.process.datatype(datatype)?,
            })
        }
    }

    pub(crate) fn array(&self) -> Array<'_> {
        Array {
            buf: self.buf,
            counts: &self.counts,
            displacements: &self.displacements,
            datatype: &self.datatype,
        }
    }
}

/// Whether the calling process is the root; a wrong root is refused later.
fn is_root(f: &Channel<'_>, root: c_int) -> bool {
    u32::try_from(root) == Ok(f.comm.rank)
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
        Outcome::Done => MPI_SUCCESS,
        other => barrier_slow(other, comm),
    }
}

#[inline(never)]
fn barrier_slow(outcome: Outcome, comm: usize) -> c_int {
    let result = match outcome {
        // SAFETY: no memory is touched.
        Outcome::Waiting(missing) => unsafe {
            missing.receive("MPI_Barrier", comm, core::ptr::null_mut(), 0)
        },
        _ => barrier_many(comm),
    };
    finish(result, "MPI_Barrier", comm)
}

fn barrier_many(comm: usize) -> Result<()> {
    let p = process::enter("MPI_Barrier", false)?;
    let comm = p.comm(comm)?;
    coll::barrier(&coll::open(&p, &comm)?)
}

/// `MPI_Bcast`
///
/// # Safety
/// The buffer is as count and datatype say.
pub unsafe fn bcast(
    p: &Process,
    buffer: *mut c_void,
    count: i64,
    datatype: usize,
    root: c_int,
    comm: usize,
) -> Result<()> {
    if coll::skip_empty(comm, (count, datatype), (count, datatype), root) {
        return Ok(());
    }
    let comm = p.comm(comm)?;
    let f = coll::open(p, &comm)?;
    let datatype = p.datatype(datatype)?;
    // SAFETY: by the contract of this function.
    unsafe { coll::bcast(&f, buffer.cast(), count, &datatype, root) }
}

/// `MPI_Gather`
///
/// # Safety
/// The buffers are as counts and datatypes say.
pub unsafe fn gather(
    p: &Process,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: usize,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: usize,
    root: c_int,
    comm: usize,
) -> Result<()> {
    let comm = p.comm(comm)?;
    let f = coll::open(p, &comm)?;
    let send = Side::new(p, true, sendbuf, sendcount, sendtype)?;
    let recv = Side::new(p, is_root(&f, root), recvbuf, recvcount, recvtype)?;
    // SAFETY: by the contract of this function.
    unsafe { coll::gather(&f, send.to_send(), recv.to_recv(), root) }
}

/// `MPI_Gatherv`
///
/// # Safety
/// The buffers are as counts and datatypes say; at the root the arrays have an entry for each rank.
pub unsafe fn gatherv<C: Count, D: Count>(
    p: &Process,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: usize,
    recvbuf: *mut c_void,
    recvcounts: *const C,
    displs: *const D,
    recvtype: usize,
    root: c_int,
    comm: usize,
) -> Result<()> {
    let comm = p.comm(comm)?;
    let f = coll::open(p, &comm)?;
    let send = Side::new(p, true, sendbuf, sendcount, sendtype)?;
    let recv = match is_root(&f, root) {
        // SAFETY: by the contract of this function.
        true => Some(unsafe { Blocks::read(&f, recvbuf, (recvcounts, displs), recvtype)? }),
        false => None,
    };
    // SAFETY: by the contract of this function.
    unsafe { coll::gatherv(&f, send.to_send(), recv.as_ref().map(Blocks::array), root) }
}

/// `MPI_Scatter`
///
/// # Safety
/// The buffers are as counts and datatypes say.
pub unsafe fn scatter(
    p: &Process,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: usize,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: usize,
    root: c_int,
    comm: usize,
) -> Result<()> {
    let comm = p.comm(comm)?;
    let f = coll::open(p, &comm)?;
    let send = Side::new(p, is_root(&f, root), sendbuf, sendcount, sendtype)?;
    let recv = Side::new(p, true, recvbuf, recvcount, recvtype)?;
    // SAFETY: by the contract of this function.
    unsafe { coll::scatter(&f, send.to_send(), recv.to_recv(), root) }
}

/// `MPI_Scatterv`
///
/// # Safety
/// The buffers are as counts and datatypes say; at the root the arrays have an entry for each rank.
pub unsafe fn scatterv<C: Count, D: Count>(
    p: &Process,
    sendbuf: *const c_void,
    sendcounts: *const C,
    displs: *const D,
    sendtype: usize,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: usize,
    root: c_int,
    comm: usize,
) -> Result<()> {
    let comm = p.comm(comm)?;
    let f = coll::open(p, &comm)?;
    let send = match is_root(&f, root) {
        // SAFETY: by the contract of this function.
        true => Some(unsafe { Blocks::read(&f, sendbuf, (sendcounts, displs), sendtype)? }),
        false => None,
    };
    let recv = Side::new(p, true, recvbuf, recvcount, recvtype)?;
    // SAFETY: by the contract of this function.
    unsafe { coll::scatterv(&f, send.as_ref().map(Blocks::array), recv.to_recv(), root) }
}
