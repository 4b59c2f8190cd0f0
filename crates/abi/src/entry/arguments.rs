//! Arguments of C that go together.
//!
//! A body with a parameter of one of these types is given the struct, made of the arguments that have the names of its
//! fields (`abigen/src/scan.rs`).
//!
//! **ARGUMENTS.** What pointers among the arguments point to: see the module above.
#![allow(unsafe_code)]

use super::Count;
use super::coll::{read_block, read_blocks, read_typed_blocks};
use super::p2p::args;
use core::ffi::{c_int, c_void};
use fastpath_mpi::coll::{Block, Blocks, Operands, Side, TypedBlocks};
use fastpath_mpi::objects::arguments::Args;
use fastpath_mpi::rma::transfer::Sides;
use fastpath_mpi::{Process, Result};

/// A message to another rank.
pub struct Sent {
    pub buf: *const c_void,
    pub count: i64,
    pub datatype: usize,
    pub dest: c_int,
    pub tag: c_int,
    pub comm: usize,
}

impl From<Sent> for Args {
    fn from(m: Sent) -> Args {
        args(m.buf, m.count, m.datatype, m.dest, m.tag, m.comm)
    }
}

/// The two sides of a one-sided operation: origin with its elements, target with rank, displacement and elements.
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

/// Where a one-sided operation puts what was at the target.
pub struct Fetched {
    pub result_addr: *mut c_void,
    pub result_count: i64,
    pub result_datatype: usize,
}

/// What a collective call sends, with one count.
pub struct SendBlock {
    pub sendbuf: *const c_void,
    pub sendcount: i64,
    pub sendtype: usize,
}

impl SendBlock {
    /// Count and datatype.
    pub fn shape(&self) -> (i64, usize) {
        (self.sendcount, self.sendtype)
    }

    /// As a buffer that counts where it is `used`, and not where it is `MPI_IN_PLACE`.
    pub fn side(&self, p: &Process, used: bool) -> Result<Side> {
        Side::new(p, used, self.sendbuf.cast(), self.sendcount, self.sendtype)
    }

    /// As a buffer that always counts.
    pub fn block(&self, p: &Process) -> Result<Block> {
        read_block(p, self.sendbuf.cast_mut(), self.sendcount, self.sendtype)
    }
}

/// What a collective call receives, with one count.
pub struct RecvBlock {
    pub recvbuf: *mut c_void,
    pub recvcount: i64,
    pub recvtype: usize,
}

impl RecvBlock {
    /// Count and datatype.
    pub fn shape(&self) -> (i64, usize) {
        (self.recvcount, self.recvtype)
    }

    /// As a buffer that counts where it is `used`, and not where it is `MPI_IN_PLACE`.
    pub fn side(&self, p: &Process, used: bool) -> Result<Side> {
        let buf = self.recvbuf.cast_const().cast();
        Side::new(p, used, buf, self.recvcount, self.recvtype)
    }

    /// As a buffer that always counts.
    pub fn block(&self, p: &Process) -> Result<Block> {
        read_block(p, self.recvbuf, self.recvcount, self.recvtype)
    }
}

/// What a collective call receives, with a count and a displacement for each partner.
pub struct RecvBlocks<C, D> {
    pub recvbuf: *mut c_void,
    pub recvcounts: *const C,
    pub displs: *const D,
    pub recvtype: usize,
}

impl<C: Count, D: Count> RecvBlocks<C, D> {
    /// The buffer, of so many partners.
    ///
    /// # Safety
    /// The arrays are null or have an entry for each.
    pub unsafe fn read(&self, p: &Process, partners: u32) -> Result<Blocks> {
        let arrays = (self.recvcounts, self.displs);
        // SAFETY: ARGUMENTS.
        unsafe { read_blocks(p, partners, self.recvbuf, arrays, self.recvtype) }
    }
}

/// What is exchanged, with a count and a displacement for each partner.
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
    /// What so many partners are given.
    ///
    /// # Safety
    /// The arrays are null or have an entry for each.
    pub unsafe fn given(&self, p: &Process, partners: u32) -> Result<Blocks> {
        let arrays = (self.sendcounts, self.sdispls);
        // SAFETY: ARGUMENTS.
        unsafe { read_blocks(p, partners, self.sendbuf, arrays, self.sendtype) }
    }

    /// What so many partners give.
    ///
    /// # Safety
    /// The arrays are null or have an entry for each.
    pub unsafe fn taken(&self, p: &Process, partners: u32) -> Result<Blocks> {
        let arrays = (self.recvcounts, self.rdispls);
        // SAFETY: ARGUMENTS.
        unsafe { read_blocks(p, partners, self.recvbuf, arrays, self.recvtype) }
    }
}

/// The same with a datatype for each partner.
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
    /// What so many partners are given.
    ///
    /// # Safety
    /// The arrays are null or have an entry for each.
    pub unsafe fn given(&self, p: &Process, partners: u32) -> Result<TypedBlocks> {
        let arrays = (self.sendcounts, self.sdispls);
        // SAFETY: ARGUMENTS.
        unsafe { read_typed_blocks(p, partners, self.sendbuf, arrays, self.sendtypes) }
    }

    /// What so many partners give.
    ///
    /// # Safety
    /// The arrays are null or have an entry for each.
    pub unsafe fn taken(&self, p: &Process, partners: u32) -> Result<TypedBlocks> {
        let arrays = (self.recvcounts, self.rdispls);
        // SAFETY: ARGUMENTS.
        unsafe { read_typed_blocks(p, partners, self.recvbuf, arrays, self.recvtypes) }
    }
}

/// What is reduced.
pub struct Reduction {
    pub sendbuf: *const c_void,
    pub recvbuf: *mut c_void,
    pub count: i64,
    pub datatype: usize,
    pub op: usize,
}

impl Reduction {
    /// It with its objects instead of their handles.
    pub fn operands(&self, p: &Process) -> Result<Operands> {
        let (send, recv) = (self.sendbuf.cast(), self.recvbuf.cast());
        Operands::new(p, send, recv, self.datatype, self.op)
    }
}
