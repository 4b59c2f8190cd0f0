//! Decides which ranks a failure ends. Processes that are not connected do not end each other (MPI-5.0 section
//! 11.10.4): a world that has disconnected from its parent and its children ends alone.

use fastpath_base::sync::Ordering;
use fastpath_segment::Segment;
use std::collections::BTreeSet;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeWorlds {
    /// Worlds with a rank that has communicators with other worlds.
    pub linked: BTreeSet<u32>,
    pub going_on: BTreeSet<u32>,
}

impl NodeWorlds {
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

    pub fn add(&mut self, other: NodeWorlds) {
        self.linked.extend(other.linked);
        self.going_on.extend(other.going_on);
    }

    /// Returns the worlds that a failure in world `failed` ends: that world and, if it is linked, all linked worlds.
    fn list_ended(&self, failed: u32) -> BTreeSet<u32> {
        let mut ended = BTreeSet::from([failed]);
        if self.linked.contains(&failed) {
            ended.extend(&self.linked);
        }
        ended
    }

    /// Returns the worlds that a failure in world `failed` ends; None if it ends the job, as no other continues.
    pub fn find_ended(&self, failed: u32) -> Option<BTreeSet<u32>> {
        let ended = self.list_ended(failed);
        let goes_on = !self.going_on.is_subset(&ended);
        goes_on.then_some(ended)
    }
}

pub fn list_ranks(segment: &Segment, worlds: &BTreeSet<u32>) -> Vec<usize> {
    let is_of = |&rank: &usize| {
        let page = segment.page(rank);
        page.is_some_and(|page| worlds.contains(&page.world_first.load(Ordering::Relaxed)))
    };
    segment.node_ranks().filter(is_of).collect()
}

/// Returns this segment's ranks that the failure of rank `failed` ends; None if no other rank `goes_on`.
pub fn find_ended(
    failed: usize, segment: &Segment, goes_on: impl Fn(usize) -> bool,
) -> Option<Vec<usize>> {
    let world = segment.page(failed)?.world_first.load(Ordering::Relaxed);
    let ended = NodeWorlds::read(segment, goes_on).find_ended(world)?;
    Some(list_ranks(segment, &ended))
}

/// Returns this segment's ranks that the failure of rank `failed` ends, if other nodes may have ranks that continue.
pub fn find_known(failed: usize, segment: &Segment) -> Option<Vec<usize>> {
    let world = segment.page(failed)?.world_first.load(Ordering::Relaxed);
    let ended = NodeWorlds::read(segment, |_| false).list_ended(world);
    Some(list_ranks(segment, &ended))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// A world of two ranks that spawned worlds of two, one and one. `links` is each rank's number of communicators
    /// with other worlds.
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
        let mut all = of(&[0], &[0, 2]);
        all.add(of(&[4], &[2, 4, 5]));
        assert_eq!(all.find_ended(0), Some(BTreeSet::from([0, 4])));
        assert_eq!(all.find_ended(2), Some(BTreeSet::from([2])));
        assert_eq!(of(&[0, 4], &[0, 4]).find_ended(4), None);
        assert_eq!(of(&[0, 4], &[2]).find_ended(4), Some(BTreeSet::from([0, 4])));
    }

    #[test]
    fn failure__without_surviving_world__ends_the_job() {
        let segment = job([0; 6]);
        assert_eq!(find_ended(0, &segment, |rank| rank < 2), None);
        assert_eq!(find_ended(0, &segment, |rank| rank == 5), Some(vec![0, 1]));
    }
}
