//! What is written if a rank has died: by its launcher, or by the rank that sees it end in the launcher's place.

use super::layout::FURTHER;
use super::memory::Segment;
use super::page::{Phase, STATE_AWAKE, STATE_DEAD};
use fastpath_base::sync::Ordering;

impl Segment {
    /// Marks a rank's process as gone, unless it had finalized MPI.
    pub fn mark_dead(&self, rank: usize) {
        if self.give_up_elsewhere(rank) {
            return;
        }
        if let Some(page) = self.page(rank).filter(|p| p.phase() != Phase::Finalized) {
            // It would count as a rank that wants a processor for ever.
            let mut words = (0..=FURTHER).map(|place| page.state_of(place).load(Ordering::Relaxed));
            if page.phase() >= Phase::Attached && words.all(|state| state == STATE_AWAKE) {
                self.header().awake.fetch_sub(1, Ordering::Relaxed);
            }
            page.set_left(STATE_DEAD);
        }
    }

    /// Wakes every sleeping rank, so that it checks which rank has died.
    pub fn wake_all(&self) {
        // ORDERING: whoever sees the count sees the states.
        self.header().events.fetch_add(1, Ordering::Release);
        for page in self.node_ranks().filter_map(|rank| self.page(rank)) {
            (0..=FURTHER).for_each(|place| page.wake(place));
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::segment::{STATE_FINALIZED, STATE_SLEEPING};

    #[test]
    fn dead__is_who_had_not_finalized() {
        let segment = Segment::create(3, 1).unwrap();
        let state = |rank: usize| &segment.page(rank).unwrap().state;
        segment.header().awake.store(1, Ordering::Relaxed);
        segment.page(1).unwrap().set_phase(Phase::Initialized);
        segment.page(2).unwrap().set_phase(Phase::Initialized);
        segment.page(0).unwrap().set_phase(Phase::Finalized);
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
}
