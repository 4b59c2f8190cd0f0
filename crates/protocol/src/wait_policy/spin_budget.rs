//! Polling time before a sleep that an adapter ends, learnt from the last sleeps. Pure.
//!
//! A wake-up by an adapter takes an event, a thread that waits for it, and two system calls for each queue. Such a
//! wake-up costs many times a wake-up by a rank of the node. Polling for the duration of a short sleep is cheaper.

/// Default time, in nanoseconds, that a rank with its own processor spins before it sleeps: about the cost of a
/// wake-up.
pub(crate) const SPIN_NS: u64 = 50_000;

/// Longest polling time after a short sleep, in nanoseconds.
const MOST_NS: u64 = 2_000_000;

/// Polling time learnt from the last sleeps.
#[derive(Debug, Clone, Copy)]
pub struct SpinBudget {
    learns: bool,
    polls_ns: u64,
}

impl SpinBudget {
    /// Returns the initial state. `learns`: whether learning is on.
    pub fn of(learns: bool) -> Self {
        let polls_ns = 0;
        SpinBudget { learns, polls_ns }
    }

    pub(crate) fn limit_ns(&self) -> u64 {
        self.polls_ns.max(SPIN_NS)
    }

    /// Notes a wait with a sleep that ended `waited_ns` nanoseconds after it began.
    pub(crate) fn note_slept(&mut self, waited_ns: u64) {
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
        // Waits of that length now end before they sleep. A wait that is longer than the limit still sleeps.
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
