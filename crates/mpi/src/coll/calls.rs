//! The collective calls of the standard, each with what it is called with.
#![allow(unsafe_code)]

use super::arguments::{Block, Blocks, Collective, Operands, Side, TypedBlocks};
use super::fabric::Call;
use super::{
    allgather, allreduce, alltoall, barrier, bcast, gather, inter, reduce, reduce_scatter, scan,
    scatter,
};
use crate::error::Result;

/// `MPI_Barrier`
pub struct Barrier;

impl Collective for Barrier {
    async unsafe fn run<C: Call>(&self, f: &C) -> Result {
        barrier::barrier(f).await
    }

    async unsafe fn run_between<C: Call>(&self, f: &C) -> Result {
        inter::barrier(f).await
    }
}

/// `MPI_Bcast`
pub struct Bcast {
    /// What is sent or received.
    pub data: Block,
    /// The root.
    pub root: i32,
}

impl Collective for Bcast {
    async unsafe fn run<C: Call>(&self, f: &C) -> Result {
        // SAFETY: the same contract.
        unsafe {
            bcast::bcast(
                f,
                self.data.buf,
                self.data.count,
                &self.data.datatype,
                self.root,
            )
            .await
        }
    }

    async unsafe fn run_between<C: Call>(&self, f: &C) -> Result {
        // SAFETY: the same contract.
        unsafe { inter::bcast(f, self.data.parts(), self.root).await }
    }
}

/// `MPI_Gather`
pub struct Gather {
    /// What is sent.
    pub send: Side,
    /// Where it arrives; counts at the root.
    pub recv: Side,
    /// The root.
    pub root: i32,
}

impl Collective for Gather {
    async unsafe fn run<C: Call>(&self, f: &C) -> Result {
        // SAFETY: the same contract.
        unsafe { gather::gather(f, self.send.to_send(), self.recv.to_recv(), self.root).await }
    }

    async unsafe fn run_between<C: Call>(&self, f: &C) -> Result {
        // SAFETY: the same contract.
        unsafe { inter::gather(f, self.send.to_send(), self.recv.to_recv(), self.root).await }
    }
}

/// `MPI_Gatherv`
pub struct Gatherv {
    /// What is sent.
    pub send: Side,
    /// Where it arrives, at the root.
    pub recv: Option<Blocks>,
    /// The root.
    pub root: i32,
}

impl Collective for Gatherv {
    async unsafe fn run<C: Call>(&self, f: &C) -> Result {
        // SAFETY: the same contract.
        unsafe {
            gather::gatherv(
                f,
                self.send.to_send(),
                self.recv.as_ref().map(Blocks::array),
                self.root,
            )
            .await
        }
    }

    async unsafe fn run_between<C: Call>(&self, f: &C) -> Result {
        // SAFETY: the same contract.
        unsafe {
            let recv = self.recv.as_ref().map(Blocks::array);
            inter::gatherv(f, self.send.to_send(), recv, self.root).await
        }
    }
}

/// `MPI_Scatter`
pub struct Scatter {
    /// What is sent; counts at the root.
    pub send: Side,
    /// Where it arrives.
    pub recv: Side,
    /// The root.
    pub root: i32,
}

impl Collective for Scatter {
    async unsafe fn run<C: Call>(&self, f: &C) -> Result {
        // SAFETY: the same contract.
        unsafe { scatter::scatter(f, self.send.to_send(), self.recv.to_recv(), self.root).await }
    }

    async unsafe fn run_between<C: Call>(&self, f: &C) -> Result {
        // SAFETY: the same contract.
        unsafe { inter::scatter(f, self.send.to_send(), self.recv.to_recv(), self.root).await }
    }
}

/// `MPI_Scatterv`
pub struct Scatterv {
    /// What is sent, at the root.
    pub send: Option<Blocks>,
    /// Where it arrives.
    pub recv: Side,
    /// The root.
    pub root: i32,
}

impl Collective for Scatterv {
    async unsafe fn run<C: Call>(&self, f: &C) -> Result {
        // SAFETY: the same contract.
        unsafe {
            scatter::scatterv(
                f,
                self.send.as_ref().map(Blocks::array),
                self.recv.to_recv(),
                self.root,
            )
            .await
        }
    }

    async unsafe fn run_between<C: Call>(&self, f: &C) -> Result {
        // SAFETY: the same contract.
        unsafe {
            let send = self.send.as_ref().map(Blocks::array);
            inter::scatterv(f, send, self.recv.to_recv(), self.root).await
        }
    }
}

/// `MPI_Allgather`
pub struct Allgather {
    /// What is sent.
    pub send: Side,
    /// Where it arrives, for one rank.
    pub recv: Block,
}

impl Collective for Allgather {
    async unsafe fn run<C: Call>(&self, f: &C) -> Result {
        // SAFETY: the same contract.
        unsafe { allgather::allgather(f, self.send.to_send(), self.recv.parts()).await }
    }

    async unsafe fn run_between<C: Call>(&self, f: &C) -> Result {
        // SAFETY: the same contract.
        unsafe { inter::allgather(f, self.send.to_send(), self.recv.parts()).await }
    }
}

/// `MPI_Allgatherv`
pub struct Allgatherv {
    /// What is sent.
    pub send: Side,
    /// Where it arrives.
    pub recv: Blocks,
}

impl Collective for Allgatherv {
    async unsafe fn run<C: Call>(&self, f: &C) -> Result {
        // SAFETY: the same contract.
        unsafe { allgather::allgatherv(f, self.send.to_send(), self.recv.array()).await }
    }

    async unsafe fn run_between<C: Call>(&self, f: &C) -> Result {
        // SAFETY: the same contract.
        unsafe { inter::allgatherv(f, self.send.to_send(), self.recv.array()).await }
    }
}

/// `MPI_Alltoall`
pub struct Alltoall {
    /// What is sent.
    pub send: Side,
    /// Where it arrives, for one rank.
    pub recv: Block,
}

impl Collective for Alltoall {
    async unsafe fn run<C: Call>(&self, f: &C) -> Result {
        // SAFETY: the same contract.
        unsafe { alltoall::alltoall(f, self.send.to_send(), self.recv.parts()).await }
    }

    async unsafe fn run_between<C: Call>(&self, f: &C) -> Result {
        // SAFETY: the same contract.
        unsafe { inter::alltoall(f, self.send.to_send(), self.recv.parts()).await }
    }
}

/// `MPI_Alltoallv`
pub struct Alltoallv {
    /// What is sent; none in place.
    pub send: Option<Blocks>,
    /// Where it arrives.
    pub recv: Blocks,
}

impl Collective for Alltoallv {
    async unsafe fn run<C: Call>(&self, f: &C) -> Result {
        // SAFETY: the same contract.
        unsafe {
            alltoall::alltoallv(f, self.send.as_ref().map(Blocks::array), self.recv.array()).await
        }
    }

    async unsafe fn run_between<C: Call>(&self, f: &C) -> Result {
        // SAFETY: the same contract.
        unsafe {
            let send = self.send.as_ref().map(Blocks::array);
            inter::alltoallv(f, send, self.recv.array()).await
        }
    }
}

/// `MPI_Alltoallw`
pub struct Alltoallw {
    /// What is sent; none in place.
    pub send: Option<TypedBlocks>,
    /// Where it arrives.
    pub recv: TypedBlocks,
}

impl Collective for Alltoallw {
    async unsafe fn run<C: Call>(&self, f: &C) -> Result {
        // SAFETY: the same contract.
        unsafe {
            alltoall::alltoallw(
                f,
                self.send.as_ref().map(TypedBlocks::arrays),
                self.recv.arrays(),
            )
            .await
        }
    }

    async unsafe fn run_between<C: Call>(&self, f: &C) -> Result {
        // SAFETY: the same contract.
        unsafe {
            let send = self.send.as_ref().map(TypedBlocks::arrays);
            inter::alltoallw(f, send, self.recv.arrays()).await
        }
    }
}

/// `MPI_Reduce`
pub struct Reduce {
    /// What is combined, and how.
    pub operands: Operands,
    /// Number of elements.
    pub count: i64,
    /// The root.
    pub root: i32,
}

impl Collective for Reduce {
    async unsafe fn run<C: Call>(&self, f: &C) -> Result {
        // SAFETY: the same contract.
        unsafe {
            let o = &self.operands;
            reduce::reduce(f, o.buffers(), self.count, o.typed(), &o.op, self.root).await
        }
    }

    async unsafe fn run_between<C: Call>(&self, f: &C) -> Result {
        // SAFETY: the same contract.
        unsafe {
            let o = &self.operands;
            inter::reduce(f, o.buffers(), self.count, o.typed(), &o.op, self.root).await
        }
    }

    fn calls_back(&self) -> bool {
        !self.operands.op.is_predefined()
    }
}

/// `MPI_Allreduce`
pub struct Allreduce {
    /// What is combined, and how.
    pub operands: Operands,
    /// Number of elements.
    pub count: i64,
}

impl Collective for Allreduce {
    async unsafe fn run<C: Call>(&self, f: &C) -> Result {
        // SAFETY: the same contract.
        unsafe {
            let o = &self.operands;
            allreduce::allreduce(f, o.buffers(), self.count, o.typed(), &o.op).await
        }
    }

    async unsafe fn run_between<C: Call>(&self, f: &C) -> Result {
        // SAFETY: the same contract.
        unsafe {
            let o = &self.operands;
            inter::allreduce(f, o.buffers(), self.count, o.typed(), &o.op).await
        }
    }

    fn calls_back(&self) -> bool {
        !self.operands.op.is_predefined()
    }
}

/// `MPI_Reduce_scatter`
pub struct ReduceScatter {
    /// What is combined, and how.
    pub operands: Operands,
    /// Number of elements of each rank's block.
    pub counts: Vec<i64>,
}

impl Collective for ReduceScatter {
    async unsafe fn run<C: Call>(&self, f: &C) -> Result {
        // SAFETY: the same contract.
        unsafe {
            let o = &self.operands;
            reduce_scatter::reduce_scatter(f, o.buffers(), &self.counts, o.typed(), &o.op).await
        }
    }

    async unsafe fn run_between<C: Call>(&self, f: &C) -> Result {
        // SAFETY: the same contract.
        unsafe {
            let o = &self.operands;
            let counts = |rank: u32| self.counts[rank as usize];
            inter::reduce_scatter(f, o.buffers(), counts, o.typed(), &o.op).await
        }
    }

    fn calls_back(&self) -> bool {
        !self.operands.op.is_predefined()
    }
}

/// `MPI_Reduce_scatter_block`
pub struct ReduceScatterBlock {
    /// What is combined, and how.
    pub operands: Operands,
    /// Number of elements.
    pub count: i64,
}

impl Collective for ReduceScatterBlock {
    async unsafe fn run<C: Call>(&self, f: &C) -> Result {
        // SAFETY: the same contract.
        unsafe {
            let o = &self.operands;
            reduce_scatter::reduce_scatter_block(f, o.buffers(), self.count, o.typed(), &o.op).await
        }
    }

    async unsafe fn run_between<C: Call>(&self, f: &C) -> Result {
        // SAFETY: the same contract.
        unsafe {
            let o = &self.operands;
            inter::reduce_scatter(f, o.buffers(), |_| self.count, o.typed(), &o.op).await
        }
    }

    fn calls_back(&self) -> bool {
        !self.operands.op.is_predefined()
    }
}

/// `MPI_Scan`
pub struct Scan {
    /// What is combined, and how.
    pub operands: Operands,
    /// Number of elements.
    pub count: i64,
}

impl Collective for Scan {
    async unsafe fn run<C: Call>(&self, f: &C) -> Result {
        // SAFETY: the same contract.
        unsafe {
            let o = &self.operands;
            scan::scan(f, o.buffers(), self.count, o.typed(), &o.op).await
        }
    }

    fn calls_back(&self) -> bool {
        !self.operands.op.is_predefined()
    }
}

/// `MPI_Exscan`
pub struct Exscan {
    /// What is combined, and how.
    pub operands: Operands,
    /// Number of elements.
    pub count: i64,
}

impl Collective for Exscan {
    async unsafe fn run<C: Call>(&self, f: &C) -> Result {
        // SAFETY: the same contract.
        unsafe {
            let o = &self.operands;
            scan::exscan(f, o.buffers(), self.count, o.typed(), &o.op).await
        }
    }

    fn calls_back(&self) -> bool {
        !self.operands.op.is_predefined()
    }
}
