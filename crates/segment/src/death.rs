//! Marks of a rank's death. The rank's launcher writes them or, without our launcher, the rank that watches its node.

use crate::memory::Segment;
use crate::page::{RankPage, RankPhase, STATE_DEAD};
use fastpath_base::sync::Ordering;

impl Segment {
    /// Marks a rank as dead, unless it had finalized MPI.
    pub fn mark_dead(&self, rank: usize) {
        if self.give_up_elsewhere(rank) {
            return;
        }
        if let Some(page) = self.page(rank).filter(|p| p.phase() != RankPhase::Finalized) {
            // A dead rank must not remain counted in `JobHeader::awake`.
            self.uncount_awake(page);
            page.set_left(STATE_DEAD);
        }
    }

    /// Counts a rank as awake, unless it is counted already. The rank calls this function on attaching and on waking. A
    /// rank that is killed during one of these calls may stay counted, but is never subtracted twice.
    pub fn count_awake(&self, page: &RankPage) {
        if page.is_counted.load(Ordering::Relaxed) == 0 {
            self.header().awake.fetch_add(1, Ordering::Relaxed);
            page.is_counted.store(1, Ordering::Relaxed);
        }
    }

    /// Reverses [`Segment::count_awake`] if the rank is counted. The rank calls this function before it sleeps and on
    /// finalizing MPI; [`Segment::mark_dead`] calls it for a dead rank.
    pub fn uncount_awake(&self, page: &RankPage) {
        if page.is_counted.swap(0, Ordering::Relaxed) != 0 {
            self.header().awake.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Wakes every sleeping rank, so that it checks which rank has died.
    pub fn wake_all(&self) {
        // ORDERING: release: a rank that sees the new count also sees the states of the ranks.
        self.header().events.fetch_add(1, Ordering::Release);
        for page in self.node_ranks().filter_map(|rank| self.page(rank)) {
            page.wake();
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::{STATE_AWAKE, STATE_FINALIZED, STATE_SLEEPING};

    #[test]
    fn dead__is_who_had_not_finalized() {
        let segment = Segment::create(3, 1).unwrap();
        let state = |rank: usize| &segment.page(rank).unwrap().state;
        segment.count_awake(segment.page(1).unwrap());
        segment.page(1).unwrap().set_phase(RankPhase::Initialized);
        segment.page(2).unwrap().set_phase(RankPhase::Initialized);
        segment.page(0).unwrap().set_phase(RankPhase::Finalized);
        state(0).store(STATE_FINALIZED, Ordering::Relaxed);
        state(2).store(STATE_SLEEPING, Ordering::Relaxed);
        (0..4).for_each(|rank| segment.mark_dead(rank));
        segment.mark_dead(1);
        // Rank 1 was awake, rank 2 was asleep.
        assert_eq!(segment.header().awake.load(Ordering::Relaxed), 0);
        segment.wake_all();
        let states = [0, 1, 2].map(|rank| state(rank).load(Ordering::Relaxed));
        assert_eq!(states, [STATE_FINALIZED, STATE_DEAD, STATE_DEAD]);
        state(1).store(STATE_SLEEPING, Ordering::Relaxed);
        segment.wake_all();
        assert_eq!(state(1).load(Ordering::Relaxed), STATE_AWAKE);
        assert_eq!(segment.header().events.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn sleeper__that_is_woken_and_dies__is_not_subtracted_twice() {
        let segment = Segment::create(2, 1).unwrap();
        let page = segment.page(1).unwrap();
        (0..2).for_each(|rank| segment.count_awake(segment.page(rank).unwrap()));
        page.set_phase(RankPhase::Initialized);
        // The rank sleeps, and is killed after its state word was set to awake.
        segment.uncount_awake(page);
        page.state.store(STATE_SLEEPING, Ordering::Relaxed);
        segment.wake_all();
        segment.mark_dead(1);
        assert_eq!(segment.header().awake.load(Ordering::Relaxed), 1);
        segment.count_awake(page);
        segment.uncount_awake(page);
        segment.uncount_awake(page);
        assert_eq!(segment.header().awake.load(Ordering::Relaxed), 1);
    }
}
