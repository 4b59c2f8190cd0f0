//! Spreads awake ranks evenly over fewer processors: chooses the processor of a waiting rank.
//!
//! The kernel does not spread the ranks. Ranks that yield look busy, and the kernel does not move a rank that ran
//! within the last half millisecond. A rank that is woken goes to a processor that is free at that moment. So three
//! ranks may stay on one of two processors, and one on the other.

use crate::wait_policy::{AwakeRank, RankScan};
use crate::worker::Worker;
use fastpath_base::sync::Ordering;
use fastpath_base::topology;
use fastpath_segment::STATE_AWAKE;

/// Minimum time, in nanoseconds, between two scans of the other ranks' processors.
const LEAST_NS: u64 = 500_000;
/// Minimum time between two scans, in nanoseconds for each pair of ranks, because every rank scans all others.
const PAIR_NS: u64 = 2_500;

/// Returns the processor to which a rank moves from `here`: the processor of `allowed` with the fewest ranks. `None`
/// unless that processor has at least two ranks fewer than `here`. Only the highest waiting rank of a processor moves.
/// `before` and `after` are the lower and the higher ranks.
fn choose(
    here: usize, before: &[AwakeRank], after: &[AwakeRank], allowed: impl Iterator<Item = usize>,
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
        let RankScan { places, allowed } = &mut self.wait.seen;
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
        let choose = |here, before: &[AwakeRank], after: &[AwakeRank], cpus: &[usize]| {
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
