//! Collective calls through cache lines that the members share. Each member writes its own lines, and the others read
//! them. A line has a sequence number and, next to it, the data of a short call, so that one transfer brings both. The
//! numbers only grow, so nothing is reset, and no atomic read-modify-write is needed. VECTORS is defined in `coll.rs`.
//!
//! The schedule (`coll_choice::line_plan`) follows the topology. A member in a broadcast reads the line of its parent,
//! and publishes the data again for its own children. In a barrier or allreduce, each member reads the lines of a few
//! partners in each of a few rounds.
//!
//! References: Jain et al., Framework for Scalable Intra-Node Collective Operations Using Shared Memory (2018);
//! Katevenis et al., A framework for hierarchical single-copy MPI collectives on multicore nodes (2022).
#![allow(unsafe_code)]

mod bcast;
mod gather;
pub(crate) mod mapped;
pub(crate) mod member;
pub(crate) mod outstanding;
mod reduce;
mod scan;

pub(super) use bcast::{bcast, bcast_long};
pub(super) use gather::{fits_gather, gather, scatter};
pub(super) use reduce::{allreduce, fits_allreduce};
pub(super) use scan::scan;

use crate::coll_choice::line_plan::{LinePlan, Readers, STEP_BYTES};
use crate::common::consts::MPI_ERR_INTERN;
use crate::common::error::{Error, Result};
use fastpath_base::copy::copy;

/// Shared lines of the members of one call.
pub trait Lines {
    /// Returns the schedule of this member.
    fn plan(&self) -> &LinePlan;

    /// Returns the number of the call.
    fn number(&self) -> u64;

    /// Waits until some of the other members have ended a call.
    fn wait_for_end(&self, call: u64, readers: Readers) -> impl Future<Output = Result>;

    /// Publishes `bytes` bytes, which `fill` writes, as this member's data of a step. The data stays until all
    /// `readers` have ended the call. Waits until the readers of the memory's earlier data have ended that call.
    ///
    /// # Safety
    /// `fill` writes at most `bytes` bytes. `bytes` is at most [`STEP_BYTES`].
    unsafe fn publish(
        &self, step: u32, bytes: usize, fill: impl FnOnce(*mut u8), readers: Readers,
    ) -> impl Future<Output = Result>;

    /// Waits until each of the members `from` has published its data of a step. Calls `take` once for each, in any
    /// order, with the index in `from` and the address of the data, which is valid until the call ends. `bytes` returns
    /// the length for an index. Errors: a member has left. An unexpected length is an error at the end of the call.
    fn collect(
        &self, from: &[u32], step: u32, bytes: impl Fn(usize) -> usize,
        take: impl FnMut(usize, *const u8),
    ) -> impl Future<Output = Result>;

    /// Records that this member has data of all members in this call, so that all have ended earlier calls.
    fn note_all_began(&self);

    /// Records that this member has data of `rank` in this call, so that `rank` has ended earlier calls.
    fn note_began(&self, rank: u32);

    /// Records a copy of `bytes` bytes from a member's shared memory, or from own memory. Simulated lines take time for
    /// it.
    #[inline]
    fn note_copy(&self, _from: u32, _bytes: usize) {}

    /// Prepares the lines of the next broadcast. A member that others wait for calls this after it has published.
    fn look_ahead(&self);
}

/// Lines of a fabric that has none.
pub enum NoLines {}

impl Lines for NoLines {
    fn plan(&self) -> &LinePlan {
        match *self {}
    }

    fn number(&self) -> u64 {
        match *self {}
    }

    async fn wait_for_end(&self, _: u64, _: Readers) -> Result {
        match *self {}
    }

    async unsafe fn publish(
        &self, _: u32, _: usize, _: impl FnOnce(*mut u8), _: Readers,
    ) -> Result {
        match *self {}
    }

    async fn collect(
        &self, _: &[u32], _: u32, _: impl Fn(usize) -> usize, _: impl FnMut(usize, *const u8),
    ) -> Result {
        match *self {}
    }

    fn note_all_began(&self) {
        match *self {}
    }

    fn note_began(&self, _: u32) {
        match *self {}
    }

    fn look_ahead(&self) {
        match *self {}
    }
}

#[cold]
fn no_lines() -> Error {
    Error::new(MPI_ERR_INTERN, "shared lines were lost during a call")
}

/// Barrier: an exchange without data.
pub(super) async fn barrier<L: Lines>(lines: &L) -> Result {
    exchange_words(lines, &mut [], |[], []| {}).await
}

/// Combines words of all members in any order. `combine` must be associative and commutative. Equal on all members.
pub(super) async fn exchange_words<const WORDS: usize, L: Lines>(
    lines: &L, words: &mut [u64; WORDS], combine: impl Fn(&mut [u64; WORDS], [u64; WORDS]),
) -> Result {
    let bytes = size_of_val(words);
    for (step, round) in (0..).zip(lines.plan().any_order()) {
        let own = *words;
        // SAFETY: the words fit a step, and `fill` writes them.
        let fill = |to: *mut u8| unsafe { to.cast::<[u64; WORDS]>().write_unaligned(own) };
        // SAFETY: see above.
        unsafe { lines.publish(step, bytes, fill, Readers::AnyOrder(step)).await? };
        // SAFETY: the data has the words of a member.
        let read = |at: *const u8| unsafe { at.cast::<[u64; WORDS]>().read_unaligned() };
        lines.collect(&round.partners, step, |_| bytes, |_, at| combine(words, read(at))).await?;
    }
    lines.note_all_began();
    Ok(())
}

/// Returns whether an allgather of blocks of `bytes` bytes fits the steps.
pub(super) fn fits_allgather<L: Lines>(lines: &L, bytes: u64) -> bool {
    bytes.saturating_mul(lines.plan().most_held()) <= STEP_BYTES as u64
}

/// Allgather for which [`fits_allgather`] is true. The block of `bytes` bytes of rank r is r times `bytes` after `all`.
///
/// # Safety
/// The memory of all blocks is writable, and this rank's block is filled.
pub(super) async unsafe fn allgather<L: Lines>(lines: &L, all: *mut u8, bytes: usize) -> Result {
    let at = |rank: u32| all.wrapping_add(rank as usize * bytes);
    // SAFETY: VECTORS.
    unsafe {
        for (step, round) in (0..).zip(lines.plan().in_order()) {
            let held = round.length as usize * bytes;
            let fill = |to: *mut u8| copy(to, at(round.first_of(round.own)), held);
            lines.publish(step, held, fill, Readers::InOrder(step)).await?;
            let into = |partner: usize| at(round.first_of(round.member(partner)));
            let take = |partner: usize, from: *const u8| copy(into(partner), from, held);
            lines.collect(&round.partners, step, |_| held, take).await?;
        }
    }
    lines.note_all_began();
    Ok(())
}
