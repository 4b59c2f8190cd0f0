//! Alltoall, Alltoallv and Alltoallw. VECTORS is defined in `coll.rs`.
#![allow(unsafe_code)]

use super::agreement::{Arguments, compare};
use super::apart::check_apart;
use super::arguments::{
    BlockArray, Blocks, Collective, CollectiveBuffer, SignificantBuffer, TypedBlocks,
};
use super::fabric::{Batch, CallFabric, Fabric, place, trade};
use super::scratch::Scratch;
use super::vector::{Vector, even_blocks};
use super::{choose, inter, shared};
use crate::common::error::Result;
use fastpath_base::copy::copy;

/// Maximum number of outstanding pairs of a send and a receive.
const WINDOW: u32 = 32;

/// Arguments of `MPI_Alltoall`.
pub struct Alltoall {
    /// Data to send.
    pub send: CollectiveBuffer,
    /// Receive buffer; its count is that of the block from one rank.
    pub recv: SignificantBuffer,
}

impl Collective for Alltoall {
    async unsafe fn run<C: CallFabric>(&self, f: &C) -> Result {
        let into = self.recv.vector()?;
        let out = self.send.vector()?;
        let own = out.map(|out| even_blocks(out)(f.rank()));
        check_apart(f.channel(), own, even_blocks(into)(f.rank()))?;
        let data = self.recv.data();
        let sends = |_| self.send.data().or(data);
        compare(f, Arguments::new(&sends, &|_| data)).await?;
        let how = choose::alltoall(into.bytes(), f.size(), out.is_none(), place(f));
        // SAFETY: VECTORS: the buffers are those of the call.
        f.channel().conclude(unsafe {
            match out {
                Some(out) => run(f, how, &even_blocks(out), &even_blocks(into)).await,
                None => f.apart(run_in_place(f, how, &even_blocks(into))).await,
            }
        })
    }

    async unsafe fn run_between<C: CallFabric>(&self, f: &C) -> Result {
        // SAFETY: VECTORS: the buffers are those of the call.
        unsafe { inter::alltoall(f, self).await }
    }
}

/// Arguments of `MPI_Alltoallv`.
pub type Alltoallv = AlltoallArrays<Blocks>;
/// Arguments of `MPI_Alltoallw`.
pub type Alltoallw = AlltoallArrays<TypedBlocks>;

/// Alltoall with a count for each rank.
pub struct AlltoallArrays<B> {
    /// Data to send; `None` in place.
    pub send: Option<B>,
    /// Receive buffer.
    pub recv: B,
}

impl<B: BlockArray> Collective for AlltoallArrays<B> {
    async unsafe fn run<C: CallFabric>(&self, f: &C) -> Result {
        let into = self.recv.check()?;
        let out = self.send.as_ref().map(B::check).transpose()?;
        let own = out.as_ref().map(|out| out(f.rank()));
        check_apart(f.channel(), own, into(f.rank()))?;
        let sends = |to| self.send.as_ref().unwrap_or(&self.recv).data(to);
        let receives = |from| self.recv.data(from);
        compare(f, Arguments::new(&sends, &receives)).await?;
        let ranks = f.size();
        let sum = || (0..ranks).fold(0u64, |sum, r| sum.saturating_add(into(r).bytes()));
        let (longest, in_place) = (|| self.recv.longest(ranks), out.is_none().then(sum));
        let how = choose::alltoall_arrays(B::ALLTOALL, longest, ranks, in_place);
        // SAFETY: VECTORS: the buffers are those of the call.
        f.channel().conclude(unsafe {
            match &out {
                Some(out) => run(f, how, out, &into).await,
                None => f.apart(run_in_place(f, how, &into)).await,
            }
        })
    }

    async unsafe fn run_between<C: CallFabric>(&self, f: &C) -> Result {
        // SAFETY: VECTORS: the buffers are those of the call.
        unsafe { inter::alltoall_arrays(f, self).await }
    }
}

/// Runs an alltoall. `out(rank)` is the block for `rank`, and `into(rank)` the block from `rank`.
///
/// # Safety
/// Blocks of `out` are readable and those of `into` writable, and they do not overlap.
pub(super) async unsafe fn run<'a, 'b, F: Fabric>(
    f: &F, how: choose::Alltoall, out: &impl Fn(u32) -> Vector<'a>,
    into: &impl Fn(u32) -> Vector<'b>,
) -> Result {
    let rank = f.rank();
    // SAFETY: VECTORS.
    unsafe {
        f.put_off(out(rank).copy_to(into(rank)))?;
        match (f.size(), how) {
            (1, _) => Ok(()),
            (2, _) => trade(f, 1 - rank, out(1 - rank), 1 - rank, into(1 - rank)).await,
            // Other ranks may skip a call without data.
            (_, choose::Alltoall::Shared)
                if into(rank).bytes() > 0
                    && let Some(buffers) = f.shared()? =>
            {
                f.apart(shared::alltoall(f, buffers, out, into)).await
            }
            (_, choose::Alltoall::Flat | choose::Alltoall::Bruck) => {
                f.apart(run_packed(f, how, out, into)).await
            }
            _ => together(f, out, into).await,
        }
    }
}

/// Runs an algorithm that packs all blocks before it receives any, so `out` may be `into`. This rank's block to itself
/// does not move.
///
/// # Safety
/// See [`run`], but `out` and `into` may be the same. All blocks have one length.
async unsafe fn run_packed<'a, 'b, F: Fabric>(
    f: &F, how: choose::Alltoall, out: &impl Fn(u32) -> Vector<'a>,
    into: &impl Fn(u32) -> Vector<'b>,
) -> Result {
    // SAFETY: VECTORS.
    unsafe {
        match how {
            _ if out(f.rank()).bytes() == 0 => Ok(()),
            choose::Alltoall::Flat if f.rank() == 0 => flat_root(f, out, into).await,
            choose::Alltoall::Flat => flat_other(f, out, into).await,
            _ => bruck(f, out, into).await,
        }
    }
}

/// Sends all messages, [`WINDOW`] pairs at a time. Each rank starts with its neighbour, to spread the load.
///
/// # Safety
/// See [`run`].
pub(super) async unsafe fn together<'a, 'b, F: Fabric>(
    f: &F, out: &impl Fn(u32) -> Vector<'a>, into: &impl Fn(u32) -> Vector<'b>,
) -> Result {
    let (rank, ranks) = (f.rank(), f.size());
    for window in (1..ranks).step_by(WINDOW as usize) {
        let steps = window..(window + WINDOW).min(ranks);
        let mut batch = Batch::new(f);
        for step in steps.clone() {
            let from = (rank + ranks - step) % ranks;
            // SAFETY: VECTORS; the blocks are in use until the batch has finished.
            unsafe { batch.recv(from, into(from)) };
        }
        for step in steps {
            let to = (rank + step) % ranks;
            // SAFETY: VECTORS; the blocks are in use until the batch has finished.
            unsafe { batch.send(to, out(to)) };
        }
        batch.finish().await?;
    }
    Ok(())
}

/// Rank 0 collects all blocks and distributes them. Each other rank waits once, and has rank 0 as its only partner.
///
/// # Safety
/// See [`run`]. All blocks have one length, above 0.
async unsafe fn flat_root<'a, 'b, F: Fabric>(
    f: &F, out: &impl Fn(u32) -> Vector<'a>, into: &impl Fn(u32) -> Vector<'b>,
) -> Result {
    let ranks = f.size() as usize;
    let block = out(0).bytes() as usize;
    let row = block * ranks;
    let (mut rows, mut column) = (Scratch::new(f), Scratch::new(f));
    let rows = rows.room((row * ranks) as u64)?;
    let column = column.room(row as u64)?;
    // SAFETY: `rows` has a row for each rank, in which block i is for rank i. `column` has a block from each rank.
    unsafe {
        for to in 1..ranks {
            out(to as u32).pack(rows.add(to * block));
        }
        for from in 1..ranks {
            let from_row = rows.add(from * row);
            f.recv(from as u32, Vector::raw(from_row, row as u64).buffer()).await?;
            into(from as u32).unpack(from_row);
        }
        for to in 1..ranks {
            for from in 0..ranks {
                let theirs = rows.add(from * row + to * block);
                copy(column.add(from * block), theirs, block);
            }
            f.send(to as u32, Vector::raw(column, row as u64).buffer()).await?;
        }
    }
    Ok(())
}

/// Runs the part of a rank other than 0 in an alltoall through rank 0. Safety: see [`flat_root`].
async unsafe fn flat_other<'a, 'b, F: Fabric>(
    f: &F, out: &impl Fn(u32) -> Vector<'a>, into: &impl Fn(u32) -> Vector<'b>,
) -> Result {
    let (rank, ranks) = (f.rank(), f.size());
    let block = out(rank).bytes();
    let mut row = Scratch::new(f);
    let row = row.room(block * ranks as u64)?;
    let at = |index: u32| row.wrapping_add((block * index as u64) as usize);
    let whole = Vector::raw(row, block * ranks as u64);
    // SAFETY: the row has a block for each rank, and the send has completed before the receive starts.
    unsafe {
        (0..ranks).for_each(|to| out(to).pack(at(to)));
        f.send(0, whole.buffer()).await?;
        f.recv(0, whole.buffer()).await?;
        for from in (0..ranks).filter(|&from| from != rank) {
            into(from).unpack(at(from));
        }
    }
    Ok(())
}

/// Bruck's algorithm: block i is for the rank i after this one. In step k all blocks whose index has bit k move by 2^k
/// ranks. Each block thus arrives after at most log2 steps.
///
/// # Safety
/// See [`run`]. All blocks have one length, above 0.
async unsafe fn bruck<'a, 'b, F: Fabric>(
    f: &F, out: &impl Fn(u32) -> Vector<'a>, into: &impl Fn(u32) -> Vector<'b>,
) -> Result {
    let (rank, ranks) = (f.rank(), f.size());
    let bytes = out(rank).bytes();
    let half = bytes * ranks.div_ceil(2) as u64;
    let (mut blocks, mut sent, mut received) = (Scratch::new(f), Scratch::new(f), Scratch::new(f));
    let (blocks, sent, received) =
        (blocks.room(bytes * ranks as u64)?, sent.room(half)?, received.room(half)?);
    let at = |base: *mut u8, index: u32| base.wrapping_add((bytes * index as u64) as usize);
    let size = bytes as usize;
    // SAFETY: one scratch has room for all blocks, the other for those of one step, which are at most half of all.
    unsafe {
        for i in 1..ranks {
            out((rank + i) % ranks).pack(at(blocks, i));
        }
        let mut distance = 1;
        while distance < ranks {
            let travelling = || (1..ranks).filter(|i| i & distance != 0);
            for (slot, i) in travelling().enumerate() {
                copy(at(sent, slot as u32), at(blocks, i), size);
            }
            let total = bytes * travelling().count() as u64;
            let (to, from) = ((rank + distance) % ranks, (rank + ranks - distance) % ranks);
            f.exchange(
                to,
                Vector::raw(sent, total).buffer(),
                from,
                Vector::raw(received, total).buffer(),
            )
            .await?;
            for (slot, i) in travelling().enumerate() {
                copy(at(blocks, i), at(received, slot as u32), size);
            }
            distance *= 2;
        }
        for i in 1..ranks {
            into((rank + ranks - i) % ranks).unpack(at(blocks, i));
        }
    }
    Ok(())
}

/// Runs an alltoall in place. Safety: the blocks are readable and writable.
pub(super) async unsafe fn run_in_place<'a, F: Fabric>(
    f: &F, how: choose::Alltoall, block: &impl Fn(u32) -> Vector<'a>,
) -> Result {
    // SAFETY: VECTORS.
    unsafe {
        match how {
            choose::Alltoall::Flat | choose::Alltoall::Bruck => {
                run_packed(f, how, block, block).await
            }
            choose::Alltoall::Shared
                if block(f.rank()).bytes() > 0
                    && let Some(buffers) = f.shared()? =>
            {
                shared::alltoall(f, buffers, block, block).await
            }
            choose::Alltoall::Pairs => pairs(f, block).await,
            choose::Alltoall::Copied | choose::Alltoall::Together | choose::Alltoall::Shared => {
                copied(f, block).await
            }
        }
    }
}

/// In-place alltoall of short blocks: copies all blocks first, then sends all messages concurrently.
///
/// # Safety
/// See [`run_in_place`].
async unsafe fn copied<'a, F: Fabric>(f: &F, block: &impl Fn(u32) -> Vector<'a>) -> Result {
    let mut index = Scratch::new(f);
    let starts = index.room(u64::from(f.size()) * size_of::<u64>() as u64)?.cast::<u64>();
    let mut total = 0;
    for rank in 0..f.size() {
        // SAFETY: the scratch has room for a number for each rank, and is aligned for any type.
        unsafe { starts.add(rank as usize).write(total) };
        total += block(rank).bytes();
    }
    let mut scratch = Scratch::new(f);
    let packed = scratch.room(total)?;
    let copy = |rank: u32| {
        // SAFETY: the loop above has written a number for each rank.
        let start = unsafe { starts.add(rank as usize).read() };
        Vector::raw(packed.wrapping_add(start as usize), block(rank).bytes())
    };
    // SAFETY: VECTORS; the scratch has room for all blocks.
    unsafe {
        (0..f.size()).for_each(|rank| block(rank).pack(copy(rank).ptr));
        together(f, &copy, block).await
    }
}

/// In-place alltoall by pairs of ranks. In round r, two ranks are a pair if their sum is r, modulo the number of ranks.
///
/// # Safety
/// See [`run_in_place`].
async unsafe fn pairs<'a, F: Fabric>(f: &F, block: &impl Fn(u32) -> Vector<'a>) -> Result {
    let (rank, ranks) = (f.rank(), f.size());
    let mut scratch = Scratch::new(f);
    for round in 0..ranks {
        let partner = (round + ranks - rank) % ranks;
        let theirs = block(partner);
        if partner == rank || theirs.bytes() == 0 {
            continue;
        }
        let packed = scratch.room(theirs.bytes())?;
        // SAFETY: VECTORS; the scratch holds the block while it is overwritten.
        unsafe {
            theirs.pack(packed);
            let out = Vector::raw(packed, theirs.bytes()).buffer();
            f.exchange(partner, out, partner, theirs.buffer()).await?;
        }
    }
    Ok(())
}
