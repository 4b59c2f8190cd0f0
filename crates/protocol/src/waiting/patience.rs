//! How long a rank looks on before it sleeps where an adapter wakes it: what its last sleeps were like decides.
//!
//! Such a wake-up takes an event of the adapter, a thread that waits for it and two calls of the kernel for each queue:
//! many times what a neighbour's takes. Who is woken soon would rather have looked on for so long. Pure.

use super::SPIN_NS;

/// Longest that a rank looks on in vain, in nanoseconds, where its last sleep was short.
const MOST_NS: u64 = 2_000_000;

/// What the last sleeps were like.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Whether anything is learnt.
    learns: bool,
    /// How long to look on; 0 while nothing speaks for more than the least.
    looks_ns: u64,
}

impl Patience {
    /// Nothing is known; `learns`: whether anything ever is.
    pub fn of(learns: bool) -> Self {
        let looks_ns = 0;
        Patience { learns, looks_ns }
    }

    /// Nanoseconds to look on before a sleep.
    pub(super) fn limit_ns(&self) -> u64 {
        self.looks_ns.max(SPIN_NS)
    }

    /// A wait has ended that had come to a sleep: so long after it began, in nanoseconds.
    pub(super) fn note_slept(&mut self, waited_ns: u64) {
        self.looks_ns = match self.learns && waited_ns <= MOST_NS / 2 {
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
    fn patience__grows_with_short_sleeps_and_ends_with_a_long_one() {
        let mut patience = Patience::of(true);
        assert_eq!(patience.limit_ns(), SPIN_NS);
        patience.note_slept(300_000);
        assert_eq!(patience.limit_ns(), 600_000);
        // Such waits end before they come to a sleep now. One that is longer lasts beyond the limit.
        patience.note_slept(1_000_000);
        assert_eq!(patience.limit_ns(), MOST_NS);
        patience.note_slept(MOST_NS);
        assert_eq!(patience.limit_ns(), SPIN_NS);
    }

    #[test]
    fn patience__is_never_less_than_the_least() {
        let mut patience = Patience::of(true);
        patience.note_slept(1);
        assert_eq!(patience.limit_ns(), SPIN_NS);
        let mut fixed = Patience::of(false);
        fixed.note_slept(300_000);
        assert_eq!(fixed.limit_ns(), SPIN_NS);
    }
}
