//! Tree along which reductions combine operands, and the branches that consecutive ranks form in it.

use std::ops::Range;

/// Actors of a tree. Their number is the largest power of two that is not above the number of ranks. Therefore each of
/// the first few pairs of ranks is one actor, and the odd rank of the pair acts.
///
/// Ranks are the leaves of the tree. Operands are combined in pairs of ranks first, then between neighbouring actors,
/// then between neighbouring pairs of actors. All algorithms but the ring combine in this order, so they give the same
/// bits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Actors {
    /// Number of actors, a power of two.
    pub(crate) count: u32,
    pairs: u32,
}

impl Actors {
    #[inline]
    pub(crate) fn of(ranks: u32) -> Actors {
        let count = 1 << ranks.ilog2();
        Actors { count, pairs: ranks - count }
    }

    #[inline]
    pub(crate) fn ranks(self) -> u32 {
        self.count + self.pairs
    }

    /// Returns whether the rank is in a pair that acts as one. The other rank of the pair differs in the last bit.
    #[inline]
    pub(crate) fn is_paired(self, rank: u32) -> bool {
        rank < 2 * self.pairs
    }

    /// Returns the number of the actor of a rank. Actors have the order of ranks.
    #[inline]
    pub(crate) fn number(self, rank: u32) -> u32 {
        if self.is_paired(rank) { rank / 2 } else { rank - self.pairs }
    }

    #[inline]
    pub(crate) fn rank(self, number: u32) -> u32 {
        if number < self.pairs { 2 * number + 1 } else { number + self.pairs }
    }

    /// Returns the first leaf of `rank`, in a tree in which each actor has two leaves. For `rank` equal to the number
    /// of ranks, returns the number of leaves.
    pub(crate) fn leaf(self, rank: u32) -> u64 {
        if self.is_paired(rank) { rank.into() } else { 2 * u64::from(rank - self.pairs) }
    }

    /// Returns the first rank whose leaves are all at `leaf` or after it.
    pub(crate) fn rank_of_leaf(self, leaf: u64) -> u32 {
        if leaf < 2 * u64::from(self.pairs) {
            leaf as u32
        } else {
            leaf.div_ceil(2) as u32 + self.pairs
        }
    }

    /// Returns the first rank of actor `number`. For the number of actors, returns the number of ranks.
    pub(crate) fn first(self, number: u32) -> u32 {
        if number < self.pairs { 2 * number } else { number + self.pairs }
    }

    /// Returns the rank that acts as actor `number`, if `root` acts for its own pair.
    #[inline]
    pub(crate) fn rank_beside(self, root: u32, number: u32) -> u32 {
        if number == self.number(root) { root } else { self.rank(number) }
    }
}

/// Branch of the tree: leaves `start..start + size`; `size` is a power of two that divides `start`. Each actor has two
/// leaves: the two ranks of its pair, or its only rank twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Branch {
    start: u64,
    size: u64,
}

impl Branch {
    /// Returns whether `self` and `upper` are the lower and upper half of one branch.
    pub(crate) fn continues(self, upper: Branch) -> bool {
        let is_lower = self.start & self.size == 0;
        is_lower && self.size == upper.size && self.start + self.size == upper.start
    }

    /// Returns the branch whose lower half is `self`.
    pub(crate) fn twice(self) -> Branch {
        Branch { start: self.start, size: 2 * self.size }
    }

    pub(crate) fn ranks(self, actors: Actors) -> Range<u32> {
        actors.rank_of_leaf(self.start)..actors.rank_of_leaf(self.start + self.size)
    }
}

/// Splits consecutive ranks into the largest possible branches, in order.
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

pub(crate) fn count(actors: Actors, ranks: Range<u32>) -> u32 {
    branches(actors, ranks).count() as u32
}

/// Returns the nodes (leaves of this tree) whose operands actor `number` has combined before the step of `mask`.
pub(crate) fn those_of(actors: Actors, number: u32, mask: u32) -> Range<u32> {
    let first = number - number % mask;
    actors.first(first)..actors.first(first + mask)
}

/// Returns the number of values that heads send one after the other. In each step all heads wait for the head that
/// sends most, so only that head's values are counted. `starts` is the first rank of each host, then the number of
/// ranks.
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
        // Ranks 0 and 1 act as one, as do 2 and 3. The tree is ((0 1) (2 3)) (4 5).
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
