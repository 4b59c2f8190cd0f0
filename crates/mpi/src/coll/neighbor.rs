//! Collective calls with the neighbours of a topology (MPI 5.0, section 8.6).
//!
//! A pair of ranks may have several edges. Their messages match these edges in list order. On a Cartesian grid, a
//! message to the lower neighbour arrives there as the message of the upper neighbour, even if both neighbours are one
//! process. VECTORS is defined in `coll.rs`.
#![allow(unsafe_code)]

use super::agreement::{self, Arguments, compare};
use super::arguments::{BlockArray, Blocks, Collective, SignificantBuffer, TypedBlocks};
use super::choose;
use super::fabric::{Batch, CallFabric, Fabric, IN_TURN_BYTES};
use super::vector::{Vector, even_blocks};
use crate::common::error::Result;
use crate::objects::comm::Neighborhood;
use std::rc::Rc;

/// Runs a neighborhood call. `out(i)` is the block for destination i, and `into(i)` the block from source i.
///
/// # Safety
/// Blocks of `out` are readable and those of `into` writable. They do not overlap.
pub(super) async unsafe fn run<'a, 'b, F: Fabric>(
    f: &F, around: &Neighborhood, out: &impl Fn(u32) -> Vector<'a>,
    into: &impl Fn(u32) -> Vector<'b>,
) -> Result {
    let me = f.rank();
    let others = || around.receives().filter(|&(rank, _)| rank != me);
    let in_turn = others().all(|(_, place)| into(place).bytes() <= IN_TURN_BYTES);
    let mut batch = Batch::new(f);
    let mut result = Ok(());
    // SAFETY: VECTORS; the blocks are in use until the batch has finished.
    unsafe {
        if !in_turn {
            others().for_each(|(rank, place)| batch.recv(rank, into(place)));
        }
        for (rank, place) in around.sends().filter(|&(rank, _)| rank != me) {
            let out = out(place);
            match out.bytes() {
                0 => {}
                // A send of this size ends immediately, and needs no request.
                1..=IN_TURN_BYTES => result = result.and(f.send(rank, out.buffer()).await),
                _ => batch.send(rank, out),
            }
        }
        let own_sends = around.sends().filter(|&(rank, _)| rank == me);
        let own_receives = around.receives().filter(|&(rank, _)| rank == me);
        for ((_, from), (_, to)) in own_sends.zip(own_receives) {
            result = result.and(f.put_off(out(from).copy_to(into(to))));
        }
        if in_turn {
            for (rank, into) in others().map(|(rank, place)| (rank, into(place))) {
                if into.bytes() > 0 {
                    result = result.and(f.recv(rank, into.buffer()).await);
                }
            }
        }
        batch.finish().await.and(result)
    }
}

/// Compares the call with those of the other ranks, records it, and runs it. Safety: see [`run`].
async unsafe fn carry_out<'a, 'b, C: CallFabric>(
    f: &C, call: &'static choose::CallAlgorithms<choose::Neighbor>, around: &Neighborhood,
    out: &impl Fn(u32) -> Vector<'a>, into: &impl Fn(u32) -> Vector<'b>,
) -> Result {
    compare(f, Arguments::new(&agreement::nothing, &agreement::nothing)).await?;
    let longest = || {
        let sent = (0..around.outdegree()).map(|place| out(place).bytes());
        let received = (0..around.indegree()).map(|place| into(place).bytes());
        sent.chain(received).max().unwrap_or(0)
    };
    let choose::Neighbor::Linear = choose::neighbor(call, longest, f.size());
    // SAFETY: VECTORS.
    f.channel().conclude(unsafe { run(f, around, out, into).await })
}

/// Arguments of `MPI_Neighbor_allgather`.
pub struct NeighborAllgather {
    /// The neighbours.
    pub around: Rc<Neighborhood>,
    /// Data for all destinations.
    pub send: SignificantBuffer,
    /// Receive buffer; its count is that of the block from one source.
    pub recv: SignificantBuffer,
}

impl Collective for NeighborAllgather {
    async unsafe fn run<C: CallFabric>(&self, f: &C) -> Result {
        let (out, into) = (self.send.vector()?, even_blocks(self.recv.vector()?));
        // SAFETY: VECTORS: the buffers are those of the call.
        unsafe { carry_out(f, &choose::NEIGHBOR_ALLGATHER, &self.around, &|_| out, &into).await }
    }
}

/// Arguments of `MPI_Neighbor_allgatherv`.
pub struct NeighborAllgatherv {
    /// The neighbours.
    pub around: Rc<Neighborhood>,
    /// Data for all destinations.
    pub send: SignificantBuffer,
    /// Receive buffer.
    pub recv: Blocks,
}

impl Collective for NeighborAllgatherv {
    async unsafe fn run<C: CallFabric>(&self, f: &C) -> Result {
        let (out, into) = (self.send.vector()?, self.recv.check()?);
        // SAFETY: VECTORS: the buffers are those of the call.
        unsafe { carry_out(f, &choose::NEIGHBOR_ALLGATHERV, &self.around, &|_| out, &into).await }
    }
}

/// Arguments of `MPI_Neighbor_alltoall`.
pub struct NeighborAlltoall {
    /// The neighbours.
    pub around: Rc<Neighborhood>,
    /// Data to send; its count is that of the block for one destination.
    pub send: SignificantBuffer,
    /// Receive buffer; its count is that of the block from one source.
    pub recv: SignificantBuffer,
}

impl Collective for NeighborAlltoall {
    async unsafe fn run<C: CallFabric>(&self, f: &C) -> Result {
        let out = even_blocks(self.send.vector()?);
        let into = even_blocks(self.recv.vector()?);
        // SAFETY: VECTORS: the buffers are those of the call.
        unsafe { carry_out(f, &choose::NEIGHBOR_ALLTOALL, &self.around, &out, &into).await }
    }
}

/// Arguments of `MPI_Neighbor_alltoallv`.
pub type NeighborAlltoallv = NeighborAlltoallArrays<Blocks>;
/// Arguments of `MPI_Neighbor_alltoallw`.
pub type NeighborAlltoallw = NeighborAlltoallArrays<TypedBlocks>;

/// Neighborhood alltoall with a count for each neighbour.
pub struct NeighborAlltoallArrays<B> {
    /// The neighbours.
    pub around: Rc<Neighborhood>,
    /// Data for the destinations.
    pub send: B,
    /// Receive buffer.
    pub recv: B,
}

impl<B: BlockArray> Collective for NeighborAlltoallArrays<B> {
    async unsafe fn run<C: CallFabric>(&self, f: &C) -> Result {
        let (out, into) = (self.send.check()?, self.recv.check()?);
        // SAFETY: VECTORS: the buffers are those of the call.
        unsafe { carry_out(f, B::NEIGHBOR, &self.around, &out, &into).await }
    }
}
