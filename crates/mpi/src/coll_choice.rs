//! Which algorithm runs, by bytes, ranks and whether ranks share processors. All ranks of a call come to the same
//! answer: what is asked here is the same on all of them.
//!
//! Where ranks share processors a call goes through rank 0 (or the root) up to some size: each rank is scheduled once
//! or twice, where a tree or a ring would wait for a processor at every step. Where processors are few the root's work
//! is a fair part of all work, and the size is large. Otherwise few steps win while a message costs its latency, and
//! few bytes win when it costs its copy.
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
//! Shared buffers are for blocking calls of ranks that share processors (`shared`). Two ranks exchange what they have.
//! An allreduce of many bytes whose operation does not commute does it in pieces that stay in the cache.
//!
//! References: Thakur, Rabenseifner and Gropp, Optimization of Collective Communication Operations in MPICH (2005);
//! Bruck et al., Efficient Algorithms for All-to-All Communications (1997); Hensgen, Finkel and Manber, Two
//! Algorithms for Barrier Synchronization (1988); Patarasuk and Yuan, Bandwidth Optimal All-reduce Algorithms (2009).

#![allow(unsafe_code)]

mod asked;
pub(crate) mod hosts;
mod kept;
pub(crate) mod nodes;
pub(crate) mod tree;

pub(crate) use asked::{
    ALLGATHER, ALLGATHERV, ALLREDUCE, ALLTOALL, ALLTOALLV, ALLTOALLW, BARRIER, BCAST, Call, EXSCAN,
    GATHER, GATHERV, NEIGHBOR_ALLGATHER, NEIGHBOR_ALLGATHERV, NEIGHBOR_ALLTOALL,
    NEIGHBOR_ALLTOALLV, NEIGHBOR_ALLTOALLW, REDUCE, REDUCE_SCATTER, REDUCE_SCATTER_BLOCK, SCAN,
    SCATTER, SCATTERV, ask, counts, note_between, report, wants_any_order,
};
pub use kept::Placement;
pub use nodes::Nodes;

use asked::settle;
use fastpath_bootstrap::job::Job;
use fastpath_protocol::worker::SHORT_LIMIT;
pub(crate) use hosts::Network;

/// How many processors the ranks of the job have, awake or not: the same on all ranks and at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room<'a> {
    /// One for each rank.
    Own,
    /// Fewer than ranks.
    Shared,
    /// Fewer than ranks, and few at all.
    Tight,
    /// The ranks are on several hosts.
    Hosts(&'a Placement),
}

impl Room<'_> {
    /// Of ranks that share one host.
    #[inline]
    pub(crate) fn on_host(job: &Job) -> Room<'static> {
        // What all members of a communicator find alike, whatever was spawned meanwhile and on whichever node they are.
        if job.nodes() > 1 || job.began_with() <= job.processors() {
            Room::Own
        } else if job.processors() > FEW_PROCESSORS {
            Room::Shared
        } else {
            Room::Tight
        }
    }

    /// Whether ranks wait for each other's processor.
    fn is_shared(self) -> bool {
        matches!(self, Room::Shared | Room::Tight)
    }

    /// Whether some host has several of the ranks, and there are others.
    fn has_levels(self) -> bool {
        matches!(self, Room::Hosts(on) if on.spread.has_levels())
    }

    /// The same for a reduction that was named: another order of operands is allowed then, except for those that must
    /// be in the order of ranks.
    fn may_combine(self, size: Size) -> bool {
        matches!(self, Room::Hosts(on) if on.spread.has_levels()
            && (size.commutes || on.spread.in_blocks))
    }

    /// How an allgather goes where ranks share processors, unless it takes as long as where they do not.
    fn allgather(self, total: u64, ranks: u32) -> Option<Allgather> {
        let (flat, together) = match ranks {
            0..=FEW_RANKS => (0, TOGETHER_FEW),
            MANY_RANKS => (FLAT_ALLGATHER_MANY, TOGETHER_MORE),
            _ if ranks > MANY_RANKS => (FLAT_ALLGATHER_MANY, 0),
            _ => (FLAT_ALLGATHER, TOGETHER_MORE),
        };
        match self {
            Room::Own | Room::Hosts(_) => None,
            _ if self.is_flat(total, flat) && flat != 0 => Some(Allgather::Flat),
            _ if total <= together => Some(Allgather::Together),
            _ if ranks <= FEW_RANKS => Some(Allgather::Ring),
            _ => None,
        }
    }

    /// Whether an allgather goes through shared buffers where there are some.
    fn shares_allgather(self, total: u64, ranks: u32) -> bool {
        let from = match ranks <= FEW_RANKS {
            true => SHARED_ALLGATHER,
            false => SHARED_ALLGATHER_MORE,
        };
        self.is_shared() && total >= from
    }

    /// The same of an allreduce.
    fn shares_allreduce(self, bytes: u64, ranks: u32) -> bool {
        let from = match ranks < MANY_RANKS {
            true => SHARED_ALLREDUCE,
            false => SHARED_ALLREDUCE_MANY,
        };
        self.is_shared() && bytes >= from
    }

    /// Whether a call of `bytes` bytes goes through one rank; `tight` is the limit where processors are few.
    #[inline]
    fn is_flat(self, bytes: u64, tight: u64) -> bool {
        match self {
            Room::Own | Room::Hosts(_) => false,
            Room::Shared => bytes <= FLAT_BYTES,
            Room::Tight => bytes <= tight,
        }
    }
}

/// Processors that count as few.
const FEW_PROCESSORS: usize = 4;
/// Bytes up to which a call goes through one rank where ranks share processors.
const FLAT_BYTES: u64 = 8 << 10;
/// The same for a reduction where processors are few.
const FLAT_REDUCE: u64 = 2 << 20;
/// The same for an allreduce: all ranks have a part of the work of a longer one.
const FLAT_ALLREDUCE: u64 = 32 << 10;
/// The same for all blocks of an allgather.
const FLAT_ALLGATHER: u64 = 16 << 10;
/// The same for those of many ranks: a pair for any two of them costs more.
const FLAT_ALLGATHER_MANY: u64 = 512 << 10;
/// Ranks that are many.
const MANY_RANKS: u32 = 16;
/// Most ranks for which no rank waits long for a turn: all send to all at once.
const FEW_RANKS: u32 = 4;
/// Bytes in all up to which an allgather of few ranks does that where they share processors; and one of more ranks.
const TOGETHER_FEW: u64 = 128 << 10;
const TOGETHER_MORE: u64 = 2 << 20;
/// Bytes of a broadcast from which it is scattered and gathered again.
const BCAST_LONG: u64 = 128 << 10;
/// Ranks from which a gather or scatter of short blocks uses a tree.
const TREE_RANKS: u32 = 16;
/// Bytes of a block up to which such a tree is used.
const TREE_BYTES: u64 = 512;
/// The same for the blocks that one rank sends in an alltoall.
const FLAT_ALLTOALL: u64 = 32 << 10;
/// Ranks from which it does whatever a block has; fewer wait less often, and do so for blocks of up to
/// [`FLAT_ALLTOALL_BLOCK`] bytes.
const FLAT_ALLTOALL_RANKS: u32 = 16;
const FLAT_ALLTOALL_BLOCK: u64 = 64;
/// Bytes in all from which an allgather goes round a ring.
const ALLGATHER_LONG: u64 = 256 << 10;
/// Ranks from which a short alltoall goes by Bruck's algorithm.
const BRUCK_RANKS: u32 = 8;
/// Bytes of a block up to which it does.
const BRUCK_BYTES: u64 = 128;
/// Both where ranks share processors, and those rank 0 serves are too many or too long.
const BRUCK_RANKS_SHARED: u32 = 32;
const BRUCK_BYTES_SHARED: u64 = 1024;
/// Bytes of all blocks up to which an alltoall in place copies them first.
const IN_PLACE_COPY: u64 = 1 << 20;
/// Bytes of a reduction from which the ranks share the arithmetic.
const REDUCE_LONG: u64 = 16 << 10;
/// Bytes of an allreduce from which the ranks share the arithmetic.
const ALLREDUCE_LONG: u64 = 32 << 10;
/// The same of two ranks on two hosts: each further exchange costs the way between them.
const ALLREDUCE_LONG_APART: u64 = 512 << 10;
/// Bytes of a piece of an allreduce by recursive doubling: what two ranks send, receive and add stays in their caches.
pub(crate) const ALLREDUCE_PIECE: u64 = 256 << 10;
/// Bytes of an allreduce from which a number of ranks that is no power of two uses a ring, and bytes of each rank's
/// part.
const ALLREDUCE_RING: u64 = 256 << 10;
const RING_BLOCK: u64 = 4 << 10;
/// Bytes of an allreduce from which it goes through shared buffers where ranks share processors, of few and of many
/// ranks, and most bytes of an element.
const SHARED_ALLREDUCE: u64 = FLAT_ALLREDUCE + 1;
const SHARED_ALLREDUCE_MANY: u64 = 16 << 10;
const SHARED_ELEMENT: u64 = 1 << 10;
/// Bytes in all from which an allgather does, of few ranks and of more.
const SHARED_ALLGATHER: u64 = 32 << 10;
const SHARED_ALLGATHER_MORE: u64 = 8 << 10;
/// Bytes in all of a reduce-scatter up to which every rank reduces everything.
const REDUCE_SCATTER_SHORT: u64 = 8 << 10;

/// How a barrier goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Barrier {
    Flat,
    Dissemination,
    Nodes,
}

#[inline]
pub(crate) fn barrier(ranks: u32, room: Room<'_>) -> Barrier {
    let usual = match room {
        Room::Hosts(on) => {
            on.choose(&BARRIER, 0, 0, |spread| hosts::barrier(spread, &Network::TCP))
        }
        Room::Shared | Room::Tight if ranks > 2 => Barrier::Flat,
        _ => Barrier::Dissemination,
    };
    let may = |how| match how {
        Barrier::Flat => ranks > 2,
        Barrier::Dissemination => true,
        Barrier::Nodes => room.has_levels(),
    };
    settle(&BARRIER, usual, || 0, ranks, may)
}

/// How a broadcast goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bcast {
    Flat,
    Binomial,
    ScatterAllgather,
    Nodes,
}

#[inline]
pub(crate) fn bcast(bytes: u64, ranks: u32, room: Room<'_>) -> Bcast {
    let usual = if ranks == 2 || room.is_flat(bytes, u64::MAX) {
        Bcast::Flat
    } else if let Room::Hosts(on) = room {
        on.choose(&BCAST, bytes, 0, |s| hosts::bcast(s, &Network::TCP, bytes))
    } else if bytes >= BCAST_LONG && room == Room::Own {
        Bcast::ScatterAllgather
    } else {
        Bcast::Binomial
    };
    let may = |how| how != Bcast::Nodes || room.has_levels();
    settle(&BCAST, usual, || bytes, ranks, may)
}

/// How a gather or a scatter goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gather {
    Linear,
    Binomial,
}

/// Of blocks of one length.
#[inline]
pub(crate) fn gather(
    call: &'static Call<Gather>, block: u64, ranks: u32, room: Room<'_>,
) -> Gather {
    let usual = if !room.is_shared() && ranks >= TREE_RANKS && block <= TREE_BYTES {
        Gather::Binomial
    } else {
        Gather::Linear
    };
    settle(call, usual, || block, ranks, |_| true)
}

/// Of blocks whose lengths only the root knows; `block`: the longest that this rank knows, as in what follows.
#[inline]
pub(crate) fn gather_arrays(
    call: &'static Call<Gather>, block: impl FnOnce() -> u64, ranks: u32,
) -> Gather {
    settle(call, Gather::Linear, block, ranks, |how| how == Gather::Linear)
}

/// How an allgather goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allgather {
    Flat,
    Doubling,
    Bruck,
    Ring,
    Together,
    Shared,
    Nodes,
}

/// `total` bytes in all; `even` where all blocks are of one length and lie one after the other.
#[inline]
pub(crate) fn allgather(
    total: u64, even: bool, ranks: u32, (room, may_share): (Room<'_>, bool),
) -> Allgather {
    let doubles = even && ranks.is_power_of_two();
    let usual = if ranks == 2 {
        Allgather::Ring
    } else if let Room::Hosts(on) = room {
        on.choose(&ALLGATHER, total, doubles.into(), |s| {
            hosts::allgather(s, &Network::TCP, total, doubles)
        })
    } else if may_share && room.shares_allgather(total, ranks) {
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
        Allgather::Nodes => room.has_levels(),
        _ => true,
    };
    let call = if even { &ALLGATHER } else { &ALLGATHERV };
    settle(call, usual, || total, ranks, may)
}

/// How an alltoall goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alltoall {
    Flat,
    Bruck,
    /// Not in place.
    Together,
    /// Only in place, as the next one. Ranks need not agree on which: a pair exchanges two messages either way.
    Copied,
    Pairs,
}

/// For blocks of `block` bytes, all of one length.
#[inline]
pub(crate) fn alltoall(block: u64, ranks: u32, in_place: bool, room: Room<'_>) -> Alltoall {
    let usual = match usual_alltoall(block, ranks, room) {
        Alltoall::Together if in_place => in_place_alltoall(block.saturating_mul(ranks.into())),
        how => how,
    };
    let may = |how| match how {
        Alltoall::Flat | Alltoall::Bruck => ranks > 2,
        Alltoall::Together => !in_place,
        Alltoall::Copied | Alltoall::Pairs => in_place,
    };
    settle(&ALLTOALL, usual, || block, ranks, may)
}

/// The same of blocks of any lengths, whose sum is `in_place` where they go where they come from; `block`: the longest.
#[inline]
pub(crate) fn alltoall_arrays(
    call: &'static Call<Alltoall>, block: impl FnOnce() -> u64, ranks: u32, in_place: Option<u64>,
) -> Alltoall {
    let usual = in_place.map_or(Alltoall::Together, in_place_alltoall);
    let may = |how| (how == Alltoall::Together) == in_place.is_none();
    settle(call, usual, block, ranks, may)
}

/// The usual algorithm of an alltoall that is not in place.
///
/// Counts what all ranks know: messages, of which the first to a partner opens a pair, waits for a processor, and
/// copies. Through rank 0 each rank has one partner and waits once, and rank 0 copies everything.
#[inline]
pub(crate) fn usual_alltoall(block: u64, ranks: u32, room: Room<'_>) -> Alltoall {
    let all = block.saturating_mul(ranks as u64);
    let (from, most) = match room {
        Room::Own | Room::Hosts(_) => (BRUCK_RANKS, BRUCK_BYTES),
        Room::Shared | Room::Tight => (BRUCK_RANKS_SHARED, BRUCK_BYTES_SHARED),
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

/// `total` bytes of all blocks.
#[inline]
fn in_place_alltoall(total: u64) -> Alltoall {
    if total <= IN_PLACE_COPY { Alltoall::Copied } else { Alltoall::Pairs }
}

/// What a reduction asks for: bytes and elements of the vector, and whether the operation commutes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) bytes: u64,
    pub(crate) count: u64,
    pub(crate) commutes: bool,
    pub(crate) is_contiguous: bool,
    pub(crate) order: Order,
}

/// In which order operands may be combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// In any: the result has the same bits, or the user has said that they do not matter.
    Free,
    /// Only as ranks and count say.
    Fixed,
    /// Along the tree of [`tree::Actors`]: this is a part of a call that does so as a whole.
    Tree,
}

impl Size {
    /// Whether the elements can be dealt out to the ranks, in any order of operands.
    pub(crate) fn can_share(&self, ranks: u32) -> bool {
        self.commutes && self.count >= ranks as u64
    }

    /// Of a part of the call.
    pub(crate) fn along_tree(self) -> Size {
        let order = match self.order {
            Order::Free => Order::Free,
            Order::Fixed | Order::Tree => Order::Tree,
        };
        Size { order, ..self }
    }

    /// Whether elements are contiguous and so short that each member combines some of what fits a shared buffer.
    fn has_short_elements(&self) -> bool {
        self.is_contiguous && self.bytes <= self.count.saturating_mul(SHARED_ELEMENT)
    }

    /// Whether an allreduce goes round a ring: it combines each element in another order than all other algorithms, so
    /// only ranks and count may decide.
    fn goes_round(&self, ranks: u32) -> bool {
        let least = ALLREDUCE_RING.max(RING_BLOCK.saturating_mul(ranks.into()));
        !ranks.is_power_of_two() && self.bytes >= least && self.can_share(ranks)
    }
}

/// How a reduce goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reduce {
    Flat,
    Binomial,
    Halving,
    Nodes,
}

#[inline]
pub(crate) fn reduce(size: Size, ranks: u32, room: Room<'_>) -> Reduce {
    let usual = if ranks == 2 || room.is_flat(size.bytes, FLAT_REDUCE) {
        Reduce::Flat
    } else if let Room::Hosts(on) = room {
        on.choose(&REDUCE, size.bytes, size.facts(ranks), |s| {
            hosts::reduce(s, &Network::TCP, size, ranks)
        })
    } else if size.bytes >= REDUCE_LONG && size.can_share(ranks) {
        Reduce::Halving
    } else {
        Reduce::Binomial
    };
    let may = |how| match how {
        Reduce::Halving => size.can_share(ranks),
        Reduce::Nodes => room.may_combine(size),
        _ => true,
    };
    settle(&REDUCE, usual, || size.bytes, ranks, may)
}

/// How an allreduce goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allreduce {
    Flat,
    Doubling,
    HalvingDoubling,
    Ring,
    Shared,
    Nodes,
}

#[inline]
pub(crate) fn allreduce(size: Size, ranks: u32, (room, may_share): (Room<'_>, bool)) -> Allreduce {
    let goes_round = size.order != Order::Tree && size.goes_round(ranks);
    let may_share = may_share && size.has_short_elements() && !goes_round;
    let usual = if ranks <= 2 {
        let long = match room {
            Room::Hosts(_) => ALLREDUCE_LONG_APART,
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
    } else if let Room::Hosts(on) = room {
        on.choose(&ALLREDUCE, size.bytes, size.facts(ranks), |s| {
            hosts::allreduce(s, &Network::TCP, size, ranks)
        })
    } else if size.bytes < ALLREDUCE_LONG || !size.can_share(ranks) {
        Allreduce::Doubling
    } else if goes_round {
        Allreduce::Ring
    } else {
        Allreduce::HalvingDoubling
    };
    // Two ranks exchange so few bytes on the immediate path, which asks for no name; each must find the other there.
    let is_immediate = ranks == 2 && size.bytes <= SHORT_LIMIT as u64;
    let may = |how| match how {
        Allreduce::Doubling => true,
        _ if is_immediate => false,
        Allreduce::HalvingDoubling => size.can_share(ranks),
        Allreduce::Ring => size.can_share(ranks) && size.order != Order::Tree,
        Allreduce::Shared => may_share,
        Allreduce::Nodes => room.may_combine(size),
        Allreduce::Flat => true,
    };
    settle(&ALLREDUCE, usual, || size.bytes, ranks, may)
}

/// How a reduce-scatter goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReduceScatter {
    Allreduce,
    Ring,
}

/// `size` is that of the whole vector.
#[inline]
pub(crate) fn reduce_scatter(
    call: &'static Call<ReduceScatter>, size: Size, ranks: u32,
) -> ReduceScatter {
    let usual = if size.bytes <= REDUCE_SCATTER_SHORT || !size.commutes {
        ReduceScatter::Allreduce
    } else {
        ReduceScatter::Ring
    };
    let may = |how| how == ReduceScatter::Allreduce || size.commutes;
    settle(call, usual, || size.bytes, ranks, may)
}

/// How a scan goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scan {
    Chain,
    Doubling,
}

#[inline]
pub(crate) fn scan(call: &'static Call<Scan>, bytes: u64, ranks: u32, room: Room<'_>) -> Scan {
    let usual = if room.is_shared() || ranks == 2 { Scan::Chain } else { Scan::Doubling };
    settle(call, usual, || bytes, ranks, |_| true)
}

/// How a call with neighbours goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Neighbor {
    Linear,
}

/// `block` bytes of the longest block.
#[inline]
pub(crate) fn neighbor(
    call: &'static Call<Neighbor>, block: impl FnOnce() -> u64, ranks: u32,
) -> Neighbor {
    settle(call, Neighbor::Linear, block, ranks, |_| true)
}
