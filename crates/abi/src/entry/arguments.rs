//! Arguments of C that go together.
//!
//! A body with a parameter of one of these types is given the struct, made of the arguments that have the names of its
//! fields (`abigen/src/scan.rs`).

use super::coll::read_block;
use super::p2p::args;
use core::ffi::{c_int, c_void};
use fastpath_mpi::coll::{Block, Operands, Side};
use fastpath_mpi::p2p::Args;
use fastpath_mpi::win::transfer::Sides;
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

/// A message from another rank.
pub struct Received {
    pub buf: *mut c_void,
    pub count: i64,
    pub datatype: usize,
    pub source: c_int,
    pub tag: c_int,
    pub comm: usize,
}

impl From<Received> for Args {
    fn from(m: Received) -> Args {
        args(m.buf, m.count, m.datatype, m.source, m.tag, m.comm)
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
