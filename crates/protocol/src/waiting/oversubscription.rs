//! Waiting while more ranks are awake than there are processors. The last waits determine how the next wait polls and
//! yields.
//!
//! A yield is right if every rank yields. A yield is wrong in two cases. If the peer on another processor answers
//! within a microsecond, a yield costs one turn of all ranks of this processor. If a rank computes, a yield costs a
//! time slice.

use super::{DIRECTED_POLLS, Wait, YIELDED_POLLS};
use crate::worker::Worker;
use fastpath_base::config::WaitMode;
use fastpath_base::sync::Ordering;
use fastpath_segment::STATE_AWAKE;

impl Worker {
    /// Returns whether this rank keeps its processor for now. Its wait has lasted `waited` nanoseconds.
    pub(super) fn keeps_processor(&mut self, wait: &mut Wait, waited: u64, now: u64) -> bool {
        let policy = &mut self.wait;
        if !wait.crowded || policy.mode != WaitMode::Auto || policy.multiple {
            return false;
        }
        if waited == 0 {
            self.note_waiting(wait);
            if self.wait.oversubscription.is_due() {
                let alone = !self.does_another_wait(wait.focus);
                self.wait.oversubscription.note_company(alone);
            }
            wait.kept = self.wait.oversubscription.may_keep();
        } else if wait.kept && policy.oversubscription.is_too_long(waited) {
            wait.kept = false;
            policy.oversubscription.note_too_long();
            self.migrate_away(wait.focus, now);
        }
        wait.waited_ns = waited;
        wait.kept
    }

    pub(super) fn note_waiting(&self, wait: &mut Wait) {
        if !wait.noted {
            wait.noted = true;
            let waits = &self.job.own_page().waits;
            waits.store(waits.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
        }
    }

    fn does_another_wait(&self, focus: Option<u32>) -> bool {
        let mut ranks = self.job.node_ranks().map(|rank| rank as u32);
        ranks.any(|rank| Some(rank) != focus && self.is_awake(rank, true))
    }

    /// Returns whether another rank is awake and its waiting state is `waits`. Moving a message counts as waiting.
    fn is_awake(&self, rank: u32, waits: bool) -> bool {
        let page = self.job.rank_page(rank as usize);
        // Only ranks of this node publish this state on their pages.
        rank != self.rank
            && self.job.is_node_peer(rank as usize)
            && page.is_some_and(|page| {
                page.is_waiting() == waits && page.state.load(Ordering::Relaxed) == STATE_AWAKE
            })
    }

    /// Notes a yield. A long yield in which ranks moved long messages does not count as slow.
    pub(super) fn note_yield(&mut self, began_ns: u64, ended_ns: u64) {
        let awake = self.job.header().awake.load(Ordering::Relaxed);
        let policy = &mut self.wait;
        policy.oversubscription.note_sharers(awake / policy.processors.max(1));
        let is_long = policy.oversubscription.is_long(ended_ns - began_ns) && self.is_crowded();
        if !is_long || self.does_one_compute() {
            self.wait.oversubscription.note_yield(began_ns, ended_ns);
        }
    }

    /// Returns whether the rank that was computing at the last call has not waited since. A rank that moves messages is
    /// not taken for a computing one: it waits at least once between two long yields.
    fn does_one_compute(&mut self) -> bool {
        let waits = |rank: u32| {
            let page = self.job.rank_page(rank as usize)?;
            let waits = page.waits.load(Ordering::Relaxed);
            self.is_awake(rank, false).then_some((rank, waits))
        };
        let seen = self.wait.oversubscription.computing;
        if seen.is_some_and(|(rank, _)| waits(rank) == seen) {
            return true;
        }
        let mut ranks = self.job.node_ranks().map(|rank| rank as u32);
        self.wait.oversubscription.computing = ranks.find_map(waits);
        false
    }
}

impl Wait {
    #[inline]
    pub(super) fn round(&self) -> u32 {
        match self.crowded && !self.kept {
            true => YIELDED_POLLS,
            false => DIRECTED_POLLS,
        }
    }

    #[inline]
    pub(super) fn end_in_crowd(&self, worker: &mut Worker) {
        if self.kept {
            worker.wait.oversubscription.note_paid(self.waited_ns);
        }
        if self.noted {
            let waits = &worker.job.own_page().waits;
            let ended = (waits.load(Ordering::Relaxed) | 1).wrapping_add(1);
            waits.store(ended, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::POLLS_PER_CLOCK;
    use super::*;

    #[test]
    fn round__comes_soon_where_a_yield_lies_between_two_looks() {
        let mut wait = Wait::begin(POLLS_PER_CLOCK, true, None);
        assert_eq!(wait.round(), YIELDED_POLLS);
        wait.kept = true;
        assert_eq!(wait.round(), DIRECTED_POLLS);
        let wait = Wait::begin(POLLS_PER_CLOCK, false, None);
        assert_eq!(wait.round(), DIRECTED_POLLS);
    }
}
