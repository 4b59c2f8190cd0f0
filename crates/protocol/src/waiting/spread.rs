//! Chooses the processor a waiting rank runs on when there are more ranks than processors: spreads the awake ranks
//! evenly.
//!
//! Ranks that yield look busy, and the kernel moves none that ran within the last half millisecond; a rank that is
//! woken goes to where there was room at that moment. So it stays at three ranks on one of two processors and one on
//! the other.

use crate::worker::Worker;
use fastpath_base::sync::Ordering;
use fastpath_base::topology::{self, CpuSet};
use fastpath_bootstrap::segment::STATE_AWAKE;

/// Nanoseconds between two looks of a rank at where the others are, at least.
const LEAST_NS: u64 = 500_000;
/// The same for each pair of ranks of the job: all look, each at all.
const PAIR_NS: u64 = 2_500;

/// A rank awake: its processor, and whether it waits.
type RankAwake = (usize, bool);

/// What a look at the other ranks has seen.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    places: Vec<RankAwake>,
    allowed: CpuSet,
}

/// Where a rank moves to from `here`: the processor with fewest ranks of `allowed`, if it has two less. Of those that
/// wait on one processor the last one moves; `after` are the ranks behind this one, `before` those in front of it.
fn choose(
    here: usize, before: &[RankAwake], after: &[RankAwake], allowed: impl Iterator<Item = usize>,
) -> Option<usize> {
    if after.iter().any(|&(cpu, waits)| cpu == here && waits) {
        return None;
    }
    let load = |cpu: usize| {
        let there = before.iter().chain(after).filter(|place| place.0 == cpu);
        there.count() + (cpu == here) as usize
    };
    let (least, to) = allowed.map(|cpu| (load(cpu), cpu)).min()?;
    (load(here) >= least + 2).then_some(to)
}

impl Worker {
    /// Notes the processor of a wait that begins, and moves now and then.
    pub(super) fn note_processor(&mut self, now: u64) {
        let Some(here) = topology::current_processor() else {
            return;
        };
        let own = &self.job.own_page().processor;
        own.store(here as u32 + 1, Ordering::Relaxed);
        if now < self.wait.spread_ns || self.job.is_bound() {
            return;
        }
        let ranks = self.job.segment().here() as u64;
        self.wait.spread_ns = now + LEAST_NS.max(ranks * ranks * PAIR_NS);
        let Seen { places, allowed } = &mut self.wait.seen;
        let awake = |rank: usize| {
            let page = self.job.rank_page(rank)?;
            let cpu = page.processor.load(Ordering::Relaxed).checked_sub(1)?;
            let is_awake = page.state.load(Ordering::Relaxed) == STATE_AWAKE;
            is_awake.then(|| (cpu as usize, page.is_waiting()))
        };
        let own_rank = self.rank as usize;
        places.clear();
        places.extend(self.job.node_ranks().filter(|&rank| rank < own_rank).filter_map(awake));
        let before = places.len();
        places.extend(self.job.node_ranks().filter(|&rank| rank > own_rank).filter_map(awake));
        if !topology::read_affinity(0, allowed) {
            return;
        }
        let (before, after) = places.split_at(before);
        if let Some(to) = choose(here, before, after, allowed.iter()) {
            topology::move_to(to);
            own.store(to as u32 + 1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn choose__moves_the_last_that_waits_to_where_two_less_are() {
        let (waits, computes) = (true, false);
        let choose = |here, before: &[RankAwake], after: &[RankAwake], cpus: &[usize]| {
            choose(here, before, after, cpus.iter().copied())
        };
        let cpus = [0, 1];
        let (three, two) = ([(0, waits), (1, waits), (0, waits)], [(0, waits), (1, waits)]);
        assert_eq!(choose(0, &three, &[], &cpus), Some(1));
        assert_eq!(choose(0, &two, &[(0, waits)], &cpus), None, "a later one");
        assert_eq!(choose(0, &two, &[(0, computes)], &cpus), Some(1));
        assert_eq!(choose(0, &two, &[(1, waits)], &cpus), None, "even");
        assert_eq!(choose(0, &two, &[], &cpus), None, "one more");
        assert_eq!(choose(1, &three, &[], &cpus), None, "on the other one");
        assert_eq!(choose(0, &three, &[], &[0]), None, "may not");
    }
}
