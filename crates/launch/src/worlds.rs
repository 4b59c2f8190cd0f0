//! Which ranks a failure ends. Processes that are not connected do not end each other (MPI-5.0 section 11.10.4): a
//! world that has disconnected itself from those that spawned it, or that it has spawned, ends by itself.

use fastpath_base::sync::Ordering;
use fastpath_bootstrap::segment::Segment;
use std::collections::HashSet;

/// The ranks that the failure of one of them ends: its world, and where that holds communicators with others, all
/// worlds that do. None where no other rank `goes_on`: then the job ends.
pub fn find_ended(
    failed: usize, segment: &Segment, goes_on: impl Fn(usize) -> bool,
) -> Option<Vec<usize>> {
    let read = |rank: usize| {
        let page = segment.page(rank);
        page.map_or((0, 0), |page| {
            let world = page.world_first.load(Ordering::Relaxed);
            (world, page.links.load(Ordering::Relaxed))
        })
    };
    let pages: Vec<(u32, u32)> = (0..segment.present()).map(read).collect();
    let linked: HashSet<u32> =
        pages.iter().filter(|&&(_, links)| links != 0).map(|&(world, _)| world).collect();
    let own = pages.get(failed)?.0;
    let ends = |&rank: &usize| {
        let world = pages[rank].0;
        world == own || (linked.contains(&own) && linked.contains(&world))
    };
    let (ended, left): (Vec<usize>, Vec<usize>) = (0..pages.len()).partition(ends);
    left.into_iter().any(goes_on).then_some(ended)
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
    fn failure__ends_the_job_where_nobody_else_goes_on() {
        let segment = job([0; 6]);
        assert_eq!(find_ended(0, &segment, |rank| rank < 2), None);
        assert_eq!(find_ended(0, &segment, |rank| rank == 5), Some(vec![0, 1]));
    }
}
