//! Allgather and Allgatherv.
#![allow(unsafe_code)]

use super::agreement::{Arguments, compare};
use super::alltoall::together;
use super::apart::check_apart;
use super::arguments::{Block, BlockArray, Blocks, Collective, Side};
use super::fabric::{Call, Fabric, place, send_to_all, trade};
use super::scratch::Scratch;
use super::vector::{Vector, even_blocks};
use super::{choose, inter, nodes, shared};
use crate::common::error::Result;

/// `MPI_Allgather`
pub struct Allgather {
    /// What is sent.
    pub send: Side,
    /// Where it arrives, for one rank.
    pub recv: Block,
}

impl Collective for Allgather {
    async unsafe fn run<C: Call>(&self, f: &C) -> Result {
        let first = self.recv.vector()?;
        let own = self.send.vector()?;
        check_apart(f.channel(), own, even_blocks(first)(f.rank()))?;
        let into = self.recv.data();
        let sends = |_| self.send.data().or(into);
        compare(f, Arguments::new(&sends, &|_| into)).await?;
        let (ranks, total) = (f.size(), first.bytes().saturating_mul(f.size() as u64));
        let how = choose::allgather(total, true, ranks, place(f));
        let whole = first.part(0, first.count * ranks as u64);
        // SAFETY: VECTORS, those of the call.
        f.channel().conclude(unsafe { run(f, how, own, &even_blocks(first), Some(whole)).await })
    }

    async unsafe fn run_between<C: Call>(&self, f: &C) -> Result {
        // SAFETY: VECTORS, those of the call.
        unsafe { inter::allgather(f, self).await }
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
        let block = self.recv.check()?;
        let own = self.send.vector()?;
        check_apart(f.channel(), own, block(f.rank()))?;
        let sends = |_| self.send.data().or(self.recv.data(f.rank()));
        let receives = |from| self.recv.data(from);
        compare(f, Arguments::new(&sends, &receives)).await?;
        let total = (0..f.size()).fold(0u64, |sum, r| sum.saturating_add(block(r).bytes()));
        let how = choose::allgather(total, false, f.size(), place(f));
        // SAFETY: VECTORS, those of the call.
        f.channel().conclude(unsafe { run(f, how, own, &block, None).await })
    }

    async unsafe fn run_between<C: Call>(&self, f: &C) -> Result {
        // SAFETY: VECTORS, those of the call.
        unsafe { inter::allgatherv(f, self).await }
    }
}

/// `own` is None if it is in its place already; `whole` is all blocks as one vector, if they are contiguous.
///
/// # Safety
/// `own` is readable, the blocks are writable; they do not overlap.
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

/// All members at once, at least two.
///
/// # Safety
/// As [`run`].
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

/// Copies the own block to where it belongs.
///
/// # Safety
/// As [`run`].
unsafe fn place_own<'a, F: Fabric>(
    f: &F, own: Option<Vector<'_>>, block: &impl Fn(u32) -> Vector<'a>,
) -> Result {
    // SAFETY: VECTORS.
    f.put_off(unsafe { own.map_or(Ok(()), |own| own.copy_to(block(f.rank()))) })
}

/// Rank 0 receives all blocks and sends them to all.
///
/// # Safety
/// The blocks are writable, the rank's own is filled.
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

/// Unpacks the blocks of all ranks but the own, which lie packed from rank `first` on around to the one before it.
///
/// # Safety
/// `packed` holds all blocks; they are writable.
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

/// In step k ranks exchange the 2^k blocks that they and their neighbours have (a power of two of ranks). The own block
/// is sent from where the caller has it: a copy made a moment ago would be only in this processor's cache.
///
/// # Safety
/// As [`run`].
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
        // SAFETY: the caller's block, or a part of the whole, and another part of it.
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

/// Bruck's algorithm, where the blocks do not lie as it needs them.
///
/// # Safety
/// The blocks are writable, the rank's own is filled.
async unsafe fn bruck<'a, F: Fabric>(f: &F, block: &impl Fn(u32) -> Vector<'a>) -> Result {
    let (rank, ranks) = (f.rank(), f.size());
    // Bytes of the first `n` blocks, counted from the own.
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

/// In step k each rank gets up to 2^k blocks from the rank 2^k behind it: as few steps for any number of ranks (Bruck
/// et al., 1997). `bytes` are those of the first so many blocks, counted from the own.
///
/// # Safety
/// `packed` has room for all blocks and holds the own one, which comes first; the others follow from the next rank on
/// around to the one before.
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
        // SAFETY: parts of the room; what is sent and what is received do not overlap.
        unsafe { trade(f, to, Vector::raw(packed, bytes(take)), from, into).await? };
        have += take;
    }
    Ok(())
}

/// The blocks go round a ring; the own one is sent as in [`doubling`].
///
/// # Safety
/// As [`run`].
pub(super) async unsafe fn ring<'a, F: Fabric>(
    f: &F, own: Option<Vector<'_>>, block: &impl Fn(u32) -> Vector<'a>,
) -> Result {
    let (rank, ranks) = (f.rank(), f.size());
    let (next, previous) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
    for step in 0..ranks - 1 {
        let out = block((rank + ranks - step) % ranks);
        let into = block((rank + ranks - step - 1) % ranks);
        // SAFETY: two different blocks of a buffer that all blocks are writable in, by this function's contract, or
        // `packed` and one of them.
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
