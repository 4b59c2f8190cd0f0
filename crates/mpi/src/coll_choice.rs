//! Choice of a collective algorithm by bytes, ranks and whether ranks share processors. These inputs, and thus the
//! choice, are equal on all ranks of a call.
//!
//! Where ranks share processors, a call up to some size goes through rank 0 or the root. Each rank is then scheduled
//! once or twice; in a tree or ring it would wait for a processor at every step. With few processors the size limit is
//! high, because the root's processor is then a large share of all processors. Otherwise algorithms of few steps are
//! best for short data, and algorithms that move few bytes for long data.
//!
//! | call | short | long |
//! |---|---|---|
//! | barrier | dissemination | |
//! | bcast | binomial tree | binomial scatter, ring allgather |
//! | gather, scatter | binomial tree from 16 ranks | linear |
//! | allgather(v) | recursive doubling, Bruck; all at once where ranks share processors | ring; shared buffers |
//! | alltoall | through rank 0 or Bruck from 8 ranks | all at once |
//! | alltoall in place | copied, all at once | pairs in turn |
//! | reduce | binomial tree | recursive halving, gather |
//! | allreduce | recursive doubling | recursive halving and doubling (Rabenseifner); ring; shared buffers |
//! | reduce_scatter | allreduce | ring reduce-scatter |
//! | scan, exscan | recursive doubling | recursive doubling |
//!
//! The shared buffers of `shared` are for blocking calls of one host. Ranks with own processors synchronize them by the
//! shared lines of `lines`. These ranks use lines and buffers instead of the algorithms above for barrier, bcast,
//! allreduce, allgather, and for other calls of some sizes. In a short allreduce, two ranks exchange their
//! operands. A long allreduce whose operation does not commute runs in pieces that fit the cache.
//!
//! References: Thakur, Rabenseifner and Gropp, Optimization of Collective Communication Operations in MPICH (2005);
//! Bruck et al., Efficient Algorithms for All-to-All Communications (1997); Hensgen, Finkel and Manber, Two Algorithms
//! for Barrier Synchronization (1988); Patarasuk and Yuan, Bandwidth Optimal All-reduce Algorithms (2009).

#![allow(unsafe_code)]

mod asked;
pub(crate) mod hosts;
mod kept;
mod line_pieces;
pub(crate) mod line_plan;
mod line_tree;
pub(crate) mod nodes;
mod processors;
pub(crate) mod tree;

pub(crate) use asked::{
    ALLGATHER, ALLGATHERV, ALLREDUCE, ALLTOALL, ALLTOALLV, ALLTOALLW, BARRIER, BCAST,
    CallAlgorithms, EXSCAN, GATHER, GATHERV, NEIGHBOR_ALLGATHER, NEIGHBOR_ALLGATHERV,
    NEIGHBOR_ALLTOALL, NEIGHBOR_ALLTOALLV, NEIGHBOR_ALLTOALLW, REDUCE, REDUCE_SCATTER,
    REDUCE_SCATTER_BLOCK, SCAN, SCATTER, SCATTERV, ask, counts, note_between, report,
    wants_any_order,
};
pub use kept::Placement;
pub use nodes::NodeMap;
pub(crate) use processors::CallPlace;
pub use processors::JobProcessors;

use asked::settle;
use fastpath_protocol::wire::SHORT_LIMIT;
pub(crate) use hosts::NetworkCosts;

/// Maximum bytes of a reduction through one rank where processors are few.
const FLAT_REDUCE: u64 = 2 << 20;
/// Maximum bytes of an allreduce through one rank; in a longer one all ranks share the work.
const FLAT_ALLREDUCE: u64 = 32 << 10;
/// Maximum number of ranks that can all send to all at the same time, because each waits only shortly for a processor.
const FEW_RANKS: u32 = 4;
/// Minimum bytes of a broadcast by scatter and allgather.
const BCAST_LONG: u64 = 128 << 10;
/// Minimum number of ranks for a gather or scatter of short blocks by a tree.
const TREE_RANKS: u32 = 16;
/// Maximum bytes of a block that a tree gathers or scatters.
const TREE_BYTES: u64 = 512;
/// Maximum bytes that one rank sends in an alltoall through rank 0.
const FLAT_ALLTOALL: u64 = 32 << 10;
/// Minimum number of ranks for an alltoall through rank 0 with blocks of any length. Fewer ranks wait less often: they
/// use it for blocks of up to [`FLAT_ALLTOALL_BLOCK`] bytes.
const FLAT_ALLTOALL_RANKS: u32 = 16;
const FLAT_ALLTOALL_BLOCK: u64 = 64;
/// Minimum total bytes of an allgather by a ring.
const ALLGATHER_LONG: u64 = 256 << 10;
/// Minimum number of ranks for Bruck's algorithm in a short alltoall.
const BRUCK_RANKS: u32 = 8;
/// Maximum bytes of a block for Bruck's algorithm.
const BRUCK_BYTES: u64 = 128;
/// Limits of Bruck's algorithm where ranks share processors and the call does not go through rank 0.
const BRUCK_RANKS_SHARED: u32 = 32;
const BRUCK_BYTES_SHARED: u64 = 1024;
/// Maximum total bytes of an alltoall in place that copies all blocks first.
const IN_PLACE_COPY: u64 = 1 << 20;
/// Minimum bytes of a reduction whose arithmetic is divided among the ranks.
const REDUCE_LONG: u64 = 16 << 10;
/// Minimum bytes of an allreduce whose arithmetic is divided among the ranks.
const ALLREDUCE_LONG: u64 = 32 << 10;
/// Minimum bytes of a divided allreduce of two ranks on two hosts. Dividing adds an exchange of high latency.
const ALLREDUCE_LONG_APART: u64 = 512 << 10;
/// Bytes of a piece of an allreduce by recursive doubling. A piece of two operands fits the caches of two ranks.
pub(crate) const ALLREDUCE_PIECE: u64 = 256 << 10;
/// Minimum bytes of an allreduce by a ring, and of each rank's part. A ring is used if the number of ranks is no power
/// of two.
const ALLREDUCE_RING: u64 = 256 << 10;
const RING_BLOCK: u64 = 4 << 10;
/// Maximum bytes of an element whose operands are combined in shared buffers.
const SHARED_ELEMENT: u64 = 1 << 10;
/// Maximum bytes of a broadcast and of an allreduce through shared lines. Longer calls use shared buffers.
const LINE_BCAST: u64 = line_plan::CALL_BYTES as u64;
const LINE_ALLREDUCE: u64 = 1 << 10;
/// Maximum bytes of a scan through shared lines by default and if it is named, and maximum number of its ranks. Each
/// bit of a rank takes a step.
const LINE_SCAN: u64 = 56;
const LINE_SCAN_NAMED: u64 = line_plan::STEP_BYTES as u64;
const LINE_SCAN_RANKS: u32 = 1 << line_plan::MAX_ROUNDS;
/// Maximum total bytes of a gather through shared lines by default: all members but the root publish data that fits a
/// line. Simulated gathers of more data are not faster than messages.
const LINE_GATHER: u64 = 112;
/// Maximum bytes of a block of a scatter through a shared buffer by default.
const SHARED_SCATTER: u64 = TREE_BYTES;
/// Maximum total bytes of an allgather through shared lines.
const LINE_ALLGATHER: u64 = 4 << 10;
/// Maximum bytes of a block of an alltoall through shared buffers of ranks with own processors. A message copies longer
/// blocks only once.
const SHARED_ALLTOALL: u64 = 8 << 10;
/// Maximum total bytes of a reduce-scatter in which every rank reduces everything.
const REDUCE_SCATTER_SHORT: u64 = 8 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Barrier {
    Flat,
    Dissemination,
    Lines,
    Nodes,
}

#[inline]
pub(crate) fn barrier(ranks: u32, place: CallPlace<'_>) -> Barrier {
    let usual = match place.room {
        JobProcessors::Hosts(on) => {
            on.choose(&BARRIER, 0, 0, |spread| hosts::barrier(spread, &NetworkCosts::TCP))
        }
        JobProcessors::Shared | JobProcessors::Tight if ranks > 2 => Barrier::Flat,
        _ if place.uses_lines() => Barrier::Lines,
        _ => Barrier::Dissemination,
    };
    let may = |how| match how {
        Barrier::Flat => ranks > 2,
        Barrier::Dissemination => true,
        Barrier::Lines => place.may_line,
        Barrier::Nodes => place.room.has_levels(),
    };
    settle(&BARRIER, usual, || 0, ranks, may)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bcast {
    Flat,
    Binomial,
    ScatterAllgather,
    Lines,
    Nodes,
}

#[inline]
pub(crate) fn bcast(bytes: u64, ranks: u32, place: CallPlace<'_>) -> Bcast {
    // Long data goes through shared buffers.
    let fits = place.may_share || bytes <= LINE_BCAST;
    let room = place.room;
    let usual = if ranks == 2 || room.is_flat(bytes, u64::MAX) {
        Bcast::Flat
    } else if let JobProcessors::Hosts(on) = room {
        on.choose(&BCAST, bytes, 0, |s| hosts::bcast(s, &NetworkCosts::TCP, bytes))
    } else if fits && place.uses_lines() {
        Bcast::Lines
    } else if bytes >= BCAST_LONG && room == JobProcessors::Own {
        Bcast::ScatterAllgather
    } else {
        Bcast::Binomial
    };
    let may = |how| match how {
        Bcast::Lines => fits && place.may_line,
        Bcast::Nodes => room.has_levels(),
        _ => true,
    };
    settle(&BCAST, usual, || bytes, ranks, may)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gather {
    Linear,
    Binomial,
    /// Along the tree of shared lines; only a gather.
    Lines,
    /// Through the shared buffer of the root; only a scatter.
    Shared,
}

#[inline]
pub(crate) fn gather(
    call: &'static CallAlgorithms<Gather>, block: u64, ranks: u32, place: CallPlace<'_>,
) -> Gather {
    let room = place.room;
    let total = block.saturating_mul(ranks.into());
    let (by_lines, is_usual) = match call.number == GATHER.number {
        true => (place.may_line.then_some(Gather::Lines), total <= LINE_GATHER),
        false => {
            let may = place.may_share && place.may_line;
            (may.then_some(Gather::Shared), block <= SHARED_SCATTER)
        }
    };
    let usual = if let Some(how) = by_lines
        && is_usual
        && place.uses_lines()
    {
        how
    } else if !room.is_shared() && ranks >= TREE_RANKS && block <= TREE_BYTES {
        Gather::Binomial
    } else {
        Gather::Linear
    };
    let may = |how| match how {
        Gather::Lines | Gather::Shared => by_lines == Some(how),
        Gather::Linear | Gather::Binomial => true,
    };
    settle(call, usual, || block, ranks, may)
}

/// Chooses the algorithm of a call whose block lengths only the root knows. `block` returns the longest known length.
#[inline]
pub(crate) fn gather_arrays(
    call: &'static CallAlgorithms<Gather>, block: impl FnOnce() -> u64, ranks: u32,
) -> Gather {
    settle(call, Gather::Linear, block, ranks, |how| how == Gather::Linear)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allgather {
    Flat,
    Doubling,
    Bruck,
    Ring,
    Together,
    Shared,
    Lines,
    Nodes,
}

/// Chooses the algorithm for `total` bytes. `even` tells whether all blocks have one length and are adjacent in memory.
#[inline]
pub(crate) fn allgather(total: u64, even: bool, ranks: u32, place: CallPlace<'_>) -> Allgather {
    let (room, may_share) = (place.room, place.may_share);
    let doubles = even && ranks.is_power_of_two();
    let fits_lines = even && total <= LINE_ALLGATHER;
    let usual = if ranks == 2 {
        Allgather::Ring
    } else if let JobProcessors::Hosts(on) = room {
        on.choose(&ALLGATHER, total, doubles.into(), |s| {
            hosts::allgather(s, &NetworkCosts::TCP, total, doubles)
        })
    } else if fits_lines && place.uses_lines() {
        Allgather::Lines
    } else if place.shares_by_lines() || (may_share && room.shares_allgather(total, ranks)) {
        Allgather::Shared
    } else if let Some(how) = room.allgather(total, ranks) {
        how
    } else if total >= ALLGATHER_LONG {
        Allgather::Ring
    } else if doubles {
        Allgather::Doubling
    } else {
        Allgather::Bruck
    };
    let may = |how| match how {
        Allgather::Doubling => doubles,
        Allgather::Shared => may_share,
        Allgather::Lines => fits_lines && place.may_line,
        Allgather::Nodes => room.has_levels(),
        _ => true,
    };
    let call = if even { &ALLGATHER } else { &ALLGATHERV };
    settle(call, usual, || total, ranks, may)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alltoall {
    Flat,
    Bruck,
    /// Sends all blocks at the same time; not in place.
    Together,
    /// Copies all blocks first, then sends them at the same time; in place. Some ranks of a call may choose `Copied`
    /// and others `Pairs`: each pair of ranks exchanges the same two messages.
    Copied,
    Pairs,
    /// Through shared buffers; in place or not.
    Shared,
}

#[inline]
pub(crate) fn alltoall(block: u64, ranks: u32, in_place: bool, place: CallPlace<'_>) -> Alltoall {
    let usual = match usual_alltoall(block, ranks, place.room) {
        _ if block <= SHARED_ALLTOALL && place.shares_by_lines() => Alltoall::Shared,
        Alltoall::Together if in_place => in_place_alltoall(block.saturating_mul(ranks.into())),
        how => how,
    };
    let may = |how| match how {
        Alltoall::Flat | Alltoall::Bruck => ranks > 2,
        Alltoall::Together => !in_place,
        Alltoall::Copied | Alltoall::Pairs => in_place,
        Alltoall::Shared => place.may_share,
    };
    settle(&ALLTOALL, usual, || block, ranks, may)
}

/// Chooses the algorithm for blocks of any lengths. `block` returns the longest length. `in_place` is the sum of the
/// lengths in bytes, or `None` if the call is not in place.
#[inline]
pub(crate) fn alltoall_arrays(
    call: &'static CallAlgorithms<Alltoall>, block: impl FnOnce() -> u64, ranks: u32,
    in_place: Option<u64>,
) -> Alltoall {
    let usual = in_place.map_or(Alltoall::Together, in_place_alltoall);
    let may = |how| (how == Alltoall::Together) == in_place.is_none();
    settle(call, usual, block, ranks, may)
}

/// Returns the usual algorithm of an alltoall that is not in place.
///
/// The choice counts messages, because the first message to a partner opens a pair, waits for a processor and is
/// copied. Through rank 0, each rank has one partner and one wait, but rank 0 copies everything.
#[inline]
pub(crate) fn usual_alltoall(block: u64, ranks: u32, room: JobProcessors<'_>) -> Alltoall {
    let all = block.saturating_mul(ranks as u64);
    let (from, most) = match room {
        JobProcessors::Own | JobProcessors::Hosts(_) => (BRUCK_RANKS, BRUCK_BYTES),
        JobProcessors::Shared | JobProcessors::Tight => (BRUCK_RANKS_SHARED, BRUCK_BYTES_SHARED),
    };
    let pays = ranks >= FLAT_ALLTOALL_RANKS || block <= FLAT_ALLTOALL_BLOCK;
    if ranks >= BRUCK_RANKS && pays && room.is_flat(all, FLAT_ALLTOALL) {
        Alltoall::Flat
    } else if ranks >= from && block <= most {
        Alltoall::Bruck
    } else {
        Alltoall::Together
    }
}

#[inline]
fn in_place_alltoall(total: u64) -> Alltoall {
    if total <= IN_PLACE_COPY { Alltoall::Copied } else { Alltoall::Pairs }
}

/// Size of a reduction's vector, and the properties of the operation that the choice depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) bytes: u64,
    pub(crate) count: u64,
    pub(crate) commutes: bool,
    pub(crate) is_contiguous: bool,
    pub(crate) order: ReductionOrder,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReductionOrder {
    /// Any order is allowed, because the result has the same bits, or because the user accepts different bits.
    Free,
    /// Only the order that the ranks and the count determine.
    Fixed,
    /// Only the order of the tree of [`tree::Actors`], because the reduction is a part of a call that combines operands
    /// along the tree.
    Tree,
}

impl Size {
    /// Returns whether the elements can be divided among the ranks and their operands combined in any order.
    pub(crate) fn can_share(&self, ranks: u32) -> bool {
        self.commutes && self.count >= ranks as u64
    }

    /// Returns the size of a part of the call, whose operands are combined along the tree unless the order is free.
    pub(crate) fn along_tree(self) -> Size {
        let order = match self.order {
            ReductionOrder::Free => ReductionOrder::Free,
            ReductionOrder::Fixed | ReductionOrder::Tree => ReductionOrder::Tree,
        };
        Size { order, ..self }
    }

    /// Returns whether elements are contiguous and short enough for each member to combine part of a shared buffer.
    fn has_short_elements(&self) -> bool {
        self.is_contiguous && self.bytes <= self.count.saturating_mul(SHARED_ELEMENT)
    }

    /// Returns whether a reduce-scatter combines operands along the tree, not around a ring. To keep results
    /// reproducible, only the vector and the operation decide.
    pub(crate) fn scatters_along_tree(&self) -> bool {
        self.bytes <= REDUCE_SCATTER_SHORT || !self.commutes
    }

    /// Returns whether an allreduce uses a ring. A ring combines operands in a different order from all other
    /// algorithms. To keep results reproducible, only the vector and the number of ranks decide.
    fn goes_round(&self, ranks: u32) -> bool {
        let least = ALLREDUCE_RING.max(RING_BLOCK.saturating_mul(ranks.into()));
        !ranks.is_power_of_two() && self.bytes >= least && self.can_share(ranks)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reduce {
    Flat,
    Binomial,
    Halving,
    Shared,
    Nodes,
}

#[inline]
pub(crate) fn reduce(size: Size, ranks: u32, place: CallPlace<'_>) -> Reduce {
    let room = place.room;
    let fits_buffers = size.has_short_elements();
    let usual = if ranks == 2 || room.is_flat(size.bytes, FLAT_REDUCE) {
        Reduce::Flat
    } else if let JobProcessors::Hosts(on) = room {
        on.choose(&REDUCE, size.bytes, size.facts(ranks), |s| {
            hosts::reduce(s, &NetworkCosts::TCP, size, ranks)
        })
    } else if fits_buffers && size.bytes > LINE_ALLREDUCE && place.shares_by_lines() {
        Reduce::Shared
    } else if size.bytes >= REDUCE_LONG && size.can_share(ranks) {
        Reduce::Halving
    } else {
        Reduce::Binomial
    };
    let may = |how| match how {
        Reduce::Halving => size.can_share(ranks),
        Reduce::Shared => fits_buffers && place.may_share,
        Reduce::Nodes => room.may_combine(size),
        _ => true,
    };
    settle(&REDUCE, usual, || size.bytes, ranks, may)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allreduce {
    Flat,
    Doubling,
    HalvingDoubling,
    Ring,
    Shared,
    Lines,
    Nodes,
}

#[inline]
pub(crate) fn allreduce(size: Size, ranks: u32, place: CallPlace<'_>) -> Allreduce {
    let room = place.room;
    let goes_round = size.order != ReductionOrder::Tree && size.goes_round(ranks);
    let may_share = place.may_share && size.has_short_elements() && !goes_round;
    let fits_lines = size.is_contiguous && size.bytes <= LINE_ALLREDUCE;
    let usual = if ranks <= 2 {
        let long = match room {
            JobProcessors::Hosts(_) => ALLREDUCE_LONG_APART,
            _ => ALLREDUCE_LONG,
        };
        match size.bytes >= long && size.can_share(ranks) {
            true => Allreduce::HalvingDoubling,
            false => Allreduce::Doubling,
        }
    } else if may_share && room.shares_allreduce(size.bytes, ranks) {
        Allreduce::Shared
    } else if room.is_flat(size.bytes, FLAT_ALLREDUCE) {
        Allreduce::Flat
    } else if let JobProcessors::Hosts(on) = room {
        on.choose(&ALLREDUCE, size.bytes, size.facts(ranks), |s| {
            hosts::allreduce(s, &NetworkCosts::TCP, size, ranks)
        })
    } else if fits_lines && place.uses_lines() {
        Allreduce::Lines
    } else if may_share && place.shares_by_lines() {
        Allreduce::Shared
    } else if size.bytes < ALLREDUCE_LONG || !size.can_share(ranks) {
        Allreduce::Doubling
    } else if goes_round {
        Allreduce::Ring
    } else {
        Allreduce::HalvingDoubling
    };
    // Short exchanges of two ranks use the immediate path, which ignores named algorithms. The code below must ignore
    // the names too, because the other rank may take the immediate path.
    let is_immediate = ranks == 2 && size.bytes <= SHORT_LIMIT as u64;
    let may = |how| match how {
        Allreduce::Doubling => true,
        _ if is_immediate => false,
        Allreduce::HalvingDoubling => size.can_share(ranks),
        Allreduce::Ring => size.can_share(ranks) && size.order != ReductionOrder::Tree,
        Allreduce::Shared => may_share,
        Allreduce::Lines => fits_lines && place.may_line,
        Allreduce::Nodes => room.may_combine(size),
        Allreduce::Flat => true,
    };
    settle(&ALLREDUCE, usual, || size.bytes, ranks, may)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReduceScatter {
    Allreduce,
    Ring,
    /// Through shared buffers, in the order of `Allreduce` or `Ring`, whichever the vector's size selects.
    Shared,
}

#[inline]
pub(crate) fn reduce_scatter(
    call: &'static CallAlgorithms<ReduceScatter>, size: Size, ranks: u32, place: CallPlace<'_>,
) -> ReduceScatter {
    let fits_buffers = size.has_short_elements();
    let usual = if fits_buffers && size.bytes > LINE_ALLREDUCE && place.shares_by_lines() {
        ReduceScatter::Shared
    } else if size.scatters_along_tree() {
        ReduceScatter::Allreduce
    } else {
        ReduceScatter::Ring
    };
    let may = |how| match how {
        ReduceScatter::Allreduce => true,
        ReduceScatter::Ring => size.commutes,
        ReduceScatter::Shared => fits_buffers && place.may_share,
    };
    settle(call, usual, || size.bytes, ranks, may)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scan {
    Chain,
    Doubling,
    /// Recursive doubling through shared lines.
    Lines,
}

#[inline]
pub(crate) fn scan(
    call: &'static CallAlgorithms<Scan>, size: Size, ranks: u32, place: CallPlace<'_>,
) -> Scan {
    let fits_lines =
        size.is_contiguous && size.bytes <= LINE_SCAN_NAMED && ranks <= LINE_SCAN_RANKS;
    let usual = if place.room.is_shared() || ranks == 2 {
        Scan::Chain
    } else if fits_lines && size.bytes <= LINE_SCAN && place.uses_lines() {
        Scan::Lines
    } else {
        Scan::Doubling
    };
    let may = |how| how != Scan::Lines || (fits_lines && place.may_line);
    settle(call, usual, || size.bytes, ranks, may)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Neighbor {
    Linear,
}

#[inline]
pub(crate) fn neighbor(
    call: &'static CallAlgorithms<Neighbor>, block: impl FnOnce() -> u64, ranks: u32,
) -> Neighbor {
    settle(call, Neighbor::Linear, block, ranks, |_| true)
}
