//! Trees of the pieces of a long broadcast through shared buffers. Pure.
//!
//! The root has all pieces. Each other socket, L3 and part of a wide L3 has a leader for a piece, which copies the
//! piece into its own buffer, and the other members copy it from there. The members of a group lead in turn, piece by
//! piece. So each of them copies few pieces twice, and a piece crosses from socket to socket only once.

use super::line_tree::CachePlace;
use std::collections::HashMap;

/// Number of levels of groups: sockets, L3 domains, parts of an L3.
const LEVELS: usize = 3;

/// Groups of one level.
#[derive(Debug)]
struct GroupLevel {
    /// Members of each group, in ascending order.
    groups: Vec<Vec<u32>>,
    /// Index of the group of each rank.
    group_of: Vec<usize>,
    /// Indices of the groups of this level in each group of the level above.
    inside: Vec<Vec<usize>>,
}

/// Groups of ranks of long broadcasts.
#[derive(Debug)]
pub(super) struct PieceTrees {
    levels: [GroupLevel; LEVELS],
}

/// Source of a piece for one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PieceSource {
    /// Rank whose buffer this rank reads.
    pub(crate) parent: u32,
    /// Level of the largest group that this rank leads: 0 for a socket; `None` if it leads no group.
    leads: Option<usize>,
}

impl PieceTrees {
    /// Makes the groups. `parts` has the part of the L3 of each rank, with numbers that are unique on the host.
    pub(super) fn new(places: &[CachePlace], parts: &[u32]) -> PieceTrees {
        let keys: [Vec<u32>; LEVELS] = [
            places.iter().map(|place| place.socket).collect(),
            places.iter().map(|place| place.l3).collect(),
            parts.to_vec(),
        ];
        let mut above = vec![0; places.len()];
        let levels = keys.map(|keys| {
            let (mut indices, mut groups) = (HashMap::new(), Vec::<Vec<u32>>::new());
            let mut inside: Vec<Vec<usize>> = Vec::new();
            let mut group_of = Vec::new();
            for (rank, key) in keys.into_iter().enumerate() {
                let index = *indices.entry(key).or_insert_with(|| {
                    groups.push(Vec::new());
                    inside.resize(inside.len().max(above[rank] + 1), Vec::new());
                    inside[above[rank]].push(groups.len() - 1);
                    groups.len() - 1
                });
                groups[index].push(rank as u32);
                group_of.push(index);
            }
            above.clone_from(&group_of);
            GroupLevel { groups, group_of, inside }
        });
        PieceTrees { levels }
    }

    /// Returns whether a level has leaders that lead no group of the level above.
    fn has_leaders(&self, level: usize) -> bool {
        self.levels[level].inside.iter().any(|groups| groups.len() > 1)
    }

    /// Returns the number of levels above a level that have such leaders.
    fn count_above(&self, level: usize) -> u32 {
        (0..level).filter(|&level| self.has_leaders(level)).count() as u32
    }

    /// Returns the largest number of leaders between the root and any rank.
    pub(super) fn depth(&self) -> u32 {
        self.count_above(LEVELS)
    }

    /// Returns the largest number of leaders between the root and the leaders of the same level as a rank with this
    /// source; [`PieceTrees::depth`] if the rank leads no group.
    pub(super) fn distance(&self, source: PieceSource) -> u32 {
        self.count_above(source.leads.unwrap_or(LEVELS))
    }

    /// Returns the leader of a group that does not contain the leader of the level above.
    fn leader(&self, level: usize, group: usize, piece: u32) -> u32 {
        let members = &self.levels[level].groups[group];
        members[piece as usize % members.len()]
    }

    /// Returns the source of a piece for `rank`; `None` for the root.
    pub(super) fn source(&self, rank: u32, root: u32, piece: u32) -> Option<PieceSource> {
        if rank == root {
            return None;
        }
        let mut parent = root;
        for (index, level) in self.levels.iter().enumerate() {
            let group = level.group_of[rank as usize];
            if group == level.group_of[parent as usize] {
                continue;
            }
            let leader = self.leader(index, group, piece);
            if leader == rank {
                return Some(PieceSource { parent, leads: Some(index) });
            }
            parent = leader;
        }
        Some(PieceSource { parent, leads: None })
    }

    /// Calls `visit` for each rank that copies a piece from the buffer of `rank`.
    pub(super) fn each_child(&self, rank: u32, root: u32, piece: u32, visit: &mut dyn FnMut(u32)) {
        // The first level whose groups, apart from the own one, may have leaders that read the buffer.
        let first = match self.source(rank, root, piece) {
            None => 0,
            Some(PieceSource { leads: Some(level), .. }) => level + 1,
            Some(_) => return,
        };
        for index in first..LEVELS {
            let level = &self.levels[index];
            let own = level.group_of[rank as usize];
            let around = match index.checked_sub(1) {
                None => 0,
                Some(above) => self.levels[above].group_of[rank as usize],
            };
            let others = level.inside[around].iter().filter(|&&group| group != own);
            others.for_each(|&group| visit(self.leader(index, group, piece)));
        }
        let last = &self.levels[LEVELS - 1];
        let members = &last.groups[last.group_of[rank as usize]];
        members.iter().filter(|&&member| member != rank).for_each(|&member| visit(member));
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Each rank has one source, and is a child of it; sources lead to the root through ever fewer leaders.
        #[test]
        fn children_and_sources__agree(
            places in proptest::collection::vec((0u32..3, 0u32..3, 0u32..3), 3..40),
            root in 0u32..40, piece in 0u32..100,
        ) {
            let ranks = places.len() as u32;
            let root = root % ranks;
            let parts: Vec<u32> = places.iter().map(|&(s, l, p)| (s * 3 + l) * 3 + p).collect();
            let places: Vec<CachePlace> =
                places.iter().map(|&(s, l, _)| CachePlace { socket: s, l3: s * 3 + l }).collect();
            let trees = PieceTrees::new(&places, &parts);
            let mut parents = vec![Vec::new(); places.len()];
            for rank in 0..ranks {
                trees.each_child(rank, root, piece, &mut |child| parents[child as usize].push(rank));
            }
            for rank in 0..ranks {
                let source = trees.source(rank, root, piece);
                let expected: Vec<u32> = source.map(|source| source.parent).into_iter().collect();
                prop_assert_eq!(&parents[rank as usize], &expected);
                let Some(source) = source else { continue };
                prop_assert!(trees.distance(source) <= trees.depth());
                if let Some(above) = trees.source(source.parent, root, piece) {
                    prop_assert!(above.leads.is_some());
                    prop_assert!(trees.distance(above) < trees.distance(source));
                }
            }
        }
    }

    #[test]
    fn members_of_a_group__lead_in_turn() {
        let places: Vec<CachePlace> =
            (0..16).map(|rank| CachePlace { socket: rank / 8, l3: rank / 4 }).collect();
        let parts: Vec<u32> = places.iter().map(|place| place.l3).collect();
        let trees = PieceTrees::new(&places, &parts);
        assert_eq!(trees.depth(), 2);
        // The root is in the first socket; the leaders of the second socket read its buffer.
        for piece in 0..16 {
            let readers: Vec<u32> =
                (8..16).filter(|&rank| trees.source(rank, 3, piece).unwrap().parent == 3).collect();
            assert_eq!(readers, [8 + piece % 8]);
        }
    }
}
