//! Scatter and Scatterv. VECTORS is defined in `coll.rs`.
#![allow(unsafe_code)]

use super::agreement::{Arguments, compare};
use super::apart::check_apart;
use super::arguments::{BlockArray, Blocks, Collective, CollectiveBuffer};
use super::fabric::{Batch, CallFabric, Fabric, IN_TURN_BYTES, place};
use super::scratch::Scratch;
use super::tree::{absolute, packed, pass_down, relative, subtree_ranks};
use super::vector::{Vector, even_blocks};
use super::{check_root, choose, inter, lines};
use crate::common::error::Result;

/// Arguments of `MPI_Scatter`.
pub struct Scatter {
    /// Data to send, significant at the root.
    pub send: CollectiveBuffer,
    /// Receive buffer.
    pub recv: CollectiveBuffer,
    /// Rank of the root; on an intercommunicator also `MPI_ROOT` or `MPI_PROC_NULL`.
    pub root: i32,
}

impl Collective for Scatter {
    async unsafe fn run<C: CallFabric>(&self, f: &C) -> Result {
        let root = check_root(f.channel().comm, self.root)?;
        let send = match f.rank() == root {
            true => self.send.vector()?,
            false => None,
        };
        let own = self.recv.vector()?;
        if let (Some(send), Some(own)) = (send, own) {
            check_apart(f.channel(), Some(even_blocks(send)(root)), own)?;
        }
        let sends = |_| self.send.data().filter(|_| f.rank() == root);
        let receives = |from| self.recv.data().filter(|_| from == root);
        compare(f, Arguments::new(&sends, &receives).root(root)).await?;
        let block = send.or(own).map_or(0, |v| v.bytes());
        let how = choose::gather(&choose::SCATTER, block, f.size(), place(f));
        // SAFETY: VECTORS: the buffers are those of the call.
        f.channel().conclude(unsafe { run(f, how, send.map(even_blocks), own, root).await })
    }

    async unsafe fn run_between<C: CallFabric>(&self, f: &C) -> Result {
        // SAFETY: VECTORS: the buffers are those of the call.
        unsafe { inter::scatter(f, self).await }
    }
}

/// Arguments of `MPI_Scatterv`.
pub struct Scatterv {
    /// Data to send at the root; `None` at other ranks.
    pub send: Option<Blocks>,
    /// Receive buffer.
    pub recv: CollectiveBuffer,
    /// Rank of the root; on an intercommunicator also `MPI_ROOT` or `MPI_PROC_NULL`.
    pub root: i32,
}

impl Collective for Scatterv {
    async unsafe fn run<C: CallFabric>(&self, f: &C) -> Result {
        let root = check_root(f.channel().comm, self.root)?;
        let array = self.send.as_ref().filter(|_| f.rank() == root);
        let send = array.map(|array| array.check()).transpose()?;
        let own = self.recv.vector()?;
        if let (Some(block), Some(own)) = (&send, own) {
            check_apart(f.channel(), Some(block(root)), own)?;
        }
        let sends = |to| array.and_then(|array| array.data(to));
        let receives = |from| self.recv.data().filter(|_| from == root);
        compare(f, Arguments::new(&sends, &receives).root(root)).await?;
        let all = || array.map_or(0, |array| array.longest(f.size()));
        let longest = || own.map_or(0, |own| own.bytes()).max(all());
        let how = choose::gather_arrays(&choose::SCATTERV, longest, f.size());
        // SAFETY: VECTORS: the buffers are those of the call.
        f.channel().conclude(unsafe { run(f, how, send, own, root).await })
    }

    async unsafe fn run_between<C: CallFabric>(&self, f: &C) -> Result {
        // SAFETY: VECTORS: the buffers are those of the call.
        unsafe { inter::scatterv(f, self).await }
    }
}

/// Runs a scatter. `own` is `None` at a root in place; only the root passes `block`.
///
/// # Safety
/// The blocks are readable, `own` is writable, and they do not overlap.
pub(super) async unsafe fn run<'a, F: Fabric>(
    f: &F, how: choose::Gather, block: Option<impl Fn(u32) -> Vector<'a>>, own: Option<Vector<'_>>,
    root: u32,
) -> Result {
    // SAFETY: VECTORS.
    unsafe {
        let bytes = block.as_ref().map(|block| block(root)).or(own).map_or(0, |v| v.bytes());
        if how == choose::Gather::Shared
            && bytes > 0
            && let (Some(buffers), Some(first)) = (f.shared()?, f.lines()?)
        {
            let copied = match (&block, own) {
                (Some(block), Some(own)) => block(root).copy_to(own),
                _ => Ok(()),
            };
            let begin = || f.lines();
            let scattered = lines::scatter(f, buffers, first, begin, block, own, (bytes, root));
            return f.apart(scattered).await.and(copied);
        }
        match (how, block, own) {
            (choose::Gather::Linear, Some(block), own) => linear_root(f, block, own).await,
            (choose::Gather::Linear, None, Some(own)) if own.bytes() > 0 => {
                f.recv(root, own.buffer()).await
            }
            (_, Some(block), own) => f.apart(binomial_root(f, block, own)).await,
            (_, None, Some(own)) if how != choose::Gather::Linear && own.bytes() > 0 => {
                f.apart(binomial_other(f, own, root)).await
            }
            _ => Ok(()),
        }
    }
}

/// The root sends to each rank directly. Safety: see [`run`].
async unsafe fn linear_root<'a, F: Fabric>(
    f: &F, block: impl Fn(u32) -> Vector<'a>, own: Option<Vector<'_>>,
) -> Result {
    let others = || (0..f.size()).filter(|&r| r != f.rank());
    let in_turn = others().all(|r| block(r).bytes() <= IN_TURN_BYTES);
    let mut batch = Batch::new(f);
    // SAFETY: VECTORS; the blocks are only read.
    unsafe {
        if !in_turn {
            others().for_each(|r| batch.send(r, block(r)));
        } else {
            for (rank, out) in others().map(|r| (r, block(r))).filter(|(_, out)| out.bytes() > 0) {
                f.send(rank, out.buffer()).await?;
            }
        }
        let copied = own.map_or(Ok(()), |own| block(f.rank()).copy_to(own));
        batch.finish().await?;
        copied
    }
}

/// The root's part in a scatter along a binomial tree. Safety: see [`run`]. All blocks have one length.
async unsafe fn binomial_root<'a, F: Fabric>(
    f: &F, block: impl Fn(u32) -> Vector<'a>, own: Option<Vector<'_>>,
) -> Result {
    let (ranks, root) = (f.size(), f.rank());
    let bytes = block(root).bytes();
    // SAFETY: VECTORS; the scratch holds one block for each rank, counted from the root.
    unsafe {
        if bytes > 0 {
            let mut scratch = Scratch::new(f);
            let at = scratch.room(bytes * ranks as u64)?;
            for i in 1..ranks {
                block(absolute(i, root, ranks)).pack(at.add((bytes * i as u64) as usize));
            }
            let part = packed(at, bytes, 0);
            pass_down(f, root, |of| Some(part(of))).await?;
        }
        own.map_or(Ok(()), |own| block(root).copy_to(own))
    }
}

/// The part of a rank other than the root in a scatter along a binomial tree. Safety: see [`run`].
async unsafe fn binomial_other<F: Fabric>(f: &F, own: Vector<'_>, root: u32) -> Result {
    let me = relative(f.rank(), root, f.size());
    let subtree = subtree_ranks(me, f.size());
    let bytes = own.bytes();
    // SAFETY: VECTORS; the scratch holds one block for each rank of the subtree.
    unsafe {
        if subtree == 1 {
            return pass_down(f, root, |_| Some(own)).await;
        }
        let mut scratch = Scratch::new(f);
        let at = scratch.room(bytes * subtree as u64)?;
        let part = packed(at, bytes, me);
        pass_down(f, root, |of| Some(part(of))).await?;
        own.unpack(at);
    }
    Ok(())
}
