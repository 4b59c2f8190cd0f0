//! How long a rank looks on before it sleeps where an adapter wakes it: what its last sleeps were like decides.
//!
//! Such a wake-up takes an event of the adapter, a thread that waits for it and two calls of the kernel for each queue:
//! many times what a neighbour's takes. Who is woken soon would rather have looked on for so long. Pure.

use super::SPIN_NS;

/// Longest that a rank looks on in vain, in nanoseconds, where its last sleep was short.
const MOST_NS: u64 = 2_000_000;

/// What the last sleeps were like.
#[derive(Debug, Clone, Copy)]
pub struct SpinBudget {
    /// Whether anything is learnt.
    learns: bool,
    /// How long to look on; 0 while nothing speaks for more than the least.
    polls_ns: u64,
}

impl SpinBudget {
    /// Nothing is known; `learns`: whether anything ever is.
    pub fn of(learns: bool) -> Self {
        let polls_ns = 0;
        SpinBudget { learns, polls_ns }
    }

    /// Nanoseconds to look on before a sleep.
    pub(super) fn limit_ns(&self) -> u64 {
        self.polls_ns.max(SPIN_NS)
    }

    /// A wait has ended that had come to a sleep: so long after it began, in nanoseconds.
    pub(super) fn note_slept(&mut self, waited_ns: u64) {
        self.polls_ns = match self.learns && waited_ns <= MOST_NS / 2 {
            true => 2 * waited_ns,
            false => 0,
        };
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn budget__grows_with_short_sleeps_and_ends_with_a_long_one() {
        let mut spin_budget = SpinBudget::of(true);
        assert_eq!(spin_budget.limit_ns(), SPIN_NS);
        spin_budget.note_slept(300_000);
        assert_eq!(spin_budget.limit_ns(), 600_000);
        // Such waits end before they come to a sleep now. One that is longer lasts beyond the limit.
        spin_budget.note_slept(1_000_000);
        assert_eq!(spin_budget.limit_ns(), MOST_NS);
        spin_budget.note_slept(MOST_NS);
        assert_eq!(spin_budget.limit_ns(), SPIN_NS);
    }

    #[test]
    fn budget__is_never_less_than_the_least() {
        let mut spin_budget = SpinBudget::of(true);
        spin_budget.note_slept(1);
        assert_eq!(spin_budget.limit_ns(), SPIN_NS);
        let mut fixed = SpinBudget::of(false);
        fixed.note_slept(300_000);
        assert_eq!(fixed.limit_ns(), SPIN_NS);
    }
}
