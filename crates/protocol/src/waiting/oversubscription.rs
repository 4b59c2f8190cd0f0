//! Waiting where more ranks are awake than there are processors: what the last waits were like decides about the next.
//!
//! A yield is the right thing while everybody yields. It is wrong twice: where the peer runs on another processor and
//! answers within a microsecond, the yield costs a round through all ranks here; where somebody computes, it costs a
//! time slice.

use super::{DIRECTED_POLLS, Wait, YIELD_NS, YIELDED_POLLS};
use crate::worker::Worker;
use fastpath_base::config::WaitMode;
use fastpath_base::sync::Ordering;
use fastpath_bootstrap::segment::STATE_AWAKE;

/// Nanoseconds for which a rank on a crowded node looks on before it lets others run, where that has paid: twice what
/// the last waits took, but so many at least.
const KEEP_NS: u64 = 2_000;
/// And so many at most: a message of some 100 KiB. For so long it looks on where it finds out what waits take.
const KEEP_LONGEST_NS: u64 = 50_000;
/// Failures in a row after which it is not done.
const KEEP_MOST: u8 = 3;
/// Of so many waits one looks what the other ranks do, and tries it again where none of them waits.
const KEEP_TRIES: u8 = 64;
/// What each rank that shares the processor may take in its turn: it copies the messages of a collective call.
const TURN_NS: u64 = 125_000;
/// A yield later, of so many ranks that have shared a processor one is forgotten that does not share it any more.
const SHARERS_PER_YIELD: u32 = 8;
/// Nanoseconds after which a yield has let somebody run who does not yield: another program, or a rank that computes.
/// The kernel gives such a one its whole slice each time.
const SLOW_YIELD_NS: u64 = 500_000;
/// After that a rank sleeps rather than yields (a sleeper that is woken runs soon), for twice as long as it lost, and
/// each time that the next yield is no better, for twice as long again, up to so many doublings.
const SLOW_MOST: u32 = 5;
/// Nanoseconds, at most.
const SLEEPS_NS: u64 = 50_000_000;

/// What waiting on a crowded node has been like.
#[derive(Debug, Clone, Copy, Default)]
pub struct Oversubscription {
    /// Whether anything is learnt.
    learns: bool,
    /// How many ranks have shared a processor lately, at most.
    sharers: u32,
    /// Above 0 while it pays to keep the processor for a moment.
    worth: u8,
    /// For how long, in nanoseconds.
    keep_ns: u64,
    /// Waits since the other ranks were looked at.
    waits: u8,
    /// Slow yields, less the others that followed each of them.
    slow: u32,
    /// Until when yields are not tried.
    sleeps_until_ns: u64,
    /// A rank that was about something else than messages after a slow yield, and its count of waits then.
    computing: Option<(u32, u32)>,
}

impl Oversubscription {
    /// Nothing is known; `learns`: whether anything ever is.
    pub fn of(learns: bool) -> Self {
        Oversubscription { learns, ..Oversubscription::default() }
    }

    /// Whether it is time to look what the other ranks do.
    fn is_due(&mut self) -> bool {
        self.waits = (self.waits + 1) % KEEP_TRIES;
        self.learns && self.waits == 0
    }

    /// Whether no other rank waits as well.
    fn note_company(&mut self, alone: bool) {
        match (alone, self.worth) {
            (false, _) => self.worth = 0,
            // One long look finds out what a wait takes.
            (true, 0) => (self.worth, self.keep_ns) = (1, KEEP_LONGEST_NS),
            (true, _) => {}
        }
    }

    /// Whether to keep the processor for a moment in the wait that begins.
    fn may_keep(&self) -> bool {
        self.worth > 0
    }

    /// Whether a wait of so many nanoseconds has been too long to keep the processor.
    fn is_too_long(&self, waited: u64) -> bool {
        waited > self.keep_ns
    }

    /// The wait was over after so many nanoseconds.
    fn note_paid(&mut self, waited: u64) {
        self.worth = KEEP_MOST;
        let slowly = self.keep_ns - self.keep_ns / 8;
        self.keep_ns = (2 * waited).max(slowly).clamp(KEEP_NS, KEEP_LONGEST_NS);
    }

    /// The wait was too long.
    fn note_too_long(&mut self) {
        self.worth = self.worth.saturating_sub(1);
    }

    /// Whether the last yields have let somebody run who does not yield.
    pub(super) fn is_slow(&self, now_ns: u64) -> bool {
        now_ns < self.sleeps_until_ns
    }

    /// Nanoseconds of yielding before a sleep.
    pub(super) fn yields_for(&self, now_ns: u64) -> u64 {
        match self.is_slow(now_ns) {
            true => 0,
            false => YIELD_NS.max(self.round_ns()),
        }
    }

    /// So many ranks share a processor now. There were more a moment ago where some of them have gone to sleep, but not
    /// long ago: a rank that is woken alone is not to yield for as long as all of them would take.
    pub(super) fn note_sharers(&mut self, ranks: u32) {
        self.sharers = ranks.max(self.sharers - self.sharers.div_ceil(SHARERS_PER_YIELD));
    }

    /// Nanoseconds in which each of them has its turn.
    fn round_ns(&self) -> u64 {
        u64::from(self.sharers) * TURN_NS
    }

    /// Whether a yield that took so long has let somebody run who does not yield.
    fn is_long(&self, took_ns: u64) -> bool {
        took_ns > SLOW_YIELD_NS.max(self.round_ns())
    }

    /// A yield took from one time to the other.
    pub(super) fn note_yield(&mut self, began_ns: u64, ended_ns: u64) {
        let took = ended_ns - began_ns;
        if !self.is_long(took) {
            self.slow = self.slow.saturating_sub(1);
        } else if self.learns {
            self.slow = (self.slow + 2).min(SLOW_MOST);
            self.sleeps_until_ns = ended_ns + (took << (self.slow - 1)).min(SLEEPS_NS);
        }
    }
}

impl Worker {
    /// Whether this rank keeps its processor for now, in a wait that has lasted `waited` nanoseconds.
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

    /// Whether a third rank waits for a message and would use this processor well.
    fn does_another_wait(&self, focus: Option<u32>) -> bool {
        let mut ranks = self.job.node_ranks().map(|rank| rank as u32);
        ranks.any(|rank| Some(rank) != focus && self.is_awake(rank, true))
    }

    /// Whether another rank is awake, and waits for a message (or moves one) or not, as asked for.
    fn is_awake(&self, rank: u32, waits: bool) -> bool {
        let page = self.job.rank_page(rank as usize);
        // Of ranks of other nodes nothing is told on these pages.
        rank != self.rank
            && self.job.is_node_peer(rank as usize)
            && page.is_some_and(|page| {
                page.is_waiting() == waits && page.state.load(Ordering::Relaxed) == STATE_AWAKE
            })
    }

    /// A yield took from one time to the other. A long one in which ranks moved long messages is none that somebody
    /// took who does not yield.
    pub(super) fn note_yield(&mut self, began_ns: u64, ended_ns: u64) {
        let awake = self.job.header().awake.load(Ordering::Relaxed);
        let policy = &mut self.wait;
        policy.oversubscription.note_sharers(awake / policy.processors.max(1));
        let is_long = policy.oversubscription.is_long(ended_ns - began_ns) && self.is_crowded();
        if !is_long || self.does_one_compute() {
            self.wait.oversubscription.note_yield(began_ns, ended_ns);
        }
    }

    /// Whether the rank that did not wait when this was last asked has not waited since either. Between a copy and the
    /// next a rank does not wait as well, but not from one long yield to the next.
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
    /// Looks up to one round over everything.
    #[inline]
    pub(super) fn round(&self) -> u32 {
        match self.crowded && !self.kept {
            true => YIELDED_POLLS,
            false => DIRECTED_POLLS,
        }
    }

    /// The wait is over.
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
    fn keeping__goes_on_while_it_pays_and_nobody_else_waits() {
        let mut oversubscription = Oversubscription::of(true);
        assert!(!oversubscription.may_keep());
        let polls = (0..10 * u32::from(KEEP_TRIES)).filter(|_| oversubscription.is_due());
        assert_eq!(polls.count(), 10);
        oversubscription.note_company(true);
        assert!(oversubscription.may_keep());
        oversubscription.note_too_long();
        assert!(!oversubscription.may_keep(), "one look is enough where it has not paid yet");
        oversubscription.note_company(true);
        oversubscription.note_paid(100);
        for _ in 1..KEEP_MOST {
            oversubscription.note_too_long();
            oversubscription.note_company(true);
            assert!(oversubscription.may_keep());
        }
        oversubscription.note_too_long();
        assert!(!oversubscription.may_keep());
        oversubscription.note_company(true);
        oversubscription.note_company(false);
        assert!(!oversubscription.may_keep());
    }

    #[test]
    fn keeping__lasts_as_long_as_waits_take() {
        let mut oversubscription = Oversubscription::of(true);
        oversubscription.note_company(true);
        assert!(!oversubscription.is_too_long(KEEP_LONGEST_NS));
        (0..99).for_each(|_| oversubscription.note_paid(7_000));
        assert!(!oversubscription.is_too_long(14_000) && oversubscription.is_too_long(14_001));
        oversubscription.note_paid(20_000);
        assert!(!oversubscription.is_too_long(40_000), "a longer message is seen at once");
        (0..99).for_each(|_| oversubscription.note_paid(1));
        assert!(
            !oversubscription.is_too_long(KEEP_NS) && oversubscription.is_too_long(KEEP_NS + 1)
        );
        oversubscription.note_paid(u64::MAX / 4);
        assert!(oversubscription.is_too_long(KEEP_LONGEST_NS + 1));
    }

    #[test]
    fn yield__that_cost_a_slice_is_followed_by_sleeps_for_a_while() {
        let mut oversubscription = Oversubscription::of(true);
        oversubscription.note_yield(0, SLOW_YIELD_NS);
        assert_eq!(oversubscription.yields_for(SLOW_YIELD_NS), YIELD_NS);
        let lost = 2 * SLOW_YIELD_NS;
        oversubscription.note_yield(0, lost);
        assert_eq!(oversubscription.yields_for(3 * lost - 1), 0);
        assert_eq!(oversubscription.yields_for(3 * lost), YIELD_NS);
        // The same holds where each rank has a processor and a thread of the program takes it.
        assert!(oversubscription.is_slow(3 * lost - 1) && !oversubscription.is_slow(3 * lost));
        oversubscription.note_yield(0, lost);
        assert_eq!(oversubscription.yields_for(9 * lost - 1), 0);
        for _ in 0..SLOW_MOST {
            oversubscription.note_yield(0, 1);
        }
        oversubscription.note_yield(0, lost);
        assert_eq!(oversubscription.yields_for(3 * lost), YIELD_NS);
        (0..9).for_each(|_| oversubscription.note_yield(0, lost));
        assert_eq!(oversubscription.yields_for(lost + SLEEPS_NS), YIELD_NS);
    }

    #[test]
    fn yield__in_which_many_ranks_had_their_turn_is_not_slow() {
        let mut oversubscription = Oversubscription::of(true);
        oversubscription.note_sharers(2);
        oversubscription.note_sharers(16);
        let round = 16 * TURN_NS;
        assert!(round > 3 * SLOW_YIELD_NS);
        oversubscription.note_yield(0, round);
        assert_eq!(oversubscription.yields_for(round), round, "until all had their turn");
        oversubscription.note_yield(0, round + 1);
        assert!(oversubscription.is_slow(round + 2));
    }

    #[test]
    fn yields__are_for_as_many_ranks_as_are_awake() {
        let mut oversubscription = Oversubscription::of(true);
        oversubscription.note_sharers(200);
        assert_eq!(oversubscription.yields_for(0), 200 * TURN_NS);
        oversubscription.note_sharers(3);
        assert_eq!(oversubscription.yields_for(0), 175 * TURN_NS);
        (0..40).for_each(|_| oversubscription.note_sharers(3));
        assert_eq!(oversubscription.yields_for(0), YIELD_NS.max(3 * TURN_NS));
    }

    #[test]
    fn round__comes_soon_where_a_yield_lies_between_two_looks() {
        let mut wait = Wait::begin(POLLS_PER_CLOCK, true, None);
        assert_eq!(wait.round(), YIELDED_POLLS);
        wait.kept = true;
        assert_eq!(wait.round(), DIRECTED_POLLS);
        let wait = Wait::begin(POLLS_PER_CLOCK, false, None);
        assert_eq!(wait.round(), DIRECTED_POLLS);
    }

    #[test]
    fn nothing__is_learnt_where_that_is_switched_off() {
        let mut oversubscription = Oversubscription::of(false);
        oversubscription.note_yield(0, 2 * SLOW_YIELD_NS);
        assert!((0..2 * u32::from(KEEP_TRIES)).all(|_| !oversubscription.is_due()));
        assert_eq!(oversubscription.yields_for(2 * SLOW_YIELD_NS), YIELD_NS);
    }
}
