//! Schedule of the collective calls that use shared lines: which ranks read the lines of which others. Pure.
//!
//! In an exchange of several rounds, each rank reads the lines of a few partners, in the same L3 first, then in the
//! same socket, then in other sockets. After the last round each rank has the data of all. Broadcasts follow a tree
//! (`line_tree`).
//!
//! The number of partners in each round minimizes the time in a model of cache lines: the first line of a round takes
//! the latency between the two processors, each further line [`LineCosts::next_ns`].
//!
//! References: Ramos and Hoefler, Modeling Communication in Cache-coherent SMP Systems (2013), for the model.

pub(crate) use super::line_tree::{CachePlace, LineCosts, TREE_STEPS};

use super::line_pieces::{PieceSource, PieceTrees};
use super::line_tree::{Branching, TreePlaces};
use super::tree::{Actors, Branch, branches, count};
use std::cell::OnceCell;
use std::ops::Range;

/// Maximum bytes of data of one step of a call.
pub(crate) const STEP_BYTES: usize = (2 << 10) - 8;
/// Maximum bytes of data of a call, in all steps.
pub(crate) const CALL_BYTES: usize = MAX_ROUNDS * STEP_BYTES;
/// Largest number of ranks that exchange lines in one round. A set of them fits a word.
pub(crate) const MAX_RADIX: u32 = 64;
/// Largest number of rounds of an exchange.
pub(crate) const MAX_ROUNDS: usize = 8;
/// Largest number of values that the members of a round hold before it, in an exchange along the tree of a reduction.
pub(crate) const MAX_VALUES: usize = MAX_RADIX as usize;

/// One round of an exchange, as one rank sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Round {
    /// Ranks whose lines this rank reads, in ascending order of position. They read this rank's line.
    pub(crate) partners: Box<[u32]>,
    /// Index of this rank among the members of the round: its partners and itself.
    pub(crate) own: usize,
    /// First rank whose data the first member holds before the round. Only for exchanges in rank order.
    pub(crate) first: u32,
    /// Number of ranks whose data each member holds before the round.
    pub(crate) length: u32,
    /// Branches of which the members hold the values before the round, in rank order. Only for exchanges in rank order.
    pub(crate) branches: Box<[Branch]>,
    /// Index in `branches` of the first branch of each member, then the number of branches.
    pub(crate) starts: Box<[usize]>,
}

impl Round {
    /// Returns the indices in `branches` of the branches of a member.
    pub(crate) fn values_of(&self, member: usize) -> Range<usize> {
        self.starts[member]..self.starts[member + 1]
    }

    /// Returns the first rank whose data a member holds before the round.
    pub(crate) fn first_of(&self, member: usize) -> u32 {
        self.first + member as u32 * self.length
    }

    /// Returns the index of a partner among the members.
    pub(crate) fn member(&self, partner: usize) -> usize {
        partner + usize::from(partner >= self.own)
    }
}

/// Part of one rank in a gather.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Collecting {
    /// Rank that reads what this rank publishes; `None` at the root.
    parent: Option<u32>,
    /// Ranks of which this rank publishes the data, in that order. The first is this rank.
    pub(crate) ranks: Box<[u32]>,
    /// Ranks that publish for this rank.
    pub(crate) children: Box<[u32]>,
    /// Index in `ranks` of the first rank of each child, then the number of ranks.
    pub(crate) starts: Box<[usize]>,
    /// Largest number of ranks of which a rank other than the root publishes the data.
    pub(crate) most: u64,
}

impl Collecting {
    /// Returns the part of `rank` in a gather to `root`, in which each rank publishes for its parent.
    fn new(rank: u32, root: u32, parents: &[Option<u32>]) -> Collecting {
        fn add(children: &[Vec<u32>], rank: u32, ranks: &mut Vec<u32>) {
            ranks.push(rank);
            children[rank as usize].iter().for_each(|&child| add(children, child, ranks));
        }
        let mut children = vec![Vec::new(); parents.len()];
        for (rank, parent) in (0..).zip(parents) {
            if let Some(parent) = *parent {
                children[parent as usize].push(rank);
            }
        }
        let (mut ranks, mut starts) = (vec![rank], Vec::new());
        for &child in &children[rank as usize] {
            starts.push(ranks.len());
            add(&children, child, &mut ranks);
        }
        starts.push(ranks.len());
        let most = children[root as usize].iter().map(|&child| {
            let mut ranks = Vec::new();
            add(&children, child, &mut ranks);
            ranks.len() as u64
        });
        Collecting {
            parent: parents[rank as usize],
            most: most.max().unwrap_or(0),
            children: std::mem::take(&mut children[rank as usize]).into(),
            ranks: ranks.into(),
            starts: starts.into(),
        }
    }
}

/// Schedule of one rank.
#[derive(Debug)]
pub struct LinePlan {
    rank: u32,
    tree: TreePlaces,
    pieces: OnceCell<PieceTrees>,
    /// Ranks by position, and the radices of the digits of a position, of `any_order`.
    order: Box<[u32]>,
    radices: Box<[u32]>,
    /// Rounds of exchanges of which the order does not matter.
    any_order: Box<[Round]>,
    /// Rounds in which every set of ranks is consecutive.
    in_order: Box<[Round]>,
    /// Largest number of values that any member publishes in a round of `in_order`.
    most_values: u64,
    trees: Box<[OnceCell<Branching>]>,
    gathers: Box<[OnceCell<Collecting>]>,
}

/// Ranks that read a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    /// Partners of a round of [`LinePlan::any_order`].
    AnyOrder(u32),
    /// Partners of a round of [`LinePlan::in_order`].
    InOrder(u32),
    /// Children in the broadcast from a root.
    Children(u32),
    /// Children that read one line in the broadcast from a root: root, index of the line.
    ChildrenOf(u32, u32),
    /// Parent in the gather to a root.
    Parent(u32),
    /// Rank whose number differs in one bit, if there is such a rank: index of the bit.
    Twin(u32),
    /// Ranks that copy a piece of a long broadcast from this rank's buffer: root, index of the piece.
    OfPiece(u32, u32),
    /// All other ranks.
    All,
}

impl LinePlan {
    /// Makes the schedule of `rank`. `places` has the place of each rank's processor. Returns `None` if no schedule
    /// with few partners and rounds exists, such as for 67 ranks.
    pub(crate) fn new(rank: u32, places: &[CachePlace], costs: &LineCosts) -> Option<LinePlan> {
        let ranks = places.len() as u32;
        let mut order: Vec<u32> = (0..ranks).collect();
        order.sort_by_key(|&rank| (places[rank as usize], rank));
        let radices = group_sizes(places).and_then(|levels| join_radices(&levels, costs));
        let flat = || choose_radices(ranks, worst_ns(places, costs), costs.next_ns);
        let is_in_order = order.is_sorted();
        let in_order = match (&radices, is_in_order) {
            (Some(radices), true) => radices.clone(),
            _ => flat()?,
        };
        let any_order = radices.unwrap_or_else(|| in_order.clone());
        if any_order.len().max(in_order.len()) > MAX_ROUNDS {
            return None;
        }
        let by_rank: Vec<u32> = (0..ranks).collect();
        let (most_values, most_in_round) = count_values(ranks, &in_order);
        if most_in_round > MAX_VALUES as u64 {
            return None;
        }
        Some(LinePlan {
            rank,
            tree: TreePlaces::new(places, costs),
            pieces: OnceCell::new(),
            any_order: rounds(rank, &order, &any_order),
            in_order: rounds(rank, &by_rank, &in_order),
            order: order.into(),
            radices: any_order.into(),
            most_values,
            trees: (0..ranks).map(|_| OnceCell::new()).collect(),
            gathers: (0..ranks).map(|_| OnceCell::new()).collect(),
        })
    }

    /// Returns the largest number of ranks whose data a member publishes in a round in rank order.
    pub(crate) fn most_held(&self) -> u64 {
        self.in_order.last().map_or(1, |round| round.length.into())
    }

    /// Returns the largest number of values that any member publishes in a reduction in rank order.
    pub(crate) fn most_values(&self) -> u64 {
        self.most_values
    }

    pub(crate) fn rank(&self) -> u32 {
        self.rank
    }

    pub(crate) fn ranks(&self) -> u32 {
        self.trees.len() as u32
    }

    pub(crate) fn any_order(&self) -> &[Round] {
        &self.any_order
    }

    pub(crate) fn in_order(&self) -> &[Round] {
        &self.in_order
    }

    /// Returns this rank's place in the broadcast from `root`.
    pub(crate) fn branching(&self, root: u32) -> &Branching {
        self.trees[root as usize].get_or_init(|| self.tree.branching(self.rank, root))
    }

    /// Returns this rank's part in the gather to `root`.
    pub(crate) fn collecting(&self, root: u32) -> &Collecting {
        let make = || Collecting::new(self.rank, root, &self.gather_parents(root));
        self.gathers[root as usize].get_or_init(make)
    }

    /// Returns the parent of each rank in a gather to `root`: the rank of the first round of an exchange whose digit
    /// differs from that of the root, and is replaced by it. So the gather takes the rounds of the exchange.
    fn gather_parents(&self, root: u32) -> Vec<Option<u32>> {
        let mut parents = vec![None; self.order.len()];
        let end = self.order.iter().position(|&rank| rank == root).unwrap_or(0) as u32;
        for (position, &rank) in (0..).zip(&self.order) {
            let mut below = 1;
            for &radix in &self.radices {
                let (own, of_root) = (position / below % radix, end / below % radix);
                if own != of_root {
                    let parent = position - own * below + of_root * below;
                    parents[rank as usize] = Some(self.order[parent as usize]);
                    break;
                }
                below *= radix;
            }
        }
        parents
    }

    fn pieces(&self) -> &PieceTrees {
        self.pieces.get_or_init(|| PieceTrees::new(&self.tree.places, &self.tree.parts))
    }

    /// Returns this rank's source of a piece of the broadcast from `root`, and the distance from the root; see
    /// `PieceTrees::distance`. Returns `None` for the root.
    pub(crate) fn piece_source(&self, root: u32, piece: u32) -> Option<(PieceSource, u32)> {
        let source = self.pieces().source(self.rank, root, piece)?;
        Some((source, self.pieces().distance(source)))
    }

    /// Returns the largest number of leaders between the root and any rank.
    pub(crate) fn piece_depth(&self) -> u32 {
        self.pieces().depth()
    }

    /// Calls `visit` for each of the readers.
    #[inline]
    pub(crate) fn each_reader(&self, readers: Readers, mut visit: impl FnMut(u32)) {
        let ranks = match readers {
            Readers::AnyOrder(round) => &*self.any_order[round as usize].partners,
            Readers::InOrder(round) => &self.in_order[round as usize].partners,
            Readers::Children(root) => &self.branching(root).children,
            Readers::ChildrenOf(root, step) => self.branching(root).children_of(step),
            Readers::Parent(root) => self.collecting(root).parent.as_slice(),
            Readers::Twin(bit) => &[self.rank ^ (1 << bit)],
            Readers::OfPiece(root, piece) => {
                return self.pieces().each_child(self.rank, root, piece, &mut visit);
            }
            Readers::All => {
                return (0..self.ranks()).filter(|&rank| rank != self.rank).for_each(visit);
            }
        };
        if matches!(readers, Readers::Twin(_)) && ranks[0] >= self.ranks() {
            return;
        }
        ranks.iter().for_each(|&rank| visit(rank));
    }
}

/// Returns the number of ranks in an L3, of L3s in a socket, and of sockets; `None` if groups of a level differ in
/// size.
fn group_sizes(places: &[CachePlace]) -> Option<[u32; 3]> {
    let mut sorted = places.to_vec();
    sorted.sort();
    let equal = |sizes: Vec<usize>| match sizes.split_first() {
        Some((first, others)) if others.iter().all(|size| size == first) => Some(*first as u32),
        _ => None,
    };
    let ranks = equal(sorted.chunk_by(|a, b| a == b).map(<[_]>::len).collect())?;
    sorted.dedup();
    let l3s = equal(sorted.chunk_by(|a, b| a.socket == b.socket).map(<[_]>::len).collect())?;
    sorted.dedup_by_key(|place| place.socket);
    Some([ranks, l3s, sorted.len() as u32])
}

/// Returns the latency between the two most distant ranks.
fn worst_ns(places: &[CachePlace], costs: &LineCosts) -> f64 {
    let first = places.first().copied().unwrap_or_default();
    if places.iter().any(|place| place.socket != first.socket) {
        costs.other_socket_ns
    } else if places.iter().any(|place| place.l3 != first.l3) {
        costs.same_socket_ns
    } else {
        costs.same_l3_ns
    }
}

fn join_radices(levels: &[u32; 3], costs: &LineCosts) -> Option<Vec<u32>> {
    let latencies = [costs.same_l3_ns, costs.same_socket_ns, costs.other_socket_ns];
    let mut radices = Vec::new();
    for (&size, latency) in levels.iter().zip(latencies) {
        radices.extend(choose_radices(size, latency, costs.next_ns)?);
    }
    Some(radices)
}

/// Splits `ranks` into factors, so that the sum over the rounds of `first_ns + (factor - 2) next_ns` is smallest.
/// Returns `None` if a prime factor is above [`MAX_RADIX`].
fn choose_radices(ranks: u32, first_ns: f64, next_ns: f64) -> Option<Vec<u32>> {
    fn best(ranks: u32, least: u32, cost: &impl Fn(u32) -> f64) -> Option<(f64, Vec<u32>)> {
        if ranks == 1 {
            return Some((0.0, Vec::new()));
        }
        let factors = (least..=ranks.min(MAX_RADIX)).filter(|factor| ranks.is_multiple_of(*factor));
        let splits = factors.filter_map(|factor| {
            let (rest, mut radices) = best(ranks / factor, factor, cost)?;
            radices.push(factor);
            Some((cost(factor) + rest, radices))
        });
        splits.min_by(|a, b| a.0.total_cmp(&b.0))
    }
    best(ranks, 2, &|factor| first_ns + f64::from(factor - 2) * next_ns).map(|(_, radices)| radices)
}

/// Returns the largest number of values that a member publishes, and that the members of a round publish together, in
/// an exchange in rank order.
fn count_values(ranks: u32, radices: &[u32]) -> (u64, u64) {
    let actors = Actors::of(ranks);
    let (mut most, mut most_in_round, mut length) = (1, 1, 1);
    for &radix in radices {
        let counts: Vec<u64> = (0..ranks)
            .step_by(length as usize)
            .map(|start| count(actors, start..start + length).into())
            .collect();
        most = counts.iter().copied().max().unwrap_or(1).max(most);
        let sums = counts.chunks(radix as usize).map(|members| members.iter().sum());
        most_in_round = sums.max().unwrap_or(1).max(most_in_round);
        length *= radix;
    }
    (most, most_in_round)
}

/// Returns the rounds of `rank`. `order` has the ranks by position, and the radices belong to the digits of a position,
/// lowest digit first.
fn rounds(rank: u32, order: &[u32], radices: &[u32]) -> Box<[Round]> {
    let position = order.iter().position(|&other| other == rank).unwrap_or(0) as u32;
    let actors = Actors::of(order.len() as u32);
    let mut below = 1;
    let mut rounds = Vec::new();
    for &radix in radices {
        let first = position - position % (below * radix);
        let own = (position - first) / below;
        let at = |digit: u32| first + digit * below + position % below;
        let others = (0..radix).filter(|&digit| digit != own);
        let (mut held, mut starts) = (Vec::new(), vec![0]);
        for digit in 0..radix {
            let start = first + digit * below;
            held.extend(branches(actors, start..start + below));
            starts.push(held.len());
        }
        rounds.push(Round {
            partners: others.map(|digit| order[at(digit) as usize]).collect(),
            own: own as usize,
            first,
            length: below,
            branches: held.into(),
            starts: starts.into(),
        });
        below *= radix;
    }
    rounds.into()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the places of consecutive ranks on equal sockets.
    fn grid(l3: u32, l3s: u32, sockets: u32) -> Vec<CachePlace> {
        let place = |rank| CachePlace { socket: rank / (l3 * l3s), l3: rank / l3 };
        (0..l3 * l3s * sockets).map(place).collect()
    }

    fn plans(places: &[CachePlace]) -> Option<Vec<LinePlan>> {
        (0..places.len() as u32)
            .map(|rank| LinePlan::new(rank, places, &LineCosts::USUAL))
            .collect()
    }

    #[test]
    fn choose_radices__minimizes_the_sum() {
        assert_eq!(choose_radices(8, 27.0, 24.0), Some(vec![2, 2, 2]));
        assert_eq!(choose_radices(12, 99.0, 24.0).map(|r| r.iter().product()), Some(12));
        assert_eq!(choose_radices(12, 99.0, 24.0).map(|r| r.len()), Some(2));
        assert_eq!(choose_radices(12, 99.0, 1.0), Some(vec![12]));
        assert_eq!(choose_radices(1, 99.0, 24.0), Some(vec![]));
        assert_eq!(choose_radices(61, 99.0, 24.0), Some(vec![61]));
        assert_eq!(choose_radices(67, 99.0, 24.0), None);
        assert_eq!(choose_radices(192, 99.0, 24.0).map(|r| r.iter().product()), Some(192));
    }

    #[test]
    fn rounds__go_from_the_own_l3_to_other_sockets() {
        let places = grid(8, 12, 2);
        let plan = LinePlan::new(100, &places, &LineCosts::USUAL).unwrap();
        let distance = |rank: u32| {
            let (own, other) = (places[100], places[rank as usize]);
            u32::from(own.l3 != other.l3) + u32::from(own.socket != other.socket)
        };
        let distances: Vec<_> = plan
            .any_order()
            .iter()
            .map(|round| round.partners.iter().map(|&p| distance(p)).max())
            .collect();
        assert!(distances.is_sorted());
        assert_eq!(distances.last(), Some(&Some(2)));
    }

    #[test]
    fn branching__crosses_each_boundary_once() {
        let places = grid(8, 4, 2);
        for root in [0, 5, 33, 63] {
            let all = plans(&places).unwrap();
            let crossing = |key: fn(&CachePlace) -> u32| {
                let crosses = |plan: &&LinePlan| {
                    let parent = plan.branching(root).parent;
                    parent.is_some_and(|p| {
                        key(&places[p as usize]) != key(&places[plan.rank as usize])
                    })
                };
                all.iter().filter(crosses).count()
            };
            assert_eq!(crossing(|place| place.socket), 1);
            assert_eq!(crossing(|place| place.l3), 7);
        }
    }

    /// Returns the number of readers of each line of each rank that has readers.
    fn readers(places: &[CachePlace], root: u32) -> Vec<(u32, [usize; TREE_STEPS])> {
        let all = plans(places).unwrap();
        let counts = |plan: &LinePlan| {
            std::array::from_fn(|step| plan.branching(root).children_of(step as u32).len())
        };
        let parents = all.iter().filter(|plan| !plan.branching(root).children.is_empty());
        parents.map(|plan| (plan.rank, counts(plan))).collect()
    }

    #[test]
    fn branching__has_a_line_for_each_distance() {
        let leaders = [(0, [1, 7, 0, 7]), (8, [0, 0, 0, 7])];
        assert_eq!(readers(&grid(8, 8, 2), 0)[..2], leaders);
    }

    #[test]
    fn branching__when_l3s_are_few__has_no_leaders_of_them() {
        assert_eq!(readers(&grid(4, 3, 2), 1), [(1, [1, 8, 0, 3]), (12, [0, 8, 0, 3])]);
    }

    #[test]
    fn branching__splits_a_wide_l3() {
        let wide = readers(&grid(64, 1, 1), 0);
        assert!((7..10).contains(&wide.len()));
        assert!(wide.iter().all(|(_, counts)| counts.iter().all(|&count| count < 10)));
        assert_eq!(readers(&grid(8, 1, 1), 0), [(0, [0, 0, 0, 7])]);
    }

    proptest! {
        #[test]
        fn exchange__brings_the_data_of_all_to_all(places in any_places()) {
            let Some(all) = plans(&places) else { return Ok(()) };
            let ranks = all.len();
            for rounds in [LinePlan::any_order, LinePlan::in_order] {
                let mut known: Vec<Vec<bool>> =
                    (0..ranks).map(|rank| (0..ranks).map(|other| other == rank).collect()).collect();
                for step in 0..rounds(&all[0]).len() {
                    let before = known.clone();
                    for plan in &all {
                        let round = &rounds(plan)[step];
                        for &partner in &round.partners {
                            // Each reads the other.
                            prop_assert!(rounds(&all[partner as usize])[step].partners.contains(&plan.rank));
                            for (own, theirs) in known[plan.rank as usize].iter_mut().zip(&before[partner as usize]) {
                                prop_assert!(!(*own && *theirs), "data is counted twice");
                                *own |= theirs;
                            }
                        }
                    }
                }
                prop_assert!(known.iter().flatten().all(|&is_known| is_known));
            }
        }

        #[test]
        fn in_order__holds_branches_of_consecutive_ranks(places in any_places()) {
            let Some(all) = plans(&places) else { return Ok(()) };
            let actors = Actors::of(all.len() as u32);
            let range = |of: &[Branch]| {
                let ranges: Vec<_> = of.iter().map(|branch| branch.ranks(actors)).collect();
                assert!(ranges.windows(2).all(|two| two[0].end == two[1].start));
                ranges[0].start..ranges[ranges.len() - 1].end
            };
            for plan in &all {
                let mut held = plan.rank..plan.rank + 1;
                for round in plan.in_order() {
                    prop_assert_eq!(range(&round.branches[round.values_of(round.own)]), held.clone());
                    let first = round.first_of(round.own);
                    prop_assert_eq!(first..first + round.length, held);
                    for (index, partner) in round.partners.iter().enumerate() {
                        let values = round.values_of(round.member(index));
                        prop_assert!(values.len() as u64 <= plan.most_values());
                        prop_assert!(range(&round.branches[values]).contains(partner));
                    }
                    held = range(&round.branches);
                }
                prop_assert_eq!(held, 0..all.len() as u32);
            }
        }

        #[test]
        fn branching__is_a_tree_from_any_root(places in any_places(), root in 0u32..40) {
            let Some(all) = plans(&places) else { return Ok(()) };
            let root = root % all.len() as u32;
            let mut reached = 0;
            let mut next = vec![root];
            while let Some(rank) = next.pop() {
                reached += 1;
                for step in 0..TREE_STEPS as u32 {
                    for &child in all[rank as usize].branching(root).children_of(step) {
                        let branching = all[child as usize].branching(root);
                        prop_assert_eq!((branching.parent, branching.step), (Some(rank), step));
                        next.push(child);
                    }
                }
            }
            prop_assert_eq!(reached, all.len());
            prop_assert_eq!(all[root as usize].branching(root).parent, None);
        }
    }

    fn any_places() -> impl Strategy<Value = Vec<CachePlace>> {
        let even =
            (1u32..6, 1u32..4, 1u32..3).prop_map(|(l3, l3s, sockets)| grid(l3, l3s, sockets));
        let any = proptest::collection::vec(0u32..6, 1..40)
            .prop_map(|l3s| l3s.into_iter().map(|l3| CachePlace { socket: l3 / 3, l3 }).collect());
        prop_oneof![even, any]
    }
}
