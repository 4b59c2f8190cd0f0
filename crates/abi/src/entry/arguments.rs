//! Groups of C arguments.
//!
//! A body parameter of one of these types combines the C arguments that have the names of its fields
//! (`abigen/src/exports.rs`).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::{Count, read_counts};
use core::ffi::{c_int, c_void};
use fastpath_mpi::coll::{Blocks, CollectiveBuffer, Operands, SignificantBuffer, TypedBlocks, Use};
use fastpath_mpi::common::consts::MPI_ERR_ARG;
use fastpath_mpi::objects::arguments::Args;
use fastpath_mpi::rma::transfer::Sides;
use fastpath_mpi::{Error, Process, Result};

#[inline]
pub(super) fn args(
    buf: *const c_void, count: i64, datatype: usize, peer: c_int, tag: c_int, comm: usize,
) -> Args {
    Args { buf: buf.cast_mut().cast(), count, datatype, peer, tag, comm }
}

/// Makes a buffer whose datatype is significant in every rank.
pub(crate) fn read_block(
    p: &Process, buf: *mut c_void, count: i64, datatype: usize,
) -> Result<SignificantBuffer> {
    Ok(SignificantBuffer { buf: buf.cast(), count, datatype: p.datatype(datatype)? })
}

/// Makes a buffer with a count and a displacement for each of `partners`.
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

/// Makes a buffer with a count, a displacement and a datatype for each of `partners`.
unsafe fn read_typed_blocks<C: Count, D: Count>(
    p: &Process, partners: u32, buf: *const c_void, (counts, displacements): (*const C, *const D),
    datatypes: *const usize,
) -> Result<TypedBlocks> {
    if datatypes.is_null() && partners != 0 {
        return Err(Error::new(MPI_ERR_ARG, "the array of datatypes is NULL: pass an array"));
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

/// A message to another rank.
pub struct SendArguments {
    pub buf: *const c_void,
    pub count: i64,
    pub datatype: usize,
    pub dest: c_int,
    pub tag: c_int,
    pub comm: usize,
}

impl From<SendArguments> for Args {
    fn from(m: SendArguments) -> Args {
        args(m.buf, m.count, m.datatype, m.dest, m.tag, m.comm)
    }
}

/// Origin and target of a one-sided operation: origin elements, and the target's rank, displacement and elements.
pub struct OneSided {
    pub origin_addr: *const c_void,
    pub origin_count: i64,
    pub origin_datatype: usize,
    pub target_rank: c_int,
    pub target_disp: isize,
    pub target_count: i64,
    pub target_datatype: usize,
    pub win: usize,
}

impl From<OneSided> for Sides {
    #[inline(always)] // `fastpath bench instructions` counts MPI_Put and MPI_Get
    fn from(call: OneSided) -> Sides {
        Sides {
            origin: call.origin_addr.cast_mut().cast(),
            count: call.origin_count,
            datatype: call.origin_datatype,
            rank: call.target_rank,
            disp: call.target_disp,
            target_count: call.target_count,
            target_datatype: call.target_datatype,
            win: call.win,
        }
    }
}

/// Result buffer of a one-sided operation: it receives the former elements of the target.
pub struct ResultArguments {
    pub result_addr: *mut c_void,
    pub result_count: i64,
    pub result_datatype: usize,
}

/// Send buffer of a collective call with one count.
pub struct SendBlock {
    pub sendbuf: *const c_void,
    pub sendcount: i64,
    pub sendtype: usize,
}

impl SendBlock {
    pub fn shape(&self) -> (i64, usize) {
        (self.sendcount, self.sendtype)
    }

    /// Returns the buffer, with `blocks` blocks. Its datatype is significant only if the buffer is `used` and not
    /// `MPI_IN_PLACE`.
    pub fn side(&self, p: &Process, used: bool, blocks: u32) -> Result<CollectiveBuffer> {
        CollectiveBuffer::new(p, used, self.sendbuf.cast(), self.sendcount, self.sendtype)?.staged(
            p,
            blocks,
            Use::Input,
        )
    }

    /// Returns the buffer, with `blocks` blocks. Its datatype is always significant.
    pub fn block(&self, p: &Process, blocks: u32) -> Result<SignificantBuffer> {
        read_block(p, self.sendbuf.cast_mut(), self.sendcount, self.sendtype)?.staged(
            p,
            blocks,
            Use::Input,
        )
    }
}

/// Receive buffer of a collective call with one count.
pub struct RecvBlock {
    pub recvbuf: *mut c_void,
    pub recvcount: i64,
    pub recvtype: usize,
}

impl RecvBlock {
    pub fn shape(&self) -> (i64, usize) {
        (self.recvcount, self.recvtype)
    }

    /// Returns the buffer, with `blocks` blocks. Its datatype is significant only if the buffer is `used` and not
    /// `MPI_IN_PLACE`.
    pub fn side(&self, p: &Process, used: bool, blocks: u32) -> Result<CollectiveBuffer> {
        let buf = self.recvbuf.cast_const().cast();
        CollectiveBuffer::new(p, used, buf, self.recvcount, self.recvtype)?.staged(
            p,
            blocks,
            Use::Output,
        )
    }

    /// Returns the buffer, with `blocks` blocks. Its datatype is always significant.
    pub fn block(&self, p: &Process, blocks: u32) -> Result<SignificantBuffer> {
        read_block(p, self.recvbuf, self.recvcount, self.recvtype)?.staged(p, blocks, Use::Output)
    }
}

/// Receive buffer of a collective call with a count and a displacement for each partner.
pub struct RecvBlocks<C, D> {
    pub recvbuf: *mut c_void,
    pub recvcounts: *const C,
    pub displs: *const D,
    pub recvtype: usize,
}

impl<C: Count, D: Count> RecvBlocks<C, D> {
    /// Returns the buffer for `partners` ranks.
    pub unsafe fn read(&self, p: &Process, partners: u32) -> Result<Blocks> {
        let arrays = (self.recvcounts, self.displs);
        // SAFETY: ARGUMENTS.
        unsafe { read_blocks(p, partners, self.recvbuf, arrays, self.recvtype) }?
            .staged(p, Use::Output)
    }
}

/// Buffers of a collective call, with a count and a displacement for each partner.
pub struct Exchange<C, D> {
    pub sendbuf: *const c_void,
    pub sendcounts: *const C,
    pub sdispls: *const D,
    pub sendtype: usize,
    pub recvbuf: *mut c_void,
    pub recvcounts: *const C,
    pub rdispls: *const D,
    pub recvtype: usize,
}

impl<C: Count, D: Count> Exchange<C, D> {
    /// Returns the send buffer for `partners` ranks.
    pub unsafe fn given(&self, p: &Process, partners: u32) -> Result<Blocks> {
        let arrays = (self.sendcounts, self.sdispls);
        // SAFETY: ARGUMENTS.
        unsafe { read_blocks(p, partners, self.sendbuf, arrays, self.sendtype) }?
            .staged(p, Use::Input)
    }

    /// Returns the receive buffer for `partners` ranks.
    pub unsafe fn taken(&self, p: &Process, partners: u32) -> Result<Blocks> {
        let arrays = (self.recvcounts, self.rdispls);
        // SAFETY: ARGUMENTS.
        unsafe { read_blocks(p, partners, self.recvbuf, arrays, self.recvtype) }?
            .staged(p, Use::Output)
    }
}

/// Buffers of a collective call, with a count, a displacement and a datatype for each partner.
pub struct TypedExchange<C, D> {
    pub sendbuf: *const c_void,
    pub sendcounts: *const C,
    pub sdispls: *const D,
    pub sendtypes: *const usize,
    pub recvbuf: *mut c_void,
    pub recvcounts: *const C,
    pub rdispls: *const D,
    pub recvtypes: *const usize,
}

impl<C: Count, D: Count> TypedExchange<C, D> {
    /// Returns the send buffer for `partners` ranks.
    pub unsafe fn given(&self, p: &Process, partners: u32) -> Result<TypedBlocks> {
        let arrays = (self.sendcounts, self.sdispls);
        // SAFETY: ARGUMENTS.
        unsafe { read_typed_blocks(p, partners, self.sendbuf, arrays, self.sendtypes) }?
            .staged(p, Use::Input)
    }

    /// Returns the receive buffer for `partners` ranks.
    pub unsafe fn taken(&self, p: &Process, partners: u32) -> Result<TypedBlocks> {
        let arrays = (self.recvcounts, self.rdispls);
        // SAFETY: ARGUMENTS.
        unsafe { read_typed_blocks(p, partners, self.recvbuf, arrays, self.recvtypes) }?
            .staged(p, Use::Output)
    }
}

/// Buffers and operation of a reduction.
pub struct Reduction {
    pub sendbuf: *const c_void,
    pub recvbuf: *mut c_void,
    pub count: i64,
    pub datatype: usize,
    pub op: usize,
}

impl Reduction {
    /// Returns the operands, with the objects of the handles.
    pub fn operands(&self, p: &Process) -> Result<Operands> {
        self.operands_of(p, self.count, self.count)
    }

    /// Returns operands of which only `sent` and `received` elements are significant.
    pub fn operands_of(&self, p: &Process, sent: i64, received: i64) -> Result<Operands> {
        let (send, recv) = (self.sendbuf.cast(), self.recvbuf.cast());
        Operands::new(p, send, recv, self.datatype, self.op)?.staged(p, sent, received)
    }
}
