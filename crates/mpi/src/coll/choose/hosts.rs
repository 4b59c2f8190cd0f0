//! What the algorithms cost where the members are on several hosts.
//!
//! A message between hosts costs a time by itself and waits for the others that leave its host at the same time; one
//! within a host costs its copy. Each algorithm is a sum of such steps, and the cheapest is taken. `simulator/clock.rs`
//! runs the algorithms themselves under the same two kinds of message and checks the choice: `docs/scale.md`.
//!
//! References: Alexandrov et al., LogGP (1995); Culler et al., LogP (1993).

use super::{Allgather, Allreduce, Barrier, Bcast, Reduce, Size};

/// How the members of a call are spread over hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spread {
    /// Hosts, at least 2.
    pub nodes: u32,
    /// Members on the host that has most.
    pub most: u32,
    /// Whether the members of each host are consecutive ranks.
    pub in_blocks: bool,
}

/// What messages cost, in nanoseconds, or nanoseconds for each byte.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Network {
    /// A message between hosts, however short, from the call of its sender to the end of its receiver's.
    pub message: f64,
    /// How long it keeps its host's adapter from the next.
    pub gap: f64,
    /// A byte between hosts.
    pub byte: f64,
    /// A message within a host.
    pub near_message: f64,
    /// A byte within a host.
    pub near_byte: f64,
    /// A byte of arithmetic.
    pub fold_byte: f64,
}

impl Network {
    /// TCP over Ethernet of 10 Gbit/s, which is what hosts talk by; memory as `selection/constants.rs` has it.
    pub const TCP: Network = Network {
        message: 12_000.0,
        gap: 1_000.0,
        byte: 0.8,
        near_message: 350.0,
        near_byte: 0.1,
        fold_byte: 0.1,
    };
}

/// Steps of a tree of so many members.
fn levels(members: u32) -> u32 {
    members.max(1).next_power_of_two().ilog2()
}

impl Spread {
    /// How one member of each host is spread.
    pub(in super::super) fn between(self) -> Spread {
        Spread {
            most: 1,
            in_blocks: true,
            ..self
        }
    }

    /// How all members of one host are.
    fn within(self) -> Spread {
        Spread {
            nodes: 1,
            in_blocks: true,
            ..self
        }
    }

    /// All members, where each host has as many.
    fn ranks(self) -> f64 {
        f64::from(self.nodes) * f64::from(self.most)
    }
}

/// Costs of algorithms under a network.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Costs<'n> {
    network: &'n Network,
    spread: Spread,
}

impl Costs<'_> {
    pub(in super::super) fn new(spread: Spread, network: &Network) -> Costs<'_> {
        Costs { network, spread }
    }

    fn of(self, spread: Spread) -> Self {
        Costs { spread, ..self }
    }

    /// A message between hosts, of which so many leave a host at once.
    fn far(self, bytes: f64, at_once: f64) -> f64 {
        let Network {
            message, gap, byte, ..
        } = *self.network;
        match self.spread.nodes {
            1 => self.near(bytes),
            _ => message + at_once.max(1.0) * (gap + bytes * byte) - gap,
        }
    }

    /// A message within a host.
    fn near(self, bytes: f64) -> f64 {
        self.network.near_message + bytes * self.network.near_byte
    }

    fn fold(self, bytes: f64) -> f64 {
        bytes * self.network.fold_byte
    }

    /// Steps within a host and between hosts, of an algorithm that has one for each power of two of ranks.
    fn steps(self) -> (u32, u32) {
        (levels(self.spread.most), levels(self.spread.nodes))
    }

    fn most(self) -> f64 {
        f64::from(self.spread.most)
    }

    /// Messages that leave a host at once where each rank sends to its neighbour.
    fn to_neighbour(self) -> f64 {
        match self.spread.in_blocks {
            true => 1.0,
            false => self.most(),
        }
    }

    /// A step for each rank: a block goes round, from rank to rank and host to host, and every rank's blocks pass the
    /// adapters.
    fn ring(self, bytes: f64) -> f64 {
        let (ranks, nodes) = (self.spread.ranks(), f64::from(self.spread.nodes));
        let part = bytes / ranks;
        if self.spread.nodes == 1 {
            return (ranks - 1.0) * self.near(part);
        }
        let between = if self.spread.in_blocks { nodes } else { ranks };
        let round = between * self.far(part, 1.0) + (ranks - between) * self.near(part);
        let passes = self.network.gap + part * self.network.byte;
        round.max((ranks - 1.0) * self.to_neighbour() * passes)
    }

    fn barrier(self, how: Barrier) -> f64 {
        let (inside, between) = self.steps();
        match how {
            Barrier::Flat => f64::INFINITY,
            Barrier::Dissemination => {
                let within: f64 = (0..inside)
                    .map(|step| match self.spread.in_blocks {
                        true => self.far(0.0, f64::from(1u32 << step)),
                        false => self.far(0.0, self.most()),
                    })
                    .sum();
                within + f64::from(between) * self.far(0.0, self.most())
            }
            Barrier::Nodes => {
                let heads = self.of(self.spread.between());
                2.0 * f64::from(inside) * self.near(0.0) + heads.barrier(Barrier::Dissemination)
            }
        }
    }

    /// A tree of which each message has all bytes, and each is folded where `folds`.
    fn tree(self, bytes: f64, folds: bool) -> f64 {
        let (inside, between) = self.steps();
        let (inside, between) = (f64::from(inside), f64::from(between));
        let fold = if folds { self.fold(bytes) } else { 0.0 };
        let far = match self.spread.in_blocks {
            // A tree whose hosts hold no power of two of ranks crosses once more.
            true => {
                let once = f64::from(!self.spread.most.is_power_of_two());
                inside * self.near(bytes) + (between + once) * self.far(bytes, 1.0)
            }
            false => inside * self.far(bytes, 1.0) + between * self.far(bytes, self.most()),
        };
        far + (inside + between) * fold
    }

    fn bcast(self, how: Bcast, bytes: f64) -> f64 {
        let (inside, between) = self.steps();
        match how {
            Bcast::Flat => f64::INFINITY,
            Bcast::Binomial => self.tree(bytes, false),
            Bcast::ScatterAllgather => {
                let scatter = f64::from(between) * self.far(0.0, 1.0)
                    + f64::from(inside) * self.near(0.0)
                    + self.far(bytes, 1.0)
                    - self.far(0.0, 1.0);
                scatter + self.ring(bytes)
            }
            Bcast::Nodes => {
                self.of(self.spread.between()).best_bcast(bytes)
                    + self.of(self.spread.within()).best_bcast(bytes)
            }
        }
    }

    fn best_bcast(self, bytes: f64) -> f64 {
        self.bcast(Bcast::Binomial, bytes)
            .min(self.bcast(Bcast::ScatterAllgather, bytes))
    }

    fn reduce(self, how: Reduce, bytes: f64) -> f64 {
        match how {
            Reduce::Flat => f64::INFINITY,
            Reduce::Binomial => self.tree(bytes, true),
            Reduce::RingGather => {
                let gather = self.spread.ranks() * self.network.gap + bytes * self.network.byte;
                let gather = match self.spread.nodes {
                    1 => self.spread.ranks() * self.near(0.0) + bytes * self.network.near_byte,
                    _ => gather,
                };
                self.ring(bytes) + self.fold(bytes) + gather
            }
            Reduce::Nodes => {
                self.of(self.spread.between()).best_reduce(bytes)
                    + self.of(self.spread.within()).best_reduce(bytes)
            }
        }
    }

    fn best_reduce(self, bytes: f64) -> f64 {
        self.reduce(Reduce::Binomial, bytes)
            .min(self.reduce(Reduce::RingGather, bytes))
    }

    fn allreduce(self, how: Allreduce, bytes: f64) -> f64 {
        let (inside, between) = self.steps();
        match how {
            Allreduce::Flat => f64::INFINITY,
            Allreduce::Doubling => {
                let far = self.far(bytes, self.most()) + self.fold(bytes);
                let near = match self.spread.in_blocks && self.spread.most.is_power_of_two() {
                    true => self.near(bytes) + self.fold(bytes),
                    false => far,
                };
                f64::from(between) * far + f64::from(inside) * near
            }
            Allreduce::HalvingDoubling => {
                let part = |step: u32| bytes / 2f64.powi(step as i32 + 1);
                let far: f64 = (0..between)
                    .map(|step| match self.spread.in_blocks {
                        true => self.far(part(step), self.most()),
                        false => self.far(part(inside + step), self.most()),
                    })
                    .sum();
                let near: f64 = (0..inside)
                    .map(|step| match self.spread.in_blocks {
                        true => self.near(part(between + step)),
                        false if self.spread.nodes.is_power_of_two() => self.near(part(step)),
                        false => self.far(part(step), self.most()),
                    })
                    .sum();
                2.0 * (far + near) + self.fold(bytes)
            }
            Allreduce::Ring => 2.0 * self.ring(bytes) + self.fold(bytes),
            Allreduce::Nodes => {
                let (heads, node) = (self.spread.between(), self.spread.within());
                let heads = self.of(heads).best_allreduce(bytes);
                let node = self.of(node);
                node.best_reduce(bytes) + heads + node.best_bcast(bytes)
            }
        }
    }

    fn best_allreduce(self, bytes: f64) -> f64 {
        [
            Allreduce::Doubling,
            Allreduce::HalvingDoubling,
            Allreduce::Ring,
        ]
        .into_iter()
        .map(|how| self.allreduce(how, bytes))
        .fold(f64::INFINITY, f64::min)
    }

    /// `bytes` of all blocks together.
    fn allgather(self, how: Allgather, bytes: f64) -> f64 {
        let (inside, between) = self.steps();
        let block = bytes / self.spread.ranks();
        let part = |step: u32| block * 2f64.powi(step as i32);
        match how {
            Allgather::Flat => f64::INFINITY,
            Allgather::Doubling | Allgather::Bruck => {
                let far = |first: u32| -> f64 {
                    (0..between)
                        .map(|step| self.far(part(first + step), self.most()))
                        .sum()
                };
                let near = |first: u32| -> f64 {
                    (0..inside)
                        .map(|step| match how {
                            Allgather::Doubling => self.near(part(first + step)),
                            _ => self.far(part(first + step), f64::from(1u32 << step)),
                        })
                        .sum()
                };
                let packed = match how {
                    Allgather::Bruck => 2.0 * bytes * self.network.near_byte,
                    _ => 0.0,
                };
                packed
                    + match self.spread.in_blocks {
                        true => near(0) + far(inside),
                        false => far(0) + near(between),
                    }
            }
            Allgather::Ring => self.ring(bytes),
            Allgather::Nodes => {
                let (heads, node) = (self.spread.between(), self.spread.within());
                let gather = self.most() * self.near(block);
                let packed = match self.spread.in_blocks {
                    true => 0.0,
                    false => 2.0 * bytes * self.network.near_byte,
                };
                let heads = self.of(heads).best_allgather(bytes);
                gather + packed + heads + self.of(node).best_bcast(bytes)
            }
        }
    }

    fn best_allgather(self, bytes: f64) -> f64 {
        let tree = match self.spread.nodes.is_power_of_two() {
            true => Allgather::Doubling,
            false => Allgather::Bruck,
        };
        self.allgather(tree, bytes)
            .min(self.allgather(Allgather::Ring, bytes))
    }
}

/// The cheapest of those that may be used.
fn cheapest<T: Copy>(candidates: &[(T, bool)], cost: impl Fn(T) -> f64) -> T {
    let mut best = (candidates[0].0, f64::INFINITY);
    for &(how, _) in candidates.iter().filter(|candidate| candidate.1) {
        let cost = cost(how);
        if cost < best.1 {
            best = (how, cost);
        }
    }
    best.0
}

impl Spread {
    /// Whether there is anything to be done within hosts.
    pub(super) fn has_levels(self) -> bool {
        self.most > 1
    }

    /// The same for an operation on vectors: operands of one host must be consecutive where the order counts.
    pub(super) fn may_combine(self, size: Size) -> bool {
        self.has_levels() && (size.commutes || self.in_blocks)
    }
}

pub(super) fn barrier(spread: Spread, network: &Network) -> Barrier {
    let costs = Costs::new(spread, network);
    let candidates = [
        (Barrier::Dissemination, true),
        (Barrier::Nodes, spread.has_levels()),
    ];
    cheapest(&candidates, |how| costs.barrier(how))
}

pub(super) fn bcast(spread: Spread, network: &Network, bytes: u64) -> Bcast {
    let costs = Costs::new(spread, network);
    let candidates = [
        (Bcast::Binomial, true),
        (Bcast::ScatterAllgather, true),
        (Bcast::Nodes, spread.has_levels()),
    ];
    cheapest(&candidates, |how| costs.bcast(how, bytes as f64))
}

pub(super) fn reduce(spread: Spread, network: &Network, size: Size, ranks: u32) -> Reduce {
    let costs = Costs::new(spread, network);
    let candidates = [
        (Reduce::Binomial, true),
        (Reduce::RingGather, size.can_share(ranks)),
        (Reduce::Nodes, spread.may_combine(size)),
    ];
    cheapest(&candidates, |how| costs.reduce(how, size.bytes as f64))
}

pub(super) fn allreduce(spread: Spread, network: &Network, size: Size, ranks: u32) -> Allreduce {
    let costs = Costs::new(spread, network);
    let candidates = [
        (Allreduce::Doubling, true),
        (Allreduce::HalvingDoubling, size.can_share(ranks)),
        (Allreduce::Ring, size.can_share(ranks)),
        (Allreduce::Nodes, spread.may_combine(size)),
    ];
    cheapest(&candidates, |how| costs.allreduce(how, size.bytes as f64))
}

/// `doubles`: whether recursive doubling can be used.
pub(super) fn allgather(spread: Spread, network: &Network, bytes: u64, doubles: bool) -> Allgather {
    let costs = Costs::new(spread, network);
    let candidates = [
        (Allgather::Bruck, true),
        (Allgather::Doubling, doubles),
        (Allgather::Ring, true),
        (Allgather::Nodes, spread.has_levels()),
    ];
    cheapest(&candidates, |how| costs.allgather(how, bytes as f64))
}
