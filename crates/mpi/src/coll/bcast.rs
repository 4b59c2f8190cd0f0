//! Broadcast. VECTORS is defined in `coll.rs`.
#![allow(unsafe_code)]

use super::agreement::{Arguments, compare};
use super::arguments::{Collective, SignificantBuffer};
use super::fabric::{CallFabric, Fabric, place, send_to_all, trade};
use super::scratch::Scratch;
use super::vector::Vector;
use super::{choose, inter, lines, nodes, tree};
use crate::coll_choice::line_plan::CALL_BYTES;
use crate::common::error::Result;
use std::ops::Range;

/// Arguments of `MPI_Bcast`.
pub struct Bcast {
    /// Buffer of the data.
    pub data: SignificantBuffer,
    /// Rank of the root; on an intercommunicator also `MPI_ROOT` or `MPI_PROC_NULL`.
    pub root: i32,
}

impl Collective for Bcast {
    async unsafe fn run<C: CallFabric>(&self, f: &C) -> Result {
        let root = super::check_root(f.channel().comm, self.root)?;
        let data = self.data.vector()?;
        let sends = |_| self.data.data().filter(|_| f.rank() == root);
        let receives = |from| self.data.data().filter(|_| from == root);
        compare(f, Arguments::new(&sends, &receives).root(root)).await?;
        // SAFETY: VECTORS: the buffers are those of the call.
        f.channel().conclude(unsafe { run(f, data, root).await })
    }

    async unsafe fn run_between<C: CallFabric>(&self, f: &C) -> Result {
        // SAFETY: VECTORS: the buffers are those of the call.
        unsafe { inter::bcast(f, self).await }
    }
}

/// Chooses and runs a broadcast. Safety: the data is readable at the root and writable elsewhere.
pub(super) async unsafe fn run<F: Fabric>(f: &F, data: Vector<'_>, root: u32) -> Result {
    if f.size() == 1 || data.bytes() == 0 {
        return Ok(());
    }
    let how = choose::bcast(data.bytes(), f.size(), place(f));
    // SAFETY: VECTORS.
    unsafe { run_by(f, how, data, root).await }
}

/// Runs the algorithm `how`. Safety: see [`run`].
pub(super) async unsafe fn run_by<F: Fabric>(
    f: &F, how: choose::Bcast, data: Vector<'_>, root: u32,
) -> Result {
    // SAFETY: VECTORS.
    unsafe {
        match (how, f.nodes()) {
            (choose::Bcast::Nodes, Some(nodes)) => {
                Box::pin(nodes::bcast(f, nodes, data, root)).await
            }
            _ => run_as(f, how, data, root).await,
        }
    }
}

/// Runs any algorithm except that of `nodes.rs`. Safety: see [`run`].
pub(super) async unsafe fn run_as<F: Fabric>(
    f: &F, how: choose::Bcast, data: Vector<'_>, root: u32,
) -> Result {
    // SAFETY: VECTORS.
    unsafe {
        match how {
            choose::Bcast::Flat => flat(f, data, root).await,
            choose::Bcast::Lines if data.bytes() > CALL_BYTES as u64 => {
                match (f.shared()?, f.lines()?) {
                    (Some(buffers), Some(first)) => {
                        let begin = || f.lines();
                        f.apart(lines::bcast_long(f, buffers, first, begin, data, root)).await
                    }
                    _ => binomial(f, data, root).await,
                }
            }
            choose::Bcast::Lines if let Some(lines) = f.lines()? => {
                f.apart(lines::bcast(&lines, data, root)).await
            }
            choose::Bcast::Binomial | choose::Bcast::Lines | choose::Bcast::Nodes => {
                binomial(f, data, root).await
            }
            choose::Bcast::ScatterAllgather => f.apart(scatter_allgather(f, data, root)).await,
        }
    }
}

/// The root sends to each rank.
///
/// # Safety
/// See [`run`].
pub(super) async unsafe fn flat<F: Fabric>(f: &F, data: Vector<'_>, root: u32) -> Result {
    // SAFETY: VECTORS.
    unsafe {
        if f.rank() != root {
            return f.recv(root, data.buffer()).await;
        }
        send_to_all(f, data).await
    }
}

/// Broadcasts along a binomial tree.
///
/// # Safety
/// See [`run`].
pub(super) async unsafe fn binomial<F: Fabric>(f: &F, data: Vector<'_>, root: u32) -> Result {
    // SAFETY: VECTORS.
    unsafe { tree::pass_down(f, root, |_| Some(data)).await }
}

/// Scatters parts by a binomial tree, then passes them around a ring. No rank sends the data more than twice.
///
/// # Safety
/// See [`run`].
async unsafe fn scatter_allgather<F: Fabric>(f: &F, data: Vector<'_>, root: u32) -> Result {
    let mut scratch = Scratch::new(f);
    let (bytes, dense) = (data.bytes(), data.dense());
    let at = match dense {
        Some(at) => at,
        None => scratch.room(bytes)?,
    };
    // SAFETY: VECTORS; `at` has room for all bytes.
    unsafe {
        if dense.is_none() && f.rank() == root {
            data.pack(at);
        }
        let part = |of: Range<u32>| parts(at, bytes, f.size(), of.start, of.end);
        tree::pass_down(f, root, |of| Some(part(of)).filter(|part| part.bytes() > 0)).await?;
        circulate_bytes(f, at, bytes, root).await?;
        if dense.is_none() && f.rank() != root {
            data.unpack(at);
        }
    }
    Ok(())
}

/// Returns the size of a part in bytes, a multiple of a cache line.
fn part_bytes(bytes: u64, ranks: u32) -> u64 {
    bytes.div_ceil(ranks as u64).next_multiple_of(64)
}

/// Returns the parts `from..to` as one vector. Part i belongs to the rank i after the root.
fn parts(at: *mut u8, bytes: u64, ranks: u32, from: u32, to: u32) -> Vector<'static> {
    let part = part_bytes(bytes, ranks);
    let (start, end) = ((part * from as u64).min(bytes), (part * to as u64).min(bytes));
    Vector::raw(at.wrapping_add(start as usize), end - start)
}

/// Passes all parts around a ring. Safety: `bytes` bytes at `at` are writable, and the rank's own part is filled.
async unsafe fn circulate_bytes<F: Fabric>(f: &F, at: *mut u8, bytes: u64, root: u32) -> Result {
    let ranks = f.size();
    let me = tree::relative(f.rank(), root, ranks);
    let (next, previous) = ((f.rank() + 1) % ranks, (f.rank() + ranks - 1) % ranks);
    for step in 0..ranks - 1 {
        let (out, into) = ((me + ranks - step) % ranks, (me + ranks - step - 1) % ranks);
        let out = parts(at, bytes, ranks, out, out + 1);
        let into = parts(at, bytes, ranks, into, into + 1);
        // SAFETY: `out` and `into` are different parts of the data.
        unsafe { trade(f, next, out, previous, into).await? };
    }
    Ok(())
}
