//! Groups of ranks that share a part of their host.

use super::domains::{DomainLevel, RankDomains};

/// Members of a communicator on one host, grouped by core, L3 cache, NUMA node and socket. A pure function of the
/// members and their domains, so all members on the host have equal groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankGroups {
    members: Vec<u32>,
    levels: [Partition; 4],
    nested: Vec<Partition>,
}

/// Division of members into groups. Each group is sorted, and the groups are in the order of their first members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partition {
    groups: Vec<Vec<u32>>,
    /// Group of each member, in the order of the members.
    of: Vec<u32>,
}

impl Partition {
    /// Divides members by key. Members with equal keys form a group.
    fn by_key<K: PartialEq>(members: &[u32], keys: &[K]) -> Partition {
        let mut partition = Partition::default();
        let mut firsts: Vec<&K> = Vec::new();
        for (&member, key) in members.iter().zip(keys) {
            let group = firsts.iter().position(|&first| first == key).unwrap_or_else(|| {
                firsts.push(key);
                partition.groups.push(Vec::new());
                firsts.len() - 1
            });
            partition.groups[group].push(member);
            partition.of.push(group as u32);
        }
        partition
    }

    /// Returns the groups, in the order of their first members.
    pub fn groups(&self) -> &[Vec<u32>] {
        &self.groups
    }

    /// Returns the leader of each group: its lowest member.
    pub fn leaders(&self) -> impl Iterator<Item = u32> + '_ {
        self.groups.iter().filter_map(|group| group.first().copied())
    }
}

impl RankGroups {
    /// Groups `members`, in ascending order, each with the domains in which it runs.
    pub fn new(members: &[(u32, RankDomains)]) -> RankGroups {
        let ranks: Vec<u32> = members.iter().map(|&(rank, _)| rank).collect();
        let domains_at = |level: DomainLevel| -> Vec<Option<u32>> {
            members.iter().map(|(_, domains)| domains.domain(level)).collect()
        };
        let levels = DomainLevel::ALL.map(|level| Partition::by_key(&ranks, &domains_at(level)));
        let nested = nest(&ranks, members, &levels);
        RankGroups { members: ranks, levels, nested }
    }

    /// Returns the members, in ascending order.
    pub fn members(&self) -> &[u32] {
        &self.members
    }

    /// Returns the groups of members that share a domain of `level`. Members whose domain is unknown form one group.
    pub fn at(&self, level: DomainLevel) -> &Partition {
        &self.levels[level as usize]
    }

    /// Returns the divisions of a tree, from the smallest groups to the largest. Each group lies in one group of the
    /// next division, and all groups of the last one in the host. Divisions into single members, and levels that divide
    /// like a larger one, are left out; the result is empty if the hardware divides the members no further.
    pub fn nested(&self) -> &[Partition] {
        &self.nested
    }

    /// Returns the group of `member` in a division; `None` if it is no member.
    pub fn group_of<'a>(&self, division: &'a Partition, member: u32) -> Option<&'a [u32]> {
        let at = self.members.binary_search(&member).ok()?;
        division.groups.get(*division.of.get(at)? as usize).map(Vec::as_slice)
    }
}

/// Returns the divisions of [`RankGroups::nested`]. NUMA nodes are parts of L3 caches on some machines, and contain
/// them on others, so of these two the level with more groups divides the other one.
fn nest(ranks: &[u32], members: &[(u32, RankDomains)], levels: &[Partition; 4]) -> Vec<Partition> {
    let count = |level: DomainLevel| levels[level as usize].groups.len();
    let (large, small) = match count(DomainLevel::Numa) > count(DomainLevel::L3) {
        true => (DomainLevel::L3, DomainLevel::Numa),
        false => (DomainLevel::Numa, DomainLevel::L3),
    };
    let mut keys: Vec<Vec<Option<u32>>> = vec![Vec::new(); ranks.len()];
    let mut nested: Vec<Partition> = Vec::new();
    let mut groups = 1;
    for level in [DomainLevel::Socket, large, small, DomainLevel::Core] {
        for (key, (_, domains)) in keys.iter_mut().zip(members) {
            key.push(domains.domain(level));
        }
        let division = Partition::by_key(ranks, &keys);
        let found = division.groups.len();
        if found > groups && found < ranks.len() {
            groups = found;
            nested.push(division);
        }
    }
    nested.reverse();
    nested
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn members(domains: &[[u32; 4]]) -> Vec<(u32, RankDomains)> {
        (0..).zip(domains.iter().map(|&words| RankDomains::from_words(words))).collect()
    }

    /// Ranks on two sockets, each with two NUMA nodes of two L3 caches of two cores.
    fn machine() -> Vec<(u32, RankDomains)> {
        let of = |cpu: u32| RankDomains::from([cpu, cpu / 2, cpu / 4, cpu / 8]);
        (0..16).map(|cpu| (cpu, of(cpu))).collect()
    }

    fn groups(division: &Partition) -> Vec<&[u32]> {
        division.groups().iter().map(Vec::as_slice).collect()
    }

    #[test]
    fn groups__of_each_level() {
        let all = RankGroups::new(&machine());
        let sizes = DomainLevel::ALL.map(|level| all.at(level).groups().len());
        assert_eq!(sizes, [16, 8, 4, 2]);
        assert_eq!(groups(all.at(DomainLevel::Numa))[1], [4, 5, 6, 7]);
        assert!(all.at(DomainLevel::Numa).leaders().eq([0, 4, 8, 12]));
        let l3 = all.at(DomainLevel::L3);
        assert_eq!(all.group_of(l3, 13), Some(&[12, 13][..]));
        assert_eq!(all.group_of(l3, 16), None);
    }

    #[test]
    fn nested__leaves_out_levels_that_divide_nothing() {
        let sizes = |all: &RankGroups| -> Vec<usize> {
            all.nested().iter().map(|division| division.groups().len()).collect()
        };
        assert_eq!(sizes(&RankGroups::new(&machine())), [8, 4, 2]);
        assert_eq!(sizes(&RankGroups::new(&machine()[..8])), [4, 2]);
        assert_eq!(sizes(&RankGroups::new(&machine()[..2])), Vec::<usize>::new());
        // One rank on each socket: two groups of one rank are no division.
        let two = [machine()[0], machine()[8]];
        assert_eq!(sizes(&RankGroups::new(&two)), Vec::<usize>::new());
        // Ranks bound to hardware threads: two of them share each core.
        let threads: Vec<_> = (0..8).map(|rank| (rank, machine()[rank as usize / 2].1)).collect();
        assert_eq!(sizes(&RankGroups::new(&threads)), [4, 2]);
    }

    #[test]
    fn nested__numa_nodes_may_divide_a_cache() {
        let of = |cpu: u32| RankDomains::from([cpu, cpu / 8, cpu / 4, cpu / 8]);
        let all = RankGroups::new(&(0..16).map(|cpu| (cpu, of(cpu))).collect::<Vec<_>>());
        let sizes: Vec<_> = all.nested().iter().map(|division| division.groups().len()).collect();
        assert_eq!(sizes, [4, 2]);
    }

    #[test]
    fn unknown_domains__form_one_group() {
        let all = RankGroups::new(&members(&[[0; 4], [1, 1, 1, 1], [0; 4]]));
        for level in DomainLevel::ALL {
            assert_eq!(groups(all.at(level)), [&[0, 2][..], &[1]]);
        }
        let unknown = RankGroups::new(&members(&[[0; 4]; 3]));
        assert!(unknown.nested().is_empty());
        assert_eq!(groups(unknown.at(DomainLevel::Socket)), [[0, 1, 2]]);
        assert!(RankGroups::new(&[]).nested().is_empty());
    }

    proptest! {
        #[test]
        fn groups__divide_all_members_and_nest(
            domains in prop::collection::vec([0u32..9, 0u32..5, 0u32..4, 0u32..3], 0..40),
        ) {
            let members = members(&domains);
            let all = RankGroups::new(&members);
            let levels = DomainLevel::ALL.iter().map(|&level| all.at(level));
            for division in levels.chain(all.nested()) {
                let mut seen: Vec<u32> = division.groups().concat();
                seen.sort_unstable();
                prop_assert_eq!(&seen, all.members());
                prop_assert!(division.groups().iter().all(|group| group.is_sorted()));
                prop_assert!(division.leaders().is_sorted());
                for &member in all.members() {
                    prop_assert!(all.group_of(division, member).unwrap().contains(&member));
                }
            }
            for two in all.nested().windows(2) {
                prop_assert!(two[0].groups().len() > two[1].groups().len());
                for group in two[0].groups() {
                    let outer = all.group_of(&two[1], group[0]).unwrap();
                    prop_assert!(group.iter().all(|member| outer.contains(member)));
                }
            }
        }
    }
}
