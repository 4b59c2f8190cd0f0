//! State learnt from waits while more ranks are awake than there are processors.

/// Nanoseconds of yielding before a rank on an oversubscribed node sleeps. A yield runs every other ready rank once, so
/// this time must cover one turn of many ranks.
const YIELD_NS: u64 = 200_000;
/// If polling has paid off, a rank on an oversubscribed node polls before it lets others run. It polls for at least
/// this many nanoseconds, and usually for twice the time of its last waits.
const KEEP_NS: u64 = 2_000;
/// Maximum number of nanoseconds that a rank polls before it lets others run: about the time of a message of 100 KiB.
/// The first trial also polls for this time.
const KEEP_LONGEST_NS: u64 = 50_000;
/// A rank stops keeping its processor after this many waits in a row for which it polled in vain.
const KEEP_MOST: u8 = 3;
/// Number of waits between two checks of the other ranks. If none waits, the rank tries again to keep its processor.
const KEEP_TRIES: u8 = 64;
/// Nanoseconds that a turn of each rank on the processor may take, to copy the messages of a collective call.
const TURN_NS: u64 = 125_000;
/// After each yield, 1/`SHARERS_PER_YIELD` of the ranks that no longer share the processor are forgotten.
const SHARERS_PER_YIELD: u32 = 8;
/// A yield is slow only if it takes more nanoseconds than this. During a slow yield, the processor ran a process that
/// does not yield: another program, or a rank that computes. The kernel gives such a process a whole time slice.
const SLOW_YIELD_NS: u64 = 500_000;
/// Largest score of slow yields. After a slow yield, a rank sleeps instead of yielding, because a sleeper runs soon
/// after it is woken. At score n it does so for 2^(n - 1) times the yield's time, at most `SLEEPS_NS`.
const SLOW_MOST: u32 = 5;
const SLEEPS_NS: u64 = 50_000_000;

/// State learnt from waits on an oversubscribed node.
#[derive(Debug, Clone, Copy, Default)]
pub struct Oversubscription {
    learns: bool,
    /// Largest recent number of ranks that shared a processor.
    sharers: u32,
    /// Number of further waits with vain polls until the rank stops keeping its processor; 0 if it does not keep it.
    worth: u8,
    keep_ns: u64,
    waits: u8,
    /// Score of slow yields: each adds 2, up to `SLOW_MOST`, and each other yield subtracts 1.
    slow: u32,
    sleeps_until_ns: u64,
    /// Rank that was computing after a slow yield, and its count of waits (`RankPage::waits`) at that time.
    pub(crate) computing: Option<(u32, u32)>,
}

impl Oversubscription {
    /// Returns the initial state. `learns`: whether learning is on.
    pub fn of(learns: bool) -> Self {
        Oversubscription { learns, ..Oversubscription::default() }
    }

    pub(crate) fn is_due(&mut self) -> bool {
        self.waits = (self.waits + 1) % KEEP_TRIES;
        self.learns && self.waits == 0
    }

    pub(crate) fn note_company(&mut self, alone: bool) {
        match (alone, self.worth) {
            (false, _) => self.worth = 0,
            // Begin with one long trial, which measures how long a wait takes.
            (true, 0) => (self.worth, self.keep_ns) = (1, KEEP_LONGEST_NS),
            (true, _) => {}
        }
    }

    pub(crate) fn may_keep(&self) -> bool {
        self.worth > 0
    }

    pub(crate) fn is_too_long(&self, waited: u64) -> bool {
        waited > self.keep_ns
    }

    pub(crate) fn note_paid(&mut self, waited: u64) {
        self.worth = KEEP_MOST;
        let slowly = self.keep_ns - self.keep_ns / 8;
        self.keep_ns = (2 * waited).max(slowly).clamp(KEEP_NS, KEEP_LONGEST_NS);
    }

    pub(crate) fn note_too_long(&mut self) {
        self.worth = self.worth.saturating_sub(1);
    }

    pub(crate) fn is_slow(&self, now_ns: u64) -> bool {
        now_ns < self.sleeps_until_ns
    }

    pub(crate) fn yields_for(&self, now_ns: u64) -> u64 {
        match self.is_slow(now_ns) {
            true => 0,
            false => YIELD_NS.max(self.round_ns()),
        }
    }

    /// Notes the number of ranks that share a processor. A larger earlier number decays slowly, because some ranks may
    /// only have gone to sleep. It does decay: a rank that is woken alone must not yield for as long as if all ranks
    /// were awake.
    pub(crate) fn note_sharers(&mut self, ranks: u32) {
        self.sharers = ranks.max(self.sharers - self.sharers.div_ceil(SHARERS_PER_YIELD));
    }

    pub(crate) fn round_ns(&self) -> u64 {
        u64::from(self.sharers) * TURN_NS
    }

    /// Returns whether a yield of `took_ns` nanoseconds has run a process that does not yield.
    pub(crate) fn is_long(&self, took_ns: u64) -> bool {
        took_ns > SLOW_YIELD_NS.max(self.round_ns())
    }

    pub(crate) fn note_yield(&mut self, began_ns: u64, ended_ns: u64) {
        let took = ended_ns - began_ns;
        if !self.is_long(took) {
            self.slow = self.slow.saturating_sub(1);
        } else if self.learns {
            self.slow = (self.slow + 2).min(SLOW_MOST);
            self.sleeps_until_ns = ended_ns + (took << (self.slow - 1)).min(SLEEPS_NS);
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn keeping__continues_while_it_pays_and_no_other_thread_waits() {
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
        // `is_slow` also holds if each rank has a processor and a thread of the program takes it.
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
    fn nothing__is_learnt_where_that_is_switched_off() {
        let mut oversubscription = Oversubscription::of(false);
        oversubscription.note_yield(0, 2 * SLOW_YIELD_NS);
        assert!((0..2 * u32::from(KEEP_TRIES)).all(|_| !oversubscription.is_due()));
        assert_eq!(oversubscription.yields_for(2 * SLOW_YIELD_NS), YIELD_NS);
    }
}
