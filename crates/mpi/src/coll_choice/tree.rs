//! The tree along which operands of reductions are combined, and which consecutive ranks are branches of it.

use std::ops::Range;

/// The largest power of two of ranks. Of the ranks beyond it, each acts through its neighbour: the first few pairs
/// count as one, in which the odd rank acts.
///
/// They are the leaves of the tree along which operands are combined: pairs first, then neighbouring actors, then
/// neighbouring pairs of actors. All algorithms but the ring combine so, and therefore give the same bits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Actors {
    /// Number of actors, a power of two.
    pub(crate) count: u32,
    /// Number of pairs.
    pairs: u32,
}

impl Actors {
    /// The actors of `ranks` ranks.
    #[inline]
    pub(crate) fn of(ranks: u32) -> Actors {
        let count = 1 << ranks.ilog2();
        Actors { count, pairs: ranks - count }
    }

    /// Number of ranks.
    #[inline]
    pub(crate) fn ranks(self) -> u32 {
        self.count + self.pairs
    }

    /// Whether the rank is one of a pair; its other half differs in the last bit.
    #[inline]
    pub(crate) fn is_paired(self, rank: u32) -> bool {
        rank < 2 * self.pairs
    }

    /// The number of an actor. Actors are in the order of ranks.
    #[inline]
    pub(crate) fn number(self, rank: u32) -> u32 {
        if self.is_paired(rank) { rank / 2 } else { rank - self.pairs }
    }

    /// The rank of an actor.
    #[inline]
    pub(crate) fn rank(self, number: u32) -> u32 {
        if number < self.pairs { 2 * number + 1 } else { number + self.pairs }
    }

    /// The first leaf of a rank in a tree in which each actor has two; of the number of ranks, the end.
    pub(crate) fn leaf(self, rank: u32) -> u64 {
        if self.is_paired(rank) { rank.into() } else { 2 * u64::from(rank - self.pairs) }
    }

    /// The first rank that has no leaf before this one.
    pub(crate) fn rank_of_leaf(self, leaf: u64) -> u32 {
        if leaf < 2 * u64::from(self.pairs) {
            leaf as u32
        } else {
            leaf.div_ceil(2) as u32 + self.pairs
        }
    }

    /// The first rank of an actor; for the number of actors, the end.
    pub(crate) fn first(self, number: u32) -> u32 {
        if number < self.pairs { 2 * number } else { number + self.pairs }
    }

    /// The rank of an actor, where `root` acts for its pair.
    #[inline]
    pub(crate) fn rank_beside(self, root: u32, number: u32) -> u32 {
        if number == self.number(root) { root } else { self.rank(number) }
    }
}

/// The leaves `start..start + size` of the tree: `size` is a power of two that divides `start`. A rank that acts for
/// itself has two leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Branch {
    start: u64,
    size: u64,
}

impl Branch {
    /// Whether both are the halves of a branch, this one the lower.
    pub(crate) fn continues(self, upper: Branch) -> bool {
        let is_lower = self.start & self.size == 0;
        is_lower && self.size == upper.size && self.start + self.size == upper.start
    }

    /// The branch whose lower half it is.
    pub(crate) fn twice(self) -> Branch {
        Branch { start: self.start, size: 2 * self.size }
    }

    /// The ranks that it has.
    pub(crate) fn ranks(self, actors: Actors) -> Range<u32> {
        actors.rank_of_leaf(self.start)..actors.rank_of_leaf(self.start + self.size)
    }
}

/// The largest branches that some consecutive ranks are, in order.
pub(crate) fn branches(actors: Actors, ranks: Range<u32>) -> impl Iterator<Item = Branch> {
    let (mut start, end) = (actors.leaf(ranks.start), actors.leaf(ranks.end));
    std::iter::from_fn(move || {
        let left = (end - start).checked_ilog2()?;
        let size = 1 << start.trailing_zeros().min(left);
        let branch = Branch { start, size };
        start += size;
        Some(branch)
    })
}

/// How many of them there are.
pub(crate) fn count(actors: Actors, ranks: Range<u32>) -> u32 {
    branches(actors, ranks).count() as u32
}

/// The nodes whose operands actor `number` has combined before the step of that mask.
pub(crate) fn those_of(actors: Actors, number: u32, mask: u32) -> Range<u32> {
    let first = number - number % mask;
    actors.first(first)..actors.first(first + mask)
}

/// For hosts that begin at these ranks, with the end: how many values the heads send one after the other, since all
/// wait for the one that sends most.
pub(crate) fn exchanged(starts: &[u32]) -> u32 {
    let actors = Actors::of(starts.last().copied().unwrap_or(1).max(1));
    let heads = Actors::of((starts.len() as u32 - 1).max(1));
    let sent = |nodes: Range<u32>| {
        let ranks = starts[nodes.start as usize]..starts[nodes.end as usize];
        count(actors, ranks)
    };
    let paired = (0..heads.ranks()).filter(|&head| heads.is_paired(head));
    let first = paired.map(|head| sent(head..head + 1)).max();
    let steps = (0..heads.count.ilog2()).map(|step| {
        let mask = 1 << step;
        let groups = (0..heads.count).step_by(mask as usize);
        let sent = groups.map(|group| sent(those_of(heads, group, mask)));
        sent.max().unwrap_or(0)
    });
    first.unwrap_or(0) + steps.sum::<u32>()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn branches__are_the_largest_ones() {
        let parts = |ranks, of| {
            let actors = Actors::of(ranks);
            let ranks = branches(actors, of).map(|branch| branch.ranks(actors));
            ranks.collect::<Vec<_>>()
        };
        assert_eq!(parts(64, 0..48), [0..32, 32..48]);
        assert_eq!(parts(64, 48..64), std::slice::from_ref(&(48..64)));
        assert_eq!(parts(8, 3..7), [3..4, 4..6, 6..7]);
        // Ranks 0 and 1, 2 and 3 act as one; the tree is ((0 1) (2 3)) (4 5).
        assert_eq!(parts(6, 0..6), std::slice::from_ref(&(0..6)));
        assert_eq!(parts(6, 1..5), [1..2, 2..4, 4..5]);
    }

    proptest! {
        #[test]
        fn branches__have_each_rank_once_and_join(ranks in 1u32..3000, cuts in any::<[u32; 2]>()) {
            let actors = Actors::of(ranks);
            let mut cuts = cuts.map(|cut| cut % (ranks + 1));
            cuts.sort();
            let parts = [0..cuts[0], cuts[0]..cuts[1], cuts[1]..ranks];
            let mut next = 0;
            let mut held: Vec<Branch> = Vec::new();
            for branch in parts.into_iter().flat_map(|part| branches(actors, part)) {
                let has = branch.ranks(actors);
                prop_assert_eq!(has.start, next);
                prop_assert!(has.end > next);
                next = has.end;
                held.push(branch);
                while let &[.., lower, upper] = &held[..] && lower.continues(upper) {
                    held.truncate(held.len() - 2);
                    held.push(lower.twice());
                }
            }
            prop_assert_eq!(next, ranks);
            prop_assert_eq!(held.len(), 1);
        }
    }
}
