//! Gather and Gatherv. VECTORS is defined in `coll.rs`.
#![allow(unsafe_code)]

use super::agreement::{Arguments, compare};
use super::apart::check_apart;
use super::arguments::{BlockArray, Blocks, Collective, CollectiveBuffer};
use super::fabric::{Batch, CallFabric, Fabric, IN_TURN_BYTES, place};
use super::scratch::Scratch;
use super::tree::{absolute, packed, pass_up, relative, subtree_ranks};
use super::vector::{Vector, even_blocks};
use super::{check_root, choose, inter, lines};
use crate::common::error::Result;

/// Arguments of `MPI_Gather`.
pub struct Gather {
    /// Data to send.
    pub send: CollectiveBuffer,
    /// Receive buffer, significant at the root.
    pub recv: CollectiveBuffer,
    /// Rank of the root; on an intercommunicator also `MPI_ROOT` or `MPI_PROC_NULL`.
    pub root: i32,
}

impl Collective for Gather {
    async unsafe fn run<C: CallFabric>(&self, f: &C) -> Result {
        let root = check_root(f.channel().comm, self.root)?;
        let own = self.send.vector()?;
        let recv = match f.rank() == root {
            true => self.recv.vector()?,
            false => None,
        };
        if let Some(recv) = recv {
            check_apart(f.channel(), own, even_blocks(recv)(root))?;
        }
        let sends = |to| self.send.data().filter(|_| to == root);
        let receives = |_| self.recv.data().filter(|_| f.rank() == root);
        compare(f, Arguments::new(&sends, &receives).root(root)).await?;
        let block = recv.or(own).map_or(0, |v| v.bytes());
        let how = choose::gather(&choose::GATHER, block, f.size(), place(f));
        // SAFETY: VECTORS: the buffers are those of the call.
        f.channel().conclude(unsafe { run(f, how, own, recv.map(even_blocks), root).await })
    }

    async unsafe fn run_between<C: CallFabric>(&self, f: &C) -> Result {
        // SAFETY: VECTORS: the buffers are those of the call.
        unsafe { inter::gather(f, self).await }
    }
}

/// Arguments of `MPI_Gatherv`.
pub struct Gatherv {
    /// Data to send.
    pub send: CollectiveBuffer,
    /// Receive buffer at the root; `None` at other ranks.
    pub recv: Option<Blocks>,
    /// Rank of the root; on an intercommunicator also `MPI_ROOT` or `MPI_PROC_NULL`.
    pub root: i32,
}

impl Collective for Gatherv {
    async unsafe fn run<C: CallFabric>(&self, f: &C) -> Result {
        let root = check_root(f.channel().comm, self.root)?;
        let own = self.send.vector()?;
        let array = self.recv.as_ref().filter(|_| f.rank() == root);
        let recv = array.map(|array| array.check()).transpose()?;
        if let Some(block) = &recv {
            check_apart(f.channel(), own, block(root))?;
        }
        let sends = |to| self.send.data().filter(|_| to == root);
        let receives = |from| array.and_then(|array| array.data(from));
        compare(f, Arguments::new(&sends, &receives).root(root)).await?;
        let all = || array.map_or(0, |array| array.longest(f.size()));
        let longest = || own.map_or(0, |own| own.bytes()).max(all());
        let how = choose::gather_arrays(&choose::GATHERV, longest, f.size());
        // SAFETY: VECTORS: the buffers are those of the call.
        f.channel().conclude(unsafe { run(f, how, own, recv, root).await })
    }

    async unsafe fn run_between<C: CallFabric>(&self, f: &C) -> Result {
        // SAFETY: VECTORS: the buffers are those of the call.
        unsafe { inter::gatherv(f, self).await }
    }
}

/// Runs a gather. `own` is `None` at a root in place; only the root passes `block`.
///
/// # Safety
/// `own` is readable, the blocks are writable, and they do not overlap.
pub(super) async unsafe fn run<'a, F: Fabric>(
    f: &F, how: choose::Gather, own: Option<Vector<'_>>, block: Option<impl Fn(u32) -> Vector<'a>>,
    root: u32,
) -> Result {
    // SAFETY: VECTORS.
    unsafe {
        let bytes = block.as_ref().map(|block| block(root)).or(own).map_or(0, |v| v.bytes());
        if how == choose::Gather::Lines
            && bytes > 0
            && let Some(lines) = f.lines()?
            && lines::fits_gather(&lines, bytes, root)
        {
            if let (Some(block), Some(own)) = (&block, own) {
                f.put_off(own.copy_to(block(root)))?;
            }
            return f.apart(lines::gather(f, &lines, own, block, bytes as usize, root)).await;
        }
        match (how, block, own) {
            (choose::Gather::Linear, Some(block), own) => linear_root(f, own, block).await,
            (choose::Gather::Linear, None, Some(own)) if own.bytes() > 0 => {
                f.send(root, own.buffer()).await
            }
            (_, Some(block), own) => f.apart(binomial_root(f, own, block)).await,
            (_, None, Some(own)) if how != choose::Gather::Linear && own.bytes() > 0 => {
                f.apart(binomial_other(f, own, root)).await
            }
            _ => Ok(()),
        }
    }
}

/// The root receives from each rank directly. Safety: see [`run`].
async unsafe fn linear_root<'a, F: Fabric>(
    f: &F, own: Option<Vector<'_>>, block: impl Fn(u32) -> Vector<'a>,
) -> Result {
    let others = || (0..f.size()).filter(|&r| r != f.rank());
    let in_turn = others().all(|r| block(r).bytes() <= IN_TURN_BYTES);
    let mut batch = Batch::new(f);
    // SAFETY: VECTORS; only the batch uses the blocks until it has finished.
    unsafe {
        if !in_turn {
            others().for_each(|r| batch.recv(r, block(r)));
        }
        let copied = own.map_or(Ok(()), |own| own.copy_to(block(f.rank())));
        batch.finish().await?;
        f.put_off(copied)?;
        if in_turn {
            for (rank, into) in others().map(|r| (r, block(r))).filter(|(_, into)| into.bytes() > 0)
            {
                f.recv(rank, into.buffer()).await?;
            }
        }
    }
    Ok(())
}

/// The root's part in a gather along a binomial tree. Safety: see [`run`]. All blocks have one length.
async unsafe fn binomial_root<'a, F: Fabric>(
    f: &F, own: Option<Vector<'_>>, block: impl Fn(u32) -> Vector<'a>,
) -> Result {
    let (ranks, root) = (f.size(), f.rank());
    let bytes = block(root).bytes();
    // SAFETY: VECTORS; the scratch holds one block for each rank, counted from the root.
    unsafe {
        f.put_off(own.map_or(Ok(()), |own| own.copy_to(block(root))))?;
        if bytes == 0 {
            return Ok(());
        }
        let mut scratch = Scratch::new(f);
        let at = scratch.room(bytes * ranks as u64)?;
        pass_up(f, root, packed(at, bytes, 0)).await?;
        for i in 1..ranks {
            block(absolute(i, root, ranks)).unpack(at.add((bytes * i as u64) as usize));
        }
    }
    Ok(())
}

/// The part of a rank other than the root in a gather along a binomial tree. Safety: see [`run`].
async unsafe fn binomial_other<F: Fabric>(f: &F, own: Vector<'_>, root: u32) -> Result {
    let me = relative(f.rank(), root, f.size());
    let subtree = subtree_ranks(me, f.size());
    let bytes = own.bytes();
    // SAFETY: VECTORS; the scratch holds one block for each rank of the subtree.
    unsafe {
        if subtree == 1 {
            return pass_up(f, root, |_| own).await;
        }
        let mut scratch = Scratch::new(f);
        let at = scratch.room(bytes * subtree as u64)?;
        own.pack(at);
        pass_up(f, root, packed(at, bytes, me)).await
    }
}
