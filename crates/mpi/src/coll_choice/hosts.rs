//! Costs of the algorithms for members on several hosts.
//!
//! The cost of an algorithm is the sum of its steps. A message between hosts has a latency, and waits for other
//! messages that leave its host at the same time. A message within a host costs its copy. The cheapest algorithm is
//! chosen. `simulator/clock.rs` runs the algorithms with the same two kinds of message and checks the choice: see
//! `docs/scale.md`.
//!
//! References: Alexandrov et al., LogGP (1995); Culler et al., LogP (1993).

use super::tree;
use super::tree::Actors;
use super::{
    Allgather, Allreduce, BCAST_LONG, Barrier, Bcast, REDUCE_LONG, Reduce, ReductionOrder, Size,
};
use fastpath_base::float;

/// Distribution of the members of a call over hosts, equal on all members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spread {
    /// Number of hosts, at least 2.
    pub nodes: u32,
    /// Number of members.
    pub ranks: u32,
    /// Number of members on the host that has most of them.
    pub most: u32,
    /// Whether the members of each host are consecutive ranks.
    pub in_blocks: bool,
    /// With `in_blocks`: largest power of two such that each aligned group of that many actors ([`Actors`]) is on one
    /// host. 0 if the two ranks of an actor are on different hosts.
    pub aligned: u32,
    /// Without `in_blocks`: whether consecutive ranks are on consecutive hosts, round-robin.
    pub dealt: bool,
    /// With `in_blocks`: maximum number of operand-tree branches of one host. 1 only if all hosts have the same number
    /// of members, a power of two.
    pub branches: u32,
    /// With several branches: number of values that the heads of hosts send one after the other ([`branches`]).
    pub exchanged: u32,
}

/// Costs of messages, in nanoseconds or nanoseconds per byte.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NetworkCosts {
    /// Empty message between hosts, from the start of the send call to the end of the receive call.
    pub message: f64,
    /// Time for which a message occupies its host's adapter.
    pub gap: f64,
    /// Additional byte of a message between hosts.
    pub byte: f64,
    /// Message within a host.
    pub near_message: f64,
    /// Additional byte of a message within a host.
    pub near_byte: f64,
    /// Arithmetic of a reduction on one byte.
    pub fold_byte: f64,
}

impl NetworkCosts {
    /// TCP over Ethernet of 10 Gbit/s. The costs within a host are those of `selection/constants.rs`.
    pub const TCP: NetworkCosts = NetworkCosts {
        message: 12_000.0,
        gap: 1_000.0,
        byte: 0.8,
        near_message: 350.0,
        near_byte: 0.1,
        fold_byte: 0.1,
    };
}

fn levels(members: u32) -> u32 {
    members.max(1).next_power_of_two().ilog2()
}

impl Spread {
    /// Returns the distribution for hosts with consecutive ranks. `starts` is the first rank of each host, then the
    /// number of ranks.
    pub(crate) fn of(starts: &[u32]) -> Spread {
        let sizes = || starts.windows(2).map(|pair| pair[1] - pair[0]);
        let ranks = starts.last().copied().unwrap_or(0);
        let most = sizes().max().unwrap_or(1);
        let actors = Actors::of(ranks.max(1));
        let parts = starts.windows(2).map(|pair| pair[0]..pair[1]);
        let branches = match most.is_power_of_two() && sizes().all(|size| size == most) {
            true => 1,
            false => parts.map(|part| tree::count(actors, part)).fold(2, u32::max),
        };
        let inner = starts.get(1..starts.len().saturating_sub(1));
        let inner = inner.unwrap_or_default().iter();
        let leaves = inner.fold(0, |all, &first| all | actors.leaf(first));
        Spread {
            nodes: starts.len().saturating_sub(1) as u32,
            ranks,
            most,
            in_blocks: true,
            aligned: (1 << leaves.trailing_zeros().min(30)) / 2,
            dealt: false,
            branches,
            exchanged: match branches {
                1 => 0,
                _ => tree::exchanged(starts),
            },
        }
    }

    /// Returns the distribution if hosts do not have consecutive ranks. For `dealt` see [`Spread::dealt`].
    pub(crate) fn mixed(self, dealt: bool) -> Spread {
        Spread { in_blocks: false, aligned: 0, dealt, branches: 1, exchanged: 0, ..self }
    }

    /// Returns the distribution of a call between one member of each host.
    pub(crate) fn between(self) -> Spread {
        Spread {
            nodes: self.nodes,
            ranks: self.nodes,
            most: 1,
            in_blocks: true,
            aligned: 0,
            dealt: false,
            branches: 1,
            exchanged: 0,
        }
    }

    /// Returns the distribution of a call within the largest host.
    fn within(self) -> Spread {
        Spread { nodes: 1, ranks: self.most, ..self }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Costs<'n> {
    network: &'n NetworkCosts,
    spread: Spread,
}

impl Costs<'_> {
    pub(crate) fn new(spread: Spread, network: &NetworkCosts) -> Costs<'_> {
        Costs { network, spread }
    }

    fn of(self, spread: Spread) -> Self {
        Costs { spread, ..self }
    }

    /// Cost of a step in which `at_once` messages leave a host at the same time. 0 means a message within a host.
    fn step(self, bytes: f64, at_once: f64) -> f64 {
        let NetworkCosts { message, gap, byte, .. } = *self.network;
        match self.spread.nodes == 1 || at_once == 0.0 {
            true => self.near(bytes),
            false => message + at_once * (gap + bytes * byte) - gap,
        }
    }

    /// Cost of a message between hosts, in nanoseconds.
    fn far(self, bytes: f64) -> f64 {
        self.step(bytes, 1.0)
    }

    /// Cost of a message within a host, in nanoseconds.
    fn near(self, bytes: f64) -> f64 {
        self.network.near_message + bytes * self.network.near_byte
    }

    fn fold(self, bytes: f64) -> f64 {
        bytes * self.network.fold_byte
    }

    fn most(self) -> f64 {
        f64::from(self.spread.most)
    }

    /// Returns the number of messages that leave a host at the same time if rank r sends to r + 2^step.
    fn shifted(self, step: u32) -> f64 {
        match self.spread.in_blocks {
            true => f64::from(self.spread.most.min(1 << step)),
            false => self.most(),
        }
    }

    /// Returns the number of messages that leave a host at the same time if actor r sends to actor r xor 2^step.
    fn paired(self, step: u32) -> f64 {
        let Spread { nodes, dealt, .. } = self.spread;
        let returns = dealt && nodes.is_power_of_two() && 1 << step >= nodes;
        if returns || 1 << step < self.spread.aligned {
            return 0.0;
        }
        // If some pairs of ranks act as one, a host has fewer actors than ranks.
        let actors = Actors::of(self.spread.ranks).count;
        let share = f64::from(actors) / f64::from(self.spread.ranks);
        (self.shifted(step).min(self.most() * share)).max(1.0)
    }

    /// Returns the number of messages that leave a host at the same time if 2^step actors send towards the root. The
    /// lowest ranks act in pairs, so the hosts near the root have about half as many actors as ranks.
    fn gathered(self, step: u32) -> f64 {
        let near_root = match self.spread.ranks.is_power_of_two() {
            true => self.most(),
            false => (self.most() / 2.0).max(1.0),
        };
        let paired = self.paired(step);
        paired.min(near_root).min(f64::from(1u32 << step))
    }

    /// Cost of combining the operands of paired ranks in one actor, or of sending the result to the other rank of each
    /// pair.
    fn join(self, bytes: f64) -> f64 {
        match self.spread.ranks.is_power_of_two() {
            true => 0.0,
            false if self.spread.aligned > 0 => self.near(bytes),
            false if self.spread.in_blocks => self.far(bytes),
            false => self.step(bytes, self.most() / 2.0),
        }
    }

    fn doublings(self) -> std::ops::Range<u32> {
        0..self.spread.ranks.ilog2()
    }

    /// Cost of a ring. In a step each rank sends a block to the next rank. The result is the larger of the time of one
    /// block's path and the adapters' time for all blocks.
    fn ring(self, bytes: f64) -> f64 {
        let hops = f64::from(self.spread.ranks - 1);
        let part = bytes / f64::from(self.spread.ranks);
        if self.spread.nodes == 1 {
            return hops * self.near(part);
        }
        let (between, at_once) = match self.spread.in_blocks {
            true => (hops.min(f64::from(self.spread.nodes)), 1.0),
            false => (hops, self.most()),
        };
        let round = between * self.far(part) + (hops - between) * self.near(part);
        round.max(hops * at_once * (self.network.gap + part * self.network.byte))
    }

    fn barrier(self, how: Barrier) -> f64 {
        match how {
            Barrier::Flat | Barrier::Lines => f64::INFINITY,
            Barrier::Dissemination => {
                (0..levels(self.spread.ranks)).map(|step| self.step(0.0, self.shifted(step))).sum()
            }
            Barrier::Nodes => {
                let heads = self.of(self.spread.between());
                let inside = f64::from(levels(self.spread.most));
                2.0 * inside * self.near(0.0) + heads.barrier(Barrier::Dissemination)
            }
        }
    }

    /// Cost of a tree in which each message has all bytes. `folds` tells whether the receiver reduces each message.
    fn tree(self, bytes: f64, folds: bool) -> f64 {
        let Spread { ranks, nodes, aligned, .. } = self.spread;
        // The root has more children than the longest path to it has steps. Bytes count once for each child on another
        // host, latencies once for each step between hosts.
        let all = ranks.ilog2();
        let fold = if folds { self.fold(bytes) } else { 0.0 };
        let moved = match self.spread.in_blocks || nodes == 1 {
            true => {
                let pair = u32::from(aligned == 0 && !ranks.is_power_of_two());
                let branches = all + pair - aligned.clamp(1, ranks).ilog2();
                let once = u32::from(self.spread.most > 1 && aligned < self.spread.most);
                let hops = branches.min(nodes.ilog2() + once);
                f64::from(hops) * self.far(0.0)
                    + f64::from(branches) * (self.far(bytes) - self.far(0.0))
                    + f64::from(all.saturating_sub(hops)) * self.near(bytes)
            }
            false => {
                let at_once = |step: u32| match self.spread.dealt && nodes.is_power_of_two() {
                    true => self.paired(step),
                    // In each step half of the remaining ranks send. If ranks are round-robin on an even number of
                    // hosts, the senders of the first step are on every second host.
                    false => {
                        let whole = if self.spread.dealt { nodes.trailing_zeros() } else { 0 };
                        let halves = (step + 1).saturating_sub(whole);
                        (self.most() / f64::from(1u32 << halves)).max(1.0)
                    }
                };
                (0..all).map(|step| self.step(bytes, at_once(step))).sum()
            }
        };
        moved + f64::from(all) * fold
    }

    fn bcast(self, how: Bcast, bytes: f64) -> f64 {
        match how {
            Bcast::Flat | Bcast::Lines => f64::INFINITY,
            Bcast::Binomial => self.tree(bytes, false),
            Bcast::ScatterAllgather => {
                let all = match self.spread.nodes {
                    1 => bytes * self.network.near_byte,
                    _ => bytes * self.network.byte,
                };
                self.tree(0.0, false) + all + self.ring(bytes)
            }
            Bcast::Nodes => {
                let heads = self.of(self.spread.between());
                let heads = [Bcast::Binomial, Bcast::ScatterAllgather]
                    .map(|how| heads.bcast(how, bytes))
                    .into_iter();
                heads.fold(f64::INFINITY, f64::min) + self.of(self.spread.within()).own_bcast(bytes)
            }
        }
    }

    /// Cost of a broadcast by the algorithm that is chosen within one host.
    fn own_bcast(self, bytes: f64) -> f64 {
        match bytes < BCAST_LONG as f64 {
            true => self.bcast(Bcast::Binomial, bytes),
            false => self.bcast(Bcast::ScatterAllgather, bytes),
        }
    }

    /// Cost of recursive halving or doubling. `at_once` returns the number of messages that leave a host at the same
    /// time in a step.
    fn halving(self, bytes: f64, at_once: impl Fn(u32) -> f64) -> f64 {
        let part = |step: u32| bytes / 2f64.powi(step as i32 + 1);
        let steps = self.doublings();
        steps.map(|step| self.step(part(step), at_once(step))).sum()
    }

    fn reduce(self, how: Reduce, size: Size) -> f64 {
        let bytes = size.bytes as f64;
        match how {
            Reduce::Flat | Reduce::Shared => f64::INFINITY,
            Reduce::Binomial => self.tree(bytes, true),
            Reduce::Halving => {
                let scatter = self.halving(bytes, |step| self.paired(step));
                let gather = self.halving(bytes, |step| self.gathered(step));
                self.join(bytes) + scatter + gather + self.fold(bytes)
            }
            Reduce::Nodes if self.spread.has_branches(size) => self.meet(size),
            Reduce::Nodes => {
                let heads = self.of(self.spread.between());
                let heads = heads.best_reduce(size);
                heads + self.of(self.spread.within()).own_reduce(size)
            }
        }
    }

    fn best_reduce(self, size: Size) -> f64 {
        let shared = match size.can_share(self.spread.ranks) {
            true => self.reduce(Reduce::Halving, size),
            false => f64::INFINITY,
        };
        self.reduce(Reduce::Binomial, size).min(shared)
    }

    /// Cost of a reduction by the algorithm that is chosen within one host.
    fn own_reduce(self, size: Size) -> f64 {
        match size.bytes >= REDUCE_LONG && size.can_share(self.spread.ranks) {
            true => self.reduce(Reduce::Halving, size),
            false => self.reduce(Reduce::Binomial, size),
        }
    }

    /// Cost of a reduction whose result all heads of hosts get, if hosts have several branches.
    fn meet(self, size: Size) -> f64 {
        let NetworkCosts { message, gap, byte, .. } = *self.network;
        let bytes = size.bytes as f64;
        let steps = f64::from(levels(self.spread.nodes));
        let exchanged = f64::from(self.spread.exchanged);
        let last = match self.spread.nodes.is_power_of_two() {
            true => 0.0,
            false => self.far(bytes),
        };
        self.of(self.spread.within()).own_reduce(size)
            + f64::from(self.spread.branches - 1) * self.near(bytes)
            + steps * (message - gap)
            + exchanged * (gap + bytes * byte + self.fold(bytes))
            + last
    }

    fn allreduce(self, how: Allreduce, size: Size) -> f64 {
        let bytes = size.bytes as f64;
        match how {
            Allreduce::Flat | Allreduce::Shared | Allreduce::Lines => f64::INFINITY,
            Allreduce::Doubling => {
                let steps = self.doublings();
                let step = |step| self.step(bytes, self.paired(step)) + self.fold(bytes);
                2.0 * self.join(bytes) + steps.map(step).sum::<f64>()
            }
            Allreduce::HalvingDoubling => {
                let halving = self.halving(bytes, |step| self.paired(step));
                2.0 * (self.join(bytes) + halving) + self.fold(bytes)
            }
            Allreduce::Ring => 2.0 * self.ring(bytes) + self.fold(bytes),
            Allreduce::Nodes => {
                let node = self.of(self.spread.within());
                let sum = match self.spread.has_branches(size) {
                    true => self.meet(size),
                    false => {
                        let heads = self.of(self.spread.between());
                        node.own_reduce(size) + heads.best_allreduce(size)
                    }
                };
                sum + node.own_bcast(bytes)
            }
        }
    }

    fn best_allreduce(self, size: Size) -> f64 {
        let shares = size.can_share(self.spread.ranks);
        let free = shares && size.order == ReductionOrder::Free;
        [(Allreduce::Doubling, true), (Allreduce::HalvingDoubling, shares), (Allreduce::Ring, free)]
            .into_iter()
            .filter(|candidate| candidate.1)
            .map(|candidate| self.allreduce(candidate.0, size))
            .fold(f64::INFINITY, f64::min)
    }

    /// Cost of an allgather of `bytes` bytes in total.
    fn allgather(self, how: Allgather, bytes: f64) -> f64 {
        let block = bytes / f64::from(self.spread.ranks);
        let part = |step: u32| block * 2f64.powi(step as i32);
        match how {
            Allgather::Flat | Allgather::Together | Allgather::Shared | Allgather::Lines => {
                f64::INFINITY
            }
            Allgather::Doubling => {
                self.doublings().map(|step| self.step(part(step), self.paired(step))).sum()
            }
            Allgather::Bruck => {
                let last = levels(self.spread.ranks).saturating_sub(1);
                let step = |step| {
                    let sent = match step == last {
                        true => bytes - part(step),
                        false => part(step),
                    };
                    self.step(sent, self.shifted(step))
                };
                (0..=last).map(step).sum()
            }
            Allgather::Ring => self.ring(bytes),
            Allgather::Nodes => {
                let heads = self.of(self.spread.between()).best_allgather(bytes);
                let node = self.of(self.spread.within());
                self.near(block) + heads + node.own_bcast(bytes)
            }
        }
    }

    fn best_allgather(self, bytes: f64) -> f64 {
        let tree = match self.spread.nodes.is_power_of_two() {
            true => Allgather::Doubling,
            false => Allgather::Bruck,
        };
        self.allgather(tree, bytes).min(self.allgather(Allgather::Ring, bytes))
    }
}

/// Returns the cheapest candidate that is allowed.
fn cheapest<T: Copy>(candidates: &[(T, bool)], cost: impl Fn(T) -> f64) -> T {
    // The rounding mode is fixed, so that every rank computes the same costs.
    float::isolated(|| {
        let mut best = (candidates[0].0, f64::INFINITY);
        for &(how, _) in candidates.iter().filter(|candidate| candidate.1) {
            let cost = cost(how);
            if cost < best.1 {
                best = (how, cost);
            }
        }
        best.0
    })
}

impl Spread {
    pub(super) fn has_levels(self) -> bool {
        self.most > 1
    }

    /// Returns whether operands may be combined within hosts first. If the order matters, hosts need consecutive ranks.
    pub(crate) fn may_combine(self, size: Size) -> bool {
        let free = size.commutes && size.order == ReductionOrder::Free;
        self.has_levels() && (free || self.in_blocks)
    }

    /// Returns whether hosts exchange the values of several tree branches separately.
    pub(crate) fn has_branches(self, size: Size) -> bool {
        self.in_blocks && self.branches > 1 && size.order != ReductionOrder::Free
    }
}

pub(super) fn barrier(spread: Spread, network: &NetworkCosts) -> Barrier {
    let costs = Costs::new(spread, network);
    let candidates = [(Barrier::Dissemination, true), (Barrier::Nodes, spread.has_levels())];
    cheapest(&candidates, |how| costs.barrier(how))
}

pub(super) fn bcast(spread: Spread, network: &NetworkCosts, bytes: u64) -> Bcast {
    let costs = Costs::new(spread, network);
    let candidates = [
        (Bcast::Binomial, true),
        (Bcast::ScatterAllgather, true),
        (Bcast::Nodes, spread.has_levels()),
    ];
    cheapest(&candidates, |how| costs.bcast(how, bytes as f64))
}

pub(super) fn reduce(spread: Spread, network: &NetworkCosts, size: Size, ranks: u32) -> Reduce {
    let costs = Costs::new(spread, network);
    let candidates = [
        (Reduce::Binomial, true),
        (Reduce::Halving, size.can_share(ranks)),
        (Reduce::Nodes, spread.may_combine(size)),
    ];
    cheapest(&candidates, |how| costs.reduce(how, size))
}

pub(super) fn allreduce(
    spread: Spread, network: &NetworkCosts, size: Size, ranks: u32,
) -> Allreduce {
    let costs = Costs::new(spread, network);
    let shares = size.can_share(ranks);
    if size.order == ReductionOrder::Fixed && size.goes_round(ranks) {
        return Allreduce::Ring;
    }
    let candidates = [
        (Allreduce::Doubling, true),
        (Allreduce::HalvingDoubling, shares),
        (Allreduce::Ring, shares && size.order == ReductionOrder::Free),
        (Allreduce::Nodes, spread.may_combine(size)),
    ];
    cheapest(&candidates, |how| costs.allreduce(how, size))
}

/// Chooses the algorithm of an allgather. `doubles` tells whether recursive doubling is possible.
pub(super) fn allgather(
    spread: Spread, network: &NetworkCosts, bytes: u64, doubles: bool,
) -> Allgather {
    let costs = Costs::new(spread, network);
    let candidates = [
        (Allgather::Bruck, true),
        (Allgather::Doubling, doubles),
        (Allgather::Ring, true),
        (Allgather::Nodes, spread.has_levels()),
    ];
    cheapest(&candidates, |how| costs.allgather(how, bytes as f64))
}
