//! Which ranks a failure ends. Processes that are not connected do not end each other (MPI-5.0 section 11.10.4): a
//! world that has disconnected itself from those that spawned it, or that it has spawned, ends by itself.

use fastpath_base::sync::Ordering;
use fastpath_bootstrap::segment::Segment;
use std::collections::BTreeSet;

/// The worlds of a node, by their first ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeWorlds {
    /// Those with a rank that holds communicators with others.
    pub linked: BTreeSet<u32>,
    /// Those with a rank that goes on.
    pub going_on: BTreeSet<u32>,
}

impl NodeWorlds {
    /// Those of the ranks that have a page in this memory.
    pub fn read(segment: &Segment, goes_on: impl Fn(usize) -> bool) -> NodeWorlds {
        let mut worlds = NodeWorlds::default();
        for rank in segment.node_ranks() {
            let Some(page) = segment.page(rank) else {
                continue;
            };
            let world = page.world_first.load(Ordering::Relaxed);
            if page.links.load(Ordering::Relaxed) != 0 {
                worlds.linked.insert(world);
            }
            if goes_on(rank) {
                worlds.going_on.insert(world);
            }
        }
        worlds
    }

    /// Adds those of another node.
    pub fn add(&mut self, other: NodeWorlds) {
        self.linked.extend(other.linked);
        self.going_on.extend(other.going_on);
    }

    /// The worlds that a failure in one of them ends: itself, and where it holds communicators with others, all that
    /// do.
    fn list_ended(&self, failed: u32) -> BTreeSet<u32> {
        let mut ended = BTreeSet::from([failed]);
        if self.linked.contains(&failed) {
            ended.extend(&self.linked);
        }
        ended
    }

    /// Those; None where no other one goes on: then the job ends.
    pub fn find_ended(&self, failed: u32) -> Option<BTreeSet<u32>> {
        let ended = self.list_ended(failed);
        let goes_on = !self.going_on.is_subset(&ended);
        goes_on.then_some(ended)
    }
}

/// The ranks of this memory that are of these worlds.
pub fn list_ranks(segment: &Segment, worlds: &BTreeSet<u32>) -> Vec<usize> {
    let is_of = |&rank: &usize| {
        let page = segment.page(rank);
        page.is_some_and(|page| worlds.contains(&page.world_first.load(Ordering::Relaxed)))
    };
    segment.node_ranks().filter(is_of).collect()
}

/// The ranks of this memory that the failure of one of them ends. None where no other rank `goes_on`.
pub fn find_ended(
    failed: usize, segment: &Segment, goes_on: impl Fn(usize) -> bool,
) -> Option<Vec<usize>> {
    let world = segment.page(failed)?.world_first.load(Ordering::Relaxed);
    let ended = NodeWorlds::read(segment, goes_on).find_ended(world)?;
    Some(list_ranks(segment, &ended))
}

/// The same where other nodes have ranks too, which may go on.
pub fn find_known(failed: usize, segment: &Segment) -> Option<Vec<usize>> {
    let world = segment.page(failed)?.world_first.load(Ordering::Relaxed);
    let ended = NodeWorlds::read(segment, |_| false).list_ended(world);
    Some(list_ranks(segment, &ended))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// Two ranks that spawned two, one and one, with so many communicators each.
    fn job(links: [u32; 6]) -> Segment {
        let segment = Segment::create(6, 1).unwrap();
        for (rank, (links, world)) in links.into_iter().zip([0, 0, 2, 2, 4, 5]).enumerate() {
            let page = segment.page(rank).unwrap();
            page.world_first.store(world, Ordering::Relaxed);
            page.links.store(links, Ordering::Relaxed);
        }
        segment
    }

    #[test]
    fn failure__ends_its_world_alone_where_that_is_not_connected() {
        let segment = job([0, 1, 0, 0, 1, 0]);
        assert_eq!(find_ended(3, &segment, |_| true), Some(vec![2, 3]));
        assert_eq!(find_ended(5, &segment, |_| true), Some(vec![5]));
        let segment = job([0; 6]);
        assert_eq!(find_ended(0, &segment, |_| true), Some(vec![0, 1]));
    }

    #[test]
    fn failure__ends_all_worlds_that_may_be_connected() {
        let segment = job([0, 1, 0, 0, 1, 0]);
        for failed in [0, 1, 4] {
            assert_eq!(find_ended(failed, &segment, |_| true), Some(vec![0, 1, 4]));
        }
        assert_eq!(find_ended(0, &job([1; 6]), |_| true), None);
    }

    #[test]
    fn worlds__of_several_hosts_end_by_what_all_of_them_say() {
        let of = |linked: &[u32], going_on: &[u32]| NodeWorlds {
            linked: linked.iter().copied().collect(),
            going_on: going_on.iter().copied().collect(),
        };
        // The first host does not see that 4 is connected, nor the second one that 0 is.
        let mut all = of(&[0], &[0, 2]);
        all.add(of(&[4], &[2, 4, 5]));
        assert_eq!(all.find_ended(0), Some(BTreeSet::from([0, 4])));
        assert_eq!(all.find_ended(2), Some(BTreeSet::from([2])));
        assert_eq!(of(&[0, 4], &[0, 4]).find_ended(4), None);
        assert_eq!(of(&[0, 4], &[2]).find_ended(4), Some(BTreeSet::from([0, 4])));
    }

    #[test]
    fn failure__ends_the_job_where_nobody_else_goes_on() {
        let segment = job([0; 6]);
        assert_eq!(find_ended(0, &segment, |rank| rank < 2), None);
        assert_eq!(find_ended(0, &segment, |rank| rank == 5), Some(vec![0, 1]));
    }
}
