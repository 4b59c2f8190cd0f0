//! Allgather and Allgatherv. VECTORS is defined in `coll.rs`.
#![allow(unsafe_code)]

use super::agreement::{Arguments, compare};
use super::alltoall::together;
use super::apart::check_apart;
use super::arguments::{BlockArray, Blocks, Collective, CollectiveBuffer, SignificantBuffer};
use super::fabric::{CallFabric, Fabric, place, send_to_all, trade};
use super::lines::Lines;
use super::scratch::Scratch;
use super::vector::{Vector, even_blocks};
use super::{choose, inter, lines, nodes, shared};
use crate::common::error::Result;

/// Arguments of `MPI_Allgather`.
pub struct Allgather {
    /// Data to send.
    pub send: CollectiveBuffer,
    /// Receive buffer; its count is that of the block from one rank.
    pub recv: SignificantBuffer,
}

impl Collective for Allgather {
    async unsafe fn run<C: CallFabric>(&self, f: &C) -> Result {
        let first = self.recv.vector()?;
        let own = self.send.vector()?;
        check_apart(f.channel(), own, even_blocks(first)(f.rank()))?;
        let into = self.recv.data();
        let sends = |_| self.send.data().or(into);
        compare(f, Arguments::new(&sends, &|_| into)).await?;
        let (ranks, total) = (f.size(), first.bytes().saturating_mul(f.size() as u64));
        let how = choose::allgather(total, true, ranks, place(f));
        let whole = first.part(0, first.count * ranks as u64);
        // SAFETY: VECTORS: the buffers are those of the call.
        f.channel().conclude(unsafe { run(f, how, own, &even_blocks(first), Some(whole)).await })
    }

    async unsafe fn run_between<C: CallFabric>(&self, f: &C) -> Result {
        // SAFETY: VECTORS: the buffers are those of the call.
        unsafe { inter::allgather(f, self).await }
    }
}

/// Arguments of `MPI_Allgatherv`.
pub struct Allgatherv {
    /// Data to send.
    pub send: CollectiveBuffer,
    /// Receive buffer.
    pub recv: Blocks,
}

impl Collective for Allgatherv {
    async unsafe fn run<C: CallFabric>(&self, f: &C) -> Result {
        let block = self.recv.check()?;
        let own = self.send.vector()?;
        check_apart(f.channel(), own, block(f.rank()))?;
        let sends = |_| self.send.data().or(self.recv.data(f.rank()));
        let receives = |from| self.recv.data(from);
        compare(f, Arguments::new(&sends, &receives)).await?;
        let total = (0..f.size()).fold(0u64, |sum, r| sum.saturating_add(block(r).bytes()));
        let how = choose::allgather(total, false, f.size(), place(f));
        // SAFETY: VECTORS: the buffers are those of the call.
        f.channel().conclude(unsafe { run(f, how, own, &block, None).await })
    }

    async unsafe fn run_between<C: CallFabric>(&self, f: &C) -> Result {
        // SAFETY: VECTORS: the buffers are those of the call.
        unsafe { inter::allgatherv(f, self).await }
    }
}

/// Runs an allgather. `own` is `None` in place; `whole` is all blocks as one vector, if contiguous.
///
/// # Safety
/// `own` is readable, the blocks are writable, and they do not overlap.
pub(super) async unsafe fn run<'a, F: Fabric>(
    f: &F, how: choose::Allgather, own: Option<Vector<'_>>, block: &impl Fn(u32) -> Vector<'a>,
    whole: Option<Vector<'a>>,
) -> Result {
    let alone = f.size() == 1 || (0..f.size()).all(|r| block(r).bytes() == 0);
    // SAFETY: VECTORS.
    unsafe {
        match (how, f.nodes()) {
            _ if alone => place_own(f, own, block),
            (choose::Allgather::Nodes, Some(nodes)) => {
                Box::pin(nodes::allgather(f, nodes, own, block, whole)).await
            }
            _ => run_as(f, how, own, block, whole).await,
        }
    }
}

/// Runs any algorithm except that of `nodes.rs`. Safety: see [`run`].
pub(super) async unsafe fn run_as<'a, F: Fabric>(
    f: &F, how: choose::Allgather, own: Option<Vector<'_>>, block: &impl Fn(u32) -> Vector<'a>,
    whole: Option<Vector<'a>>,
) -> Result {
    // SAFETY: VECTORS.
    unsafe {
        match (how, whole) {
            (choose::Allgather::Flat, _) => {
                place_own(f, own, block)?;
                flat(f, block, whole).await
            }
            (choose::Allgather::Together, _) => {
                place_own(f, own, block)?;
                let mine = block(f.rank());
                together(f, &|_| mine, block).await
            }
            (choose::Allgather::Bruck, _) => {
                place_own(f, own, block)?;
                f.apart(bruck(f, block)).await
            }
            (choose::Allgather::Lines, Some(whole))
                if let Some(lines) = f.lines()?
                    && let bytes = whole.bytes() / u64::from(f.size())
                    && lines::fits_allgather(&lines, bytes) =>
            {
                place_own(f, own, block)?;
                f.apart(by_lines(f, &lines, block, whole)).await
            }
            (choose::Allgather::Lines, _) => {
                place_own(f, own, block)?;
                f.apart(bruck(f, block)).await
            }
            (choose::Allgather::Doubling, Some(whole)) => doubling(f, own, whole).await,
            (choose::Allgather::Shared, _) => {
                let mine = own.unwrap_or_else(|| block(f.rank()));
                place_own(f, own, block)?;
                match f.shared()? {
                    Some(buffers) => f.apart(shared::allgather(f, buffers, mine, block)).await,
                    None => ring(f, None, block).await,
                }
            }
            _ => ring(f, own, block).await,
        }
    }
}

/// Gathers through shared lines, in scratch memory if the receive buffer has gaps.
///
/// # Safety
/// The blocks are writable, and the rank's own is filled.
async unsafe fn by_lines<'a, F: Fabric, L: Lines>(
    f: &F, lines: &L, block: &impl Fn(u32) -> Vector<'a>, whole: Vector<'a>,
) -> Result {
    let bytes = (whole.bytes() / u64::from(f.size())) as usize;
    let mut scratch = Scratch::new(f);
    // SAFETY: VECTORS; the scratch has room for all blocks.
    unsafe {
        if let Some(all) = whole.dense() {
            return lines::allgather(lines, all, bytes).await;
        }
        let all = scratch.room(whole.bytes())?;
        block(f.rank()).pack(all.wrapping_add(f.rank() as usize * bytes));
        lines::allgather(lines, all, bytes).await?;
        unpack_all(all, 0, f, block);
    }
    Ok(())
}

/// Copies this rank's block into the receive buffer.
///
/// # Safety
/// See [`run`].
unsafe fn place_own<'a, F: Fabric>(
    f: &F, own: Option<Vector<'_>>, block: &impl Fn(u32) -> Vector<'a>,
) -> Result {
    // SAFETY: VECTORS.
    f.put_off(unsafe { own.map_or(Ok(()), |own| own.copy_to(block(f.rank()))) })
}

/// Rank 0 receives all blocks and sends all of them to every rank.
///
/// # Safety
/// The blocks are writable, and the rank's own is filled.
async unsafe fn flat<'a, F: Fabric>(
    f: &F, block: &impl Fn(u32) -> Vector<'a>, whole: Option<Vector<'a>>,
) -> Result {
    let mut scratch = Scratch::new(f);
    let all = match whole {
        Some(whole) => whole,
        None => {
            let bytes = (0..f.size()).map(|r| block(r).bytes()).sum();
            Vector::raw(scratch.room(bytes)?, bytes)
        }
    };
    // SAFETY: VECTORS; the scratch has room for all blocks.
    unsafe {
        if f.rank() > 0 {
            let own = block(f.rank());
            if own.bytes() > 0 {
                f.send(0, own.buffer()).await?;
            }
            f.recv(0, all.buffer()).await?;
            if whole.is_none() {
                unpack_all(all.ptr, 0, f, block);
            }
            return Ok(());
        }
        for (rank, into) in
            (1..f.size()).map(|r| (r, block(r))).filter(|(_, into)| into.bytes() > 0)
        {
            f.recv(rank, into.buffer()).await?;
        }
        if whole.is_none() {
            let mut at = all.ptr;
            for rank in 0..f.size() {
                block(rank).pack(at);
                at = at.wrapping_add(block(rank).bytes() as usize);
            }
        }
        send_to_all(f, all).await
    }
}

/// Unpacks the blocks of all other ranks. The packed blocks are in cyclic order from rank `first`.
///
/// # Safety
/// `packed` holds all blocks, and the receive blocks are writable.
unsafe fn unpack_all<'a, F: Fabric>(
    packed: *mut u8, first: u32, f: &F, block: &impl Fn(u32) -> Vector<'a>,
) {
    let mut at = packed;
    for i in 0..f.size() {
        let rank = (first + i) % f.size();
        let into = block(rank);
        if rank != f.rank() {
            // SAFETY: VECTORS.
            unsafe { into.unpack(at) };
        }
        at = at.wrapping_add(into.bytes() as usize);
    }
}

/// Recursive doubling for a power of two of ranks: in step k, partners exchange their 2^k blocks. The first step sends
/// from the caller's buffer: a fresh copy would be only in this processor's cache, from which the partner's processor
/// would have to fetch it.
///
/// # Safety
/// See [`run`].
async unsafe fn doubling<F: Fabric>(f: &F, own: Option<Vector<'_>>, whole: Vector<'_>) -> Result {
    let count = whole.count / f.size() as u64;
    let block = |rank: u32| whole.part(rank as u64 * count, count);
    let mut have = 1;
    while have < f.size() {
        let partner = f.rank() ^ have;
        let (mine, theirs) = (f.rank() & !(have - 1), partner & !(have - 1));
        let part = |first: u32| whole.part(first as u64 * count, have as u64 * count).buffer();
        let out = match own {
            Some(own) if have == 1 => own.buffer(),
            _ => part(mine),
        };
        // SAFETY: VECTORS; `out` and the received part do not overlap.
        unsafe {
            f.exchange(partner, out, partner, part(theirs)).await?;
            if have == 1 {
                place_own(f, own, &block)?;
            }
        }
        have *= 2;
    }
    Ok(())
}

/// Bruck's algorithm with packed blocks.
///
/// # Safety
/// The blocks are writable, and the rank's own is filled.
async unsafe fn bruck<'a, F: Fabric>(f: &F, block: &impl Fn(u32) -> Vector<'a>) -> Result {
    let (rank, ranks) = (f.rank(), f.size());
    // Returns the bytes of the first `n` blocks, counted from this rank's block.
    let bytes = |n: u32| (0..n).map(|i| block((rank + i) % ranks).bytes()).sum::<u64>();
    let mut scratch = Scratch::new(f);
    let packed = scratch.room(bytes(ranks))?;
    // SAFETY: the scratch has room for all blocks.
    unsafe {
        block(rank).pack(packed);
        bruck_packed(f, packed, bytes).await?;
        unpack_all(packed, rank, f, block);
    }
    Ok(())
}

/// Bruck et al., 1997: in step k each rank receives up to 2^k blocks from the rank 2^k after it. No algorithm has fewer
/// steps. `bytes(n)` is the number of bytes of the first `n` blocks, counted from this rank's block.
///
/// # Safety
/// `packed` has room for all blocks in cyclic order from this rank's block, which is filled.
pub(super) async unsafe fn bruck_packed<F: Fabric>(
    f: &F, packed: *mut u8, bytes: impl Fn(u32) -> u64,
) -> Result {
    let (rank, ranks) = (f.rank(), f.size());
    let mut have = 1;
    while have < ranks {
        let take = have.min(ranks - have);
        let (to, from) = ((rank + ranks - have) % ranks, (rank + have) % ranks);
        let start = bytes(have);
        let into = Vector::raw(packed.wrapping_add(start as usize), bytes(have + take) - start);
        // SAFETY: both vectors are parts of the memory at `packed`, and they do not overlap.
        unsafe { trade(f, to, Vector::raw(packed, bytes(take)), from, into).await? };
        have += take;
    }
    Ok(())
}

/// Passes the blocks around a ring. The first step sends from the caller's buffer, as in [`doubling`].
///
/// # Safety
/// See [`run`].
pub(super) async unsafe fn ring<'a, F: Fabric>(
    f: &F, own: Option<Vector<'_>>, block: &impl Fn(u32) -> Vector<'a>,
) -> Result {
    let (rank, ranks) = (f.rank(), f.size());
    let (next, previous) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
    for step in 0..ranks - 1 {
        let out = block((rank + ranks - step) % ranks);
        let into = block((rank + ranks - step - 1) % ranks);
        // SAFETY: VECTORS; `out` and `into` are two receive blocks, or the caller's block and a receive block.
        unsafe {
            match own {
                Some(own) if step == 0 => {
                    trade(f, next, own, previous, into).await?;
                    place_own(f, Some(own), block)?;
                }
                _ => trade(f, next, out, previous, into).await?,
            }
        }
    }
    Ok(())
}
